// Control groups: the folders that hold this process's limits on Linux.
//
// Both hierarchies are read: the unified one (v2) and, where mounted, a controller's own (v1). In a
// container the path that the kernel names may not be visible; the mount's root, which always is,
// then is the container's own group.
// Thread rule: pure reads of small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

struct ControlGroups {
  // This process's group first, then each group around it: a limit of any of them counts.
  std::vector<std::string> unified;     // v2
  std::vector<std::string> controller;  // v1, of the controller that was asked for
};

// root is put before /proc and /sys: empty but in tests.
ControlGroups find_control_groups(std::string_view controller, const std::string& root = {});

// The text of a small file without the white space at its end; empty where it cannot be read.
std::string read_small_file(const std::string& path);
// The number that it begins with; none for "max" and the like.
std::optional<uint64_t> read_small_number(const std::string& path);

}  // namespace shoal
