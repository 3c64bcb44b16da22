// TensorNames: what the tensors of each role are called in one format.
//
// A checkpoint of a decoder alone, as embedding models are saved, has the names of Hugging Face's
// checkpoints without "model." before them.
// The families of this folder share their names; a family with others gets its own table here.
// Thread rule: constant data.
#pragma once

#include <string_view>

#include "model/model_file.h"

namespace shoal::model {

struct TensorNames {
  std::string_view token_embedding, output_norm, output;
  // Before the number of a layer, and after it: "blk." 0 "." and the names below.
  std::string_view layer_prefix;
  std::string_view attn_norm, wq, wk, wv, wo, bq, bk, bv, q_norm, k_norm;
  std::string_view ffn_norm, w_gate, w_up, w_down;
  // Tensors of a layer that are derived from settings and not needed.
  std::string_view ignored;
};

const TensorNames& tensor_names(const ModelFile& file);

}  // namespace shoal::model
