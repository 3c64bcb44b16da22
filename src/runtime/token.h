// TokenId: the number of a token in a model's vocabulary. BlockId: of a page of the KV cache.
#pragma once

#include <cstdint>

namespace shoal::runtime {

using TokenId = int32_t;   // as text/tokenizer.h counts them; never negative in the runtime
using BlockId = uint32_t;  // holds some positions of all layers (rank/kv_cache.h)

}  // namespace shoal::runtime
