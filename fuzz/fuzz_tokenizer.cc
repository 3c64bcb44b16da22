// Any bytes as a tokenizer.json, which then turns texts into ids and back.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/tokenizer.h"
#include "text_parts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = shoal::text::Tokenizer::from_json(json);
  if (tokenizer.is_ok()) {
    shoal::fuzz::use_tokenizer(**tokenizer);
  } else {
    shoal::fuzz::expect_no_panic(tokenizer.status());
  }
  return 0;
}
