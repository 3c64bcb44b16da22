#include "model/gguf/vocabulary.h"

#include <functional>
#include <map>

#include "model/gguf/reader.h"
#include "model/model.h"
#include "model/testing/gguf_writer.h"
#include "model/testing/matchers.h"
#include "model/testing/temp_folder.h"
#include "text/tokenizer.h"

namespace shoal::model {
namespace {

using testing::expect_ok;
using testing::expect_refused;
using testing::GgufWriter;

constexpr size_t kTokens = 100;

template <typename T>
std::vector<std::byte> array_bytes(ValueType type, const std::vector<T>& values) {
  ByteWriter out;
  out.write(static_cast<uint32_t>(type));
  out.write(static_cast<uint64_t>(values.size()));
  out.write_bytes(std::as_bytes(std::span(values)));
  return out.take();
}

// A vocabulary of 100 tokens of which one key at a time is replaced.
struct Keys {
  std::string model = "gpt2";
  std::vector<std::string> tokens;
  std::vector<std::string> merges = {"a b"};
  bool has_merges = true;
  std::map<std::string, std::function<void(GgufWriter&, const std::string&)>> others;

  Keys() {
    for (size_t i = 0; i < kTokens; ++i) tokens.push_back("t" + std::to_string(i));
    tokens[0] = "a";
    tokens[1] = "b";
    tokens[2] = "ab";
  }

