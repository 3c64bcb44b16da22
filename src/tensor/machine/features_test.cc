#include "tensor/machine/features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tensor/machine/machine_probe.h"

namespace shoal::tensor {
namespace {

// The kernel's list of this processor's flags, with a space on both sides of each; empty where
// there is none.
std::string flags_of_the_system() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0) return line.substr(line.find(':') + 1) + " ";
  }
  return {};
}

TEST(CpuFeatures, AgreeWithTheSystemsList) {
  const std::string flags = flags_of_the_system();
  const CpuFeatures features = detect_cpu_features();
  // An emulated Arm processor sees the list of the machine beneath.
  if (flags.empty() || features.processor == "64-bit Arm") {
    GTEST_SKIP() << "the system lists no x86 flags";
  }
  const auto has = [&](const std::string& flag) {
    return flags.find(" " + flag + " ") != std::string::npos;
  };
  EXPECT_EQ(features.avx2, has("avx2"));
  EXPECT_EQ(features.avx_vnni, has("avx_vnni"));
  EXPECT_EQ(features.avx512, has("avx512bw") && has("avx512vl") && has("avx512dq"));
  EXPECT_EQ(features.avx512_vnni, has("avx512_vnni"));
  EXPECT_EQ(features.avx512_vbmi, has("avx512vbmi"));
  EXPECT_EQ(features.avx512_bf16, has("avx512_bf16"));
  EXPECT_EQ(features.avx512_fp16, has("avx512_fp16"));
  EXPECT_EQ(features.amx_tile, has("amx_tile"));
  EXPECT_EQ(features.amx_int8, has("amx_int8"));
  EXPECT_EQ(features.amx_bf16, has("amx_bf16"));
}

TEST(CpuFeatures, HaveAProcessorNameAndNamesForWhatIsThere) {
  CpuFeatures features = detect_cpu_features();
  EXPECT_FALSE(features.processor.empty());
  features = {};
  EXPECT_TRUE(cpu_feature_names(features).empty());
  features.neon_dot = features.amx_bf16 = true;
  EXPECT_EQ(cpu_feature_names(features), (std::vector<std::string_view>{"amx_bf16", "neon_dot"}));
}

TEST(MachineProbe, MeasuresSomethingOfTheRightSize) {
  auto pool = std::move(WorkerPool::create({.workers = 1})).value();
  const double bandwidth = measure_read_bandwidth(*pool, size_t{4} << 20).value().bytes_per_second;
  EXPECT_GT(bandwidth, 1e7);
  EXPECT_LT(bandwidth, 1e13);
  const double peak = measure_float_peak(*pool);
  EXPECT_GT(peak, 1e7);
  EXPECT_LT(peak, 1e13);
}

}  // namespace
}  // namespace shoal::tensor
