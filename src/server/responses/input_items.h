// The input of a request to the Responses API: a text, or items of a conversation.
//
// Thread rule: pure functions.
#pragma once

#include "server/api/fields.h"

namespace shoal::server {

// Appends the field "input" as messages that a chat template takes. Errors go to `fields`.
void read_input_items(Fields* fields, Json* messages);

}  // namespace shoal::server
