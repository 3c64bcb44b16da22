#include "fabric/testing/fake_verbs.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/check.h"

namespace shoal::fabric {
namespace {

using Mode = FakeVerbsOptions::Mode;

constexpr int kGids = 8;
// Of kThunderbolt, by device.
constexpr int kPairsMax = 10;
constexpr int kRegionsMax = 100;
constexpr uint32_t kFrame = 4096;
constexpr uint32_t kFramesMax = 4095;
constexpr size_t kPage = 16 * 1024;

struct FakeDevice : ibv_device {
  std::string name_text;
  size_t index = 0;
  bool is_stalled = false;
  ibv_gid gid{};
  int pairs = 0;
  int regions = 0;
};

struct FakeContext : ibv_context {
  FakeDevice* of = nullptr;
  int pairs = 0;
  int regions = 0;
  int domains = 0;
  int queues = 0;
};

struct FakeDomain : ibv_pd {
  int users = 0;
};

struct FakeRegion : ibv_mr {
  bool loses_writes = false;
};

struct FakeChannel : ibv_comp_channel {
  std::deque<ibv_cq*> events;
};

struct FakeQueue : ibv_cq {
  std::deque<ibv_wc> completions;
  bool is_armed = false;
  int users = 0;
};

struct Part {
  std::byte* bytes = nullptr;
  uint32_t length = 0;
};

struct FakeSend {
  uint64_t id = 0;
  std::vector<Part> parts{};
  uint32_t length = 0;
  std::vector<std::byte> inlined{};
  std::optional<uint32_t> immediate{};  // as its bytes lie on the wire
  bool is_inlined = false;
  bool is_signaled = false;
};

struct FakeReceive {
  uint64_t id = 0;
  Part part{};
  bool loses_writes = false;
};

struct FakePair : ibv_qp {
  FakeQueue* sends_to = nullptr;
  FakeQueue* receives_to = nullptr;
  ibv_qp_cap cap{};
  ibv_qp_attr attributes{};
  std::deque<FakeSend> sends;
  std::deque<FakeReceive> receives;
  uint32_t unsignaled = 0;  // sends whose places no completion has freed
  uint32_t tries = 0;       // of the first send
  bool is_stuck = false;
};

uint32_t frames_of(uint32_t bytes) { return (bytes + kFrame - 1) / kFrame; }

}  // namespace

class FakeVerbs::Impl {
 public:
  explicit Impl(const FakeVerbsOptions& options) : options_(options), random_(options.seed) {
    for (size_t i = 0; i < options.addresses.size(); ++i) {
      auto device = std::make_unique<FakeDevice>();
      device->name_text = fmt::format("fake{}", i);
      device->index = i;
      device->gid.raw[10] = device->gid.raw[11] = 0xff;
      CHECK(inet_pton(AF_INET, options.addresses[i].c_str(), device->gid.raw + 12) == 1);
      devices_.push_back(std::move(device));
    }
    counts_.delivered_from.resize(options.addresses.size());
    moves_when_polled_ = options_.has_engine_thread;
    if (options_.has_engine_thread) engine_ = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    is_woken_.notify_all();
    if (engine_.joinable()) engine_.join();
  }

  static VerbsTable make_table();
  static void add_pair_calls(VerbsTable& t);
  static Impl*& current() {
    static Impl* impl = nullptr;
    return impl;
  }

  bool step() {
    const std::lock_guard lock(mutex_);
    return move_one();
  }
  void move_when_polled() {
    const std::lock_guard lock(mutex_);
    moves_when_polled_ = true;
  }
  void set_link(bool is_up) {
    const std::lock_guard lock(mutex_);
    is_link_up_ = is_up;
  }
  void set_port_active(bool is_active) {
    const std::lock_guard lock(mutex_);
    is_port_active_ = is_active;
  }
  void set_stalled(size_t device, bool is_stalled) {
    const std::lock_guard lock(mutex_);
    devices_.at(device)->is_stalled = is_stalled;
  }
  void hang_when_destroying() {
    const std::lock_guard lock(mutex_);
    hangs_destroying_ = true;
  }
  void refuse_sends() {
    const std::lock_guard lock(mutex_);
    refuses_sends_ = true;
  }
  void set_hanging(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    hangs_destroying_ = false;
    hangs_no_more_.notify_all();
  }
  void set_open_hanging(bool hangs) {
    const std::lock_guard lock(mutex_);
    open_hangs_ = hangs;
    hangs_no_more_.notify_all();
  }
  FakeVerbsCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  Mode mode() const { return options_.mode; }

