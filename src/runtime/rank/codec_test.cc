// The bytes that ranks exchange: round trips, and refusal of everything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "runtime/rank/command.h"
#include "runtime/rank/rank_report.h"
#include "runtime/rank/summary_codec.h"
#include "runtime/setup.h"

namespace shoal::runtime {
namespace {

using ::testing::HasSubstr;

constexpr CommandLimits kLimits{4, 32, 8, 6, 16};

Command example() {
  Command command;
  command.number = 77;
  command.mode = OutputMode::kSummary;
  command.items = {{3, 100, 2, Outputs::kNone, 0.0F}, {0, 0, 5, Outputs::kLast, 1.5F}};
  return command;
}

std::vector<std::byte> encoded(const Command& command, size_t floats) {
  std::vector<std::byte> message;
  std::vector<float> activations(floats);
  for (size_t i = 0; i < floats; ++i) activations[i] = static_cast<float>(i) / 3;
  encode_command(command, activations, &message);
  return message;
}

Status decode(std::span<const std::byte> message) {
  Command command;
  std::span<const std::byte> activations;
  return decode_command(message, kLimits, &command, &activations);
}

TEST(Command, ComesBackAsItWas) {
  const Command command = example();
  const auto message = encoded(command, size_t{7} * 8);
  Command back;
  std::span<const std::byte> activations;
  ASSERT_TRUE(decode_command(message, kLimits, &back, &activations).is_ok());
  EXPECT_EQ(back.number, 77U);
  EXPECT_EQ(back.op, Op::kStep);
  ASSERT_EQ(back.items.size(), 2U);
  EXPECT_EQ(back.items[0].session, 3U);
  EXPECT_EQ(back.items[0].position, 100U);
  EXPECT_EQ(back.items[0].outputs, Outputs::kNone);
  EXPECT_EQ(back.items[1].tokens, 5U);
  EXPECT_EQ(back.items[1].inverse_temperature, 1.5F);
  EXPECT_EQ(back.tokens(), 7U);
  EXPECT_EQ(back.outputs(), 1U);
  float last = 0;
  std::memcpy(&last, activations.data() + activations.size() - sizeof(float), sizeof(float));
  EXPECT_EQ(last, 55.0F / 3);
}

TEST(Command, BlocksComeBackAndAreLimited) {
  Command command;
  for (const Op op : {Op::kOpen, Op::kClose, Op::kDrop}) {
    command.op = op;
    command.blocks = {5, 0, 77};
    Command back;
    std::span<const std::byte> activations;
    ASSERT_TRUE(decode_command(encoded(command, 0), kLimits, &back, &activations).is_ok());
    EXPECT_EQ(back.blocks, command.blocks);
    command.blocks.resize(7);
    EXPECT_THAT(decode(encoded(command, 0)).message(), HasSubstr("7 blocks, at most 6"));
  }
  command.op = Op::kTruncate;
  command.blocks = {5};
  EXPECT_THAT(decode(encoded(command, 0)).message(), HasSubstr("blocks do not fit"));
}

TEST(Command, EveryTruncationIsRefused) {
  const auto message = encoded(example(), size_t{7} * 8);
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_EQ(decode(std::span(message).first(size)).code(), StatusCode::kRequest) << size;
  }
}

TEST(Command, RulesAreChecked) {
  const auto refused = [](const std::function<void(Command&)>& change, const char* why) {
    Command command = example();
    change(command);
    EXPECT_THAT(decode(encoded(command, command.tokens() * 8)).message(), HasSubstr(why));
  };
  refused([](Command& c) { c.items[0].tokens = 0; }, "no tokens");
  refused([](Command& c) { c.items[0].tokens = 31; }, "36 tokens, at most 32");
  refused([](Command& c) { c.items[1].session = 3; }, "twice");
  refused(
      [](Command& c) {
        c.items[1].outputs = Outputs::kAll;
        c.items[1].tokens = 17;
      },
      "17 outputs to summarize, at most 16");
  refused([](Command& c) { c.items[1].outputs = static_cast<Outputs>(3); }, "kind of outputs");
  refused([](Command& c) { c.items[1].inverse_temperature = -1; }, "temperature");
  refused([](Command& c) { c.items[1].inverse_temperature = std::nanf(""); }, "temperature");
  refused([](Command& c) { c.items.clear(); }, "do not fit");
  refused([](Command& c) { c.op = Op::kOpen; }, "do not fit");
  refused([](Command& c) { c.op = static_cast<Op>(0); }, "operation 0");
  refused([](Command& c) { c.op = static_cast<Op>(11); }, "operation 11");
  refused([](Command& c) { c.blocks = {1}; }, "blocks do not fit");
  refused([](Command& c) { c.mode = static_cast<OutputMode>(2); }, "output mode");
  refused([](Command& c) { c.items.resize(5, c.items[0]); }, "5 items, at most 4");
  EXPECT_THAT(decode(encoded(example(), 55)).message(), HasSubstr("bytes of activations"));
}

TEST(Command, DraftedTokensAreOfTheDecodeStage) {
  Command command = example();
  command.items[0].tokens = 1;
  command.items[1].outputs = Outputs::kAll;
  EXPECT_TRUE(decode(encoded(command, size_t{6} * 8)).is_ok());
  EXPECT_EQ(command.outputs(), 5U);
  EXPECT_EQ(command.stage(), tensor::Stage::kDecode);
  command.items[1].outputs = Outputs::kLast;
  EXPECT_EQ(command.stage(), tensor::Stage::kPrefill);
  command.items[1].outputs = Outputs::kAll;
  command.mode = OutputMode::kFull;
  EXPECT_EQ(command.stage(), tensor::Stage::kPrefill) << "a text that is scored";
}

// Any bytes: refused or within the limits, never more.
TEST(Command, RandomChangesNeverGetPastTheLimits) {
  std::mt19937 random(9);
  const auto message = encoded(example(), size_t{7} * 8);
  int accepted = 0;
  for (int round = 0; round < 50000; ++round) {
    auto changed = message;
    for (size_t i = 0; i <= random() % 4; ++i) {
      changed[random() % 72] = static_cast<std::byte>(random());
    }
    Command command;
    std::span<const std::byte> activations;
    if (!decode_command(changed, kLimits, &command, &activations).is_ok()) continue;
    ++accepted;
    ASSERT_LE(command.items.size(), 4U);
    ASSERT_LE(command.tokens(), 32U);
    if (command.mode == OutputMode::kSummary) ASSERT_LE(command.outputs(), 16U);
    ASSERT_EQ(activations.size(), command.tokens() * 8 * sizeof(float));
  }
  EXPECT_GT(accepted, 0);
}

TEST(SummaryCodec, ComesBackAsItWasAndRefusesTheRest) {
  LogitSummary summary;
  summary.top = {{12, 3.5F}, {10, 3.5F - 1e-3F}, {19, -1}};
  summary.rows = 10;
  summary.log_sum_exp = 4.25;
  summary.inverse_temperature = 0.5F;
  std::vector<std::byte> bytes(summary_bytes(4));
  encode_summary(summary, bytes);
  LogitSummary back;
  ASSERT_TRUE(decode_summary(bytes, {10, 20}, &back).is_ok());
  ASSERT_EQ(back.top.size(), 3U);
  EXPECT_EQ(back.top[1].id, 10);
  EXPECT_EQ(back.top[2].logit, -1);
  EXPECT_EQ(back.rows, 10U);
  EXPECT_EQ(back.log_sum_exp, 4.25);
  EXPECT_EQ(back.inverse_temperature, 0.5F);
  EXPECT_FALSE(back.non_finite);

  EXPECT_FALSE(decode_summary(bytes, {11, 21}, &back).is_ok()) << "an id of another rank";
  EXPECT_FALSE(decode_summary(bytes, {10, 21}, &back).is_ok()) << "another number of rows";
  EXPECT_FALSE(decode_summary(std::span(bytes).first(20), {10, 20}, &back).is_ok());
  const auto refused = [&](size_t offset, auto value) {
    auto changed = bytes;
    std::memcpy(changed.data() + offset, &value, sizeof(value));
    return !decode_summary(changed, {10, 20}, &back).is_ok();
  };
  EXPECT_TRUE(refused(0, uint32_t{5})) << "more candidates than bytes";
  EXPECT_TRUE(refused(0, ~uint32_t{0}));
  EXPECT_TRUE(refused(4, uint32_t{2}));
  EXPECT_TRUE(refused(16, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(refused(kSummaryHeaderBytes + 4, -9.0F)) << "out of order";
  EXPECT_TRUE(refused(kSummaryHeaderBytes, int32_t{-1}));
}

TEST(RankReport, ComesBackAsItWasWithALongMessageCut) {
  RankReport report;
  report.status = Status::node(std::string(2000, 'x'));
  report.fingerprint = {.settings = 1, .tensors = 2, .weights = 3, .layout = 4};
  report.weight_bytes = 6;
  report.kv_bytes = 7;
  const auto bytes = encode_report(report);
  ASSERT_EQ(bytes.size(), kReportBytes);
  const auto back = decode_report(bytes);
  ASSERT_TRUE(back.is_ok());
  EXPECT_EQ(back->status.code(), StatusCode::kNode);
  EXPECT_LT(back->status.message().size(), kReportBytes);
  EXPECT_EQ(back->fingerprint, report.fingerprint);
  EXPECT_EQ(back->kv_bytes, 7U);
  EXPECT_EQ(decode_report(std::vector<std::byte>(kReportBytes)).status().code(),
            StatusCode::kGroup);
  EXPECT_FALSE(decode_report(std::span(bytes).first(30)).is_ok());
}

TEST(Setup, ComesBackAsItWasAndRefusesTheRest) {
  runtime::Setup setup;
  setup.model_path = "/models/a model.gguf";
  setup.plan.ranks = 3;
  setup.plan.weights = {1, 2, 0.5};
  setup.plan.context = 4096;
  setup.plan.kv_type = plan::KvType::kF32;
  setup.threads = 7;
  setup.prefill_chunk = 99;
  setup.exact = true;
  setup.kernels = "portable";
  const auto bytes = encode_setup(setup);
  const auto back = decode_setup(bytes);
  ASSERT_TRUE(back.is_ok()) << back.status().message();
  EXPECT_EQ(back->model_path, setup.model_path);
  EXPECT_EQ(back->plan.weights, setup.plan.weights);
  EXPECT_EQ(back->plan.context, 4096U);
  EXPECT_EQ(back->plan.kv_type, plan::KvType::kF32);
  EXPECT_EQ(back->threads, 7U);
  EXPECT_EQ(back->prefill_chunk, 99U);
  EXPECT_TRUE(back->exact);
  EXPECT_EQ(back->kernels, "portable");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_setup(std::span(bytes).first(size)).is_ok()) << size;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_setup(longer).is_ok());
  setup.kernels = "mmx";
  EXPECT_FALSE(decode_setup(encode_setup(setup)).is_ok());
}

}  // namespace
}  // namespace shoal::runtime
