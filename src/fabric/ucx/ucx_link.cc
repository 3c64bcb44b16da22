#include "fabric/ucx/ucx_link.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/spin_pause.h"

namespace shoal::fabric {
namespace {

constexpr unsigned kMessageId = 0;
constexpr std::array<std::string_view, 6> kSharedMemory = {"posix", "sysv", "xpmem",
                                                           "cma",   "knem", "self"};

}  // namespace

Result<std::unique_ptr<UcxLink>> UcxLink::open(const UcxContext& context) {
  const UcxTable& table = context.table();
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS |
                      UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  // A group that has failed ends with requests under way.
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
  params.am_alignment = 64;
  ucp_worker_h worker = nullptr;
  ucs_status_t status = table.worker_create(context.handle(), &params, &worker);
  if (status != UCS_OK) return context.refused("make a worker", status);
  int event_fd = -1;
  status = table.worker_get_efd(worker, &event_fd);
  if (status == UCS_OK) return std::unique_ptr<UcxLink>(new UcxLink(context, worker, event_fd));
  table.worker_destroy(worker);
  return context.refused("sleep until something arrives", status);
}

UcxLink::~UcxLink() { table().worker_destroy(worker_); }

Result<std::vector<std::byte>> UcxLink::address() const {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  const ucs_status_t status = table().worker_query(worker_, &attributes);
  if (status != UCS_OK) return context_.refused("tell a worker's address", status);
  const auto* begin = reinterpret_cast<const std::byte*>(attributes.address);
  std::vector<std::byte> address(begin, begin + attributes.address_length);
  table().worker_release_address(worker_, attributes.address);
  return address;
}

Status UcxLink::connect(std::span<const std::byte> peer_address, Errors errors,
                        const Listener& listener) {
  CHECK(peer_ == nullptr);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = listener.on_message;
  handler.arg = listener.argument;
  ucs_status_t status = table().worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return context_.refused("receive active messages", status);

  errors_ = errors;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(peer_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  if (errors == Errors::kAreReported) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = listener.on_failure, .arg = listener.argument};
  }
  status = table().ep_create(worker_, &params, &peer_);
  if (status == UCS_OK) return Status::ok();
  peer_ = nullptr;
  const Status refused = context_.refused("reach it", status);
  return Status::group(refused.message());
}

// A line of a transport: "#   lane[0]:  2:posix/memory.0 md[2]   -> md[2]/posix/... am am_bw#0".
std::vector<std::string> ucx_transports_in(std::string_view printed) {
  std::vector<std::string> transports;
  while (!printed.empty()) {
    const std::string_view line = printed.substr(0, printed.find('\n'));
    printed.remove_prefix(std::min(printed.size(), line.size() + 1));
    if (line.find("lane[") == std::string_view::npos) continue;
    const size_t slash = line.find('/');
    const size_t colon = line.substr(0, slash).rfind(':');
    if (slash == std::string_view::npos || colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(colon + 1);
    transports.emplace_back(name.substr(0, name.find_first_of(". ")));
  }
  return transports;
}

std::vector<std::string> UcxLink::transports() const {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  table().ep_print_info(peer_, stream);
  std::fclose(stream);
  std::vector<std::string> transports = ucx_transports_in({text, bytes});
  std::free(text);
  return transports;
}

bool UcxLink::is_shared_memory() const {
  const std::vector<std::string> all = transports();
  return !all.empty() && std::ranges::all_of(all, [](std::string_view one) {
    return std::ranges::find(kSharedMemory, one.substr(0, one.find('/'))) != kSharedMemory.end();
  });
}

ucs_status_t UcxLink::status_of(ucs_status_ptr_t answer) {
  if (answer == nullptr) return UCS_OK;
  return UCS_PTR_IS_ERR(answer) ? UCS_PTR_STATUS(answer) : UCS_INPROGRESS;
}

ucs_status_t UcxLink::send(std::span<const std::byte> header, std::span<const std::byte> bytes,
                           const Completion& completion) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = completion.done;
  param.user_data = completion.argument;
  return status_of(table().am_send_nbx(peer_, kMessageId, header.data(), header.size(),
                                       bytes.data(), bytes.size(), &param));
}

ucs_status_t UcxLink::fetch(void* announced, std::span<std::byte> into, const Fetch& fetch) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = fetch.done;
  param.user_data = fetch.argument;
  return status_of(table().am_recv_data_nbx(worker_, announced, into.data(), into.size(), &param));
}

void UcxLink::close(const Deadline& deadline) {
  if (peer_ == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = can_cancel() ? UCP_EP_CLOSE_FLAG_FORCE : 0U;
  void* request = table().ep_close_nbx(peer_, &param);
  peer_ = nullptr;
  if (status_of(request) != UCS_INPROGRESS) return;
  while (table().request_check_status(request) == UCS_INPROGRESS && !deadline.expired()) {
    if (!progress()) spin_pause();
  }
  table().request_free(request);
}

}  // namespace shoal::fabric
