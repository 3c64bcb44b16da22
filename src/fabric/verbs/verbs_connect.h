// connect_verbs(): from a TCP connection past its handshake to queue pairs that carry messages.
//
// Over the connection go: what each side offers, or why it cannot; then, once all receives are
// posted, one byte. Then a message goes through every lane, both ways, and one byte says that it
// has come: a GID that is routed nowhere or a path whose MTU is smaller than it says show here, and
// not in the middle of a step. docs/fabric.md specifies the bytes. Thread rule: one thread.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/endpoint.h"
#include "fabric/verbs/verbs_endpoint.h"

namespace shoal::fabric {

// `data` is a connected, non-blocking TCP socket whose own address chooses the port. kNode: no port
// fits here; kGroup: the peer cannot, or nothing comes through. Each names device, port and GID
// where it got so far. A device that hangs is given up after ten seconds.
Result<std::unique_ptr<VerbsEndpoint>> connect_verbs(const VerbsProvider& provider, int data,
                                                     const EndpointInfo& info, GroupHealth& health,
                                                     const Deadline& deadline);

}  // namespace shoal::fabric
