// Vocabulary: a tokenizer as a model file describes it, before it is built.
//
// A plain value that a reader of model files fills in (a field that the file lacks stays empty) and
// validate() checks; nothing here trusts the file. Field comments name the GGUF key that each one
// comes from, and the messages of validate() name the same keys.
// Thread rule: a value, no sharing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal::text {

// What a token is for; the values are those of `tokenizer.ggml.token_type`.
enum class TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // steers the model (<s>, <|im_end|>); never made from plain text
  kUserDefined = 4,  // one piece of text that is always kept whole
  kUnused = 5,
  kByte = 6,  // <0x0A> and its like: one raw byte
};

struct Vocabulary {
  std::string model;                // tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre;                  // tokenizer.ggml.pre: the name of the splitting rules
  std::vector<std::string> tokens;  // tokenizer.ggml.tokens, by id
  std::vector<float> scores;        // tokenizer.ggml.scores; needed for "llama"
  std::vector<int32_t> types;       // tokenizer.ggml.token_type: a TokenKind for each token
  std::vector<std::string> merges;  // tokenizer.ggml.merges: "left right"; needed for "gpt2"

  std::optional<int64_t> bos;  // tokenizer.ggml.bos_token_id
  std::optional<int64_t> eos;  // tokenizer.ggml.eos_token_id
  std::optional<int64_t> eot;  // tokenizer.ggml.eot_token_id: end of a turn
  std::optional<int64_t> eom;  // tokenizer.ggml.eom_token_id: end of a message with a tool call
  std::optional<int64_t> unk;  // tokenizer.ggml.unknown_token_id
  std::optional<int64_t> pad;  // tokenizer.ggml.padding_token_id

  std::optional<bool> add_bos;           // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;           // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;  // tokenizer.ggml.add_space_prefix
};

// Ok when every length, id, type, score and merge fits; else kRequest, naming the key with what was
// expected and what was found. Duplicate token texts are legal.
Status validate(const Vocabulary& vocabulary);

}  // namespace shoal::text
