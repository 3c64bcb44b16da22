#include "text/answer_format/answer_parser.h"

#include <gmock/gmock.h>

#include "text/answer_format/answer_format.h"

namespace shoal::text {
namespace {

using ::testing::ElementsAre;
using Kind = AnswerEvent::Kind;

AnswerEvent content(std::string text) { return {.kind = Kind::kContent, .text = std::move(text)}; }
AnswerEvent thought(std::string text) {
  return {.kind = Kind::kReasoning, .text = std::move(text)};
}

// The three events of a call.
void append_call(std::string name, std::string arguments, AnswerEvents* events) {
  events->push_back({.kind = Kind::kCallBegin, .text = std::move(name)});
  events->push_back({.kind = Kind::kCallArguments, .text = std::move(arguments)});
  events->push_back({.kind = Kind::kCallEnd, .text = {}});
}

struct Call {
  std::string name;
  std::string arguments;
};
// Content where it is not empty, calls, and content again.
AnswerEvents answer(const std::string& before, const std::vector<Call>& calls,
                    const std::string& after = {}) {
  AnswerEvents events;
  if (!before.empty()) events.push_back(content(before));
  for (const Call& call : calls) append_call(call.name, call.arguments, &events);
  if (!after.empty()) events.push_back(content(after));
  return events;
}

struct Recorded {
  std::string name;
  CallFormat format = CallFormat::kHermes;
  std::string text;
  AnswerEvents events;
  ThoughtFormat thoughts = ThoughtFormat::kNone;
  bool starts_in_thought = false;
  // What a grammar keeps from happening is tried without one only.
  bool is_well_formed = true;
};

std::unique_ptr<AnswerParser> parser_of(const Recorded& recorded, bool are_calls_bound) {
  return make_answer_parser({.calls = recorded.format, .thoughts = recorded.thoughts},
                            {.functions = {"get_weather", "add", "now"},
                             .are_calls_bound = are_calls_bound,
                             .starts_in_thought = recorded.starts_in_thought});
}

// Neighbours of one kind joined.
AnswerEvents joined(const AnswerEvents& events) {
  AnswerEvents out;
  for (const AnswerEvent& event : events) {
    if (event.text.empty()) {
      out.push_back(event);
    } else {
      append_event(event.kind, event.text, &out);
    }
  }
  return out;
}

AnswerEvents parse(const Recorded& recorded, const std::vector<std::string_view>& pieces,
                   bool are_calls_bound) {
  const auto parser = parser_of(recorded, are_calls_bound);
  AnswerEvents events;
  for (const std::string_view piece : pieces) {
    AnswerEvents some;
    parser->push(piece, &some);
    events.insert(events.end(), some.begin(), some.end());
  }
  AnswerEvents rest;
  parser->finish(&rest);
  events.insert(events.end(), rest.begin(), rest.end());
  return joined(events);
}

std::string content_of(const AnswerEvents& events) {
  std::string text;
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kContent) text += event.text;
  }
  return text;
}

constexpr const char* kWeather = R"({"city": "Oslo", "unit": "C"})";

