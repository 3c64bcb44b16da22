#include "server/generate/answer_json.h"

#include <fmt/format.h>

#include <random>

namespace shoal::server {

std::string random_id(std::string_view prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

std::string to_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string to_event(const OrderedJson& json) { return "data: " + to_text(json) + "\n\n"; }

std::string_view finish_reason_name(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

}  // namespace shoal::server
