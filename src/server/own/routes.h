// The server's own routes: health, metrics, tokens.
//
// GET /health, /ready, /metrics, /version, /openapi.json; POST /tokenize, /detokenize
// (docs/api.md). Thread rule: as Router.
#pragma once

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_own_routes(Service& service, Router* router);

}  // namespace shoal::server
