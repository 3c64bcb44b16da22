// From TCP connections past their handshakes to queue pairs that carry messages, in two rounds: all
// links of a group get their first rail, over the port that the connection's own address chooses;
// then each link gets rails over what further cables there are between the two machines. So what a
// device or its limits hold goes to first rails before it goes to others.
//
// Both sides take the same steps (bring_up.h). docs/fabric.md specifies the bytes. Thread rule: one
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/verbs/rail_candidates.h"
#include "fabric/verbs/verbs_endpoint.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

// A link that is coming up.
struct VerbsConnection {
  EndpointInfo info;
  UniqueFd socket;
  std::string where;                // "rank 1 (node-1) over verbs: rxe0 port 1, GID 1"
  std::vector<VerbsRailPtr> rails;  // the first one is up
  std::set<Gid> in_use;             // both ends of all rails
};

// `data` is a connected, non-blocking TCP socket whose own address chooses the port. kNode: no port
// fits here; kGroup: the peer cannot, or nothing comes through. Each names device, port and GID
// where it got so far. A device that hangs is given up after ten seconds.
Result<VerbsConnection> connect_verbs(const VerbsProvider& provider, UniqueFd data,
                                      const EndpointInfo& info, const GroupHealth& health,
                                      const Deadline& deadline);

// Attempts on one link.
inline constexpr int kRailTriesMax = 8;

// For the attempts of all ranks of a group, one after the other.
inline constexpr Nanoseconds kRailSearchMax = std::chrono::seconds(6);

// Where a slot is no longer than a small message, one cable is enough.
bool may_have_further_rails(const VerbsConnection& connection);

// The search for further cables of one rank, over all its links.
struct RailSearch {
  VerbsProvider provider;
  std::vector<PortFacts> ports{};  // of this machine
  std::vector<InterfaceAddress> addresses{};
  // For the attempts that this rank leads, over all its links: no further one is begun after it.
  Nanoseconds time_left = kRailSearchMax;
  // For the first message of one attempt.
  Nanoseconds greeting = std::chrono::milliseconds(500);
};
// What this machine has; no ports where its devices do not answer.
RailSearch make_rail_search(const VerbsProvider& provider);

// Adds to the first rail; at most kRailsMax in all. Pairs of ports are tried one after the other,
// as the lower rank says, each with a queue pair of its own; those through which the first message
// came, both ways, stay. An address counts as one end of one cable, even where both ranks are on
// one machine and have the same ports. kGroup, as a sentence about the peer: the two sides are not
// in step. That a cable is not there is no error.
Status add_further_rails(RailSearch& search, VerbsConnection& connection, const Deadline& deadline);

Result<std::unique_ptr<VerbsEndpoint>> finish_verbs(VerbsConnection connection,
                                                    GroupHealth& health);

}  // namespace shoal::fabric