 private:
  // Whoever polls moves messages; here is moved what nobody polls for.
  void run() {
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
      while (move_one()) {
      }
      is_woken_.wait_for(lock, std::chrono::microseconds(200));
    }
  }

  void violate(std::string what) {
    if (counts_.violations.size() < 20) counts_.violations.push_back(std::move(what));
  }
  bool is_thunderbolt() const { return options_.mode == Mode::kThunderbolt; }
  bool is_due(uint32_t every) {
    if (every == 0 || ++fault_clock_ % every != 0) return false;
    ++counts_.faults;
    return true;
  }

  // ---- The engine ----

  bool can_move(const FakePair& pair) {
    if (pair.state != IBV_QPS_RTS || pair.sends.empty() || pair.is_stuck) return false;
    if (devices_.at(device_of(pair))->is_stalled) return false;
    if (!is_thunderbolt()) return true;
    const FakePair* peer = peer_of(pair);
    return is_link_up_ && peer != nullptr && !peer->receives.empty();
  }

  // The queue pair that a connected one sends to, if that one is connected to it.
  FakePair* peer_of(const FakePair& pair) {
    const auto found = pairs_.find(pair.attributes.dest_qp_num);
    if (found == pairs_.end()) return nullptr;
    FakePair& peer = *found->second;
    const bool is_ready = peer.state == IBV_QPS_RTR || peer.state == IBV_QPS_RTS;
    const bool is_mutual = peer.attributes.dest_qp_num == pair.qp_num &&
                           peer.attributes.rq_psn == pair.attributes.sq_psn &&
                           peer.attributes.path_mtu == pair.attributes.path_mtu;
    return is_ready && is_mutual && are_joined(pair, peer) ? &peer : nullptr;
  }

  static size_t device_of(const FakePair& pair) {
    return static_cast<const FakeContext*>(pair.context)->of->index;
  }
  bool are_joined(const FakePair& a, const FakePair& b) const {
    const std::vector<int>& cables = options_.cables;
    return cables.empty() || cables.at(device_of(a)) == cables.at(device_of(b));
  }

  bool move_one() {
    std::vector<FakePair*> ready;
    for (auto& [number, pair] : pairs_) {
      if (can_move(*pair)) ready.push_back(pair);
    }
    if (ready.empty()) return false;
    move(*ready[random_() % ready.size()]);
    return true;
  }

  void move(FakePair& pair) {
    FakePair* peer = is_link_up_ ? peer_of(pair) : nullptr;
    if (pair.sends.size() > 1 && is_due(options_.swap_every))
      std::swap(pair.sends[0], pair.sends[1]);
    if (peer == nullptr) {
      if (options_.mode == Mode::kLinuxRc) return fail_send(pair, IBV_WC_RETRY_EXC_ERR);
      return drop(pair);
    }
    if (options_.mode != Mode::kLinuxRc && is_due(options_.drop_every)) return drop(pair);
    if (peer->receives.empty()) {
      violate("a send without a receive");
      if (options_.mode == Mode::kLinuxUc) return drop(pair);
      if (++pair.tries > pair.attributes.rnr_retry) fail_send(pair, IBV_WC_RNR_RETRY_EXC_ERR);
      return;
    }
    deliver(pair, *peer);
  }

  void deliver(FakePair& pair, FakePair& peer) {
    const FakeSend send = pair.sends.front();
    const FakeReceive receive = peer.receives.front();
    const uint32_t length = send.length;
    if (is_thunderbolt() && frames_of(length) != frames_of(receive.part.length)) {
      violate(fmt::format("a send of {} bytes meets a receive of {}", length, receive.part.length));
      pair.is_stuck = true;
      return;
    }
    peer.receives.pop_front();
    if (length > receive.part.length) {
      violate("a send is longer than its receive");
      complete(*peer.receives_to, {.id = receive.id, .status = IBV_WC_LOC_LEN_ERR}, peer.qp_num);
      set_error(peer);
      return fail_send(pair, IBV_WC_REM_INV_REQ_ERR);
    }
    if (!receive.loses_writes) copy(send, receive.part.bytes);
    ++counts_.delivered;
    counts_.delivered_bytes += length;
    ++counts_.delivered_from[device_of(pair)];
    if (is_due(options_.bad_completion_every)) {
      complete(*peer.receives_to, {.id = receive.id, .status = IBV_WC_LOC_PROT_ERR}, peer.qp_num);
      set_error(peer);
    } else {
      const bool is_short = length > 32 && is_due(options_.short_message_every);
      complete(*peer.receives_to,
               {.id = receive.id,
                .bytes = is_short ? length - 32 : length,
                .immediate = send.immediate,
                .opcode = options_.writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV},
               peer.qp_num);
    }
    end_send(pair, IBV_WC_SUCCESS);
  }

