#include "fabric/testing/child_modes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "fabric/local_launch.h"
#include "fabric/message.h"
#include "fabric/shm/mapped_memory.h"

namespace shoal::fabric {
namespace {

int echo() {
  auto joined = join_local_group(UniqueFd(kJoinFd), Deadline::after(std::chrono::seconds(30)));
  if (!joined.is_ok()) {
    std::fprintf(stderr, "child: %s\n", joined.status().to_string().c_str());
    return 4;
  }
  Fabric& fabric = **joined;
  while (true) {
    const WaitPolicy wait{.spin = fabric.spin(),
                          .deadline = Deadline::after(std::chrono::hours(1))};
    auto message = receive_message(fabric.endpoint(0), 1 << 27, wait);
    Status status = message.status();
    if (status.is_ok()) status = send_message(fabric.endpoint(0), *message, wait);
    if (status.is_ok()) continue;
    if (fabric.health().has_left(0)) return 0;
    std::fprintf(stderr, "child %d: %s\n", fabric.rank(), status.to_string().c_str());
    return 3;
  }
}

int meet() {
  auto joined = join_local_group(UniqueFd(kJoinFd), Deadline::after(std::chrono::seconds(30)));
  if (!joined.is_ok()) return 4;
  Fabric& fabric = **joined;
  while (true) {
    fabric.mapped()->publish({});
    const WaitPolicy wait{.spin = fabric.spin(),
                          .deadline = Deadline::after(std::chrono::hours(1))};
    if (fabric.mapped()->meet("a test", wait).is_ok()) continue;
    return fabric.health().has_left(0) ? 0 : 3;
  }
}

int launch_and_wait(LinkKind link) {
  LocalGroupOptions options;
  options.link = link;
  options.child_command = {"/proc/self/exe", "--child", "echo"};
  auto group = LocalGroup::launch(std::move(options), Deadline::after(std::chrono::seconds(30)));
  if (!group.is_ok()) return 5;
  std::fprintf(stderr, "%d\n", (*group)->pid(1));
  while (true) pause();
}

}  // namespace

int run_child_mode(const std::string& mode) {
  if (mode == "echo") return echo();
  if (mode == "meet") return meet();
  constexpr std::string_view kLaunch = "launch-";
  if (mode.starts_with(kLaunch)) {
    const auto link = parse_link_kind(std::string_view(mode).substr(kLaunch.size()));
    return link.is_ok() ? launch_and_wait(*link) : 2;
  }
  if (mode == "exit") return 9;
  std::fprintf(stderr, "unknown child mode %s\n", mode.c_str());
  return 2;
}

}  // namespace shoal::fabric

// In place of gtest_main's: the test program is its own child.
int main(int argc, char** argv) {
  if (argc >= 3 && std::strcmp(argv[1], "--child") == 0) {
    shoal::init_logging("child");
    spdlog::set_level(spdlog::level::off);
    return shoal::fabric::run_child_mode(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  // Broken groups are this program's daily bread.
  spdlog::set_level(spdlog::level::off);
  return RUN_ALL_TESTS();
}
