// PairBench: messages between two ranks, measured by the lower one.
//
// Both ranks call the same functions in the same order, with the same sizes. What the higher one
// returns has no meaning.
// Thread rule: one thread. Borrows the fabric.
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "base/status.h"
#include "cli/bench/fabric/figures.h"
#include "cli/bench/fabric/plan.h"
#include "fabric/fabric.h"
#include "fabric/message.h"

namespace shoal::cli {

class PairBench {
 public:
  PairBench(fabric::Fabric& fabric, int peer)
      : fabric_(fabric), peer_(fabric.endpoint(peer)), is_lower_(fabric.rank() < peer) {}

  // Seconds of each message there and back.
  Result<MessageFigures> round_trip(size_t bytes, const Budget& budget);
  // Bytes per second of messages one behind another, each batch until its receiver has all.
  Result<MessageFigures> stream(size_t bytes, bool is_both_ways, const Budget& budget);

 private:
  struct Amounts {
    uint32_t sends = 0;
    uint32_t receives = 0;
  };
  // For a message of so many bytes.
  Deadline deadline(size_t bytes = 0) const;
  fabric::WaitPolicy wait() const { return {.spin = fabric_.spin(), .deadline = deadline()}; }
  Result<Batch> agree(Pacer& pacer);
  // run(batch) for every batch that both agree on; fills in the processor time per message.
  template <typename Run>
  Status repeat(const Budget& budget, uint32_t messages_per_round, MessageFigures* figures,
                const Run& run);
  Status exchange_cpu(double mine, MessageFigures* figures);
  Status round(std::span<std::byte> buffer, const fabric::WaitPolicy& policy);
  Status pass(const Amounts& amounts, std::span<std::byte> out, std::span<std::byte> in);
  Status confirm();

  fabric::Fabric& fabric_;
  fabric::Endpoint& peer_;
  const bool is_lower_;
};

}  // namespace shoal::cli
