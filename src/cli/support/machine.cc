#include "cli/support/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace shoal::cli {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  std::string out = text.str();
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<uint64_t> read_number(const std::string& path) {
  return parse_number(read_text(path));
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

// This process's control group folders, innermost first, up to the root.
std::vector<std::string> control_groups() {
  std::string path = "/";
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back("/sys/fs/cgroup" + path);
    path.resize(std::max<size_t>(path.rfind('/'), 1));
    if (path == "/") break;
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

uint64_t control_group_memory_left() {
  uint64_t left = kUnlimited;
  for (const std::string& folder : control_groups()) {
    const auto limit = read_number(folder + "/memory.max");
    const auto usage = read_number(folder + "/memory.current");
    if (!limit || !usage) continue;
    // Page cache of files is counted as usage but is given back on demand.
    const uint64_t cache =
        parse_number(field(folder + "/memory.stat", "inactive_file")).value_or(0);
    const uint64_t used = *usage > cache ? *usage - cache : 0;
    left = std::min(left, *limit > used ? *limit - used : 0);
  }
  const std::string v1 = "/sys/fs/cgroup/memory";
  const auto limit = read_number(v1 + "/memory.limit_in_bytes");
  const auto usage = read_number(v1 + "/memory.usage_in_bytes");
  if (limit && usage) left = std::min(left, *limit > *usage ? *limit - *usage : 0);
  return left;
}

// Cores; 0: no limit.
double control_group_cpus() {
  double quota = 0;
  for (const std::string& folder : control_groups()) {
    std::istringstream text(read_text(folder + "/cpu.max"));  // "200000 100000" or "max 100000"
    double allowed = 0;
    double period = 0;
    if (!(text >> allowed >> period) || period <= 0) continue;
    quota = quota == 0 ? allowed / period : std::min(quota, allowed / period);
  }
  return quota;
}

std::vector<int> allowed_cpu_list() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

uint32_t physical_cores_of(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string siblings =
        read_text(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    cores.insert(siblings.empty() ? fmt::format("{}", cpu) : siblings);
  }
  return static_cast<uint32_t>(cores.size());
}

std::vector<CacheLevel> read_caches() {
  std::vector<CacheLevel> caches;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = read_text(folder + "level");
    const std::string type = read_text(folder + "type");
    const std::string size = read_text(folder + "size");  // "48K"
    if (level.empty() || type == "Instruction") continue;
    uint64_t bytes = parse_number(size).value_or(0);
    if (size.ends_with("K")) bytes *= 1024;
    if (size.ends_with("M")) bytes *= 1024 * 1024;
    caches.push_back({"L" + level + (type == "Data" ? "d" : ""), bytes});
  }
  return caches;
}

std::vector<std::string> read_instructions() {
  static constexpr std::array<std::string_view, 16> kOfInterest = {
      "sse4_2",      "avx",      "avx2",     "fma",      "f16c",        "avx_vnni",
      "avx512f",     "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16",
      "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"};
  static constexpr std::array<std::string_view, 7> kArm = {"asimd", "asimdhp", "asimddp", "i8mm",
                                                           "bf16",  "sve",     "sve2"};
  std::string flags = field("/proc/cpuinfo", "flags");
  if (flags.empty()) flags = field("/proc/cpuinfo", "Features");
  std::istringstream words(flags);
  const std::set<std::string> present{std::istream_iterator<std::string>(words), {}};
  std::vector<std::string> found;
  for (const std::string_view name : kOfInterest) {
    if (present.contains(std::string(name))) found.emplace_back(name);
  }
  for (const std::string_view name : kArm) {
    if (present.contains(std::string(name))) found.emplace_back(name);
  }
  return found;
}

}  // namespace

uint64_t available_memory() {
  return std::min(memory_field("MemAvailable"), control_group_memory_left());
}

uint32_t usable_cores() {
  const std::vector<int> cpus = allowed_cpu_list();
  auto cores = static_cast<double>(physical_cores_of(cpus));
  const double quota = control_group_cpus();
  if (quota > 0) cores = std::min(cores, quota);
  return std::max<uint32_t>(1, static_cast<uint32_t>(std::floor(cores)));
}

Machine read_machine() {
  Machine machine;
  machine.cpu = field("/proc/cpuinfo", "model name");
  utsname names{};
  if (uname(&names) == 0) {
    machine.architecture = names.machine;
    machine.system = fmt::format("{} {}", names.sysname, names.release);
    machine.host = names.nodename;
  }
  if (machine.cpu.empty()) machine.cpu = machine.architecture;
  const std::vector<int> cpus = allowed_cpu_list();
  machine.logical_cpus = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  machine.allowed_cpus = static_cast<uint32_t>(cpus.size());
  machine.physical_cores = physical_cores_of(cpus);
  machine.cpu_quota = control_group_cpus();
  machine.instructions = read_instructions();
  machine.caches = read_caches();
  machine.memory_bytes = memory_field("MemTotal");
  machine.memory_available = available_memory();
  return machine;
}

}  // namespace shoal::cli
