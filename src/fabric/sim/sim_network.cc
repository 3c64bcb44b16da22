#include "fabric/sim/sim_network.h"

#include <algorithm>

#include "fabric/link/liveness.h"
#include "fabric/shm/mapped_memory.h"
#include "fabric/sim/sim_endpoint.h"

namespace shoal::fabric {
namespace {

constexpr uint64_t kSimEpoch = 7;

// Real time without any progress after which a simulation is wrongly used.
constexpr auto kStuckAfter = std::chrono::seconds(120);

}  // namespace

SimNetwork::SimNetwork(const SimOptions& options) : options_(options) {
  CHECK(options.size >= 1 && options.size <= kGroupSizeMax);
  CHECK(options.delay_min <= options.delay_max);
  const auto size = static_cast<size_t>(options.size);
  for (size_t rank = 0; rank < size; ++rank) names_.push_back("sim-" + std::to_string(rank));
  ranks_ = std::vector<RankState>(size);
  wires_ = std::vector<Wire>(size * size);
  for (size_t i = 0; i < wires_.size(); ++i) {
    std::seed_seq seeds{options.seed, static_cast<uint64_t>(i)};
    wires_[i].random.seed(seeds);
  }
  for (int rank = 0; rank < options.size; ++rank) {
    Fabric::Parts parts;
    parts.rank = rank;
    parts.epoch = kSimEpoch;
    parts.node_names = names_;
    parts.health = std::make_unique<GroupHealth>(rank, names_);
    parts.endpoints.resize(size);
    parts.clock = &clock_;
    parts.spin = kNoSpin;
    state(rank) = {
        .health = parts.health.get(), .is_alive = true, .open_endpoints = options.size - 1};
    for (int peer = 0; peer < options.size; ++peer) {
      if (peer == rank) continue;
      EndpointInfo info{.link = "sim",
                        .self_rank = rank,
                        .peer_rank = peer,
                        .peer_name = names_[static_cast<size_t>(peer)],
                        .epoch = kSimEpoch,
                        .slots = options.slots};
      parts.endpoints[static_cast<size_t>(peer)] =
          std::make_unique<SimEndpoint>(std::move(info), *this, *parts.health);
    }
    fabrics_.push_back(std::make_unique<Fabric>(std::move(parts)));
  }
}

SimNetwork::~SimNetwork() { fabrics_.clear(); }

std::unique_ptr<Fabric> SimNetwork::take_fabric(int rank) {
  CHECK(rank >= 0 && rank < options_.size);
  auto& fabric = fabrics_[static_cast<size_t>(rank)];
  CHECK(fabric != nullptr);
  return std::move(fabric);
}

void SimNetwork::schedule(Event event) {
  event.order = next_order_++;
  events_.push(std::move(event));
}

Nanoseconds SimNetwork::arrival_time(Wire& wire) {
  std::uniform_int_distribution<int64_t> delay(options_.delay_min.count(),
                                               options_.delay_max.count());
  const Nanoseconds time = clock_.now() + Nanoseconds(delay(wire.random));
  wire.last_arrival = std::max(wire.last_arrival, time);
  return wire.last_arrival;
}

void SimNetwork::schedule_on_wire(Event event) {
  Wire& over = wire({event.from, event.to});
  event.time = arrival_time(over);
  if (!over.is_cut) schedule(std::move(event));
}

void SimNetwork::send_slot(const Link& link, Slot slot) {
  const std::scoped_lock lock(mutex_);
  Wire& over = wire(link);
  if (over.corruption.has_value()) {
    switch (*over.corruption) {
      case SimCorruption::kMagic:
        slot.header.magic ^= 1;
        break;
      case SimCorruption::kEpoch:
        slot.header.epoch += 1;
        break;
      case SimCorruption::kSequence:
        slot.header.sequence += 1;
        break;
      case SimCorruption::kLength:
        slot.header.bytes = options_.slots.payload_bytes + 1;
        break;
    }
    over.corruption.reset();
  }
  Event event(EventKind::kSlot, {link.from, link.to});
  event.slot = std::move(slot);
  schedule_on_wire(std::move(event));
}

// The credits of a link travel against it.
void SimNetwork::send_credits(const Link& link, uint64_t credits) {
  const std::scoped_lock lock(mutex_);
  Event event(EventKind::kCredit, {link.to, link.from});
  event.credits = credits;
  schedule_on_wire(std::move(event));
}

std::optional<SimNetwork::Slot> SimNetwork::take_slot(const Link& link) {
  const std::scoped_lock lock(mutex_);
  Wire& over = wire(link);
  if (over.arrived.empty()) return std::nullopt;
  Slot slot = std::move(over.arrived.front());
  over.arrived.pop_front();
  return slot;
}

uint64_t SimNetwork::credits(const Link& link) {
  const std::scoped_lock lock(mutex_);
  return wire(link).credits;
}

void SimNetwork::wait(int rank, const Deadline& deadline) {
  CHECK_MSG(&deadline.clock() == &clock_, "a deadline in the simulation is on its own clock");
  std::unique_lock lock(mutex_);
  RankState& self = state(rank);
  spread_failure(rank);
  if (self.has_changed) {
    self.has_changed = false;
    return;
  }
  self.is_waiting = true;
  self.wake_at = deadline.at();
  while (!self.has_changed) {
    if (is_everyone_waiting()) {
      advance();
    } else {
      CHECK_MSG(changed_.wait_for(lock, kStuckAfter) == std::cv_status::no_timeout,
                "the simulation is stuck: a rank neither waits nor has left");
    }
  }
  self.has_changed = false;
  self.is_waiting = false;
}

bool SimNetwork::is_everyone_waiting() const {
  return std::ranges::all_of(ranks_, [](const RankState& one) {
    return !one.is_alive || (one.is_waiting && !one.has_changed);
  });
}

// Everyone sleeps: time jumps to the next thing that happens.
void SimNetwork::advance() {
  Nanoseconds next = Nanoseconds::max();
  if (!events_.empty()) next = events_.top().time;
  for (const RankState& one : ranks_) {
    if (one.is_alive) next = std::min(next, one.wake_at);
  }
  if (next > clock_.now()) clock_.advance(next - clock_.now());
  while (!events_.empty() && events_.top().time <= clock_.now()) {
    Event event = events_.top();
    events_.pop();
    deliver(event);
  }
  for (RankState& one : ranks_) {
    if (one.is_alive && one.wake_at <= clock_.now()) one.has_changed = true;
  }
  changed_.notify_all();
}

void SimNetwork::deliver(Event& event) {
  if (event.kind == EventKind::kCut) {
    wire({event.from, event.to}).is_cut = true;
    return;
  }
  RankState& to = state(event.to);
  if (!to.is_alive) return;
  to.has_changed = true;
  switch (event.kind) {
    case EventKind::kSlot:
      wire({event.from, event.to}).arrived.push_back(std::move(event.slot));
      break;
    case EventKind::kCredit: {
      Wire& sending = wire({event.to, event.from});
      sending.credits = std::max(sending.credits, event.credits);
      break;
    }
    case EventKind::kGoodbye:
      to.health->mark_left(event.from);
      break;
    case EventKind::kVerdict:
      to.health->fail_with(event.culprit, std::move(event.text));
      break;
    case EventKind::kNotice:
      to.health->fail_as_told({.culprit = event.culprit, .message = event.text}, event.from);
      break;
    case EventKind::kCut:
      break;
  }
}

void SimNetwork::schedule_verdict(int rank, int culprit, Nanoseconds time, std::string text) {
  Event event(EventKind::kVerdict, {culprit, rank}, time);
  event.culprit = culprit;
  event.text = std::move(text);
  schedule(std::move(event));
}

// A failure that a rank has found is told to its peers once.
void SimNetwork::spread_failure(int rank) {
  RankState& self = state(rank);
  const std::optional<FailureNotice> notice = self.health->notice();
  if (self.has_spread_failure || !notice.has_value()) return;
  self.has_spread_failure = true;
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == rank) continue;
    Event event(EventKind::kNotice, {rank, peer});
    event.culprit = notice->culprit;
    event.text = notice->message;
    schedule_on_wire(std::move(event));
  }
}

