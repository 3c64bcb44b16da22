// RawSafetensors: bytes of a safetensors file from a header text and a data section, unchecked.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace shoal::model::testing {

inline std::vector<std::byte> raw_safetensors(std::string_view header,
                                              std::span<const std::byte> data) {
  ByteWriter out;
  out.write_string(header);
  out.write_bytes(data);
  return out.take();
}

inline std::vector<std::byte> raw_safetensors(std::string_view header, size_t data_bytes) {
  std::vector<std::byte> data(data_bytes);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  return raw_safetensors(header, data);
}

}  // namespace shoal::model::testing
