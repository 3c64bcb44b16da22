// PrefixIndex: which tokens lie in which blocks of the KV cache, for prompts that begin alike.
//
// A trie: an entry is the tokens of one block after those of its parent's, so equal paths are equal
// conversations, exactly, without trusting a hash. An entry is pinned by each running request that
// holds its block, and kept once the cache itself holds it (Engine::close_session). Entries that
// are kept and pinned by nobody are idle: their blocks may be dropped when room is needed, least
// recently used first and the ends of paths before their beginnings.
// Memory: bounded by the number of blocks. Cost of find(): the tokens compared; of evict(): the
// number of entries for each block.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/token.h"

namespace shoal::runtime {

// How many tokens a and b begin with alike.
size_t common_length(std::span<const TokenId> a, std::span<const TokenId> b);

class PrefixIndex {
 public:
  // Fewer common tokens than this in a block that is not wholly common are not worth its copy.
  static constexpr size_t kPartMin = 8;

  // An entry. `serial` is never used twice, so a reference to a forgotten entry is known as such.
  struct Ref {
    BlockId block = 0;
    uint64_t serial = 0;
  };
  // The longest known beginning of some tokens.
  struct Match {
    std::vector<Ref> path;
    size_t tokens = 0;  // the last block may be used in part
  };

  PrefixIndex(size_t block_tokens, size_t blocks_total);

  Match find(std::span<const TokenId> tokens) const;

  void pin(const Ref& ref);
  // No effect on a forgotten entry.
  void unpin(const Ref& ref);

  // The entry of `tokens` after `parent` (none: at the beginning), at most a block of them, which
  // lie in `block`: a new one, pinned once, or the one that is there for equal tokens, as it was.
  // None: the parent is forgotten or not a whole block, or the block has an entry already.
  struct Insertion {
    Ref ref;
    bool is_new = false;
  };
  std::optional<Insertion> insert(const std::optional<Ref>& parent, std::span<const TokenId> tokens,
                                  BlockId block);

  // Notes that the cache now holds those of `blocks` that have an entry and were not held by it;
  // returns these, in order.
  std::vector<BlockId> keep(std::span<const BlockId> blocks);

  // Forgets entries until `count` idle blocks are free, or none is left; returns all kept blocks
  // that were forgotten, which the caller drops from the cache.
  std::vector<BlockId> evict(size_t count);

  size_t idle_blocks() const { return idle_; }
  // Of an existing entry.
  size_t pins(const Ref& ref) const { return entries_[ref.block].pins; }

 private:
  static constexpr BlockId kRoot = ~BlockId{0};

  struct Entry {
    uint64_t serial = 0;  // 0: there is none
    BlockId parent = kRoot;
    std::vector<TokenId> tokens;  // [1, block_tokens]
    std::vector<BlockId> children;
    uint32_t pins = 0;
    bool is_kept = false;
    uint64_t last_use = 0;
  };
  struct BestChild {
    BlockId block = kRoot;
    size_t common = 0;
  };

  bool is_alive(const Ref& ref) const {
    return ref.block < entries_.size() && entries_[ref.block].serial == ref.serial;
  }
  static bool is_idle(const Entry& entry) {
    return entry.serial != 0 && entry.is_kept && entry.pins == 0;
  }
  const std::vector<BlockId>& children_of(BlockId parent) const {
    return parent == kRoot ? roots_ : entries_[parent].children;
  }
  std::vector<BlockId>& children_of(BlockId parent) {
    return parent == kRoot ? roots_ : entries_[parent].children;
  }
  BestChild best_child(BlockId parent, std::span<const TokenId> tokens) const;
  std::optional<BlockId> least_recently_used(bool ends_only) const;
  size_t forget(BlockId block, std::vector<BlockId>* dropped);

  const size_t block_tokens_;
  std::vector<Entry> entries_;  // [block]
  std::vector<BlockId> roots_;  // children of no parent
  uint64_t serials_ = 0;
  uint64_t uses_ = 0;
  size_t idle_ = 0;
};

}  // namespace shoal::runtime
