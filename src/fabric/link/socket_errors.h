// What errno says of a socket.
//
// Thread rule: pure functions.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace shoal::fabric {

inline std::string errno_text(int error) { return std::generic_category().message(error); }

// Nothing is wrong: try again later.
inline bool is_would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace shoal::fabric
