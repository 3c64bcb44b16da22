#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace shoal {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Status::request("odd");
  return x / 2;
}

Status quarter(int x, int* out) {
  ASSIGN_OR_RETURN(const int first, half(x));
  ASSIGN_OR_RETURN(const int second, half(first));
  *out = second;
  return Status::ok();
}

TEST(Status, ContextGoesBeforeTheMessageAndKeepsTheCode) {
  const Status status = Status::group("rank 1 died").with_context("all_reduce");
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  EXPECT_EQ(status.to_string(), "group: all_reduce: rank 1 died");
  EXPECT_TRUE(Status::ok().with_context("anything").is_ok());
}

TEST(Status, FromErrnoNamesTheSystemsReason) {
  EXPECT_EQ(Status::from_errno("open x", ENOENT).message(), "open x: No such file or directory");
}

TEST(Result, TheMacrosReturnTheFirstFailureAndSetOutputsOnSuccessOnly) {
  int out = -1;
  EXPECT_TRUE(quarter(8, &out).is_ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(quarter(6, &out).message(), "odd");
  EXPECT_EQ(out, 2);
}

TEST(Result, MovesWhatItHolds) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
}

TEST(ResultDeathTest, TakingTheValueOfAFailureIsABug) {
  const Result<int> failed = Status::request("no number");
  EXPECT_DEATH((void)failed.value(), "no number");
}

}  // namespace
}  // namespace shoal
