#include "base/os/control_groups.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace shoal {
namespace {

// mount/a/b, mount/a, mount.
std::vector<std::string> with_parents(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

// True for "cpu" in "cpu,cpuacct".
bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) break;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

ControlGroups find_control_groups(std::string_view controller, const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::string unified_path;
  std::string controller_path;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "3:cpu,cpuacct:/path", or "0::/path"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) unified_path = line.substr(second + 1);
    if (lists(controllers, controller)) controller_path = line.substr(second + 1);
  }
  return {.unified = with_parents(mount, unified_path),
          .controller = with_parents(mount + "/" + std::string(controller), controller_path)};
}

std::string read_small_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  std::string out = text.str();
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

std::optional<uint64_t> read_small_number(const std::string& path) {
  const std::string text = read_small_file(path);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace shoal
