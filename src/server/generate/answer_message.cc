#include "server/generate/answer_message.h"

#include "base/check.h"
#include "server/api/fields.h"

namespace shoal::server {

void AnswerMessage::add(const text::AnswerEvents& events) {
  using Kind = text::AnswerEvent::Kind;
  for (const text::AnswerEvent& event : events) {
    switch (event.kind) {
      case Kind::kContent:
        content += event.text;
        break;
      case Kind::kReasoning:
        reasoning += event.text;
        break;
      case Kind::kCallBegin:
        calls.push_back({.id = call_id(), .name = event.text});
        break;
      case Kind::kCallArguments:
        CHECK(!calls.empty());
        calls.back().arguments += event.text;
        break;
      case Kind::kCallEnd:
        break;
    }
  }
}

std::string call_id() { return random_id("call_"); }

OrderedJson arguments_object(const std::string& arguments) {
  // What a model writes is foreign too, and the library writes values out recursively.
  if (nesting(arguments) > kNestingMax) return OrderedJson();
  // Adding a key takes a time that grows with an ordered object, so a huge one is sorted instead.
  constexpr size_t kOrderedBytesMax = size_t{64} << 10;
  OrderedJson json = arguments.size() <= kOrderedBytesMax
                         ? OrderedJson::parse(arguments, nullptr, false)
                         : OrderedJson(Json::parse(arguments, nullptr, false));
  return json.is_object() ? json : OrderedJson();
}

}  // namespace shoal::server
