#include "fabric/verbs/verbs_connect.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "base/log.h"
#include "base/os/thread.h"
#include "fabric/link/stream.h"
#include "fabric/verbs/bring_up.h"
#include "fabric/verbs/verbs_link.h"

namespace shoal::fabric {
namespace {

// How long a device may take to open, and again to connect its queue pairs; the first message.
struct Patience {
  Nanoseconds device;
  Nanoseconds greeting;
};
constexpr Patience kFirstRail{.device = std::chrono::seconds(10),
                              .greeting = std::chrono::seconds(5)};
// Of a cable that may not be there.
constexpr Nanoseconds kFurtherDeviceMax = std::chrono::seconds(3);
// From the lower rank instead of a pair's number: there are no more attempts.
constexpr uint32_t kNoMorePairs = UINT32_MAX;

using RailResult = Result<VerbsRailPtr>;

// What the device says, or that it says nothing.
RailResult bounded(const std::function<RailResult()>& call, const Deadline& deadline) {
  auto rail = run_bounded<RailResult>(call, deadline);
  if (rail.is_ok()) return std::move(*rail);
  if (rail.status().code() != StatusCode::kBusy) return rail.status();
  return Status::node("the RDMA device does not answer in time: its driver hangs");
}

// The call that is given up owns the rail.
RailResult connect_bounded(VerbsRailPtr rail, const RailOffer& peer, const Deadline& deadline) {
  const auto held = std::make_shared<VerbsRailPtr>(std::move(rail));
  return bounded(
      [held, peer]() -> RailResult {
        RETURN_IF_ERROR((*held)->connect(peer));
        return std::move(*held);
      },
      deadline);
}

// From an opened rail and what the peer offers to one through which messages go both ways. Both
// sides hear how it went.
RailResult come_up(int socket, VerbsRailPtr rail, const OfferBytes& bytes, const Patience& patience,
                   const Deadline& deadline) {
  const auto offer = decode_rail_offer(bytes);
  auto connected = offer.is_ok()
                       ? connect_bounded(std::move(rail), *offer, deadline.at_most(patience.device))
                       : RailResult(offer.status());
  RETURN_IF_ERROR(exchange_outcome(socket, connected.status(), deadline));
  const Status greeted = greet(socket, **connected, *offer, deadline.at_most(patience.greeting));
  RETURN_IF_ERROR(exchange_outcome(socket, greeted, deadline));
  return connected;
}

// The attempts on one link.
class CableTrials {
 public:
  CableTrials(RailSearch& search, VerbsConnection& connection, const Deadline& deadline)
      : search_(search), link_(connection), deadline_(deadline) {}

  Status run() {
    const auto own = rail_candidates(search_.ports, search_.addresses, link_.rails.front()->port());
    ASSIGN_OR_RETURN(const auto theirs, exchange_candidates(socket(), own, deadline_));
    const bool is_lower = link_.info.self_rank < link_.info.peer_rank;
    const auto& lower = is_lower ? own : theirs;
    const auto& higher = is_lower ? theirs : own;
    for (const RailPair& pair : rail_pairs(lower, higher)) {
      const Gid& of_lower = lower[pair.lower].address;
      const Gid& of_higher = higher[pair.higher].address;
      ends_.push_back(is_lower ? Ends{of_lower, of_higher} : Ends{of_higher, of_lower});
    }
    RETURN_IF_ERROR(is_lower ? lead() : follow());
    return agree();
  }

 private:
  struct Ends {
    Gid here;
    Gid there;
  };

  int socket() const { return link_.socket.get(); }

  Status lead() {
    int tries = 0;
    for (size_t i = 0; i < ends_.size() && link_.rails.size() < kRailsMax; ++i) {
      const bool is_used =
          link_.in_use.contains(ends_[i].here) || link_.in_use.contains(ends_[i].there);
      if (is_used) continue;
      if (tries == kRailTriesMax || search_.time_left.count() <= 0 || deadline_.expired()) {
        LOG(warn, "{}: not all pairs of ports were tried for further cables", link_.where);
        break;
      }
      const Nanoseconds started = SteadyClock::instance().now();
      RETURN_IF_ERROR(write_number(socket(), static_cast<uint32_t>(i), deadline_));
      try_ends(ends_[i]);
      search_.time_left -= SteadyClock::instance().now() - started;
      ++tries;
    }
    return write_number(socket(), kNoMorePairs, deadline_);
  }

  Status follow() {
    for (int tries = 0;; ++tries) {
      ASSIGN_OR_RETURN(const uint32_t number, read_number(socket(), deadline_));
      if (number == kNoMorePairs) return Status::ok();
      if (number >= ends_.size() || tries == kRailTriesMax || link_.rails.size() == kRailsMax) {
        return Status::group("sent rubbish for the cables between us");
      }
      try_ends(ends_[number]);
    }
  }

