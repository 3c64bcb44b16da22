#include "runtime/rank/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace shoal::runtime {

Result<KvCache> KvCache::create(KvCacheOptions options) {
  CHECK(!options.layers.empty() && options.positions > 0 && options.sessions_max > 0);
  KvCache cache(std::move(options));
  cache.page_tokens_ = static_cast<size_t>(cache.options_.layers.front().page_tokens);
  cache.blocks_total_ = cache.blocks_for(cache.options_.positions);
  size_t bytes = 0;
  for (const tensor::KvLayout& layout : cache.options_.layers) {
    CHECK(static_cast<size_t>(layout.page_tokens) == cache.page_tokens_);
    cache.layer_offsets_.push_back(bytes);
    bytes += cache.blocks_total_ * layout.page_bytes();
  }
  auto memory = tensor::AlignedBuffer::allocate(bytes);
  if (!memory.is_ok()) {
    return memory.status().with_context(
        fmt::format("the KV cache of {} positions", cache.options_.positions));
  }
  cache.memory_ = std::move(memory).value();
  cache.sessions_.resize(cache.options_.sessions_max);
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

Status KvCache::open(uint32_t session) {
  if (session >= sessions_.size() || sessions_[session].is_open) {
    return Status::request(fmt::format("session {} cannot be opened", session));
  }
  Session& opened = sessions_[session];
  opened.is_open = true;
  // Reserved now, so that a step allocates nothing.
  opened.blocks.reserve(blocks_total_);
  opened.pages.resize(options_.layers.size());
  for (std::vector<std::byte*>& pages : opened.pages) pages.reserve(blocks_total_);
  return Status::ok();
}

void KvCache::give_back(Session* session, size_t blocks_kept) {
  while (session->blocks.size() > blocks_kept) {
    free_.push_back(session->blocks.back());
    session->blocks.pop_back();
  }
  for (std::vector<std::byte*>& pages : session->pages) {
    pages.resize(std::min(pages.size(), blocks_kept));
  }
}

Status KvCache::close(uint32_t session) {
  RETURN_IF_ERROR(check_open(session));
  give_back(&sessions_[session], 0);
  sessions_[session] = Session();
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

size_t KvCache::room(uint32_t session) const {
  const Session& of = sessions_[session];
  const size_t by_blocks = (of.blocks.size() + free_.size()) * page_tokens_ - of.length;
  return std::min(by_blocks, options_.positions - of.length);
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
  grown.length += tokens;
  while (grown.blocks.size() < blocks_for(grown.length)) {
    const uint32_t block = free_.back();
    free_.pop_back();
    grown.blocks.push_back(block);
    for (size_t layer = 0; layer < grown.pages.size(); ++layer) {
      const size_t offset = layer_offsets_[layer] + block * options_.layers[layer].page_bytes();
      grown.pages[layer].push_back(memory_.data() + offset);
    }
  }
  return Status::ok();
}

}  // namespace shoal::runtime
