#include <algorithm>
#include <chrono>

#include "model/gguf/reader.h"
#include "model/testing/gguf_writer.h"
#include "model/testing/matchers.h"
#include "model/testing/raw_gguf.h"
#include "model/testing/temp_folder.h"
#include "model/testing/tiny_model.h"

namespace shoal::model {
namespace {

using testing::expect_ok;
using testing::expect_refused;
using testing::GgufWriter;
using testing::RawGguf;
using testing::TempFolder;

constexpr uint32_t kF32 = 0;

std::vector<std::byte> filled(size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

// Shard `number` of `count`, with one tensor named after it.
std::vector<std::byte> shard(uint16_t number, uint16_t count, const std::string& tensor) {
  GgufWriter writer;
  const auto index = static_cast<uint16_t>(number - 1);
  writer.add_encoded("split.no", ValueType::kU16, std::as_bytes(std::span(&index, 1)));
  writer.add_encoded("split.count", ValueType::kU16, std::as_bytes(std::span(&count, 1)));
  const int32_t tensors = count;
  writer.add_encoded("split.tensors.count", ValueType::kI32, std::as_bytes(std::span(&tensors, 1)));
  if (number == 1) writer.add_string("general.architecture", "llama");
  writer.add_tensor(tensor, tensor::DType::kF32, {4}, testing::zero_bytes(16));
  return writer.bytes();
}

// The three shards m-0000x-of-00003.gguf.
void write_shards(const TempFolder& folder) {
  for (uint16_t i = 1; i <= 3; ++i) {
    folder.write("m-0000" + std::to_string(i) + "-of-00003.gguf",
                 shard(i, 3, "tensor" + std::to_string(i)));
  }
}

TEST(ModelCases, C06_a_tensor_name_that_is_there_twice_is_refused) {
  const TempFolder folder;
  RawGguf twice;
  std::vector<std::byte> data = filled(32, 1);
  data.resize(64);
  twice.tensor("output.weight", {4}, kF32, 0).tensor("output.weight", {4}, kF32, 32).data(data);
  expect_refused(open_model(folder.write("x.gguf", twice.bytes())),
                 {"'output.weight'", "twice", "x.gguf"});
  RawGguf cases;
  cases.tensor("A", {4}, kF32, 0).tensor("a", {4}, kF32, 32).data(data);
  expect_ok(open_model(folder.write("case.gguf", cases.bytes())));
}

TEST(ModelCases, C06_a_tensor_name_in_two_shards_is_refused_naming_both_files) {
  const TempFolder folder;
  folder.write("m-00001-of-00002.gguf", shard(1, 2, "same"));
  folder.write("m-00002-of-00002.gguf", shard(2, 2, "same"));
  expect_refused(open_model(folder.path("m-00001-of-00002.gguf")),
                 {"'same'", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"});
}

TEST(ModelCases, C06_a_hundred_thousand_names_are_compared_in_linear_time) {
  const TempFolder folder;
  RawGguf many;
  constexpr int kTensors = 100'000;
  for (int i = 0; i < kTensors; ++i) many.tensor("tensor." + std::to_string(i), {0}, kF32, 0);
  const std::string path = folder.write("many.gguf", many.bytes());
  const auto start = std::chrono::steady_clock::now();
  const auto file = open_model(path);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), static_cast<size_t>(kTensors));
  EXPECT_NE((*file)->find("tensor.99999"), nullptr);
}

TEST(ModelCases, C07_all_shards_are_read_from_any_of_them) {
  const TempFolder folder;
  write_shards(folder);
  for (const std::string name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf"}) {  // (b)
    const auto file = open_model(folder.path(name));
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    EXPECT_EQ((*file)->tensors().size(), 3U);
    EXPECT_EQ((*file)->paths().size(), 3U);
    EXPECT_EQ((*file)->find("tensor3")->file, 2U);
    EXPECT_NE((*file)->metadata().find("general.architecture"), nullptr);
    EXPECT_EQ((*file)->format_name(), "GGUF v3, 3 parts");
  }
  // The folder stands for its one model.
  expect_ok(open_model(folder.path()));
}

TEST(ModelCases, C07_a_missing_shard_is_named) {
  const TempFolder folder;
  write_shards(folder);
  std::filesystem::remove(folder.path("m-00002-of-00003.gguf"));
  expect_refused(open_model(folder.path("m-00001-of-00003.gguf")),  // (a)
                 {"1 of 3 missing", folder.path("m-00002-of-00003.gguf")});
}

TEST(ModelCases, C07_joined_and_renamed_shards_are_explained) {
  const TempFolder folder;
  std::vector<std::byte> joined;
  for (uint16_t i = 1; i <= 3; ++i) {
    const auto bytes = shard(i, 3, "tensor" + std::to_string(i));
    joined.insert(joined.end(), bytes.begin(), bytes.end());
  }
  expect_refused(open_model(folder.write("joined.gguf", joined)),  // (c)
                 {"declares 3 shards", "cat"});
  expect_refused(open_model(folder.write("x.gguf", shard(1, 3, "tensor1"))),  // (d)
                 {"declares 3 shards", "-00001-of-00003.gguf"});
  // A shard under another's name.
  write_shards(folder);
  folder.write("m-00002-of-00003.gguf", shard(3, 3, "tensor3"));
  expect_refused(open_model(folder.path("m-00001-of-00003.gguf")),
                 {"m-00002-of-00003.gguf", "part 3 of 3"});
}

TEST(ModelCases, C07_a_folder_that_is_named_like_a_shard_is_no_shard) {
  const TempFolder folder;
  testing::TinyModel model;
  expect_ok(open_model(folder.write("foo-00001-of-00013/model.gguf", model.gguf())));  // (e)
  expect_ok(open_model(folder.write("foo-00001-of-00013.gguf/model.gguf", model.gguf())));
  // Without split keys, a name like a shard's is only a name.
  expect_ok(open_model(folder.write("bar-00002-of-00013.gguf", model.gguf())));
}

TEST(GgufSplit, tensors_that_the_first_shard_promises_must_be_there) {
  const TempFolder folder;
  GgufWriter first;
  for (const auto& [key, value] : {std::pair{"split.no", 0}, std::pair{"split.count", 2},
                                   std::pair{"split.tensors.count", 5}}) {
    first.add_u32(key, static_cast<uint32_t>(value));
  }
  first.add_tensor("a", tensor::DType::kF32, {1}, testing::zero_bytes(4));
  folder.write("m-00001-of-00002.gguf", first.bytes());
  folder.write("m-00002-of-00002.gguf", shard(2, 2, "b"));
  expect_refused(open_model(folder.path("m-00001-of-00002.gguf")),
                 {"split.tensors.count", "is 5", "2 tensors"});
}

TEST(GgufSplit, shard_names_are_parsed_strictly) {
  const auto name = parse_shard_name("models/m-00002-of-00013.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->stem, "models/m");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 13);
  EXPECT_EQ(shard_path(*name, 13), "models/m-00013-of-00013.gguf");
  for (const std::string odd :
       {"m-00014-of-00013.gguf", "m-00000-of-00013.gguf", "m-2-of-13.gguf", "m-00001-of-00013.bin",
        "-00001-of-00013.gguf", "d/-00001-of-00013.gguf", "m-0000a-of-00013.gguf", "m.gguf", ""}) {
    EXPECT_FALSE(parse_shard_name(odd).has_value()) << odd;
  }
}

TEST(GgufSplit, odd_split_keys_are_refused) {
  const TempFolder folder;
  GgufWriter text;
  text.add_string("split.count", "3");
  folder.write("t.gguf", text.bytes());
  expect_refused(open_model(folder.path("t.gguf")), {"'split.count'"});
  GgufWriter many;
  many.add_u32("split.count", 1U << 30);
  folder.write("n.gguf", many.bytes());
  expect_refused(open_model(folder.path("n.gguf")), {"split.count", "limit"});
}

}  // namespace
}  // namespace shoal::model
