// The routes of OpenAI's API.
//
// GET /v1/models, GET /v1/models/{id}, POST /v1/chat/completions, POST /v1/completions.
// Thread rule: as Router.
#pragma once

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_openai_routes(Service& service, Router* router);

}  // namespace shoal::server
