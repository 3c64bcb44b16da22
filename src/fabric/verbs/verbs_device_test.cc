// Groups of processes over this machine's RDMA device: what a peer's death, a bad wire and a pulled
// cable do, and that the device can be used at once again. ./dev test runs them in a guest whose
// devices are soft-RoCE's; those that need a wire want its topology "wire" (tests/guest/start.sh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fabric/local_launch.h"
#include "fabric/message.h"
#include "fabric/testing/thread_group.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr int kTimes = 20;
// The silence limit is 1.2 s; an emulated machine's clock runs ahead of what it does. Two seconds
// are asked for where machines are real (local_launch_test.cc).
constexpr Nanoseconds kNoticedWithin = seconds(10);

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char piece[512];
  while (pipe != nullptr && fgets(piece, sizeof(piece), pipe.get()) != nullptr) text += piece;
  return text;
}

void shell(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

// Undoes at its end what a test has done to the wire.
class Undo {
 public:
  explicit Undo(std::string command) : command_(std::move(command)) {}
  ~Undo() { shell(command_); }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;

 private:
  std::string command_;
};

// What the kernel holds for all devices: queue pairs, regions, completion queues, contexts.
std::string resources() { return output_of("rdma resource show"); }

class VerbsDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_rdma_device()) GTEST_SKIP() << kNoRdmaDevice;
    resources_ = resources();
    ASSERT_THAT(resources_, HasSubstr("qp "));
  }
  void TearDown() override {
    if (resources_.empty()) return;
    // A killed process is taken apart after its parent has heard of it.
    const Deadline deadline = Deadline::after(seconds(10));
    while (resources() != resources_ && !deadline.expired()) {
      std::this_thread::sleep_for(milliseconds(20));
    }
    EXPECT_EQ(resources(), resources_) << output_of("rdma resource show qp");
  }
  static bool has_topology(std::string_view name) {
    const char* guest = std::getenv("SHOAL_GUEST");
    return guest != nullptr && guest == name;
  }
  static bool has_wire() { return has_topology("wire"); }

  static std::unique_ptr<LocalGroup> launch() {
    LocalGroupOptions options;
    options.size = 2;
    options.link = LinkKind::kVerbs;
    options.child_command = {"/proc/self/exe", "--child", "echo"};
    options.fabric.slots = {.payload_bytes = 16 * 1024, .count = 4};
    auto group = LocalGroup::launch(std::move(options), Deadline::after(seconds(30)));
    EXPECT_TRUE(group.is_ok()) << group.status().to_string();
    return group.is_ok() ? std::move(*group) : nullptr;
  }
  static Status echo(Fabric& fabric, size_t bytes) {
    const auto sent = test_bytes(bytes, bytes);
    RETURN_IF_ERROR(send_message(fabric.endpoint(1), sent, test_wait(fabric)));
    ASSIGN_OR_RETURN(const auto back,
                     receive_message(fabric.endpoint(1), 1 << 27, test_wait(fabric)));
    return back == sent ? Status::ok() : Status::request("the echo differs");
  }
  // A group that works, then `end`, while a message of 1 MB is under way: the survivor names the
  // peer in time.
  template <typename End>
  void expect_named(const End& end, const std::string& also = "") {
    const auto group = launch();
    ASSERT_NE(group, nullptr);
    Fabric& fabric = group->fabric();
    ASSERT_TRUE(echo(fabric, 100'000).is_ok());
    ASSERT_NE(resources(), resources_);
    std::this_thread::sleep_for(milliseconds(150));  // beats have been exchanged
    end(*group);
    const Nanoseconds begin = SteadyClock::instance().now();
    Status status;
    while (status.is_ok()) status = echo(fabric, 1'000'000);
    EXPECT_LT(SteadyClock::instance().now() - begin, kNoticedWithin);
    EXPECT_EQ(status.code(), StatusCode::kGroup);
    EXPECT_EQ(fabric.health().culprit(), 1) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("rank 1 (node-1) over verbs"));
    EXPECT_THAT(status.message(), HasSubstr(also));
    kill(group->pid(1), SIGKILL);
  }

 private:
  std::string resources_;
};

