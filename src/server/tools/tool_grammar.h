// tool_grammar: the calls that an answer may or must have, as a grammar of the model's own format.
//
// Thread rule: pure functions.
#pragma once

#include <optional>

#include "server/tools/tool_options.h"
#include "text/answer_format/answer_format.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace shoal::server {

// Calls of a forced answer at most: a model that finds no end has one.
inline constexpr int kForcedCallsMax = 16;

// Forced: the whole answer, where a thought may come first. Else what comes once a call begins,
// which none does in a thought; none where the format has no mark that tells it from text (Llama
// 3).
std::optional<text::GrammarSource> tool_grammar(const ToolOptions& tools,
                                                const text::AnswerFormat& format,
                                                const text::Tokenizer& tokenizer,
                                                text::PromptThought thought);

}  // namespace shoal::server
