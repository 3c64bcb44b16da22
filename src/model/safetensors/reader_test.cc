#include "model/safetensors/reader.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "model/model.h"
#include "model/testing/matchers.h"
#include "model/testing/raw_safetensors.h"
#include "model/testing/temp_folder.h"

namespace shoal::model {
namespace {

using testing::expect_ok;
using testing::expect_refused;
using testing::raw_safetensors;
using testing::TempFolder;

Result<std::vector<TensorInfo>> parse(std::string_view header, size_t data_bytes) {
  static std::vector<std::byte> bytes;  // the result borrows it
  bytes = raw_safetensors(header, data_bytes);
  return parse_safetensors(bytes, "x.safetensors");
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return fmt::format(R"("{}": {{"dtype": "{}", "shape": {}, "data_offsets": {}}})", name, dtype,
                     shape, offsets);
}

TEST(ModelCases, C13_the_header_length_is_compared_with_the_file) {
  ByteWriter huge;
  huge.write<uint64_t>(1ULL << 63);
  huge.write_bytes(bytes_of("{}"));
  expect_refused(parse_safetensors(huge.bytes(), "x"), {"9223372036854775808", "only 2 follow"});
  ByteWriter longer;
  longer.write<uint64_t>(8 + 2 + 1);  // the file's size and one more
  longer.write_bytes(bytes_of("{}"));
  expect_refused(parse_safetensors(longer.bytes(), "x"), {"x: the header says 11 bytes"});
  expect_refused(parse_safetensors(bytes_of("1234"), "x"), {"not a safetensors file"});
}

TEST(ModelCases, C13_a_header_above_the_limit_is_refused_with_both_sizes) {
  const std::string header(kSafetensorsHeaderBytesMax + 1, ' ');
  expect_refused(parse_safetensors(raw_safetensors(header, 0), "x"), {"100000001", "100000000"});
}

TEST(ModelCases, C13_headers_that_are_no_json_object_are_refused) {
  expect_refused(parse("[]", 0), {"x.safetensors", "no JSON object"});
  expect_refused(parse("{", 0), {"not valid JSON"});
  expect_refused(parse("{\"a\xff\": 1}", 0), {"not valid JSON"});
  expect_refused(parse("{} x", 0), {"not valid JSON"});
  expect_refused(parse("7", 0), {"no JSON object"});
}

TEST(ModelCases, C13_offsets_must_fit_shape_type_and_file) {
  const auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets,
                      size_t data_bytes) {
    return parse("{" + entry("w", dtype, shape, offsets) + "}", data_bytes);
  };
  expect_ok(one("F32", "[2]", "[0, 8]", 8));
  expect_refused(one("F32", "[2]", "[8, 0]", 8), {"'w'", "reversed"});
  expect_refused(one("F32", "[2]", "[0, 9]", 8), {"'w'", "run past"});
  expect_refused(one("F32", "[3]", "[0, 8]", 8), {"'w'", "needs 12 bytes"});
  expect_refused(one("F32", "[4294967296, 4294967296]", "[0, 8]", 8), {"'w'", "too large"});
  expect_refused(one("F7", "[2]", "[0, 8]", 8), {"'w'", "'F7'"});
  expect_refused(one("F32", "[-2]", "[0, 8]", 8), {"'w'", "negative"});
  expect_refused(one("F32", "[2.0]", "[0, 8]", 8), {"'w'", "fraction"});
  expect_refused(one("F32", "[2]", "[0]", 8), {"'w'", "two numbers"});
  expect_refused(one("F32", "[2]", "[0, 4, 8]", 8), {"'w'", "more than 2"});
  expect_refused(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0, 8]", 8), {"'w'", "more than 8"});
  expect_refused(one("F32", "[[2]]", "[0, 8]", 8), {"'w'", "a list"});
}

TEST(ModelCases, C13_tensors_cover_the_data_without_overlap_or_hole) {
  const auto two = [](std::string_view first, std::string_view second, size_t data_bytes) {
    return parse(
        "{" + entry("a", "F32", "[1]", first) + "," + entry("b", "F32", "[1]", second) + "}",
        data_bytes);
  };
  expect_ok(two("[0, 4]", "[4, 8]", 8));
  expect_ok(two("[4, 8]", "[0, 4]", 8));
  expect_refused(two("[0, 4]", "[0, 4]", 4), {"overlap"});
  expect_refused(two("[0, 4]", "[8, 12]", 12), {"'b'", "hole"});
  expect_refused(two("[0, 4]", "[4, 8]", 9), {"cover only 8"});
}

TEST(ModelCases, C13_a_repeated_name_is_called_a_duplicate) {
  const std::string a = entry("a", "F32", "[1]", "[0, 4]");
  const std::string again = entry("a", "F32", "[1]", "[4, 8]");
  expect_refused(parse("{" + a + "," + again + "}", 8), {"'a'", "duplicate"});
  expect_refused(parse(R"({"a": {"dtype": "F32", "dtype": "F16"}})", 8), {"'a'", "duplicate"});
}

TEST(ModelCases, C13_metadata_holds_strings_only) {
  const std::string w = entry("w", "F32", "[1]", "[0, 4]");
  expect_ok(parse(R"({"__metadata__": {"format": "pt", "x": ""},)" + w + "}", 4));
  std::string deep = R"({"__metadata__": )";
  for (int i = 0; i < 1000; ++i) deep += R"({"a": )";
  deep += "1" + std::string(1000, '}') + "," + w + "}";
  expect_refused(parse(deep, 4), {"__metadata__", "an object"});
  expect_refused(parse(R"({"__metadata__": {"n": 1},)" + w + "}", 4), {"__metadata__"});
  expect_refused(parse(R"({"__metadata__": "pt",)" + w + "}", 4), {"__metadata__"});
}

TEST(ModelCases, C13_padding_and_empty_tensors_are_accepted) {
  expect_ok(parse("{" + entry("w", "F32", "[1]", "[0, 4]") + "}     ", 4));
  const auto empty =
      parse("{" + entry("e", "F32", "[0]", "[0, 0]") + "," + entry("w", "F32", "[1]", "[0, 4]") +
                "," + entry("s", "I64", "[]", "[4, 12]") + "}",
            12);
  ASSERT_TRUE(empty.is_ok()) << empty.status().message();
  EXPECT_EQ(empty->size(), 3U);
  EXPECT_EQ((*empty)[0].shape, Shape{0});
  EXPECT_EQ((*empty)[2].shape.rank(), 0U);
  expect_ok(parse("{}", 0));
}

TEST(SafetensorsReader, fields_that_are_missing_or_unknown_are_refused) {
  expect_refused(parse(R"({"w": {"dtype": "F32", "shape": [1]}})", 4), {"'w'", "data_offsets"});
  expect_refused(parse(R"({"w": {"dtype": 7, "shape": [1], "data_offsets": [0, 4]}})", 4),
                 {"'w'", "a number"});
  expect_refused(parse(R"({"w": {"dtype": "F32", "stride": [1]}})", 4), {"'w'", "'stride'"});
  expect_refused(parse(R"({"w": 3})", 4), {"'w'"});
  expect_refused(parse(R"({"w": null})", 4), {"'w'", "null"});
  expect_refused(parse(R"({"": {}})", 0), {"empty name"});
}

TEST(ModelCases, C15_misaligned_tensors_are_read_bit_for_bit) {
  const TempFolder folder;
  std::string header = "{" + entry("bytes", "U8", "[3]", "[0, 3]") + "," +
                       entry("floats", "F32", "[2]", "[3, 11]") + "," +
                       entry("halves", "BF16", "[2]", "[11, 15]") + "}";
  while (header.size() % 8 != 3) header += ' ';
  const std::vector<float> floats = {1.25F, -3.5e-20F};
  ByteWriter data;
  for (const int byte : {7, 8, 9}) data.write(static_cast<uint8_t>(byte));
  for (const float value : floats) data.write(value);
  for (const int value : {0x3f80, 0xc000}) data.write(static_cast<uint16_t>(value));  // 1 and -2
  const auto file =
      open_model(folder.write("odd.safetensors", raw_safetensors(header, data.bytes())));
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const TensorInfo* f32 = (*file)->find("floats");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f32->data.data()) % alignof(float), 0U);
  EXPECT_EQ(read_floats(*f32).value(), floats);
  const TensorInfo* bf16 = (*file)->find("halves");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bf16->data.data()) % 2, 0U);
  EXPECT_EQ(read_floats(*bf16).value(), (std::vector<float>{1.0F, -2.0F}));
  const TensorInfo* bytes = (*file)->find("bytes");
  EXPECT_EQ(bytes->type.name, "U8");
  EXPECT_EQ(bytes->data[2], std::byte{9});
  EXPECT_FALSE(read_floats(*bytes).is_ok());
}

