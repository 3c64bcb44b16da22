// spin_pause: tells the processor that this thread spins.
#pragma once

namespace shoal {

#if defined(__x86_64__)
inline void spin_pause() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void spin_pause() { __asm__ __volatile__("isb" ::: "memory"); }
#else
inline void spin_pause() {}
#endif

}  // namespace shoal
