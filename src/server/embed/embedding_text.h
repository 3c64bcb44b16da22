// Embeddings as clients read them: vectors of length 1, as JSON numbers or as base64.
//
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace shoal::server {

// The first `dimensions` of a pooled vector, at most all of them, scaled to the length 1. A vector
// of zeros stays one.
std::vector<float> normalize(std::span<const float> values, size_t dimensions);

// "[0.25,-1e-05]": the shortest numbers that give the same floats back.
std::string to_numbers(std::span<const float> values);
// The floats' bytes, little-endian float32, in base64 (RFC 4648).
std::string to_base64(std::span<const float> values);

}  // namespace shoal::server
