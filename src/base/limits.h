// Limits that several modules must agree on.
#pragma once

namespace shoal {

// Ranks of one group, and so of one plan.
inline constexpr int kGroupSizeMax = 64;

}  // namespace shoal
