// put_tools: what a request says about tools and earlier thoughts, in the form that the model's
// template takes; as text of ours where it takes none.
//
// Thread rule: pure function.
#pragma once

#include "server/api/fields.h"
#include "server/tools/tool_options.h"
#include "text/answer_format/answer_format.h"

namespace shoal::server {

// input: "messages" in OpenAI's form (and more variables), as the template takes them; gets
// "tools".
//  - A template without tools: a system text describes them and how to call one.
//  - A template without tool_calls: earlier calls and their results are written into the messages.
//  - A template that wants short ids of calls: each id becomes one, always the same.
void put_tools(const ToolOptions& tools, const text::AnswerFormat& format, Json* input);

}  // namespace shoal::server
