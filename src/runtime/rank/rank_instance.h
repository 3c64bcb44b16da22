// RankInstance: one rank's share of a loaded model, and its part in every command.
//
// All ranks of a group execute the same commands in the same order: rank 0 as the Engine asks, the
// others as they arrive (follower.cc). Protocol and formats: docs/step_protocol.md.
// Errors: kGroup or kNode, after which the instance is of no use. Requests that cannot be met are
// caught on rank 0 before a command is sent.
// Thread rule: one thread at a time. Borrows model and group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/group.h"
#include "model/model.h"
#include "plan/plan.h"
#include "runtime/engine_options.h"
#include "runtime/measure/measurements.h"
#include "runtime/rank/command.h"
#include "runtime/rank/decoder.h"
#include "runtime/rank/kv_cache.h"
#include "runtime/rank/rank_report.h"
#include "runtime/rank/weights.h"
#include "runtime/token.h"
#include "tensor/threads.h"

namespace shoal::runtime {

class RankInstance {
 public:
  static constexpr uint32_t kFullOutputsMax = 16;  // at a time, in OutputMode::kFull
  static constexpr uint32_t kCandidatesMax = 64;   // of one rank's summary

  // Loads this rank's part and exchanges reports with the other ranks. On rank 0 fails with the
  // first rank's failure; elsewhere with the own one only (rank 0 then sends kShutdown).
  static Result<std::unique_ptr<RankInstance>> create(const model::Model& model,
                                                      const plan::Plan& plan,
                                                      collective::Group& group,
                                                      const EngineOptions& options);
  RankInstance(const RankInstance&) = delete;
  RankInstance& operator=(const RankInstance&) = delete;

  // Rank 0: sends the command and takes part in it. tokens: of all items in order, for kStep.
  // on_logits gets full logits [rows, vocabulary], outputs from `first` on, block by block.
  using OnLogits = std::function<void(size_t first, std::span<const float> logits)>;
  Status lead(Command& command, std::span<const TokenId> tokens, const OnLogits& on_logits);
  // Rank 0, after a step in OutputMode::kSummary: of all ranks' rows together.
  std::span<const LogitSummary> summaries() const { return std::span(summaries_).first(outputs_); }

  // Rank 0, after a step: Decoder::hidden_states().
  std::span<const float> hidden_states(size_t first, size_t count) {
    return decoder_->hidden_states(first, count);
  }

  // Other ranks: waits for one command and takes part in it. False when it was kShutdown.
  Result<bool> follow();

  // Rank 0, after Op::kTakeTimes and kTakeTrace: by rank.
  std::vector<RankTimes> take_times() { return std::move(times_); }
  std::vector<RankTrace> take_trace() { return std::move(trace_); }
  // Of this thread, which is worker 0, for what it does between commands.
  tensor::StepClock& clock() { return pool_->clock(); }

  const KvCache& cache() const { return *cache_; }
  // Of one step, in OutputMode::kSummary.
  uint32_t summaries_max() const { return outputs_max_; }
  const std::vector<RankReport>& reports() const { return reports_; }  // rank 0: by rank
  size_t output_rows() const { return model_.config.vocab; }
  size_t hidden_size() const { return model_.config.hidden; }
  // Ids that may be chosen: those below this.
  size_t token_count() const { return options_.tokens != 0 ? options_.tokens : output_rows(); }

 private:
  RankInstance(const model::Model& model, const plan::Plan& plan, collective::Group& group,
               const EngineOptions& options)
      : model_(model), plan_(plan), group_(group), options_(options) {}
  Status load();
  Status create_cache();
  // Rank 0, to all other ranks.
  Status send(const Command& command, std::span<const float> activations);
  Status exchange_reports(Status loaded);
  CommandLimits limits() const;
  Deadline deadline(Nanoseconds from_now) const;

  Status execute(const Command& command, const OnLogits& on_logits);
  Status execute_measurement(Op op);
  Status check_step(const Command& step) const;
  Status run_step(const Command& step, const OnLogits& on_logits);
  Status gather_summaries(size_t rows, const Deadline& until);
  Status gather_logits(size_t row, size_t rows, const Deadline& until);
  plan::Range summarized(size_t rank) const;
  Status break_group(int culprit, const Status& cause);

  const model::Model& model_;
  const plan::Plan plan_;
  collective::Group& group_;
  const EngineOptions options_;
  std::unique_ptr<tensor::WorkerPool> pool_;
  std::unique_ptr<RankWeights> weights_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<RankReport> reports_;

  uint32_t outputs_max_ = 0;  // rows of logits that are computed at a time
  uint64_t commands_ = 0;     // so far
  std::vector<std::byte> message_;
  Command received_;
  size_t outputs_ = 0;                        // of the last step, in summaries_
  std::vector<LogitSummary> summaries_;       // [outputs_max_] on rank 0
  std::vector<LogitSummary> rank_summaries_;  // [ranks] on rank 0
  std::vector<std::byte> mine_;               // what this rank gives to a gather
  std::vector<std::byte> gathered_;           // what rank 0 gets
  std::vector<size_t> gathered_bytes_;        // [ranks]
  std::vector<float> full_logits_;            // [kFullOutputsMax, vocabulary] on rank 0
  std::vector<RankTimes> times_;              // [ranks] on rank 0
  std::vector<RankTrace> trace_;              // [ranks] on rank 0
};

}  // namespace shoal::runtime
