#include "model/fetch/pip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "base/os/child_start.h"
#include "base/unique_fd.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr auto kGraceAfterTerm = std::chrono::seconds(2);
constexpr size_t kShownLogBytes = 600;

// Everything that pip has written below the folder.
uint64_t bytes_below(const fs::path& folder) {
  uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;  // pip removes files while we look
    if (!it->is_regular_file(gone)) continue;
    const uintmax_t size = it->file_size(gone);
    if (!gone) total += size;
  }
  return total;
}

std::vector<std::string> environment_with_temporary_folder(const std::string& folder) {
  constexpr std::string_view kName = "TMPDIR=";
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(kName)) out.emplace_back(*entry);
  }
  out.push_back(std::string(kName) + folder);
  return out;
}

// A child that outlives neither this object nor the thread that made it.
class Child {
 public:
  static Result<Child> start(const PipDownload& download, const std::string& wheels,
                             const std::string& log) {
    UniqueFd null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    UniqueFd log_fd(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!null_fd.is_valid() || !log_fd.is_valid()) {
      return Status::from_errno("cannot open " + log, errno);
    }
    ChildStart start;
    start.command = {download.python,
                     "-m",
                     "pip",
                     "download",
                     "--no-deps",
                     "--only-binary=:all:",
                     "--no-cache-dir",
                     "--no-input",
                     "--disable-pip-version-check",
                     "--progress-bar",
                     "off",
                     "--dest",
                     wheels,
                     download.requirement};
    start.environment = environment_with_temporary_folder(download.folder);
    start.descriptors = {{null_fd.get(), STDIN_FILENO},
                         {log_fd.get(), STDOUT_FILENO},
                         {log_fd.get(), STDERR_FILENO}};
    start.death_signal = SIGTERM;
    const Result<pid_t> pid = start_child(start);
    if (pid.is_ok()) return Child(*pid);
    if (pid.status().code() != StatusCode::kRequest) return pid.status();
    return Status::request(pid.status().message() +
                           ": install Python 3 with pip (on Debian: apt install python3-pip)");
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGTERM);
    const Deadline grace = Deadline::after(kGraceAfterTerm);
    while (!has_ended() && !grace.expired()) std::this_thread::sleep_for(kLookEvery);
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

  // Collects the child once it has ended; exit_status() is then set.
  bool has_ended() {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    exit_status_ = ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    pid_ = -1;
    return true;
  }
  // -1 when a signal ended it.
  int exit_status() const { return exit_status_; }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  int exit_status_ = -1;
};

std::string end_of_log(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.is_ok()) return "";
  const auto bytes = (*file)->bytes();
  const auto tail = bytes.last(std::min(bytes.size(), kShownLogBytes));
  std::string text(reinterpret_cast<const char*>(tail.data()), tail.size());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

struct Remedy {
  std::string_view sign;  // in pip's output
  std::string_view advice;
};

// In this order: a failed connection ends in "no matching distribution", too.
constexpr std::array kRemedies = std::to_array<Remedy>({
    {"No module named pip", "pip is missing: install it (on Debian: apt install python3-pip)"},
    {"No space left",
     "the disk is full: free some space, or set SHOAL_CACHE to a folder on another "
     "disk"},
    {"CERTIFICATE_VERIFY_FAILED",
     "the index's certificate is not trusted: set PIP_CERT to your "
     "organisation's certificates"},
    {"SSLError", "the connection to the package index failed: check proxy and certificates"},
    {"ConnectionError",
     "there is no connection to the package index: check the network and the "
     "proxy settings"},
    {"ConnectTimeout",
     "the package index does not answer: check the network and the proxy "
     "settings"},
    {"ProxyError", "the proxy does not let the download through: check the proxy settings"},
    {"No matching distribution",
     "the package index that pip uses does not have it: check pip's "
     "index settings (pip config list)"},
});

Status explain_failure(const PipDownload& download, const std::string& log) {
  const auto file = MappedFile::open(log);
  std::string_view text;
  if (file.is_ok()) {
    text = {reinterpret_cast<const char*>((*file)->bytes().data()), (*file)->bytes().size()};
  }
  std::string_view advice = "see pip's message";
  for (const Remedy& remedy : kRemedies) {
    if (text.find(remedy.sign) == std::string_view::npos) continue;
    advice = remedy.advice;
    break;
  }
  return Status::request(fmt::format("pip could not download {}: {}. It said: {}",
                                     download.requirement, advice, end_of_log(log)));
}

Result<std::string> find_wheel(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".whl") return it->path().string();
  }
  return Status::request("pip has left no wheel in " + folder);
}

}  // namespace

Result<std::string> download_wheel(const PipDownload& download, const Deadline& deadline) {
  const std::string wheels = download.folder + "/wheels";
  const std::string log = download.folder + "/pip.log";
  std::error_code error;
  fs::create_directories(wheels, error);
  if (error) return Status::from_errno("cannot create " + wheels, error.value());
  ASSIGN_OR_RETURN(Child child, Child::start(download, wheels, log));
  while (!child.has_ended()) {
    if (deadline.expired()) {
      return Status::request(
          fmt::format("the download of {} took too long and was ended after {} bytes: try again "
                      "with a better connection",
                      download.requirement, bytes_below(download.folder)));
    }
    if (download.on_progress) {
      download.on_progress(std::min(bytes_below(download.folder), download.bytes_total));
    }
    std::this_thread::sleep_for(std::min<Nanoseconds>(kLookEvery, deadline.left()));
  }
  if (child.exit_status() != 0) return explain_failure(download, log);
  return find_wheel(wheels);
}

}  // namespace shoal::model
