#include "server/embed/embedding_text.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <bit>
#include <climits>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace shoal::server {

static_assert(std::endian::native == std::endian::little);

std::vector<float> normalize(std::span<const float> values, size_t dimensions) {
  CHECK(dimensions <= values.size());
  const auto kept = values.first(dimensions);
  double squares = 0;
  for (const float value : kept) squares += double{value} * value;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  std::vector<float> out;
  out.reserve(kept.size());
  for (const float value : kept) out.push_back(static_cast<float>(value * scale));
  return out;
}

std::string to_numbers(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) fmt::format_to(std::back_inserter(text), "{},", value);
  if (!values.empty()) text.pop_back();
  return text + "]";
}

std::string to_base64(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  CHECK(bytes.size() <= INT_MAX);
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends it with a zero
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

}  // namespace shoal::server
