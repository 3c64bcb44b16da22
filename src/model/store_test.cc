#include "model/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "model/testing/matchers.h"
#include "model/testing/temp_folder.h"

namespace shoal::model {
namespace {

using testing::expect_refused;
using testing::TempFolder;

// Sets variables for one test and puts the old values back.
class Environment {
 public:
  ~Environment() {
    for (const auto& [name, value] : old_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }
  void set(const std::string& name, const char* value) {
    const char* old = std::getenv(name.c_str());
    old_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    value == nullptr ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value, 1);
  }

 private:
  std::map<std::string, std::optional<std::string>> old_;
};

TEST(ModelStore, the_cache_is_found_by_option_and_environment) {
  Environment environment;
  environment.set("SHOAL_CACHE", "/a");
  environment.set("XDG_CACHE_HOME", "/b");
  environment.set("HOME", "/c");
  const auto with_option = StoreOptions{.cache_folder = "/option"};
  EXPECT_EQ(models_folder(with_option).value(), "/option/models");
  EXPECT_EQ(models_folder({}).value(), "/a/models");
  environment.set("SHOAL_CACHE", nullptr);
  EXPECT_EQ(models_folder({}).value(), "/b/shoal/models");
  environment.set("XDG_CACHE_HOME", "relative");  // to be ignored by its specification
  EXPECT_EQ(models_folder({}).value(), "/c/.cache/shoal/models");
  environment.set("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(models_folder({}).value(), "/c/.cache/shoal/models");
  environment.set("HOME", nullptr);
  expect_refused(models_folder({}), {"SHOAL_CACHE"});
}

TEST(ModelStore, an_existing_path_stays_a_path) {
  const TempFolder folder;
  const std::string path = folder.write("m.gguf", "x");
  const auto resolved = resolve_model(path, {.cache_folder = folder.path("cache")});
  ASSERT_TRUE(resolved.is_ok()) << resolved.status().message();
  EXPECT_EQ(resolved->path, path);
  EXPECT_EQ(resolved->known, nullptr);
  EXPECT_FALSE(resolved->was_fetched);
}

TEST(ModelStore, models_of_the_cache_are_found_by_name) {
  const TempFolder folder;
  const StoreOptions options = {.cache_folder = folder.path()};
  const std::string path = folder.write("models/mine.gguf", "x");
  for (const std::string name : {"mine", "mine.gguf"}) {
    const auto resolved = resolve_model(name, options);
    ASSERT_TRUE(resolved.is_ok()) << resolved.status().message();
    EXPECT_EQ(resolved->path, path);
  }
}

TEST(ModelStore, a_name_that_nothing_has_lists_what_there_is) {
  const TempFolder folder;
  folder.write("models/mine.gguf", "x");
  const StoreOptions options = {.cache_folder = folder.path()};
  expect_refused(resolve_model("smollm3", options), {"'smollm3'", "smollm2", "mine"});
  expect_refused(resolve_model("", options), {"no file"});
  expect_refused(resolve_model("./absent.gguf", options), {"absent.gguf"});
}

TEST(ModelStore, a_known_model_in_the_cache_is_not_fetched) {
  const TempFolder folder;
  const KnownModel& known = known_models().front();
  const std::string path = folder.write("models/" + std::string(known.file_name), "");
  std::filesystem::resize_file(path, known.file_bytes);  // sparse
  const auto resolved = resolve_model(
      known.name, {.cache_folder = folder.path(), .python = folder.path("no-python")});
  ASSERT_TRUE(resolved.is_ok()) << resolved.status().message();
  EXPECT_EQ(resolved->path, path);
  EXPECT_EQ(resolved->known, &known);
  EXPECT_FALSE(resolved->was_fetched);
}

TEST(ModelCases, C07_a_split_model_is_listed_once) {
  const TempFolder folder;
  for (const std::string part : {"1", "2", "3"}) {
    folder.write("models/big-0000" + part + "-of-00003.gguf", "1234");
  }
  folder.write("models/one.gguf", "12");
  folder.write("models/tensors/model-00001-of-00002.safetensors", "123");
  folder.write("models/tensors/model-00002-of-00002.safetensors", "123");
  folder.write("models/.fetching-x/half.gguf", "1");
  folder.write("models/notes.txt", "1");
  const auto models = list_models({.cache_folder = folder.path()});
  ASSERT_TRUE(models.is_ok()) << models.status().message();
  std::vector<std::string> rows;
  for (const ListedModel& model : *models) {
    rows.push_back(model.name + " " + std::to_string(model.bytes) + " " +
                   std::to_string(model.parts));
  }
  EXPECT_THAT(rows, ::testing::UnorderedElementsAre("big 12 3", "one 2 1", "tensors 6 2",
                                                    "smollm2 98362432 0"));
  const auto big = std::ranges::find(*models, "big", &ListedModel::name);
  EXPECT_THAT(big->path, ::testing::EndsWith("big-00001-of-00003.gguf"));
  EXPECT_EQ(resolve_model("big", {.cache_folder = folder.path()})->path, big->path);
}

TEST(ModelStore, a_cache_that_is_not_there_yet_holds_the_known_models_only) {
  const TempFolder folder;
  const auto models = list_models({.cache_folder = folder.path("absent")});
  ASSERT_TRUE(models.is_ok()) << models.status().message();
  ASSERT_EQ(models->size(), known_models().size());
  EXPECT_EQ(models->front().path, "");
  EXPECT_EQ(models->front().known->licence, "Apache-2.0");
}

}  // namespace
}  // namespace shoal::model
