#include "runtime/serve/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace shoal::runtime {

size_t common_length(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(differs.first - a.begin());
}

PrefixIndex::PrefixIndex(size_t block_tokens, size_t blocks_total)
    : block_tokens_(block_tokens), entries_(blocks_total) {}

PrefixIndex::BestChild PrefixIndex::best_child(BlockId parent,
                                               std::span<const TokenId> tokens) const {
  BestChild best;
  for (const BlockId child : children_of(parent)) {
    const size_t common = common_length(entries_[child].tokens, tokens);
    if (common > best.common) best = {child, common};
  }
  return best;
}

PrefixIndex::Match PrefixIndex::find(std::span<const TokenId> tokens) const {
  Match match;
  BlockId parent = kRoot;
  while (match.tokens < tokens.size()) {
    const BestChild best = best_child(parent, tokens.subspan(match.tokens));
    const bool is_whole = best.common == block_tokens_;
    if (!is_whole && best.common < kPartMin) break;
    match.path.push_back({best.block, entries_[best.block].serial});
    match.tokens += best.common;
    if (!is_whole) break;
    parent = best.block;
  }
  return match;
}

void PrefixIndex::pin(const Ref& ref) {
  CHECK(is_alive(ref));
  Entry& entry = entries_[ref.block];
  if (is_idle(entry)) --idle_;
  ++entry.pins;
  entry.last_use = ++uses_;
}

void PrefixIndex::unpin(const Ref& ref) {
  if (!is_alive(ref)) return;
  Entry& entry = entries_[ref.block];
  CHECK(entry.pins > 0);
  --entry.pins;
  entry.last_use = ++uses_;
  if (is_idle(entry)) ++idle_;
}

std::optional<PrefixIndex::Insertion> PrefixIndex::insert(const std::optional<Ref>& parent,
                                                          std::span<const TokenId> tokens,
                                                          BlockId block) {
  CHECK(!tokens.empty() && tokens.size() <= block_tokens_ && block < entries_.size());
  if (parent.has_value() &&
      (!is_alive(*parent) || entries_[parent->block].tokens.size() < block_tokens_)) {
    return std::nullopt;
  }
  const BlockId at = parent.has_value() ? parent->block : kRoot;
  const BestChild best = best_child(at, tokens);
  if (best.common == tokens.size()) {
    return Insertion{{best.block, entries_[best.block].serial}, false};
  }
  if (entries_[block].serial != 0) return std::nullopt;
  // Parts of a block that the new one begins with are of no use any more: first to go.
  for (const BlockId child : children_of(at)) {
    Entry& part = entries_[child];
    if (part.tokens.size() == common_length(part.tokens, tokens)) part.last_use = 0;
  }
  Entry& entry = entries_[block];
  entry.serial = ++serials_;
  entry.parent = at;
  entry.tokens.assign(tokens.begin(), tokens.end());
  entry.pins = 1;
  entry.last_use = ++uses_;
  children_of(at).push_back(block);
  return Insertion{{block, entry.serial}, true};
}

std::vector<BlockId> PrefixIndex::keep(std::span<const BlockId> blocks) {
  std::vector<BlockId> kept;
  for (const BlockId block : blocks) {
    Entry& entry = entries_[block];
    if (entry.serial == 0 || entry.is_kept) continue;
    entry.is_kept = true;
    if (is_idle(entry)) ++idle_;
    kept.push_back(block);
  }
  return kept;
}

std::optional<BlockId> PrefixIndex::least_recently_used(bool ends_only) const {
  std::optional<BlockId> least;
  for (BlockId block = 0; block < entries_.size(); ++block) {
    const Entry& entry = entries_[block];
    if (!is_idle(entry) || (ends_only && !entry.children.empty())) continue;
    if (!least.has_value() || entry.last_use < entries_[*least].last_use) least = block;
  }
  return least;
}

// An idle entry may have pinned ones after it: of requests that computed the same tokens again, in
// a block of their own. They are forgotten with it, though their blocks stay with the requests.
size_t PrefixIndex::forget(BlockId block, std::vector<BlockId>* dropped) {
  std::vector<BlockId>& siblings = children_of(entries_[block].parent);
  siblings.erase(std::find(siblings.begin(), siblings.end(), block));
  size_t freed = 0;
  std::vector<BlockId> todo{block};
  while (!todo.empty()) {
    const BlockId next = todo.back();
    todo.pop_back();
    Entry& entry = entries_[next];
    if (is_idle(entry)) {
      ++freed;
      --idle_;
    }
    if (entry.is_kept) dropped->push_back(next);
    todo.insert(todo.end(), entry.children.begin(), entry.children.end());
    entry = Entry();
  }
  return freed;
}

std::vector<BlockId> PrefixIndex::evict(size_t count) {
  std::vector<BlockId> dropped;
  for (const bool ends_only : {true, false}) {
    while (count > 0) {
      const std::optional<BlockId> block = least_recently_used(ends_only);
      if (!block.has_value()) break;
      count -= std::min(count, forget(*block, &dropped));
    }
  }
  return dropped;
}

}  // namespace shoal::runtime
