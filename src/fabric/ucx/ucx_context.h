// UcxContext: what UCX opens once for a fabric: the devices and transports that it may use.
//
// Which these are, is the user's choice by UCX's own means (UCX_TLS, UCX_NET_DEVICES, ucx.conf).
// Thread rule: made and destroyed by one thread; links of any thread may use it meanwhile.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "fabric/ucx/ucx_table.h"

namespace shoal::fabric {

struct UcxProvider {
  const UcxTable* table = nullptr;
  std::string transports{};  // in place of UCX_TLS; empty: as the user has it
};

class UcxContext {
 public:
  // kNode when UCX finds nothing that it may use.
  static Result<std::unique_ptr<UcxContext>> open(const UcxProvider& provider);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  const UcxTable& table() const { return table_; }
  ucp_context_h handle() const { return handle_; }
  // kNode for a call that was refused: "UCX cannot <what>: Out of memory", with the limit on locked
  // memory where there is one.
  Status refused(std::string_view what, ucs_status_t status) const;

 private:
  UcxContext(const UcxTable& table, ucp_context_h handle) : table_(table), handle_(handle) {}
  const UcxTable& table_;
  ucp_context_h handle_;
};

}  // namespace shoal::fabric
