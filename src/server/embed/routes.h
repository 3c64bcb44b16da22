// The routes that give embeddings: OpenAI's POST /v1/embeddings, and Ollama's POST /api/embed and
// /api/embeddings.
//
// Thread rule: as Router.
#pragma once

#include "server/http/router.h"
#include "server/service.h"

namespace shoal::server {

// The service must outlive the router.
void add_embedding_routes(Service& service, Router* router);

}  // namespace shoal::server
