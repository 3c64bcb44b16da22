#include "runtime/follower.h"

#include "runtime/rank/rank_instance.h"

namespace shoal::runtime {

Status run_follower(const model::Model& model, const plan::Plan& plan, collective::Group& group,
                    const EngineOptions& options) {
  CHECK(group.rank() > 0);
  ASSIGN_OR_RETURN(const auto instance, RankInstance::create(model, plan, group, options));
  while (true) {
    ASSIGN_OR_RETURN(const bool goes_on, instance->follow());
    if (!goes_on) return Status::ok();
  }
}

}  // namespace shoal::runtime
