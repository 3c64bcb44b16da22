// UcxLink: a UCX worker and its one endpoint, to one peer.
//
// Each peer has a worker of its own, so that an endpoint stays one thread's whatever the others do,
// and a sleep on it ends when that peer sends. Messages are UCX's active messages: a small header
// and bytes. All that completes or arrives is told within progress(), or before a call returns.
// Thread rule: one thread at a time. Borrows the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/ucx/ucx_context.h"

namespace shoal::fabric {

class UcxLink {
 public:
  // kNode when UCX refuses something.
  static Result<std::unique_ptr<UcxLink>> open(const UcxContext& context);
  // Whatever is under way ends; its callbacks may be called.
  ~UcxLink();
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  const UcxTable& table() const { return context_.table(); }
  // What the peer needs to reach this worker: bytes that only UCX understands.
  Result<std::vector<std::byte>> address() const;

  // Whom to tell what arrives, and that the connection has failed.
  struct Listener {
    ucp_am_recv_callback_t on_message = nullptr;
    ucp_err_handler_cb_t on_failure = nullptr;
    void* argument = nullptr;
  };
  // UCX 1.13 has no shared memory that reports errors, and leaves it out where they are asked for.
  // Without them, only liveness tells of a death, and a network's error ends the process: so they
  // may be silent only where nothing but shared memory is used.
  enum class Errors { kAreReported, kAreSilent };
  // Once. kGroup: no transport that both have.
  Status connect(std::span<const std::byte> peer_address, Errors errors, const Listener& listener);

  // What UCX has chosen: "sysv/memory", "tcp/eth0", ...
  std::vector<std::string> transports() const;
  bool is_shared_memory() const;

  // True when something was done.
  bool progress() { return table().worker_progress(worker_) != 0; }
  // Readable once something is to be done after arm() has said true.
  int event_fd() const { return event_fd_; }
  bool arm() { return table().worker_arm(worker_) == UCS_OK; }

  // UCS_OK: it is done. UCS_INPROGRESS: `done` is called with `argument` when it is. Else it has
  // failed.
  struct Completion {
    void* argument = nullptr;
    ucp_send_nbx_callback_t done = nullptr;
  };
  // Both must stay as they are until it is done.
  ucs_status_t send(std::span<const std::byte> header, std::span<const std::byte> bytes,
                    const Completion& completion);
  // Fetches the bytes of a message that only announces itself (UCP_AM_RECV_ATTR_FLAG_RNDV).
  struct Fetch {
    void* argument = nullptr;
    ucp_am_recv_data_nbx_callback_t done = nullptr;
  };
  ucs_status_t fetch(void* announced, std::span<std::byte> into, const Fetch& fetch);
  // Gives back what was kept of a message (UCP_AM_RECV_ATTR_FLAG_DATA).
  void release(void* kept) { table().am_data_release(worker_, kept); }

  // Ends the connection; the peer may see a failure. Progresses for that until the deadline.
  void close(const Deadline& deadline);
  // Whether close() cancels what is under way; otherwise it would go on reading from its memory.
  bool can_cancel() const { return errors_ == Errors::kAreReported; }

 private:
  UcxLink(const UcxContext& context, ucp_worker_h worker, int event_fd)
      : context_(context), worker_(worker), event_fd_(event_fd) {}
  // What the answer of a call means.
  static ucs_status_t status_of(ucs_status_ptr_t answer);

  const UcxContext& context_;
  ucp_worker_h worker_;
  int event_fd_;  // the worker's own
  ucp_ep_h peer_ = nullptr;
  Errors errors_ = Errors::kAreReported;
};

// The transports in what ucp_ep_print_info() prints: the one call that tells them in UCX 1.13.
std::vector<std::string> ucx_transports_in(std::string_view printed);

}  // namespace shoal::fabric
