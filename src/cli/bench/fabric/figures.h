// LinkFigures: what `shoal bench fabric` measures of one kind of link.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/samples.h"
#include "fabric/endpoint.h"

namespace shoal::cli {

// Messages of one size between two ranks.
struct MessageFigures {
  size_t bytes = 0;
  // Round trips: seconds, there and back. Streams: bytes per second of a batch, both directions
  // added.
  Summary figure{};
  double overall = 0;  // of streams: bytes per second of all batches together
  // Seconds of processor time per message (sent or received) in the process of the lower rank, and
  // of the higher one; waiting by polling included.
  double lower_cpu = 0;
  double higher_cpu = 0;
};

struct PairFigures {
  int lower = 0;  // rank
  int higher = 1;
  std::vector<MessageFigures> round_trip{};
  std::vector<MessageFigures> stream{};     // from the lower rank to the higher
  std::vector<MessageFigures> both_ways{};  // at once
};

// One collective operation on so many bytes; seconds per operation.
struct CollectiveFigures {
  size_t bytes = 0;
  std::string algorithm{};
  Summary seconds{};  // means of several in a row
  Summary single{};   // each of them; none of broadcasts
  Summary bare{};     // all-reduce of two ranks: the floor (bare_exchange.h), as `seconds`
};

struct LinkFigures {
  std::string link{};
  std::vector<fabric::LinkPort> ports{};  // over verbs, one for each cable: rank 0's to rank 1
  std::vector<PairFigures> pairs{};
  std::vector<CollectiveFigures> all_reduce{};
  std::vector<CollectiveFigures> all_gather{};  // bytes: of all parts together
  std::vector<CollectiveFigures> broadcast{};
};

}  // namespace shoal::cli
