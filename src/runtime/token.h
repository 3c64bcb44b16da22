// TokenId: the number of a token in a model's vocabulary.
#pragma once

#include <cstdint>

namespace shoal::runtime {

using TokenId = int32_t;  // as text/tokenizer.h counts them; never negative in the runtime

}  // namespace shoal::runtime
