// Fields: a request's JSON object, read field by field, strictly.
//
// Every field that is present must be asked for by name: finish() refuses the others. Absent and
// null are the same. The first thing that is wrong is kept and the reading goes on, so that a
// parser is a plain list of fields; finish() gives it. Errors name the field by its whole path.
// Thread rule: one thread. Borrows the object.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/api/error_response.h"

namespace shoal::server {

// Sorted by key: finding one is never linear in a foreign object's size.
using Json = nlohmann::json;

// As JSON on one line; what is no UTF-8 becomes U+FFFD.
std::string json_text(const Json& json);

// A T, or the error to answer with.
template <typename T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  ApiResult(ApiError error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool is_ok() const { return value_.has_value(); }
  const ApiError& error() const { return error_; }
  T& operator*() & {
    CHECK(is_ok());
    return *value_;
  }
  const T& operator*() const& {
    CHECK(is_ok());
    return *value_;
  }
  T* operator->() { return &**this; }

 private:
  std::optional<T> value_;
  ApiError error_;
};

inline constexpr int kNestingMax = 64;
// Levels of objects and lists of a text in JSON, found before anything is built of them.
int nesting(std::string_view text);
// A body that must be an object. 400 for anything else, for more than kNestingMax levels, and for
// text that is no UTF-8.
ApiResult<Json> parse_body(std::string_view body);

struct IntegerRange {
  int64_t min = 0;
  int64_t max = INT64_MAX;
};
struct NumberRange {
  double min = 0;
  double max = 0;
};

class Fields {
 public:
  // path: of the object in the request ("messages[0]"); empty for the request itself.
  explicit Fields(const Json& object, std::string path = {});

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, IntegerRange range);
  std::optional<double> number(std::string_view name, NumberRange range);
  std::optional<std::string> text(std::string_view name);
  // One of the choices.
  std::optional<std::string> choice(std::string_view name,
                                    const std::vector<std::string_view>& choices);
  // Null where it is absent, null or of another type, which is an error.
  const Json* object(std::string_view name);
  const Json* array(std::string_view name);
  // Of any type; null where it is absent or null.
  const Json* any(std::string_view name);

  // Reads the entries of a list, each with fields of its own, up to the first error. wrong: what is
  // said of the list where an entry is no object; empty: the error is the entry's own.
  using ReadEntry = std::function<void(Fields* entry, size_t index)>;
  void each_object(std::string_view name, const Json& list, std::string_view wrong,
                   const ReadEntry& read);

  // A field that is known and not served: an error that says `why` where it is present.
  void refuse(std::string_view name, std::string_view why);
  // The same for one that is there and has another value than those that change nothing.
  void refuse_unless(std::string_view name, const std::vector<Json>& harmless,
                     std::string_view why);
  // "name: message", about this object's field.
  void fail(std::string_view name, std::string_view message);
  void fail(ApiError error);
  bool has_failed() const { return error_.has_value(); }

  // The first error, of the fields read or of one that nobody asked for.
  std::optional<ApiError> finish();
  std::string path_of(std::string_view name) const;

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

// 400: content of a type that a model of texts does not read.
void refuse_content(Fields* part, std::string_view type);

}  // namespace shoal::server
