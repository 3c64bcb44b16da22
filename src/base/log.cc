#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <string>

namespace shoal {

void init_logging(std::string_view who) {
  auto logger = std::make_shared<spdlog::logger>(
      "shoal", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  spdlog::set_default_logger(logger);
  spdlog::set_pattern("%H:%M:%S.%e %^%l%$ [" + std::string(who) + "] %v");
  spdlog::set_level(spdlog::level::warn);
  const char* wanted = std::getenv("SHOAL_LOG");
  if (wanted == nullptr) return;
  const auto level = spdlog::level::from_str(wanted);
  if (level == spdlog::level::off && std::string_view(wanted) != "off") {
    LOG(warn, "SHOAL_LOG={} is not one of trace, debug, info, warn, error, off", wanted);
    return;
  }
  spdlog::set_level(level);
}

}  // namespace shoal
