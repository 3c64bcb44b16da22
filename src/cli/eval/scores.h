// Scores: perplexity, and how far logits are from a reference, gathered position by position.
//
// Perplexity is exp of the mean of -ln p(next token). The divergence is KL(reference || model) in
// nats over the reference's 64 tokens, with everything else as one bucket on both sides.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "cli/bench/samples.h"
#include "cli/eval/reference.h"

namespace shoal::cli {

struct Divergence {
  double mean = 0;
  double median = 0;
  double p99 = 0;
  double max = 0;
  double same_best = 0;  // share of positions with the same best token
};

class Scores {
 public:
  // logits: [vocabulary] after a token; next: the token that followed it. kRequest where a logit is
  // not finite.
  Status add(std::span<const float> logits, int32_t next);
  // The same position against the reference; after add().
  Status compare(std::span<const float> logits, const Reference::Position& reference);

  size_t positions() const { return positions_; }
  double perplexity() const;
  // None where nothing was compared.
  std::optional<Divergence> divergence() const;

 private:
  size_t positions_ = 0;
  double negative_log_sum_ = 0;
  double log_sum_exp_ = 0;  // of the last position
  size_t same_best_ = 0;
  Samples divergences_;
};

}  // namespace shoal::cli
