// AnswerShape: how one OpenAI route writes answers as JSON, whole and in pieces.
//
// Thread rule: one thread at a time; a shape serves one request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/generate/answer_json.h"
#include "server/generate/generation.h"

namespace shoal::server {

class AnswerShape {
 public:
  virtual ~AnswerShape() = default;
  virtual std::string_view id_prefix() const = 0;
  virtual std::string_view object(bool is_stream) const = 0;
  // Entries of "choices" in a stream, each for an event of its own: what comes before the first
  // piece, if anything does; a piece; the end.
  virtual std::optional<OrderedJson> first_chunk(size_t choice) = 0;
  virtual std::vector<OrderedJson> chunks(size_t choice, const AnswerPiece& piece) = 0;
  virtual OrderedJson last_chunk(size_t choice, std::string_view finish_reason) = 0;
  // An entry of "choices" in a whole answer.
  virtual OrderedJson whole(size_t choice, const AnswerPiece& answer,
                            std::string_view finish_reason) = 0;
};

struct ShapeOptions {
  const text::Tokenizer* tokenizer = nullptr;
  bool wants_logprobs = false;
};
std::unique_ptr<AnswerShape> make_chat_shape(const ShapeOptions& options);
// echoes: a text for each choice that stands before its answer; empty: none.
std::unique_ptr<AnswerShape> make_completion_shape(const ShapeOptions& options,
                                                   std::vector<std::string> echoes);

// An entry for each token: its label, log-probability and bytes, and the likeliest in its place.
OrderedJson token_logprobs(const text::Tokenizer& tokenizer,
                           const std::vector<AnswerToken>& tokens);

// A token's text where it is UTF-8; else its bytes as "\xf0\x9f", so that none is lost.
std::string token_label(std::string_view bytes);

}  // namespace shoal::server
