#include "runtime/rank/weights.h"

#include <algorithm>

#include "base/check.h"

namespace shoal::runtime {
namespace {

// One weight's rows or columns that belong to a rank, in units of `width` (a head's dimensions).
tensor::Range scaled(const plan::Range& range, uint64_t width) {
  return {static_cast<int64_t>(range.begin * width), static_cast<int64_t>(range.end * width)};
}

class Loader {
 public:
  Loader(tensor::WorkerPool& pool, uint64_t total,
         const std::function<void(uint64_t, uint64_t)>& on_load)
      : pool_(pool), total_(total), on_load_(on_load) {}

  Status rows(const model::TensorInfo* info, tensor::Range rows, tensor::PackedMatrix* out) {
    return pack(info, {rows.begin, rows.end, 0, model::matrix_view(*info).cols}, out);
  }
  Status columns(const model::TensorInfo* info, tensor::Range columns, tensor::PackedMatrix* out) {
    return pack(info, {0, model::matrix_view(*info).rows, columns.begin, columns.end}, out);
  }
  // A vector, or its part of a rank; an absent tensor gives an empty one.
  Status vector(const model::TensorInfo* info, std::vector<float>* out) {
    if (info == nullptr) return Status::ok();
    ASSIGN_OR_RETURN(*out, model::read_floats(*info));
    bytes_ += out->size() * sizeof(float);
    return Status::ok();
  }
  Status vector(const model::TensorInfo* info, tensor::Range part, std::vector<float>* out) {
    if (info == nullptr) return Status::ok();
    ASSIGN_OR_RETURN(const std::vector<float> whole, model::read_floats(*info));
    CHECK(part.end <= static_cast<int64_t>(whole.size()));
    out->assign(whole.begin() + part.begin, whole.begin() + part.end);
    bytes_ += out->size() * sizeof(float);
    return Status::ok();
  }

  uint64_t bytes() const { return bytes_; }

 private:
  Status pack(const model::TensorInfo* info, const tensor::Shard& shard,
              tensor::PackedMatrix* out) {
    const tensor::MatrixView view = model::matrix_view(*info);
    auto packed = tensor::PackedMatrix::pack(view, shard, pool_.path(), &pool_);
    if (!packed.is_ok()) return packed.status().with_context(info->name);
    *out = std::move(packed).value();
    bytes_ += out->bytes();
    const double part = static_cast<double>(shard.row_end - shard.row_begin) *
                        static_cast<double>(shard.col_end - shard.col_begin) /
                        (static_cast<double>(view.rows) * static_cast<double>(view.cols));
    done_ += static_cast<uint64_t>(part * static_cast<double>(info->data.size()));
    if (on_load_) on_load_(std::min(done_, total_), total_);
    return Status::ok();
  }

  tensor::WorkerPool& pool_;
  const uint64_t total_;
  const std::function<void(uint64_t, uint64_t)>& on_load_;
  uint64_t done_ = 0;   // of the file
  uint64_t bytes_ = 0;  // in memory
};

Status load_layer(const model::LayerTensors& from, const model::LayerSpec& spec,
                  const plan::LayerShard& shard, Loader& loader, LayerWeights* to) {
  const tensor::Range q = scaled(shard.q_heads, spec.head_dim);
  const tensor::Range kv = scaled(shard.kv_heads, spec.head_dim);
  const tensor::Range ffn = scaled(shard.ffn, 1);
  RETURN_IF_ERROR(loader.vector(from.attn_norm, &to->attn_norm));
  RETURN_IF_ERROR(loader.rows(from.wq, q, &to->wq));
  RETURN_IF_ERROR(loader.rows(from.wk, kv, &to->wk));
  RETURN_IF_ERROR(loader.rows(from.wv, kv, &to->wv));
  RETURN_IF_ERROR(loader.columns(from.wo, q, &to->wo));
  RETURN_IF_ERROR(loader.vector(from.bq, q, &to->bq));
  RETURN_IF_ERROR(loader.vector(from.bk, kv, &to->bk));
  RETURN_IF_ERROR(loader.vector(from.bv, kv, &to->bv));
  RETURN_IF_ERROR(loader.vector(from.q_norm, &to->q_norm));
  RETURN_IF_ERROR(loader.vector(from.k_norm, &to->k_norm));
  RETURN_IF_ERROR(loader.vector(from.ffn_norm, &to->ffn_norm));
  RETURN_IF_ERROR(loader.rows(from.w_gate, ffn, &to->w_gate));
  RETURN_IF_ERROR(loader.rows(from.w_up, ffn, &to->w_up));
  return loader.columns(from.w_down, ffn, &to->w_down);
}

}  // namespace

Result<RankWeights> load_weights(
    const model::Model& model, const plan::RankPlan& plan, tensor::WorkerPool& pool,
    const std::function<void(uint64_t done, uint64_t total)>& on_load) {
  Loader loader(pool, plan.weight_bytes, on_load);
  const model::ModelTensors& tensors = model.tensors;
  RankWeights weights;
  weights.layers.resize(tensors.layers.size());
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    RETURN_IF_ERROR(load_layer(tensors.layers[layer], model.config.layers[layer],
                               plan.layers[layer], loader, &weights.layers[layer]));
  }
  RETURN_IF_ERROR(loader.vector(tensors.output_norm, &weights.output_norm));
  RETURN_IF_ERROR(loader.rows(tensors.output, scaled(plan.vocabulary, 1), &weights.output));
  weights.bytes = loader.bytes();
  if (on_load) on_load(plan.weight_bytes, plan.weight_bytes);
  return weights;
}

}  // namespace shoal::runtime
