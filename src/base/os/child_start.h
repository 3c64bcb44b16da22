// start_child: fork and execute, with exactly the descriptors that the child shall have.
//
// Thread rule: safe from any thread. The child gets `death_signal` when the thread that started it
// ends, so that thread must live as long as the child is wanted.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal {

struct ChildDescriptor {
  int ours = -1;
  int theirs = -1;
};

struct ChildStart {
  std::vector<std::string> command;      // argv; [0] without a slash is looked for in PATH
  std::vector<std::string> environment;  // "NAME=value"; empty: ours
  // One for each of 0 to 2 at least; everything else is closed. Numbers of the child from 0 on,
  // without a gap.
  std::vector<ChildDescriptor> descriptors;
  int death_signal = SIGKILL;
  bool ignores_interrupt = false;  // the terminal's Ctrl-C is for us alone
};

// The child's pid, once it executes the command; the caller waits for it. kRequest: there is no
// such program, or it may not be executed. kNode: the machine refuses a process or a descriptor.
Result<pid_t> start_child(const ChildStart& start);

}  // namespace shoal
