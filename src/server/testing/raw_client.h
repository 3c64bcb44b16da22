// RawClient: a test's end of a TCP connection to an HTTP server, which sends bytes as they are.
//
// Every wait ends after ten seconds, as a failure of the test. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace shoal::server {

class RawClient {
 public:
  explicit RawClient(uint16_t port);

  // False when the server has closed the connection.
  bool send(std::string_view bytes);
  struct Answer {
    int status = 0;  // 0: the connection ended first
    std::string head{};
    std::string body{};  // with its chunks joined
    bool is_whole = false;
  };
  // The next answer; to_head: the request was HEAD, no body follows.
  Answer read_answer(bool to_head = false);
  Answer get(std::string_view target);
  Answer post(std::string_view target, std::string_view body);
  // So many bytes; fewer where the connection ended.
  std::string read(size_t count);
  // What came, at least up to the end of `text`; less where the connection ended.
  std::string read_until(std::string_view text);
  // Nothing more came before the server closed the connection.
  bool is_closed();
  void close() { socket_.reset(); }

 private:
  bool read_more();
  std::string take(size_t count);
  bool read_chunks(std::string* body);

  UniqueFd socket_;
  std::string unread_;
};

}  // namespace shoal::server
