#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::text {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const ChatTemplateOptions kOptions = {.bos_token = "<s>", .eos_token = "</s>"};

std::unique_ptr<ChatTemplate> parse(std::string_view source) {
  auto parsed = ChatTemplate::parse(source, kOptions);
  CHECK_MSG(parsed.is_ok(), parsed.status().message().c_str());
  return std::move(parsed).value();
}

Json message(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}

// The request of a conversation of these messages.
template <typename... Messages>
Json conversation(const Messages&... messages) {
  Json list = Json::array();
  (list.push_back(messages), ...);
  return {{"messages", list}};
}

Json text_part(const char* text) { return {{"type", "text"}, {"text", text}}; }

std::string render(std::string_view source, const Json& request_json = conversation()) {
  auto text = parse(source)->render(request_json.dump());
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? *text : "";
}

Status failure(std::string_view source, const Json& request_json = conversation()) {
  auto text = parse(source)->render(request_json.dump());
  EXPECT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), StatusCode::kRequest);
  return text.status();
}

TEST(TextCases, C30_PythonStringMethodsWorkOnWhatComesOutOfFilters) {
  const Json chat =
      conversation(message("user", "a"), message("assistant", "<think>\nx\n</think>\n\nb"));
  EXPECT_EQ(render("{%- for m in messages %}"
                   "{%- set r = (m.content.split('</think>')|first).rstrip('\\n') %}[{{ r }}]"
                   "[{{ m.content.split('</think>')[-1].lstrip('\\n') }}]{%- endfor %}",
                   chat),
            "[a][a][<think>\nx][b]");
}

TEST(TextCases, C30_TheOtherMethodsAndSlices) {
  const std::array<std::pair<const char*, const char*>, 23> cases = {{
      {"'  a '.strip()", "a"},
      {"'xxaxx'.strip('x')", "a"},
      {"'xxaxx'.lstrip('x')", "axx"},
      {"'xxaxx'.rstrip('x')", "xxa"},
      {"'a b'.split()|join('-')", "a-b"},
      {"'a,b,c'.split(',', 1)|last", "b,c"},
      {"'a,b,c'.rsplit(',', 1)|first", "a,b"},
      {"'ab'.startswith('a')", "True"},
      {"'ab'.endswith('a')", "False"},
      {"'aba'.replace('a', 'c')", "cbc"},
      {"'aB'.upper() ~ 'aB'.lower()", "ABab"},
      {"'ab cd'.title()", "Ab Cd"},
      {"'abc'[-1]", "c"},
      {"'abc'[1:]", "bc"},
      {"'abc'[::-1]", "cba"},
      {"[1, 2, 3][::-1]|join", "321"},
      {"[1, 2, 3][:-1]|join", "12"},
      {"{'a': 1}.get('a')", "1"},
      {"{'a': 1}.get('b', 2)", "2"},
      {"{'a': 1, 'b': 2}.items()|map('first')|join", "ab"},
      {"'abc'.removeprefix('a').removesuffix('c')", "b"},
      {"'a=b=c'.partition('=')|last", "b=c"},
      {"'a=b=c'.rpartition('=')|first", "a=b"},
  }};
  for (const auto& [expression, expected] : cases) {
    EXPECT_EQ(render("{{ " + std::string(expression) + " }}"), expected) << expression;
  }
}

