#include "runtime/draft/ngram_drafter.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace shoal::runtime {
namespace {

// How many tokens before `a` are the same as those before `b`, at most `most`; a < b.
size_t common_before(std::span<const TokenId> tokens, size_t a, size_t b, size_t most) {
  const size_t limit = std::min(a, most);
  size_t length = 0;
  while (length < limit && tokens[a - 1 - length] == tokens[b - 1 - length]) ++length;
  return length;
}

}  // namespace

NgramDrafter::NgramDrafter(std::span<const TokenId> prompt, size_t tokens_max)
    : places_(std::bit_ceil(std::clamp<size_t>(2 * tokens_max, 64, kSlotsMax))) {
  for (size_t end = 1; end < prompt.size(); ++end) enter(prompt.first(end));
  known_ = prompt.size();
  find_match(prompt);
  enter(prompt);
}

void NgramDrafter::append(std::span<const TokenId> tokens) {
  CHECK(tokens.size() == known_ + 1);
  known_ = tokens.size();
  if (match_length_ > 0) {
    const bool was_right = tokens[next_] == tokens.back();
    rates_.note(match_length_, was_right);
    ++next_;
    match_length_ = was_right ? std::min(match_length_ + 1, kMatchMax) : 0;
  }
  // A long match that goes on is better than the latest of the short ones.
  if (match_length_ < kLengths.front()) find_match(tokens);
  enter(tokens);
}

void NgramDrafter::find_match(std::span<const TokenId> tokens) {
  for (const size_t length : kLengths) {
    if (tokens.size() <= length) continue;
    const size_t place = places_[slot_of(tokens.last(length))];
    if (place == 0) continue;
    const size_t common = common_before(tokens, place, tokens.size(), kMatchMax);
    // Less than what was looked up: another n-gram had the same slot.
    if (common < length || common <= match_length_) continue;
    next_ = place;
    match_length_ = common;
    return;
  }
}

// The end of `tokens` as a place that may be found from the next token on.
void NgramDrafter::enter(std::span<const TokenId> tokens) {
  for (const size_t length : kLengths) {
    if (tokens.size() < length) continue;
    places_[slot_of(tokens.last(length))] = static_cast<uint32_t>(tokens.size());
  }
}

size_t NgramDrafter::slot_of(std::span<const TokenId> last) const {
  constexpr uint64_t kOdd = 0x9E37'79B9'7F4A'7C15;  // 2^64 over the golden ratio
  uint64_t hash = last.size();
  for (const TokenId id : last) hash = (std::rotl(hash, 23) ^ static_cast<uint32_t>(id)) * kOdd;
  return hash >> (64 - std::countr_zero(places_.size()));
}

// Where the draft gets as far as the last token it goes on with its own beginning: what repeats
// itself without end is copied without end.
void NgramDrafter::draft(std::span<const TokenId> tokens, size_t count,
                         std::vector<TokenId>* out) const {
  CHECK(match_length_ > 0 && tokens.size() == known_);
  const size_t first = out->size();
  for (size_t i = 0; i < count; ++i) {
    const size_t at = next_ + i;
    out->push_back(at < known_ ? tokens[at] : (*out)[first + at - known_]);
  }
}

}  // namespace shoal::runtime
