// The description of the HTTP API in the form of OpenAPI 3.1, for programs that read such.
//
// docs/api.md is the same for people. Thread rule: pure function.
#pragma once

#include <string>

namespace shoal::server {

// version: of this program.
std::string openapi_json(const std::string& version);

}  // namespace shoal::server
