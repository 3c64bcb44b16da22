// LivenessMonitor: one thread that knows whether the peers of a group are alive.
//
// Beside each endpoint runs a stream socket. The thread sends a beat on each at an even pace,
// whatever the process computes, and breaks the group when a socket closes without a goodbye, when
// a peer has been silent for a number of our own beats (so our own pauses are not held against a
// peer), or when a peer tells of a failure. It tells the peers of our failures at once, with the
// culprit, so that all ranks name the same one. Frames are specified in docs/fabric.md.
// Thread rule: start and destroy from one thread. Owns the sockets, borrows the health.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/fabric.h"
#include "fabric/group_health.h"

namespace shoal::fabric {

enum class LivenessFrameType : uint32_t { kBeat = 1, kFailed = 2, kGoodbye = 3 };

struct LivenessFrame {
  LivenessFrameType type = LivenessFrameType::kBeat;
  uint32_t culprit = 0;  // kFailed
  std::string text{};    // kFailed: printable
};

std::vector<std::byte> encode_liveness_frame(const LivenessFrame& frame);

// Cuts a byte stream into frames; holds at most one incomplete frame.
class LivenessParser {
 public:
  static constexpr size_t kFrameBytesMax = 512;

  void append(std::span<const std::byte> bytes);
  // The next whole frame; none when more bytes are needed; kGroup for rubbish.
  Result<std::optional<LivenessFrame>> next();
  // Room for append before next() must be called.
  size_t room() const { return kFrameBytesMax - buffer_.size(); }

 private:
  std::vector<std::byte> buffer_;
};

struct LivenessPeer {
  int rank = 0;
  std::string link;  // as EndpointInfo::link
  UniqueFd socket;   // connected, past the handshake
};

class LivenessMonitor {
 public:
  static Result<std::unique_ptr<LivenessMonitor>> start(GroupHealth& health,
                                                        std::vector<LivenessPeer> peers,
                                                        const LivenessOptions& options);
  // Tells the peers goodbye, or the failure, and closes.
  ~LivenessMonitor();
  LivenessMonitor(const LivenessMonitor&) = delete;
  LivenessMonitor& operator=(const LivenessMonitor&) = delete;

 private:
  struct Watched;
  LivenessMonitor(GroupHealth& health, const LivenessOptions& options);

  void run();
  void wait_for_events(Nanoseconds next_beat);
  void read_all_peers();
  void read_peer(Watched& peer);
  void take_frame(Watched& peer, const LivenessFrame& frame);
  void judge_closed();
  void beat();
  void judge_silence(Watched& peer);
  void judge_suspicions();
  void spread_failure();
  void send_frame(Watched& peer, const LivenessFrame& frame);
  void wake();

  GroupHealth& health_;
  const LivenessOptions options_;
  std::vector<std::unique_ptr<Watched>> peers_;
  UniqueFd wake_fd_;
  uint64_t waker_ticket_ = 0;
  std::atomic<bool> is_stopping_{false};
  bool has_spread_failure_ = false;
  std::thread thread_;
};

}  // namespace shoal::fabric
