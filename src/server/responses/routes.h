// The route of OpenAI's Responses API: POST /v1/responses.
//
// Thread rule: as Router.
#pragma once

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_responses_routes(Service& service, Router* router);

}  // namespace shoal::server
