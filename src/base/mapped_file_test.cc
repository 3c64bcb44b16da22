#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace shoal {
namespace {

std::string write_temporary(const std::string& content) {
  std::string path = testing::TempDir() + "mapped_file_" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(MappedFile, MapsTheWholeFile) {
  const std::string path = write_temporary("twelve bytes");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.is_ok());
  EXPECT_EQ((*file)->bytes().size(), 12U);
  EXPECT_EQ(static_cast<char>((*file)->bytes()[7]), 'b');
  std::remove(path.c_str());
}

TEST(MappedFile, AnEmptyFileMapsToNoBytes) {
  const std::string path = write_temporary("");
  EXPECT_TRUE(MappedFile::open(path).value()->bytes().empty());
  std::remove(path.c_str());
}

TEST(MappedFile, NamesThePathItCouldNotMap) {
  const auto missing = MappedFile::open("/no/such/file");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kRequest);
  EXPECT_NE(missing.status().message().find("/no/such/file"), std::string::npos);
  EXPECT_FALSE(MappedFile::open("/").is_ok());
}

}  // namespace
}  // namespace shoal