TEST(TextCases, C31_LoopControlsAndGenerationTagsWorkAndUnknownTagsAreErrorsAtLoad) {
  const Json chat =
      conversation(message("user", "a"), message("assistant", "b"), message("user", "c"));
  EXPECT_EQ(render("{%- for m in messages %}{%- if m.role=='assistant' %}{%- break %}{%- endif %}"
                   "{{ m.role }};{%- endfor %}",
                   chat),
            "user;");
  EXPECT_EQ(
      render("{%- for m in messages %}{%- if m.role=='assistant' %}{%- continue %}{%- endif %}"
             "{{ m.content }}{%- endfor %}",
             chat),
      "ac");
  EXPECT_EQ(render("{% generation %}a{% endgeneration %}"), "a");
  EXPECT_EQ(render("x\n  {%- generation -%}\n a {%- endgeneration %}\nb"), "xab");
  auto parsed = ChatTemplate::parse("a{% foo %}b", kOptions);
  ASSERT_FALSE(parsed.is_ok());
  EXPECT_THAT(parsed.status().message(), AllOf(HasSubstr("foo"), HasSubstr("line 1")));
  parsed = ChatTemplate::parse("a\n\n{{ b }}{% if x %}", kOptions);
  ASSERT_FALSE(parsed.is_ok());
  EXPECT_THAT(parsed.status().message(), HasSubstr("line 3"));
}

TEST(TextCases, C32_TojsonWritesAsPythonDoes) {
  constexpr const char* kValue = R"({"b":1,"a":"é<&'","c":[1,2.0,true,none]})";
  EXPECT_EQ(render(std::string("{{ ") + kValue + " | tojson }}"),
            R"({"b": 1, "a": "é<&'", "c": [1, 2.0, true, null]})");
  EXPECT_EQ(render(std::string("{{ ") + kValue + " | tojson(indent=2) }}"),
            "{\n  \"b\": 1,\n  \"a\": \"é<&'\",\n  \"c\": [\n    1,\n    2.0,\n    true,\n    "
            "null\n  ]\n}");
  EXPECT_EQ(render("{{ {} | tojson(indent=2) }}{{ [] | tojson }}"), "{}[]");
  EXPECT_EQ(render(R"({{ {"a": [1]} | tojson(separators=(',', ':')) }})"), R"({"a":[1]})");
  EXPECT_EQ(render(R"({{ {"b": 1, "a": 2} | tojson(sort_keys=true) }})"), R"({"a": 2, "b": 1})");
  EXPECT_EQ(render(R"({{ "é🙂" | tojson(ensure_ascii=true) }})"), R"("\u00e9\ud83d\ude42")");
  // From the request: order of keys, floats, escapes and large numbers.
  Json chat = conversation();
  chat["tools"] = Json::parse(
      R"([{"z": 1, "a": {"y": 0.1, "b": 1e-7}, "t": "q\"\\\n\u0001", "n": 9007199254740993}])");
  EXPECT_EQ(
      render("{{ tools | tojson }}", chat),
      R"([{"z": 1, "a": {"y": 0.1, "b": 1e-07}, "t": "q\"\\\n\u0001", "n": 9007199254740993}])");
}

TEST(TextCases, C33_BlocksAreTrimmedAndOneFinalNewlineIsDropped) {
  const Json chat = conversation(message("user", "a"), message("assistant", "b"));
  EXPECT_EQ(render("{% for m in messages %}\n  {% if loop.first %}\nA{{ m.role }}\n  {% endif %}\n"
                   "{% endfor %}\nEND\n\n",
                   chat),
            "Auser\nEND\n");
  EXPECT_EQ(render("{{ bos_token }}{#- c #}\n{{- 'x' }}"), "<s>x");
}

TEST(TextCases, C34_ARefusalByTheTemplateCarriesItsOwnText) {
  constexpr const char* kSource =
      "{%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Roles must alternate: ' ~ m.role) }}{%- endif %}{{ m.content }}"
      "{%- endfor %}";
  const Status status = failure(kSource, conversation(message("user", "a"), message("user", "b")));
  EXPECT_TRUE(ChatTemplate::is_refusal(status));
  EXPECT_EQ(status.message(),
            "the chat template refuses this conversation: Roles must alternate: user");
  // Inside a macro too.
  EXPECT_TRUE(ChatTemplate::is_refusal(
      failure("{% macro f() %}{{ raise_exception('no') }}{% endmacro %}{{ f() }}")));
  // The next request works, and a template that fails is not one that refuses.
  EXPECT_EQ(render(kSource, conversation(message("user", "a"), message("assistant", "b"))), "ab");
  const Status failed = failure("\n{{ nothing.at.all }}");
  EXPECT_FALSE(ChatTemplate::is_refusal(failed));
  EXPECT_THAT(failed.message(), HasSubstr("line 2"));
}

