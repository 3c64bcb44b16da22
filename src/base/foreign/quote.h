// quote(): a foreign name made fit for a message: printable, quoted, and not too long.
//
// Thread rule: a pure function.
#pragma once

#include <string>
#include <string_view>

namespace shoal {

// "'blk.0.attn_q.weight'"; control characters and bytes above 0x7e become \xNN.
std::string quote(std::string_view name);

}  // namespace shoal
