// NgramDrafter: what an answer says next, if it goes on as its last tokens went on before.
//
// Text repeats itself: quotations, code being edited, lists, names. The last 2 to 5 tokens are
// looked up among those of the prompt and the answer so far, by a hash; what followed there is the
// draft. A match that goes on is followed, and so grows longer. How often the next token was right
// is counted also where nobody asked for a draft, so that trying costs nothing.
// Cost: a few look-ups for each token. Memory: 4 bytes for each slot of a table of at most
// kSlotsMax; newer places take the slots of older ones.
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/draft/acceptance.h"
#include "runtime/token.h"

namespace shoal::runtime {

class NgramDrafter {
 public:
  static constexpr size_t kSlotsMax = size_t{1} << 16;
  static constexpr size_t kMatchMax = 64;  // longer matches count as that long

  // tokens_max: of the prompt and the answer together, as far as is known.
  NgramDrafter(std::span<const TokenId> prompt, size_t tokens_max);

  // `tokens`: what it knows already, and one more that the model chose.
  void append(std::span<const TokenId> tokens);

  // How many tokens before the draft are the same as here; 0: there is no draft, else at least 2.
  size_t match_length() const { return match_length_; }
  // That the model chooses the draft's token `i` (from 0) after having chosen those before it.
  double likelihood(size_t i) const {
    return match_length_ == 0 ? 0 : rates_.rate(match_length_ + i);
  }
  // Appends the draft's first `count` tokens to *out; there must be a draft. tokens: as appended.
  void draft(std::span<const TokenId> tokens, size_t count, std::vector<TokenId>* out) const;

  size_t slots() const { return places_.size(); }

 private:
  // Lengths that are looked up, and how the hashes of one are told from those of another.
  static constexpr std::array<size_t, 3> kLengths = {5, 3, 2};

  void find_match(std::span<const TokenId> tokens);
  void enter(std::span<const TokenId> tokens);
  size_t slot_of(std::span<const TokenId> last) const;

  std::vector<uint32_t> places_;  // [slot] index of the token after a match; 0: none
  size_t known_ = 0;              // tokens so far
  size_t next_ = 0;               // index of the draft's first token
  size_t match_length_ = 0;
  AcceptanceRates rates_;
};

}  // namespace shoal::runtime
