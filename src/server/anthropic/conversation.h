// A conversation of Anthropic's API as a chat template takes it.
//
// Blocks of text are joined by a line break; tool_use becomes tool_calls, tool_result a message of
// the role tool, thinking the message's reasoning_content.
// Thread rule: pure function.
#pragma once

#include <string_view>

#include "server/api/fields.h"

namespace shoal::server {

// From the fields "system" and "messages"; errors go to `fields`. body: the request as it was
// written: what a tool was called with keeps the order of its keys.
Json read_conversation(Fields* fields, std::string_view body);

}  // namespace shoal::server
