#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "tensor/machine/features.h"

namespace shoal::tensor {
namespace {

struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegisters cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidRegisters r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool has_bit(uint32_t word, int bit) { return ((word >> bit) & 1U) != 0; }

// Register state that the operating system saves (XCR0); only legal with OSXSAVE.
uint64_t saved_states() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

std::string processor_name() {
  if (__get_cpuid_max(0x80000000U, nullptr) < 0x80000004U) return "x86-64";
  std::array<char, 49> name{};
  for (uint32_t i = 0; i < 3; ++i) {
    const CpuidRegisters r = cpuid(0x80000002U + i, 0);
    std::memcpy(name.data() + i * 16, &r, 16);
  }
  std::string text(name.data());
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

// Bit numbers: Intel's and AMD's manuals, CPUID leaves 1 and 7; XCR0 bits 1-2 SSE and AVX, 5-7
// AVX-512, 17-18 AMX tiles. Linux wants a process to ask for AMX before its first use.
CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  features.processor = processor_name();
  const CpuidRegisters basic = cpuid(1, 0);
  if (!has_bit(basic.ecx, 27)) return features;  // no OSXSAVE
  const uint64_t states = saved_states();
  const bool saves_avx = (states & 0x6) == 0x6;
  const bool saves_avx512 = (states & 0xe6) == 0xe6;
  const bool saves_tiles = (states & 0x60000) == 0x60000;
  const CpuidRegisters extended = cpuid(7, 0);
  const CpuidRegisters extended1 = cpuid(7, 1);
  features.avx2 = saves_avx && has_bit(basic.ecx, 28) && has_bit(extended.ebx, 5) &&
                  has_bit(basic.ecx, 12) && has_bit(basic.ecx, 29);
  features.avx_vnni = features.avx2 && has_bit(extended1.eax, 4);
  features.avx512 = saves_avx512 && features.avx2 && has_bit(extended.ebx, 16) &&
                    has_bit(extended.ebx, 17) && has_bit(extended.ebx, 30) &&
                    has_bit(extended.ebx, 31);
  features.avx512_vnni = features.avx512 && has_bit(extended.ecx, 11);
  features.avx512_vbmi = features.avx512 && has_bit(extended.ecx, 1);
  features.avx512_bf16 = features.avx512 && has_bit(extended1.eax, 5);
  features.avx512_fp16 = features.avx512 && has_bit(extended.edx, 23);
  features.amx_tile = saves_tiles && has_bit(extended.edx, 24);
  features.amx_int8 = features.amx_tile && has_bit(extended.edx, 25);
  features.amx_bf16 = features.amx_tile && has_bit(extended.edx, 22);
  return features;
}

// ARCH_REQ_XCOMP_PERM of arch_prctl for state 18, tile data (Linux, Documentation/arch/x86/xstate).
bool allow_amx_tiles() {
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace shoal::tensor
