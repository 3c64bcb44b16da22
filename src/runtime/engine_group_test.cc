// One engine over several ranks: threads of this process with real links between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "fabric/in_process.h"
#include "runtime/engine.h"
#include "runtime/follower.h"
#include "runtime/rank/rank_instance.h"
#include "runtime/testing/local_cluster.h"
#include "runtime/testing/requests.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using testing::all_logits;
using testing::answer;
using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::max_difference;
using testing::max_size;
using testing::must;
using testing::RandomModel;
using testing::some_tokens;
using testing::try_answer;

struct Layout {
  uint32_t ranks = 1;
  std::vector<double> weights;
};

// 4 heads on 2 KV heads: the third layout replicates KV heads, the others do not.
const std::vector<Layout> kLayouts{{2, {}}, {2, {3, 1}}, {3, {}}, {4, {1, 2, 1, 1}}};

ClusterOptions options_for(const Layout& layout, bool exact) {
  ClusterOptions options;
  options.ranks = layout.ranks;
  options.weights = layout.weights;
  options.engine.exact = exact;
  return options;
}

class EngineGroupTest : public ::testing::Test {
 protected:
  const model::testing::TempFolder folder_;
};

TEST_F(EngineGroupTest, SeveralRanksGiveTheReferencesLogits) {
  for (const char* name : {"smollm", "qwen2", "qwen3"}) {
    const testing::Golden golden = testing::load_golden(name);
    const auto model = testing::load_or_die(golden.paths.front());
    for (const Layout& layout : kLayouts) {
      if (layout.ranks > model->config.layers.front().heads) continue;
      LocalCluster cluster(*model, options_for(layout, /*exact=*/true));
      EXPECT_LT(max_difference(all_logits(cluster.engine(), golden.prompt), golden.logits), 1e-4)
          << name << " on " << layout.ranks;
      for (const Status& status : cluster.end()) EXPECT_TRUE(status.is_ok()) << status.message();
    }
  }
}

// Every type, with shards that begin and end inside the long blocks (ffn 512 on 3 ranks). Between
// layouts only the order of float32 sums differs, and with it now and then the rounding of an
// activation to 8 bits, of half a step: 1/254 of a block's largest value.
TEST_F(EngineGroupTest, EveryTypeGivesTheSameLogitsOnAnyLayout) {
  using tensor::DType;
  for (size_t i = 1; i < tensor::kSupportedTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    RandomModel random;
    random.dtype = dtype;
    random.head_dim = 64;
    random.ffn = 512;
    const auto model = random.make(folder_);
    const auto tokens = some_tokens(40, random.vocab);
    for (const bool exact : {true, false}) {
      LocalCluster one(*model, options_for({}, exact));
      const auto expected = all_logits(one.engine(), tokens);
      for (const Layout& layout : {Layout{2, {3, 1}}, Layout{3, {}}}) {
        LocalCluster cluster(*model, options_for(layout, exact));
        const double tolerance = exact ? 1e-5 : 0.02;
        EXPECT_LT(max_difference(all_logits(cluster.engine(), tokens), expected),
                  tolerance * max_size(expected))
            << tensor::dtype_name(dtype) << " on " << layout.ranks << (exact ? " exact" : "");
      }
    }
  }
}

TEST_F(EngineGroupTest, TheSameBitsInEveryRunOfOneLayout) {
  RandomModel random;
  random.dtype = tensor::DType::kQ4_0;
  random.head_dim = 32;
  const auto model = random.make(folder_);
  const auto tokens = some_tokens(100, random.vocab);
  for (const auto link : {fabric::LinkKind::kShm, fabric::LinkKind::kTcp}) {
    std::vector<float> expected;
    for (int run = 0; run < 3; ++run) {
      ClusterOptions options = options_for({3, {}}, false);
      options.link = link;
      options.engine.threads = run == 1 ? 2 : 1;
      LocalCluster cluster(*model, options);
      const auto logits = all_logits(cluster.engine(), tokens, run == 2);
      if (run == 0) expected = logits;
      EXPECT_EQ(logits, expected) << "run " << run;
    }
  }
}

