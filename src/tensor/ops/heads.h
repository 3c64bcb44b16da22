// prepare_heads: what happens to q, k and v between their projections and the attention.
//
// Head by head: bias, norm and rotation where the model has them, then K and V into the cache.
// Thread rule: SPMD; ends without a barrier: call one before attention. Bits do not depend on the
// number of workers.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/ops/kv_page.h"
#include "tensor/ops/rms_norm.h"
#include "tensor/ops/rope.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

// Of one projection; all parts are optional.
struct HeadSteps {
  std::span<const float> bias = {};  // [heads * head_dim]
  RmsNorm norm = {};                 // [head_dim], of each head on its own
  bool rotates = false;
};

// Projections of the step's tokens: [tokens, heads * head_dim].
struct HeadRows {
  FloatRows q;
  FloatRows k;
  FloatRows v;
};

struct HeadPreparation {
  HeadSteps q;
  HeadSteps k;
  HeadSteps v;
  RopeAngles angles;  // of the step's tokens, when something rotates
};

// q is changed in place; k and v are left in any state, their final values are in the pages.
void prepare_heads(Worker& me, const KvLayout& layout, const HeadPreparation& how,
                   const HeadRows& rows, std::span<const KvSequence> sequences);

}  // namespace shoal::tensor
