#include "collective/group.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "collective/mapped_reduce.h"

namespace shoal::collective {
namespace {

fabric::SlotNote whole_message(size_t bytes, uint32_t tag) {
  return {
      .bytes = static_cast<uint32_t>(bytes), .is_first = true, .message_left = bytes, .tag = tag};
}

fabric::MessageExpectation expected_message(size_t bytes, uint32_t tag) {
  return {.is_first = true, .left = bytes, .left_max = bytes, .tag = tag};
}

}  // namespace

Group::Group(fabric::Fabric& fabric, GroupOptions options) : fabric_(fabric), options_(options) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    PeerState state;
    state.endpoint = &fabric_.endpoint(peer);
    peers_.push_back(state);
  }
  transfers_.resize(peers_.size());
  sum_parts_.resize(static_cast<size_t>(size()));
}

// The tag of an operation: its kind, and the low bits of its number.
Group::Operation Group::begin(Kind kind, size_t bytes, const Deadline& deadline) const {
  constexpr std::string_view kNames[] = {"",          "all_reduce", "all_gather",
                                         "broadcast", "gather",     "barrier"};
  const auto number = static_cast<uint32_t>(kind);
  return {.name = kNames[number],
          .bytes = bytes,
          .deadline = deadline,
          .tag = (number << 24) | (sequence_ & 0xffffffU)};
}

fabric::WaitPolicy Group::wait_policy(const Operation& operation) const {
  return {.spin = fabric_.spin(), .deadline = operation.deadline, .tag = operation.tag};
}

// Counts and times an operation, and names it in its failure.
template <typename Body>
Status Group::run(const Operation& operation, const Body& body) {
  const Nanoseconds begin = fabric_.clock().now();
  Status status = body();
  // Nothing has happened: the same operation will be tried again.
  if (status.code() == StatusCode::kBusy) return status;
  ++sequence_;
  counters_.seconds += std::chrono::duration<double>(fabric_.clock().now() - begin).count();
  ++counters_.operations;
  counters_.bytes += operation.bytes;
  if (status.is_ok()) return status;
  return status.with_context(std::string(operation.name) + " of " +
                             std::to_string(operation.bytes) + " bytes");
}

// Makes passes over the peers until nobody is waited for.
template <typename MakePass>
Status Group::complete(const Operation& operation, const MakePass& make_pass) {
  fabric::Spinner spinner(fabric_.spin());
  while (true) {
    Pass pass;
    RETURN_IF_ERROR(make_pass(pass));
    if (pass.waiting == nullptr) return Status::ok();
    if (pass.has_moved) {
      spinner.reset();
      continue;
    }
    if (spinner.spin_once()) continue;
    if (operation.deadline.expired()) return fail_at_deadline(operation);
    fabric::sleep_on(*pass.waiting, {.is_only_one = pass.waiting_count == 1}, operation.deadline);
  }
}

// Breaks the group, naming everyone who is still waited for; the culprit is the first that is due.
Status Group::fail_at_deadline(const Operation& operation) {
  const auto is_due = [](const PeerState& peer) { return peer.is_waited_for && peer.is_due; };
  auto culprit = std::ranges::find_if(peers_, is_due);
  if (culprit == peers_.end()) culprit = std::ranges::find_if(peers_, &PeerState::is_waited_for);
  CHECK(culprit != peers_.end());
  std::string others;
  for (const PeerState& peer : peers_) {
    if (!peer.is_waited_for || &peer == &*culprit) continue;
    others += (others.empty() ? "; also waiting for " : ", ") + peer.endpoint->peer_text();
  }
  return culprit->endpoint->fail("did not finish " + std::string(operation.name) + " of " +
                                 std::to_string(operation.bytes) + " bytes before the deadline" +
                                 others);
}

void Group::reset_peers() {
  for (PeerState& peer : peers_) {
    peer.is_sent = false;
    peer.is_received = false;
    peer.is_held = false;
    peer.is_waited_for = false;
    peer.is_due = false;
    peer.chunks_sent = 0;
    peer.chunks_received = 0;
  }
}

Status Group::all_reduce(std::span<float> data, const Deadline& deadline) {
  const Operation operation = begin(Kind::kAllReduce, data.size_bytes(), deadline);
  return run(operation, [&]() -> Status {
    if (peers_.empty() || data.empty()) return Status::ok();
    return reduce({.data = data, .sum = options_.sum}, operation);
  });
}

