// Machine: what this computer has, and how much of it this process may use.
//
// Limits of control groups (v2, and v1's where mounted) and the affinity mask are taken into
// account, so that a container is not overrun. Linux: read from /proc and /sys.
// Thread rule: pure reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::cli {

struct CacheLevel {
  std::string name;  // "L1d", "L2", "L3"
  uint64_t bytes = 0;
};

struct Machine {
  std::string cpu;           // its name
  std::string architecture;  // "x86_64"
  std::string system;        // "Linux 6.1.0"
  std::string host;
  uint32_t logical_cpus = 0;                   // online
  uint32_t physical_cores = 0;                 // of those this process may run on
  uint32_t allowed_cpus = 0;                   // by the affinity mask
  double cpu_quota = 0;                        // cores by the control group; 0: no limit
  std::vector<std::string_view> instructions;  // the sets that matter for the kernels
  std::vector<CacheLevel> caches;              // of one core
  uint64_t memory_bytes = 0;
  uint64_t memory_available = 0;  // see available_memory()
};

Machine read_machine();

// min(what the kernel calls available, what the control group and `ulimit -v` leave).
uint64_t available_memory();

// Names of kernel paths: those that run here, the fastest last, and the others.
std::vector<std::string_view> kernels_here();
std::vector<std::string_view> kernels_not_here();

// Of these processors, those that share none of a core's units.
uint32_t physical_cores_of(const std::vector<int>& cpus);

// min(usable_cpus(), physical cores of those), at least 1: more threads only wait for each other.
uint32_t usable_cores();

}  // namespace shoal::cli