// C72: nothing of the dead one is left, neither here nor in the kernel.
TEST_F(VerbsDevice, APeerKilledIsNamedAndTheDeviceServesTheNextGroupAtOnce) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    expect_named([](LocalGroup& group) { kill(group.pid(1), SIGKILL); });
  }
}

TEST_F(VerbsDevice, APeerStoppedIsNamedAndTheDeviceServesTheNextGroupAtOnce) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    expect_named([](LocalGroup& group) { kill(group.pid(1), SIGSTOP); });
  }
}

TEST_F(VerbsDevice, AWireThatLosesAndReordersPacketsLosesNoMessage) {
  if (!has_wire()) GTEST_SKIP() << "needs the guest's topology \"wire\"";
  const Undo undo("tc qdisc del dev veth0 root; tc qdisc del dev veth1 root");
  for (const std::string end : {"veth0", "veth1"}) {
    shell("tc qdisc add dev " + end + " root netem loss 5% delay 100us reorder 5%");
  }
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const auto group = launch();
    ASSERT_NE(group, nullptr);
    for (const size_t bytes : {size_t{0}, size_t{1000}, size_t{20'000}, size_t{200'000}}) {
      const Status status = echo(group->fabric(), bytes);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
  }
}

// C71. An MTU of 1500 bytes leaves room for RDMA's 1024.
TEST_F(VerbsDevice, AWireWithAnotherMtuAtEachEndCarriesLargeMessages) {
  if (!has_wire()) GTEST_SKIP() << "needs the guest's topology \"wire\"";
  const Undo undo("ip link set veth1 mtu 4500");
  shell("ip link set veth1 mtu 1500");
  {
    const auto group = launch();
    ASSERT_NE(group, nullptr);
    const Status status = echo(group->fabric(), 300'000);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
}

TEST_F(VerbsDevice, APulledCableIsNamedByItsPeerAndServesTheNextGroupOncePluggedIn) {
  if (!has_wire()) GTEST_SKIP() << "needs the guest's topology \"wire\"";
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    expect_named([](LocalGroup& /*group*/) { shell("ip link set veth0 down"); });
    // What falls with a link that goes down: its routes.
    shell(
        "ip link set veth0 up && ip link set veth1 up && "
        "ip route replace 192.0.2.2 dev veth0 src 192.0.2.1 table 100 && "
        "ip route replace 192.0.2.1 dev veth1 src 192.0.2.2 table 100");
  }
}

uint64_t sent_through(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/statistics/tx_bytes");
  uint64_t bytes = 0;
  file >> bytes;
  return bytes;
}

TEST_F(VerbsDevice, TwoCablesBothCarryLargeMessages) {
  if (!has_topology("wires")) GTEST_SKIP() << "needs the guest's topology \"wires\"";
  const auto group = launch();
  ASSERT_NE(group, nullptr);
  const std::vector<LinkPort>& ports = group->fabric().endpoint(1).info().ports;
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[0].device, "rxe0");
  EXPECT_EQ(ports[1].device, "rxe2");
  const uint64_t first = sent_through("veth0");
  const uint64_t second = sent_through("veth2");
  const Status status = echo(group->fabric(), 4'000'000);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_GT(sent_through("veth0") - first, 1'000'000U);
  EXPECT_GT(sent_through("veth2") - second, 1'000'000U);
}

// The one over which the nodes say that they are alive goes on.
TEST_F(VerbsDevice, TwoCablesOfWhichOneIsPulledBreakTheGroupInTime) {
  if (!has_topology("wires")) GTEST_SKIP() << "needs the guest's topology \"wires\"";
  for (int i = 0; i < 3 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    expect_named([](LocalGroup& /*group*/) { shell("ip link set veth2 down"); }, "rxe2 port 1");
    {
      const auto group = launch();
      ASSERT_NE(group, nullptr);
      EXPECT_EQ(group->fabric().endpoint(1).info().ports.size(), 1U);
    }
    shell(
        "ip link set veth2 up && ip link set veth3 up && "
        "ip route replace 198.51.100.2 dev veth2 src 198.51.100.1 table 100 && "
        "ip route replace 198.51.100.1 dev veth3 src 198.51.100.2 table 100");
  }
}

}  // namespace
}  // namespace shoal::fabric