  static void copy(const FakeSend& send, std::byte* to) {
    if (send.is_inlined) {
      std::ranges::copy(send.inlined, to);
      return;
    }
    for (const Part& part : send.parts) {
      std::memcpy(to, part.bytes, part.length);
      to += part.length;
    }
  }

  void drop(FakePair& pair) {
    ++counts_.dropped;
    end_send(pair, IBV_WC_SUCCESS);
  }

  void end_send(FakePair& pair, ibv_wc_status status) {
    const FakeSend send = std::move(pair.sends.front());
    pair.sends.pop_front();
    pair.tries = 0;
    if (send.is_signaled || status != IBV_WC_SUCCESS) {
      complete(*pair.sends_to, {.id = send.id, .status = status}, pair.qp_num);
      pair.unsignaled = 0;
    } else {
      ++pair.unsignaled;
    }
  }

  void fail_send(FakePair& pair, ibv_wc_status status) {
    end_send(pair, status);
    set_error(pair);
  }

  void set_error(FakePair& pair) {
    pair.state = IBV_QPS_ERR;
    while (!pair.sends.empty()) end_send(pair, IBV_WC_WR_FLUSH_ERR);
    for (const FakeReceive& receive : pair.receives) {
      complete(*pair.receives_to, {.id = receive.id, .status = IBV_WC_WR_FLUSH_ERR}, pair.qp_num);
    }
    pair.receives.clear();
  }

  struct End {
    uint64_t id = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    uint32_t bytes = 0;
    std::optional<uint32_t> immediate{};
    ibv_wc_opcode opcode = IBV_WC_SEND;
  };
  void complete(FakeQueue& queue, const End& end, uint32_t pair) {
    if (queue.completions.size() >= static_cast<size_t>(queue.cqe)) {
      return violate("a completion queue runs over");
    }
    ibv_wc completion{};
    completion.wr_id = end.id;
    completion.status = end.status;
    completion.byte_len = end.bytes;
    completion.qp_num = pair;
    completion.opcode = end.opcode;
    if (end.immediate.has_value()) {
      completion.wc_flags = IBV_WC_WITH_IMM;
      completion.imm_data = *end.immediate;
    }
    queue.completions.push_back(completion);
    if (!queue.is_armed || queue.channel == nullptr) return;
    queue.is_armed = false;
    auto& channel = static_cast<FakeChannel&>(*queue.channel);
    channel.events.push_back(&queue);
    const uint64_t one = 1;
    (void)!write(channel.fd, &one, sizeof(one));
  }

  // ---- The calls ----

  template <typename T>
  T* refuse(int error) {
    errno = error;
    return nullptr;
  }

  ibv_device** list(int* count) {
    auto** list = new ibv_device*[devices_.size() + 1]();
    for (size_t i = 0; i < devices_.size(); ++i) list[i] = devices_[i].get();
    if (count != nullptr) *count = static_cast<int>(devices_.size());
    return list;
  }

  static ibv_context* open(ibv_device* device) {
    auto* context = new FakeContext();
    context->device = device;
    context->of = static_cast<FakeDevice*>(device);
    return context;
  }

  int close(ibv_context* raw) {
    auto* context = static_cast<FakeContext*>(raw);
    if (context->pairs + context->regions + context->domains + context->queues != 0) {
      violate("a device is closed before what stands on it");
      return EBUSY;
    }
    --counts_.contexts;
    delete context;
    return 0;
  }

  ibv_pd* alloc_pd(ibv_context* context) {
    auto* domain = new FakeDomain();
    domain->context = context;
    ++static_cast<FakeContext*>(context)->domains;
    ++counts_.domains;
    return domain;
  }

  int dealloc_pd(ibv_pd* raw) {
    auto* domain = static_cast<FakeDomain*>(raw);
    if (domain->users != 0) {
      violate("a domain is freed before what stands on it");
      return EBUSY;
    }
    --static_cast<FakeContext*>(domain->context)->domains;
    --counts_.domains;
    delete domain;
    return 0;
  }

