// What requests say about the form of their answers, as the APIs have it, as an AnswerGrammar.
//
// OpenAI's response_format and text.format; what local servers' clients send: vLLM's guided_* and
// structured_outputs, llama.cpp's grammar and json_schema; Ollama's format; Anthropic's
// output_format and output_config.format; whoever calls has taken output_config.effort out.
// A grammar is GBNF where it has "::=", else Lark.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "server/api/fields.h"
#include "server/generate/answer_grammar.h"

namespace shoal::server {

// Each reads its fields, of which at most one may be given; errors go to `fields`, whose JSON is
// `body`: schemas are taken from there, with their keys in order. None: the answer is free.
std::optional<AnswerGrammar> read_openai_format(Fields* fields, std::string_view body);
// fields: the object "text" of a request to the Responses API.
std::optional<AnswerGrammar> read_responses_format(Fields* fields, std::string_view body);
std::optional<AnswerGrammar> read_ollama_format(Fields* fields, std::string_view body);
std::optional<AnswerGrammar> read_anthropic_format(Fields* fields, std::string_view body);

}  // namespace shoal::server
