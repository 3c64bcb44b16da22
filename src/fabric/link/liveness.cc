#include "fabric/link/liveness.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/bytes.h"
#include "base/log.h"
#include "base/os/thread.h"
#include "fabric/link/printable.h"
#include "fabric/link/socket_errors.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

constexpr uint32_t kFrameMagic = 0x4c564c53;  // "SLVL"
constexpr size_t kFrameHeaderBytes = 12;
constexpr size_t kTextBytesMax = LivenessParser::kFrameBytesMax - kFrameHeaderBytes - 4;

// A closed data link is put down to its peer when nothing explains it after so many beats.
constexpr int kSuspicionBeats = 5;

// Ranks join one after another: the first beat of a peer may take so many times longer.
constexpr int kFirstBeatPatience = 8;

}  // namespace

std::vector<std::byte> encode_liveness_frame(const LivenessFrame& frame) {
  ByteWriter body;
  if (frame.type == LivenessFrameType::kFailed) {
    body.write(frame.culprit);
    body.write_bytes(bytes_of(std::string_view(frame.text).substr(0, kTextBytesMax)));
  }
  ByteWriter writer;
  writer.write(kFrameMagic);
  writer.write(static_cast<uint32_t>(frame.type));
  writer.write(static_cast<uint32_t>(body.bytes().size()));
  writer.write_bytes(body.bytes());
  return writer.take();
}

void LivenessParser::append(std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= room());
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<LivenessFrame>> LivenessParser::next() {
  ByteReader reader(buffer_);
  if (reader.left() < kFrameHeaderBytes) return std::optional<LivenessFrame>();
  const uint32_t magic = *reader.read<uint32_t>();
  const uint32_t type = *reader.read<uint32_t>();
  const uint32_t bytes = *reader.read<uint32_t>();
  if (magic != kFrameMagic) return Status::group("a frame with a wrong magic number");
  const bool is_failed = type == static_cast<uint32_t>(LivenessFrameType::kFailed);
  if (type < 1 || type > 3) return Status::group("a frame of an unknown type");
  if (is_failed ? bytes < 4 || bytes > kTextBytesMax + 4 : bytes != 0) {
    return Status::group("a frame of an impossible length");
  }
  if (reader.left() < bytes) return std::optional<LivenessFrame>();
  LivenessFrame frame{.type = static_cast<LivenessFrameType>(type)};
  if (is_failed) {
    frame.culprit = *reader.read<uint32_t>();
    frame.text = printable(text_of(*reader.read_bytes(bytes - 4)));
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(reader.position()));
  return std::optional<LivenessFrame>(std::move(frame));
}

struct LivenessMonitor::Watched {
  LivenessPeer peer;
  LivenessParser parser;
  bool is_open = true;     // still worth reading
  bool is_closed = false;  // closed without a word; judged after all peers are read
  bool was_heard = false;  // since the last beat
  bool was_ever_heard = false;
  int missed_beats = 0;
  int suspected_beats = 0;
};

LivenessMonitor::LivenessMonitor(GroupHealth& health, const LivenessOptions& options)
    : health_(health), options_(options) {}

Result<std::unique_ptr<LivenessMonitor>> LivenessMonitor::start(GroupHealth& health,
                                                                std::vector<LivenessPeer> peers,
                                                                const LivenessOptions& options) {
  std::unique_ptr<LivenessMonitor> monitor(new LivenessMonitor(health, options));
  for (LivenessPeer& peer : peers) {
    RETURN_IF_ERROR(set_non_blocking(peer.socket.get()));
    monitor->peers_.push_back(std::make_unique<Watched>());
    monitor->peers_.back()->peer = std::move(peer);
  }
  monitor->wake_fd_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!monitor->wake_fd_.is_valid()) return Status::from_errno("eventfd", errno);
  LivenessMonitor* self = monitor.get();
  monitor->waker_ticket_ = health.add_waker([self] { self->wake(); });
  Result<std::thread> thread = start_thread([self] { self->run(); });
  if (!thread.is_ok()) {
    health.remove_waker(monitor->waker_ticket_);
    return thread.status();
  }
  monitor->thread_ = std::move(*thread);
  return monitor;
}

LivenessMonitor::~LivenessMonitor() {
  if (!thread_.joinable()) return;
  is_stopping_.store(true);
  wake();
  thread_.join();
  health_.remove_waker(waker_ticket_);
  if (health_.notice().has_value()) {
    spread_failure();
    return;
  }
  for (const auto& peer : peers_) {
    if (peer->is_open) send_frame(*peer, {.type = LivenessFrameType::kGoodbye});
  }
}

void LivenessMonitor::wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_.get(), &one, sizeof(one));
}

void LivenessMonitor::run() {
  const Clock& clock = SteadyClock::instance();
  Nanoseconds next_beat = clock.now();
  while (!is_stopping_.load()) {
    read_all_peers();
    judge_closed();
    if (clock.now() >= next_beat) {
      beat();
      // Beats that this process slept through are not made up for.
      next_beat = std::max(next_beat + options_.beat_interval, clock.now());
    }
    if (health_.failed()) spread_failure();
    wait_for_events(next_beat);
  }
}

