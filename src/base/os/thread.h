// start_thread: a new thread, or why the machine has none left.
//
// std::thread throws when it cannot start; this is the one place that catches it.
// Thread rule: safe from any thread. The caller owns the thread and joins or detaches it.
#pragma once

#include <functional>
#include <thread>

#include "base/status.h"

namespace shoal {

// kNode when no thread can be started; `run` is then never called.
Result<std::thread> start_thread(std::function<void()> run);

}  // namespace shoal
