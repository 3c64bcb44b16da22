#include "cli/program.h"

#include <gtest/gtest.h>

#include "cli/bench/samples.h"
#include "cli/chat/generation_options.h"
#include "cli/commands.h"
#include "cli/describe/command_view.h"
#include "cli/describe/completion.h"
#include "cli/describe/man_page.h"

namespace shoal::cli {
namespace {

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() : program_(console_) { add_all_commands(program_); }
  CommandView view() { return describe(program_.root()); }

  Console console_;
  Program program_;
};

TEST_F(ProgramTest, EveryOptionSaysWhatItIs) {
  for (const CommandView& root = view(); const CommandView* command : flatten(root)) {
    EXPECT_FALSE(command->description.empty());
    EXPECT_FALSE(command->description.ends_with('.')) << command->path.back();
    for (const OptionView& option : command->options) {
      EXPECT_FALSE(option.description.empty()) << option.names.front();
      EXPECT_FALSE(option.description.ends_with('.')) << option.names.front();
    }
  }
}

TEST_F(ProgramTest, CompletionsAndManualHaveEveryOption) {
  const CommandView root = view();
  const std::string bash = bash_completion(root);
  const std::string zsh = zsh_completion(root);
  const std::string fish = fish_completion(root);
  std::string manual = man_page(root);
  std::erase(manual, '\\');
  for (const CommandView* command : flatten(root)) {
    for (const OptionView& option : command->options) {
      if (option.is_positional) continue;
      for (const std::string& name : option.names) {
        EXPECT_NE(bash.find(name), std::string::npos) << name;
        EXPECT_NE(zsh.find("'" + name + "["), std::string::npos) << name;
        EXPECT_NE(manual.find(name), std::string::npos) << name;
        const std::string bare = name.substr(name.starts_with("--") ? 2 : 1);
        const std::string flag = name.starts_with("--") ? " -l " : " -s ";
        EXPECT_NE(fish.find(flag + bare), std::string::npos) << name;
      }
    }
  }
}

TEST_F(ProgramTest, HiddenCommandsAreNotDescribed) {
  for (const CommandView& root = view(); const CommandView* command : flatten(root)) {
    EXPECT_NE(command->path.back(), "node");
    EXPECT_NE(command->path.back(), "fabric-node");
  }
}

TEST(GenerationOptions, SeedsAndBiasesAreParsed) {
  GenerationOptions options;
  options.seed = "18446744073709551615";
  options.logit_bias = {"7=-2.5", "0=100"};
  const auto params = sampling_params(options);
  ASSERT_TRUE(params.is_ok()) << params.status().message();
  EXPECT_EQ(params->seed, UINT64_MAX);
  ASSERT_EQ(params->logit_bias.size(), 2U);
  EXPECT_EQ(params->logit_bias[0].id, 7);
  EXPECT_EQ(params->logit_bias[0].bias, -2.5F);
  options.seed = "-1";
  EXPECT_FALSE(sampling_params(options)->seed.has_value());
}

TEST(GenerationOptions, BiasesThatAreNoneAreRefused) {
  for (const char* text : {"", "7", "7=", "=1", "x=1", "7=x", "7=1x", "-1=1"}) {
    GenerationOptions options;
    options.logit_bias = {text};
    EXPECT_FALSE(sampling_params(options).is_ok()) << text;
  }
}

TEST(Samples, QuantilesAreThoseOfTheSortedValues) {
  Samples samples;
  EXPECT_EQ(samples.median(), 0);
  for (const double value : {5.0, 1.0, 4.0, 2.0, 3.0}) samples.add(value);
  EXPECT_EQ(samples.median(), 3);
  EXPECT_EQ(samples.quantile(0), 1);
  EXPECT_EQ(samples.quantile(1), 5);
}

}  // namespace
}  // namespace shoal::cli
