#include "fabric/shm/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "fabric/fabric.h"
#include "fabric/shm/futex.h"
#include "fabric/spin.h"

namespace shoal::fabric {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Of a part: a small group of large slots does not take more, a large group has this per rank.
constexpr size_t kPartBytesMax = size_t{2} * 1024 * 1024;
constexpr size_t kPartBytesPerRankMin = 1024;

// A peer that breaks the protocol cannot keep us asleep longer than this.
constexpr Nanoseconds kSleepMax = std::chrono::milliseconds(500);

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

MappedLayout mapped_layout(const SlotClass& slots, int size) {
  const size_t least = static_cast<size_t>(size) * kPartBytesPerRankMin;
  const size_t wanted = std::min(8 * size_t{slots.payload_bytes}, kPartBytesMax);
  return {.size = size, .part_bytes = std::max(least, wanted)};
}

size_t MappedMemory::controls_bytes(const MappedLayout& layout) {
  return round_up(static_cast<size_t>(layout.size) * sizeof(Controls), kGranuleBytes);
}

size_t MappedMemory::region_bytes(const MappedLayout& layout) {
  return round_up(kParts * layout.part_bytes, kGranuleBytes);
}

size_t MappedMemory::size_bytes(const MappedLayout& layout) {
  return controls_bytes(layout) + static_cast<size_t>(layout.size) * region_bytes(layout);
}

Result<UniqueFd> MappedMemory::create(const MappedLayout& layout) {
  UniqueFd fd(memfd_create("shoal-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_valid()) return Status::from_errno("memfd_create", errno);
  const auto bytes = static_cast<off_t>(size_bytes(layout));
  // Allocated now: running out of memory is an error here, not a SIGBUS later.
  if (fallocate(fd.get(), 0, 0, bytes) != 0) {
    return Status::from_errno(
        "allocating " + std::to_string(bytes) + " bytes of shared memory for a group", errno);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::from_errno("F_ADD_SEALS", errno);
  return fd;
}

Result<std::unique_ptr<MappedMemory>> MappedMemory::map(int fd, const MappedLayout& layout,
                                                        const Identity& self, GroupHealth& health) {
  CHECK(layout.size == health.size() && self.rank >= 0 && self.rank < layout.size);
  CHECK(layout.part_bytes > 0 && layout.part_bytes % 64 == 0);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status::group("the shared memory of the group is not sealed: its size could change");
  }
  struct stat info{};
  if (fstat(fd, &info) != 0) return Status::from_errno("fstat of the group's memory", errno);
  if (info.st_size != static_cast<off_t>(size_bytes(layout))) {
    return Status::group("the shared memory of the group has " + std::to_string(info.st_size) +
                         " bytes where " + std::to_string(size_bytes(layout)) + " belong");
  }
  std::unique_ptr<MappedMemory> memory(new MappedMemory(layout, self, health));
  RETURN_IF_ERROR(memory->map_all(fd));
  // Only now, so that no other thread sees an object that is half made.
  memory->waker_ticket_ = health.add_waker([raw = memory.get()] { raw->poke(); });
  return memory;
}

MappedMemory::MappedMemory(const MappedLayout& layout, const Identity& self, GroupHealth& health)
    : layout_(layout), self_(self), health_(health) {
  waiting_for_.reserve(static_cast<size_t>(layout.size));
}

// Controls of all, writable for the bells; the own region, writable; the regions of all, readable.
Status MappedMemory::map_all(int fd) {
  const size_t controls = controls_bytes(layout_);
  const size_t region = region_bytes(layout_);
  const auto map_range = [fd](size_t begin, size_t bytes, int protection) {
    return mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, fd,
                static_cast<off_t>(begin));
  };
  void* const shared = map_range(0, controls, PROT_READ | PROT_WRITE);
  if (shared == MAP_FAILED) return Status::from_errno("mapping the group's memory", errno);
  mappings_.controls = static_cast<Controls*>(shared);
  void* const own = map_range(controls + static_cast<size_t>(self_.rank) * region, region,
                              PROT_READ | PROT_WRITE);
  if (own == MAP_FAILED) return Status::from_errno("mapping the group's memory", errno);
  mappings_.own = static_cast<std::byte*>(own);
  void* const all = map_range(controls, static_cast<size_t>(layout_.size) * region, PROT_READ);
  if (all == MAP_FAILED) return Status::from_errno("mapping the group's memory", errno);
  mappings_.all = static_cast<const std::byte*>(all);
  return Status::ok();
}

MappedMemory::~MappedMemory() {
  health_.remove_waker(waker_ticket_);
  const size_t region = region_bytes(layout_);
  if (mappings_.controls != nullptr) munmap(mappings_.controls, controls_bytes(layout_));
  if (mappings_.own != nullptr) munmap(mappings_.own, region);
  if (mappings_.all != nullptr) {
    munmap(const_cast<std::byte*>(mappings_.all), static_cast<size_t>(layout_.size) * region);
  }
}

std::span<std::byte> MappedMemory::own_part() {
  return {mappings_.own + (published_ + 1) % kParts * part_bytes(), part_bytes()};
}

std::span<const std::byte> MappedMemory::part_of(int peer) const {
  CHECK(met_ == published_ && peer != self_.rank);
  const std::byte* region = mappings_.all + static_cast<size_t>(peer) * region_bytes(layout_);
  return {region + met_ % kParts * part_bytes(), part_bytes()};
}

void MappedMemory::publish(const MappedStep& step) {
  CHECK(met_ == published_);
  ++published_;
  step_ = step;
  StepLine& line = controls_of(self_.rank).steps[published_ % 2];
  line.epoch.store(self_.epoch, std::memory_order_relaxed);
  line.bytes.store(step.bytes, std::memory_order_relaxed);
  line.tag.store(step.tag, std::memory_order_relaxed);
  line.number.store(published_, std::memory_order_release);
}

// Sleepers announce themselves in `sleeps`, then look again, then sleep; we publish, then look at
// `sleeps`. Sequentially consistent on both sides, so one of the two sees the other. Not in
// publish() but after the first look at the peers: until the fence is through they cannot be seen.

void MappedMemory::wake_sleepers() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < layout_.size; ++peer) {
    Bell& bell = controls_of(peer).bell;
    if (peer == self_.rank || bell.sleeps.load(std::memory_order_relaxed) == 0) continue;
    bell.word.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(bell.word);
  }
}

