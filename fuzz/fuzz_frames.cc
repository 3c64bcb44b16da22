// Feeds foreign bytes to everything that reads a link after the handshake: slots over a stream,
// slots and indices in shared memory, steps in mapped memory, liveness frames, the group's table, a
// launcher's words, offers of UCX and of queue pairs.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "fabric/link/join_info.h"
#include "fabric/link/liveness.h"
#include "fabric/link/slot_header.h"
#include "fabric/link/stream.h"
#include "fabric/message.h"
#include "fabric/shm/mapped_memory.h"
#include "fabric/shm/shm_endpoint.h"
#include "fabric/spin.h"
#include "fabric/tcp/tcp_endpoint.h"
#include "fabric/tcp/tcp_group.h"
#include "fabric/ucx/ucx_connect.h"
#include "fabric/verbs/rail_candidates.h"
#include "fabric/verbs/verbs_rail.h"

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

// Rank 1's side of mapped memory, by the layout in docs/fabric.md.
class WildRank {
 public:
  static constexpr MappedLayout kLayout{.size = 2, .part_bytes = 64};
  static constexpr size_t kPage = 4096;

  explicit WildRank(int fd) {
    void* const mapped =
        mmap(nullptr, MappedMemory::size_bytes(kLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    base_ = static_cast<std::byte*>(mapped);
  }
  ~WildRank() { munmap(base_, MappedMemory::size_bytes(kLayout)); }
  WildRank(const WildRank&) = delete;
  WildRank& operator=(const WildRank&) = delete;

  // A line of steps, the bells of both ranks, a byte of what the step carries.
  void write(uint64_t number, shoal::ByteReader& input) {
    const auto or_else = [&input](uint64_t right) {
      const auto value = input.read<uint8_t>();
      return !value.is_ok() || *value < 200 ? right : *value;
    };
    std::byte* const line = base_ + kPage + 128 * (1 + number % 2);
    put(line + 8, or_else(1));
    put(line + 16, or_else(64));
    put(line + 24, static_cast<uint32_t>(or_else(7)));
    put(line, or_else(number));
    put(base_, static_cast<uint32_t>(or_else(0)));
    put(base_ + kPage, static_cast<uint32_t>(or_else(0)));
    put(base_ + 3 * kPage + number % 3 * kLayout.part_bytes, or_else(number));
  }

 private:
  template <typename T>
  static void put(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof(value));
  }

  std::byte* base_ = nullptr;
};

void feed_mapped(Bytes bytes) {
  constexpr MappedLayout kLayout = WildRank::kLayout;
  const auto fd = MappedMemory::create(kLayout);
  if (!fd.is_ok()) return;
  GroupHealth health(0, {"a", "b"});
  const auto memory = MappedMemory::map(fd->get(), kLayout, {.rank = 0, .epoch = 1}, health);
  if (!memory.is_ok()) return;
  WildRank wild(fd->get());
  shoal::ByteReader reader(bytes);
  for (uint64_t step = 1; step <= 6 && reader.left() > 0; ++step) {
    wild.write(step, reader);
    (void)(*memory)->is_ahead(1);
    (*memory)->publish({.tag = 7, .bytes = 64});
    const WaitPolicy wait{
        .spin = kNoSpin, .deadline = shoal::Deadline::after(shoal::Nanoseconds(0)), .tag = 7};
    if (!(*memory)->meet("a step", wait).is_ok()) return;
    volatile size_t sum = 0;
    for (const std::byte byte : (*memory)->part_of(1)) sum = sum + static_cast<size_t>(byte);
  }
}

// A word beside a message, its length, and what the slot before left: whatever is read of it, a
// header that says the same is the same word.
void feed_short_header(Bytes bytes) {
  shoal::ByteReader reader(bytes);
  const auto word = reader.read<uint32_t>();
  const auto length = reader.read<uint32_t>();
  const auto left = reader.read<uint64_t>();
  const auto tag = reader.read<uint32_t>();
  const auto known = reader.read<uint64_t>();
  if (!known.is_ok()) return;
  const auto header = ShortHeader::from_word(*word);
  const SlotTrail before{.message_left = *left, .tag = *tag};
  const SlotNote note = header.note(*length, before);
  const SlotPlace place{.epoch = 1,
                        .sequence = header.sequence_from(*known),
                        .released = header.released_from(*known)};
  CHECK(place.sequence - *known <= ShortHeader::kStepMax);
  if (header.is_credit() || !header.fits(*length)) return;
  const auto again = ShortHeader::of_slot(slot_header(place, note), before);
  CHECK(again.has_value() && again->word() == *word);
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
  switch (static_cast<uint8_t>(bytes[0]) % 6) {
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
    case 4:
      (void)decode_join_info(rest).is_ok();
      (void)decode_ucx_offer(rest).is_ok();
      (void)decode_candidates(rest).is_ok();
      feed_short_header(rest);
      if (rest.size() >= RailOffer::kBytes) {
        (void)decode_rail_offer(rest.first<RailOffer::kBytes>()).is_ok();
      }
      break;
    default:
      feed_mapped(rest);
  }
  return 0;
}
