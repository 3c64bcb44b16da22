#include "collective/measure.h"

#include <algorithm>
#include <vector>

#include "fabric/message.h"

namespace shoal::collective {
namespace {

Timing summarize(std::vector<double>& microseconds, size_t bytes) {
  std::ranges::sort(microseconds);
  const size_t count = microseconds.size();
  Timing timing;
  timing.bytes = bytes;
  timing.rounds = static_cast<int>(count);
  if (count == 0) return timing;
  timing.min_us = microseconds.front();
  timing.p50_us = microseconds[count / 2];
  timing.p99_us = microseconds[std::min(count - 1, count * 99 / 100)];
  if (timing.p50_us > 0) {
    timing.gigabytes_per_second = static_cast<double>(bytes) / timing.p50_us / 1000.0;
  }
  return timing;
}

// Times body() in every round after the warm-up; all ranks start and end together.
template <typename Body>
Result<Timing> measure(Group& group, const MeasureOptions& options, const Body& body) {
  const Clock& clock = group.fabric().clock();
  RETURN_IF_ERROR(group.barrier(Deadline::after(clock, options.round_deadline)));
  std::vector<double> microseconds;
  microseconds.reserve(static_cast<size_t>(options.rounds));
  for (int round = 0; round < options.warm_up_rounds + options.rounds; ++round) {
    const Deadline deadline = Deadline::after(clock, options.round_deadline);
    const Nanoseconds begin = clock.now();
    RETURN_IF_ERROR(body(deadline));
    const std::chrono::duration<double, std::micro> took = clock.now() - begin;
    if (round >= options.warm_up_rounds) microseconds.push_back(took.count());
  }
  RETURN_IF_ERROR(group.barrier(Deadline::after(clock, options.round_deadline)));
  return summarize(microseconds, options.bytes);
}

Status check_pair(const Group& group) {
  return group.size() >= 2 ? Status::ok() : Status::request("a link has two ends: two ranks");
}

}  // namespace

Result<Timing> measure_ping_pong(Group& group, const MeasureOptions& options) {
  RETURN_IF_ERROR(check_pair(group));
  std::vector<std::byte> buffer(options.bytes);
  Result<Timing> timing = measure(group, options, [&](const Deadline& deadline) -> Status {
    if (group.rank() > 1) return Status::ok();
    fabric::Endpoint& peer = group.fabric().endpoint(1 - group.rank());
    const fabric::WaitPolicy wait{.spin = group.fabric().spin(), .deadline = deadline};
    if (group.rank() == 0) RETURN_IF_ERROR(fabric::send_message(peer, buffer, wait));
    RETURN_IF_ERROR(fabric::receive_message_into(peer, buffer, wait));
    if (group.rank() == 1) RETURN_IF_ERROR(fabric::send_message(peer, buffer, wait));
    return Status::ok();
  });
  if (!timing.is_ok()) return timing;
  timing->min_us /= 2;
  timing->p50_us /= 2;
  timing->p99_us /= 2;
  timing->gigabytes_per_second *= 2;
  return timing;
}

Result<Timing> measure_all_reduce(Group& group, const MeasureOptions& options) {
  if (options.bytes % sizeof(float) != 0) {
    return Status::request("an all_reduce is of whole float32 numbers: 4 bytes each");
  }
  std::vector<float> data(options.bytes / sizeof(float));
  return measure(group, options,
                 [&](const Deadline& deadline) { return group.all_reduce(data, deadline); });
}

Result<Timing> measure_transfer(Group& group, const MeasureOptions& options) {
  RETURN_IF_ERROR(check_pair(group));
  std::vector<std::byte> buffer(options.bytes);
  return measure(group, options, [&](const Deadline& deadline) -> Status {
    if (group.rank() > 1) return Status::ok();
    fabric::Endpoint& peer = group.fabric().endpoint(1 - group.rank());
    const fabric::WaitPolicy wait{.spin = group.fabric().spin(), .deadline = deadline};
    if (group.rank() == 0) {
      RETURN_IF_ERROR(fabric::send_message(peer, buffer, wait));
      return fabric::receive_message_into(peer, {}, wait);
    }
    RETURN_IF_ERROR(fabric::receive_message_into(peer, buffer, wait));
    return fabric::send_message(peer, {}, wait);
  });
}

}  // namespace shoal::collective