Status Group::reduce(const Reduction& reduction, const Operation& operation) {
  if (options_.uses_mapped_memory && fabric_.mapped() != nullptr) {
    return mapped_reduce(reduction, operation);
  }
  const size_t slot_bytes = peers_.front().endpoint->info().slots.payload_bytes;
  return operation.bytes <= std::min(options_.one_shot_bytes_max, slot_bytes)
             ? one_shot(reduction, operation)
             : scatter_and_gather(reduction, operation);
}

Status Group::mapped_reduce(const Reduction& reduction, const Operation& operation) {
  if (fabric_.health().failed()) return fabric_.health().failure();
  fabric::MappedMemory& memory = *fabric_.mapped();
  const MappedReduce::Place place{.memory = memory,
                                  .rank = static_cast<size_t>(rank()),
                                  .parts = sum_parts_,
                                  .writer = shared_writer_};
  const fabric::WaitPolicy policy = wait_policy(operation);
  MappedReduce mapped(place, {.operation = operation.name, .policy = policy});
  const size_t bytes_max = fabric_.spin().is_crowded ? options_.crowded_one_shot_bytes_max
                                                     : options_.mapped_one_shot_bytes_max;
  return operation.bytes <= std::min(bytes_max, memory.part_bytes())
             ? mapped.one_shot(reduction)
             : mapped.scatter_and_gather(reduction);
}

// Everybody sends everything to everybody, then sums straight out of the received slots.
Status Group::one_shot(const Reduction& reduction, const Operation& operation) {
  reset_peers();
  const size_t bytes = operation.bytes;
  RETURN_IF_ERROR(complete(operation, [&](Pass& pass) -> Status {
    for (PeerState& peer : peers_) {
      if (peer.chunks_sent == 0) {
        ASSIGN_OR_RETURN(const bool is_posted,
                         peer.endpoint->try_send(std::as_bytes(reduction.data),
                                                 whole_message(bytes, operation.tag)));
        peer.chunks_sent = is_posted ? 1 : 0;
        pass.has_moved = pass.has_moved || is_posted;
      } else if (!peer.is_sent) {
        ASSIGN_OR_RETURN(peer.is_sent, peer.endpoint->poll_sends());
        pass.has_moved = pass.has_moved || peer.is_sent;
      }
      if (!peer.is_held) RETURN_IF_ERROR(receive_one_shot(peer, operation, pass));
      peer.is_waited_for = !peer.is_sent || !peer.is_held;
      peer.is_due = !peer.is_held;
      pass.note(peer);
    }
    return Status::ok();
  }));
  for (const PeerState& peer : peers_) {
    sum_parts_[static_cast<size_t>(peer.endpoint->info().peer_rank)] =
        reinterpret_cast<const float*>(peer.held.payload.data());
  }
  sum_parts_[static_cast<size_t>(rank())] = reduction.data.data();
  reduction.sum_range({.begin = 0, .count = reduction.data.size()}, sum_parts_);
  for (PeerState& peer : peers_) RETURN_IF_ERROR(peer.endpoint->release_receive(peer.held));
  return Status::ok();
}

Status Group::receive_one_shot(PeerState& peer, const Operation& operation, Pass& pass) {
  ASSIGN_OR_RETURN(const auto slot, peer.endpoint->poll_receive());
  if (!slot.has_value()) return Status::ok();
  RETURN_IF_ERROR(fabric::check_slot_of_message(*peer.endpoint, *slot,
                                                expected_message(operation.bytes, operation.tag)));
  peer.held = *slot;
  peer.is_held = true;
  pass.has_moved = true;
  return Status::ok();
}

// A reduce-scatter and all-gather under way; chunks are of one slot.
struct Group::Scatter {
  const Reduction& reduction;
  Shards shards;
  size_t own = 0;
  size_t reduced = 0;  // chunks of the own shard that are summed
  uint32_t tag = 0;
};