std::vector<Recorded> hermes() {
  const std::string call =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"unit\": "
      "\"C\"}}\n</tool_call>";
  const auto text = [](std::string name, const std::string& raw) {
    return Recorded{
        .name = std::move(name), .text = raw, .events = {content(raw)}, .is_well_formed = false};
  };
  return {
      {.name = "HermesOneCall", .text = call, .events = answer("", {{"get_weather", kWeather}})},
      {.name = "HermesTextAndTwoCalls",
       .text = "Let me look.\n\n" + call + "\n" + call + "\n",
       .events = answer("Let me look.", {{"get_weather", kWeather}, {"get_weather", kWeather}})},
      {.name = "HermesTextBehind",
       .text = call + "\n\nDone <b>now</b>. ",
       .events = answer("", {{"get_weather", kWeather}}, "Done <b>now</b>. ")},
      {.name = "HermesOtherOrderOfKeys",
       .text = R"(<tool_call>{"arguments":{"a":[1,{"b":"}<\"]"}]},"name":"add"}</tool_call>)",
       .events = answer("", {{"add", R"({"a":[1,{"b":"}<\"]"}]})"}})},
      {.name = "HermesNoArguments",
       .text = R"(<tool_call>{"name":"now"}</tool_call>)",
       .events = answer("", {{"now", "{}"}})},
      {.name = "HermesNullArguments",
       .text = R"(<tool_call>{"name":"now", "arguments": null}</tool_call>)",
       .events = answer("", {{"now", "{}"}})},
      {.name = "HermesArgumentsAsText",
       .text = R"(<tool_call>{"name":"add", "arguments": "{\"a\": 1}"}</tool_call>)",
       .events = answer("", {{"add", R"({"a": 1})"}})},
      {.name = "HermesTwoInOnePairOfMarks",
       .text = "<tool_call>\n{\"name\":\"now\"}\n{\"name\":\"add\",\"arguments\":{}}\n</tool_call>",
       .events = answer("", {{"now", "{}"}, {"add", "{}"}})},
      {.name = "HermesNoClosingMark",
       .text = R"(<tool_call>{"name":"now"})",
       .events = answer("", {{"now", "{}"}})},
      {.name = "HermesEscapedName",
       .text = "<tool_call>{\"name\":\"n\\u006fw\"}</tool_call>",
       .events = answer("", {{"now", "{}"}})},
      text("HermesMarksOfOthers",
           "a <tool_cal <tool_calls> [TOOL_CALLS] </tool_call> b <tool_call"),
      text("HermesNoJson", "<tool_call>\nget_weather(Oslo)\n</tool_call>"),
      text("HermesUnknownFunction",
           "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>"),
      text("HermesBrackets",
           "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ]}}</tool_call>"),
      text("HermesNoValue", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": }}</tool_call>"),
      text("HermesNumberForArguments",
           "<tool_call>{\"name\": \"add\", \"arguments\": 5}</tool_call>"),
      text("HermesListForArguments",
           "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>"),
      text("HermesNoName", "<tool_call>{\"arguments\": {}}</tool_call>"),
      text("HermesCutOff", "Well: <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1"),
      text("HermesCutOffInItsName", "<tool_call>{\"na"),
      text("HermesWhiteSpaceOnly", " \n "),
      text("HermesEmpty", "x"),
  };
}

std::vector<Recorded> llama3() {
  const std::string call =
      R"({"name": "get_weather", "parameters": {"city": "Oslo", "unit": "C"}})";
  const auto text = [](std::string name, const std::string& raw) {
    return Recorded{.name = std::move(name),
                    .format = CallFormat::kLlama3,
                    .text = raw,
                    .events = {content(raw)},
                    .is_well_formed = false};
  };
  return {
      {.name = "LlamaBare",
       .format = CallFormat::kLlama3,
       .text = "\n\n" + call,
       .events = answer("", {{"get_weather", kWeather}})},
      {.name = "LlamaTag",
       .format = CallFormat::kLlama3,
       .text = "<|python_tag|>" + call,
       .events = answer("", {{"get_weather", kWeather}})},
      {.name = "LlamaTagBehindText",
       .format = CallFormat::kLlama3,
       .text =
           "I look. <|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
       .events = answer("I look.", {{"now", "{}"}})},
      {.name = "LlamaSeveral",
       .format = CallFormat::kLlama3,
       .text = call + "; " + call,
       .events = answer("", {{"get_weather", kWeather}, {"get_weather", kWeather}})},
      text("LlamaOtherJson", R"({"answer": {"name": "add"}, "parameters": 5})"),
      text("LlamaJsonOfAnotherName", R"({"name": "Bob", "parameters": {}})"),
      text("LlamaProgram", R"(<|python_tag|>brave_search.call(query="x"))"),
      text("LlamaJsonInText", "See {\"name\": \"add\", \"parameters\": {}}"),
      text("LlamaText", "Oslo; 3 degrees"),
  };
}

