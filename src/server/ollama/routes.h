// The routes of Ollama's API that answer over one model.
//
// POST /api/chat, /api/generate, /api/show; GET /api/tags, /api/ps, /api/version. The model's name
// may end in ":latest".
// Thread rule: as Router.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_ollama_routes(Service& service, Router* router);

// The name without the ":latest" that Ollama's clients put behind one that has no tag.
std::string_view ollama_model_name(const Service& service, std::string_view name);
// 400 where options.num_ctx is more than the server's context.
std::optional<ApiError> check_ollama_context(const ServedModel& model,
                                             std::optional<int64_t> wanted);

}  // namespace shoal::server
