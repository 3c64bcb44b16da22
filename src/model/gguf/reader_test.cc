#include "model/gguf/reader.h"

#include <sys/resource.h>

#include <bit>
#include <chrono>

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

constexpr uint32_t kF32 = 0;

Result<GgufContents> parse(const std::vector<std::byte>& bytes) {
  return parse_gguf(bytes, "x.gguf");
}

std::vector<std::byte> bytes_from(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

int64_t peak_rss_kib() {
  struct rusage usage{};
  CHECK(::getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss;
}

TEST(ModelCases, C02_counts_and_lengths_are_bounded_by_the_file) {
  const int64_t before = peak_rss_kib();
  const auto start = std::chrono::steady_clock::now();
  using Counts = std::pair<uint64_t, uint64_t>;
  for (const auto& [tensors, keys] : {Counts{1ULL << 62, 0}, Counts{1ULL << 31, 0},
                                      Counts{0, 1ULL << 40}, Counts{1ULL << 63, 0}}) {
    RawGguf file;
    file.claimed_tensors = tensors;
    file.claimed_keys = keys;
    ASSERT_EQ(file.bytes().size(), 24U);
    expect_refused(parse(file.bytes()), {"x.gguf", std::to_string(std::max(tensors, keys))});
  }
  RawGguf text;
  text.key("general.name", ValueType::kString).value<uint64_t>(1ULL << 63);
  expect_refused(parse(text.bytes()), {"'general.name'", "9223372036854775808"});
  RawGguf array;
  array.key("some.list", ValueType::kArray).array(ValueType::kU8, 1ULL << 33).value<uint8_t>(1);
  expect_refused(parse(array.bytes()), {"'some.list'", "8589934592", "at byte"});
  RawGguf key;
  key.key("k", ValueType::kU8).value<uint8_t>(1);
  auto long_key = key.bytes();
  long_key[24 + 7] = std::byte{0x80};  // the key's own length
  expect_refused(parse(long_key), {"key", "at byte 24"});
  EXPECT_LT(peak_rss_kib() - before, 64 * 1024);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(ModelCases, C02_a_vocabulary_of_260_thousand_entries_opens_fast) {
  std::vector<std::string> tokens(260'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = "token" + std::to_string(i);
  GgufWriter writer;
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  const auto bytes = writer.bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto contents = parse(bytes);
  const auto strings = contents->metadata.find("tokenizer.ggml.tokens")->array()->strings();
  const auto taken = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(strings->size(), tokens.size());
  EXPECT_EQ(strings->back(), tokens.back());
  EXPECT_LT(taken, std::chrono::milliseconds(500));
  RecordProperty(
      "microseconds",
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(taken).count()));
}

TEST(ModelCases, C03_impossible_shapes_are_refused_and_an_empty_tensor_is_one) {
  const auto with_shape = [](const std::vector<uint64_t>& ne) {
    RawGguf file;
    file.tensor("odd", ne, kF32, 0).data(std::vector<std::byte>(64));
    return parse(file.bytes());
  };
  expect_refused(with_shape({1ULL << 32, 1ULL << 32}), {"'odd'", "[4294967296, 4294967296]"});
  expect_refused(with_shape({1152, (1ULL << 42) + 1}), {"'odd'", "[4398046511105, 1152]"});
  expect_refused(with_shape({(1ULL << 62) - 1}), {"'odd'", "[4611686018427387903]"});
  expect_refused(with_shape({~0ULL}), {"'odd'", "[18446744073709551615]"});
  expect_refused(with_shape({0, 1ULL << 63, 1ULL << 63}), {"'odd'"});
  const auto empty = with_shape({1, 0});
  ASSERT_TRUE(empty.is_ok());
  EXPECT_EQ(empty->tensors.front().shape, (Shape{0, 1}));
  EXPECT_TRUE(empty->tensors.front().data.empty());
}

TEST(ModelCases, C03_a_tensor_must_lie_within_the_data) {
  const auto at = [](uint64_t offset) {
    RawGguf file;
    file.tensor("w", {8}, kF32, offset).data(std::vector<std::byte>(64));
    return parse(file.bytes());
  };
  expect_ok(at(0));
  expect_ok(at(32));
  expect_refused(at(64), {"'w'", "32 bytes", "fetch it again"});
  expect_refused(at(~0ULL - 31), {"'w'"});
  expect_refused(at(4), {"'w'", "alignment"});
}

TEST(ModelCases, C04_alignment_is_a_power_of_two_of_an_integer_type) {
  const auto build = [](ValueType type, auto add) {
    RawGguf file;
    file.key("general.alignment", type);
    add(file);
    return parse(file.bytes());
  };
  const auto u32 = [&](uint32_t value) {
    return build(ValueType::kU32, [&](RawGguf& file) { file.value(value); });
  };
  expect_refused(u32(0), {"'general.alignment'", "is 0"});
  expect_refused(u32(3), {"'general.alignment'", "is 3"});
  expect_refused(u32(1U << 31), {"'general.alignment'", "2147483648"});
  expect_refused(build(ValueType::kString, [](RawGguf& file) { file.string("32"); }),
                 {"'general.alignment'", "string"});
  expect_refused(build(ValueType::kArray,
                       [](RawGguf& file) { file.array(ValueType::kU32, 1).value<uint32_t>(32); }),
                 {"'general.alignment'", "array"});
  expect_ok(u32(32));
  expect_ok(build(ValueType::kI32, [](RawGguf& file) { file.value<int32_t>(32); }));
  expect_refused(build(ValueType::kI32, [](RawGguf& file) { file.value<int32_t>(-32); }),
                 {"'general.alignment'"});
}

TEST(ModelCases, C04_data_starts_at_the_next_multiple_of_the_alignment) {
  for (const uint32_t alignment : {8U, 32U, 64U, 4096U}) {
    RawGguf file;
    file.key("general.alignment", ValueType::kU32).value(alignment);
    file.tensor("a", {1}, kF32, 0).tensor("b", {1}, kF32, alignment);
    std::vector<std::byte> data(alignment + 4);
    data[0] = std::byte{0xaa};
    data[alignment] = std::byte{0xbb};
    file.data(data, alignment);
    const auto bytes = file.bytes();
    const auto contents = parse(bytes);
    ASSERT_TRUE(contents.is_ok()) << contents.status().message();
    EXPECT_EQ((contents->tensors[0].data.data() - bytes.data()) % alignment, 0);
    EXPECT_EQ(contents->tensors[0].data[0], std::byte{0xaa});
    EXPECT_EQ(contents->tensors[1].data[0], std::byte{0xbb});
  }
}

TEST(ModelCases, C05_small_violations_are_refused_with_their_place) {
  RawGguf empty_key;  // (a)
  empty_key.key("", ValueType::kBool).value<uint8_t>(1);
  ASSERT_EQ(empty_key.bytes().size(), 37U);
  expect_refused(parse(empty_key.bytes()), {"at byte 24", "empty"});
  RawGguf nine;  // (b)
  nine.tensor("w", std::vector<uint64_t>(9, 1), kF32, 0).data(std::vector<std::byte>(64));
  expect_refused(parse(nine.bytes()), {"'w'", "9 dimensions"});
  RawGguf odd_type;  // (c)
  odd_type.tensor("w", {1}, 9999, 0).data(std::vector<std::byte>(64));
  expect_refused(parse(odd_type.bytes()), {"'w'", "9999"});
  RawGguf odd_value;  // (d)
  odd_value.key("k", 99).value<uint64_t>(0);
  expect_refused(parse(odd_value.bytes()), {"'k'", "99", "at byte"});
  RawGguf deep;  // (e)
  deep.key("k", ValueType::kArray);
  for (int i = 0; i < 1000; ++i) deep.array(ValueType::kArray, 1);
  deep.array(ValueType::kU8, 0);
  expect_refused(parse(deep.bytes()), {"'k'", "deeper"});
  RawGguf long_name;  // (f)
  long_name.tensor(std::string(5000, 'n'), {1}, kF32, 0).data(std::vector<std::byte>(64));
  expect_refused(parse(long_name.bytes()), {"tensor name", "5000"});
  expect_refused(parse(bytes_from({'G', 'G', 'U', 'F'})), {"ends after 4 bytes"});  // (g)
}

TEST(ModelCases, C11_other_byte_order_versions_and_magics_have_their_own_messages) {
  const auto start = [](std::initializer_list<int> first) {
    auto bytes = bytes_from(first);
    bytes.resize(64);
    return parse(bytes);
  };
  expect_refused(start({'G', 'G', 'U', 'F', 0, 0, 0, 3}), {"other byte order"});
  expect_refused(start({'G', 'G', 'U', 'F', 1, 0, 0, 0}), {"version 1 is not supported"});
  expect_refused(start({'G', 'G', 'U', 'F', 0xe7, 3, 0, 0}), {"version 999 is too new"});
  expect_refused(start({'F', 'U', 'G', 'G', 3, 0, 0, 0}), {"not a GGUF file"});
  expect_refused(parse({}), {"not a GGUF file", "empty"});
}

TEST(GgufReader, every_cut_of_a_file_is_refused_and_never_overruns) {
  testing::TinyModel model;
  model.layers = 1;
  model.add_keys = [](GgufWriter& writer) {
    writer.add_strings("list", std::vector<std::string>{"a", "bc"});
  };
  const auto bytes = model.gguf();
  expect_ok(parse(bytes));
  for (size_t size = 0; size < bytes.size(); size += size < 1200 ? 1 : 61) {
    // A copy of its own, so that a sanitizer sees a read past the end.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const auto contents = parse(cut);
    // Only the padding after the last tensor may go.
    EXPECT_TRUE(!contents.is_ok() || size > bytes.size() - 32) << size;
  }
}

TEST(GgufReader, every_metadata_type_is_read) {
  RawGguf file;
  file.key("u8", ValueType::kU8).value<uint8_t>(200);
  file.key("i8", ValueType::kI8).value<int8_t>(-3);
  file.key("u16", ValueType::kU16).value<uint16_t>(60000);
  file.key("i16", ValueType::kI16).value<int16_t>(-30000);
  file.key("u32", ValueType::kU32).value<uint32_t>(4'000'000'000U);
  file.key("i32", ValueType::kI32).value<int32_t>(-2'000'000'000);
  file.key("f32", ValueType::kF32).value<float>(1.5F);
  file.key("bool", ValueType::kBool).value<uint8_t>(1);
  file.key("string", ValueType::kString).string("text");
  file.key("u64", ValueType::kU64).value<uint64_t>(~0ULL);
  file.key("i64", ValueType::kI64).value<int64_t>(-5);
  file.key("f64", ValueType::kF64).value<double>(0.1);
  file.key("nested", ValueType::kArray).array(ValueType::kArray, 2);
  file.array(ValueType::kI32, 2).value<int32_t>(1).value<int32_t>(-2);
  file.array(ValueType::kString, 1).string("x");
  const auto bytes = file.bytes();
  const auto contents = parse(bytes);
  ASSERT_TRUE(contents.is_ok()) << contents.status().message();
  const auto get = [&](std::string_view key) { return *contents->metadata.find(key); };
  EXPECT_EQ(get("u8").integer(), 200);
  EXPECT_EQ(get("i8").integer(), -3);
  EXPECT_EQ(get("u16").integer(), 60000);
  EXPECT_EQ(get("i16").integer(), -30000);
  EXPECT_EQ(get("u32").integer(), 4'000'000'000);
  EXPECT_EQ(get("i32").integer(), -2'000'000'000);
  EXPECT_EQ(get("f32").number(), 1.5);
  EXPECT_EQ(get("bool").boolean(), true);
  EXPECT_EQ(get("string").string(), "text");
  EXPECT_EQ(get("u64").integer(), std::nullopt);
  EXPECT_EQ(get("i64").integer(), -5);
  EXPECT_EQ(get("f64").number(), 0.1);
  const auto inner = get("nested").array()->arrays();
  ASSERT_EQ(inner->size(), 2U);
  EXPECT_EQ((*inner)[0].integers(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ((*inner)[1].strings()->front(), "x");
  EXPECT_EQ(contents->metadata.find("absent"), nullptr);
}

TEST(GgufReader, repeated_keys_overlapping_tensors_and_broken_blocks_are_refused) {
  RawGguf twice;
  twice.key("k", ValueType::kU8).value<uint8_t>(1).key("k", ValueType::kU8).value<uint8_t>(2);
  expect_refused(parse(twice.bytes()), {"'k'", "twice"});
  RawGguf overlap;
  overlap.tensor("a", {16}, kF32, 0).tensor("b", {4}, kF32, 32).data(std::vector<std::byte>(64));
  expect_refused(parse(overlap.bytes()), {"'a'", "'b'", "overlap"});
  RawGguf block;
  block.tensor("q", {48}, 2, 0).data(std::vector<std::byte>(64));
  expect_refused(parse(block.bytes()), {"'q'", "Q4_0"});
}

TEST(GgufReader, version_2_is_read_as_version_3) {
  RawGguf file;
  file.version = 2;
  file.key("k", ValueType::kU8).value<uint8_t>(7);
  const auto bytes = file.bytes();
  const auto contents = parse(bytes);
  ASSERT_TRUE(contents.is_ok());
  EXPECT_EQ(contents->version, 2U);
  EXPECT_EQ(contents->metadata.find("k")->integer(), 7);
}

TEST(GgufWriter, what_it_writes_is_what_the_reader_reads) {
  const testing::TempFolder folder;
  std::vector<float> values = {1.0F, -2.0F, 0.5F, 4.0F, 5.0F, 6.0F};
  for (const uint32_t alignment : {8U, 32U, 128U}) {
    GgufWriter writer(alignment);
    writer.add_u32("count", 3);
    writer.add_f32("share", 0.25F);
    writer.add_bool("flag", true);
    writer.add_i32s("ids", std::vector<int32_t>{1, -1});
    writer.add_f32s("scores", std::vector<float>{0.5F});
    writer.add_tensor("m", tensor::DType::kF32, {2, 3}, std::as_bytes(std::span(values)));
    writer.add_tensor("q", tensor::DType::kQ8_0, {32}, testing::zero_bytes(34));
    const std::string path = folder.write("w.gguf", writer.bytes());
    const auto file = open_model(path);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    const TensorInfo* m = (*file)->find("m");
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(m->shape, (Shape{2, 3}));
    EXPECT_EQ(m->shape.ne(0), 3U);
    EXPECT_EQ(m->dtype(), tensor::DType::kF32);
    EXPECT_TRUE(std::ranges::equal(m->data, std::as_bytes(std::span(values))));
    EXPECT_EQ((*file)->find("q")->data.size(), 34U);
    EXPECT_EQ((*file)->metadata().find("ids")->array()->integers(), (std::vector<int64_t>{1, -1}));
    EXPECT_EQ((*file)->format_name(), "GGUF v3");
    EXPECT_EQ((*file)->file_bytes(), std::filesystem::file_size(path));
    EXPECT_EQ((*file)->tensor_bytes(), 24U + 34U);
  }
}

}  // namespace
}  // namespace shoal::model