std::vector<Recorded> mistral() {
  const auto text = [](std::string name, const std::string& raw) {
    return Recorded{.name = std::move(name),
                    .format = CallFormat::kMistralList,
                    .text = raw,
                    .events = {content(raw)},
                    .is_well_formed = false};
  };
  return {
      {.name = "MistralList",
       .format = CallFormat::kMistralList,
       .text = "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", "
               "\"unit\": \"C\"}}, {\"name\": \"now\", \"arguments\": {}, \"id\": \"a1b2c3d4e\"}]",
       .events = answer("", {{"get_weather", kWeather}, {"now", "{}"}})},
      {.name = "MistralNamed",
       .format = CallFormat::kMistralNamed,
       .text = "Right away.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\", \"unit\": \"C\"}"
               "[TOOL_CALLS]now[ARGS]{}",
       .events = answer("Right away.", {{"get_weather", kWeather}, {"now", "{}"}})},
      {.name = "MistralWithIds",
       .format = CallFormat::kMistralNamed,
       .text = "[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}",
       .events = answer("", {{"now", "{}"}})},
      {.name = "MistralWithoutTheMarkOfArguments",
       .format = CallFormat::kMistralNamed,
       .text = "[TOOL_CALLS]now{}",
       .events = answer("", {{"now", "{}"}})},
      {.name = "MistralThought",
       .format = CallFormat::kMistralNamed,
       .text = "[THINK]Hm.[/THINK][TOOL_CALLS]now[ARGS]{}",
       .events = {thought("Hm."), answer("", {{"now", "{}"}})[0], answer("", {{"now", "{}"}})[1],
                  answer("", {{"now", "{}"}})[2]},
       .thoughts = ThoughtFormat::kBracketThink},
      text("MistralUnknownName", "[TOOL_CALLS]rm[ARGS]{}"),
      text("MistralNoList", "[TOOL_CALLS][5]"),
      text("MistralEmptyList", "[TOOL_CALLS][]"),
      text("MistralLongName", "[TOOL_CALLS]" + std::string(2000, 'x') + "[ARGS]{}"),
      text("MistralCutOff", "[TOOL_CALLS]now[ARG"),
      text("MistralBadArguments", "[TOOL_CALLS]now[ARGS]five"),
  };
}

std::vector<Recorded> deepseek() {
  const std::string begin = "<｜tool▁calls▁begin｜>";
  const std::string end = "<｜tool▁calls▁end｜>";
  const auto fenced = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + arguments +
           "\n```<｜tool▁call▁end｜>";
  };
  const auto plain = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
  };
  const auto text = [](std::string name, const std::string& raw) {
    return Recorded{.name = std::move(name),
                    .format = CallFormat::kDeepSeek,
                    .text = raw,
                    .events = {content(raw)},
                    .is_well_formed = false};
  };
  return {
      {.name = "DeepSeekFenced",
       .format = CallFormat::kDeepSeekFence,
       .text =
           "Sure.\n" + begin + fenced("get_weather", kWeather) + "\n" + fenced("now", "{}") + end,
       .events = answer("Sure.", {{"get_weather", kWeather}, {"now", "{}"}})},
      {.name = "DeepSeekPlain",
       .format = CallFormat::kDeepSeek,
       .text = begin + plain("get_weather", kWeather) + plain("now", "{}") + end,
       .events = answer("", {{"get_weather", kWeather}, {"now", "{}"}})},
      {.name = "DeepSeekThoughtThatThePromptOpened",
       .format = CallFormat::kDeepSeekFence,
       .text = "I need\nthe time.\n</think>\n\n" + begin + fenced("now", "{}") + end,
       .events = {thought("I need\nthe time."), answer("", {{"now", "{}"}})[0],
                  answer("", {{"now", "{}"}})[1], answer("", {{"now", "{}"}})[2]},
       .thoughts = ThoughtFormat::kThink,
       .starts_in_thought = true},
      {.name = "DeepSeekNoListEnd",
       .format = CallFormat::kDeepSeek,
       .text = begin + plain("now", "{}"),
       .events = answer("", {{"now", "{}"}})},
      text("DeepSeekUnknownName", begin + plain("rm", "{}") + end),
      text("DeepSeekNoCall", begin + "now()"),
      text("DeepSeekNoArguments", begin + plain("now", "five") + end),
      text("DeepSeekCutOff", begin + "<｜tool▁call▁begin｜>function<｜tool▁se"),
      text("DeepSeekLongHead",
           begin + "<｜tool▁call▁begin｜>" + std::string(600, 'y') + "<｜tool▁sep｜>{}"),
  };
}

