// VerbsTable: the calls of libibverbs that Shoal makes, as a table of functions.
//
// load_verbs() fills it from the system's library at run time (libibverbs.so.1), so one binary runs
// with RDMA and without; tests fill it with a fake provider (fabric/testing/fake_verbs.h). The
// types are those of <infiniband/verbs.h>, which is needed to build and brings no dependency to the
// binary. The functions mean what their namesakes ibv_* do, errors included.
// Thread rule: as the library's: any thread, one at a time per queue where nothing else is said.
#pragma once

#include <infiniband/verbs.h>

// What the header hides behind macros of the same names.
#undef ibv_query_port
#undef ibv_reg_mr

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace shoal::fabric {

struct VerbsTable {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* attributes) = nullptr;
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attributes) = nullptr;
  int (*query_gid)(ibv_context* context, uint8_t port, int index, ibv_gid* gid) = nullptr;
  // What an entry of the GID table is for. ENODATA: the entry is empty.
  int (*query_gid_type)(ibv_context* context, uint8_t port, int index,
                        ibv_gid_type* type) = nullptr;

  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, size_t length, int access) = nullptr;
  int (*dereg_mr)(ibv_mr* mr) = nullptr;

  ibv_comp_channel* (*create_comp_channel)(ibv_context* context) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel* channel) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                       int vector) = nullptr;
  int (*destroy_cq)(ibv_cq* cq) = nullptr;
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** user) = nullptr;
  void (*ack_cq_events)(ibv_cq* cq, unsigned int count) = nullptr;
  int (*req_notify_cq)(ibv_cq* cq, int solicited_only) = nullptr;
  int (*poll_cq)(ibv_cq* cq, int entries, ibv_wc* completions) = nullptr;

  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes) = nullptr;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*destroy_qp)(ibv_qp* qp) = nullptr;
  int (*post_send)(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) = nullptr;
  int (*post_recv)(ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr** bad) = nullptr;
  const char* (*wc_status_str)(ibv_wc_status status) = nullptr;
};

// The system's library, loaded once and never unloaded. kNode where it is missing or lacks a
// symbol: the message says which, and what to install.
Result<const VerbsTable*> load_verbs();
// The same from a library of this name, anew each time.
Result<VerbsTable> load_verbs_from(const char* library);

}  // namespace shoal::fabric