  ibv_mr* reg_mr(ibv_pd* domain, void* address, size_t length, int access) {
    auto* context = static_cast<FakeContext*>(domain->context);
    const auto begin = reinterpret_cast<uintptr_t>(address);
    bool loses_writes = false;
    if (is_thunderbolt()) {
      const int regions = options_.limits_devices ? context->of->regions : context->regions;
      if (regions >= kRegionsMax) return refuse<ibv_mr>(ENOMEM);
      if (begin % kPage != 0 || length > (size_t{1} << 30)) return refuse<ibv_mr>(EINVAL);
      if ((access & IBV_ACCESS_REMOTE_WRITE) == 0) return refuse<ibv_mr>(EACCES);
      loses_writes = begin >> 32 != (begin + length - 1) >> 32;
    }
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    size_t registered = length;
    for (const auto& [key, other] : regions_) registered += other->length;
    if (options_.limits_locked_memory && registered > limit.rlim_cur) return refuse<ibv_mr>(ENOMEM);
    auto* region = new FakeRegion();
    region->context = context;
    region->pd = domain;
    region->addr = address;
    region->length = length;
    region->lkey = region->rkey = ++last_key_;
    region->loses_writes = loses_writes;
    regions_[region->lkey] = region;
    ++static_cast<FakeDomain*>(domain)->users;
    ++context->regions;
    ++context->of->regions;
    ++counts_.regions;
    return region;
  }

  static bool has_work_in(const FakePair& pair, const FakeRegion& region) {
    const auto* begin = static_cast<const std::byte*>(region.addr);
    const auto is_inside = [&](const Part& part) {
      return part.bytes >= begin && part.bytes < begin + region.length;
    };
    return std::ranges::any_of(pair.receives,
                               [&](const FakeReceive& one) { return is_inside(one.part); }) ||
           std::ranges::any_of(pair.sends, [&](const FakeSend& one) {
             return std::ranges::any_of(one.parts, is_inside);
           });
  }

  int dereg_mr(ibv_mr* raw) {
    auto* region = static_cast<FakeRegion*>(raw);
    for (const auto& [number, pair] : pairs_) {
      if (has_work_in(*pair, *region)) violate("a region goes while a queue pair has work in it");
    }
    --static_cast<FakeDomain*>(region->pd)->users;
    --static_cast<FakeContext*>(region->context)->regions;
    --static_cast<FakeContext*>(region->context)->of->regions;
    --counts_.regions;
    regions_.erase(region->lkey);
    delete region;
    return 0;
  }

  ibv_comp_channel* create_channel(ibv_context* context) {
    auto* channel = new FakeChannel();
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    CHECK(channel->fd >= 0);
    ++static_cast<FakeContext*>(context)->queues;
    ++counts_.channels;
    return channel;
  }