// Half a step of 8 bits is 1/254 of a head's largest key or value. A context of over 512 positions
// is split over a rank's workers when it decodes.
TEST_F(EngineGroupTest, EightBitKeysAndValuesMoveLogitsLittleAndTheSameOnAnyThreads) {
  RandomModel random;
  random.head_dim = 32;
  const auto model = random.make(folder_);
  const auto tokens = some_tokens(640, random.vocab);
  const auto logits_with = [&](plan::KvType kv_type, uint32_t threads) {
    ClusterOptions options = options_for({2, {}}, false);
    options.context = 1024;
    options.kv_type = kv_type;
    options.engine.threads = threads;
    LocalCluster cluster(*model, options);
    return all_logits(cluster.engine(), tokens, /*by_decode=*/true);
  };
  const auto expected = logits_with(plan::KvType::kF16, 1);
  const auto logits = logits_with(plan::KvType::kQ8, 1);
  EXPECT_LT(max_difference(logits, expected), 0.03 * max_size(expected));
  EXPECT_NE(logits, expected);
  EXPECT_EQ(logits_with(plan::KvType::kQ8, 2), logits);
}

TEST_F(EngineGroupTest, EveryPathOfKernelsGivesNearlyTheSameLogits) {
  RandomModel random;
  random.dtype = tensor::DType::kQ4_0;
  random.head_dim = 32;
  const auto model = random.make(folder_);
  const auto tokens = some_tokens(40, random.vocab);
  const auto logits_with = [&](tensor::KernelPath path) {
    ClusterOptions options = options_for({2, {}}, false);
    options.engine.kernels = path;
    LocalCluster cluster(*model, options);
    return all_logits(cluster.engine(), tokens);
  };
  const auto exact = logits_with(tensor::KernelPath::kExact);
  const auto portable = logits_with(tensor::KernelPath::kPortable);
  // Inputs of eight bits, in a model as small as this.
  EXPECT_LT(max_difference(portable, exact), 0.05 * max_size(exact));
  for (const tensor::KernelPath path : tensor::runnable_kernel_paths()) {
    if (path == tensor::KernelPath::kExact) continue;
    // Another order of sums may round an input to the next step, and then all that follows.
    EXPECT_LT(max_difference(logits_with(path), portable), 0.05 * max_size(exact))
        << tensor::kernel_path_name(path);
  }
}

TEST_F(EngineGroupTest, AnswersAreThoseOfOneRankWhateverTheSampler) {
  RandomModel random;
  random.head_dim = 16;
  const auto model = random.make(folder_);
  std::vector<SamplingParams> samplers(7);
  samplers[0].temperature = 0;
  samplers[1].temperature = 0.7F;
  samplers[2].top_k = 20;
  samplers[3].top_p = 0.9F;
  samplers[4].repetition_penalty = 1.2F;
  samplers[5].logit_bias = {{7, 3.0F}};
  samplers[6].top_k = 100;  // more than a summary holds
  const auto prompt = some_tokens(25, random.vocab);
  LocalCluster one(*model, options_for({}, true));
  LocalCluster three(*model, options_for({3, {}}, true));
  for (size_t i = 0; i < samplers.size(); ++i) {
    GenerateRequest request;
    request.sampling = samplers[i];
    request.sampling.seed = 100 + i;
    request.tokens_max = 30;
    EXPECT_EQ(answer(three.engine(), prompt, request).tokens,
              answer(one.engine(), prompt, request).tokens)
        << "sampler " << i;
  }
  const EngineStats stats = three.engine().stats();
  EXPECT_EQ(stats.nodes.size(), 3U);
  EXPECT_GT(stats.collectives.operations, 0U);
  EXPECT_GT(stats.collectives.bytes, 0U);
  for (const Status& status : three.end()) EXPECT_TRUE(status.is_ok()) << status.message();
}