  void set_encoded(const std::string& key, ValueType type, std::vector<std::byte> value) {
    others[key] = [type, value = std::move(value)](GgufWriter& writer, const std::string& name) {
      writer.add_encoded(name, type, value);
    };
  }
  // Through a file, as it is used.
  Result<TokenizerSource> read() const {
    const testing::TempFolder folder;
    GgufWriter writer;
    writer.add_string("tokenizer.ggml.model", model);
    writer.add_string("tokenizer.ggml.pre", "gpt-2");
    writer.add_strings("tokenizer.ggml.tokens", tokens);
    if (has_merges) writer.add_strings("tokenizer.ggml.merges", merges);
    for (const auto& [name, add] : others) add(writer, "tokenizer.ggml." + name);
    folder.write("vocab.gguf", writer.bytes());
    ASSIGN_OR_RETURN(const auto file, open_model(folder.path("vocab.gguf")));
    return read_tokenizer_source(*file);
  }
};

TEST(ModelCases, C08_scores_of_the_wrong_length_are_refused) {
  Keys keys;
  keys.model = "llama";
  keys.set_encoded("scores", ValueType::kArray,
                   array_bytes(ValueType::kF32, std::vector<float>(kTokens - 1)));
  expect_refused(keys.read(), {"vocab.gguf", "tokenizer.ggml.scores", "100", "99"});
}

TEST(ModelCases, C08_token_types_may_be_wide_integers_but_not_bytes) {
  for (const ValueType type : {ValueType::kU32, ValueType::kI32}) {
    Keys keys;
    keys.set_encoded("token_type", ValueType::kArray,
                     array_bytes(type, std::vector<uint32_t>(kTokens, 1)));
    expect_ok(keys.read());
  }
  Keys wide;
  wide.set_encoded("token_type", ValueType::kArray,
                   array_bytes(ValueType::kI64, std::vector<int64_t>(kTokens, 1)));
  const auto source = wide.read();
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ(source->vocabulary->types, std::vector<int32_t>(kTokens, 1));
  Keys bytes;
  bytes.set_encoded("token_type", ValueType::kArray,
                    array_bytes(ValueType::kU8, std::vector<uint8_t>(kTokens, 1)));
  expect_refused(bytes.read(), {"tokenizer.ggml.token_type", "100 i32", "100 u8"});
  Keys huge;
  huge.set_encoded("token_type", ValueType::kArray,
                   array_bytes(ValueType::kI64, std::vector<int64_t>(kTokens, int64_t{1} << 40)));
  expect_refused(huge.read(), {"tokenizer.ggml.token_type"});
}

TEST(ModelCases, C08_special_ids_outside_of_the_vocabulary_are_refused) {
  Keys bos;
  bos.others["bos_token_id"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_u32(key, 100'000);
  };
  expect_refused(bos.read(), {"tokenizer.ggml.bos_token_id", "100000"});
  Keys eos;
  const int32_t minus_one = -1;
  const auto encoded = std::as_bytes(std::span(&minus_one, 1));
  eos.set_encoded("eos_token_id", ValueType::kI32, {encoded.begin(), encoded.end()});
  expect_refused(eos.read(), {"tokenizer.ggml.eos_token_id", "-1"});
  Keys text;
  text.others["eos_token_id"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_string(key, "2");
  };
  expect_refused(text.read(), {"tokenizer.ggml.eos_token_id", "string"});
}

TEST(ModelCases, C08_all_ones_is_a_special_token_that_the_model_lacks) {
  Keys keys;
  keys.others["bos_token_id"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_u32(key, 0xFFFFFFFF);
  };
  keys.others["eos_token_id"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_u32(key, 2);
  };
  const auto source = keys.read();
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ(source->vocabulary->bos, std::nullopt);
  EXPECT_EQ(source->vocabulary->eos, 2);
  Keys one_less;
  one_less.others["bos_token_id"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_u32(key, 0xFFFFFFFE);
  };
  expect_refused(one_less.read(), {"tokenizer.ggml.bos_token_id", "4294967294"});
}

TEST(ModelCases, C08_merges_must_be_there_and_have_two_parts) {
  Keys without;
  without.has_merges = false;
  expect_refused(without.read(), {"tokenizer.ggml.merges"});
  for (const char* merge : {"ab", "", " ", "a ", " b"}) {
    Keys single;
    single.merges = {"a b", merge};
    expect_refused(single.read(), {"vocab.gguf", "tokenizer.ggml.merges[1]", "two parts"});
  }
}

TEST(ModelCases, C08_arrays_of_the_wrong_kind_are_refused) {
  Keys keys;
  keys.others["scores"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_string(key, "none");
  };
  expect_refused(keys.read(), {"tokenizer.ggml.scores", "string"});
  Keys flag;
  flag.others["add_bos_token"] = [](GgufWriter& writer, const std::string& key) {
    writer.add_string(key, "yes");
  };
  expect_refused(flag.read(), {"tokenizer.ggml.add_bos_token", "string"});
}

TEST(ModelCases, C09_two_tokens_may_have_the_same_text) {
  Keys keys;
  keys.tokens[7] = "ab";
  keys.tokens[9] = "ab";
  keys.tokens[2] = "t2";
  const auto source = keys.read();
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const auto tokenizer = text::Tokenizer::from_vocabulary(*source->vocabulary);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const auto ids = (*tokenizer)->encode("ab", {.add_special = false});
  ASSERT_TRUE(ids.is_ok()) << ids.status().message();
  EXPECT_EQ(*ids, std::vector<int32_t>{7});  // always the lowest
  for (const int32_t id : {7, 9}) {
    EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{id}).value(), "ab");
  }
}

TEST(ModelCases, C16_add_bos_token_may_be_an_integer) {
  Keys keys;
  keys.set_encoded("add_bos_token", ValueType::kU8, {std::byte{1}});
  const auto source = keys.read();
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ(source->vocabulary->add_bos, true);
}

TEST(GgufVocabulary, a_file_without_one_has_none) {
  const testing::TempFolder folder;
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  folder.write("x.gguf", writer.bytes());
  const auto source = read_tokenizer_source(**open_model(folder.path("x.gguf")));
  ASSERT_TRUE(source.is_ok());
  EXPECT_FALSE(source->vocabulary.has_value());
}

}  // namespace
}  // namespace shoal::model