  // What one side missed shows here, and that the peer is still there.
  Status agree() {
    const auto own = static_cast<uint32_t>(link_.rails.size());
    RETURN_IF_ERROR(write_number(socket(), own, deadline_));
    ASSIGN_OR_RETURN(const uint32_t theirs, read_number(socket(), deadline_));
    if (theirs == own) return Status::ok();
    return Status::group(fmt::format("found {} cables where {} were found here", theirs, own));
  }

  // Where the connection fails, the next number does not go through either.
  void try_ends(const Ends& ends) {
    auto rail = open(ends.here);
    const auto offer = exchange_offers(socket(), rail, deadline_);
    if (!rail.is_ok()) {
      LOG(warn, "{}: a further cable is not used: {}", link_.where, rail.status().message());
      link_.in_use.insert(ends.here);
      return;
    }
    if (!offer.is_ok()) {
      link_.in_use.insert(ends.there);
      return;
    }
    const std::string port = (*rail)->port().text();
    const Patience patience{.device = kFurtherDeviceMax, .greeting = search_.greeting};
    rail = come_up(socket(), std::move(*rail), *offer, patience, deadline_);
    if (!rail.is_ok()) {
      const bool is_ours = rail.status().code() == StatusCode::kNode;
      if (is_ours) LOG(warn, "{}: {} is not used: {}", link_.where, port, rail.status().message());
      if (!is_ours) LOG(debug, "{}: none from {}: {}", link_.where, port, rail.status().message());
      return;
    }
    link_.rails.push_back(std::move(*rail));
    link_.in_use.insert({ends.here, ends.there});
  }

  RailResult open(const Gid& address) const {
    const VerbsRail& first = *link_.rails.front();
    const int lane = first.layout().lanes + static_cast<int>(link_.rails.size()) - 1;
    return bounded(
        [plan = first.plan_further(lane), address]() -> RailResult {
          ASSIGN_OR_RETURN(const VerbsPort port,
                           find_port(*plan.provider.table, socket_address(address)));
          return VerbsRail::open(plan, port);
        },
        deadline_.at_most(kFurtherDeviceMax));
  }

  RailSearch& search_;
  VerbsConnection& link_;
  const Deadline deadline_;
  std::vector<Ends> ends_;
};

}  // namespace

Result<VerbsConnection> connect_verbs(const VerbsProvider& provider, UniqueFd data,
                                      const EndpointInfo& info, const GroupHealth& health,
                                      const Deadline& deadline) {
  const std::string peer = health.rank_text(info.peer_rank) + " over " + info.link + ": ";
  ASSIGN_OR_RETURN(const SocketAddress local, local_address(data.get()));
  ASSIGN_OR_RETURN(const SocketAddress remote, peer_address(data.get()));
  VerbsConnection connection;
  connection.info = info;
  connection.socket = std::move(data);
  connection.in_use = {gid_of(local).value_or(Gid()), gid_of(remote).value_or(Gid())};
  const int socket = connection.socket.get();
  auto rail = bounded(
      [provider, local, slots = info.slots]() -> RailResult {
        ASSIGN_OR_RETURN(const VerbsPort port, find_port(*provider.table, local));
        return VerbsRail::open(provider, port, slots);
      },
      deadline.at_most(kFirstRail.device));
  const auto offer = exchange_offers(socket, rail, deadline);
  if (!rail.is_ok()) return rail.status().with_context(peer + "no RDMA here");
  const VerbsPort& port = (*rail)->port();
  connection.where = fmt::format("{}{}, GID {}", peer, port.text(), port.gid_index);
  if (!offer.is_ok()) return offer.status().with_context(connection.where);
  rail = come_up(socket, std::move(*rail), *offer, kFirstRail, deadline);
  if (!rail.is_ok()) return rail.status().with_context(connection.where);
  connection.rails.push_back(std::move(*rail));
  return connection;
}

RailSearch make_rail_search(const VerbsProvider& provider) {
  RailSearch search{.provider = provider};
  auto ports = list_ports_bounded(*provider.table);
  auto addresses = interface_addresses();
  for (const Status& status : {ports.status(), addresses.status()}) {
    if (!status.is_ok()) LOG(warn, "further cables are not looked for: {}", status.message());
  }
  if (ports.is_ok()) search.ports = std::move(*ports);
  if (addresses.is_ok()) search.addresses = std::move(*addresses);
  return search;
}

bool may_have_further_rails(const VerbsConnection& connection) {
  return connection.rails.front()->layout().lanes > 1;
}

Status add_further_rails(RailSearch& search, VerbsConnection& connection,
                         const Deadline& deadline) {
  if (!may_have_further_rails(connection)) return Status::ok();
  return CableTrials(search, connection, deadline).run().with_context(connection.where);
}

Result<std::unique_ptr<VerbsEndpoint>> finish_verbs(VerbsConnection connection,
                                                    GroupHealth& health) {
  auto link = VerbsLink::create(std::move(connection.rails));
  if (!link.is_ok()) return link.status().with_context(connection.where);
  return VerbsEndpoint::create(std::move(connection.info), std::move(*link), health);
}

}  // namespace shoal::fabric
