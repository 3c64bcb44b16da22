#include "text/answer_format/answer_format.h"

#include <gmock/gmock.h>

namespace shoal::text {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

// The parts of published templates that declare their formats.
constexpr std::string_view kSmolLm2 =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}";
constexpr std::string_view kQwen3 =
    "{%- if tools %}{{- \"# Tools\\n<tools>\" }}{%- for tool in tools %}{{- tool | tojson }}"
    "{%- endfor %}{{- \"\\n<tool_call>\\n{\\\"name\\\": <function-name>}\\n</tool_call>\" }}{%- "
    "endif %}"
    "{%- for tool_call in message.tool_calls %}{%- endfor %}{%- if enable_thinking is defined and "
    "enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}";
constexpr std::string_view kLlama3 =
    "{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}"
    "{{- \"<|start_header_id|>system<|end_header_id|>\" }}{{- 'Respond in the format {\"name\": "
    "function name, \"parameters\": dictionary of argument name and its value}.' }}"
    "{%- if 'tool_calls' in message %}{{- '<|python_tag|>' }}{%- endif %}";
constexpr std::string_view kMistral =
    "{%- if tools is not none %}{{- \"[AVAILABLE_TOOLS]\" }}{%- endif %}{%- if message.tool_calls "
    "is defined %}{{- \"[TOOL_CALLS][\" }}{%- endif %}";
constexpr std::string_view kMagistral =
    "{%- if tools is defined %}{%- endif %}{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"
    "{{ message['tool_calls'] }}{{- '[THINK]' + text + '[/THINK]' }}";
constexpr std::string_view kDeepSeekR1 =
    "{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + "
    "'<｜tool▁sep｜>' "
    "+ tool['function']['name'] + '\\n' + '```json' }}{% if message['tool_calls'] is none %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜><think>\\n'}}";
constexpr std::string_view kDeepSeekV31 =
    "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>'}}"
    "{% if message['tool_calls'] %}{% endif %}{% if not thinking is defined %}{% set thinking = "
    "false"
    " %}{% endif %}{{ '</think>' }}";
constexpr std::string_view kGptOss =
    "{%- if reasoning_effort is not defined %}{%- set reasoning_effort = \"medium\" %}{%- endif %}"
    "{%- if tools -%}{{ render_tool_namespace(\"functions\", tools) }}{%- endif %}"
    "{{- \"<|start|>assistant<|channel|>analysis<|message|>\" + message.thinking + \"<|end|>\" }}"
    "{% if message.tool_calls %}{% endif %}";

TEST(AnswerFormat, IsWhatTheTemplateDeclares) {
  const AnswerFormat qwen = find_answer_format(kQwen3);
  EXPECT_EQ(qwen.calls, CallFormat::kHermes);
  EXPECT_EQ(qwen.thoughts, ThoughtFormat::kThink);
  EXPECT_TRUE(qwen.has_tools && qwen.has_call_history);
  EXPECT_EQ(qwen.thinking_variable, "enable_thinking");
  EXPECT_FALSE(qwen.reads_reasoning_effort || qwen.wants_short_call_ids);

  const AnswerFormat llama = find_answer_format(kLlama3);
  EXPECT_EQ(llama.calls, CallFormat::kLlama3);
  EXPECT_TRUE(llama.has_tools && llama.has_call_history);
  EXPECT_EQ(llama.thoughts, ThoughtFormat::kNone);

  const AnswerFormat mistral = find_answer_format(kMistral);
  EXPECT_EQ(mistral.calls, CallFormat::kMistralList);
  EXPECT_TRUE(mistral.has_tools && mistral.wants_short_call_ids);
  const AnswerFormat magistral = find_answer_format(kMagistral);
  EXPECT_EQ(magistral.calls, CallFormat::kMistralNamed);
  EXPECT_EQ(magistral.thoughts, ThoughtFormat::kBracketThink);

  const AnswerFormat oss = find_answer_format(kGptOss);
  EXPECT_EQ(oss.calls, CallFormat::kHarmony);
  EXPECT_EQ(oss.thoughts, ThoughtFormat::kHarmony);
  EXPECT_TRUE(oss.has_tools && oss.reads_reasoning_effort && oss.reads_message_thinking);
  EXPECT_EQ(oss.thinking_variable, "");
}

