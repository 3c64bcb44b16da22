// BareExchange: an all-reduce of two processes with nothing around it: the floor that the fabric's
// figures are compared with.
//
// Over shared memory each copies its data into memory that both map, raises a flag, spins on the
// other's flag and sums; over TCP each writes and reads a socket without ever sleeping. No credits,
// no headers, no liveness, no recovery: a peer's death is only noticed at the deadline.
// Thread rule: one thread. Both ranks call the same with the same sizes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "collective/group.h"

namespace shoal::cli {

class BareExchange {
 public:
  virtual ~BareExchange() = default;
  BareExchange(const BareExchange&) = delete;
  BareExchange& operator=(const BareExchange&) = delete;

  // data becomes the sum of both ranks'. At most the bytes that it was made for.
  virtual Status all_reduce(std::span<float> data, const Deadline& deadline) = 0;

 protected:
  BareExchange() = default;
};

// Both ranks of a group of two, on one machine, call this; the group carries what they need to find
// one another. The exchange goes over the group's kind of link.
Result<std::unique_ptr<BareExchange>> make_bare_exchange(collective::Group& group, size_t bytes_max,
                                                         const Deadline& deadline);

}  // namespace shoal::cli
