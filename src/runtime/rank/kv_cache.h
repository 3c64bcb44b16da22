// KvCache: keys and values of all sessions on one rank, in pages from one pool.
//
// A block is one page of every layer and holds KvLayout::page_tokens positions; its pages lie side
// by side, so that a block used for the first time costs the system one huge page or two, not one
// for every layer. Sessions take blocks as they grow and give them back when they are truncated or
// closed. A block may have several holders: sessions that began with the same tokens, and the cache
// itself, which keeps blocks of closed sessions for prompts to come; it is free once the last has
// let go. Nobody writes into a block that somebody else holds: extend() then copies it first.
// Blocks are handed out in an order that depends on the calls only, so all ranks of a group, which
// make the same calls, always have the same room and the same block numbers. Thread rule: one
// thread at a time; kernels write into pages through spans handed out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/token.h"
#include "tensor/aligned_buffer.h"
#include "tensor/ops/kv_page.h"

namespace shoal::runtime {

// What a session begins with: the first `length` positions of blocks that somebody holds. All
// blocks but the last are used whole.
struct KvPrefix {
  std::span<const BlockId> blocks;
  size_t length = 0;
};

struct KvCacheOptions {
  std::vector<tensor::KvLayout> layers;  // all with the same page_tokens
  size_t positions = 0;                  // over all sessions, rounded up to whole blocks
  uint32_t sessions_max = 1;
};

class KvCache {
 public:
  // kNode when there is no memory.
  static Result<KvCache> create(KvCacheOptions options);

  // Sessions are numbered from 0 to sessions_max - 1; these are kRequest for a number outside, or
  // one that is open (closed) already.
  // open() shares the prefix's blocks; kRequest when they do not fit its length or are free.
  // close() leaves `kept`, blocks of the session in their order that are not kept yet, with the
  // cache until drop().
  Status open(uint32_t session, const KvPrefix& prefix = {});
  Status close(uint32_t session, std::span<const BlockId> kept = {});
  // kRequest, with nothing changed, unless all are kept and different.
  Status drop(std::span<const BlockId> blocks);
  // What open(), close() and drop() would say of their blocks.
  Status check_prefix(const KvPrefix& prefix) const;
  Status check_kept(uint32_t session, std::span<const BlockId> kept) const;
  Status check_drop(std::span<const BlockId> blocks) const;
  // Keeps the first `length` positions. kRequest when there are fewer.
  Status truncate(uint32_t session, size_t length);
  // Makes room for `tokens` more positions and counts them in. kRequest "context full", with
  // nothing changed, when there are too few blocks or the session would exceed `positions`.
  Status extend(uint32_t session, size_t tokens);

  bool is_open(uint32_t session) const {
    return session < sessions_.size() && sessions_[session].is_open;
  }
  // Of an open session:
  size_t length(uint32_t session) const { return sessions_[session].length; }
  // How many more positions extend() would grant.
  size_t room(uint32_t session) const;
  // Blocks that extend() would take, out of blocks_free(): for steps of several sessions.
  size_t blocks_needed(uint32_t session, size_t tokens) const {
    return blocks_for(length(session) + tokens) - sessions_[session].blocks.size() +
           (tokens > 0 && writes_into_shared(sessions_[session]) ? 1 : 0);
  }
  size_t blocks_free() const { return free_.size(); }
  size_t blocks_total() const { return blocks_total_; }
  size_t block_tokens() const { return page_tokens_; }
  // In order of position; of an open session.
  std::span<const BlockId> blocks(uint32_t session) const { return sessions_[session].blocks; }
  // The pages of one layer, in order of position.
  std::span<std::byte* const> pages(uint32_t session, size_t layer) const {
    return sessions_[session].pages[layer];
  }

  const tensor::KvLayout& layout(size_t layer) const { return options_.layers[layer]; }
  size_t positions() const { return options_.positions; }
  uint32_t sessions_max() const { return options_.sessions_max; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  struct Session {
    bool is_open = false;
    size_t length = 0;
    std::vector<BlockId> blocks;
    std::vector<std::vector<std::byte*>> pages;  // [layer][block]
  };
  explicit KvCache(KvCacheOptions options) : options_(std::move(options)) {}
  Status check_open(uint32_t session) const;
  size_t blocks_for(size_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  // The next position lies in a block that has another holder.
  bool writes_into_shared(const Session& session) const;
  BlockId take_block();
  void release(BlockId block);
  std::byte* page(BlockId block, size_t layer) const;
  void copy_last_block(Session* session);
  void append_block(Session* session, BlockId block);
  void give_back(Session* session, size_t blocks_left);

  KvCacheOptions options_;
  size_t page_tokens_ = 1;
  size_t blocks_total_ = 0;
  size_t block_bytes_ = 0;
  std::vector<size_t> layer_offsets_;  // of the layer's page in a block
  std::vector<BlockId> free_;          // a stack
  std::vector<uint32_t> holders_;      // [block] sessions, and the cache where it keeps the block
  std::vector<uint8_t> is_kept_;       // [block]
  std::vector<Session> sessions_;
  tensor::AlignedBuffer memory_;
};

}  // namespace shoal::runtime
