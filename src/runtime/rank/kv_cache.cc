#include "runtime/rank/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace shoal::runtime {

Result<KvCache> KvCache::create(KvCacheOptions options) {
  CHECK(!options.layers.empty() && options.positions > 0 && options.sessions_max > 0);
  KvCache cache(std::move(options));
  cache.page_tokens_ = static_cast<size_t>(cache.options_.layers.front().page_tokens);
  cache.blocks_total_ = cache.blocks_for(cache.options_.positions);
  for (const tensor::KvLayout& layout : cache.options_.layers) {
    CHECK(static_cast<size_t>(layout.page_tokens) == cache.page_tokens_);
    cache.layer_offsets_.push_back(cache.block_bytes_);
    cache.block_bytes_ += layout.page_bytes();
  }
  auto memory = tensor::AlignedBuffer::allocate(cache.blocks_total_ * cache.block_bytes_);
  if (!memory.is_ok()) {
    return memory.status().with_context(
        fmt::format("the KV cache of {} positions", cache.options_.positions));
  }
  cache.memory_ = std::move(memory).value();
  cache.sessions_.resize(cache.options_.sessions_max);
  cache.holders_.resize(cache.blocks_total_);
  cache.is_kept_.resize(cache.blocks_total_);
  cache.free_.reserve(cache.blocks_total_);
  for (size_t block = cache.blocks_total_; block > 0; --block) {
    cache.free_.push_back(static_cast<uint32_t>(block - 1));
  }
  return cache;
}

Status KvCache::check_open(uint32_t session) const {
  if (is_open(session)) return Status::ok();
  return Status::request(fmt::format("session {} is not open", session));
}

Status KvCache::check_prefix(const KvPrefix& prefix) const {
  if (prefix.length > options_.positions || prefix.blocks.size() != blocks_for(prefix.length)) {
    return Status::request(
        fmt::format("{} blocks for {} positions", prefix.blocks.size(), prefix.length));
  }
  for (const BlockId block : prefix.blocks) {
    if (block >= blocks_total_ || holders_[block] == 0) {
      return Status::request(fmt::format("block {} holds nothing to share", block));
    }
  }
  return Status::ok();
}

Status KvCache::open(uint32_t session, const KvPrefix& prefix) {
  if (session >= sessions_.size() || sessions_[session].is_open) {
    return Status::request(fmt::format("session {} cannot be opened", session));
  }
  RETURN_IF_ERROR(check_prefix(prefix));
  Session& opened = sessions_[session];
  opened.is_open = true;
  opened.length = prefix.length;
  // Reserved now, so that a step allocates nothing.
  opened.blocks.reserve(blocks_total_);
  opened.pages.resize(options_.layers.size());
  for (std::vector<std::byte*>& pages : opened.pages) pages.reserve(blocks_total_);
  for (const BlockId block : prefix.blocks) {
    ++holders_[block];
    append_block(&opened, block);
  }
  return Status::ok();
}

BlockId KvCache::take_block() {
  const BlockId block = free_.back();
  free_.pop_back();
  holders_[block] = 1;
  return block;
}

void KvCache::release(BlockId block) {
  CHECK(holders_[block] > 0);
  if (--holders_[block] == 0) free_.push_back(block);
}

std::byte* KvCache::page(BlockId block, size_t layer) const {
  return memory_.data() + block * block_bytes_ + layer_offsets_[layer];
}

void KvCache::append_block(Session* session, BlockId block) {
  session->blocks.push_back(block);
  for (size_t layer = 0; layer < session->pages.size(); ++layer) {
    session->pages[layer].push_back(page(block, layer));
  }
}

void KvCache::give_back(Session* session, size_t blocks_left) {
  while (session->blocks.size() > blocks_left) {
    release(session->blocks.back());
    session->blocks.pop_back();
  }
  for (std::vector<std::byte*>& pages : session->pages) {
    pages.resize(std::min(pages.size(), blocks_left));
  }
}

Status KvCache::check_kept(uint32_t session, std::span<const BlockId> kept) const {
  RETURN_IF_ERROR(check_open(session));
  const std::vector<BlockId>& held = sessions_[session].blocks;
  auto at = held.begin();
  for (const BlockId block : kept) {
    at = std::find(at, held.end(), block);
    if (at == held.end() || is_kept_[block] != 0) {
      return Status::request(fmt::format("block {} cannot be kept", block));
    }
    ++at;
  }
  return Status::ok();
}

Status KvCache::close(uint32_t session, std::span<const BlockId> kept) {
  RETURN_IF_ERROR(check_kept(session, kept));
  for (const BlockId block : kept) {
    is_kept_[block] = 1;
    ++holders_[block];
  }
  give_back(&sessions_[session], 0);
  sessions_[session] = Session();
  return Status::ok();
}

Status KvCache::check_drop(std::span<const BlockId> blocks) const {
  std::vector<BlockId> sorted(blocks.begin(), blocks.end());
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  const bool kept = std::all_of(sorted.begin(), sorted.end(), [&](BlockId block) {
    return block < blocks_total_ && is_kept_[block] != 0;
  });
  if (kept && !twice) return Status::ok();
  return Status::request("a block to drop is not kept, or comes twice");
}

Status KvCache::drop(std::span<const BlockId> blocks) {
  RETURN_IF_ERROR(check_drop(blocks));
  for (const BlockId block : blocks) {
    is_kept_[block] = 0;
    release(block);
  }
  return Status::ok();
}

Status KvCache::truncate(uint32_t session, size_t length) {
  RETURN_IF_ERROR(check_open(session));
  Session& cut = sessions_[session];
  if (length > cut.length) {
    return Status::request(fmt::format("session {} holds {} tokens: cannot keep {} of them",
                                       session, cut.length, length));
  }
  cut.length = length;
  give_back(&cut, blocks_for(length));
  return Status::ok();
}

bool KvCache::writes_into_shared(const Session& session) const {
  return session.length % page_tokens_ != 0 && holders_[session.blocks.back()] > 1;
}

size_t KvCache::room(uint32_t session) const {
  const Session& of = sessions_[session];
  size_t free = free_.size();
  if (writes_into_shared(of)) {
    if (free == 0) return 0;
    --free;
  }
  const size_t by_blocks = (of.blocks.size() + free) * page_tokens_ - of.length;
  return std::min(by_blocks, options_.positions - of.length);
}

void KvCache::copy_last_block(Session* session) {
  const BlockId shared = session->blocks.back();
  const BlockId own = take_block();
  std::memcpy(page(own, 0), page(shared, 0), block_bytes_);
  for (size_t layer = 0; layer < session->pages.size(); ++layer) {
    session->pages[layer].back() = page(own, layer);
  }
  session->blocks.back() = own;
  release(shared);
}

Status KvCache::extend(uint32_t session, size_t tokens) {
  RETURN_IF_ERROR(check_open(session));
  Session& grown = sessions_[session];
  if (tokens > room(session)) {
    return Status::request(fmt::format(
        "context full: the session holds {} tokens and has room for {} more, not for {}; the "
        "context is {} tokens over all sessions",
        grown.length, room(session), tokens, options_.positions));
  }
  if (tokens > 0 && writes_into_shared(grown)) copy_last_block(&grown);
  grown.length += tokens;
  while (grown.blocks.size() < blocks_for(grown.length)) append_block(&grown, take_block());
  return Status::ok();
}

}  // namespace shoal::runtime
