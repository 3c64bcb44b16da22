// KvCache: keys and values of all sessions on one rank, in pages from one pool.
//
// A block is one page of every layer and holds KvLayout::page_tokens positions of one session.
// Sessions take blocks as they grow and give them back when they are truncated or closed. Blocks
// are handed out in an order that depends on the calls only, so all ranks of a group, which make
// the same calls, always have the same room.
// Thread rule: one thread at a time; kernels write into pages through spans handed out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/aligned_buffer.h"
#include "tensor/ops/kv_page.h"

namespace shoal::runtime {

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
  Status open(uint32_t session);
  Status close(uint32_t session);
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
    return blocks_for(length(session) + tokens) - sessions_[session].blocks.size();
  }
  size_t blocks_free() const { return free_.size(); }
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
    std::vector<uint32_t> blocks;
    std::vector<std::vector<std::byte*>> pages;  // [layer][block]
  };
  explicit KvCache(KvCacheOptions options) : options_(std::move(options)) {}
  Status check_open(uint32_t session) const;
  size_t blocks_for(size_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  void give_back(Session* session, size_t blocks_kept);

  KvCacheOptions options_;
  size_t page_tokens_ = 1;
  size_t blocks_total_ = 0;
  std::vector<size_t> layer_offsets_;  // of the layer's first page in memory_
  std::vector<uint32_t> free_;         // a stack
  std::vector<Session> sessions_;
  tensor::AlignedBuffer memory_;
};

}  // namespace shoal::runtime
