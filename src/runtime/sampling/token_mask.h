// TokenMask: which tokens may be chosen; TokenConstraint and TokenGrammar: who says so, step by step.
//
// The runtime knows nothing of texts: whoever builds a request brings an implementation.
// Thread rule: a TokenGrammar any thread; a TokenConstraint one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "runtime/token.h"

namespace shoal::runtime {

// One bit for each id of the vocabulary, from the lowest bit of the first word on. Borrowed words.
class TokenMask {
 public:
  static constexpr size_t kBits = 32;  // of a word

  TokenMask() = default;  // allows every token
  explicit TokenMask(std::span<const uint32_t> words) : words_(words) {}

  bool allows_all() const { return words_.empty(); }
  // Ids behind the last word are not allowed.
  bool allows(TokenId id) const {
    if (words_.empty()) return true;
    const auto index = static_cast<size_t>(id);
    return index / kBits < words_.size() && ((words_[index / kBits] >> (index % kBits)) & 1U) != 0;
  }
  std::span<const uint32_t> words() const { return words_; }

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