// Output rows above the tokenizer's tokens are padding: never chosen, not counted in any sum, so
// that answers are those of the model without them, whichever way the logits travel.
TEST_F(EngineGroupTest, PaddingOfTheOutputHeadIsNeverChosen) {
  const auto model = RandomModel().make(folder_);
  const uint32_t tokens = model->config.vocab / 3;  // the last ranks hold nothing but padding
  GenerateRequest request;
  request.tokens_max = 40;
  const std::vector<TokenId> prompt = some_tokens(5, tokens);
  for (const bool wants_full : {false, true}) {
    request.sampling.temperature = 2.0F;
    request.sampling.seed = 11;
    if (wants_full) request.sampling.repetition_penalty = 1.0001F;
    std::vector<TokenId> expected;
    for (const Layout& layout : {Layout{1, {}}, Layout{3, {}}}) {
      ClusterOptions options = options_for(layout, /*exact=*/true);
      options.engine.tokens = tokens;
      LocalCluster cluster(*model, options);
      const GenerateResult result = answer(cluster.engine(), prompt, request);
      EXPECT_THAT(result.tokens, ::testing::Each(::testing::Lt(static_cast<TokenId>(tokens))));
      if (expected.empty()) expected = result.tokens;
      EXPECT_EQ(result.tokens, expected);
      EXPECT_FALSE(try_answer(cluster.engine(), {static_cast<TokenId>(tokens)}, request).is_ok());
    }
  }
}

// Beside another session's token, and where a context is so long that its attention is split over
// the workers when it decodes; what was wrong is taken back and leaves no trace.
TEST_F(EngineGroupTest, DraftedTokensHaveTheLogitsOfTokensThatCameOneByOne) {
  RandomModel random;
  random.dtype = tensor::DType::kQ4_0;
  random.head_dim = 32;
  const auto model = random.make(folder_);
  const auto tokens = some_tokens(660, random.vocab);
  const auto text = std::span<const TokenId>(tokens);
  constexpr size_t kAt = 636;  // four positions before a block's end
  for (const uint32_t ranks : {1U, 2U, 3U}) {
    ClusterOptions options = options_for({ranks, {}}, false);
    options.context = 1024;
    options.engine.threads = ranks == 1 ? 2 : 1;
    LocalCluster cluster(*model, options);
    Engine& engine = cluster.engine();
    const std::vector<float> expected = all_logits(engine, tokens, /*by_decode=*/true);
    engine.reset_stats();
    const SessionId other = must(engine.open_session());
    const SessionId session = must(engine.open_session());
    const auto advance = [&](const std::vector<AdvanceItem>& items) {
      const Status status = engine.advance(items);
      ASSERT_TRUE(status.is_ok()) << status.message();
    };
    const auto expect_logits = [&](size_t output, size_t position) {
      const auto logits = must(engine.fetch_logits(output));
      const auto row = std::span(expected).subspan(position * logits.size(), logits.size());
      EXPECT_TRUE(std::ranges::equal(logits, row)) << ranks << " ranks, position " << position;
    };
    for (size_t at = 0; at < kAt; at += kAt / 3) {
      advance({{session, text.subspan(at, kAt / 3), Outputs::kNone}});
    }
    advance({{other, text.first(1)}, {session, text.subspan(kAt, 7), Outputs::kAll}});
    expect_logits(0, 0);
    for (size_t i = 0; i < 7; ++i) expect_logits(1 + i, kAt + i);
    EXPECT_EQ(engine.stats().decode_tokens, 8U);
    ASSERT_TRUE(engine.truncate(session, kAt + 2).is_ok());
    advance({{session, text.first(9), Outputs::kAll}});
    ASSERT_TRUE(engine.truncate(session, kAt + 2).is_ok());
    advance({{session, text.subspan(kAt + 2, 5), Outputs::kAll}, {other, text.subspan(1, 1)}});
    for (size_t i = 0; i < 5; ++i) expect_logits(i, kAt + 2 + i);
    expect_logits(5, 1);

    const size_t most = engine.step_outputs_max();
    const AdvanceItem too_many{session, text.first(most + 1), Outputs::kAll};
    EXPECT_EQ(engine.advance({&too_many, 1}).code(), StatusCode::kRequest);
    EXPECT_EQ(must(engine.session_tokens(session)).size(), kAt + 7);
  }
}

