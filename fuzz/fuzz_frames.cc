// Feeds foreign bytes to everything that reads a link after the handshake: slots over a stream,
// slots and indices in shared memory, liveness frames, the group's table, a launcher's words.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/log.h"
#include "fabric/link/join_info.h"
#include "fabric/link/liveness.h"
#include "fabric/link/stream.h"
#include "fabric/message.h"
#include "fabric/shm/shm_endpoint.h"
#include "fabric/tcp/tcp_endpoint.h"
#include "fabric/tcp/tcp_group.h"

namespace {

using namespace shoal::fabric;  // NOLINT(google-build-using-namespace)
using Bytes = std::span<const std::byte>;

constexpr SlotClass kSlots{.payload_bytes = 64, .count = 2};

EndpointInfo make_info() {
  return {.link = "fuzz",
          .self_rank = 0,
          .peer_rank = 1,
          .peer_name = "fuzz",
          .epoch = 1,
          .slots = kSlots};
}

// Takes what has come, as a message of any size.
void take_messages(Endpoint& endpoint) {
  for (int round = 0; round < 8; ++round) {
    IncomingMessage message(endpoint, 4096, 0);
    const auto is_complete = message.progress();
    if (!is_complete.is_ok() || !*is_complete) return;
  }
}

void feed_stream(Bytes bytes) {
  auto pair = shoal::fabric::make_socket_pair();
  if (!pair.is_ok()) return;
  GroupHealth health(0, {"a", "b"});
  auto endpoint = TcpEndpoint::create(make_info(), std::move(pair->first), health);
  if (!endpoint.is_ok()) return;
  while (!bytes.empty() && !health.failed()) {
    const Bytes piece = bytes.first(std::min<size_t>(bytes.size(), 150));
    if (send(pair->second.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT) <= 0) {
      break;
    }
    bytes = bytes.subspan(piece.size());
    take_messages(**endpoint);
  }
  pair->second.reset();
  take_messages(**endpoint);
}

// The input is written over the controls and both rings, word by word.
void feed_memory(Bytes bytes) {
  const auto fd = ShmSegment::create(kSlots);
  if (!fd.is_ok()) return;
  auto foreign = ShmSegment::map(fd->get(), kSlots);
  auto own = ShmSegment::map(fd->get(), kSlots);
  if (!foreign.is_ok() || !own.is_ok()) return;
  GroupHealth health(0, {"a", "b"});
  ShmEndpoint endpoint(make_info(), std::move(*own), health);
  shoal::ByteReader reader(bytes);
  for (int round = 0; round < 4 && reader.left() > 0; ++round) {
    ShmSlotHeader& header = (*foreign)->header(1, static_cast<uint32_t>(round) % kSlots.count);
    const auto word = [&] {
      const auto value = reader.read<uint8_t>();
      return value.is_ok() ? *value : uint8_t{0};
    };
    header.magic = word() < 200 ? kSlotMagic : word();
    header.epoch = word() < 200 ? 1U : word();
    header.bytes = word();
    header.message_left = word();
    header.flags = word() % 5;
    header.sequence = word() < 200 ? static_cast<uint64_t>(round) + 1 : word();
    (*foreign)->controls().released[0].released = word() % 4;
    (*foreign)->controls().bells[0].wants = word();
    take_messages(endpoint);
    if (const auto slot = endpoint.try_acquire_send(); slot.is_ok() && slot->has_value()) {
      (void)endpoint.post_send(**slot, {}).is_ok();
    }
  }
}

void feed_liveness(Bytes bytes) {
  LivenessParser parser;
  while (!bytes.empty()) {
    const size_t count = std::min({bytes.size(), parser.room(), size_t{37}});
    parser.append(bytes.first(count));
    bytes = bytes.subspan(count);
    while (true) {
      const auto frame = parser.next();
      if (!frame.is_ok()) return;
      if (!frame->has_value()) break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool is_quiet = [] {
    spdlog::set_level(spdlog::level::off);
    return true;
  }();
  (void)is_quiet;
  const Bytes bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  const Bytes rest = bytes.subspan(1);
  switch (static_cast<uint8_t>(bytes[0]) % 5) {
    case 0:
      feed_stream(rest);
      break;
    case 1:
      feed_memory(rest);
      break;
    case 2:
      feed_liveness(rest);
      break;
    case 3:
      (void)decode_group_table(rest, 3).is_ok();
      break;
    default:
      (void)decode_join_info(rest).is_ok();
  }
  return 0;
}
