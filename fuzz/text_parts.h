// What a fuzzer does with a tokenizer or a chat template that was built from foreign bytes.
//
// Thread rule: one thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace shoal::fuzz {

// A panic in the Rust part is kept in and reported as an internal error: here it is a finding.
inline void expect_no_panic(const Status& status) {
  CHECK_MSG(!status.message().starts_with("internal error"), status.message().c_str());
}

// Every text and every id that the tokenizer gives must come back without harm.
inline void use_tokenizer(const text::Tokenizer& tokenizer) {
  for (const std::string_view sample : {"", "Hello, world! 123", " \n\t  two  spaces",
                                        "\xE6\xBC\xA2\xF0\x9F\x99\x82 <s></s> e\xCC\x81"}) {
    for (const bool parse_special : {false, true}) {
      const auto ids = tokenizer.encode(sample, {.parse_special = parse_special});
      expect_no_panic(ids.status());
      if (!ids.is_ok()) continue;
      for (const int32_t id : *ids) CHECK(tokenizer.is_valid(id));
      expect_no_panic(tokenizer.decode(*ids).status());
    }
  }
  for (int32_t id = 0; id < tokenizer.vocabulary_size() && id < 300; ++id) {
    (void)tokenizer.token_text(id);
    (void)tokenizer.token_bytes(id);
    (void)tokenizer.token_kind(id);
    expect_no_panic(tokenizer.decode(std::vector<int32_t>{id}).status());
  }
}

inline void use_template(std::string_view source) {
  const auto parsed = text::ChatTemplate::parse(source, {.bos_token = "<s>", .eos_token = "</s>"});
  expect_no_panic(parsed.status());
  if (!parsed.is_ok()) return;
  const auto prompt = (*parsed)->render(
      R"({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]})", 0);
  expect_no_panic(prompt.status());
}

}  // namespace shoal::fuzz
