// Futexes in memory that processes share, for sleeping until a word changes.
//
// Thread rule: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace shoal::fabric {

// Sleeps while the word is `seen`, at most so long; may return early for no reason.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, Nanoseconds at_most);
// Wakes one sleeper.
void futex_wake(std::atomic<uint32_t>& word);

}  // namespace shoal::fabric