TEST_F(EngineGroupTest, SessionsOnAllRanksFollowThoseOfRankZero) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options = options_for({2, {}}, false);
  options.context = 128;
  LocalCluster cluster(*model, options);
  Engine& engine = cluster.engine();
  // Blocks go from session to session; a follower that kept one would run out of room.
  for (int round = 0; round < 5; ++round) {
    const SessionId a = must(engine.open_session());
    const SessionId b = must(engine.open_session());
    const auto tokens = some_tokens(64, 200);
    const AdvanceItem items[] = {{a, tokens}, {b, std::span(tokens).first(60)}};
    ASSERT_TRUE(engine.advance(items).is_ok());
    EXPECT_EQ(engine.advance({items, 1}).code(), StatusCode::kRequest) << "no block left";
    ASSERT_TRUE(engine.truncate(b, 0).is_ok());
    ASSERT_TRUE(engine.advance({items, 1}).is_ok());
    ASSERT_TRUE(engine.close_session(a).is_ok());
    ASSERT_TRUE(engine.close_session(b).is_ok());
  }
  for (const Status& status : cluster.end()) EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST_F(EngineGroupTest, BetweenCommandsNoRankUsesTheCpu) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options = options_for({3, {}}, false);
  options.engine.threads = 2;
  LocalCluster cluster(*model, options);
  GenerateRequest request;
  request.tokens_max = 5;
  ASSERT_TRUE(try_answer(cluster.engine(), some_tokens(10, 200), request).is_ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // whatever spins gives up
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  // One thread of six that spins would use a whole second.
  EXPECT_LT(cpu_seconds, 0.15);
}

// Takes part in `commands` commands, then does `then`.
std::function<Status(collective::Group&, const plan::Plan&, const EngineOptions&)> dies_after(
    const model::Model& model, int commands,
    const std::function<Status(collective::Group&)>& then) {
  return [&model, commands, then](collective::Group& group, const plan::Plan& plan,
                                  const EngineOptions& options) -> Status {
    ASSIGN_OR_RETURN(const auto instance, RankInstance::create(model, plan, group, options));
    for (int i = 0; i < commands; ++i) RETURN_IF_ERROR(instance->follow().status());
    return then(group);
  };
}

TEST_F(EngineGroupTest, AFollowerThatLeavesInTheMiddleOfAnAnswerIsNamedAtOnce) {
  const auto model = RandomModel().make(folder_);
  for (const auto link : {fabric::LinkKind::kShm, fabric::LinkKind::kTcp}) {
    ClusterOptions options = options_for({2, {}}, false);
    options.link = link;
    options.follower =
        dies_after(*model, 8, [](collective::Group&) { return Status::request("gone"); });
    LocalCluster cluster(*model, options);
    GenerateRequest request;
    request.tokens_max = 100;
    const auto start = std::chrono::steady_clock::now();
    const auto result = try_answer(cluster.engine(), some_tokens(10, 200), request);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), StatusCode::kGroup);
    EXPECT_THAT(result.status().message(), HasSubstr("node-1"));
    EXPECT_LT(took.count(), 2.0);
    EXPECT_EQ(cluster.engine().open_session().status().message(), result.status().message())
        << "the engine stays broken, with the same cause";
  }
}

TEST_F(EngineGroupTest, AFollowerThatHangsIsEndedByTheStepDeadline) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options = options_for({2, {}}, false);
  options.engine.step_deadline = std::chrono::milliseconds(300);
  options.follower = dies_after(*model, 4, [](collective::Group&) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return Status::request("late");
  });
  LocalCluster cluster(*model, options);
  GenerateRequest request;
  request.tokens_max = 100;
  const auto result = try_answer(cluster.engine(), some_tokens(10, 200), request);
  EXPECT_EQ(result.status().code(), StatusCode::kGroup);
  EXPECT_THAT(result.status().message(), HasSubstr("node-1"));
}

TEST_F(EngineGroupTest, ALoadThatFailsOnOneRankIsReportedByName) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options = options_for({3, {}}, false);
  options.follower = [&](collective::Group& group, const plan::Plan& plan,
                         const EngineOptions& engine) {
    EngineOptions changed = engine;
    if (group.rank() == 2) changed.sessions_max = 0;
    return run_follower(*model, plan, group, changed);
  };
  LocalCluster cluster(*model, options);
  EXPECT_EQ(cluster.status().code(), StatusCode::kRequest);
  EXPECT_THAT(cluster.status().message(), HasSubstr("node-2: 0 sessions"));
  const auto followers = cluster.end();
  EXPECT_TRUE(followers[0].is_ok()) << "it is told to end: " << followers[0].message();
  EXPECT_EQ(followers[1].code(), StatusCode::kRequest);
}

