#include "fabric/ucx/ucx_context.h"

#include <fmt/format.h>
#include <sys/resource.h>

namespace shoal::fabric {
namespace {

// UCX says only "Input/output error" or "Out of memory" where the limit on locked memory kept it
// from registering memory (C73).
std::string locked_memory_hint() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(
      "; memory that may be locked: {} KiB (with RDMA devices, ulimit -l unlimited may help)",
      limit.rlim_cur / 1024);
}

Status refusal(const UcxTable& table, std::string_view what, ucs_status_t status) {
  return Status::node(
      fmt::format("UCX cannot {}: {}{}", what, table.status_string(status), locked_memory_hint()));
}

}  // namespace

Status UcxContext::refused(std::string_view what, ucs_status_t status) const {
  return refusal(table_, what, status);
}

Result<std::unique_ptr<UcxContext>> UcxContext::open(const UcxProvider& provider) {
  const UcxTable& table = *provider.table;
  ucp_config_t* config = nullptr;
  ucs_status_t status = table.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return refusal(table, "read its configuration", status);
  if (!provider.transports.empty()) {
    status = table.config_modify(config, "TLS", provider.transports.c_str());
  }
  ucp_context_h handle = nullptr;
  if (status == UCS_OK) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    // The endpoints of a fabric may belong to different threads.
    params.mt_workers_shared = 1;
    status = table.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &handle);
  }
  table.config_release(config);
  if (status != UCS_OK) return refusal(table, "start (UCX_TLS may exclude all there is)", status);
  return std::unique_ptr<UcxContext>(new UcxContext(table, handle));
}

UcxContext::~UcxContext() { table_.cleanup(handle_); }

}  // namespace shoal::fabric
