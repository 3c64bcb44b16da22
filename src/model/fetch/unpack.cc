#include "model/fetch/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "model/fetch/sha256.h"
#include "model/write_all.h"

namespace shoal::model {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;
constexpr int kMembersMax = 10'000;

struct FreeArchive {
  void operator()(archive* a) const { ::archive_read_free(a); }
};
using ArchivePtr = std::unique_ptr<archive, FreeArchive>;

Status broken(const UnpackRequest& request, archive* a) {
  const char* reason = ::archive_error_string(a);
  return Status::request(
      fmt::format("{}: {}", request.archive, reason != nullptr ? reason : "the archive is broken"));
}

// Positions the archive at the member's bytes.
Status find_member(const UnpackRequest& request, archive* a) {
  for (int i = 0; i < kMembersMax; ++i) {
    archive_entry* entry = nullptr;
    const int result = ::archive_read_next_header(a, &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) return broken(request, a);
    const char* name = ::archive_entry_pathname(entry);
    if (name != nullptr && request.member == name) return Status::ok();
  }
  return Status::request(fmt::format("{}: holds no {}", request.archive, request.member));
}

Status copy_member(const UnpackRequest& request, archive* a, int fd) {
  std::vector<std::byte> buffer(kReadBytes);
  Sha256 hash;
  uint64_t total = 0;
  while (true) {
    const la_ssize_t read = ::archive_read_data(a, buffer.data(), buffer.size());
    if (read < 0) return broken(request, a);
    if (read == 0) break;
    const auto piece = std::span(buffer).first(static_cast<size_t>(read));
    total += piece.size();
    if (total > request.bytes) break;
    hash.update(piece);
    const Status written = write_all(fd, piece, request.target);
    if (written.code() == StatusCode::kRequest) {
      return Status::request(written.message() +
                             ", or set SHOAL_CACHE to a folder on another disk");
    }
    RETURN_IF_ERROR(written);
    if (request.on_progress) request.on_progress(total);
  }
  if (total != request.bytes) {
    return Status::request(fmt::format("{}: {} has {} {} bytes, expected {}", request.archive,
                                       request.member, total > request.bytes ? "more than" : "only",
                                       std::min(total, request.bytes), request.bytes));
  }
  const std::string found = hash.finish();
  if (found != request.sha256) {
    return Status::request(
        fmt::format("{}: {} has the SHA-256 {}, expected {}: it is not the "
                    "published file",
                    request.archive, request.member, found, request.sha256));
  }
  if (::fsync(fd) != 0) return Status::from_errno("cannot flush " + request.target, errno);
  return Status::ok();
}

}  // namespace

Status unpack(const UnpackRequest& request) {
  const ArchivePtr a(::archive_read_new());
  if (a == nullptr) return Status::node("no memory for reading an archive");
  ::archive_read_support_format_zip(a.get());
  if (::archive_read_open_filename(a.get(), request.archive.c_str(), kReadBytes) != ARCHIVE_OK) {
    return broken(request, a.get());
  }
  RETURN_IF_ERROR(find_member(request, a.get()));
  UniqueFd fd(::open(request.target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.is_valid()) return Status::from_errno("cannot create " + request.target, errno);
  return copy_member(request, a.get(), fd.get());
}

}  // namespace shoal::model