// Two shards with an index over them, each with one tensor.
void write_shards(const TempFolder& folder, std::string_view first, std::string_view second) {
  folder.write("model-00001-of-00002.safetensors",
               raw_safetensors("{" + entry(first, "F32", "[1]", "[0, 4]") + "}", 4));
  folder.write("model-00002-of-00002.safetensors",
               raw_safetensors("{" + entry(second, "F32", "[1]", "[0, 4]") + "}", 4));
  folder.write("model.safetensors.index.json",
               R"({"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                   "b": "model-00002-of-00002.safetensors"}})");
}

TEST(SafetensorsShards, are_opened_by_folder_index_and_any_part) {
  const TempFolder folder;
  write_shards(folder, "a", "b");
  folder.write("config.json", R"({"architectures": ["X"]})");
  for (const std::string& path : {folder.path(), folder.path("model.safetensors.index.json"),
                                  folder.path("model-00002-of-00002.safetensors")}) {
    const auto file = open_model(path);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    EXPECT_EQ((*file)->tensors().size(), 2U);
    EXPECT_EQ((*file)->find("b")->file, 1U);
    EXPECT_NE((*file)->config(), nullptr);
    EXPECT_EQ((*file)->folder(), folder.path());
  }
  // Without an index, all files of the folder belong together.
  std::filesystem::remove(folder.path("model.safetensors.index.json"));
  EXPECT_EQ((*open_model(folder.path()))->tensors().size(), 2U);
}