void LivenessMonitor::wait_for_events(Nanoseconds next_beat) {
  std::array<pollfd, kGroupSizeMax + 1> entries{};
  size_t count = 0;
  entries[count++] = {.fd = wake_fd_.get(), .events = POLLIN, .revents = 0};
  for (const auto& peer : peers_) {
    if (peer->is_open) {
      entries[count++] = {.fd = peer->peer.socket.get(), .events = POLLIN, .revents = 0};
    }
  }
  const Nanoseconds left = next_beat - SteadyClock::instance().now();
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  poll(entries.data(), count, static_cast<int>(std::max<int64_t>(timeout, 0)));
  uint64_t ignored = 0;
  (void)!read(wake_fd_.get(), &ignored, sizeof(ignored));
}

void LivenessMonitor::read_all_peers() {
  for (const auto& peer : peers_) {
    if (peer->is_open) read_peer(*peer);
  }
}

void LivenessMonitor::read_peer(Watched& peer) {
  std::array<std::byte, LivenessParser::kFrameBytesMax> buffer;
  // Bounded, so that a peer that floods us does not keep us from the others.
  for (int round = 0; round < 16 && peer.is_open; ++round) {
    const ssize_t done = recv(peer.peer.socket.get(), buffer.data(), peer.parser.room(), 0);
    if (done < 0 && is_would_block(errno)) return;
    if (done <= 0) {
      peer.is_open = false;
      peer.is_closed = true;
      return;
    }
    peer.was_heard = true;
    peer.was_ever_heard = true;
    peer.parser.append(std::span(buffer).first(static_cast<size_t>(done)));
    while (peer.is_open) {
      Result<std::optional<LivenessFrame>> frame = peer.parser.next();
      if (!frame.is_ok()) {
        peer.is_open = false;
        health_.fail(peer.peer.rank, "sent rubbish: " + frame.status().message());
        return;
      }
      if (!frame->has_value()) break;
      take_frame(peer, **frame);
    }
  }
}

void LivenessMonitor::take_frame(Watched& peer, const LivenessFrame& frame) {
  switch (frame.type) {
    case LivenessFrameType::kBeat:
      return;
    case LivenessFrameType::kGoodbye:
      peer.is_open = false;
      health_.mark_left(peer.peer.rank);
      return;
    case LivenessFrameType::kFailed:
      peer.is_open = false;
      health_.fail_as_told({.culprit = static_cast<int>(frame.culprit), .message = frame.text},
                           peer.peer.rank);
      return;
  }
}

void LivenessMonitor::judge_closed() {
  for (const auto& peer : peers_) {
    if (!peer->is_closed) continue;
    peer->is_closed = false;
    health_.fail(peer->peer.rank, "over " + peer->peer.link +
                                      " closed its connections without a goodbye: its process or "
                                      "machine has ended");
  }
}

void LivenessMonitor::beat() {
  for (const auto& peer : peers_) {
    if (!peer->is_open) continue;
    send_frame(*peer, {.type = LivenessFrameType::kBeat});
    judge_silence(*peer);
  }
  judge_suspicions();
}

void LivenessMonitor::judge_silence(Watched& peer) {
  peer.missed_beats = peer.was_heard ? 0 : peer.missed_beats + 1;
  peer.was_heard = false;
  const int missed_max = options_.missed_beats_max * (peer.was_ever_heard ? 1 : kFirstBeatPatience);
  if (peer.missed_beats < missed_max) return;
  const auto silence = options_.beat_interval * missed_max;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  health_.fail(peer.peer.rank, "over " + peer.peer.link + " has been silent for " +
                                   std::to_string(ms) +
                                   " ms: it is stopped, overloaded or unreachable");
}

void LivenessMonitor::judge_suspicions() {
  for (const GroupHealth::Suspicion& suspicion : health_.suspicions()) {
    for (const auto& peer : peers_) {
      if (peer->peer.rank != suspicion.rank || health_.has_left(suspicion.rank)) continue;
      if (++peer->suspected_beats >= kSuspicionBeats) {
        health_.fail(suspicion.rank, suspicion.reason);
      }
    }
  }
}

void LivenessMonitor::spread_failure() {
  const std::optional<FailureNotice> notice = health_.notice();
  if (has_spread_failure_ || !notice.has_value()) return;
  has_spread_failure_ = true;
  const LivenessFrame frame{.type = LivenessFrameType::kFailed,
                            .culprit = static_cast<uint32_t>(notice->culprit),
                            .text = notice->message};
  for (const auto& peer : peers_) send_frame(*peer, frame);
}

void LivenessMonitor::send_frame(Watched& peer, const LivenessFrame& frame) {
  const std::vector<std::byte> bytes = encode_liveness_frame(frame);
  // A peer whose buffer is full is stopped: it needs no more beats, and a frame cut short is
  // followed by the close.
  (void)!send(peer.peer.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace shoal::fabric
