// Router: from a method and a path to the handler behind it, and to how errors are written there.
//
// A pattern is a whole path, or one that ends with "/*": the star takes the rest, slashes too.
// Thread rule: add() before it is shared; find() from many threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/error_response.h"
#include "server/http/exchange.h"
#include "server/http/message.h"

namespace shoal::server {

using Handler = std::function<void(Request, std::shared_ptr<Exchange>)>;

struct Route {
  std::string method;  // GET serves HEAD too
  std::string pattern;
  Handler handler{};
  bool is_public = false;  // needs no key
  // Answers in microseconds, whatever the load: runs on the thread of the sockets.
  bool is_quick = false;
};

class Router {
 public:
  void add(Route route);

  // Errors at this path and below it ("/api": "/api/x" too, "/apis" not) are written by `write`,
  // whoever finds them and whether there is a route or none; elsewhere as OpenAI does.
  void set_errors(std::string path, ErrorWriter write);
  ErrorWriter errors_at(std::string_view path) const;

  const std::vector<Route>& routes() const { return routes_; }

  struct Match {
    const Route* route = nullptr;  // null: `error` says why
    std::string tail{};
    ApiError error{};
    std::string allowed{};  // with 405: the methods that this path has
  };
  Match find(std::string_view method, std::string_view path) const;

 private:
  struct Errors {
    std::string path;
    ErrorWriter write;
  };
  std::vector<Route> routes_;
  std::vector<Errors> errors_;
};

}  // namespace shoal::server
