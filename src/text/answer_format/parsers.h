// The parsers of the formats, each in a file of its own; make_answer_parser chooses.
//
// Thread rule: pure functions.
#pragma once

#include <memory>

#include "text/answer_format/answer_format.h"
#include "text/answer_format/answer_parser.h"

namespace shoal::text {

std::unique_ptr<AnswerParser> make_hermes_parser(AnswerParserOptions options);
std::unique_ptr<AnswerParser> make_llama3_parser(AnswerParserOptions options);
// Both of Mistral's forms.
std::unique_ptr<AnswerParser> make_mistral_parser(AnswerParserOptions options);
// Both of DeepSeek's forms.
std::unique_ptr<AnswerParser> make_deepseek_parser(AnswerParserOptions options);
// Calls and thoughts.
std::unique_ptr<AnswerParser> make_harmony_parser(AnswerParserOptions options);
// All of it is content.
std::unique_ptr<AnswerParser> make_plain_parser();
// A thought that the answer begins with, enclosed in marks; what follows goes to the other parser.
std::unique_ptr<AnswerParser> make_thought_parser(ThoughtMarks marks, bool starts_in_thought,
                                                  std::unique_ptr<AnswerParser> rest);

}  // namespace shoal::text
