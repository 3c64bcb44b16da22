#include "runtime/rank/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/check.h"
#include "tensor/ops/attention.h"

namespace shoal::runtime {
namespace {

using tensor::FloatRows;
using tensor::InputSource;
using tensor::Phase;
using tensor::Worker;

// Vocabulary rows that one worker summarizes at a time.
constexpr size_t kSummaryPieceRows = 4096;

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::create(const DecoderParts& parts,
                                                 const DecoderLimits& limits) {
  ASSIGN_OR_RETURN(tensor::RopeTable rope, tensor::RopeTable::create(parts.config.rope));
  std::unique_ptr<Decoder> decoder(new Decoder(parts, limits, std::move(rope)));
  RETURN_IF_ERROR(decoder->allocate());
  return decoder;
}

Status Decoder::FloatBuffer::allocate(size_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(
      bytes_, tensor::AlignedBuffer::allocate(rows * static_cast<size_t>(cols) * sizeof(float)));
  return Status::ok();
}

Status Decoder::allocate() {
  const size_t tokens = limits_.tokens_max;
  const auto hidden = static_cast<int64_t>(parts_.config.hidden);
  int64_t q_cols = 0;
  int64_t kv_cols = 0;
  int64_t ffn_cols = 0;
  for (const LayerWeights& layer : parts_.weights.layers) {
    q_cols = std::max(q_cols, layer.wq.rows());
    kv_cols = std::max({kv_cols, layer.wk.rows(), layer.wv.rows()});
    ffn_cols = std::max(ffn_cols, layer.w_gate.rows());
  }
  const auto cols_max = std::max({hidden, q_cols, ffn_cols});
  const size_t outputs = limits_.outputs_max;
  RETURN_IF_ERROR(buffers_.residual.allocate(tokens, hidden));
  RETURN_IF_ERROR(buffers_.next_residual.allocate(tokens, hidden));
  RETURN_IF_ERROR(buffers_.partial.allocate(tokens, hidden));
  registered_ = fabric::RegisteredMemory(
      parts_.group.fabric(),
      std::as_writable_bytes(buffers_.partial.first(tokens * parts_.config.hidden)));
  RETURN_IF_ERROR(buffers_.q.allocate(tokens, q_cols));
  RETURN_IF_ERROR(buffers_.mixed.allocate(tokens, q_cols));
  RETURN_IF_ERROR(buffers_.k.allocate(tokens, kv_cols));
  RETURN_IF_ERROR(buffers_.v.allocate(tokens, kv_cols));
  RETURN_IF_ERROR(buffers_.gate.allocate(tokens, ffn_cols));
  RETURN_IF_ERROR(buffers_.up.allocate(tokens, ffn_cols));
  RETURN_IF_ERROR(buffers_.angles.allocate(tokens, tensor::rope_angles_floats(rope_, 1)));
  RETURN_IF_ERROR(buffers_.head.allocate(outputs, hidden));
  RETURN_IF_ERROR(buffers_.logits.allocate(outputs, parts_.weights.output.rows()));
  summaries_.resize(outputs);
  piece_summaries_.resize(outputs * summary_pieces());
  positions_.reserve(tokens);
  output_tokens_.reserve(tokens);
  output_temperatures_.reserve(tokens);
  sequences_.resize(parts_.config.layers.size());
  for (auto& items : sequences_) items.reserve(parts_.cache.sessions_max());

  ASSIGN_OR_RETURN(packed_,
                   tensor::Activations::allocate(
                       {std::max<int64_t>(limits_.tokens_max, limits_.outputs_max), cols_max}));
  size_t scratch = std::max(tensor::matmul_scratch_bytes(parts_.pool.path(), cols_max),
                            tensor::packing_scratch_bytes(hidden));
  const auto context = static_cast<int64_t>(parts_.cache.positions());
  size_t parts = 0;
  for (size_t layer = 0; layer < parts_.config.layers.size(); ++layer) {
    const tensor::KvLayout& layout = parts_.cache.layout(layer);
    scratch =
        std::max(scratch, tensor::attention_scratch_bytes(parts_.pool.path(), layout, context));
    parts = std::max(parts, tensor::attention_parts_floats(layout, context));
  }
  RETURN_IF_ERROR(buffers_.parts.allocate(1, static_cast<int64_t>(parts)));
  parts_floats_ = parts;
  return parts_.pool.reserve_scratch(scratch);
}

FloatRows Decoder::input(size_t tokens) {
  CHECK(tokens <= limits_.tokens_max);
  tokens_ = static_cast<int64_t>(tokens);
  return rows(buffers_.residual, parts_.config.hidden);
}

// Lists the step's positions, outputs and pages.
void Decoder::prepare(const Command& step) {
  CHECK(step.tokens() <= limits_.tokens_max);
  tokens_ = static_cast<int64_t>(step.tokens());
  mode_ = step.mode;
  positions_.clear();
  output_tokens_.clear();
  output_temperatures_.clear();
  for (auto& items : sequences_) items.clear();
  for (const BatchItem& item : step.items) {
    const auto first_row = static_cast<int64_t>(positions_.size());
    for (size_t layer = 0; layer < sequences_.size(); ++layer) {
      sequences_[layer].push_back(
          {parts_.cache.pages(item.session, layer), item.position, item.tokens, first_row});
    }
    for (uint32_t i = 0; i < item.tokens; ++i) {
      const bool is_output =
          item.outputs == Outputs::kAll || (item.outputs == Outputs::kLast && i + 1 == item.tokens);
      if (is_output) {
        output_tokens_.push_back(static_cast<uint32_t>(positions_.size()));
        output_temperatures_.push_back(item.inverse_temperature);
      }
      positions_.push_back(static_cast<int32_t>(item.position + i));
    }
  }
}

Status Decoder::forward(const Command& step, const Deadline& deadline) {
  prepare(step);
  deadline_ = &deadline;
  status_ = Status::ok();
  const size_t outputs = std::min<size_t>(output_tokens_.size(), limits_.outputs_max);
  const tensor::Stage stage = step.stage();
  parts_.pool.run([&](Worker& me) {
    me.clock().set_stage(stage);
    if (layers(me) && outputs > 0) head(me, 0, outputs);
  });
  deadline_ = nullptr;
  return status_;
}

void Decoder::compute_outputs(size_t first, size_t count) {
  CHECK(first + count <= output_tokens_.size() && count <= limits_.outputs_max);
  parts_.pool.run([&](Worker& me) { head(me, first, count); });
}

std::span<const float> Decoder::logits(size_t row) const {
  const auto cols = static_cast<size_t>(parts_.weights.output.rows());
  return {buffers_.logits.data() + row * cols, cols};
}

// The transformer: x += attention(norm(x)); x += feed_forward(norm(x)), layer by layer. Each half
// leaves what it adds in `partial`; whoever reads x next adds it on the way (next_input).
bool Decoder::layers(Worker& me) {
  tensor::compute_rope_angles(me, positions_, angles());
  Stream stream{buffers_.residual.data(), buffers_.next_residual.data()};
  for (size_t layer = 0; layer < parts_.config.layers.size(); ++layer) {
    const LayerWeights& weights = parts_.weights.layers[layer];
    me.clock().set_layer(layer);
    attention(me, layer, next_input(stream, weights.attn_norm));
    if (!sum_over_ranks(me)) return false;
    feed_forward(me, layer, next_input(stream, weights.ffn_norm));
    if (!sum_over_ranks(me)) return false;
  }
  me.clock().leave_layers();
  return true;
}

// The norm of the stream's value, which is computed and stored when the input is packed.
InputSource Decoder::next_input(Stream& stream, std::span<const float> weight) const {
  const tensor::RmsNorm norm{weight, parts_.config.norm_epsilon};
  const FloatRows x = rows_at(stream.x, parts_.config.hidden);
  if (!stream.has_addend) {
    stream.has_addend = true;
    return InputSource::normed(x, norm);
  }
  const FloatRows sum = rows_at(stream.next, parts_.config.hidden);
  std::swap(stream.x, stream.next);
  return InputSource::normed_sum({x, rows(buffers_.partial, parts_.config.hidden), sum}, norm);
}

// partial = attention of this rank's heads, through its columns of wo.
void Decoder::attention(Worker& me, size_t layer, const InputSource& input) {
  const LayerWeights& weights = parts_.weights.layers[layer];
  const model::LayerSpec& spec = parts_.config.layers[layer];
  const plan::LayerShard& shard = parts_.plan.layers[layer];
  const tensor::KvLayout& layout = parts_.cache.layout(layer);
  const FloatRows q = rows(buffers_.q, weights.wq.rows());
  const FloatRows k = rows(buffers_.k, weights.wk.rows());
  const FloatRows v = rows(buffers_.v, weights.wv.rows());
  const FloatRows mixed = rows(buffers_.mixed, weights.wq.rows());

  project(me, input, {{weights.wq, q}, {weights.wk, k}, {weights.wv, v}});
  me.barrier();
  me.clock().enter(Phase::kAttention);
  prepare_heads(me, layer, {q, k, v});
  me.barrier();
  tensor::AttentionParams params;
  params.query_heads = static_cast<int64_t>(shard.q_heads.size());
  params.query_head_begin = static_cast<int64_t>(shard.q_heads.begin);
  params.kv_head_begin = static_cast<int64_t>(shard.kv_heads.begin);
  params.group_size = spec.heads / spec.kv_heads;
  params.window = spec.sliding_window;
  params.scale = 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  tensor::attention(me, layout, params, sequences_[layer],
                    {q, mixed, buffers_.parts.first(parts_floats_)});
  me.barrier();
  project(me, InputSource::rows(mixed),
          {{weights.wo, rows(buffers_.partial, parts_.config.hidden)}});
}

// Which steps q, k and v take before the attention is the family's matter.
void Decoder::prepare_heads(Worker& me, size_t layer, const tensor::HeadRows& projected) {
  const LayerWeights& weights = parts_.weights.layers[layer];
  const float epsilon = parts_.config.norm_epsilon;
  tensor::HeadPreparation how;
  how.q = {weights.bq, {weights.q_norm, epsilon}, true};
  how.k = {weights.bk, {weights.k_norm, epsilon}, true};
  how.v = {.bias = weights.bv};
  how.angles = angles();
  tensor::prepare_heads(me, parts_.cache.layout(layer), how, projected, sequences_[layer]);
}

// partial = w_down (silu(w_gate x) * w_up x) over this rank's columns.
void Decoder::feed_forward(Worker& me, size_t layer, const InputSource& input) {
  const LayerWeights& weights = parts_.weights.layers[layer];
  const FloatRows gate = rows(buffers_.gate, weights.w_gate.rows());
  const FloatRows up = rows(buffers_.up, weights.w_up.rows());
  project(me, input, {{weights.w_gate, gate}, {weights.w_up, up}});
  me.barrier();
  project(me, InputSource::swiglu(gate, up),
          {{weights.w_down, rows(buffers_.partial, parts_.config.hidden)}});
}

// out = weight x, for several weights. The input is packed once for all that want one format. Needs
// x complete and nobody left in an earlier project().
void Decoder::project(Worker& me, const InputSource& x, std::initializer_list<Projection> outputs) {
  const tensor::InputFormat* packed_as = nullptr;
  for (const Projection& output : outputs) {
    const tensor::InputFormat& format = output.weight.input_format();
    if (packed_as == nullptr || *packed_as != format) {
      if (packed_as != nullptr) me.barrier();
      me.clock().enter(Phase::kInputs);
      tensor::pack_activations(me, packed_as == nullptr ? x : x.again(), format, packed_);
      me.barrier();
      packed_as = &format;
    }
    me.clock().enter(Phase::kMatmul);
    tensor::matmul(me, output.weight, packed_, output.out);
  }
}

// partial = the sum of all ranks' partial. False when the group failed. Worker 0 talks to the other
// ranks while its fellows wait at the barrier.
bool Decoder::sum_over_ranks(Worker& me) {
  me.barrier();
  if (parts_.group.size() == 1) return true;
  if (me.is_first()) {
    const tensor::PhaseScope scope(me.clock(), Phase::kCollective);
    const size_t count = static_cast<size_t>(tokens_) * parts_.config.hidden;
    status_ = parts_.group.all_reduce(buffers_.partial.first(count), *deadline_);
  }
  me.barrier(Phase::kCollective);
  return status_.is_ok();
}

// What the stream holds of a token after the last layer, [hidden]: the layers store its value an
// odd number of times.
void Decoder::stream_value(int64_t token, float* out) const {
  const auto hidden = static_cast<int64_t>(parts_.config.hidden);
  const float* residual = rows(buffers_.next_residual, hidden).row(token);
  const float* partial = rows(buffers_.partial, hidden).row(token);
  std::transform(residual, residual + hidden, partial, out, std::plus<float>());
}

std::span<const float> Decoder::hidden_states(size_t first, size_t count) {
  CHECK(first + count <= static_cast<size_t>(tokens_));
  const auto hidden = static_cast<int64_t>(parts_.config.hidden);
  const FloatRows out = rows(buffers_.residual, hidden);
  const tensor::RmsNorm norm{parts_.weights.output_norm, parts_.config.norm_epsilon};
  parts_.pool.run([&](Worker& me) {
    me.clock().enter(Phase::kRows);
    const tensor::Range mine = me.share(static_cast<int64_t>(count));
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      stream_value(static_cast<int64_t>(first) + i, out.row(i));
      norm.apply(me.kernels(), out.row(i), out.row(i));
    }
  });
  return buffers_.residual.first(count * parts_.config.hidden);
}

// logits = output(norm(residual + partial)) for the outputs [first, first + count).
void Decoder::head(Worker& me, size_t first, size_t count) {
  const auto hidden = static_cast<int64_t>(parts_.config.hidden);
  const auto outputs = static_cast<int64_t>(count);
  const FloatRows x{buffers_.head.data(), outputs, hidden, hidden};
  const int64_t vocabulary = parts_.weights.output.rows();

  me.clock().enter(Phase::kRows);
  const tensor::Range mine = me.share(outputs);
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    stream_value(output_tokens_[first + static_cast<size_t>(i)], x.row(i));
  }
  me.barrier();
  project(me, InputSource::normed(x, {parts_.weights.output_norm, parts_.config.norm_epsilon}),
          {{parts_.weights.output, {buffers_.logits.data(), outputs, vocabulary, vocabulary}}});
  me.barrier();
  me.clock().enter(Phase::kSampling);
  if (mode_ == OutputMode::kSummary) summarize_outputs(me, first, count);
}