std::vector<Recorded> harmony() {
  const std::string thinking = "<|channel|>analysis<|message|>They want\nthe weather.<|end|>";
  const std::string long_name(600, 'y');
  const auto with_thought = [](AnswerEvents events) {
    events.insert(events.begin(), thought("They want\nthe weather."));
    return events;
  };
  const auto recorded = [](std::string name, std::string text, AnswerEvents events) {
    return Recorded{.name = std::move(name),
                    .format = CallFormat::kHarmony,
                    .text = std::move(text),
                    .events = std::move(events),
                    .thoughts = ThoughtFormat::kHarmony};
  };
  std::vector<Recorded> all = {
      recorded("HarmonyFinal", thinking + "<|start|>assistant<|channel|>final<|message|>Cold.",
               with_thought({content("Cold.")})),
      recorded("HarmonyCall",
               thinking +
                   "<|start|>assistant<|channel|>commentary to=functions.get_weather "
                   "<|constrain|>json<|message|>" +
                   kWeather,
               with_thought(answer("", {{"get_weather", kWeather}}))),
      recorded("HarmonyCallNamedBeforeItsChannel",
               thinking + "<|start|>assistant to=functions.now<|channel|>commentary "
                          "json<|message|>{}<|call|>",
               with_thought(answer("", {{"now", "{}"}}))),
      recorded("HarmonyCallWithoutArguments", "<|channel|>commentary to=functions.now<|message|>",
               answer("", {{"now", "{}"}})),
      recorded("HarmonyPreamble",
               "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant<|channel|>"
               "commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
               answer("I look it up.", {{"now", "{}"}})),
      recorded("HarmonyTwoThoughts", thinking + "<|start|>assistant" + thinking,
               {thought("They want\nthe weather.\nThey want\nthe weather.")}),
      recorded("HarmonyHeadWithoutBody", thinking + "<|start|>assistant<|chan", with_thought({})),
      recorded("HarmonyNoHead", "to be < or not", {content("to be < or not")}),
      recorded("HarmonyLongHead",
               thinking + "<|start|>" + long_name + "<|channel|>final<|message|>2",
               with_thought({content("<|start|>" + long_name + "2")})),
  };
  Recorded unknown =
      recorded("HarmonyUnknownTool", "<|channel|>commentary to=python<|message|>1+1<|call|>",
               {content("<|channel|>commentary to=python<|message|>1+1")});
  Recorded bad =
      recorded("HarmonyBadArguments", "<|channel|>commentary to=functions.add<|message|>{\"a\": }",
               {content("<|channel|>commentary to=functions.add<|message|>{\"a\": }")});
  unknown.is_well_formed = bad.is_well_formed = false;
  all.push_back(unknown);
  all.push_back(bad);
  return all;
}

std::vector<Recorded> thoughts() {
  const auto recorded = [](std::string name, std::string text, AnswerEvents events) {
    return Recorded{.name = std::move(name),
                    .text = std::move(text),
                    .events = std::move(events),
                    .thoughts = ThoughtFormat::kThink};
  };
  AnswerEvents with_call = {thought("I look.")};
  append_call("now", "{}", &with_call);
  return {
      recorded("ThoughtAndAnswer", "<think>\nOne\n\ntwo.\n</think>\n\nThree. ",
               {thought("One\n\ntwo."), content("Three. ")}),
      recorded("ThoughtAndCall",
               "<think>I look.</think>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>", with_call),
      recorded("ThoughtEmpty", "<think>\n\n</think>\n\nYes.", {content("Yes.")}),
      recorded("ThoughtWithoutEnd", "<think>Because </thin", {thought("Because </thin")}),
      recorded("ThoughtMarkLater", "Use <think> here </think>.",
               {content("Use <think> here </think>.")}),
      recorded("ThoughtMarkCutOff", "  <thi", {content("  <thi")}),
      recorded("ThoughtWithACallInIt", "<think><tool_call>{\"name\": \"now\"}</think>No.",
               {thought("<tool_call>{\"name\": \"now\"}"), content("No.")}),
  };
}

