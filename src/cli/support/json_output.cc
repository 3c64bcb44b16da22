#include "cli/support/json_output.h"

namespace shoal::cli {

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

double tokens_per_second(const Speed& speed) {
  return speed.seconds > 0 ? static_cast<double>(speed.tokens) / speed.seconds : 0;
}

Json to_json(const Speed& speed) {
  return {{"tokens", speed.tokens},
          {"seconds", speed.seconds},
          {"tokens_per_second", tokens_per_second(speed)}};
}

Json to_json(const collective::Counters& counters) {
  return {{"operations", counters.operations},
          {"bytes", counters.bytes},
          {"seconds", counters.seconds}};
}

}  // namespace shoal::cli
