// AnswerFormat: how a model writes calls and thoughts, as its chat template declares it.
//
// The formats are those that the models' publishers document with their templates: Hermes
// (NousResearch, Qwen), Llama 3.x (Meta), Mistral, DeepSeek, Harmony (gpt-oss). Thread rule: values
// and pure functions.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/answer_format/answer_parser.h"

namespace shoal::text {

enum class CallFormat {
  kHermes,         // <tool_call>{"name": NAME, "arguments": {...}}</tool_call>
  kLlama3,         // {"name": NAME, "parameters": {...}}, <|python_tag|> may stand before it
  kMistralList,    // [TOOL_CALLS][{"name": NAME, "arguments": {...}}, ...]
  kMistralNamed,   // [TOOL_CALLS]NAME[ARGS]{...}
  kDeepSeekFence,  // ...<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{...}\n```...
  kDeepSeek,       // ...<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>...
  kHarmony,  // <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
};

enum class ThoughtFormat {
  kNone,
  kThink,         // <think>...</think>
  kBracketThink,  // [THINK]...[/THINK]
  kHarmony,       // <|channel|>analysis<|message|>...<|end|>
};

// Their marks: what templates declare, parsers look for and grammars demand.
struct HermesMarks {
  static constexpr std::string_view kCall = "<tool_call>";
  static constexpr std::string_view kCallEnd = "</tool_call>";
};

struct Llama3Marks {
  static constexpr std::string_view kPythonTag = "<|python_tag|>";
};

struct MistralMarks {
  static constexpr std::string_view kCalls = "[TOOL_CALLS]";
  static constexpr std::string_view kCallId = "[CALL_ID]";
  static constexpr std::string_view kArguments = "[ARGS]";
};

struct DeepSeekMarks {
  static constexpr std::string_view kCalls = "<｜tool▁calls▁begin｜>";
  static constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
  static constexpr std::string_view kCall = "<｜tool▁call▁begin｜>";
  static constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
  static constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
};

struct HarmonyMarks {
  static constexpr std::string_view kStart = "<|start|>";
  static constexpr std::string_view kChannel = "<|channel|>";
  static constexpr std::string_view kConstrain = "<|constrain|>";
  static constexpr std::string_view kMessage = "<|message|>";
  static constexpr std::string_view kEnd = "<|end|>";
  // In the head of a message that is a call.
  static constexpr std::string_view kTo = " to=functions.";
  // They end an answer, so that they are seldom a part of it.
  static constexpr std::string_view kCall = "<|call|>";
  static constexpr std::string_view kReturn = "<|return|>";
};

struct AnswerFormat {
  CallFormat calls = CallFormat::kHermes;
  ThoughtFormat thoughts = ThoughtFormat::kNone;
  // What the template has a place for. Where it has none for tools, the prompt must describe them,
  // and calls in the conversation must be written as text.
  bool has_tools = false;
  bool has_call_history = false;  // the messages' tool_calls
  // The variables that it reads.
  std::string_view thinking_variable{};  // "enable_thinking", "thinking", or empty
  bool reads_reasoning_effort = false;
  bool reads_message_thinking = false;  // thoughts of earlier answers as message.thinking
  // Ids of calls must be nine letters or digits, or the template refuses the conversation.
  bool wants_short_call_ids = false;
};

// A template that declares none of the formats gives Hermes, without has_tools: the model is then
// told about tools in that format.
AnswerFormat find_answer_format(std::string_view template_source);

// "hermes", "llama3", "mistral", "deepseek", "harmony".
std::string_view name(CallFormat format);
// "none", "think", "bracket-think", "harmony".
std::string_view name(ThoughtFormat format);

// The texts that are control tokens in some models and that the parser must see: of thoughts, and
// of calls where they are looked for.
std::vector<std::string_view> format_marks(const AnswerFormat& format, bool has_calls);

struct ThoughtMarks {
  std::string_view open;
  std::string_view close;
};
// What encloses a thought in the answer; both empty for kNone and kHarmony.
ThoughtMarks thought_marks(ThoughtFormat format);

// What the answer to a prompt may begin with.
enum class PromptThought {
  kNone,      // the model has no thoughts, or the prompt has closed one
  kOptional,  // a thought, or none
  kOpen,      // the rest of one that the prompt has opened
};
// By how the prompt ends.
PromptThought prompt_thought(const AnswerFormat& format, std::string_view prompt);

std::unique_ptr<AnswerParser> make_answer_parser(const AnswerFormat& format,
                                                 AnswerParserOptions options);

}  // namespace shoal::text
