// Groups of real processes: joining, killing, stopping, and what is left behind.
#include "fabric/local_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "fabric/link/join_info.h"
#include "fabric/message.h"
#include "fabric/shm/mapped_memory.h"
#include "fabric/testing/thread_group.h"
#include "fabric/ucx/ucx_table.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class LocalGroupTest : public testing::TestWithParam<LinkKind> {
 protected:
  void SetUp() override {
    if (GetParam() == LinkKind::kVerbs && !has_rdma_device()) GTEST_SKIP() << kNoRdmaDevice;
    if (const auto ucx = load_ucx(); GetParam() == LinkKind::kUcx && !ucx.is_ok()) {
      GTEST_SKIP() << ucx.status().message();
    }
  }
  static Result<std::unique_ptr<LocalGroup>> launch(int size, const std::string& mode = "echo") {
    LocalGroupOptions options;
    options.size = size;
    options.link = GetParam();
    options.child_command = {"/proc/self/exe", "--child", mode};
    options.fabric.slots = {.payload_bytes = 64 * 1024, .count = 4};
    return LocalGroup::launch(std::move(options), Deadline::after(seconds(30)));
  }
  // The silence limit is 1.2 s; the clock of the guest with RDMA runs ahead of what it does.
  static Nanoseconds noticed_within() {
    return GetParam() == LinkKind::kVerbs ? seconds(10) : seconds(2);
  }
  static std::string link() { return std::string(link_kind_name(GetParam())); }
};

INSTANTIATE_TEST_SUITE_P(Links, LocalGroupTest,
                         testing::Values(LinkKind::kShm, LinkKind::kTcp, LinkKind::kVerbs,
                                         LinkKind::kUcx),
                         [](const auto& info) { return std::string(link_kind_name(info.param)); });

Status echo_once(Fabric& fabric, int peer, size_t bytes) {
  const auto sent = test_bytes(bytes, bytes);
  RETURN_IF_ERROR(send_message(fabric.endpoint(peer), sent, test_wait(fabric)));
  ASSIGN_OR_RETURN(const auto back,
                   receive_message(fabric.endpoint(peer), 1 << 27, test_wait(fabric)));
  return back == sent ? Status::ok() : Status::request("the echo differs");
}

