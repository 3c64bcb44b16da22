#include "cli/bench/fabric/pair_bench.h"

#include <array>
#include <ctime>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/elapsed.h"

namespace shoal::cli {
namespace {

// A deadline costs a look at the clock: it is made anew for so many rounds of small messages.
constexpr uint32_t kRoundsPerDeadline = 64;
constexpr size_t kSmallBytes = 65536;

// Of all threads of this process.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// How far a message is.
size_t position_of(const fabric::OutgoingMessage& message) { return message.slots_posted(); }
size_t position_of(const fabric::IncomingMessage& message) { return message.bytes_received(); }

// Whether the next message may begin. One that is posted need not have left: many are under way.
bool is_over(const fabric::OutgoingMessage& message, bool /*is_complete*/) {
  return message.is_posted();
}
bool is_over(const fabric::IncomingMessage& /*message*/, bool is_complete) { return is_complete; }

// The messages of one direction, one after another.
template <typename Message, typename Start>
class Sequence {
 public:
  Sequence(uint32_t count, Start start) : left_(count), start_(std::move(start)) {}
  bool is_done() const { return left_ == 0; }
  // Gives whether anything moved.
  Result<bool> progress() {
    if (left_ == 0) return false;
    if (!message_.has_value()) start_(message_);
    const size_t before = position_of(*message_);
    ASSIGN_OR_RETURN(const bool is_complete, message_->progress());
    if (!is_over(*message_, is_complete)) return position_of(*message_) != before;
    message_.reset();
    --left_;
    return true;
  }

