#include "text/tokenizer.h"

#include <algorithm>

#include "base/log.h"
#include "base/mapped_file.h"
#include "text/detokenizer.h"
#include "text/rust_bridge.h"

namespace shoal::text {
namespace {

std::optional<int32_t> optional_id(int32_t id) {
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

int64_t id_or_none(std::optional<int64_t> id) { return id.value_or(-1); }

std::vector<ShoalText> borrow_all(const std::vector<std::string>& texts) {
  std::vector<ShoalText> result;
  result.reserve(texts.size());
  for (const std::string& text : texts) result.push_back(borrow(text));
  return result;
}

Result<std::vector<int32_t>> encode_with(const ShoalTokenizer* tokenizer, std::string_view text,
                                         bool parse_special, int ends) {
  ShoalIds ids{};
  ShoalBuffer error{};
  const RustCall call;
  const int code =
      shoal_tokenizer_encode(tokenizer, borrow(text), parse_special ? 1 : 0, ends, &ids, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  shoal_ids_free(ids);
  return result;
}

}  // namespace

void Tokenizer::Free::operator()(ShoalTokenizer* tokenizer) const {
  shoal_tokenizer_free(tokenizer);
}

Tokenizer::Tokenizer(ShoalTokenizer* impl) : impl_(impl) {
  const ShoalTokenizerInfo info = shoal_tokenizer_info(impl);
  size_ = info.vocabulary_size;
  leading_spaces_ = info.leading_spaces;
  special_.bos = optional_id(info.bos);
  special_.eos = optional_id(info.eos);
  special_.eot = optional_id(info.eot);
  special_.unk = optional_id(info.unk);
  special_.pad = optional_id(info.pad);
  special_.add_bos = info.add_bos != 0;
  special_.add_eos = info.add_eos != 0;
  special_.end_of_generation.assign(info.end_of_generation,
                                    info.end_of_generation + info.end_of_generation_count);
}

Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json_file(const std::string& path,
                                                             const TokenizerFileOptions& options) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  auto tokenizer = from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options);
  if (!tokenizer.is_ok()) return tokenizer.status().with_context(path);
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view json,
                                                        const TokenizerFileOptions& options) {
  const ShoalTokenizerOptions raw = {
      .bos_token = borrow_some(options.bos_token),
      .eos_token = borrow_some(options.eos_token),
      .unk_token = borrow_some(options.unk_token),
      .pad_token = borrow_some(options.pad_token),
      .add_bos = switch_of(options.add_bos),
      .add_eos = switch_of(options.add_eos),
      .end_of_generation = options.end_of_generation.data(),
      .end_of_generation_count = options.end_of_generation.size(),
  };
  ShoalTokenizer* impl = nullptr;
  ShoalBuffer error{};
  const int code = shoal_tokenizer_from_json(borrow(json), &raw, &impl, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return std::unique_ptr<Tokenizer>(new Tokenizer(impl));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_vocabulary(const Vocabulary& vocabulary) {
  RETURN_IF_ERROR(validate(vocabulary));
  std::string_view pre = vocabulary.pre;
  if (pre.empty() && vocabulary.model == "gpt2") {
    LOG(warn, "the model file has no tokenizer.ggml.pre: text is split by GPT-2's rules");
    pre = "default";
  }
  const std::vector<ShoalText> tokens = borrow_all(vocabulary.tokens);
  const std::vector<ShoalText> merges = borrow_all(vocabulary.merges);
  const ShoalVocabulary raw = {
      .model = borrow(vocabulary.model),
      .pre = borrow(pre),
      .tokens = tokens.data(),
      .token_count = tokens.size(),
      .scores = vocabulary.scores.empty() ? nullptr : vocabulary.scores.data(),
      .types = vocabulary.types.empty() ? nullptr : vocabulary.types.data(),
      .merges = merges.data(),
      .merge_count = merges.size(),
      .bos = id_or_none(vocabulary.bos),
      .eos = id_or_none(vocabulary.eos),
      .eot = id_or_none(vocabulary.eot),
      .eom = id_or_none(vocabulary.eom),
      .unk = id_or_none(vocabulary.unk),
      .pad = id_or_none(vocabulary.pad),
      .add_bos = switch_of(vocabulary.add_bos),
      .add_eos = switch_of(vocabulary.add_eos),
      .add_space_prefix = switch_of(vocabulary.add_space_prefix),
  };
  ShoalTokenizer* impl = nullptr;
  ShoalBuffer error{};
  const int code = shoal_tokenizer_from_vocabulary(&raw, &impl, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return std::unique_ptr<Tokenizer>(new Tokenizer(impl));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  return encode_with(impl_.get(), text, options.parse_special,
                     options.add_special ? SHOAL_TEXT_ENDS_BOTH : SHOAL_TEXT_ENDS_NONE);
}

Result<std::vector<int32_t>> Tokenizer::encode_chat(std::string_view rendered) const {
  return encode_with(impl_.get(), rendered, true, SHOAL_TEXT_ENDS_START);
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  Detokenizer detokenizer(*this, options);
  std::string text;
  for (const int32_t id : ids) {
    if (!is_valid(id)) {
      return Status::request("token id " + std::to_string(id) +
                             " is outside of the vocabulary of " + std::to_string(size_) +
                             " tokens");
    }
    text += detokenizer.push(id);
  }
  text += detokenizer.finish();
  return text;
}

std::string_view Tokenizer::token_text(int32_t id) const {
  CHECK(is_valid(id));
  return view(shoal_tokenizer_token_text(impl_.get(), id));
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  CHECK(is_valid(id));
  return view(shoal_tokenizer_token_bytes(impl_.get(), id));
}

TokenKind Tokenizer::token_kind(int32_t id) const {
  CHECK(is_valid(id));
  return static_cast<TokenKind>(shoal_tokenizer_token_kind(impl_.get(), id));
}

std::optional<int32_t> Tokenizer::find_token(std::string_view token_text) const {
  return optional_id(shoal_tokenizer_find(impl_.get(), borrow(token_text)));
}

std::optional<int32_t> Tokenizer::find_control_token(std::string_view token_text) const {
  const auto id = find_token(token_text);
  return id && token_kind(*id) == TokenKind::kControl ? id : std::nullopt;
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  const auto& ends = special_.end_of_generation;
  return std::binary_search(ends.begin(), ends.end(), id);
}

}  // namespace shoal::text
