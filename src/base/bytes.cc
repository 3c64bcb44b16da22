#include "base/bytes.h"

#include <string>

namespace shoal {

Status ByteReader::short_of(uint64_t wanted) const {
  return Status::request("needs " + std::to_string(wanted) + " bytes at offset " +
                         std::to_string(position_) + ", " + std::to_string(left()) + " are left");
}

Result<std::span<const std::byte>> ByteReader::read_bytes(uint64_t count) {
  if (left() < count) return short_of(count);
  const auto piece = bytes_.subspan(position_, count);
  position_ += count;
  return piece;
}

Result<std::string_view> ByteReader::read_string(uint64_t length_max) {
  const size_t start = position_;
  ASSIGN_OR_RETURN(const uint64_t length, read<uint64_t>());
  if (length > length_max || length > left()) {
    position_ = start;
    return Status::request("text of " + std::to_string(length) + " bytes at offset " +
                           std::to_string(start) + ": at most " + std::to_string(length_max) +
                           " are allowed and " + std::to_string(bytes_.size() - start) +
                           " are left");
  }
  ASSIGN_OR_RETURN(const auto piece, read_bytes(length));
  return std::string_view(reinterpret_cast<const char*>(piece.data()), piece.size());
}

Status ByteReader::skip(uint64_t count) {
  if (left() < count) return short_of(count);
  position_ += count;
  return Status::ok();
}

void ByteWriter::write_bytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void ByteWriter::write_string(std::string_view text) {
  write<uint64_t>(text.size());
  write_bytes(bytes_of(text));
}

}  // namespace shoal
