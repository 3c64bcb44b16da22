#include "base/foreign/quote.h"

#include <fmt/format.h>

namespace shoal {
namespace {
constexpr size_t kShownBytesMax = 120;
}

std::string quote(std::string_view name) {
  std::string out = "'";
  for (const char c : name.substr(0, kShownBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (name.size() > kShownBytesMax) out += fmt::format("... ({} bytes)", name.size());
  return out + "'";
}

}  // namespace shoal