  int destroy_channel(ibv_comp_channel* raw) {
    auto* channel = static_cast<FakeChannel*>(raw);
    if (channel->refcnt != 0) {
      violate("a channel goes before its queues");
      return EBUSY;
    }
    ::close(channel->fd);
    --static_cast<FakeContext*>(channel->context)->queues;
    --counts_.channels;
    delete channel;
    return 0;
  }

  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) {
    auto* queue = new FakeQueue();
    queue->context = context;
    queue->cqe = entries;
    queue->channel = channel;
    if (channel != nullptr) ++channel->refcnt;
    ++static_cast<FakeContext*>(context)->queues;
    ++counts_.completion_queues;
    return queue;
  }

  int destroy_cq(ibv_cq* raw) {
    auto* queue = static_cast<FakeQueue*>(raw);
    if (queue->users != 0) {
      violate("a completion queue goes before its queue pairs");
      return EBUSY;
    }
    if (queue->channel != nullptr) {
      std::erase(static_cast<FakeChannel*>(queue->channel)->events, raw);
      --queue->channel->refcnt;
    }
    --static_cast<FakeContext*>(queue->context)->queues;
    --counts_.completion_queues;
    delete queue;
    return 0;
  }

  int get_event(ibv_comp_channel* raw, ibv_cq** queue) {
    auto* channel = static_cast<FakeChannel*>(raw);
    if (channel->events.empty()) {
      errno = EAGAIN;
      return -1;
    }
    uint64_t one = 0;
    (void)!read(channel->fd, &one, sizeof(one));
    *queue = channel->events.front();
    channel->events.pop_front();
    return 0;
  }

  int poll(ibv_cq* raw, int entries, ibv_wc* completions) {
    auto* queue = static_cast<FakeQueue*>(raw);
    if (moves_when_polled_ && queue->completions.empty()) move_one();
    int count = 0;
    for (; count < entries && !queue->completions.empty(); ++count) {
      completions[count] = queue->completions.front();
      queue->completions.pop_front();
    }
    return count;
  }

  ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    auto* context = static_cast<FakeContext*>(domain->context);
    if (is_thunderbolt()) {
      if (wanted->qp_type != IBV_QPT_UC) return refuse<ibv_qp>(EOPNOTSUPP);
      const int pairs = options_.limits_devices ? context->of->pairs : context->pairs;
      if (pairs >= kPairsMax) return refuse<ibv_qp>(ENOMEM);
      const bool fits = wanted->cap.max_send_wr <= kFramesMax &&
                        wanted->cap.max_recv_wr <= kFramesMax && wanted->cap.max_send_sge <= 1 &&
                        wanted->cap.max_recv_sge <= 1 && wanted->cap.max_inline_data == 0;
      if (!fits) return refuse<ibv_qp>(EINVAL);
    }
    if (wanted->cap.max_inline_data > 0 && !options_.gives_inline) return refuse<ibv_qp>(EINVAL);
    auto* pair = new FakePair();
    pair->context = context;
    pair->pd = domain;
    pair->qp_num = ++last_pair_;
    pair->qp_type = wanted->qp_type;
    pair->state = IBV_QPS_RESET;
    pair->sends_to = static_cast<FakeQueue*>(wanted->send_cq);
    pair->receives_to = static_cast<FakeQueue*>(wanted->recv_cq);
    pair->cap = wanted->cap;
    ++pair->sends_to->users;
    ++pair->receives_to->users;
    ++static_cast<FakeDomain*>(domain)->users;
    ++context->pairs;
    ++context->of->pairs;
    ++counts_.queue_pairs;
    pairs_[pair->qp_num] = pair;
    return pair;
  }

  int destroy_qp(ibv_qp* raw) {
    auto* pair = static_cast<FakePair*>(raw);
    pairs_.erase(pair->qp_num);
    --pair->sends_to->users;
    --pair->receives_to->users;
    --static_cast<FakeDomain*>(pair->pd)->users;
    --static_cast<FakeContext*>(pair->context)->pairs;
    --static_cast<FakeContext*>(pair->context)->of->pairs;
    --counts_.queue_pairs;
    delete pair;
    return 0;
  }

  // Each state has attributes that must come with it (ibv_modify_qp(3)).
  int modify_qp(ibv_qp* raw, const ibv_qp_attr* wanted, int mask) {
    auto* pair = static_cast<FakePair*>(raw);
    const bool is_rc = pair->qp_type == IBV_QPT_RC;
    const auto has = [mask](int needed) { return (mask & needed) == needed; };
    const ibv_qp_state from = pair->state;
    ibv_qp_attr& kept = pair->attributes;
    if (!has(IBV_QP_STATE)) return EINVAL;
    if (wanted->qp_state == IBV_QPS_ERR) {
      set_error(*pair);
      return 0;
    }
    if (wanted->qp_state == IBV_QPS_INIT && from == IBV_QPS_RESET) {
      if (!has(IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) return EINVAL;
    } else if (wanted->qp_state == IBV_QPS_RTR && from == IBV_QPS_INIT) {
      const int of_rc = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      if (!has(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)) return EINVAL;
      if (is_rc != has(of_rc)) return EINVAL;
      kept.dest_qp_num = wanted->dest_qp_num;
      kept.rq_psn = wanted->rq_psn;
      kept.path_mtu = wanted->path_mtu;
    } else if (wanted->qp_state == IBV_QPS_RTS && from == IBV_QPS_RTR) {
      const int of_rc =
          IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      if (!has(IBV_QP_SQ_PSN) || is_rc != has(of_rc)) return EINVAL;
      kept.sq_psn = wanted->sq_psn;
      kept.rnr_retry = wanted->rnr_retry;
      if (is_rc && (wanted->retry_cnt == 0 || wanted->retry_cnt == 7 || wanted->timeout == 0)) {
        violate("a retry count or timeout that soft-RoCE takes for endless, or fails on");
      }
    } else {
      return EINVAL;
    }
    pair->state = wanted->qp_state;
    return 0;
  }

  // The memory of a work request; null when it lies outside its region.
  std::byte* memory_of(const ibv_sge& part, const FakePair& pair, bool* loses_writes) {
    const auto found = regions_.find(part.lkey);
    if (found == regions_.end() || found->second->pd != pair.pd) return nullptr;
    const FakeRegion& region = *found->second;
    const auto begin = reinterpret_cast<uintptr_t>(region.addr);
    if (part.addr < begin || part.addr - begin > region.length ||
        part.length > region.length - (part.addr - begin)) {
      return nullptr;
    }
    *loses_writes = region.loses_writes;
    return static_cast<std::byte*>(region.addr) + (part.addr - begin);
  }

  uint32_t places(uint32_t bytes) const { return is_thunderbolt() ? frames_of(bytes) : 1; }

  int post_send(ibv_qp* raw, ibv_send_wr* work, ibv_send_wr** bad) {
    auto* pair = static_cast<FakePair*>(raw);
    *bad = work;
    const bool has_immediate = work->opcode == IBV_WR_SEND_WITH_IMM && !is_thunderbolt();
    if (work->next != nullptr || (work->opcode != IBV_WR_SEND && !has_immediate) ||
        work->num_sge < (has_immediate ? 0 : 1) ||
        work->num_sge > static_cast<int>(pair->cap.max_send_sge)) {
      return EINVAL;
    }
    if (pair->state == IBV_QPS_ERR) {
      FakeSend flushed{.id = work->wr_id};
      pair->sends.push_back(std::move(flushed));
      end_send(*pair, IBV_WC_WR_FLUSH_ERR);
      return 0;
    }
    if (pair->state != IBV_QPS_RTS) return EINVAL;
    if (refuses_sends_) return ENOMEM;
    FakeSend send{.id = work->wr_id,
                  .is_inlined = (work->send_flags & IBV_SEND_INLINE) != 0,
                  .is_signaled = (work->send_flags & IBV_SEND_SIGNALED) != 0};
    if (has_immediate) send.immediate = work->imm_data;
    for (const ibv_sge& part : std::span(work->sg_list, static_cast<size_t>(work->num_sge))) {
      bool ignored = false;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): that is how work requests carry addresses
      auto* inlined = reinterpret_cast<std::byte*>(part.addr);
      std::byte* from = send.is_inlined ? inlined : memory_of(part, *pair, &ignored);
      if (from == nullptr) {
        violate("a send from outside its region");
        return EINVAL;
      }
      send.length += part.length;
      if (send.is_inlined) {
        send.inlined.insert(send.inlined.end(), from, from + part.length);
      } else {
        send.parts.push_back({from, part.length});
      }
    }
    if (send.is_inlined && send.length > pair->cap.max_inline_data) return ENOMEM;
    uint32_t used = pair->unsignaled + places(send.length);
    for (const FakeSend& other : pair->sends) used += places(other.length);
    if (used > pair->cap.max_send_wr) {
      violate("a send queue runs over");
      return ENOMEM;
    }
    pair->sends.push_back(std::move(send));
    return 0;
  }

  int post_recv(ibv_qp* raw, ibv_recv_wr* work, ibv_recv_wr** bad) {
    auto* pair = static_cast<FakePair*>(raw);
    *bad = work;
    if (work->next != nullptr || work->num_sge != 1) return EINVAL;
    if (pair->state == IBV_QPS_ERR) {
      complete(*pair->receives_to, {.id = work->wr_id, .status = IBV_WC_WR_FLUSH_ERR},
               pair->qp_num);
      return 0;
    }
    const bool is_early = pair->state == IBV_QPS_INIT || pair->state == IBV_QPS_RTR;
    if (pair->state != IBV_QPS_RTS && (is_thunderbolt() || !is_early)) return EINVAL;
    const ibv_sge& part = *work->sg_list;
    uint32_t used = places(part.length);
    for (const FakeReceive& receive : pair->receives) used += places(receive.part.length);
    if (used > pair->cap.max_recv_wr) {
      violate("a receive queue runs over");
      return ENOMEM;
    }
    FakeReceive receive{.id = work->wr_id};
    receive.part = {memory_of(part, *pair, &receive.loses_writes), part.length};
    if (receive.part.bytes == nullptr) {
      violate("a receive outside its region");
      return EINVAL;
    }
    pair->receives.push_back(receive);
    ++counts_.receives_posted;
    return 0;
  }

  int query_gid_type(ibv_context* context, int index, ibv_gid_type* type) const;

  const FakeVerbsOptions options_;
  mutable std::mutex mutex_;  // guards everything below and every object
  std::condition_variable is_woken_;
  std::condition_variable hangs_no_more_;
  bool hangs_ = false;
  bool hangs_destroying_ = false;
  bool refuses_sends_ = false;
  bool open_hangs_ = false;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<FakeDevice>> devices_;
  std::map<uint32_t, FakePair*> pairs_;
  std::map<uint32_t, FakeRegion*> regions_;
  uint32_t last_pair_ = 100;
  uint32_t last_key_ = 1;
  uint64_t fault_clock_ = 0;
  bool moves_when_polled_ = false;
  bool is_link_up_ = true;
  bool is_port_active_ = true;
  bool is_ending_ = false;
  FakeVerbsCounts counts_;
  std::thread engine_;

  friend struct Calls;
};

