#include "base/foreign/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/foreign/quote.h"
#include "base/mapped_file.h"

namespace shoal {
namespace {

using nlohmann::json;

// Walks a text before it is built: depth, duplicate keys, syntax. The parser keeps its nesting on
// the heap, so that depth costs no stack.
class Checker : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return push(); }
  bool end_object() override { return pop(); }
  bool start_array(std::size_t /*elements*/) override { return push(); }
  bool end_array() override { return pop(); }
  bool key(string_t& value) override {
    if (keys_.back().insert(value).second) return true;
    problem_ = "the key " + quote(value) + " is there twice (duplicate)";
    return false;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    problem_ = fmt::format("not valid JSON at byte {}", position);
    return false;
  }

  const std::string& problem() const { return problem_; }

 private:
  bool push() {
    keys_.emplace_back();
    if (keys_.size() <= static_cast<size_t>(kJsonDepthMax)) return true;
    problem_ = fmt::format("nested deeper than {}", kJsonDepthMax);
    return false;
  }
  bool pop() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> keys_;
  std::string problem_;
};

}  // namespace

Status check_json(std::string_view text, std::string_view name) {
  Checker checker;
  if (json::sax_parse(text, &checker)) return Status::ok();
  return Status::request(fmt::format("{}: {}", name, checker.problem()));
}

Result<json> parse_json(std::string_view text, std::string_view name) {
  RETURN_IF_ERROR(check_json(text, name));
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  CHECK(!value.is_discarded());  // the checker has read it to the end
  return value;
}

Result<json> read_json_file(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kJsonFileBytesMax) {
    return Status::request(fmt::format("{}: {} bytes of JSON, the limit is {}", path, bytes.size(),
                                       kJsonFileBytesMax));
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace shoal
