#include "runtime/testing/local_cluster.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "fabric/in_process.h"
#include "runtime/follower.h"

namespace shoal::runtime::testing {
namespace {

plan::Plan plan_for(const model::Model& model, const ClusterOptions& options) {
  plan::PlanRequest request;
  request.ranks = options.ranks;
  request.weights = options.weights;
  request.context = options.context;
  request.kv_type = options.kv_type;
  if (options.engine.exact) request.kv_type = plan::KvType::kF32;
  auto plan = plan::make_plan(model.config, plan::weight_bytes(model.tensors), request);
  CHECK_MSG(plan.is_ok(), plan.status().message().c_str());
  return std::move(plan).value();
}

}  // namespace

LocalCluster::LocalCluster(const model::Model& model, const ClusterOptions& options) {
  const plan::Plan plan = plan_for(model, options);
  if (options.ranks == 1) {
    fabrics_.push_back(fabric::make_single_fabric("node-0"));
  } else {
    fabric::InProcessOptions in_process;
    in_process.size = static_cast<int>(options.ranks);
    in_process.link = options.link;
    auto made =
        fabric::make_in_process_group(in_process, Deadline::after(std::chrono::seconds(30)));
    CHECK_MSG(made.is_ok(), made.status().message().c_str());
    fabrics_ = std::move(made).value();
  }
  follower_statuses_.resize(options.ranks - 1);
  for (uint32_t rank = 1; rank < options.ranks; ++rank) {
    followers_.emplace_back([this, &model, plan, options, rank] {
      {
        collective::Group group(*fabrics_[rank]);
        follower_statuses_[rank - 1] = options.follower
                                           ? options.follower(group, plan, options.engine)
                                           : run_follower(model, plan, group, options.engine);
      }
      fabrics_[rank].reset();
    });
  }
  group_ = std::make_unique<collective::Group>(*fabrics_.front());
  auto engine = Engine::create(model, plan, *group_, options.engine);
  status_ = engine.status();
  if (engine.is_ok()) engine_ = std::move(engine).value();
}

Engine& LocalCluster::engine() {
  CHECK_MSG(engine_ != nullptr, status_.message().c_str());
  return *engine_;
}

std::vector<Status> LocalCluster::end() {
  engine_.reset();
  group_.reset();
  if (!fabrics_.empty()) fabrics_.front().reset();
  for (std::thread& follower : followers_) follower.join();
  followers_.clear();
  return follower_statuses_;
}

std::vector<float> all_logits(Engine& engine, std::span<const TokenId> tokens, bool by_decode) {
  std::vector<float> out;
  ScoreRequest request;
  request.tokens = tokens;
  request.by_decode = by_decode;
  request.on_logits = [&](size_t position, std::span<const float> logits) {
    CHECK(position * logits.size() == out.size());
    out.insert(out.end(), logits.begin(), logits.end());
    return true;
  };
  const Status status = engine.score(request);
  CHECK_MSG(status.is_ok(), status.message().c_str());
  return out;
}

double max_difference(std::span<const float> a, std::span<const float> b) {
  CHECK(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
  }
  return most;
}

double max_size(std::span<const float> a) {
  double most = 0;
  for (const float value : a) most = std::max(most, std::abs(double{value}));
  return most;
}

std::vector<TokenId> some_tokens(size_t count, size_t vocabulary) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i)
    tokens[i] = static_cast<TokenId>((i * i * 7 + 13 * i + 1) % vocabulary);
  return tokens;
}

}  // namespace shoal::runtime::testing
