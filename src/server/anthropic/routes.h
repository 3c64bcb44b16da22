// The routes of Anthropic's API: POST /v1/messages, POST /v1/messages/count_tokens.
//
// Thread rule: as Router.
#pragma once

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_anthropic_routes(Service& service, Router* router);

}  // namespace shoal::server