// Waits for the group to fail; how long it took.
Nanoseconds time_to_failure(Fabric& fabric, int peer) {
  const Nanoseconds begin = SteadyClock::instance().now();
  std::vector<std::byte> buffer(1);
  const Status status = receive_message_into(fabric.endpoint(peer), buffer, test_wait(fabric));
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  return SteadyClock::instance().now() - begin;
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST_P(LocalGroupTest, ChildrenJoinAnswerAndEndByThemselvesWhenTheGroupIsClosed) {
  const size_t descriptors = open_descriptors();
  {
    auto group = launch(3);
    ASSERT_TRUE(group.is_ok()) << group.status().to_string();
    Fabric& fabric = (*group)->fabric();
    EXPECT_EQ(fabric.size(), 3);
    EXPECT_EQ(fabric.link_name(), link());
    EXPECT_EQ(fabric.node_name(2), "node-2");
    for (const size_t bytes : {size_t{0}, size_t{10}, size_t{300'000}}) {
      for (int peer = 1; peer < 3; ++peer) {
        const Status status = echo_once(fabric, peer, bytes);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
    }
    const pid_t child = (*group)->pid(1);
    const Nanoseconds begin = SteadyClock::instance().now();
    group->reset();
    EXPECT_LT(SteadyClock::instance().now() - begin, noticed_within());
    EXPECT_EQ(kill(child, 0), -1);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST_P(LocalGroupTest, AKilledNodeIsNamedByAllWithinTwoSeconds) {
  auto group = launch(3);
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  Fabric& fabric = (*group)->fabric();
  ASSERT_TRUE(echo_once(fabric, 1, 1000).is_ok());
  ASSERT_TRUE(echo_once(fabric, 2, 1000).is_ok());
  kill((*group)->pid(1), SIGKILL);
  EXPECT_LT(time_to_failure(fabric, 2), noticed_within());
  EXPECT_EQ(fabric.health().culprit(), 1);
  EXPECT_THAT(fabric.health().failure().message(),
              HasSubstr("rank 1 (node-1) over " + link() + " closed its connections"));
  // Whoever is asked, the answer is the same.
  EXPECT_THAT(echo_once(fabric, 2, 10).message(), HasSubstr("rank 1 (node-1)"));
  const Status status = (*group)->wait_for_exit(Deadline::after(seconds(5)));
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (node-1) was ended by signal 9"));
}

// C74, its first half: stopped is noticed by silence; continued, the node finds its group is over.
TEST_P(LocalGroupTest, AStoppedNodeIsNamedWithinTwoSecondsAndEndsByItselfWhenContinued) {
  auto group = launch(3);
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  Fabric& fabric = (*group)->fabric();
  // The first beats have been exchanged after this.
  std::this_thread::sleep_for(milliseconds(300));
  ASSERT_TRUE(echo_once(fabric, 1, 1000).is_ok());
  kill((*group)->pid(1), SIGSTOP);
  EXPECT_LT(time_to_failure(fabric, 2), noticed_within());
  EXPECT_EQ(fabric.health().culprit(), 1);
  EXPECT_THAT(fabric.health().failure().message(),
              HasSubstr("rank 1 (node-1) over " + link() + " has been silent for 1200 ms"));
  kill((*group)->pid(1), SIGCONT);
  // Both children end with status 3, the one that was continued by what it is told.
  const Status status = (*group)->wait_for_exit(Deadline::after(seconds(5)));
  EXPECT_THAT(status.message(), HasSubstr("ended with status 3"));
}

TEST_P(LocalGroupTest, AStoppedNodeDoesNotKeepTheGroupFromBeingClosed) {
  auto group = launch(2);
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  const pid_t child = (*group)->pid(1);
  kill(child, SIGSTOP);
  const Nanoseconds begin = SteadyClock::instance().now();
  group->reset();
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(4));
  EXPECT_EQ(kill(child, 0), -1);
}

// C79: a busy node is not a dead node.
TEST_P(LocalGroupTest, ANodeThatComputesForLongerThanTheSilenceLimitIsNotGivenUp) {
  auto group = launch(2);
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  const Nanoseconds begin = SteadyClock::instance().now();
  double sum = 0;
  while (SteadyClock::instance().now() - begin < seconds(2)) sum += 1e-9;
  EXPECT_GT(sum, 0);
  EXPECT_TRUE(echo_once((*group)->fabric(), 1, 1000).is_ok());
}

TEST_P(LocalGroupTest, AChildThatEndsBeforeItJoinsIsReportedWithItsStatus) {
  const Nanoseconds begin = SteadyClock::instance().now();
  auto group = launch(3, "exit");
  ASSERT_FALSE(group.is_ok());
  // Both end; which one is seen first is open.
  EXPECT_THAT(group.status().message(),
              testing::ContainsRegex("rank [12] \\(node-[12]\\) ended with status 9"));
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(5));
}

// A process that is gone, or only waits for its new parent to notice.
bool has_ended(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  return stat.empty() || stat.find(") Z") != std::string::npos;
}

TEST_P(LocalGroupTest, KillingTheLauncherLeavesNoProcessBehind) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const std::string mode = "launch-" + link();
  const pid_t launcher = fork();
  if (launcher == 0) {
    dup2(fds[1], STDERR_FILENO);
    execl("/proc/self/exe", "fabric_test", "--child", mode.c_str(), nullptr);
    _exit(127);
  }
  close(fds[1]);
  std::string line(64, '\0');
  const ssize_t bytes = read(fds[0], line.data(), line.size());
  close(fds[0]);
  ASSERT_GT(bytes, 0);
  const pid_t child = std::stoi(line);
  EXPECT_FALSE(has_ended(child));
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  const Deadline deadline = Deadline::after(seconds(5));
  while (!has_ended(child) && !deadline.expired()) std::this_thread::sleep_for(milliseconds(2));
  EXPECT_TRUE(has_ended(child));
}

// Steps in mapped memory with all, until the group fails; how long the last one took.
Nanoseconds time_to_failed_step(Fabric& fabric, const std::function<void()>& before_it) {
  for (int step = 0; step < 100; ++step) {
    fabric.mapped()->publish({});
    EXPECT_TRUE(fabric.mapped()->meet("a test", test_wait(fabric)).is_ok());
  }
  before_it();
  const Nanoseconds begin = SteadyClock::instance().now();
  Status status;
  while (status.is_ok()) {
    fabric.mapped()->publish({});
    status = fabric.mapped()->meet("a test", test_wait(fabric));
  }
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  return SteadyClock::instance().now() - begin;
}

TEST(LocalGroup, ANodeKilledOrStoppedInMappedMemoryIsNamedByAllWithinTwoSeconds) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    LocalGroupOptions options;
    options.size = 3;
    options.child_command = {"/proc/self/exe", "--child", "meet"};
    auto group = LocalGroup::launch(std::move(options), Deadline::after(seconds(30)));
    ASSERT_TRUE(group.is_ok()) << group.status().to_string();
    Fabric& fabric = (*group)->fabric();
    // The first beats have been exchanged after this.
    std::this_thread::sleep_for(milliseconds(300));
    const auto end = [&] { kill((*group)->pid(1), signal); };
    EXPECT_LT(time_to_failed_step(fabric, end), seconds(2));
    EXPECT_EQ(fabric.health().culprit(), 1);
    EXPECT_THAT(fabric.health().failure().message(), HasSubstr("rank 1 (node-1) over shm "));
    kill((*group)->pid(1), SIGCONT);
    EXPECT_EQ((*group)->wait_for_exit(Deadline::after(seconds(5))).code(), StatusCode::kGroup);
  }
}

// While it lives, no file of this process or its children grows beyond so many bytes, memfds
// included.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(LocalGroup, WithoutRoomForTheMemoryOfAllRanksTheGroupWorksThroughSlots) {
  LocalGroupOptions options;
  options.size = 3;
  options.child_command = {"/proc/self/exe", "--child", "echo"};
  options.fabric.slots = {.payload_bytes = 64 * 1024, .count = 2};
  ASSERT_GT(MappedMemory::size_bytes(mapped_layout(options.fabric.slots, 3)), 1024 * 1024);
  const FileSizeLimit limit(1024 * 1024);  // a link's memory fits
  auto group = LocalGroup::launch(std::move(options), Deadline::after(seconds(30)));
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  Fabric& fabric = (*group)->fabric();
  EXPECT_EQ(fabric.mapped(), nullptr);
  EXPECT_EQ(fabric.endpoint(1).info().mapped, nullptr);
  for (const int peer : {1, 2}) {
    const Status status = echo_once(fabric, peer, 300'000);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
}

TEST(LocalGroup, AProgramThatDoesNotExistIsNamed) {
  LocalGroupOptions options;
  options.child_command = {"/no/such/program"};
  auto group = LocalGroup::launch(std::move(options), Deadline::after(seconds(5)));
  ASSERT_FALSE(group.is_ok());
  EXPECT_THAT(group.status().message(), HasSubstr("/no/such/program: No such file"));
}

TEST(LocalGroup, AGroupOfOneNeedsNoChildren) {
  LocalGroupOptions options;
  options.size = 1;
  auto group = LocalGroup::launch(std::move(options), Deadline::after(seconds(5)));
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  EXPECT_EQ((*group)->fabric().size(), 1);
}

TEST(ChooseLocalLink, IsSharedMemoryWhereTheMachineHasRoomForIt) {
  const LinkChoice choice = choose_local_link(2);
  EXPECT_EQ(choice.link, LinkKind::kShm);
  EXPECT_EQ(choice.reason, "");
}

// The limit of a process cannot be raised again: it is lowered in one of its own.
TEST(ChooseLocalLink, IsTcpWhereThereAreTooFewDescriptorsForSharedMemory) {
  const auto lower_and_choose = [] {
    const rlimit limit{.rlim_cur = 150, .rlim_max = 150};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const LinkChoice few = choose_local_link(2);
    const LinkChoice many = choose_local_link(9);
    const bool is_right = few.link == LinkKind::kShm && many.link == LinkKind::kTcp &&
                          many.reason.find("150 are allowed") != std::string::npos;
    _exit(is_right ? 0 : 1);
  };
  EXPECT_EXIT(lower_and_choose(), testing::ExitedWithCode(0), "");
}

TEST(JoinInfo, IsReadBackAndEveryCutOrImpossibleSizeOfItIsTheGroupsFailure) {
  JoinInfo info;
  info.setup.size = 2;
  info.node_names = {"a", "b"};
  const auto message = encode_join_info(info);
  const auto body = std::span(message).subspan(8);
  const auto read = decode_join_info(body);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(read->node_names, info.node_names);
  for (size_t cut = 0; cut < body.size(); ++cut) {
    EXPECT_EQ(decode_join_info(body.first(cut)).status().code(), StatusCode::kGroup) << cut;
  }
  info.setup.size = kGroupSizeMax + 1;
  const auto wrong = encode_join_info(info);
  EXPECT_EQ(decode_join_info(std::span(wrong).subspan(8)).status().code(), StatusCode::kGroup);
}

TEST(LocalGroup, JoiningWithoutALauncherIsAnError) {
  auto fabric = join_local_group(UniqueFd(dup(STDERR_FILENO)), Deadline::after(seconds(1)));
  EXPECT_FALSE(fabric.is_ok());
}

}  // namespace
}  // namespace shoal::fabric
