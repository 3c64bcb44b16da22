// AnswerMessage: a whole answer, collected from its events.
//
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

#include "server/generate/answer_json.h"
#include "text/answer_format/answer_parser.h"

namespace shoal::server {

struct AnswerCall {
  std::string id;
  std::string name;
  std::string arguments{};  // JSON text
};

struct AnswerMessage {
  std::string content{};
  std::string reasoning{};
  std::vector<AnswerCall> calls{};

  void add(const text::AnswerEvents& events);
};

// A new name for a call.
std::string call_id();

// The arguments as an object. One that is cut off, or that the model wrote badly, is null.
OrderedJson arguments_object(const std::string& arguments);

}  // namespace shoal::server