// The table's functions: the current Impl's, with its lock held.
struct Calls {
  using Impl = FakeVerbs::Impl;
  template <typename Fn>
  static auto with(Fn fn) {
    Impl& impl = *Impl::current();
    const std::lock_guard lock(impl.mutex_);
    return fn(impl);
  }

  // Of a driver that may hang.
  template <typename Fn>
  static auto with_driver(bool is_destroying, Fn fn) {
    Impl& impl = *Impl::current();
    std::unique_lock lock(impl.mutex_);
    impl.hangs_no_more_.wait(
        lock, [&] { return !impl.hangs_ && !(is_destroying && impl.hangs_destroying_); });
    return fn(impl);
  }

  static ibv_context* open_device(ibv_device* device) {
    Impl& impl = *Impl::current();
    std::unique_lock lock(impl.mutex_);
    ++impl.counts_.contexts;
    impl.hangs_no_more_.wait(lock, [&] { return !impl.open_hangs_; });
    return Impl::open(device);
  }
  static int query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->phys_port_cnt = 1;
    attributes->max_qp = kPairsMax;
    attributes->max_mr = kRegionsMax;
    std::strcpy(attributes->fw_ver, "fake-1");
    return 0;
  }
  static int query_port(ibv_context* /*context*/, uint8_t port, ibv_port_attr* attributes) {
    if (port != 1) return EINVAL;
    *attributes = {};
    const bool is_active = with([](Impl& impl) { return impl.is_port_active_; });
    attributes->state = is_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attributes->phys_state = is_active ? 5 : 3;  // link up, disabled
    attributes->active_mtu = IBV_MTU_4096;
    attributes->max_mtu = IBV_MTU_4096;
    attributes->gid_tbl_len = kGids;
    attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
    attributes->active_width = 2;
    attributes->active_speed = 32;
    return 0;
  }
  // As Linux fills a table: link-local, then the address, each for RoCE v1 and v2.
  static int query_gid(ibv_context* context, uint8_t /*port*/, int index, ibv_gid* gid) {
    *gid = {};
    if (index < 0 || index >= 4) return ENODATA;
    if (index >= 2) {
      *gid = static_cast<FakeContext*>(context)->of->gid;
    } else {
      gid->raw[0] = 0xfe;
      gid->raw[1] = 0x80;
      gid->raw[15] = 1;
    }
    return 0;
  }
  static int query_gid_type(ibv_context* /*context*/, uint8_t /*port*/, int index,
                            ibv_gid_type* type) {
    if (index < 0 || index >= 4) return ENODATA;
    *type = index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
    return 0;
  }
};

