#include "cli/eval/reference.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "base/mapped_file.h"

namespace shoal::cli {

Result<Reference> Reference::read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::open(path));
  constexpr size_t kPositionBytes = kTop * (sizeof(uint16_t) + sizeof(float));
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.empty() || bytes.size() % kPositionBytes != 0) {
    return Status::request(
        fmt::format("{} has {} bytes, which is no multiple of {}: it is no .top64 reference", path,
                    bytes.size(), kPositionBytes));
  }
  const size_t entries = bytes.size() / kPositionBytes * kTop;
  Reference reference;
  reference.ids_.resize(entries);
  reference.log_probabilities_.resize(entries);
  std::memcpy(reference.ids_.data(), bytes.data(), entries * sizeof(uint16_t));
  std::memcpy(reference.log_probabilities_.data(), bytes.data() + entries * sizeof(uint16_t),
              entries * sizeof(float));
  for (const float log_probability : reference.log_probabilities_) {
    if (!(log_probability <= 1e-3F)) {
      return Status::request(
          fmt::format("{} holds {} where a log probability belongs: it is no .top64 reference",
                      path, log_probability));
    }
  }
  return reference;
}

Reference::Position Reference::position(size_t i) const {
  return {.ids = std::span(ids_).subspan(i * kTop, kTop),
          .log_probabilities = std::span(log_probabilities_).subspan(i * kTop, kTop)};
}

}  // namespace shoal::cli
