// The routes of Ollama's API that answer over one model.
//
// POST /api/chat, /api/generate, /api/show; GET /api/tags, /api/ps, /api/version. The model's name
// may end in ":latest".
// Thread rule: as Router.
#pragma once

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_ollama_routes(Service& service, Router* router);

}  // namespace shoal::server