void FakeVerbs::Impl::add_pair_calls(VerbsTable& t) {
  t.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* attributes) {
    return Calls::with_driver(false, [&](Impl& i) { return i.create_qp(pd, attributes); });
  };
  t.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    return Calls::with([&](Impl& i) { return i.modify_qp(qp, attributes, mask); });
  };
  t.destroy_qp = [](ibv_qp* qp) {
    return Calls::with_driver(true, [&](Impl& i) { return i.destroy_qp(qp); });
  };
  t.post_send = [](ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) {
    return Calls::with([&](Impl& i) { return i.post_send(qp, work, bad); });
  };
  t.post_recv = [](ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr** bad) {
    return Calls::with([&](Impl& i) { return i.post_recv(qp, work, bad); });
  };
}

VerbsTable FakeVerbs::Impl::make_table() {
  VerbsTable t;
  t.get_device_list = [](int* count) {
    return Calls::with([&](Impl& i) { return i.list(count); });
  };
  t.free_device_list = [](ibv_device** list) { delete[] list; };
  t.get_device_name = [](ibv_device* device) {
    return static_cast<FakeDevice*>(device)->name_text.c_str();
  };
  t.open_device = Calls::open_device;
  t.close_device = [](ibv_context* context) {
    return Calls::with([&](Impl& i) { return i.close(context); });
  };
  t.query_device = Calls::query_device;
  t.query_port = Calls::query_port;
  t.query_gid = Calls::query_gid;
  t.query_gid_type = Calls::query_gid_type;
  t.alloc_pd = [](ibv_context* context) {
    return Calls::with([&](Impl& i) { return i.alloc_pd(context); });
  };
  t.dealloc_pd = [](ibv_pd* pd) { return Calls::with([&](Impl& i) { return i.dealloc_pd(pd); }); };
  t.reg_mr = [](ibv_pd* pd, void* address, size_t length, int access) {
    return Calls::with([&](Impl& i) { return i.reg_mr(pd, address, length, access); });
  };
  t.dereg_mr = [](ibv_mr* mr) { return Calls::with([&](Impl& i) { return i.dereg_mr(mr); }); };
  t.create_comp_channel = [](ibv_context* context) {
    return Calls::with([&](Impl& i) { return i.create_channel(context); });
  };
  t.destroy_comp_channel = [](ibv_comp_channel* channel) {
    return Calls::with([&](Impl& i) { return i.destroy_channel(channel); });
  };
  t.create_cq = [](ibv_context* context, int entries, void* /*user*/, ibv_comp_channel* channel,
                   int /*vector*/) {
    return Calls::with([&](Impl& i) { return i.create_cq(context, entries, channel); });
  };
  t.destroy_cq = [](ibv_cq* cq) { return Calls::with([&](Impl& i) { return i.destroy_cq(cq); }); };
  t.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void** /*user*/) {
    return Calls::with([&](Impl& i) { return i.get_event(channel, cq); });
  };
  t.ack_cq_events = [](ibv_cq* /*cq*/, unsigned int /*count*/) {};
  t.req_notify_cq = [](ibv_cq* cq, int /*solicited_only*/) {
    return Calls::with([&](Impl&) {
      static_cast<FakeQueue*>(cq)->is_armed = true;
      return 0;
    });
  };
  t.poll_cq = [](ibv_cq* cq, int entries, ibv_wc* completions) {
    return Calls::with([&](Impl& i) { return i.poll(cq, entries, completions); });
  };
  add_pair_calls(t);
  t.wc_status_str = [](ibv_wc_status status) {
    switch (status) {
      case IBV_WC_SUCCESS:
        return "success";
      case IBV_WC_RETRY_EXC_ERR:
        return "transport retry counter exceeded";
      case IBV_WC_RNR_RETRY_EXC_ERR:
        return "RNR retry counter exceeded";
      case IBV_WC_WR_FLUSH_ERR:
        return "Work Request Flushed Error";
      default:
        return "another error";
    }
  };
  return t;
}

