#include "fabric/verbs/verbs_rail.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <random>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "base/os/thread.h"
#include "fabric/link/slot_header.h"

namespace shoal::fabric {
namespace {

constexpr uint32_t kOfferMagic = 0x4252564f;  // "OVRB"

// A lost packet is sent again after 4.096 us * 2^14 = 67 ms, six times: then the peer, or the way
// to it, is taken for dead. Seven would mean "for ever" to soft-RoCE.
constexpr uint8_t kTimeout = 14;
constexpr uint8_t kRetries = 6;
// Our credits keep a receive posted for every send; 0.64 ms between two tries if not.
constexpr uint8_t kReceiverNotReadyTimer = 12;
constexpr uint8_t kReceiverNotReadyRetries = 6;
// For a device to take its queue pairs apart.
constexpr Nanoseconds kCloseMax = std::chrono::seconds(2);
// More than a router would ever add.
constexpr uint8_t kHopLimit = 64;

// What a send without a region may carry; devices round it up, or down to none.
constexpr uint32_t kInlineBytes = 256;

constexpr size_t k4Gib = size_t{1} << 32;

uint32_t rounded_up(uint32_t bytes, uint32_t unit) { return (bytes + unit - 1) / unit * unit; }

uint32_t random_packet_number() {
  std::random_device device;
  return device() & 0xffffffU;
}

uint64_t random_nonce() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

LaneLayout LaneLayout::of(const SlotClass& slots, const VerbsRules& rules) {
  const uint32_t unit = std::max<uint32_t>(kVerbsHeaderBytes, rules.frame_bytes);
  LaneLayout layout;
  layout.slot_bytes = rounded_up(kVerbsHeaderBytes + slots.payload_bytes, unit);
  layout.lanes = layout.slot_bytes > kSmallBytes ? 2 : 1;
  layout.receive_bytes[0] = std::min(layout.slot_bytes, kSmallBytes);
  layout.receive_bytes[1] = layout.lanes == 2 ? layout.slot_bytes : 0;
  layout.receives = slots.count + kControlMessages;
  layout.has_short_headers = rules.qp_type == IBV_QPT_RC && slots.count <= ShortHeader::kSlotsMax;
  return layout;
}

uint32_t LaneLayout::entries_per_message(int lane, const VerbsRules& rules) const {
  const uint32_t bytes = receive_bytes[static_cast<size_t>(lane)];
  return rules.frame_bytes == 0 ? 1 : bytes / rules.frame_bytes;
}

LaneLayout LaneLayout::of_whole_slots() const {
  CHECK(lanes == 2);
  LaneLayout layout = *this;
  layout.lanes = 1;
  layout.receive_bytes = {slot_bytes, 0};
  return layout;
}

std::array<std::byte, RailOffer::kBytes> encode_rail_offer(const RailOffer& offer) {
  std::array<std::byte, RailOffer::kBytes> bytes{};
  FieldWriter fields(bytes);
  fields.write(kOfferMagic);
  fields.write(offer.lanes);
  fields.write(offer.frame_bytes);
  fields.write(offer.qp_type);
  fields.write(offer.mtu);
  fields.write(offer.lid);
  for (const std::byte byte : offer.gid) fields.write(static_cast<uint8_t>(byte));
  for (const RailOffer::Lane& lane : offer.lane) {
    fields.write(lane.qp_number);
    fields.write(lane.first_packet);
  }
  fields.write(offer.nonce);
  CHECK(fields.left() == 0);
  return bytes;
}

Result<RailOffer> decode_rail_offer(std::span<const std::byte, RailOffer::kBytes> bytes) {
  ByteReader reader(bytes);
  RailOffer offer;
  const uint32_t magic = *reader.read<uint32_t>();
  offer.lanes = *reader.read<uint32_t>();
  offer.frame_bytes = *reader.read<uint32_t>();
  offer.qp_type = *reader.read<uint32_t>();
  offer.mtu = *reader.read<uint32_t>();
  offer.lid = *reader.read<uint32_t>();
  std::ranges::copy(*reader.read_bytes(offer.gid.size()), offer.gid.begin());
  for (RailOffer::Lane& lane : offer.lane) {
    lane.qp_number = *reader.read<uint32_t>();
    lane.first_packet = *reader.read<uint32_t>();
  }
  offer.nonce = *reader.read<uint64_t>();
  CHECK(reader.left() == 0);
  if (magic != kOfferMagic) return Status::group("sent rubbish for its queue pairs");
  const bool is_possible = (offer.lanes == 1 || offer.lanes == 2) && offer.mtu >= IBV_MTU_256 &&
                           offer.mtu <= IBV_MTU_4096 && offer.lid <= UINT16_MAX &&
                           std::ranges::all_of(offer.lane, [](const RailOffer::Lane& lane) {
                             return lane.qp_number <= 0xffffffU && lane.first_packet <= 0xffffffU;
                           });
  if (!is_possible) return Status::group("offers impossible queue pairs");
  return offer;
}

// Where a region must not lie across a multiple of 4 GiB, twice as much is mapped, of which one
// half does not.
Result<std::shared_ptr<const RegistrablePages>> RegistrablePages::map(size_t bytes,
                                                                      const VerbsRules& rules) {
  const size_t alignment = rules.region_alignment;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  const size_t length = (rules.may_cross_4gib ? whole : 2 * whole) + alignment;
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status::from_errno("no memory for slots", errno);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  uintptr_t first = (begin + alignment - 1) / alignment * alignment;
  const uintptr_t boundary = (first / k4Gib + 1) * k4Gib;
  if (!rules.may_cross_4gib && first + whole > boundary) first = boundary;
  const std::span mapped(static_cast<std::byte*>(memory), length);
  return std::shared_ptr<const RegistrablePages>(
      new RegistrablePages(mapped, mapped.subspan(first - begin, whole)));
}

RegistrablePages::~RegistrablePages() { munmap(mapped_.data(), mapped_.size()); }

void CloseVerbsRail::operator()(VerbsRail* rail) const {
  const std::string port = rail->port().text();
  const auto close = [rail] {
    delete rail;
    return true;
  };
  const auto closed = run_bounded<bool>(close, Deadline::after(kCloseMax));
  if (closed.is_ok()) return;
  LOG(error, "{}: its queue pairs are left behind, destroying them gave {}", port,
      closed.status().message());
}

Result<VerbsRailPtr> VerbsRail::open(const VerbsProvider& provider, const VerbsPort& port,
                                     const SlotClass& slots) {
  const LaneLayout layout = LaneLayout::of(slots, provider.rules);
  const VerbsRules& rules = provider.rules;
  // The queue of sends is the deeper one.
  const uint64_t frames =
      uint64_t{2} * layout.receives * layout.entries_per_message(layout.lanes - 1, rules);
  if ((rules.frame_bytes > 0 && frames > rules.frames_max) ||
      std::max(layout.send_bytes(), layout.all_receive_bytes()) > rules.region_bytes_max) {
    return Status::request(
        fmt::format("{} slots of {} bytes are more than {} holds: take fewer or smaller ones",
                    slots.count, slots.payload_bytes, port.text()));
  }
  Plan plan{.provider = provider, .layout = layout};
  ASSIGN_OR_RETURN(plan.sends, RegistrablePages::map(layout.send_bytes(), rules));
  return open(plan, port);
}

Result<VerbsRailPtr> VerbsRail::open(const Plan& plan, const VerbsPort& port) {
  VerbsRailPtr rail(new VerbsRail(plan, port));
  RETURN_IF_ERROR(rail->open_device());
  RETURN_IF_ERROR(rail->register_slots());
  RETURN_IF_ERROR(rail->make_queues());
  return rail;
}

VerbsRail::Plan VerbsRail::plan_further(int lane) const {
  return {.provider = provider_,
          .layout = layout_.of_whole_slots(),
          .first_lane = lane,
          .sends = sends_};
}

VerbsRail::VerbsRail(const Plan& plan, VerbsPort port)
    : provider_(plan.provider),
      port_(std::move(port)),
      layout_(plan.layout),
      first_lane_(plan.first_lane),
      nonce_(random_nonce()),
      // What is under way, and as much again that has arrived and is not acknowledged yet.
      sends_max_(2 * layout_.receives),
      sends_(plan.sends),
      context_(nullptr, provider_.table->close_device),
      domain_(nullptr, provider_.table->dealloc_pd),
      channel_(nullptr, provider_.table->destroy_comp_channel),
      send_queue_(nullptr, provider_.table->destroy_cq),
      receive_queue_(nullptr, provider_.table->destroy_cq),
      sends_region_(nullptr, provider_.table->dereg_mr),
      receives_region_(nullptr, provider_.table->dereg_mr),
      pairs_{Owned<ibv_qp>(nullptr, provider_.table->destroy_qp),
             Owned<ibv_qp>(nullptr, provider_.table->destroy_qp)} {
  for (uint32_t& first : first_packet_) first = random_packet_number();
}

VerbsRail::~VerbsRail() = default;

Status VerbsRail::refused(std::string_view what, int error) const {
  return Status::node(fmt::format("{}: {}: {}", port_.text(), what,
                                  error != 0 ? std::strerror(error) : "no reason given"));
}

std::optional<uint32_t> VerbsRail::immediate_of(const ibv_wc& completion) {
  if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
  return ntohl(completion.imm_data);
}

std::string VerbsRail::failure_text(const ibv_wc& completion, std::string_view what) const {
  return fmt::format("{} ended with \"{}\" (completion status {})", what,
                     provider_.table->wc_status_str(completion.status),
                     static_cast<int>(completion.status));
}

Status VerbsRail::open_device() {
  const VerbsTable& table = *provider_.table;
  int count = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(table.get_device_list(&count),
                                                                  table.free_device_list);
  for (int i = 0; list != nullptr && i < count && context_ == nullptr; ++i) {
    if (port_.device != table.get_device_name(list.get()[i])) continue;
    errno = 0;
    context_.reset(table.open_device(list.get()[i]));
    if (context_ == nullptr) return refused("cannot be opened", errno);
  }
  if (context_ == nullptr) return Status::node(port_.text() + ": the device has gone");
  errno = 0;
  domain_.reset(table.alloc_pd(context_.get()));
  if (domain_ == nullptr) return refused("no protection domain", errno);
  return Status::ok();
}

Status VerbsRail::register_slots() {
  ASSIGN_OR_RETURN(sends_region_, register_region(sends_->bytes()));
  ASSIGN_OR_RETURN(receives_, RegistrablePages::map(layout_.all_receive_bytes(), provider_.rules));
  ASSIGN_OR_RETURN(receives_region_, register_region(receives_->bytes()));
  return Status::ok();
}

Result<VerbsRail::Owned<ibv_mr>> VerbsRail::register_region(std::span<std::byte> memory) const {
  const VerbsTable& table = *provider_.table;
  errno = 0;
  ibv_mr* region =
      table.reg_mr(domain_.get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  // Some providers refuse a region that only the device's own side may write.
  if (region == nullptr && errno != ENOMEM) {
    region = table.reg_mr(domain_.get(), memory.data(), memory.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }
  if (region != nullptr) return Owned<ibv_mr>(region, table.dereg_mr);
  const int error = errno;
  rlimit limit{};
  const bool has_limit = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (error == ENOMEM && has_limit) {
    return Status::node(fmt::format(
        "{} cannot register {} bytes: the limit on locked memory is {} for all that this process "
        "registers; raise it (ulimit -l, LimitMEMLOCK= of the service)",
        port_.text(), memory.size(), limit.rlim_cur));
  }
  return refused(fmt::format("cannot register {} bytes", memory.size()), error);
}

Status VerbsRail::register_memory(std::span<std::byte> memory) {
  // Where lengths must match, a message is one piece of the link's own memory.
  if (provider_.rules.frame_bytes > 0 || memory.empty()) return Status::ok();
  ASSIGN_OR_RETURN(Owned<ibv_mr> region, register_region(memory));
  callers_regions_.push_back(std::move(region));
  return Status::ok();
}

void VerbsRail::stop() {
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  for (const Owned<ibv_qp>& pair : pairs_) {
    if (pair != nullptr) (void)provider_.table->modify_qp(pair.get(), &error, IBV_QP_STATE);
  }
}

void VerbsRail::unregister_memory(std::span<std::byte> memory) {
  // The last one: the same memory may be registered twice.
  const auto found = std::find_if(
      callers_regions_.rbegin(), callers_regions_.rend(), [&](const Owned<ibv_mr>& region) {
        return region->addr == memory.data() && region->length == memory.size();
      });
  if (found != callers_regions_.rend()) callers_regions_.erase(std::next(found).base());
}

const ibv_mr* VerbsRail::region_of(std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  for (const Owned<ibv_mr>& region : callers_regions_) {
    const auto first = reinterpret_cast<uintptr_t>(region->addr);
    if (begin >= first && begin + bytes.size() <= first + region->length) return region.get();
  }
  return nullptr;
}

Status VerbsRail::make_queues() {
  const VerbsTable& table = *provider_.table;
  errno = 0;
  channel_.reset(table.create_comp_channel(context_.get()));
  if (channel_ == nullptr) return refused("no completion channel", errno);
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Status::from_errno("a completion channel that does not block", errno);
  }
  const auto lanes = static_cast<uint32_t>(layout_.lanes);
  errno = 0;
  send_queue_.reset(table.create_cq(context_.get(), static_cast<int>(lanes * sends_max_), nullptr,
                                    channel_.get(), 0));
  if (send_queue_ == nullptr) return refused("no completion queue", errno);
  errno = 0;
  receive_queue_.reset(table.create_cq(context_.get(), static_cast<int>(lanes * layout_.receives),
                                       nullptr, channel_.get(), 0));
  if (receive_queue_ == nullptr) return refused("no completion queue", errno);
  for (int i = 0; i < layout_.lanes; ++i) {
    RETURN_IF_ERROR(
        make_pair(pairs_[static_cast<size_t>(i)], layout_.entries_per_message(i, provider_.rules)));
  }
  return Status::ok();
}

Status VerbsRail::make_pair(Owned<ibv_qp>& pair, uint32_t entries_per_message) {
  const VerbsTable& table = *provider_.table;
  const bool has_frames = provider_.rules.frame_bytes > 0;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_queue_.get();
  attributes.recv_cq = receive_queue_.get();
  attributes.qp_type = provider_.rules.qp_type;
  attributes.cap.max_send_wr = sends_max_ * entries_per_message;
  attributes.cap.max_recv_wr = layout_.receives * entries_per_message;
  attributes.cap.max_send_sge = has_frames ? 1 : 2;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = has_frames ? 0 : kInlineBytes;
  errno = 0;
  pair.reset(table.create_qp(domain_.get(), &attributes));
  if (pair == nullptr && attributes.cap.max_inline_data > 0) {  // devices without it refuse
    attributes.cap.max_inline_data = 0;
    pair.reset(table.create_qp(domain_.get(), &attributes));
  }
  if (pair == nullptr) return refused("no queue pair", errno);
  inline_max_ = std::min(inline_max_, attributes.cap.max_inline_data);

  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.pkey_index = 0;
  init.port_num = port_.number;
  init.qp_access_flags = 0;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const int error = table.modify_qp(pair.get(), &init, mask);
  return error == 0 ? Status::ok() : refused("the queue pair cannot be initialized", error);
}

RailOffer VerbsRail::offer() const {
  RailOffer offer;
  const auto lanes = static_cast<size_t>(layout_.lanes);
  offer.lanes = static_cast<uint32_t>(lanes);
  offer.frame_bytes = provider_.rules.frame_bytes;
  offer.qp_type = provider_.rules.qp_type;
  offer.mtu = port_.mtu;
  offer.lid = port_.lid;
  std::memcpy(offer.gid.data(), port_.gid.raw, offer.gid.size());
  offer.nonce = nonce_;
  for (size_t index = 0; index < lanes; ++index) {
    offer.lane[index] = {.qp_number = pairs_[index]->qp_num, .first_packet = first_packet_[index]};
  }
  return offer;
}

Status VerbsRail::connect(const RailOffer& peer) {
  const RailOffer own = offer();
  if (peer.lanes != own.lanes || peer.frame_bytes != own.frame_bytes ||
      peer.qp_type != own.qp_type) {
    return Status::group(
        "has queue pairs of another kind: RDMA between two kinds of device, or of "
        "system, is not possible");
  }
  for (size_t index = 0; index < own.lanes; ++index) {
    RETURN_IF_ERROR(make_ready_to_receive(index, peer));
    if (provider_.rules.receives_early) RETURN_IF_ERROR(post_all_receives(index));
    RETURN_IF_ERROR(make_ready_to_send(index));
    if (!provider_.rules.receives_early) RETURN_IF_ERROR(post_all_receives(index));
  }
  return Status::ok();
}

Status VerbsRail::make_ready_to_receive(size_t index, const RailOffer& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(port_.mtu, static_cast<ibv_mtu>(peer.mtu));
  attributes.dest_qp_num = peer.lane[index].qp_number;
  attributes.rq_psn = peer.lane[index].first_packet;
  attributes.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  attributes.ah_attr.port_num = port_.number;
  if (port_.has_gid_routing) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(port_.gid_index);
    attributes.ah_attr.grh.hop_limit = provider_.rules.frame_bytes == 0 ? kHopLimit : 1;
  }
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (provider_.rules.qp_type == IBV_QPT_RC) {
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = kReceiverNotReadyTimer;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  const int error = provider_.table->modify_qp(pairs_[index].get(), &attributes, mask);
  return error == 0 ? Status::ok() : refused("the queue pair cannot reach its peer", error);
}

Status VerbsRail::make_ready_to_send(size_t index) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = first_packet_[index];
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (provider_.rules.qp_type == IBV_QPT_RC) {
    attributes.timeout = kTimeout;
    attributes.retry_cnt = kRetries;
    attributes.rnr_retry = kReceiverNotReadyRetries;
    attributes.max_rd_atomic = 1;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  const int error = provider_.table->modify_qp(pairs_[index].get(), &attributes, mask);
  return error == 0 ? Status::ok() : refused("the queue pair cannot send", error);
}

Status VerbsRail::post_all_receives(size_t index) {
  const int lane = first_lane_ + static_cast<int>(index);
  for (uint32_t i = 0; i < layout_.receives; ++i) RETURN_IF_ERROR(post_receive(lane, i));
  return Status::ok();
}

std::byte* VerbsRail::send_slot(uint64_t sequence) const {
  const uint64_t count = layout_.receives - kControlMessages;
  return sends_->bytes().data() + (sequence % count) * layout_.slot_bytes;
}

std::byte* VerbsRail::control_message(uint64_t number) const {
  const size_t slots = layout_.receives - kControlMessages;
  return sends_->bytes().data() + (slots + number % kControlMessages) * layout_.slot_bytes;
}

std::byte* VerbsRail::receive(int lane, uint32_t index) const {
  const size_t of_lane_0 =
      lane == first_lane_ ? 0 : size_t{layout_.receives} * layout_.receive_bytes[0];
  return receives_->bytes().data() + of_lane_0 +
         size_t{index} * layout_.receive_bytes[index_of(lane)];
}

Status VerbsRail::post_send(int lane, const Send& send) {
  std::array<ibv_sge, 2> parts{};
  size_t count = 0;
  if (send.bytes > 0) {
    parts[count++] = {.addr = reinterpret_cast<uint64_t>(send.from),
                      .length = send.bytes,
                      .lkey = sends_region_->lkey};
  }
  const bool is_inline = send.bytes <= inline_max_ && send.in_place.empty() && count > 0;
  if (!send.in_place.empty()) {
    const ibv_mr* region = region_of(send.in_place);
    CHECK(region != nullptr);
    parts[count++] = {.addr = reinterpret_cast<uint64_t>(send.in_place.data()),
                      .length = static_cast<uint32_t>(send.in_place.size()),
                      .lkey = region->lkey};
  }
  ibv_send_wr work{};
  work.wr_id = send.id;
  work.sg_list = parts.data();
  work.num_sge = static_cast<int>(count);
  work.opcode = send.immediate.has_value() ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  work.imm_data = htonl(send.immediate.value_or(0));
  work.send_flags =
      (send.is_signaled ? IBV_SEND_SIGNALED : 0U) | (is_inline ? IBV_SEND_INLINE : 0U);
  ibv_send_wr* bad = nullptr;
  ibv_qp* pair = pairs_[index_of(lane)].get();
  const int error = provider_.table->post_send(pair, &work, &bad);
  return error == 0 ? Status::ok() : refused("a send was refused", error);
}

Status VerbsRail::post_receive(int lane, uint32_t index) {
  ibv_sge part{.addr = reinterpret_cast<uint64_t>(receive(lane, index)),
               .length = layout_.receive_bytes[index_of(lane)],
               .lkey = receives_region_->lkey};
  ibv_recv_wr work{};
  work.wr_id = make_id(lane, index);
  work.sg_list = &part;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ibv_qp* pair = pairs_[index_of(lane)].get();
  const int error = provider_.table->post_recv(pair, &work, &bad);
  return error == 0 ? Status::ok() : refused("a receive was refused", error);
}

Result<size_t> VerbsRail::poll_sends(std::span<ibv_wc> completions) {
  const int count = provider_.table->poll_cq(
      send_queue_.get(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) return refused("the completion queue of sends fails", errno);
  return static_cast<size_t>(count);
}

Result<size_t> VerbsRail::poll_receives(std::span<ibv_wc> completions) {
  const int count = provider_.table->poll_cq(
      receive_queue_.get(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) return refused("the completion queue of receives fails", errno);
  return static_cast<size_t>(count);
}

Status VerbsRail::arm(bool for_sends) {
  int error = provider_.table->req_notify_cq(receive_queue_.get(), 0);
  if (error == 0 && for_sends) error = provider_.table->req_notify_cq(send_queue_.get(), 0);
  return error == 0 ? Status::ok() : refused("the completion queue gives no events", error);
}

void VerbsRail::take_events() {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  while (provider_.table->get_cq_event(channel_.get(), &queue, &user) == 0) {
    provider_.table->ack_cq_events(queue, 1);
  }
}

}  // namespace shoal::fabric