TEST(TextCases, C35_ContentAsTextPartsIsTheSameAsAString) {
  constexpr const char* kSource =
      "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
  Json parts = Json::array();
  parts.push_back(text_part("X"));
  for (const char* role : {"user", "system", "assistant", "tool"}) {
    const std::string as_string = render(kSource, conversation(message(role, "X")));
    EXPECT_EQ(as_string, std::string("[") + role + ":X]");
    EXPECT_EQ(render(kSource, conversation(message(role, parts))), as_string);
  }
  parts.push_back(text_part("Y"));
  EXPECT_EQ(render(kSource, conversation(message("user", parts))), "[user:X\nY]");
  parts.push_back({{"type", "image_url"}, {"image_url", "x"}});
  const Status status = failure(kSource, conversation(message("user", parts)));
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("image_url"), HasSubstr("messages[0]"), HasSubstr("content[2]")));
}

TEST(TextCases, C37_ToolArgumentsAreMappingsAndNullContentIsEmpty) {
  const Json call = {{"type", "function"},
                     {"id", "c1"},
                     {"function", {{"name", "weather"}, {"arguments", "{\"city\":\"Paris\"}"}}}};
  Json assistant = message("assistant", nullptr);
  assistant["tool_calls"] = Json::array({call});
  const Json chat = conversation(message("user", "?"), assistant, message("tool", "{}"));
  constexpr const char* kCalls =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}|"
      "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
  EXPECT_EQ(render(kCalls, chat), R"(Paris|{"city": "Paris"})");
  EXPECT_EQ(render("{{ '[' }}{{ messages[1].content }}{{ ']' }}", chat), "[]");
  EXPECT_EQ(render("{{ messages[1].content is none }}", chat), "True");
  EXPECT_EQ(render("{{ '[' + messages[1].content + ']' }}", chat), "[]");
  Json broken = chat;
  broken["messages"][1]["tool_calls"][0]["function"]["arguments"] = "{city:";
  EXPECT_EQ(render("{{ messages[1].tool_calls[0].function.arguments }}", broken), "{city:");
  // DeepSeek's templates add the arguments to a text, where the content is none.
  constexpr const char* kAdds =
      "{% set m = messages[1] %}{% if m.content is none %}"
      "{{ '(' + m.tool_calls[0].function.arguments + ')' }}{% endif %}";
  EXPECT_EQ(render(kAdds, chat), R"(({"city":"Paris"}))");
}

TEST(TextCases, C32_ToolsGivenAsTextKeepTheirOrder) {
  Json chat = conversation(message("user", "?"));
  chat["tools"] = R"([{"type":"function","function":{"z":"é<","a":[1.0]}}])";
  EXPECT_EQ(render("{{ tools | tojson }}", chat),
            R"([{"type": "function", "function": {"z": "é<", "a": [1.0]}}])");
  chat["tools"] = "[";
  const auto text = parse("{{ tools }}")->render(chat.dump());
  ASSERT_FALSE(text.is_ok());
  EXPECT_THAT(text.status().message(), HasSubstr("tools is no JSON"));
}

TEST(TextCases, C38_DatesAndVariablesThatAreNotDefined) {
  // 2024-07-26 12:00:00 UTC, noon or so in every time zone but the farthest ones.
  constexpr std::time_t kNow = 1721995200;
  std::tm local{};
  localtime_r(&kNow, &local);
  std::array<char, 64> expected{};
  std::strftime(expected.data(), expected.size(), "%d %b %Y", &local);
  auto text = parse("{{ strftime_now('%d %b %Y') }}")->render(R"({"messages": []})", kNow);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_EQ(*text, expected.data());
  EXPECT_THAT(*text, HasSubstr("Jul 2024"));
  constexpr const char* kDate =
      "{%- if not date_string is defined %}{%- set date_string = \"26 Jul 2024\" %}{%- endif %}"
      "{{ date_string }}";
  EXPECT_EQ(render(kDate), "26 Jul 2024");
  EXPECT_EQ(render(kDate, {{"messages", Json::array()}, {"date_string", "1 Jan 2000"}}),
            "1 Jan 2000");
}

