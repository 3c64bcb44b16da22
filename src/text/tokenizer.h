// Tokenizer: text to token ids and back, as the model's published tokenizer does it.
//
// Built from a tokenizer.json or from the Vocabulary of a model file. Text is UTF-8; ids are
// 0 .. vocabulary_size()-1. Owns everything; views that it hands out live as long as it does.
// Thread rule: immutable after its factory, every method may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/vocabulary.h"

// The part behind the C interface of rust/ (shoal_text.h).
struct ShoalTokenizer;

namespace shoal::text {

struct EncodeOptions {
  // Put BOS and EOS where the model wants them. A text that itself starts with a parsed BOS gets
  // no second one.
  bool add_special = true;
  // Text such as "<|im_end|>" becomes the control token. Leave it off for text from a user: a
  // control token must not be injected by typing it.
  bool parse_special = false;
};

struct DecodeOptions {
  bool skip_special = true;  // leave control tokens out
  // The text goes on after earlier text: the space that SentencePiece puts before the first word
  // is part of the text and stays.
  bool continues = false;
};

// The ids with a meaning of their own, where the model has them.
struct SpecialTokens {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> eot;
  std::optional<int32_t> unk;
  std::optional<int32_t> pad;
  std::vector<int32_t> end_of_generation;  // any of these ends an answer; rising, no duplicates
  bool add_bos = false;                    // encode() with add_special starts with bos
  bool add_eos = false;                    // encode() with add_special ends with eos
};

// What is known about special tokens beside a tokenizer.json (tokenizer_config.json and
// generation_config.json of the same folder); what is set here wins.
struct TokenizerFileOptions {
  std::optional<std::string> bos_token{};
  std::optional<std::string> eos_token{};
  std::optional<std::string> unk_token{};
  std::optional<std::string> pad_token{};
  std::optional<bool> add_bos{};
  std::optional<bool> add_eos{};
  std::vector<int64_t> end_of_generation{};  // more ids that end an answer
};

class Tokenizer {
 public:
  // kRequest naming the path and the broken part when the file is no usable tokenizer.
  static Result<std::unique_ptr<Tokenizer>> from_json_file(
      const std::string& path, const TokenizerFileOptions& options = {});
  // The same from the text of a tokenizer.json.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view json,
                                                      const TokenizerFileOptions& options = {});
  // Validates first. An unknown `pre` or `model` is an error that lists the known ones. Where two
  // tokens have the same text, encoding gives the lowest id.
  static Result<std::unique_ptr<Tokenizer>> from_vocabulary(const Vocabulary& vocabulary);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // kRequest when the text is not UTF-8.
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  // For what ChatTemplate::render returned: control tokens are parsed, there is exactly one BOS
  // when the model wants one (whether or not the template writes it), and no EOS is added.
  Result<std::vector<int32_t>> encode_chat(std::string_view rendered) const;

  // Bytes that are no UTF-8 become U+FFFD. kRequest on an id outside of the vocabulary.
  Result<std::string> decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  int32_t vocabulary_size() const { return size_; }
  bool is_valid(int32_t id) const { return id >= 0 && id < size_; }

  // These CHECK is_valid(id).
  // The token as the vocabulary spells it ("Ġthe", "▁the", "<0x0A>").
  std::string_view token_text(int32_t id) const;
  // The bytes that the token stands for in a text (" the", "\n"); added tokens literally. May be
  // a part of a UTF-8 character.
  std::string_view token_bytes(int32_t id) const;
  TokenKind token_kind(int32_t id) const;

  // The id of the token that is spelled like this, if there is one (the lowest).
  std::optional<int32_t> find_token(std::string_view token_text) const;
  // The same where it is a control token.
  std::optional<int32_t> find_control_token(std::string_view token_text) const;

  const SpecialTokens& special() const { return special_; }
  bool is_end_of_generation(int32_t id) const;
  // How many leading spaces of a whole text the tokenizer itself put there (SentencePiece: 1).
  int32_t leading_spaces() const { return leading_spaces_; }

 private:
  friend class GrammarCompiler;
  struct Free {
    void operator()(ShoalTokenizer* tokenizer) const;
  };
  explicit Tokenizer(ShoalTokenizer* impl);

  std::unique_ptr<ShoalTokenizer, Free> impl_;
  SpecialTokens special_;
  int32_t size_ = 0;
  int32_t leading_spaces_ = 0;
};

}  // namespace shoal::text
