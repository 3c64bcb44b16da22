// Decoder: one rank's forward pass of a step, on all its worker threads at once.
//
// Query heads, feed-forward columns and vocabulary rows are the rank's own; the residual stream is
// the same on every rank. Each layer has two sums over the ranks: after the attention's and after
// the feed-forward's output projection. Every family is this one pass with a LayerSpec's parts on
// or off. A token's bits depend neither on the other tokens of its step nor on the worker count.
// All memory is allocated by create(); a step allocates nothing.
// Thread rule: one thread at a time, which is worker 0. Borrows everything in DecoderParts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/group.h"
#include "model/model_config.h"
#include "plan/plan.h"
#include "runtime/rank/command.h"
#include "runtime/rank/kv_cache.h"
#include "runtime/rank/weights.h"
#include "runtime/sampling/logits.h"
#include "tensor/activations.h"
#include "tensor/aligned_buffer.h"
#include "tensor/ops/heads.h"
#include "tensor/ops/rope.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::runtime {

struct DecoderParts {
  const model::ModelConfig& config;
  const plan::RankPlan& plan;
  const RankWeights& weights;
  KvCache& cache;
  tensor::WorkerPool& pool;
  collective::Group& group;
};

struct DecoderLimits {
  uint32_t tokens_max = 0;      // of one step
  uint32_t outputs_max = 0;     // rows of logits at a time
  uint32_t candidates_max = 0;  // of a summary
  uint32_t summary_rows = 0;    // of the rank's vocabulary rows, the first so many are summarized
};

class Decoder {
 public:
  static Result<std::unique_ptr<Decoder>> create(const DecoderParts& parts,
                                                 const DecoderLimits& limits);

  // Where the embeddings of a step's tokens go before forward(): [tokens, hidden].
  tensor::FloatRows input(size_t tokens);

  // All layers, then the logits of the first outputs (at most outputs_max). The cache has been
  // extended by the step's tokens already. kGroup when a sum over the ranks fails.
  Status forward(const Command& step, const Deadline& deadline);
  // The logits of the step's outputs [first, first + count), count <= outputs_max.
  void compute_outputs(size_t first, size_t count);

  // Of what was computed last: this rank's vocabulary rows.
  std::span<const float> logits(size_t row) const;  // [vocabulary rows]
  const LogitSummary& summary(size_t row) const { return summaries_[row]; }

  // The final norm of the last step's tokens [first, first + count), whichever of them are outputs:
  // [count, hidden], until the next call or step. Whole on every rank, without a word to the
  // others.
  std::span<const float> hidden_states(size_t first, size_t count);

 private:
  // Floats that are allocated once and touched by the first use.
  class FloatBuffer {
   public:
    Status allocate(size_t rows, int64_t cols);
    float* data() const { return reinterpret_cast<float*>(bytes_.data()); }
    std::span<float> first(size_t count) const { return {data(), count}; }

   private:
    tensor::AlignedBuffer bytes_;
  };
  // Activations of a step, [tokens_max, ...].
  struct Buffers {
    // hidden: the embeddings, then every second value of the stream, then hidden states
    FloatBuffer residual;
    FloatBuffer next_residual;  // hidden: the other values
    FloatBuffer partial;        // hidden: this rank's part of a projection's sum, then the sum
    FloatBuffer q;              // q_heads * head_dim
    FloatBuffer k;              // kv_heads * head_dim
    FloatBuffer v;              // kv_heads * head_dim
    FloatBuffer parts;          // of queries whose attention is split over the workers
    FloatBuffer mixed;          // q_heads * head_dim: attention's output
    FloatBuffer gate;           // ffn
    FloatBuffer up;             // ffn
    FloatBuffer angles;         // cos and sin of every position
    FloatBuffer head;           // [outputs_max, hidden]
    FloatBuffer logits;         // [outputs_max, vocabulary rows]
  };
  // A worker's view of the residual stream between two halves of a layer.
  struct Stream {
    float* x = nullptr;       // the last value stored
    float* next = nullptr;    // where the next one goes
    bool has_addend = false;  // the stream's value is x + partial
  };
  // One matrix of several that read the same input, and where its output goes.
  struct Projection {
    const tensor::PackedMatrix& weight;
    tensor::FloatRows out;
  };

  explicit Decoder(const DecoderParts& parts, const DecoderLimits& limits, tensor::RopeTable rope)
      : parts_(parts), limits_(limits), rope_(std::move(rope)) {}
  Status allocate();
  void prepare(const Command& step);

  // Run by every worker.
  bool layers(tensor::Worker& me);
  tensor::InputSource next_input(Stream& stream, std::span<const float> weight) const;
  void attention(tensor::Worker& me, size_t layer, const tensor::InputSource& input);
  void feed_forward(tensor::Worker& me, size_t layer, const tensor::InputSource& input);
  void head(tensor::Worker& me, size_t first, size_t count);
  void summarize_outputs(tensor::Worker& me, size_t first, size_t count);
  void stream_value(int64_t token, float* out) const;
  void project(tensor::Worker& me, const tensor::InputSource& x,
               std::initializer_list<Projection> outputs);
  void prepare_heads(tensor::Worker& me, size_t layer, const tensor::HeadRows& projected);
  bool sum_over_ranks(tensor::Worker& me);
  size_t summary_pieces() const;

  tensor::FloatRows rows_at(float* data, int64_t cols) const { return {data, tokens_, cols, cols}; }
  tensor::FloatRows rows(const FloatBuffer& buffer, int64_t cols) const {
    return rows_at(buffer.data(), cols);
  }

  tensor::RopeAngles angles() const {
    return {&rope_,
            buffers_.angles.first(static_cast<size_t>(tensor::rope_angles_floats(rope_, tokens_)))};
  }

  const DecoderParts parts_;
  const DecoderLimits limits_;
  const tensor::RopeTable rope_;
  Buffers buffers_;
  fabric::RegisteredMemory registered_;  // partial
  size_t parts_floats_ = 0;
  tensor::Activations packed_;                 // of whichever matrices are next
  std::vector<LogitSummary> piece_summaries_;  // [outputs_max, summary_pieces()]
  std::vector<LogitSummary> summaries_;        // [outputs_max]

  // Of the step under way.
  int64_t tokens_ = 0;
  std::vector<int32_t> positions_;                          // [tokens]
  std::vector<uint32_t> output_tokens_;                     // [outputs] rows of the residual
  std::vector<float> output_temperatures_;                  // [outputs] inverse temperatures
  std::vector<std::vector<tensor::KvSequence>> sequences_;  // [layer][item]
  OutputMode mode_ = OutputMode::kSummary;
  const Deadline* deadline_ = nullptr;
  Status status_;  // written by worker 0 between barriers
};

}  // namespace shoal::runtime