TEST(AnswerFormat, ATemplateWithoutToolsHasAFormatAndNoPlaceForThem) {
  const AnswerFormat smol = find_answer_format(kSmolLm2);
  EXPECT_EQ(smol.calls, CallFormat::kHermes);
  EXPECT_FALSE(smol.has_tools || smol.has_call_history);
  EXPECT_EQ(smol.thoughts, ThoughtFormat::kNone);
  // DeepSeek R1 writes calls of the conversation, but tells the model of no tools.
  const AnswerFormat r1 = find_answer_format(kDeepSeekR1);
  EXPECT_EQ(r1.calls, CallFormat::kDeepSeekFence);
  EXPECT_FALSE(r1.has_tools);
  EXPECT_TRUE(r1.has_call_history);
  const AnswerFormat v31 = find_answer_format(kDeepSeekV31);
  EXPECT_EQ(v31.calls, CallFormat::kDeepSeek);
  EXPECT_EQ(v31.thinking_variable, "thinking");
}

TEST(AnswerFormat, OnlyAVariableOfTheTemplateCounts) {
  const std::string declares = "{{ '<tool_call>' }}";
  for (const char* source :
       {"tools", "{# {{ tools #}", "{{ 'tools' }}", "{{ message.tools }}",
        "{% if message['tools'] %}{% endif %}", "{{ my_tools }}", "{% if \"a"}) {
    EXPECT_FALSE(find_answer_format(declares + source).has_tools) << source;
  }
  for (const char* source : {"{{ tools }}", "{%- if a and tools is defined %}", "{{ f(tools) }}",
                             "{{ 'it\\'s' ~ tools }}"}) {
    EXPECT_TRUE(find_answer_format(declares + source).has_tools) << source;
  }
}

TEST(AnswerFormat, CallsInAnUnknownFormatAreToldInOurs) {
  const AnswerFormat coder =
      find_answer_format("{% if tools %}{{ '<tool_call>\\n<function=' + name + '>' }}{% endif %}");
  EXPECT_EQ(coder.calls, CallFormat::kHermes);
  EXPECT_FALSE(coder.has_tools);
}

TEST(AnswerFormat, HowAPromptEndsSaysWhetherAThoughtFollows) {
  const AnswerFormat format = find_answer_format(kDeepSeekR1);
  EXPECT_EQ(prompt_thought(format, "<｜Assistant｜><think>\n"), PromptThought::kOpen);
  EXPECT_EQ(prompt_thought(format, "<think>\n\n</think>\n\n"), PromptThought::kNone);
  EXPECT_EQ(prompt_thought(format, "<think>a</think>b<｜Assistant｜>"), PromptThought::kOptional);
  EXPECT_EQ(prompt_thought(format, ""), PromptThought::kOptional);
  EXPECT_EQ(prompt_thought(find_answer_format(kSmolLm2), "<think>"), PromptThought::kNone);
  EXPECT_EQ(prompt_thought(find_answer_format(kGptOss), "<|start|>assistant"),
            PromptThought::kOptional);
}

TEST(AnswerFormat, MarksOfCallsAreShownWhereTheyAreLookedFor) {
  const AnswerFormat llama = find_answer_format(kLlama3);
  EXPECT_THAT(format_marks(llama, false), IsEmpty());
  EXPECT_THAT(format_marks(llama, true), Contains("<|python_tag|>"));
  EXPECT_THAT(format_marks(find_answer_format(kGptOss), false), Contains("<|channel|>"));
}

}  // namespace
}  // namespace shoal::text
