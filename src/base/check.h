// CHECK: our own bugs end the process, always on, with the place and the broken condition.
//
// Not for what the world may do: bad files, peers and requests are statuses (base/status.h).
#pragma once

namespace shoal {

// Prints "file:line: CHECK failed: condition[: detail]" to standard error and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* detail);

}  // namespace shoal

#define CHECK(condition) CHECK_MSG(condition, nullptr)

// detail: a C string or nullptr, evaluated only on failure.
#define CHECK_MSG(condition, detail)                                   \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::shoal::check_failed(__FILE__, __LINE__, #condition, (detail)); \
    }                                                                  \
  } while (false)