void MappedMemory::poke() {
  Bell& bell = controls_of(self_.rank).bell;
  bell.word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(bell.word);
}

// What one poll of a peer costs: a line that stays in our cache until the peer writes it.
Result<bool> MappedMemory::has_met(int peer) {
  if (health_.failed()) return health_.failure();
  const StepLine& line = controls_of(peer).steps[published_ % 2];
  const uint64_t before = published_ > 2 ? published_ - 2 : 0;
  uint64_t number = line.number.load(std::memory_order_acquire);
  if (number == before) {
    if (!health_.has_left(peer)) return false;
    // A goodbye comes after everything that was published: look once more before believing it.
    number = line.number.load(std::memory_order_acquire);
    if (number == before) {
      health_.fail_left(peer);
      return health_.failure();
    }
  }
  if (number != published_) return fail(peer, "corrupted the number of its step");
  if (line.epoch.load(std::memory_order_relaxed) != self_.epoch) {
    return fail(peer, "published a step of another group epoch");
  }
  const uint32_t tag = line.tag.load(std::memory_order_relaxed);
  if (tag != step_.tag) {
    return fail(peer, "is in another operation (its tag is " + std::to_string(tag) + ", ours is " +
                          std::to_string(step_.tag) + ")");
  }
  const uint64_t bytes = line.bytes.load(std::memory_order_relaxed);
  if (bytes != step_.bytes) {
    return fail(peer, "gave " + std::to_string(bytes) + " bytes where " +
                          std::to_string(step_.bytes) + " were expected");
  }
  return true;
}

// Strikes those who are here off waiting_for_.
Status MappedMemory::look_at_peers() {
  for (size_t i = 0; i < waiting_for_.size();) {
    ASSIGN_OR_RETURN(const bool is_here, has_met(waiting_for_[i]));
    if (is_here) {
      waiting_for_.erase(waiting_for_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return Status::ok();
}

Status MappedMemory::meet(std::string_view operation, const WaitPolicy& wait) {
  waiting_for_.clear();
  for (int peer = 0; peer < layout_.size; ++peer) {
    if (peer != self_.rank) waiting_for_.push_back(peer);
  }
  RETURN_IF_ERROR(look_at_peers());
  wake_sleepers();
  Spinner spinner(wait.spin);
  while (!waiting_for_.empty()) {
    const size_t before = waiting_for_.size();
    RETURN_IF_ERROR(look_at_peers());
    if (waiting_for_.size() != before) {
      spinner.reset();
      continue;
    }
    if (spinner.spin_once()) continue;
    if (wait.deadline.expired()) return fail_at_deadline(operation);
    sleep(wait.deadline);
  }
  met_ = published_;
  return Status::ok();
}

// Whether one of those we wait for has published, or can no more.
bool MappedMemory::has_news() {
  if (health_.failed()) return true;
  return std::ranges::any_of(waiting_for_, [this](int peer) {
    const StepLine& line = controls_of(peer).steps[published_ % 2];
    return health_.has_left(peer) || line.number.load(std::memory_order_seq_cst) == published_;
  });
}

void MappedMemory::sleep(const Deadline& deadline) {
  Bell& bell = controls_of(self_.rank).bell;
  const uint32_t seen = bell.word.load(std::memory_order_seq_cst);
  bell.sleeps.store(1, std::memory_order_seq_cst);
  if (!has_news()) {
    const Nanoseconds left = std::min(deadline.left(), kSleepMax);
    if (left.count() > 0) futex_wait(bell.word, seen, left);
  }
  bell.sleeps.store(0, std::memory_order_relaxed);
}

bool MappedMemory::is_ahead(int peer) const {
  const auto& steps = controls_of(peer).steps;
  return std::max(steps[0].number.load(std::memory_order_acquire),
                  steps[1].number.load(std::memory_order_acquire)) > published_;
}

Status MappedMemory::fail(int peer, std::string_view reason) {
  health_.fail_with(peer, health_.rank_text(peer) + " over shm " + std::string(reason));
  return health_.failure();
}

Status MappedMemory::fail_at_deadline(std::string_view operation) {
  std::string reason = "did not finish " + std::string(operation) + " of " +
                       std::to_string(step_.bytes) + " bytes before the deadline";
  for (size_t i = 1; i < waiting_for_.size(); ++i) {
    reason +=
        (i == 1 ? "; also waiting for " : ", ") + health_.rank_text(waiting_for_[i]) + " over shm";
  }
  return fail(waiting_for_.front(), reason);
}

}  // namespace shoal::fabric
