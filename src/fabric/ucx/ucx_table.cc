#include "fabric/ucx/ucx_table.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/os/shared_library.h"

namespace shoal::fabric {
namespace {

constexpr const char* kLibrary = "libucp.so.0";
constexpr const char* kRemedy = "install UCX 1.13 or newer (libucx0), or use another --link";

// While it lives, the environment has this variable, unless it had it before.
class EnvironmentDefault {
 public:
  EnvironmentDefault(const char* name, const char* value)
      : name_(name), is_ours_(getenv(name) == nullptr && setenv(name, value, 0) == 0) {}
  ~EnvironmentDefault() {
    if (is_ours_) unsetenv(name_);
  }
  EnvironmentDefault(const EnvironmentDefault&) = delete;
  EnvironmentDefault& operator=(const EnvironmentDefault&) = delete;

 private:
  const char* name_;
  bool is_ours_;
};

// These options are the library's own and read while it is loaded: no call can set them. Its
// handlers would take crashes away from ours and from the sanitizers'. Its memory events rewrite
// the code of mmap, munmap and their like to keep a cache of registrations right, under the feet
// of threads that map models and of allocators that have their own hooks. And it would log to
// standard output, an error for each peer that leaves among it.
Result<SharedLibrary> open_library(const char* library) {
  const EnvironmentDefault no_handlers("UCX_ERROR_SIGNALS", "");
  const EnvironmentDefault no_hooks("UCX_MEM_EVENTS", "n");
  const EnvironmentDefault no_thread("UCX_VFS_ENABLE", "n");
  const EnvironmentDefault log_file("UCX_LOG_FILE", "stderr");
  const EnvironmentDefault log_level("UCX_LOG_LEVEL", "fatal");
  return SharedLibrary::open(library);
}

Status check_version(const UcxTable& table, const char* library) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  table.get_version(&major, &minor, &release);
  if (UCP_VERSION(major, minor) >= UCP_API_VERSION && major == UCP_API_MAJOR) return Status::ok();
  return Status::node(
      fmt::format("{} is UCX {}.{}.{}: {}", library, major, minor, release, kRemedy));
}

}  // namespace

Result<UcxTable> load_ucx_from(const char* library_name) {
  auto opened = open_library(library_name);
  if (!opened.is_ok()) {
    return Status::node(fmt::format("no UCX library: {}; {}", opened.status().message(), kRemedy));
  }
  SharedLibrary& library = *opened;
  UcxTable table;
  library.find("ucp_config_read", &table.config_read);
  library.find("ucp_config_modify", &table.config_modify);
  library.find("ucp_config_release", &table.config_release);
  library.find("ucp_init_version", &table.init_version);
  library.find("ucp_cleanup", &table.cleanup);
  library.find("ucp_get_version", &table.get_version);
  library.find("ucs_status_string", &table.status_string);
  library.find("ucp_worker_create", &table.worker_create);
  library.find("ucp_worker_destroy", &table.worker_destroy);
  library.find("ucp_worker_query", &table.worker_query);
  library.find("ucp_worker_release_address", &table.worker_release_address);
  library.find("ucp_worker_get_efd", &table.worker_get_efd);
  library.find("ucp_worker_arm", &table.worker_arm);
  library.find("ucp_worker_progress", &table.worker_progress);
  library.find("ucp_worker_set_am_recv_handler", &table.worker_set_am_recv_handler);
  library.find("ucp_ep_create", &table.ep_create);
  library.find("ucp_ep_print_info", &table.ep_print_info);
  library.find("ucp_ep_close_nbx", &table.ep_close_nbx);
  library.find("ucp_am_send_nbx", &table.am_send_nbx);
  library.find("ucp_am_recv_data_nbx", &table.am_recv_data_nbx);
  library.find("ucp_am_data_release", &table.am_data_release);
  library.find("ucp_request_check_status", &table.request_check_status);
  library.find("ucp_request_free", &table.request_free);
  if (!library.missing().empty()) {
    return Status::node(fmt::format("{} has no {}: {}", library_name, library.missing(), kRemedy));
  }
  RETURN_IF_ERROR(check_version(table, library_name));
  return table;
}

Result<const UcxTable*> load_ucx() {
  static const Result<UcxTable> table = load_ucx_from(kLibrary);
  if (!table.is_ok()) return table.status();
  return &*table;
}

}  // namespace shoal::fabric