void SimNetwork::close_endpoint(int rank) {
  const std::scoped_lock lock(mutex_);
  RankState& self = state(rank);
  if (--self.open_endpoints > 0) return;
  spread_failure(rank);
  self.is_alive = false;
  if (!self.has_spread_failure) {
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == rank) continue;
      schedule_on_wire(Event(EventKind::kGoodbye, {rank, peer}));
    }
  }
  self.health = nullptr;
  changed_.notify_all();
}

void SimNetwork::crash_at(int rank, Nanoseconds time) {
  const std::scoped_lock lock(mutex_);
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == rank) continue;
    schedule(Event(EventKind::kCut, {rank, peer}, time));
    schedule(Event(EventKind::kCut, {peer, rank}, time));
    schedule_verdict(peer, rank, time + options_.close_noticed_after,
                     state(peer).health->rank_text(rank) +
                         " over sim closed its connections without a goodbye: its process or "
                         "machine has ended");
  }
  schedule_verdict(rank, rank, time, "this node has crashed");
}

void SimNetwork::stop_at(int rank, Nanoseconds time) {
  const std::scoped_lock lock(mutex_);
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == rank) continue;
    schedule(Event(EventKind::kCut, {rank, peer}, time));
    schedule_verdict(peer, rank, time + options_.silence_noticed_after,
                     state(peer).health->rank_text(rank) + " over sim has been silent: it is " +
                         "stopped, overloaded or unreachable");
  }
  schedule_verdict(rank, rank, time + options_.silence_noticed_after,
                   "this node was given up by its group: it was stopped");
}

void SimNetwork::partition_at(const std::vector<int>& side, Nanoseconds time) {
  const std::scoped_lock lock(mutex_);
  const auto is_inside = [&side](int rank) { return std::ranges::count(side, rank) > 0; };
  for (int from = 0; from < options_.size; ++from) {
    for (int to = 0; to < options_.size; ++to) {
      if (is_inside(from) == is_inside(to)) continue;
      schedule(Event(EventKind::kCut, {from, to}, time));
      schedule_verdict(to, from, time + options_.silence_noticed_after,
                       state(to).health->rank_text(from) + " over sim has been silent: it is " +
                           "stopped, overloaded or unreachable");
    }
  }
}

void SimNetwork::corrupt_next(const Link& link, SimCorruption corruption) {
  const std::scoped_lock lock(mutex_);
  wire(link).corruption = corruption;
}

}  // namespace shoal::fabric
