#include "server/testing/raw_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "base/check.h"

namespace shoal::server {
namespace {

constexpr int kWaitMs = 10'000;

size_t number_after(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  return std::strtoull(text.data() + at + name.size(), nullptr, 10);
}

}  // namespace

RawClient::RawClient(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK(socket_.is_valid());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool RawClient::read_more() {
  pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  CHECK_MSG(poll(&waiting, 1, kWaitMs) == 1, "the server said nothing");
  std::array<char, 65536> bytes{};
  const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (count <= 0) return false;
  unread_.append(bytes.data(), static_cast<size_t>(count));
  return true;
}

std::string RawClient::take(size_t count) {
  std::string taken = unread_.substr(0, count);
  unread_.erase(0, taken.size());
  return taken;
}

std::string RawClient::read(size_t count) {
  while (unread_.size() < count && read_more()) {
  }
  return take(count);
}

std::string RawClient::read_until(std::string_view text) {
  for (;;) {
    const size_t at = unread_.find(text);
    if (at != std::string::npos) return take(at + text.size());
    if (!read_more()) return take(unread_.size());
  }
}

bool RawClient::read_chunks(std::string* body) {
  for (;;) {
    const std::string line = read_until("\r\n");
    if (!line.ends_with("\r\n")) return false;
    const size_t size = std::strtoull(line.c_str(), nullptr, 16);
    while (unread_.size() < size + 2) {
      if (!read_more()) {
        *body += take(size);
        return false;
      }
    }
    *body += take(size);
    take(2);
    if (size == 0) return true;
  }
}

RawClient::Answer RawClient::read_answer(bool to_head) {
  Answer answer;
  answer.head = read_until("\r\n\r\n");
  if (!answer.head.starts_with("HTTP/1.1 ")) return answer;
  answer.status = static_cast<int>(number_after(answer.head, "HTTP/1.1 "));
  if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
    answer.is_whole = read_chunks(&answer.body);
    return answer;
  }
  const size_t size = to_head ? 0 : number_after(answer.head, "Content-Length: ");
  answer.body = read(size);
  answer.is_whole = answer.body.size() == size;
  return answer;
}

RawClient::Answer RawClient::get(std::string_view target) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", target));
  return read_answer();
}

RawClient::Answer RawClient::post(std::string_view target, std::string_view body) {
  send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", target,
                   body.size(), body));
  return read_answer();
}

bool RawClient::is_closed() { return unread_.empty() && !read_more(); }

}  // namespace shoal::server
