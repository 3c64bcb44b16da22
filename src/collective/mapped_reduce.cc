#include "collective/mapped_reduce.h"

#include <cstring>

#include "base/check.h"

namespace shoal::collective {
namespace {

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// A part holds a chunk for each peer, then one of results.
size_t chunk_elements(size_t part_bytes, size_t ranks) {
  return part_bytes / sizeof(float) / ranks / kShardGrain * kShardGrain;
}

// Where in the part of `from` its contribution to the shard of `to` lies.
size_t place_for(const Shards& shards, size_t from, size_t to) {
  return (to < from ? to : to - 1) * shards.chunk_elements;
}

size_t place_of_results(const Shards& shards) { return (shards.ranks - 1) * shards.chunk_elements; }

}  // namespace

std::span<const float> MappedReduce::part_of(size_t peer) const {
  return floats(place_.memory.part_of(static_cast<int>(peer)));
}

void MappedReduce::publish(const Reduction& reduction) {
  place_.writer.flush();
  place_.memory.publish({.tag = wait_.policy.tag, .bytes = reduction.data.size_bytes()});
}

Status MappedReduce::one_shot(const Reduction& reduction) {
  place_.writer.copy(floats(place_.memory.own_part()), reduction.data);
  publish(reduction);
  RETURN_IF_ERROR(meet());
  for (size_t peer = 0; peer < ranks(); ++peer) {
    place_.parts[peer] = peer == place_.rank ? reduction.data.data() : part_of(peer).data();
  }
  reduction.sum_range({.begin = 0, .count = reduction.data.size()}, place_.parts);
  return Status::ok();
}

// Reduce-scatter and all-gather as one pipeline of steps. In step t a rank writes its contribution
// to chunk t of every peer's shard and the finished chunk t - 1 of its own, which it sums from what
// the peers wrote in step t - 1; meanwhile it takes over the peers' finished chunks t - 2. So it
// waits for the step before the one that it is about to publish, and a rank that is late by less
// than a step keeps nobody waiting.
Status MappedReduce::scatter_and_gather(const Reduction& reduction) {
  const Shards shards{.elements = reduction.data.size(),
                      .ranks = ranks(),
                      .chunk_elements = chunk_elements(place_.memory.part_bytes(), ranks())};
  CHECK(shards.chunk_elements > 0);
  const size_t chunks = shards.chunk_count_max();
  for (size_t t = 0; t <= chunks + 1; ++t) {
    if (t < chunks) scatter(reduction, shards, t);
    if (t > 0) RETURN_IF_ERROR(meet());
    if (t > 0 && t <= chunks) reduce(reduction, shards, t - 1);
    if (t > 1) gather(reduction, shards, t - 2);
    if (t <= chunks) publish(reduction);
  }
  return Status::ok();
}

void MappedReduce::scatter(const Reduction& reduction, const Shards& shards, size_t number) {
  const std::span<float> part = floats(place_.memory.own_part());
  for (size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == place_.rank) continue;
    place_.writer.copy(part.subspan(place_for(shards, place_.rank, peer)),
                       shards.chunk(peer, number).of(reduction.data));
  }
}

void MappedReduce::reduce(const Reduction& reduction, const Shards& shards, size_t number) {
  const Shards::Range chunk = shards.chunk(place_.rank, number);
  if (chunk.count == 0) return;
  for (size_t peer = 0; peer < ranks(); ++peer) {
    place_.parts[peer] = peer == place_.rank
                             ? chunk.of(reduction.data).data()
                             : part_of(peer).subspan(place_for(shards, peer, place_.rank)).data();
  }
  reduction.sum_range(chunk, place_.parts);
  place_.writer.copy(floats(place_.memory.own_part()).subspan(place_of_results(shards)),
                     chunk.of(reduction.data));
}

void MappedReduce::gather(const Reduction& reduction, const Shards& shards, size_t number) {
  for (size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == place_.rank) continue;
    const Shards::Range chunk = shards.chunk(peer, number);
    if (chunk.count == 0) continue;
    const std::span<float> here = chunk.of(reduction.data);
    std::memcpy(here.data(), part_of(peer).data() + place_of_results(shards), here.size_bytes());
  }
}

}  // namespace shoal::collective
