// Assertions on statuses for the tests of model.
//
// Thread rule: test code, one thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace shoal::model::testing {

inline Status status_of(const Status& status) { return status; }
template <typename T>
Status status_of(const Result<T>& result) {
  return result.status();
}

// A clean refusal whose message has every one of these texts.
template <typename Outcome>
void expect_refused(const Outcome& outcome, std::initializer_list<std::string> texts) {
  const Status status = status_of(outcome);
  EXPECT_EQ(status.code(), StatusCode::kRequest) << status.to_string();
  for (const std::string& text : texts) EXPECT_THAT(status.message(), ::testing::HasSubstr(text));
}

template <typename Outcome>
void expect_ok(const Outcome& outcome) {
  const Status status = status_of(outcome);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

}  // namespace shoal::model::testing
