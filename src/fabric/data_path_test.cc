// A message costs no system call and no allocation, on the links whose data path promises that:
// counted in this process, by the kernel's syscall user dispatch (each system call of a thread
// becomes a signal) and by this program's operator new. One thread drives both ends, so nobody ever
// waits. What an RDMA provider does inside a call of libibverbs is its own: soft-RoCE rings its
// doorbell by a system call, hardware by a write to the device.
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "fabric/in_process.h"
#include "fabric/testing/fake_verbs.h"
#include "fabric/testing/thread_group.h"
#include "fabric/verbs/verbs_port.h"

namespace {

// Of the thread that counts. The kernel reads `blocks_calls` at each of its system calls.
volatile char blocks_calls = 0;
volatile sig_atomic_t system_calls = 0;
volatile sig_atomic_t last_system_call = 0;
thread_local bool counts_allocations = false;
thread_local size_t allocations = 0;

// The call that was caught fails; those after it pass, so that the test can end and say so.
void on_system_call(int /*signal*/, siginfo_t* info, void* /*context*/) {
  blocks_calls = 0;
  system_calls = system_calls + 1;
  last_system_call = info->si_syscall;
}

void* counted_allocation(size_t bytes, size_t alignment) {
  if (counts_allocations) ++allocations;
  void* memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return counted_allocation(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted_allocation(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace shoal::fabric {
namespace {

// Counts between construction and destruction.
class Counting {
 public:
  Counting() { set(true); }
  ~Counting() { set(false); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  // False where the kernel cannot.
  static bool enable() {
    struct sigaction action{};
    action.sa_sigaction = on_system_call;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSYS, &action, nullptr);
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &blocks_calls) == 0;
  }
  static void disable() {
    prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
    std::signal(SIGSYS, SIG_DFL);
  }
  static bool is_on() { return counts_allocations; }
  static void set(bool is_on) {
    counts_allocations = is_on;
    blocks_calls = is_on ? 1 : 0;
  }
};

// A table whose calls on the data path are not counted.
template <auto Member>
struct Uncounted;
const VerbsTable* provider_table = nullptr;
template <typename R, typename... A, R (*VerbsTable::*Member)(A...)>
struct Uncounted<Member> {
  static R call(A... arguments) {
    const bool was_on = Counting::is_on();
    Counting::set(false);
    const R result = (provider_table->*Member)(arguments...);
    Counting::set(was_on);
    return result;
  }
};
VerbsTable uncounted(const VerbsTable& table) {
  provider_table = &table;
  VerbsTable result = table;
  result.post_send = Uncounted<&VerbsTable::post_send>::call;
  result.post_recv = Uncounted<&VerbsTable::post_recv>::call;
  result.poll_cq = Uncounted<&VerbsTable::poll_cq>::call;
  return result;
}

// Over and back, a slot at a time; every byte is looked at.
Status ping_pong(Endpoint& a, Endpoint& b, uint32_t bytes, int times) {
  for (int i = 0; i < times; ++i) {
    for (Endpoint* from : {&a, &b}) {
      Endpoint& to = from == &a ? b : a;
      std::optional<SendSlot> slot;
      while (!slot.has_value()) {
        ASSIGN_OR_RETURN(slot, from->try_acquire_send());
      }
      std::memset(slot->payload.data(), i & 0x7f, bytes);
      RETURN_IF_ERROR(from->post_send(*slot, {.bytes = bytes, .message_left = bytes}));
      std::optional<ReceivedSlot> received;
      while (!received.has_value()) {
        RETURN_IF_ERROR(from->poll_sends().status());
        ASSIGN_OR_RETURN(received, to.poll_receive());
      }
      const bool is_right = received->payload.size() == bytes &&
                            (bytes == 0 || (received->payload.front() == std::byte(i & 0x7f) &&
                                            received->payload.back() == std::byte(i & 0x7f)));
      RETURN_IF_ERROR(to.release_receive(*received));
      if (!is_right) return Status::request("other bytes than were sent");
    }
  }
  return Status::ok();
}

// One way only: credits go back alone. Whole slots of registered memory go in place.
Status stream(Endpoint& from, Endpoint& to, std::span<const std::byte> bytes, int times) {
  const auto size = static_cast<uint32_t>(bytes.size());
  const SlotNote note{.bytes = size, .message_left = size};
  for (int i = 0; i < times; ++i) {
    bool is_posted = false;
    bool is_free = false;
    std::optional<ReceivedSlot> received;
    while (!is_free || !received.has_value()) {
      if (!is_posted) {
        ASSIGN_OR_RETURN(is_posted, from.try_send(bytes, note));
      } else if (!is_free) {
        ASSIGN_OR_RETURN(is_free, from.poll_sends());
      }
      if (!received.has_value()) {
        ASSIGN_OR_RETURN(received, to.poll_receive());
      }
    }
    const bool is_right = received->payload.size() == bytes.size();
    RETURN_IF_ERROR(to.release_receive(*received));
    if (!is_right) return Status::request("another length than was sent");
  }
  return Status::ok();
}

class DataPath : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Links, DataPath,
                         testing::Values("shm", "verbs_rc", "verbs_thunderbolt", "verbs"),
                         [](const auto& info) { return info.param; });

TEST_P(DataPath, AMessageCostsNoSystemCallAndNoAllocation) {
  if (GetParam() == "verbs" && !has_rdma_device()) GTEST_SKIP() << kNoRdmaDevice;
  InProcessOptions options;
  options.fabric.slots = {.payload_bytes = 16 * 1024, .count = 4};
  std::unique_ptr<FakeVerbs> fake;
  VerbsTable table;
  if (GetParam() != "shm") {
    options.link = LinkKind::kVerbs;
    if (GetParam() == "verbs") {
      table = uncounted(**load_verbs());
      options.listen.host = *local_rdma_address(**load_verbs());
    } else {
      using Mode = FakeVerbsOptions::Mode;
      fake = std::make_unique<FakeVerbs>(
          FakeVerbsOptions{.mode = GetParam() == "verbs_rc" ? Mode::kLinuxRc : Mode::kThunderbolt});
      table = uncounted(fake->table());
      options.verbs.rules = fake->provider().rules;
    }
    options.verbs.table = &table;
  }
  auto fabrics = make_in_process_group(options, Deadline::after(std::chrono::seconds(60)));
  ASSERT_TRUE(fabrics.is_ok()) << fabrics.status().to_string();
  Endpoint& a = (*fabrics)[0]->endpoint(1);
  Endpoint& b = (*fabrics)[1]->endpoint(0);

  std::vector<std::byte> memory(options.fabric.slots.payload_bytes);
  const RegisteredMemory registered(*(*fabrics)[0], memory);

  if (!Counting::enable()) GTEST_SKIP() << "this kernel has no syscall user dispatch";
  {
    // The counting itself counts.
    const Counting counting;
    int* volatile allocated = new int;
    delete allocated;
    (void)raise(0);
  }
  const int calls_before = system_calls;
  const size_t allocations_before = allocations;
  std::array<Status, 5> statuses;
  constexpr std::array<uint32_t, 3> kBytes = {0, 1000, 16 * 1024};
  for (size_t i = 0; i < kBytes.size(); ++i) {
    const Counting counting;
    statuses[i] = ping_pong(a, b, kBytes[i], 1000);
  }
  for (const size_t bytes : {size_t{100}, memory.size()}) {
    const Counting counting;
    statuses[bytes == 100 ? 3 : 4] = stream(a, b, std::span(memory).first(bytes), 1000);
  }
  Counting::disable();
  EXPECT_GE(calls_before, 1);
  EXPECT_GE(allocations_before, 1U);
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(system_calls, calls_before) << "the last one has number " << last_system_call;
  EXPECT_EQ(allocations, allocations_before);
  (*fabrics)[1]->health().mark_left(0);
}

}  // namespace
}  // namespace shoal::fabric
