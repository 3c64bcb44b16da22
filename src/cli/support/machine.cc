#include "cli/support/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "base/os/control_groups.h"
#include "base/os/cpus.h"
#include "tensor/kernel_path.h"
#include "tensor/machine/features.h"

namespace shoal::cli {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The value of "name: value" or "name value" in a file of /proc; empty where there is none.
std::string field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t start = line.find_first_not_of("\t :", name.size());
    if (start == name.size() || start == std::string::npos) continue;
    return line.substr(start);
  }
  return {};
}

uint64_t memory_field(std::string_view name) {
  return parse_number(field("/proc/meminfo", name)).value_or(0) * 1024;
}

uint64_t control_group_memory_left() {
  const ControlGroups groups = find_control_groups("memory");
  uint64_t left = kUnlimited;
  for (const std::string& folder : groups.unified) {
    const auto limit = read_small_number(folder + "/memory.max");
    const auto usage = read_small_number(folder + "/memory.current");
    if (!limit || !usage) continue;
    // Page cache of files is counted as usage but is given back on demand.
    const uint64_t cache =
        parse_number(field(folder + "/memory.stat", "inactive_file")).value_or(0);
    const uint64_t used = *usage > cache ? *usage - cache : 0;
    left = std::min(left, *limit > used ? *limit - used : 0);
  }
  for (const std::string& folder : groups.controller) {
    const auto limit = read_small_number(folder + "/memory.limit_in_bytes");
    const auto usage = read_small_number(folder + "/memory.usage_in_bytes");
    if (!limit || !usage) continue;
    const uint64_t cache =
        parse_number(field(folder + "/memory.stat", "total_inactive_file")).value_or(0);
    const uint64_t used = *usage > cache ? *usage - cache : 0;
    left = std::min(left, *limit > used ? *limit - used : 0);
  }
  return left;
}

// What `ulimit -v` leaves to this process.
uint64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const uint64_t used = parse_number(field("/proc/self/status", "VmSize")).value_or(0) * 1024;
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

std::vector<CacheLevel> read_caches() {
  std::vector<CacheLevel> caches;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = read_small_file(folder + "level");
    const std::string type = read_small_file(folder + "type");
    const std::string size = read_small_file(folder + "size");  // "48K"
    if (level.empty() || type == "Instruction") continue;
    uint64_t bytes = parse_number(size).value_or(0);
    if (size.ends_with("K")) bytes *= 1024;
    if (size.ends_with("M")) bytes *= 1024 * 1024;
    caches.push_back({"L" + level + (type == "Data" ? "d" : ""), bytes});
  }
  return caches;
}

}  // namespace

uint64_t available_memory() {
  return std::min(
      {memory_field("MemAvailable"), control_group_memory_left(), address_space_left()});
}

uint32_t physical_cores_of(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string siblings = read_small_file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    cores.insert(siblings.empty() ? fmt::format("{}", cpu) : siblings);
  }
  return static_cast<uint32_t>(cores.size());
}

uint32_t usable_cores() {
  const uint32_t cores = physical_cores_of(affinity_cpus());
  return cores == 0 ? usable_cpus() : std::min(usable_cpus(), cores);
}

std::vector<std::string_view> kernels_here() {
  std::vector<std::string_view> names;
  for (const tensor::KernelPath path : tensor::runnable_kernel_paths()) {
    names.push_back(tensor::kernel_path_name(path));
  }
  return names;
}

std::vector<std::string_view> kernels_not_here() {
  std::vector<std::string_view> names;
  for (const tensor::KernelPath path : tensor::all_kernel_paths()) {
    if (!tensor::kernel_path_runs_here(path)) names.push_back(tensor::kernel_path_name(path));
  }
  return names;
}

Machine read_machine() {
  Machine machine;
  const tensor::CpuFeatures features = tensor::detect_cpu_features();
  machine.cpu = features.processor;
  utsname names{};
  if (uname(&names) == 0) {
    machine.architecture = names.machine;
    machine.system = fmt::format("{} {}", names.sysname, names.release);
    machine.host = names.nodename;
  }
  const std::vector<int> cpus = affinity_cpus();
  machine.logical_cpus = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  machine.allowed_cpus = static_cast<uint32_t>(cpus.size());
  machine.physical_cores = physical_cores_of(cpus);
  machine.cpu_quota = cpu_quota();
  machine.instructions = tensor::cpu_feature_names(features);
  machine.caches = read_caches();
  machine.memory_bytes = memory_field("MemTotal");
  machine.memory_available = available_memory();
  return machine;
}

}  // namespace shoal::cli
