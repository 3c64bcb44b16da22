#include "fabric/link/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr LivenessOptions kFast{.beat_interval = milliseconds(10), .missed_beats_max = 5};

std::vector<LivenessPeer> one_peer(int rank, UniqueFd socket) {
  std::vector<LivenessPeer> peers;
  peers.push_back({.rank = rank, .link = "shm", .socket = std::move(socket)});
  return peers;
}

bool wait_until(const std::function<bool()>& condition, Nanoseconds at_most = seconds(10)) {
  const Deadline deadline = Deadline::after(at_most);
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// While this lives, no thread can be started: no address space holds a stack of this size.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&attributes_), 0);
    EXPECT_EQ(pthread_attr_getstacksize(&attributes_, &usual_), 0);
    set(size_t{1} << 50);
  }
  ~NoThreads() {
    set(usual_);
    pthread_attr_destroy(&attributes_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  void set(size_t bytes) {
    EXPECT_EQ(pthread_attr_setstacksize(&attributes_, bytes), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes_), 0);
  }
  pthread_attr_t attributes_;
  size_t usual_ = 0;
};

TEST(LivenessMonitor, WithoutAThreadItIsAnErrorAndLeavesNothingBehind) {
  auto sockets = make_socket_pair();
  GroupHealth health(0, {"a", "b"});
  {
    const NoThreads no_threads;
    const auto monitor =
        LivenessMonitor::start(health, one_peer(1, std::move(sockets->first)), kFast);
    EXPECT_EQ(monitor.status().code(), StatusCode::kNode);
  }
  // Wakes nobody that is gone.
  health.fail(1, "is gone");
  EXPECT_TRUE(health.failed());
}

TEST(LivenessFrame, SurvivesEveryCutOfTheStream) {
  std::vector<std::byte> stream;
  for (const LivenessFrame& frame :
       {LivenessFrame{.type = LivenessFrameType::kBeat},
        LivenessFrame{.type = LivenessFrameType::kFailed, .culprit = 3, .text = "rank 3 is gone"},
        LivenessFrame{.type = LivenessFrameType::kGoodbye}}) {
    const auto bytes = encode_liveness_frame(frame);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    LivenessParser parser;
    std::vector<LivenessFrame> frames;
    for (size_t at = 0; at < stream.size(); at += piece) {
      parser.append(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (true) {
        auto frame = parser.next();
        ASSERT_TRUE(frame.is_ok());
        if (!frame->has_value()) break;
        frames.push_back(**frame);
      }
    }
    ASSERT_EQ(frames.size(), 3);
    EXPECT_EQ(frames[1].culprit, 3);
    EXPECT_EQ(frames[1].text, "rank 3 is gone");
  }
}

TEST(LivenessFrame, ALongTextIsCutToTheLimitAndRubbishIsRefused) {
  const auto bytes = encode_liveness_frame(
      {.type = LivenessFrameType::kFailed, .culprit = 0, .text = std::string(5000, 'x')});
  EXPECT_LE(bytes.size(), LivenessParser::kFrameBytesMax);
  // C17 d: a length that is not to be believed.
  for (const size_t at : {0, 4, 8, 11}) {
    auto spoiled = encode_liveness_frame({.type = LivenessFrameType::kBeat});
    spoiled[at] = std::byte{0x80};
    LivenessParser parser;
    parser.append(spoiled);
    EXPECT_FALSE(parser.next().is_ok()) << at;
  }
}

TEST(LivenessMonitor, TwoMonitorsKeepEachOtherAliveAndSayGoodbye) {
  SocketPair pair = *make_socket_pair();
  GroupHealth health0(0, {"a", "b"});
  GroupHealth health1(1, {"a", "b"});
  auto monitor0 = *LivenessMonitor::start(health0, one_peer(1, std::move(pair.first)), kFast);
  auto monitor1 = *LivenessMonitor::start(health1, one_peer(0, std::move(pair.second)), kFast);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(health0.failed());
  EXPECT_FALSE(health1.failed());
  monitor1.reset();
  EXPECT_TRUE(wait_until([&] { return health0.has_left(1); }));
  EXPECT_FALSE(health0.failed());
}

TEST(LivenessMonitor, AClosedSocketIsADeathAtOnce) {
  SocketPair pair = *make_socket_pair();
  GroupHealth health(0, {"a", "b"});
  auto monitor = *LivenessMonitor::start(health, one_peer(1, std::move(pair.first)), {});
  pair.second.reset();
  EXPECT_TRUE(wait_until([&] { return health.failed(); }, milliseconds(800)));
  EXPECT_THAT(health.failure().message(),
              HasSubstr("rank 1 (b) over shm closed its connections without a goodbye"));
}

TEST(LivenessMonitor, SilenceIsADeathAfterTheMissedBeats) {
  SocketPair pair = *make_socket_pair();
  GroupHealth health(0, {"a", "b"});
  auto monitor = *LivenessMonitor::start(health, one_peer(1, std::move(pair.first)), kFast);
  const auto beat = encode_liveness_frame({.type = LivenessFrameType::kBeat});
  ASSERT_TRUE(write_all(pair.second.get(), beat, Deadline::after(seconds(1))).is_ok());
  EXPECT_TRUE(wait_until([&] { return health.failed(); }));
  EXPECT_THAT(health.failure().message(), HasSubstr("has been silent for 50 ms"));
}

TEST(LivenessMonitor, RubbishBreaksTheGroup) {
  SocketPair pair = *make_socket_pair();
  GroupHealth health(0, {"a", "b"});
  auto monitor = *LivenessMonitor::start(health, one_peer(1, std::move(pair.first)), kFast);
  const std::vector<std::byte> rubbish(100, std::byte{0x55});
  ASSERT_TRUE(write_all(pair.second.get(), rubbish, Deadline::after(seconds(1))).is_ok());
  EXPECT_TRUE(wait_until([&] { return health.failed(); }));
  EXPECT_THAT(health.failure().message(), HasSubstr("rank 1 (b) sent rubbish"));
}

TEST(LivenessMonitor, AFailureIsToldToThePeersWithItsCulprit) {
  SocketPair pair = *make_socket_pair();
  GroupHealth health0(0, {"a", "b", "c"});
  GroupHealth health1(1, {"a", "b", "c"});
  auto monitor0 = *LivenessMonitor::start(health0, one_peer(1, std::move(pair.first)), kFast);
  auto monitor1 = *LivenessMonitor::start(health1, one_peer(0, std::move(pair.second)), kFast);
  health0.fail(2, "has burnt down");
  EXPECT_TRUE(wait_until([&] { return health1.failed(); }));
  EXPECT_EQ(health1.culprit(), 2);
  EXPECT_EQ(health1.failure().message(), "rank 2 (c) has burnt down (told by rank 0 (a))");
}

TEST(LivenessMonitor, ASuspicionWithoutAnotherExplanationBecomesTheFailure) {
  SocketPair pair = *make_socket_pair();
  GroupHealth health(0, {"a", "b"});
  GroupHealth peer(1, {"a", "b"});
  auto monitor = *LivenessMonitor::start(health, one_peer(1, std::move(pair.first)), kFast);
  auto other = *LivenessMonitor::start(peer, one_peer(0, std::move(pair.second)), kFast);
  health.suspect(1, "over tcp closed its data connection: a test");
  EXPECT_TRUE(wait_until([&] { return health.failed(); }));
  EXPECT_EQ(health.failure().message(), "rank 1 (b) over tcp closed its data connection: a test");
}

}  // namespace
}  // namespace shoal::fabric
