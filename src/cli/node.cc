// `shoal node`: the process of one rank of a local group, started by rank 0; not for people.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/os/numa.h"
#include "cli/commands.h"
#include "cli/support/model_setup.h"
#include "cli/support/signals.h"
#include "collective/group.h"
#include "fabric/local_launch.h"
#include "model/model.h"
#include "plan/plan.h"
#include "runtime/follower.h"
#include "runtime/setup.h"
#include "tensor/kernel_path.h"

namespace shoal::cli {
namespace {

constexpr Nanoseconds kJoinDeadline = std::chrono::seconds(30);

// Rank r keeps to the r-th domain; rank 0 does the same and says what the system does not allow.
Status bind_to_own_domain(int rank) {
  const std::vector<NumaDomain> domains = numa_domains();
  if (static_cast<size_t>(rank) >= domains.size()) {
    return Status::node(
        fmt::format("there is no NUMA domain for rank {}: {} are left", rank, domains.size()));
  }
  return bind_to_domain(domains[static_cast<size_t>(rank)]).status();
}

Status follow(fabric::Fabric& fabric, bool by_domain) {
  if (by_domain) RETURN_IF_ERROR(bind_to_own_domain(fabric.rank()));
  collective::Group group(fabric);
  ASSIGN_OR_RETURN(const runtime::Setup setup,
                   runtime::receive_setup(group, Deadline::after(fabric.clock(), kJoinDeadline)));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model, model::load_model(setup.model_path));
  ASSIGN_OR_RETURN(const plan::Plan plan,
                   plan::make_plan(model->config, plan::weight_bytes(model->tensors), setup.plan));
  runtime::EngineOptions options;
  options.threads = setup.threads;
  // A local group; a node that keeps to a domain shares its processors with no other.
  options.threads_on_machine = by_domain ? setup.threads : setup.threads * setup.plan.ranks;
  options.exact = setup.exact;
  options.kernels = tensor::kernel_path_from_name(setup.kernels);
  options.tokens = setup.tokens;
  options.sessions_max = setup.sessions;
  options.prefill_chunk = setup.prefill_chunk;
  return runtime::run_follower(*model, plan, group, options);
}

Result<int> run_node(bool by_domain) {
  ignore_interrupts();
  silence_group_log();
  auto joined = fabric::join_local_group(UniqueFd(fabric::kJoinFd), Deadline::after(kJoinDeadline),
                                         this_program());
  // Of a peer that failed rank 0 tells the user; what is wrong here only this process knows.
  if (joined.status().code() == StatusCode::kGroup) return kExitFailed;
  ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Fabric> fabric, std::move(joined));
  init_logging(fmt::format("rank {}", fabric->rank()));
  silence_group_log();
  const Status status = follow(*fabric, by_domain);
  if (status.is_ok()) return 0;
  // Rank 0 tells the user: of a broken group it knows, of what broke here it is told with this.
  (void)fabric->health().fail(fabric->rank(), status.message());
  return kExitFailed;
}

}  // namespace

void add_node(Program& program) {
  CLI::App& node = program.add_command(
      program.root(), {.name = "node",
                       .description = "A process of a local group, started by rank 0",
                       .examples = ""});
  node.group("");  // not shown in the help
  // Shared: the option lives as long as the action that reads it.
  const auto by_domain = std::make_shared<bool>(false);
  node.add_flag("--numa", *by_domain, "Keep to the NUMA domain of the rank's number");
  program.set_action(node, [by_domain] { return run_node(*by_domain); });
}

}  // namespace shoal::cli
