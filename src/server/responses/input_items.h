// The input of a request to the Responses API: a text, or items of a conversation.
//
// What one answer has put out stands there as several items: their thoughts (reasoning), text
// (message) and calls (function_call) become one message again, with reasoning_content, content and
// tool_calls. A function_call_output becomes a message of the role tool.
// Thread rule: pure functions.
#pragma once

#include "server/api/fields.h"

namespace shoal::server {

// Appends the field "input" as messages that a chat template takes. Errors go to `fields`.
void read_input_items(Fields* fields, Json* messages);

}  // namespace shoal::server