// The case names the templates of Llama 3.2, Gemma 2 and Qwen 2.5, which no package carries that a
// test could fetch: their makers' next ones stand in, in published_test.cc. Here is what the named
// ones do besides, in templates of our own, on the case's conversations; what comes out is what
// jinja2 3.1.6 makes of them, set up as transformers does it.
Json with_tools(Json chat) {
  const Json tool = {{"type", "function"},
                     {"function", {{"name", "w"}, {"parameters", {{"b", 1}}}}}};
  chat["tools"] = Json::array({tool});
  return chat;
}

TEST(TextCases, C38_ADateIsTakenFromTheClockUnlessItIsGiven) {  // as Llama 3.2
  constexpr const char* kSource = R"(
{%- set day = date_string if date_string is defined else strftime_now('%d %b %Y') %}
{%- set has_system = messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{{- bos_token + day + '|' + (messages[0]['content'] | trim if has_system else '') + '\n' }}
{%- for turn in turns %}
    {%- if loop.first and tools is not none %}
        {%- for tool in tools %}{{ tool | tojson(indent=4) + '\n' }}{% endfor %}
    {%- endif %}
    {{- turn.role + '>' + turn['content'] | trim + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant>' }}{% endif %}
)";
  const auto dated = [&](Json chat) {
    chat["date_string"] = "26 Jul 2024";
    return render(kSource, chat);
  };
  EXPECT_EQ(dated(conversation(message("user", " Hi "))), "<s>26 Jul 2024|\nuser>Hi\nassistant>");
  EXPECT_EQ(dated(conversation(message("system", "Short.\n"), message("user", "Hi"))),
            "<s>26 Jul 2024|Short.\nuser>Hi\nassistant>");
  EXPECT_EQ(
      dated(conversation(message("user", "1"), message("assistant", "2"), message("user", "3"))),
      "<s>26 Jul 2024|\nuser>1\nassistant>2\nuser>3\nassistant>");
  EXPECT_EQ(dated(with_tools(conversation(message("user", "?")))),
            "<s>26 Jul 2024|\n{\n    \"type\": \"function\",\n    \"function\": {\n"
            "        \"name\": \"w\",\n        \"parameters\": {\n            \"b\": 1\n"
            "        }\n    }\n}\nuser>?\nassistant>");
  // 2024-07-15, noon in Greenwich: the same day nearly everywhere.
  const auto today = parse(kSource)->render(conversation(message("user", "Hi")).dump(), 1721044800);
  ASSERT_TRUE(today.is_ok()) << today.status().message();
  EXPECT_THAT(*today, ::testing::MatchesRegex("<s>1[456] Jul 2024\\|\nuser>Hi\nassistant>"));
}

TEST(TextCases, C38_ASystemMessageIsRefusedInTheTemplatesOwnWords) {  // as Gemma 2
  constexpr const char* kSource = R"({{ bos_token }}
{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for turn in messages %}
    {% if loop.index0 % 2 != (1 if turn.role == 'assistant' else 0) %}
        {{ raise_exception('roles must alternate') }}
    {% endif %}
    {{ ('model' if turn.role == 'assistant' else turn.role) + '>' + turn.content | trim }}
{% endfor %}
{% if add_generation_prompt %}{{ 'model>' }}{% endif %}
)";
  EXPECT_EQ(render(kSource, conversation(message("user", " Hi "))), "<s>\n    user>Hi\nmodel>");
  const Status status =
      failure(kSource, conversation(message("system", "Short."), message("user", "Hi")));
  EXPECT_TRUE(ChatTemplate::is_refusal(status));
  EXPECT_THAT(status.message(), HasSubstr("System role not supported"));
  EXPECT_EQ(render(kSource, conversation(message("user", "1"), message("assistant", "2"),
                                         message("user", "3"))),
            "<s>\n    user>1\n    model>2\n    user>3\nmodel>");
  EXPECT_EQ(render(kSource, with_tools(conversation(message("user", "?")))),
            "<s>\n    user>?\nmodel>");
}

TEST(TextCases, C38_ToolResultsInARowAreOneTurnAndASystemMessageIsAlwaysThere) {  // as Qwen 2.5
  constexpr const char* kSource = R"(
{%- set system = messages[0].content if messages[0].role == 'system' else 'Be of use.' %}
{{- 'system>' + system + '\n' }}
{%- if tools %}{% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{% endif %}
{%- for turn in messages %}
    {%- if turn.role == 'tool' %}
        {{- 'results>' if loop.first or messages[loop.index0 - 1].role != 'tool' }}
        {{- '(' + turn.content + ')' }}
        {{- '\n' if loop.last or messages[loop.index0 + 1].role != 'tool' }}
    {%- elif turn.tool_calls %}
        {%- for call in turn.tool_calls %}
            {%- set call = call.function if call.function is defined else call %}
            {{- 'call>' + call.name + (call.arguments | tojson) + '\n' }}
        {%- endfor %}
    {%- elif not (loop.first and turn.role == 'system') %}
        {{- turn.role + '>' + turn.content + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant>' }}{% endif %}
)";
  EXPECT_EQ(render(kSource, conversation(message("user", " Hi "))),
            "system>Be of use.\nuser> Hi \nassistant>");
  EXPECT_EQ(render(kSource, conversation(message("system", "Short.\n"), message("user", "Hi"))),
            "system>Short.\n\nuser>Hi\nassistant>");
  EXPECT_EQ(render(kSource, conversation(message("user", "1"), message("assistant", "2"),
                                         message("user", "3"))),
            "system>Be of use.\nuser>1\nassistant>2\nuser>3\nassistant>");
  EXPECT_EQ(
      render(kSource, with_tools(conversation(message("user", "?")))),
      "system>Be of use.\n"
      "{\"type\": \"function\", \"function\": {\"name\": \"w\", \"parameters\": {\"b\": 1}}}\n"
      "user>?\nassistant>");
  Json call = message("assistant", nullptr);
  call["tool_calls"] = Json::array({Json::object(
      {{"type", "function"}, {"function", {{"name", "w"}, {"arguments", R"({"c":"Oslo"})"}}}})});
  EXPECT_EQ(render(kSource, conversation(message("user", "?"), call, message("tool", "x"),
                                         message("tool", "y"), message("user", "so"))),
            "system>Be of use.\nuser>?\ncall>w{\"c\": \"Oslo\"}\nresults>(x)(y)\nuser>so\n"
            "assistant>");
}

TEST(ChatTemplate, GivesTemplatesTheVariablesOfTransformers) {
  EXPECT_EQ(render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"),
            "TrueTrueTrue");
  EXPECT_EQ(render("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"), "<s></s>False");
  EXPECT_EQ(render("{{ enable_thinking }}{{ add_generation_prompt }}",
                   {{"messages", Json::array()},
                    {"enable_thinking", false},
                    {"add_generation_prompt", false}}),
            "FalseFalse");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in [1,2] %}{% set ns.n = ns.n + i %}{% "
                   "endfor %}{{ ns.n }}"),
            "3");
  EXPECT_EQ(
      render("{{ 'a' is string }}{{ 'a' is iterable }}{{ {} is mapping }}{{ 1 is iterable }}"),
      "TrueTrueTrueFalse");
  EXPECT_EQ(render("{{ [1, 'a', 2.0, none, true, {'b': []}] }}"),
            "[1, 'a', 2.0, None, True, {'b': []}]");
  EXPECT_EQ(render("{{ '<a&b>' }}"), "<a&b>");
}

TEST(ChatTemplate, RefusesRequestsThatAreNoConversation) {
  const auto tried = parse("x");
  for (const char* json :
       {"", "[]", "{}", R"({"messages": 1})", R"({"messages": [1]})",
        R"({"messages": [{"content": "a"}]})", R"({"messages": [{"role": "user", "content": 1}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"}) {
    auto text = tried->render(json);
    ASSERT_FALSE(text.is_ok()) << json;
    EXPECT_EQ(text.status().code(), StatusCode::kRequest);
  }
}

TEST(ChatTemplate, ThatNeverEndsIsStopped) {
  const Status status = failure(
      "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}"
      "{% endfor %}{% endfor %}{% endfor %}");
  EXPECT_THAT(status.message(), HasSubstr("fuel"));
  const Status large =
      failure("{% set x = 'a' * 1000000 %}{% for a in range(1000) %}{{ x }}{% endfor %}");
  EXPECT_THAT(large.message(), HasSubstr("larger than 16 MiB"));
  const Status recursion = failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  EXPECT_THAT(recursion.message(), HasSubstr("recursion"));
}

TEST(ChatTemplate, ThatWantsAllMemoryIsStoppedAndNotRunAgain) {
  for (const char* source : {
           "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
           "{% endfor %}",
           "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
           "{% endfor %}",
           "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}",
           "{% set x = 'a' * 1000000 %}{{ ([x] * 1000000) | join }}",
           "{{ (['a'] * 1000000000) | list | length }}",
           "{% set x = 'a' * 100000 %}{{ x | replace('a', x) | length }}",
           "{% set x %}{% for i in range(100000) %}{% for i in range(100000) %}aaaaaaaaaaaaaaaa"
           "{% endfor %}{% endfor %}{% endset %}",
           "{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% for i in range(100000) %}"
           "{% set n.x = [[[[[[[[n.x]]]]]]]] %}{% endfor %}{% endfor %}",
       }) {
    const auto tried = parse(source);
    auto text = tried->render(conversation().dump());
    ASSERT_FALSE(text.is_ok()) << source;
    EXPECT_EQ(text.status().code(), StatusCode::kRequest);
    EXPECT_THAT(text.status().message(), HasSubstr("needs more than 64 MiB")) << source;
    text = tried->render(conversation().dump());
    ASSERT_FALSE(text.is_ok()) << source;
    EXPECT_THAT(text.status().message(), HasSubstr("not used again")) << source;
  }
}

TEST(ChatTemplate, ValuesNestedTooDeeplyAreNotWritten) {
  const std::string deep =
      "{% set n = namespace(x=[]) %}{% for i in range(COUNT) %}{% set n.x = SHELL %}{% endfor %}";
  const auto nested = [&](const char* count, const char* shell, const char* use) {
    std::string source = deep;
    source.replace(source.find("COUNT"), 5, count);
    source.replace(source.find("SHELL"), 5, shell);
    return source + use;
  };
  for (const char* shell : {"[n.x]", "{'a': n.x}"}) {
    for (const char* use : {"{{ n.x }}", "{{ n.x | string }}", "{{ n.x | tojson }}",
                            "{{ n.x | tojson(indent=2) }}"}) {
      const Status status = failure(nested("100000", shell, use));
      EXPECT_THAT(status.message(), HasSubstr("nested more than 500 levels")) << shell << use;
      EXPECT_NE(render(nested("400", shell, use)), "");
    }
    // What only holds such a value, compares it and lets it go.
    EXPECT_EQ(render(nested("100000", shell, "{{ n.x == [n.x] }}")), "False");
  }
  EXPECT_EQ(render(nested("100000", "[[[[[n.x]]]]]", "{{ n.x == [n.x] }}")), "False");
}

}  // namespace
}  // namespace shoal::text
