#include "fabric/testing/thread_group.h"

#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "fabric/in_process.h"
#include "fabric/verbs/verbs_port.h"

namespace shoal::fabric {

bool has_rdma_device() {
  if (std::getenv("SHOAL_GUEST") != nullptr) return true;
  const auto table = load_verbs();
  return table.is_ok() && local_rdma_address(**table).is_ok();
}

ThreadGroup::ThreadGroup(const ThreadGroupOptions& options) {
  if (options.maker == "sim") {
    SimOptions sim = options.sim;
    sim.size = options.size;
    sim.slots = options.slots;
    network_ = std::make_unique<SimNetwork>(sim);
    for (int rank = 0; rank < options.size; ++rank) {
      fabrics_.push_back(network_->take_fabric(rank));
    }
    return;
  }
  InProcessOptions in_process;
  in_process.size = options.size;
  const bool is_verbs = options.maker.starts_with("verbs_");
  if (is_verbs) {
    FakeVerbsOptions verbs = options.verbs;
    using Mode = FakeVerbsOptions::Mode;
    if (options.maker == "verbs_rc") verbs.mode = Mode::kLinuxRc;
    if (options.maker == "verbs_uc") verbs.mode = Mode::kLinuxUc;
    if (options.maker == "verbs_thunderbolt") verbs.mode = Mode::kThunderbolt;
    verbs_ = std::make_unique<FakeVerbs>(verbs);
    in_process.verbs = verbs_->provider();
  }
  const bool is_ipv6 = options.maker == "tcp6";
  if (is_ipv6) in_process.listen = {.host = "::1", .port = 0};
  if (options.maker == "verbs") in_process.listen.host = *local_rdma_address(**load_verbs());
  const bool is_ucx_tcp = options.maker == "ucx_tcp";
  if (is_ucx_tcp) in_process.ucx.transports = "tcp";
  in_process.link = is_ipv6      ? LinkKind::kTcp
                    : is_verbs   ? LinkKind::kVerbs
                    : is_ucx_tcp ? LinkKind::kUcx
                                 : *parse_link_kind(options.maker);
  in_process.fabric.slots = options.slots;
  in_process.tuning = options.tuning;
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  fabrics_ = *make_in_process_group(in_process, deadline);
}

ThreadGroup::~ThreadGroup() {
  fabrics_.clear();
  if (verbs_ == nullptr) return;
  const FakeVerbsCounts counts = verbs_->counts();
  CHECK_MSG(counts.violations.empty(), counts.violations.front().c_str());
  CHECK_MSG(counts.is_all_gone(), "a closed group has left something on its device");
}

std::vector<Status> ThreadGroup::run(const std::function<Status(Fabric&)>& body) {
  std::vector<Status> statuses(fabrics_.size());
  std::vector<std::thread> threads;
  threads.reserve(fabrics_.size());
  for (size_t rank = 0; rank < fabrics_.size(); ++rank) {
    threads.emplace_back([this, rank, &body, &statuses] {
      statuses[rank] = body(*fabrics_[rank]);
      fabrics_[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<std::byte> test_bytes(size_t count, uint64_t seed) {
  std::vector<std::byte> bytes(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

Deadline test_deadline(const Fabric& fabric) {
  return Deadline::after(fabric.clock(), std::chrono::seconds(60));
}

WaitPolicy test_wait(const Fabric& fabric) {
  return {.spin = fabric.spin(), .deadline = test_deadline(fabric)};
}

}  // namespace shoal::fabric