// Reduce-scatter and all-gather as one pipeline. On each link, a rank sends the chunks of the
// peer's shard, then the chunks of its own shard as they get summed; it receives the same the other
// way round. A chunk is summed in rank order once every peer's is here, so the bits are those of
// one_shot(). Sends depend on credits only, and the credits for chunk c depend on chunks before c
// only: nobody waits in a circle.
Status Group::scatter_and_gather(const Reduction& reduction, const Operation& operation) {
  reset_peers();
  const size_t slot_bytes = peers_.front().endpoint->info().slots.payload_bytes;
  Scatter scatter{.reduction = reduction,
                  .shards = {.elements = reduction.data.size(),
                             .ranks = static_cast<size_t>(size()),
                             .chunk_elements = slot_bytes / sizeof(float)},
                  .own = static_cast<size_t>(rank()),
                  .reduced = 0,
                  .tag = operation.tag};
  return complete(operation, [&](Pass& pass) -> Status {
    for (PeerState& peer : peers_) {
      if (!peer.is_sent) RETURN_IF_ERROR(send_chunks(peer, scatter, pass));
      if (!peer.is_received) RETURN_IF_ERROR(receive_chunks(peer, scatter, pass));
      peer.is_waited_for = !peer.is_sent || !peer.is_received;
      // The chunks of our shard come without anybody's help; those of its own need all of us.
      peer.is_due = !peer.is_held && scatter.reduced < scatter.shards.chunk_count(scatter.own);
      pass.note(peer);
    }
    return reduce_chunk(scatter, pass);
  });
}

Status Group::send_chunks(PeerState& peer, Scatter& scatter, Pass& pass) {
  const auto to = static_cast<size_t>(peer.endpoint->info().peer_rank);
  const size_t scattered = scatter.shards.chunk_count(to);
  const size_t total = scattered + scatter.shards.chunk_count(scatter.own);
  while (peer.chunks_sent < total) {
    const size_t number = peer.chunks_sent;
    const bool is_own = number >= scattered;
    if (is_own && number - scattered >= scatter.reduced) break;
    const std::span<const float> chunk =
        (is_own ? scatter.shards.chunk(scatter.own, number - scattered)
                : scatter.shards.chunk(to, number))
            .of(scatter.reduction.data);
    ASSIGN_OR_RETURN(const bool is_posted,
                     peer.endpoint->try_send(std::as_bytes(chunk),
                                             whole_message(chunk.size_bytes(), scatter.tag)));
    if (!is_posted) return Status::ok();
    ++peer.chunks_sent;
    pass.has_moved = true;
  }
  ASSIGN_OR_RETURN(const bool is_flushed, peer.endpoint->poll_sends());
  peer.is_sent = is_flushed && peer.chunks_sent == total;
  return Status::ok();
}

Status Group::receive_chunks(PeerState& peer, Scatter& scatter, Pass& pass) {
  const auto from = static_cast<size_t>(peer.endpoint->info().peer_rank);
  const size_t gathered = scatter.shards.chunk_count(from);
  while (true) {
    // Chunks of the own shard come first, one at a time: it is held until all peers' are here.
    const bool is_scatter = scatter.reduced < scatter.shards.chunk_count(scatter.own);
    if (is_scatter && peer.is_held) return Status::ok();
    if (!is_scatter && peer.chunks_received == gathered) break;
    ASSIGN_OR_RETURN(const auto slot, peer.endpoint->poll_receive());
    if (!slot.has_value()) return Status::ok();
    const std::span<float> chunk = (is_scatter ? scatter.shards.chunk(scatter.own, scatter.reduced)
                                               : scatter.shards.chunk(from, peer.chunks_received))
                                       .of(scatter.reduction.data);
    const size_t bytes = chunk.size_bytes();
    RETURN_IF_ERROR(
        fabric::check_slot_of_message(*peer.endpoint, *slot, expected_message(bytes, scatter.tag)));
    pass.has_moved = true;
    if (is_scatter) {
      peer.held = *slot;
      peer.is_held = true;
      return Status::ok();
    }
    std::memcpy(chunk.data(), slot->payload.data(), bytes);
    RETURN_IF_ERROR(peer.endpoint->release_receive(*slot));
    ++peer.chunks_received;
  }
  peer.is_received = true;
  return Status::ok();
}

Status Group::reduce_chunk(Scatter& scatter, Pass& pass) {
  if (scatter.reduced == scatter.shards.chunk_count(scatter.own)) return Status::ok();
  for (const PeerState& peer : peers_) {
    if (!peer.is_held) return Status::ok();
    sum_parts_[static_cast<size_t>(peer.endpoint->info().peer_rank)] =
        reinterpret_cast<const float*>(peer.held.payload.data());
  }
  const Shards::Range chunk = scatter.shards.chunk(scatter.own, scatter.reduced);
  sum_parts_[scatter.own] = chunk.of(scatter.reduction.data).data();
  scatter.reduction.sum_range(chunk, sum_parts_);
  for (PeerState& peer : peers_) {
    RETURN_IF_ERROR(peer.endpoint->release_receive(peer.held));
    peer.is_held = false;
  }
  ++scatter.reduced;
  pass.has_moved = true;
  return Status::ok();
}

