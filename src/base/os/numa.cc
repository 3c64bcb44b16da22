#include "base/os/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <set>

#include "base/os/control_groups.h"
#include "base/os/cpus.h"

namespace shoal {
namespace {

constexpr std::string_view kFolder = "/sys/devices/system/node";

// "5" or "2-5" into numbers; false for anything else.
bool add_range(std::string_view text, std::set<int>* numbers) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  int first = 0;
  auto parsed = std::from_chars(begin, end, first);
  if (parsed.ec != std::errc()) return false;
  int last = first;
  if (parsed.ptr != end) {
    if (*parsed.ptr != '-') return false;
    parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || parsed.ptr != end) return false;
  }
  if (first < 0 || last < first || last > kListNumberMax) return false;
  for (int number = first; number <= last; ++number) numbers->insert(number);
  return true;
}

std::vector<int> read_number_list(const std::string& path) {
  return parse_number_list(read_small_file(path)).value_or(std::vector<int>());
}

Status bind_threads(const NumaDomain& domain) {
  const auto count = static_cast<size_t>(domain.cpus.back()) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  if (set == nullptr) return Status::node("no memory for a mask of processors");
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : domain.cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  const bool is_set = ::sched_setaffinity(0, bytes, set) == 0;
  const int error = errno;
  CPU_FREE(set);
  if (is_set) return Status::ok();
  return Status::from_errno(
      "cannot bind threads to the processors of NUMA domain " + std::to_string(domain.number),
      error);
}

}  // namespace

std::optional<std::vector<int>> parse_number_list(std::string_view text) {
  std::set<int> numbers;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (!add_range(text.substr(0, comma), &numbers)) return std::nullopt;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return std::nullopt;
  }
  return std::vector<int>(numbers.begin(), numbers.end());
}

std::vector<NumaDomain> numa_domains() { return numa_domains_of(affinity_cpus(), {}); }

std::vector<NumaDomain> numa_domains_of(const std::vector<int>& allowed, const std::string& root) {
  const std::string folder = root + std::string(kFolder);
  const std::vector<int> with_memory = read_number_list(folder + "/has_memory");
  std::vector<NumaDomain> domains;
  for (const int number : read_number_list(folder + "/online")) {
    NumaDomain domain;
    domain.number = number;
    for (const int cpu : read_number_list(folder + "/node" + std::to_string(number) + "/cpulist")) {
      if (std::ranges::find(allowed, cpu) != allowed.end()) domain.cpus.push_back(cpu);
    }
    domain.has_memory = std::ranges::find(with_memory, number) != with_memory.end();
    if (!domain.cpus.empty()) domains.push_back(std::move(domain));
  }
  return domains;
}

Result<NumaBinding> bind_to_domain(const NumaDomain& domain) {
  RETURN_IF_ERROR(bind_threads(domain));
  if (!domain.has_memory) return NumaBinding{};
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  const auto number = static_cast<size_t>(domain.number);
  std::vector<unsigned long> mask(number / kBits + 1);
  mask.back() |= 1UL << (number % kBits);
  // The call's last argument is one more than the bits that it reads.
  if (::syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), mask.size() * kBits + 1) == 0) {
    return NumaBinding{.holds_memory = true};
  }
  if (errno == EPERM || errno == ENOSYS) return NumaBinding{};
  return Status::from_errno("cannot bind memory to NUMA domain " + std::to_string(domain.number) +
                                "; is it outside this process's cpuset?",
                            errno);
}

}  // namespace shoal
