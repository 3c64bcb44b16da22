// The steps in which a rail comes up, over the TCP connection of the handshake: both sides take the
// same ones in the same order, and each says how it fared, so that either learns why a rail does
// not come up. docs/fabric.md specifies the bytes.
// Thread rule: pure functions; one thread per socket.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

using OfferBytes = std::array<std::byte, RailOffer::kBytes>;

// Tells the peer how a step went here, and hears how it went there. This side's failure, or the
// peer's with its reason (kGroup, as a sentence about the peer).
Status exchange_outcome(int socket, const Status& own, const Deadline& deadline);

// The same for opening a rail: the peer's offer, not looked at yet, where both could.
Result<OfferBytes> exchange_offers(int socket, const Result<VerbsRailPtr>& own,
                                   const Deadline& deadline);

// The first message through every lane of a connected rail, both ways. Each says the nonce that its
// receiver has offered, so that a message that comes from elsewhere is found out: what an address
// or a cable leads to shows here, and not in the middle of a step. Ours are acknowledged and the
// peer's have come once this is ok. kGroup, as a sentence about the peer: nothing comes, something
// else does, a queue pair broke, or the connection closed; kNode: the device fails.
Status greet(int socket, VerbsRail& rail, const RailOffer& peer, const Deadline& deadline);

}  // namespace shoal::fabric
