// What the test program does when it is started as a child of a LocalGroup.
#pragma once

#include <string>

namespace shoal::fabric {

// "echo": returns every message of rank 0 until rank 0 leaves; status 0 then, 3 after a failure,
//   with the failure on standard error.
// "launch-shm", "launch-tcp", "launch-ucx": launches a group of two, writes the pid of its child to
//   standard error and waits for ever.
// "meet": goes from step to step in mapped memory until the group ends; status as "echo".
// "exit": ends with status 9 before joining.
// Returns the exit status.
int run_child_mode(const std::string& mode);

}  // namespace shoal::fabric
