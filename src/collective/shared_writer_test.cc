#include "collective/shared_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace shoal::collective {
namespace {

TEST(SharedWriter, BothWaysCopyEveryElementAndNoMoreFromAnyAlignment) {
  alignas(64) std::array<float, 4096> to;
  std::vector<float> from(4096);
  std::iota(from.begin(), from.end(), 1.0F);
  SharedWriter writer;
  for (const bool is_streaming : {false, true}) {
    for (const size_t offset : {0, 1, 3}) {
      for (const size_t count : {0, 1, 15, 16, 17, 255, 256, 1000, 4000}) {
        to.fill(-1.0F);
        const std::span<const float> source = std::span(from).subspan(offset, count);
        writer.set_streaming(is_streaming);
        writer.copy(to, source);
        writer.flush();
        EXPECT_TRUE(std::equal(source.begin(), source.end(), to.begin())) << count;
        for (size_t i = count; i < to.size(); ++i) ASSERT_EQ(to[i], -1.0F) << count;
      }
    }
  }
}

}  // namespace
}  // namespace shoal::collective
