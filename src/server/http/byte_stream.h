// ByteStream: the bytes of one connection, plain or encrypted, with a deadline for every wait.
//
// One read and one write may be under way at once. A wait whose time is over closes the connection.
// Thread rule: the thread of the sockets.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "server/http/http_server.h"

namespace shoal::server {

class ByteStream {
 public:
  struct Outcome {
    boost::system::error_code error{};
    size_t count = 0;
  };
  virtual ~ByteStream() = default;
  // Before anything else: what encryption agrees on. False: the connection is of no use.
  virtual boost::asio::awaitable<bool> open(Nanoseconds time) = 0;
  // At least one byte, or an error. Without a time it ends by cancel() or close() alone.
  virtual boost::asio::awaitable<Outcome> read_some(boost::asio::mutable_buffer buffer,
                                                    std::optional<Nanoseconds> time) = 0;
  // Bytes as they arrive, before they are decrypted, for who only wants them gone; also after
  // shut_down().
  virtual boost::asio::awaitable<Outcome> discard_some(boost::asio::mutable_buffer buffer,
                                                       Nanoseconds time) = 0;
  // All of it, or false.
  virtual boost::asio::awaitable<bool> write(boost::asio::const_buffer bytes, Nanoseconds time) = 0;
  // Says that nothing more will be written.
  virtual boost::asio::awaitable<void> shut_down(Nanoseconds time) = 0;
  // The other side will send nothing more, whatever of it was not read yet.
  virtual bool has_left() = 0;
  // Ends the reads under way with an error; the stream stays usable.
  virtual void cancel() = 0;
  virtual void close() = 0;
};

// Makes streams of accepted sockets; holds the certificate, where there is one.
class ByteStreams {
 public:
  // kRequest naming the file that cannot be used.
  static Result<std::unique_ptr<ByteStreams>> create(const TlsFiles& files);
  virtual ~ByteStreams() = default;
  virtual std::unique_ptr<ByteStream> make(boost::asio::ip::tcp::socket socket) = 0;
  virtual bool is_encrypted() const = 0;
};

}  // namespace shoal::server