TEST_F(EngineGroupTest, RanksWithDifferentModelsAreToldApart) {
  const auto model = RandomModel().make(folder_);
  const model::testing::TempFolder other_folder;
  RandomModel random;
  random.ffn = 128;
  const auto other = random.make(other_folder);
  ClusterOptions options = options_for({2, {}}, false);
  options.follower = [&](collective::Group& group, const plan::Plan&, const EngineOptions& engine) {
    plan::PlanRequest request;
    request.ranks = 2;
    request.context = 256;
    const auto plan =
        must(plan::make_plan(other->config, plan::weight_bytes(other->tensors), request));
    return run_follower(*other, plan, group, engine);
  };
  LocalCluster cluster(*model, options);
  EXPECT_EQ(cluster.status().code(), StatusCode::kGroup);
  EXPECT_THAT(cluster.status().message(), HasSubstr("node-1: it holds another model"));
}

// What a follower returns when rank 0, which is the caller, sends it the bytes that `write` makes.
Status follower_says(const model::Model& model,
                     const std::function<void(std::vector<std::byte>*)>& write) {
  auto fabrics = must(fabric::make_in_process_group({}, Deadline::after(std::chrono::seconds(30))));
  plan::PlanRequest request;
  request.ranks = 2;
  request.context = 64;
  const auto plan = must(plan::make_plan(model.config, plan::weight_bytes(model.tensors), request));
  Status status;
  std::thread follower([&] {
    collective::Group group(*fabrics[1]);
    status = run_follower(model, plan, group, {});
  });
  collective::Group group(*fabrics[0]);
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  std::vector<std::byte> mine(kReportBytes);
  std::vector<std::byte> all(2 * kReportBytes);
  const std::vector<size_t> sizes(2, kReportBytes);
  CHECK(group.gather({mine, {all, sizes}, 0}, deadline).is_ok());
  std::vector<std::byte> message;
  write(&message);
  CHECK(group.broadcast_message(message, 0, deadline).is_ok());
  follower.join();
  return status;
}

// The first command, with its number, and the activations that it needs.
Status follower_says(const model::Model& model, Command command, size_t floats = 0) {
  if (command.number == 0) command.number = 1;
  return follower_says(model, [&](std::vector<std::byte>* message) {
    encode_command(command, std::vector<float>(floats), message);
  });
}

void expect_refused(const Status& status, const char* why) {
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  EXPECT_THAT(status.message(), HasSubstr(why));
  EXPECT_THAT(status.message(), HasSubstr("rank 0"));
}

TEST_F(EngineGroupTest, AFollowerRefusesCommandsThatDoNotFitItsState) {
  const auto model = RandomModel().make(folder_);
  expect_refused(follower_says(*model, [](auto* message) { message->resize(5); }), "needs");
  const auto step = [&](const BatchItem& item, size_t floats) {
    Command command;
    command.items = {item};
    return follower_says(*model, command, floats);
  };
  expect_refused(step({0, 0, 1}, 64), "not open");
  expect_refused(step({0, 0, 1}, 63), "bytes of activations");
  expect_refused(step({1000, 0, 1}, 64), "not open");
  expect_refused(step({0, 0, 1U << 30}, 64), "tokens");
  Command command;
  command.op = Op::kFetchLogits;
  expect_refused(follower_says(*model, command), "no such logits");
  command.op = Op::kOpen;
  command.session = 16;
  expect_refused(follower_says(*model, command), "cannot be opened");
  command.session = 0;
  command.number = 7;
  expect_refused(follower_says(*model, command), "command 7 came after command 0");
}

TEST_F(EngineGroupTest, AFollowerRefusesBlocksThatDoNotFitItsCache) {
  const auto model = RandomModel().make(folder_);
  const auto with_block = [&](Op op, uint32_t length) {
    Command command;
    command.op = op;
    command.length = length;
    command.blocks = {0};
    return follower_says(*model, command);
  };
  expect_refused(with_block(Op::kOpen, 64), "nothing to share");
  expect_refused(with_block(Op::kOpen, 65), "1 blocks for 65 positions");
  expect_refused(with_block(Op::kClose, 0), "not open");
  expect_refused(with_block(Op::kDrop, 0), "not kept");
}

}  // namespace
}  // namespace shoal::runtime
