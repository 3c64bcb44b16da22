// Shards: data cut into one shard per rank, and each shard into chunks, for reduce-scatter and
// all-gather.
//
// Thread rule: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace shoal::collective {

// Shards and chunks begin at multiples of this many elements, one cache line.
inline constexpr size_t kShardGrain = 16;

struct Shards {
  size_t elements = 0;
  size_t ranks = 1;
  size_t chunk_elements = kShardGrain;

  struct Range {
    size_t begin = 0;
    size_t count = 0;
    template <typename T>
    std::span<T> of(std::span<T> data) const {
      return data.subspan(begin, count);
    }
  };
  Range shard(size_t index) const {
    const size_t grains = (elements + kShardGrain - 1) / kShardGrain;
    const size_t begin = std::min(grains * index / ranks * kShardGrain, elements);
    const size_t end = std::min(grains * (index + 1) / ranks * kShardGrain, elements);
    return {.begin = begin, .count = end - begin};
  }
  size_t chunk_count(size_t index) const {
    return (shard(index).count + chunk_elements - 1) / chunk_elements;
  }
  // Of the largest shard.
  size_t chunk_count_max() const {
    size_t most = 0;
    for (size_t index = 0; index < ranks; ++index) most = std::max(most, chunk_count(index));
    return most;
  }
  // Empty from chunk_count(index) on.
  Range chunk(size_t index, size_t number) const {
    const Range whole = shard(index);
    const size_t begin = std::min(number * chunk_elements, whole.count);
    return {.begin = whole.begin + begin, .count = std::min(chunk_elements, whole.count - begin)};
  }
};

}  // namespace shoal::collective