FakeVerbs::FakeVerbs(const FakeVerbsOptions& options) : impl_(std::make_unique<Impl>(options)) {
  CHECK_MSG(Impl::current() == nullptr, "one FakeVerbs at a time");
  Impl::current() = impl_.get();
}
FakeVerbs::~FakeVerbs() { Impl::current() = nullptr; }

const VerbsTable& FakeVerbs::table() const {
  static const VerbsTable table = Impl::make_table();
  return table;
}

VerbsProvider FakeVerbs::provider() const {
  VerbsProvider provider{.table = &table(), .rules = {}};
  if (impl_->mode() == Mode::kLinuxUc) provider.rules = VerbsRules::linux_uc();
  if (impl_->mode() == Mode::kThunderbolt) provider.rules = VerbsRules::thunderbolt();
  return provider;
}

bool FakeVerbs::step() { return impl_->step(); }
void FakeVerbs::move_when_polled() { impl_->move_when_polled(); }
void FakeVerbs::set_link(bool is_up) { impl_->set_link(is_up); }
void FakeVerbs::set_port_active(bool is_active) { impl_->set_port_active(is_active); }
void FakeVerbs::set_stalled(size_t device, bool is_stalled) {
  impl_->set_stalled(device, is_stalled);
}
void FakeVerbs::hang_when_destroying() { impl_->hang_when_destroying(); }
void FakeVerbs::refuse_sends() { impl_->refuse_sends(); }
void FakeVerbs::set_hanging(bool hangs) { impl_->set_hanging(hangs); }
void FakeVerbs::set_open_hanging(bool hangs) { impl_->set_open_hanging(hangs); }
FakeVerbsCounts FakeVerbs::counts() const { return impl_->counts(); }

}  // namespace shoal::fabric
