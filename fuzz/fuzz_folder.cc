// Any bytes as one of the files that lie beside the weights in a model's folder: the tokenizer's
// settings, a chat template, the index of shards. The first byte says which.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "memory_file.h"
#include "model/safetensors/reader.h"
#include "text/tokenizer_folder.h"
#include "text_parts.h"

namespace shoal::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizer =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
        "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}]})";
// One file with the tensor "a" of one float: the length of its header, the header, the float.
constexpr std::string_view kHeader = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )";
static_assert(kHeader.size() < 256);

std::string shard() {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(kHeader.size());
  return bytes.append(kHeader).append(4, '\0');
}

// A folder whose files are links to memory; removed at the end of a run that finds nothing.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "shoal-fuzz-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    tokenizer_.set(bytes_of(kTokenizer));
    shard_.set(bytes_of(shard()));
    link(tokenizer_, "tokenizer.json");
    link(shard_, "a.safetensors");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // The file of this name is what set() wrote last, and no other odd file is there.
  void set(std::string_view name, std::span<const std::byte> bytes) {
    if (name != linked_) {
      if (!linked_.empty()) fs::remove(path_ / linked_);
      link(odd_, name);
      linked_ = name;
    }
    odd_.set(bytes);
  }
  std::string path() const { return path_.string(); }

 private:
  void link(const MemoryFile& file, std::string_view name) const {
    fs::create_symlink(file.path(), path_ / name);
  }

  fs::path path_;
  MemoryFile tokenizer_;
  MemoryFile shard_;
  MemoryFile odd_;
  std::string linked_;
};

void use_text(const std::string& path) {
  const auto folder = text::load_tokenizer_folder(path);
  expect_no_panic(folder.status());
  if (!folder.is_ok()) return;
  expect_no_panic(folder->chat_template_status);
  use_tokenizer(*folder->tokenizer);
  if (folder->chat_template == nullptr) return;
  const auto prompt =
      folder->chat_template->render(R"({"messages": [{"role": "user", "content": "b"}]})", 0);
  expect_no_panic(prompt.status());
}

void use_index(const std::string& path) {
  const auto parts = model::read_safetensors_folder(path);
  if (!parts.is_ok()) return;
  // The only promise that holds.
  CHECK(parts->tensors.size() == 1 && parts->tensors[0].name == "a");
}

// Larger ones are the fuzzer's own copies of the small ones.
constexpr size_t kBytesMax = 4096;

struct Kind {
  char letter;
  std::string_view name;
  void (*use)(const std::string& folder);
};
constexpr Kind kKinds[] = {
    {'c', "tokenizer_config.json", use_text},         {'m', "special_tokens_map.json", use_text},
    {'g', "generation_config.json", use_text},        {'t', "chat_template.jinja", use_text},
    {'i', "model.safetensors.index.json", use_index}, {'s', "config.json", use_index}};

void feed(char letter, std::span<const std::byte> bytes) {
  static Folder folder;
  if (bytes.size() > kBytesMax) return;
  for (const Kind& kind : kKinds) {
    if (kind.letter != letter) continue;
    folder.set(kind.name, bytes);
    kind.use(folder.path());
  }
}

}  // namespace
}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  shoal::fuzz::feed(static_cast<char>(data[0]), std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
