// A group of threads over any maker, for contract and property tests.
//
// Thread rule: one thread makes it and calls run(); run() gives each rank a thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/message.h"
#include "fabric/sim/sim_network.h"
#include "fabric/tcp/address.h"
#include "fabric/testing/fake_verbs.h"

namespace shoal::fabric {

struct ThreadGroupOptions {
  // "shm", "tcp", "tcp6" (TCP over IPv6), "sim", "verbs" over this machine's RDMA device,
  // "verbs_rc", "verbs_uc" and "verbs_thunderbolt" over a FakeVerbs with the rules of these, "ucx"
  // over what UCX finds, or "ucx_tcp" over its TCP.
  std::string maker = "shm";
  int size = 2;
  SlotClass slots{.payload_bytes = 4096, .count = 4};
  TcpTuning tuning{};
  SimOptions sim{};          // size and slots are overwritten
  FakeVerbsOptions verbs{};  // the mode is overwritten
};

class ThreadGroup {
 public:
  explicit ThreadGroup(const ThreadGroupOptions& options);
  ~ThreadGroup();

  Fabric& fabric(int rank) { return *fabrics_[static_cast<size_t>(rank)]; }
  SimNetwork* network() { return network_.get(); }
  FakeVerbs* verbs() { return verbs_.get(); }
  // body(fabric) on one thread per rank; a rank's fabric is closed when its body returns. The
  // statuses by rank.
  std::vector<Status> run(const std::function<Status(Fabric&)>& body);

 private:
  std::unique_ptr<SimNetwork> network_;
  std::unique_ptr<FakeVerbs> verbs_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
};

// Whether "verbs" can be made here: always in the guest of tests/guest, where a missing device is a
// failure.
bool has_rdma_device();
inline constexpr const char* kNoRdmaDevice =
    "this machine has no RDMA device; ./dev test runs this in a guest that has";

// Bytes that differ from place to place and from seed to seed.
std::vector<std::byte> test_bytes(size_t count, uint64_t seed);

// Of this fabric's clock.
Deadline test_deadline(const Fabric& fabric);
WaitPolicy test_wait(const Fabric& fabric);

}  // namespace shoal::fabric