TEST(ModelCases, C06_a_tensor_in_two_safetensors_shards_is_refused_naming_both) {
  const TempFolder folder;
  write_shards(folder, "a", "a");
  std::filesystem::remove(folder.path("model.safetensors.index.json"));
  expect_refused(open_model(folder.path()), {"'a'", "model-00001-of-00002.safetensors",
                                             "model-00002-of-00002.safetensors", "twice"});
}

TEST(SafetensorsShards, what_the_index_promises_must_be_there) {
  const TempFolder folder;
  write_shards(folder, "a", "other");
  expect_refused(open_model(folder.path()), {"'b'", "model-00002-of-00002.safetensors"});
  std::filesystem::remove(folder.path("model-00002-of-00002.safetensors"));
  expect_refused(open_model(folder.path()),
                 {"1 of 2 missing", folder.path("model-00002-of-00002.safetensors")});
}

TEST(SafetensorsShards, an_index_cannot_lead_out_of_its_folder) {
  const TempFolder folder;
  for (const std::string name : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    folder.write("model.safetensors.index.json", R"({"weight_map": {"a": ")" + name + "\"}}");
    expect_refused(open_model(folder.path()), {"'a'", "without a folder"});
  }
}

TEST(SafetensorsShards, malformed_indexes_are_refused) {
  const TempFolder folder;
  const auto open = [&](std::string_view text) {
    folder.write("model.safetensors.index.json", text);
    return open_model(folder.path());
  };
  expect_refused(open("[]"), {"weight_map"});
  expect_refused(open("{"), {"not valid JSON", "model.safetensors.index.json"});
  expect_refused(open(R"({"weight_map": []})"), {"weight_map"});
  expect_refused(open(R"({"weight_map": {}})"), {"empty"});
  expect_refused(open(R"({"weight_map": {"a": 1}})"), {"'a'"});
  expect_refused(open(R"({"weight_map": {"a": "x", "a": "y"}})"), {"duplicate"});
  expect_refused(open(std::string(1000, '[') + std::string(1000, ']')), {"nested deeper"});
}

TEST(OpenModel, folders_without_one_clear_model_are_refused) {
  const TempFolder folder;
  expect_refused(open_model(folder.path()), {"holds no model"});
  folder.write("a.gguf", "x");
  folder.write("b.gguf", "x");
  expect_refused(open_model(folder.path()), {"2 GGUF models"});
  expect_refused(open_model(folder.path("absent.gguf")), {"absent.gguf", "No such file"});
  expect_refused(open_model(folder.path("absent.safetensors")), {"absent.safetensors"});
}

}  // namespace
}  // namespace shoal::model