std::vector<Recorded> all_recorded() {
  std::vector<Recorded> all;
  for (const auto& some : {hermes(), llama3(), mistral(), deepseek(), harmony(), thoughts()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

class AnswerParserTest : public ::testing::TestWithParam<Recorded> {};

TEST_P(AnswerParserTest, SaysWhatTheFormatMeans) {
  const Recorded& recorded = GetParam();
  EXPECT_EQ(parse(recorded, {recorded.text}, false), recorded.events);
  if (recorded.is_well_formed) EXPECT_EQ(parse(recorded, {recorded.text}, true), recorded.events);
}

TEST_P(AnswerParserTest, SaysTheSameWhereverTheTextIsCut) {
  const Recorded& recorded = GetParam();
  const std::string_view text = recorded.text;
  for (const bool are_calls_bound : {false, true}) {
    const AnswerEvents whole = parse(recorded, {text}, are_calls_bound);
    for (size_t i = 0; i <= text.size(); ++i) {
      EXPECT_EQ(parse(recorded, {text.substr(0, i), text.substr(i)}, are_calls_bound), whole) << i;
    }
    for (size_t size = 1; size <= 5; ++size) {
      std::vector<std::string_view> pieces;
      for (size_t i = 0; i < text.size(); i += size) pieces.push_back(text.substr(i, size));
      EXPECT_EQ(parse(recorded, pieces, are_calls_bound), whole) << "pieces of " << size;
    }
  }
}

TEST_P(AnswerParserTest, GivesNoContentThatItWouldTakeBack) {
  const Recorded& recorded = GetParam();
  const std::string whole = content_of(recorded.events);
  const auto parser = parser_of(recorded, false);
  AnswerEvents events;
  for (const char byte : recorded.text) {
    parser->push(std::string_view(&byte, 1), &events);
    ASSERT_EQ(whole.substr(0, content_of(events).size()), content_of(events));
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, AnswerParserTest, ::testing::ValuesIn(all_recorded()),
                         [](const auto& info) { return info.param.name; });

TEST(AnswerParser, ArgumentsThatAreCertainComeAsTheModelWritesThem) {
  const auto parser = make_answer_parser({.calls = CallFormat::kHermes},
                                         {.functions = {"add"}, .are_calls_bound = true});
  AnswerEvents events;
  parser->push("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\"", &events);
  EXPECT_THAT(events, ElementsAre(AnswerEvent{.kind = Kind::kCallBegin, .text = "add"},
                                  AnswerEvent{.kind = Kind::kCallArguments, .text = "{\"a\""}));
  events.clear();
  parser->push(": 1", &events);
  EXPECT_THAT(events, ElementsAre(AnswerEvent{.kind = Kind::kCallArguments, .text = ": 1"}));
  events.clear();
  parser->finish(&events);
  EXPECT_THAT(events, ElementsAre(AnswerEvent{.kind = Kind::kCallEnd, .text = {}}));
}

// What no trigger begins no grammar binds, so it is held even where calls are bound.
TEST(AnswerParser, ACallThatBeginsOtherwiseThanATriggerIsHeldUntilItIsWhole) {
  AnswerEvents second = answer("", {{"now", "{}"}});
  second.push_back(content(R"({"name":"add","arguments":{"a":]}})"));
  const std::vector<Recorded> all = {
      {.name = "DeepSeek",
       .format = CallFormat::kDeepSeek,
       .text = "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": ]}",
       .events = {content("<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": ]}")}},
      {.name = "DeepSeekFence",
       .format = CallFormat::kDeepSeekFence,
       .text = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 5",
       .events = {content("<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 5")}},
      {.name = "DeepSeekSecond",
       .format = CallFormat::kDeepSeek,
       .text = "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add"
               "<｜tool▁sep｜>{\"a\": 5",
       .events = answer("", {{"now", "{}"}}, "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 5")},
      {.name = "HermesSecond",
       .format = CallFormat::kHermes,
       .text = R"(<tool_call>{"name":"now"} {"name":"add","arguments":{"a":]}})",
       .events = second},
      {.name = "Harmony",
       .format = CallFormat::kHarmony,
       .text = "<|channel|>commentary\nto=functions.add<|message|>{\"a\": }",
       .events = {content("<|channel|>commentary\nto=functions.add<|message|>{\"a\": }")}},
      {.name = "HarmonyAtTheStart",
       .format = CallFormat::kHarmony,
       .text = "to=functions.add<|message|>5",
       .events = {content("to=functions.add<|message|>5")}},
  };
  for (const Recorded& recorded : all) {
    for (const bool are_calls_bound : {false, true}) {
      EXPECT_EQ(parse(recorded, {recorded.text}, are_calls_bound), recorded.events)
          << recorded.name << are_calls_bound;
    }
  }
}

TEST(AnswerParser, WithoutFunctionsCallsAreText) {
  const std::string text = "<tool_call>{\"name\": \"add\"}</tool_call>";
  const auto parser = make_answer_parser({.calls = CallFormat::kHermes}, {});
  AnswerEvents events;
  parser->push(text, &events);
  parser->finish(&events);
  EXPECT_THAT(events, ElementsAre(content(text)));
}

TEST(AnswerParser, TextThatIsNoMarkIsNotHeldBack) {
  for (const CallFormat format :
       {CallFormat::kHermes, CallFormat::kLlama3, CallFormat::kMistralList, CallFormat::kDeepSeek,
        CallFormat::kHarmony}) {
    const auto parser = make_answer_parser({.calls = format}, {.functions = {"add"}});
    AnswerEvents events;
    parser->push("Oslo is", &events);
    EXPECT_EQ(content_of(events), "Oslo is") << name(format);
  }
}

}  // namespace
}  // namespace shoal::text
