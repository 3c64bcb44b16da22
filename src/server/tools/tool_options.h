// ToolOptions: the functions that a request offers the model, and whether it has to call one.
//
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

namespace shoal::server {

// Functions of one request at most.
inline constexpr size_t kToolsMax = 256;

struct Tool {
  std::string name;
  // JSON, as the client wrote it: {"type": "function", "function": {"name", "parameters", ...}}.
  std::string definition;
  // JSON schema of the arguments.
  std::string parameters;
  bool is_strict = false;  // the arguments must fit the schema, or the request is refused
};

enum class ToolChoice {
  kAuto,      // as the model likes
  kNone,      // the model is not told about them
  kRequired,  // the answer is a call, or several
  kNamed,     // the answer is one call of `named`
};

struct ToolOptions {
  std::vector<Tool> tools{};
  ToolChoice choice = ToolChoice::kAuto;
  std::string named{};
  bool is_parallel = true;      // more than one call in an answer
  std::string param = "tools";  // the field that errors name

  bool are_offered() const { return !tools.empty() && choice != ToolChoice::kNone; }
  bool are_forced() const {
    return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed;
  }
  // At most one call ends the answer.
  bool is_single_call() const { return !is_parallel || choice == ToolChoice::kNamed; }
};

}  // namespace shoal::server