size_t Decoder::summary_pieces() const {
  return std::max<size_t>(1, (limits_.summary_rows + kSummaryPieceRows - 1) / kSummaryPieceRows);
}

// Pieces of a fixed size, joined in their order: the bits do not depend on the number of workers.
void Decoder::summarize_outputs(Worker& me, size_t first, size_t count) {
  const size_t pieces = summary_pieces();
  const tensor::Range mine = me.share(static_cast<int64_t>(count * pieces));
  for (auto i = static_cast<size_t>(mine.begin); i < static_cast<size_t>(mine.end); ++i) {
    const size_t row = i / pieces;
    const size_t begin = i % pieces * kSummaryPieceRows;
    const size_t rows = std::min<size_t>(kSummaryPieceRows, limits_.summary_rows - begin);
    SummaryRequest request;
    request.first_id = static_cast<TokenId>(parts_.plan.vocabulary.begin + begin);
    request.top_max = limits_.candidates_max;
    request.inverse_temperature = output_temperatures_[first + row];
    request.path = parts_.pool.path();
    summarize(logits(row).subspan(begin, rows), request, &piece_summaries_[i]);
  }
  me.barrier();
  const tensor::Range joined = me.share(static_cast<int64_t>(count));
  for (auto row = static_cast<size_t>(joined.begin); row < static_cast<size_t>(joined.end); ++row) {
    merge(std::span(piece_summaries_).subspan(row * pieces, pieces), limits_.candidates_max,
          &summaries_[row]);
  }
}

}  // namespace shoal::runtime
