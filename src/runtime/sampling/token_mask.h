// TokenMask: which tokens may be chosen; TokenConstraint and TokenGrammar: who says so, each step.
//
// The runtime knows nothing of texts: whoever builds a request brings an implementation.
// Thread rule: a TokenGrammar any thread; a TokenConstraint one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "runtime/token.h"

namespace shoal::runtime {

// One bit for each id of the vocabulary, from the lowest bit of the first word on. Borrowed words.
class TokenMask {
 public:
  static constexpr size_t kWordBits = 32;

  TokenMask() = default;  // allows every token
  explicit TokenMask(std::span<const uint32_t> words) : words_(words) {}

  bool allows_all() const { return words_.empty(); }
  // Ids behind the last word are not allowed.
  bool allows(TokenId id) const {
    const auto index = static_cast<size_t>(id);
    return ((word(index / kWordBits) >> (index % kWordBits)) & 1U) != 0;
  }
  // Bits of the ids from index * kWordBits on.
  uint32_t word(size_t index) const {
    if (words_.empty()) return ~0U;
    return index < words_.size() ? words_[index] : 0;
  }

 private:
  std::span<const uint32_t> words_;
};

// The state of one answer.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // For the next token; end tokens are in it where the answer may end here. Valid until the next
  // call. kRequest: this answer cannot go on, and the status says why. Never after accept() gave
  // true.
  virtual Result<TokenMask> allowed() = 0;
  // The answer goes on with this token, which allowed() had and which is no end token. True: the
  // answer is whole and nothing may follow, not even an end token.
  virtual Result<bool> accept(TokenId id) = 0;
};

// What a request demands of its answers.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  // At the start of an answer. The same grammar always allows the same answers.
  virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

}  // namespace shoal::runtime