// Runs transfers_ to their end.
Status Group::exchange(const Operation& operation) {
  return fabric::exchange(transfers_, operation.name, wait_policy(operation));
}

Status Group::all_gather(const RankParts& parts, const Deadline& deadline) {
  CHECK(parts.bytes_by_rank.size() == static_cast<size_t>(size()));
  const Operation operation = begin(Kind::kAllGather, parts.all.size(), deadline);
  return run(operation, [&] {
    size_t begin = 0;
    size_t next = 0;
    std::span<const std::byte> mine;
    for (int part = 0; part < size(); ++part) {
      const size_t bytes = parts.bytes_by_rank[static_cast<size_t>(part)];
      const std::span<std::byte> here = parts.all.subspan(begin, bytes);
      begin += bytes;
      if (part == rank()) {
        mine = here;
      } else {
        transfers_[next] = {.endpoint = peers_[next].endpoint, .send = {}, .receive = here};
        ++next;
      }
    }
    CHECK(begin == parts.all.size());
    for (fabric::Transfer& transfer : transfers_) transfer.send = mine;
    return exchange(operation);
  });
}

Status Group::broadcast(std::span<std::byte> data, int root, const Deadline& deadline) {
  CHECK(root >= 0 && root < size());
  const Operation operation = begin(Kind::kBroadcast, data.size(), deadline);
  return run(operation, [&] {
    if (rank() != root) {
      return fabric::receive_message_into(fabric_.endpoint(root), data, wait_policy(operation));
    }
    for (size_t i = 0; i < peers_.size(); ++i) {
      transfers_[i] = {.endpoint = peers_[i].endpoint, .send = data, .receive = {}};
    }
    return exchange(operation);
  });
}

Status Group::broadcast_message(std::vector<std::byte>& message, int root,
                                const Deadline& deadline) {
  CHECK(root >= 0 && root < size());
  if (rank() == root) {
    CHECK(message.size() <= kMessageBytesMax);
    return broadcast(message, root, deadline);
  }
  const Operation operation = begin(Kind::kBroadcast, 0, deadline);
  return run(operation, [&]() -> Status {
    ASSIGN_OR_RETURN(message, fabric::receive_message(fabric_.endpoint(root), kMessageBytesMax,
                                                      wait_policy(operation)));
    counters_.bytes += message.size();
    return Status::ok();
  });
}

Status Group::gather(const Gather& gather, const Deadline& deadline) {
  CHECK(gather.root >= 0 && gather.root < size());
  const bool is_root = rank() == gather.root;
  const size_t total = is_root ? gather.parts.all.size() : gather.mine.size();
  const Operation operation = begin(Kind::kGather, total, deadline);
  return run(operation, [&] {
    if (!is_root) {
      return fabric::send_message(fabric_.endpoint(gather.root), gather.mine,
                                  wait_policy(operation));
    }
    CHECK(gather.parts.bytes_by_rank.size() == static_cast<size_t>(size()));
    size_t begin = 0;
    size_t next = 0;
    for (int part = 0; part < size(); ++part) {
      const size_t bytes = gather.parts.bytes_by_rank[static_cast<size_t>(part)];
      const std::span<std::byte> here = gather.parts.all.subspan(begin, bytes);
      begin += bytes;
      if (part == rank()) {
        CHECK(here.size() == gather.mine.size());
        if (!here.empty() && here.data() != gather.mine.data()) {
          std::memcpy(here.data(), gather.mine.data(), here.size());
        }
      } else {
        transfers_[next] = {.endpoint = peers_[next].endpoint, .send = {}, .receive = here};
        ++next;
      }
    }
    CHECK(begin == gather.parts.all.size());
    return exchange(operation);
  });
}

Status Group::barrier(const Deadline& deadline) {
  const Operation operation = begin(Kind::kBarrier, 0, deadline);
  return run(operation, [&] {
    for (size_t i = 0; i < peers_.size(); ++i) {
      transfers_[i] = {.endpoint = peers_[i].endpoint,
                       .send = std::span<const std::byte>(),
                       .receive = std::span<std::byte>()};
    }
    return exchange(operation);
  });
}

}  // namespace shoal::collective