 private:
  uint32_t left_;
  Start start_;
  std::optional<Message> message_;
};

}  // namespace

Deadline PairBench::deadline(size_t bytes) const {
  return Deadline::after(fabric_.clock(), message_patience(bytes));
}

// The lower rank says what comes next.
Result<Batch> PairBench::agree(Pacer& pacer) {
  std::array<std::byte, 2 * sizeof(uint32_t)> bytes{};
  if (is_lower_) {
    const Batch batch = pacer.next();
    FieldWriter writer(bytes);
    writer.write(batch.rounds);
    writer.write(batch.is_counted);
    RETURN_IF_ERROR(fabric::send_message(peer_, bytes, wait()));
    return batch;
  }
  RETURN_IF_ERROR(fabric::receive_message_into(peer_, bytes, wait()));
  ByteReader reader(bytes);
  Batch batch;
  ASSIGN_OR_RETURN(batch.rounds, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(batch.is_counted, reader.read<uint32_t>());
  if (batch.rounds > Batch::kRoundsMax) return peer_.fail("asked for too many rounds");
  return batch;
}

template <typename Run>
Status PairBench::repeat(const Budget& budget, uint32_t messages_per_round, MessageFigures* figures,
                         const Run& run) {
  Pacer pacer(budget, fabric_.clock());
  double cpu = 0;
  uint64_t messages = 0;
  while (true) {
    ASSIGN_OR_RETURN(const Batch batch, agree(pacer));
    if (batch.rounds == 0) break;
    const double before = cpu_seconds();
    RETURN_IF_ERROR(run(batch));
    if (batch.is_counted == 0) continue;
    cpu += cpu_seconds() - before;
    messages += uint64_t{batch.rounds} * messages_per_round;
  }
  return exchange_cpu(messages == 0 ? 0 : cpu / static_cast<double>(messages), figures);
}

Status PairBench::exchange_cpu(double mine, MessageFigures* figures) {
  std::array<std::byte, sizeof(double)> bytes{};
  if (!is_lower_) {
    FieldWriter(bytes).write(mine);
    return fabric::send_message(peer_, bytes, wait());
  }
  RETURN_IF_ERROR(fabric::receive_message_into(peer_, bytes, wait()));
  figures->lower_cpu = mine;
  ASSIGN_OR_RETURN(figures->higher_cpu, ByteReader(bytes).read<double>());
  return Status::ok();
}

Status PairBench::round(std::span<std::byte> buffer, const fabric::WaitPolicy& policy) {
  if (is_lower_) {
    RETURN_IF_ERROR(fabric::send_message(peer_, buffer, policy));
    return fabric::receive_message_into(peer_, buffer, policy);
  }
  RETURN_IF_ERROR(fabric::receive_message_into(peer_, buffer, policy));
  return fabric::send_message(peer_, buffer, policy);
}

Result<MessageFigures> PairBench::round_trip(size_t bytes, const Budget& budget) {
  MessageFigures figures{.bytes = bytes, .figure = {}};
  std::vector<std::byte> buffer(bytes);
  const fabric::RegisteredMemory registered(fabric_, buffer);
  const uint32_t rounds_per_deadline = bytes <= kSmallBytes ? kRoundsPerDeadline : 1;
  Samples samples;
  RETURN_IF_ERROR(repeat(budget, 2, &figures, [&](const Batch& batch) -> Status {
    fabric::WaitPolicy policy = wait();
    Nanoseconds start = fabric_.clock().now();
    for (uint32_t i = 0; i < batch.rounds; ++i) {
      if (i % rounds_per_deadline == 0) policy.deadline = deadline(2 * bytes);
      RETURN_IF_ERROR(round(buffer, policy));
      const Nanoseconds end = fabric_.clock().now();
      if (batch.is_counted != 0) samples.add(seconds_between(start, end));
      start = end;
    }
    return Status::ok();
  }));
  figures.figure = samples.summary();
  return figures;
}

Result<MessageFigures> PairBench::stream(size_t bytes, bool is_both_ways, const Budget& budget) {
  MessageFigures figures{.bytes = bytes, .figure = {}};
  std::vector<std::byte> out(bytes);
  const fabric::RegisteredMemory registered(fabric_, out);
  std::vector<std::byte> in(bytes);
  Samples rates;
  double seconds_in_all = 0;
  double bytes_in_all = 0;
  const uint32_t directions = is_both_ways ? 2 : 1;
  Budget whole = budget;
  whole.batch_min = stream_batch_min(bytes, peer_.info().slots.count);
  RETURN_IF_ERROR(repeat(whole, directions, &figures, [&](const Batch& batch) -> Status {
    const Nanoseconds start = fabric_.clock().now();
    const Amounts amounts{.sends = is_lower_ || is_both_ways ? batch.rounds : 0,
                          .receives = !is_lower_ || is_both_ways ? batch.rounds : 0};
    RETURN_IF_ERROR(pass(amounts, out, in));
    RETURN_IF_ERROR(confirm());
    if (batch.is_counted == 0) return Status::ok();
    const double seconds = seconds_between(start, fabric_.clock().now());
    const auto moved = static_cast<double>(bytes) * batch.rounds * directions;
    rates.add(moved / seconds);
    seconds_in_all += seconds;
    bytes_in_all += moved;
    return Status::ok();
  }));
  figures.figure = rates.summary();
  figures.overall = seconds_in_all > 0 ? bytes_in_all / seconds_in_all : 0;
  return figures;
}

// Both directions at once: neither waits for the other.
Status PairBench::pass(const Amounts& amounts, std::span<std::byte> out, std::span<std::byte> in) {
  const auto start_send = [&](std::optional<fabric::OutgoingMessage>& message) {
    message.emplace(peer_, out, 0);
  };
  const auto start_receive = [&](std::optional<fabric::IncomingMessage>& message) {
    message.emplace(peer_, in, 0);
  };
  Sequence<fabric::OutgoingMessage, decltype(start_send)> sends(amounts.sends, start_send);
  Sequence<fabric::IncomingMessage, decltype(start_receive)> receives(amounts.receives,
                                                                      start_receive);
  fabric::Spinner spinner(fabric_.spin());
  Deadline end = deadline();
  bool has_moved = false;  // since `end` was made
  bool is_taken = false;   // the transport is done with `out`
  while (!is_taken || !receives.is_done()) {
    ASSIGN_OR_RETURN(const bool has_sent, sends.progress());
    ASSIGN_OR_RETURN(const bool has_received, receives.progress());
    if (sends.is_done()) {
      ASSIGN_OR_RETURN(is_taken, peer_.poll_sends());
    }
    if (has_sent || has_received || (is_taken && receives.is_done())) {
      spinner.reset();
      has_moved = true;
    } else if (!spinner.spin_once()) {
      if (has_moved) end = deadline();
      has_moved = false;
      if (end.expired()) return peer_.fail("did not finish a stream before the deadline");
      peer_.wait(end);
    }
  }
  return Status::ok();
}

// The lower rank's time ends when the higher one has everything.
Status PairBench::confirm() {
  std::array<std::byte, 1> done{};
  return is_lower_ ? fabric::receive_message_into(peer_, done, wait())
                   : fabric::send_message(peer_, done, wait());
}

}  // namespace shoal::cli
