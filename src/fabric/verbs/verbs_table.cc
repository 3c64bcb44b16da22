#include "fabric/verbs/verbs_table.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "base/os/shared_library.h"

namespace shoal::fabric {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

// What the header's inline functions need of the library.
struct Symbols {
  int (*query_port)(ibv_context*, uint8_t, _compat_ibv_port_attr*) = nullptr;
  int (*query_gid_ex)(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t, size_t) = nullptr;
};
Symbols symbols;

// Providers of today fill the whole structure, those of long ago its beginning.
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
  if (verbs_context* extended = verbs_get_ctx_op(context, query_port); extended != nullptr) {
    return extended->query_port(context, port, attributes, sizeof(*attributes));
  }
  std::memset(attributes, 0, sizeof(*attributes));
  return symbols.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
}

int query_gid_type(ibv_context* context, uint8_t port, int index, ibv_gid_type* type) {
  ibv_gid_entry entry{};
  const int error =
      symbols.query_gid_ex(context, port, static_cast<uint32_t>(index), &entry, 0, sizeof(entry));
  if (error == 0) *type = static_cast<ibv_gid_type>(entry.gid_type);
  return error;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) { return ibv_req_notify_cq(cq, solicited_only); }
int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  return ibv_poll_cq(cq, entries, completions);
}
int post_send(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) {
  return ibv_post_send(qp, work, bad);
}
int post_recv(ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr** bad) {
  return ibv_post_recv(qp, work, bad);
}

}  // namespace

Result<VerbsTable> load_verbs_from(const char* library_name) {
  auto opened = SharedLibrary::open(library_name);
  if (!opened.is_ok()) {
    return Status::node("no RDMA library: " + opened.status().message() +
                        "; install libibverbs1 and ibverbs-providers (rdma-core)");
  }
  SharedLibrary& library = *opened;
  VerbsTable table;
  Symbols found;
  library.find("ibv_get_device_list", &table.get_device_list);
  library.find("ibv_free_device_list", &table.free_device_list);
  library.find("ibv_get_device_name", &table.get_device_name);
  library.find("ibv_open_device", &table.open_device);
  library.find("ibv_close_device", &table.close_device);
  library.find("ibv_query_device", &table.query_device);
  library.find("ibv_query_port", &found.query_port);
  library.find("ibv_query_gid", &table.query_gid);
  library.find("_ibv_query_gid_ex", &found.query_gid_ex);
  library.find("ibv_alloc_pd", &table.alloc_pd);
  library.find("ibv_dealloc_pd", &table.dealloc_pd);
  library.find("ibv_reg_mr", &table.reg_mr);
  library.find("ibv_dereg_mr", &table.dereg_mr);
  library.find("ibv_create_comp_channel", &table.create_comp_channel);
  library.find("ibv_destroy_comp_channel", &table.destroy_comp_channel);
  library.find("ibv_create_cq", &table.create_cq);
  library.find("ibv_destroy_cq", &table.destroy_cq);
  library.find("ibv_get_cq_event", &table.get_cq_event);
  library.find("ibv_ack_cq_events", &table.ack_cq_events);
  library.find("ibv_create_qp", &table.create_qp);
  library.find("ibv_modify_qp", &table.modify_qp);
  library.find("ibv_destroy_qp", &table.destroy_qp);
  library.find("ibv_wc_status_str", &table.wc_status_str);
  table.query_port = query_port;
  table.query_gid_type = query_gid_type;
  table.req_notify_cq = req_notify_cq;
  table.poll_cq = poll_cq;
  table.post_send = post_send;
  table.post_recv = post_recv;
  int (*fork_init)() = nullptr;
  library.find("ibv_fork_init", &fork_init);
  if (library.missing().empty()) {
    symbols = found;
    // Launching a node forks: on kernels before 5.12 the parent would else lose registered pages to
    // the child. An error means that it has no device yet to ask.
    (void)fork_init();
    return table;
  }
  return Status::node(std::string(library_name) + " has no " + library.missing() +
                      ": it is older than rdma-core 33; install a newer one");
}

Result<const VerbsTable*> load_verbs() {
  static const Result<VerbsTable> table = load_verbs_from(kLibrary);
  if (!table.is_ok()) return table.status();
  return &*table;
}

}  // namespace shoal::fabric
