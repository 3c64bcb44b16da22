#include "runtime/rank/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <vector>

#include "runtime/follower.h"
#include "runtime/testing/local_cluster.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::RandomModel;

plan::Plan plan_of(const model::Model& model, uint32_t ranks = 2) {
  plan::PlanRequest request;
  request.ranks = ranks;
  request.context = 64;
  auto plan = plan::make_plan(model.config, plan::weight_bytes(model.tensors), request);
  CHECK_MSG(plan.is_ok(), plan.status().message().c_str());
  return std::move(plan).value();
}

class FingerprintTest : public ::testing::Test {
 protected:
  std::unique_ptr<model::Model> make(const RandomModel& random = {}) {
    return random.make(folders_.emplace_back());
  }
  static Fingerprint print(const model::Model& model, const EngineOptions& options = {}) {
    return fingerprint_of(model, plan_of(model), options);
  }

  std::deque<model::testing::TempFolder> folders_;  // one for each model
};

TEST_F(FingerprintTest, IsEqualForTwoReadingsOfOneModel) {
  const auto a = make();
  const auto b = make();
  EXPECT_EQ(print(*a), print(*b));
  EXPECT_EQ(difference(print(*a), print(*b)), "");
}

TEST_F(FingerprintTest, EverySettingThatChangesLogitsCounts) {
  const auto model = make();
  const Fingerprint before = print(*model);
  const std::vector<std::function<void(model::ModelConfig&)>> changes = {
      [](auto& config) { config.family = "qwen2"; },
      [](auto& config) { config.norm_epsilon = 1e-6F; },
      [](auto& config) { config.rope.theta = 500000; },
      [](auto& config) { config.rope.pairing = tensor::RopePairing::kHalfSplit; },
      [](auto& config) { config.rope.scaling = tensor::RopeScaling::kLinear; },
      [](auto& config) { config.rope.factor = 2; },
      [](auto& config) { config.rope.original_context = 1234; },
      [](auto& config) { config.rope.attention_factor = 1.5; },
      [](auto& config) { config.rope.frequency_divisors = {1, 2}; },
      [](auto& config) { config.layers.back().sliding_window = 16; },
      [](auto& config) { config.layers.front().qk_norm = true; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const model::ModelConfig kept = model->config;
    changes[i](model->config);
    EXPECT_NE(print(*model).settings, before.settings) << i;
    EXPECT_THAT(difference(before, print(*model)), HasSubstr("another model (dimensions"));
    model->config = kept;
  }
  EXPECT_EQ(print(*model), before);
}

TEST_F(FingerprintTest, TensorsTypesAndBytesCount) {
  const auto model = make();
  const auto other_type = make({.dtype = tensor::DType::kF16, .change = {}});
  EXPECT_THAT(difference(print(*model), print(*other_type)), HasSubstr("types or shapes"));
  for (const char* changed : {"token_embd.weight", "output_norm.weight", "blk.1.ffn_down.weight"}) {
    const auto other = make({.change = [&](const std::string& name, std::vector<float>& values) {
      if (name == changed) values.back() += 1;
    }});
    EXPECT_EQ(print(*model).tensors, print(*other).tensors);
    EXPECT_THAT(difference(print(*model), print(*other)), HasSubstr("weights differ")) << changed;
  }
}

TEST_F(FingerprintTest, PlanAndOptionsCount) {
  const auto model = make();
  const Fingerprint before = print(*model);
  EXPECT_THAT(difference(before, fingerprint_of(*model, plan_of(*model, 3), {})),
              HasSubstr("another plan or other options"));
  EngineOptions options;
  options.tokens = 150;
  EXPECT_NE(print(*model, options).layout, before.layout);
}

// What an Engine says when its follower read another file.
TEST_F(FingerprintTest, ARankWithAnotherModelIsRefusedByName) {
  const auto model = make();
  const auto settings = make();
  settings->config.rope.theta = 500000;
  const auto types = make({.dtype = tensor::DType::kF16, .change = {}});
  const auto weights = make({.seed = 2, .change = {}});
  const std::vector<std::pair<const model::Model*, const char*>> others = {
      {settings.get(), "node-1: it holds another model (dimensions, rotary"},
      {types.get(), "node-1: it holds another model (names, types"},
      {weights.get(), "node-1: it holds another version of the model (its weights differ)"}};
  for (const auto& [other, message] : others) {
    ClusterOptions options;
    options.ranks = 2;
    options.follower = [&, held = other](collective::Group& group, const plan::Plan& plan,
                                         const EngineOptions& engine) {
      return run_follower(*held, plan, group, engine);
    };
    LocalCluster cluster(*model, options);
    EXPECT_THAT(cluster.status().message(), HasSubstr(message));
    EXPECT_TRUE(cluster.end().front().is_ok());
  }
}

}  // namespace
}  // namespace shoal::runtime
