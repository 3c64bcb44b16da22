// printable(): foreign text made fit for logs and terminals.
//
// Thread rule: a pure function.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace shoal::fabric {

// The text with a '?' for every byte that is not printable ASCII.
inline std::string printable(std::string_view foreign) {
  std::string text(foreign);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// The bytes as text, borrowed.
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace shoal::fabric
