#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace shoal {
namespace {

TEST(Bytes, WhatIsWrittenIsReadBack) {
  ByteWriter writer;
  writer.write<uint32_t>(7);
  writer.write_string("shoal");
  writer.write<float>(0.5F);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.read<uint32_t>().value(), 7U);
  EXPECT_EQ(reader.read_string(100).value(), "shoal");
  EXPECT_EQ(reader.read<float>().value(), 0.5F);
  EXPECT_EQ(reader.left(), 0U);
}

TEST(Bytes, FieldsFillAPlaceOfTheirSize) {
  std::array<std::byte, 6> place{};
  FieldWriter fields(place);
  fields.write<uint32_t>(7);
  EXPECT_EQ(fields.left(), 2U);
  fields.write<uint16_t>(9);
  EXPECT_EQ(fields.left(), 0U);
  ByteReader reader(place);
  EXPECT_EQ(reader.read<uint32_t>().value(), 7U);
  EXPECT_EQ(reader.read<uint16_t>().value(), 9U);
}

TEST(BytesDeathTest, AFieldBeyondThePlaceIsABug) {
  std::array<std::byte, 3> place{};
  FieldWriter fields(place);
  EXPECT_DEATH(fields.write<uint32_t>(7), "");
}

TEST(Bytes, AShortReadIsRefusedAndLeavesThePosition) {
  const std::vector<std::byte> three(3);
  ByteReader reader(three);
  EXPECT_FALSE(reader.read<uint32_t>().is_ok());
  EXPECT_FALSE(reader.read_bytes(4).is_ok());
  EXPECT_FALSE(reader.skip(UINT64_MAX).is_ok());
  EXPECT_EQ(reader.position(), 0U);
  EXPECT_TRUE(reader.read<uint16_t>().is_ok());
}

TEST(Bytes, ATextLongerThanTheBytesOrTheLimitIsRefused) {
  ByteWriter writer;
  writer.write<uint64_t>(uint64_t{1} << 63);
  ByteReader huge(writer.bytes());
  EXPECT_FALSE(huge.read_string(UINT64_MAX).is_ok());
  EXPECT_EQ(huge.position(), 0U);

  ByteWriter small;
  small.write_string("abcdef");
  ByteReader limited(small.bytes());
  EXPECT_FALSE(limited.read_string(5).is_ok());
  EXPECT_EQ(limited.read_string(6).value(), "abcdef");
}

}  // namespace
}  // namespace shoal
