#include "text/vocabulary.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

namespace shoal::text {
namespace {

// Larger than any published vocabulary; ids are int32.
constexpr size_t kTokensMax = size_t{1} << 24;

Status check_length(const char* key, size_t found, size_t expected) {
  if (found == 0 || found == expected) return Status::ok();
  return Status::request(fmt::format(
      "tokenizer.ggml.{} has {} entries, expected {} (one for each token)", key, found, expected));
}

Status check_ids(const Vocabulary& vocabulary) {
  const std::pair<const char*, const std::optional<int64_t>*> ids[] = {
      {"bos", &vocabulary.bos}, {"eos", &vocabulary.eos},     {"eot", &vocabulary.eot},
      {"eom", &vocabulary.eom}, {"unknown", &vocabulary.unk}, {"padding", &vocabulary.pad}};
  for (const auto& [name, id] : ids) {
    if (!id->has_value()) continue;
    if (**id < 0 || **id >= static_cast<int64_t>(vocabulary.tokens.size())) {
      return Status::request(fmt::format("tokenizer.ggml.{}_token_id is {}, expected 0 to {}", name,
                                         **id, vocabulary.tokens.size() - 1));
    }
  }
  return Status::ok();
}

Status check_entries(const Vocabulary& vocabulary) {
  for (size_t id = 0; id < vocabulary.types.size(); ++id) {
    const int32_t type = vocabulary.types[id];
    if (type < 1 || type > 6) {
      return Status::request(
          fmt::format("tokenizer.ggml.token_type[{}] is {}, expected 1 to 6", id, type));
    }
  }
  // A gpt2 token has no space in it: the byte alphabet writes one as another character.
  for (size_t rank = 0; vocabulary.model == "gpt2" && rank < vocabulary.merges.size(); ++rank) {
    const std::string& merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size()) {
      return Status::request(fmt::format(
          "tokenizer.ggml.merges[{}] has {} bytes without a space between them, expected two parts",
          rank, merge.size()));
    }
  }
  for (size_t id = 0; id < vocabulary.scores.size(); ++id) {
    if (std::isnan(vocabulary.scores[id])) {
      return Status::request(fmt::format("tokenizer.ggml.scores[{}] is not a number", id));
    }
  }
  return Status::ok();
}

}  // namespace

Status validate(const Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  if (count == 0) return Status::request("tokenizer.ggml.tokens is missing or empty");
  if (count > kTokensMax) {
    return Status::request(fmt::format("tokenizer.ggml.tokens has {} entries, expected at most {}",
                                       count, kTokensMax));
  }
  RETURN_IF_ERROR(check_length("scores", vocabulary.scores.size(), count));
  RETURN_IF_ERROR(check_length("token_type", vocabulary.types.size(), count));
  if (vocabulary.model == "gpt2" && vocabulary.merges.empty()) {
    return Status::request("tokenizer.ggml.merges is missing, which a gpt2 tokenizer needs");
  }
  if (vocabulary.model == "llama" && vocabulary.scores.empty()) {
    return Status::request("tokenizer.ggml.scores is missing, which a llama tokenizer needs");
  }
  RETURN_IF_ERROR(check_ids(vocabulary));
  return check_entries(vocabulary);
}

}  // namespace shoal::text
