// UcxTable: the calls of libucp (UCX) that Shoal makes, as a table of functions.
//
// load_ucx() fills it from the system's library at run time (libucp.so.0), so one binary runs with
// UCX and without. The types are those of <ucp/api/ucp.h>, which is needed to build and brings no
// dependency to the binary. The functions mean what their namesakes ucp_* and ucs_* do.
// Thread rule: the first load_ucx() before other threads read the environment, which it changes for
// a moment; else as the library's: one thread at a time per worker.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdio>

#include "base/status.h"

namespace shoal::fabric {

struct UcxTable {
  ucs_status_t (*config_read)(const char* prefix, const char* file,
                              ucp_config_t** config) = nullptr;
  ucs_status_t (*config_modify)(ucp_config_t* config, const char* name,
                                const char* value) = nullptr;
  void (*config_release)(ucp_config_t* config) = nullptr;
  ucs_status_t (*init_version)(unsigned major, unsigned minor, const ucp_params_t* params,
                               const ucp_config_t* config, ucp_context_h* context) = nullptr;
  void (*cleanup)(ucp_context_h context) = nullptr;
  void (*get_version)(unsigned* major, unsigned* minor, unsigned* release) = nullptr;
  const char* (*status_string)(ucs_status_t status) = nullptr;

  ucs_status_t (*worker_create)(ucp_context_h context, const ucp_worker_params_t* params,
                                ucp_worker_h* worker) = nullptr;
  void (*worker_destroy)(ucp_worker_h worker) = nullptr;
  ucs_status_t (*worker_query)(ucp_worker_h worker, ucp_worker_attr_t* attributes) = nullptr;
  void (*worker_release_address)(ucp_worker_h worker, ucp_address_t* address) = nullptr;
  ucs_status_t (*worker_get_efd)(ucp_worker_h worker, int* fd) = nullptr;
  ucs_status_t (*worker_arm)(ucp_worker_h worker) = nullptr;
  unsigned (*worker_progress)(ucp_worker_h worker) = nullptr;
  ucs_status_t (*worker_set_am_recv_handler)(ucp_worker_h worker,
                                             const ucp_am_handler_param_t* param) = nullptr;

  ucs_status_t (*ep_create)(ucp_worker_h worker, const ucp_ep_params_t* params,
                            ucp_ep_h* ep) = nullptr;
  void (*ep_print_info)(ucp_ep_h ep, FILE* stream) = nullptr;
  ucs_status_ptr_t (*ep_close_nbx)(ucp_ep_h ep, const ucp_request_param_t* param) = nullptr;
  ucs_status_ptr_t (*am_send_nbx)(ucp_ep_h ep, unsigned id, const void* header, size_t header_bytes,
                                  const void* buffer, size_t count,
                                  const ucp_request_param_t* param) = nullptr;
  ucs_status_ptr_t (*am_recv_data_nbx)(ucp_worker_h worker, void* data, void* buffer, size_t count,
                                       const ucp_request_param_t* param) = nullptr;
  void (*am_data_release)(ucp_worker_h worker, void* data) = nullptr;
  ucs_status_t (*request_check_status)(void* request) = nullptr;
  void (*request_free)(void* request) = nullptr;
};

// The system's library, loaded once and never unloaded. Where the environment says nothing else,
// it is loaded without handlers for signals, without hooks in mmap and its like, and without its
// log: what it reports, Shoal says in its own words (UCX_LOG_LEVEL=warn: on standard error).
// kNode where it is missing or too old: the message says what to install.
Result<const UcxTable*> load_ucx();
// The same of any library.
Result<UcxTable> load_ucx_from(const char* library);

}  // namespace shoal::fabric
