#include "server/http/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <future>
#include <mutex>

#include "server/testing/raw_client.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

constexpr Nanoseconds kPatience = std::chrono::seconds(10);

// Errors of the API at /other.
Response other_error(const ApiError& error) {
  return {.status = error.status, .body = "other: " + error.message};
}

// A server with some routes; a test may keep the exchange of /hold.
class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}, AccessOptions access = {}) {
    Router router;
    router.add(
        {.method = "GET",
         .pattern = "/quick",
         .handler = [](const auto&, const auto& exchange) { exchange->respond({.body = "quick"}); },
         .is_public = true,
         .is_quick = true});
    router.add({.method = "POST",
                .pattern = "/echo",
                .handler = [](const Request& request, const auto& exchange) {
                  exchange->respond({.body = request.body});
                }});
    router.add({.method = "POST",
                .pattern = "/size",
                .handler = [](const Request& request, const auto& exchange) {
                  exchange->respond({.body = std::to_string(request.body.size())});
                }});
    for (const char* pattern : {"/silent", "/other/silent"}) {
      router.add({.method = "GET", .pattern = pattern, .handler = [](const auto&, const auto&) {}});
    }
    router.add({.method = "POST",
                .pattern = "/other",
                .handler = [](const auto&, const auto& exchange) { exchange->respond({}); }});
    router.set_errors("/other", other_error);
    // Holds the thread of the sockets up.
    router.add({.method = "GET",
                .pattern = "/stall",
                .handler =
                    [this](const auto&, const auto& exchange) {
                      stalled_.set_value();
                      go_on_.get_future().wait_for(kPatience);
                      exchange->respond({.body = "late"});
                    },
                .is_quick = true});
    router.add(
        {.method = "GET", .pattern = "/hold", .handler = [this](const auto&, const auto& exchange) {
           held_.set_value(exchange);
         }});
    options.port = 0;
    auto server = HttpServer::listen(options, std::move(router), Access(std::move(access)));
    ASSERT_TRUE(server.is_ok()) << server.status().message();
    server_ = std::move(server).value();
  }

  RawClient client() { return RawClient(server_->port()); }
  std::shared_ptr<Exchange> held() { return held_.get_future().get(); }
  // Ready once the exchange has told its route that the client has gone.
  static std::future<void> hears_of_end(Exchange& exchange) {
    const auto gone = std::make_shared<std::promise<void>>();
    exchange.set_callbacks({.on_gone = [gone] { gone->set_value(); }, .on_room = {}});
    return gone->get_future();
  }

  std::promise<std::shared_ptr<Exchange>> held_;
  std::promise<void> stalled_, go_on_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, C54OneConnectionServesAThousandRequests) {
  start();
  RawClient one = client();
  for (int i = 0; i < 1000; ++i) {
    const std::string body = fmt::format("body {}", i);
    ASSERT_EQ(one.post("/echo", body).body, body);
  }
  EXPECT_EQ(server_->connections(), 1U);
}

TEST_F(HttpServerTest, C54PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawClient one = client();
  one.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfirst"
      "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nthird");
  EXPECT_EQ(one.read_answer().body, "first");
  EXPECT_EQ(one.read_answer().body, "quick");
  EXPECT_EQ(one.read_answer().body, "third");
}

TEST_F(HttpServerTest, EmptyLinesBeforeARequestAreSkipped) {
  start();
  RawClient one = client();
  one.send(
      "\r\n\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfirst\r\n"
      "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n\r\n\r");
  EXPECT_EQ(one.read_answer().body, "first");
  EXPECT_EQ(one.read_answer().body, "quick");
  one.send("\nPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nthird");
  EXPECT_EQ(one.read_answer().body, "third");
  one.send("\r\rGET /quick HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(one.read_answer().status, 400) << "no empty line";
}

TEST_F(HttpServerTest, EmptyLinesKeepNoConnectionOpen) {
  start({.idle_deadline = std::chrono::milliseconds(200)});
  RawClient one = client();
  const Deadline deadline = Deadline::after(kPatience);
  while (one.send("\r\n")) {
    ASSERT_FALSE(deadline.expired());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST_F(HttpServerTest, C54ABodyOfTwoMegabytesIsTaken) {
  start();
  EXPECT_EQ(client().post("/size", std::string(2'000'000, 'x')).body, "2000000");
}

TEST_F(HttpServerTest, C54ContinueIsSaidBeforeTheBodyIsRead) {
  start();
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_THAT(one.read_until("\r\n\r\n"), HasSubstr("100 Continue"));
  one.send("body");
  EXPECT_EQ(one.read_answer().body, "body");
}

TEST_F(HttpServerTest, C54ARefusalComesInsteadOfContinue) {
  start({.body_bytes_max = 10});
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n");
  EXPECT_EQ(one.read_answer().status, 413);
  RawClient two = client();
  two.send("POST /none HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(two.read_answer().status, 404);
}

TEST_F(HttpServerTest, C54AChunkedBodyIsJoined) {
  start();
  RawClient one = client();
  one.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n");
  EXPECT_EQ(one.read_answer().body, "abcdefg");
  EXPECT_EQ(one.get("/quick").status, 200);
}

TEST_F(HttpServerTest, C54SlowHeadersEndWithoutHoldingOthersUp) {
  start({.header_deadline = std::chrono::milliseconds(300)});
  std::vector<RawClient> slow;
  slow.reserve(100);
  for (int i = 0; i < 100; ++i) slow.push_back(client());
  for (RawClient& one : slow) ASSERT_TRUE(one.send("GET /quick HTTP/1.1\r\nHo"));
  EXPECT_EQ(client().get("/quick").status, 200);
  for (RawClient& one : slow) EXPECT_TRUE(one.is_closed());
}

TEST_F(HttpServerTest, ABodyThatDoesNotComeEndsTheConnection) {
  start({.body_deadline = std::chrono::milliseconds(100)});
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
  EXPECT_TRUE(one.is_closed());
}

TEST_F(HttpServerTest, AHeaderOrBodyOverItsLimitIsRefusedByNumber) {
  start({.header_bytes_max = 1000, .body_bytes_max = 1000});
  EXPECT_EQ(client().get("/quick?" + std::string(2000, 'x')).status, 431);
  EXPECT_EQ(client().post("/echo", std::string(1001, 'x')).status, 413);
  EXPECT_EQ(client().post("/echo", std::string(1000, 'x')).status, 200);
  RawClient chunked = client();
  chunked.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
               std::string(1001, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read_answer().status, 413);
}

TEST_F(HttpServerTest, AClientThatSendsAllOfALargeBodyFirstSeesItsRefusal) {
  start({.body_bytes_max = 1000});
  constexpr size_t kSize = size_t{30} << 20;
  RawClient one = client();
  EXPECT_TRUE(
      one.send(fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", kSize) +
               std::string(kSize, 'x')));
  EXPECT_EQ(one.read_answer().status, 413);
  EXPECT_TRUE(one.is_closed());
  RawClient chunked = client();
  EXPECT_TRUE(chunked.send(
      fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
                  kSize) +
      std::string(kSize, 'x') + "\r\n0\r\n\r\n"));
  EXPECT_EQ(chunked.read_answer().status, 413);
}

TEST_F(HttpServerTest, WhatComesBehindARefusalIsReadUpToABoundOnly) {
  start({.body_bytes_max = 1000});
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
  const std::string piece(size_t{1} << 20, 'x');
  int sent = 0;
  while (sent < 500 && one.send(piece)) ++sent;
  EXPECT_GE(sent, 60);
  EXPECT_LT(sent, 100);
}

TEST_F(HttpServerTest, ARequestWhoseEndIsUnclearEndsTheConnection) {
  start();
  const std::string smuggled = "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const char* head :
       {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        "HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nContent-Length: 37\r\n\r\n",
        "HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    RawClient one = client();
    one.send(std::string("POST /echo ") + head + smuggled);
    EXPECT_EQ(one.read_answer().status, 501) << head;
    EXPECT_TRUE(one.is_closed()) << head;
  }
}

TEST_F(HttpServerTest, GarbageIsRefusedAndEndsTheConnection) {
  start();
  for (const char* garbage :
       {"\x16\x03\x01\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\nbad\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n"}) {
    RawClient one = client();
    one.send(garbage);
    EXPECT_EQ(one.read_answer().status, 400) << garbage;
    EXPECT_TRUE(one.is_closed());
  }
  EXPECT_EQ(client().get("/quick").status, 200);
}

TEST_F(HttpServerTest, WrongPathsAndMethodsAreToldApart) {
  start();
  RawClient one = client();
  EXPECT_EQ(one.get("/nothing").status, 404);
  const auto answer = one.get("/echo");
  EXPECT_EQ(answer.status, 405);
  EXPECT_THAT(answer.head, HasSubstr("Allow: POST\r\n"));
  one.send("HEAD /quick HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(one.read_answer(true).head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_EQ(one.get("/quick").body, "quick");
}

TEST_F(HttpServerTest, AnHttp10ClientGetsOneAnswerAndTheEnd) {
  start();
  RawClient one = client();
  one.send("GET /quick HTTP/1.0\r\n\r\n");
  EXPECT_EQ(one.read_answer().body, "quick");
  EXPECT_TRUE(one.is_closed());
}

TEST_F(HttpServerTest, ARouteThatForgetsToAnswerAnswers500) {
  start();
  EXPECT_EQ(client().get("/silent").status, 500);
}

TEST_F(HttpServerTest, AStreamComesInPiecesWithHeartbeats) {
  start({.heartbeat_interval = std::chrono::milliseconds(50)});
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  exchange->start_stream({});
  EXPECT_THAT(one.read_until("keep-alive\n\n\r\n"), HasSubstr("text/event-stream"));
  exchange->write("data: a\n\n");
  EXPECT_THAT(one.read_until("a\n\n\r\n"), HasSubstr("9\r\ndata: a\n\n"));
  exchange->finish();
  EXPECT_THAT(one.read_until("0\r\n\r\n"), ::testing::EndsWith("0\r\n\r\n"));
  EXPECT_EQ(one.get("/quick").body, "quick");
}

TEST_F(HttpServerTest, AStreamToHttp10EndsWithTheConnection) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.0\r\n\r\n");
  const auto exchange = held();
  exchange->start_stream({});
  exchange->write("data: a\n\n");
  exchange->finish();
  EXPECT_THAT(one.read_until("nothing more"), ::testing::EndsWith("\r\n\r\ndata: a\n\n"));
}

TEST_F(HttpServerTest, AnAbortedStreamHasNoLastChunk) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  exchange->start_stream({});
  exchange->write("data: a\n\n");
  exchange->abort();
  const auto answer = one.read_answer();
  EXPECT_EQ(answer.body, "data: a\n\n");
  EXPECT_FALSE(answer.is_whole);
}

TEST_F(HttpServerTest, ARouteIsToldThatItsClientHasGone) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  const auto is_gone = hears_of_end(*exchange);
  one.close();
  EXPECT_EQ(is_gone.wait_for(kPatience), std::future_status::ready);
}

TEST_F(HttpServerTest, PipelinedRequestsDoNotHideThatTheirClientHasGone) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  const auto is_gone = hears_of_end(*exchange);
  const std::string next = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
  ASSERT_TRUE(one.send(next + std::string(100'000, 'x')));
  EXPECT_EQ(is_gone.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  one.close();
  EXPECT_EQ(is_gone.wait_for(kPatience), std::future_status::ready);
}

TEST_F(HttpServerTest, MorePipelinedBytesThanAreReadAheadAreServedInTime) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  const std::string body(100'000, 'x');
  ASSERT_TRUE(one.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + body));
  exchange->respond({.body = "first"});
  EXPECT_EQ(one.read_answer().body, "first");
  EXPECT_EQ(one.read_answer().body, body);
}

TEST_F(HttpServerTest, AReaderThatTakesNothingFillsItsBufferAndIsCutOff) {
  start({.stream_bytes_max = 65536, .write_deadline = std::chrono::milliseconds(300)});
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  std::promise<void> gone;
  exchange->set_callbacks({.on_gone = [&] { gone.set_value(); }, .on_room = {}});
  exchange->start_stream({});
  size_t written = 0;
  auto is_gone = gone.get_future();
  bool was_full = false;
  while (is_gone.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    if (exchange->has_room()) {
      exchange->write(std::string(16384, 'x'));
      written += 16384;
    } else {
      was_full = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_LT(written, size_t{1} << 30);
  }
  EXPECT_TRUE(was_full);
}

TEST_F(HttpServerTest, ASlowReaderThatGoesOnTakingGetsALargeBodyWhole) {
  const Nanoseconds deadline = std::chrono::milliseconds(500);
  start({.write_deadline = deadline});
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  // More than the system keeps for a connection, so that most of it waits for the reader.
  constexpr size_t kSize = size_t{40} << 20;
  held()->respond({.body = std::string(kSize, 'x')});
  EXPECT_THAT(one.read_until("\r\n\r\n"), HasSubstr(fmt::format("Content-Length: {}", kSize)));
  const Nanoseconds begun = SteadyClock::instance().now();
  size_t taken = 0;
  for (size_t step = 1; step > 0 && taken < kSize; taken += step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    step = one.read(std::min(kSize - taken, size_t{1} << 20)).size();
  }
  EXPECT_EQ(taken, kSize);
  EXPECT_GT(SteadyClock::instance().now() - begun, 2 * deadline) << "the test was too fast";
  EXPECT_EQ(one.get("/quick").body, "quick");
}

TEST_F(HttpServerTest, DrainLetsStreamsEndAndIdleConnectionsGo) {
  start();
  RawClient idle = client();
  EXPECT_EQ(idle.get("/quick").status, 200);
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  exchange->start_stream({});
  auto drained =
      std::async(std::launch::async, [&] { return server_->drain(Deadline::after(kPatience)); });
  EXPECT_TRUE(idle.is_closed());
  exchange->write("data: last\n\n");
  exchange->finish();
  const auto answer = one.read_answer();
  EXPECT_TRUE(answer.is_whole);
  EXPECT_EQ(answer.body, "data: last\n\n");
  EXPECT_TRUE(drained.get().is_ok());
}

TEST_F(HttpServerTest, ConnectionsThatAreMadeWhileTheServerDrainsAreToldSo) {
  start();
  RawClient one = client();
  one.send("GET /stall HTTP/1.1\r\nHost: x\r\n\r\n");
  stalled_.get_future().wait();
  // The system lets these in; the server sees them when it drains already.
  RawClient two = client();
  RawClient other = client();
  RawClient silent = client();
  two.send("GET /quick HTTP/1.1\r\nHost: x\r\n\r\n");
  other.send("POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  auto drained =
      std::async(std::launch::async, [&] { return server_->drain(Deadline::after(kPatience)); });
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until drain() waits
  go_on_.set_value();
  EXPECT_EQ(one.read_answer().body, "late");
  const auto answer = two.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("shutting_down"));
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
  EXPECT_TRUE(two.is_closed());
  EXPECT_THAT(other.read_answer().body, HasSubstr("other: the server is shutting down"));
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(drained.get().is_ok());
}

TEST_F(HttpServerTest, DrainCutsOffWhatDoesNotEnd) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  exchange->start_stream({});
  const Status status = server_->drain(Deadline::after(std::chrono::milliseconds(50)));
  EXPECT_EQ(status.code(), StatusCode::kBusy);
  EXPECT_FALSE(one.read_answer().is_whole);
  server_ = nullptr;
}

TEST_F(HttpServerTest, TheServerEndsWithRequestsUnderWay) {
  start();
  RawClient one = client();
  one.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = held();
  server_ = nullptr;
  exchange->respond({.body = "too late"});
}

TEST_F(HttpServerTest, KeysAndOriginsAreAskedForBeforeTheBody) {
  auto keys = ApiKeys::parse("the-right-key");
  start({}, {.keys = *keys, .origins = {"https://good.example"}});
  EXPECT_EQ(client().get("/quick").status, 200);
  const auto refused = client().post("/echo", std::string(100'000, 'x'));
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.body, HasSubstr("invalid_api_key"));
  RawClient one = client();
  one.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer the-right-key\r\n"
      "Origin: https://good.example\r\nContent-Length: 2\r\n\r\nhi");
  const auto answer = one.read_answer();
  EXPECT_EQ(answer.body, "hi");
  EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Origin: https://good.example\r\n"));
  one.send(
      "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://good.example\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(one.read_answer().status, 204);
  one.send("GET /quick HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n\r\n");
  EXPECT_EQ(one.read_answer().status, 403);
}

TEST_F(HttpServerTest, AConnectionTooManyIsTurnedAwayWithAReason) {
  start({.connections_max = 1});
  RawClient one = client();
  EXPECT_EQ(one.get("/quick").status, 200);
  RawClient two = client();
  const auto answer = two.post("/echo", std::string(100'000, 'x'));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("overloaded"));
  EXPECT_TRUE(two.is_closed());
  EXPECT_EQ(client().post("/other", "").body, "other: too many connections are open");
}

TEST_F(HttpServerTest, OnlySomeConnectionsTooManyAreToldWhy) {
  start({.connections_max = 1});
  RawClient one = client();
  EXPECT_EQ(one.get("/quick").status, 200);
  std::vector<RawClient> silent;
  for (size_t i = 0; i < HttpOptions::kTurnedAwayMax; ++i) silent.push_back(client());
  EXPECT_TRUE(client().is_closed());
  EXPECT_EQ(one.get("/quick").status, 200);
  EXPECT_EQ(silent.front().get("/quick").status, 503);
}

TEST_F(HttpServerTest, EveryErrorIsWrittenAsThePathsApiDoes) {
  auto keys = ApiKeys::parse("the-right-key");
  start({.body_bytes_max = 10}, {.keys = *keys});
  const auto status_of = [this](std::string_view method, std::string_view path,
                                std::string_view rest, bool has_key = true) {
    RawClient one = client();
    one.send(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}{}", method, path,
                         has_key ? "x-api-key: the-right-key\r\n" : "", rest));
    const auto answer = one.read_answer();
    EXPECT_THAT(answer.body, ::testing::StartsWith(path.starts_with("/other") ? "other: " : "{"))
        << path;
    return answer.status;
  };
  for (const std::string path : {"/other", "/nothing"}) {
    EXPECT_EQ(status_of("GET", path + "/unknown", "\r\n"), 404);
    EXPECT_EQ(status_of("GET", path, "\r\n", false), 401);
    EXPECT_EQ(status_of("GET", path, "Origin: https://evil.example\r\n\r\n"), 403);
    EXPECT_EQ(status_of("POST", path, "Content-Length: 11\r\n\r\n"), 413);
    EXPECT_EQ(status_of("POST", path, "Transfer-Encoding: gzip\r\n\r\n"), 501);
  }
  EXPECT_EQ(status_of("GET", "/other", "\r\n"), 405);
  EXPECT_EQ(status_of("POST", "/other", "Expect: a miracle\r\n\r\n"), 417);
  EXPECT_EQ(status_of("POST", "/other", "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n"),
            413);
  for (const std::string path : {"/other/silent", "/silent"}) {
    EXPECT_EQ(status_of("GET", path, "\r\n"), 500);
  }
}

TEST_F(HttpServerTest, AnswersAreReportedByTheirRoute) {
  std::mutex mutex;
  std::vector<std::string> seen;
  HttpOptions options;
  options.on_answer = [&](std::string_view route, int status, double) {
    const std::lock_guard lock(mutex);
    seen.push_back(fmt::format("{} {}", route, status));
  };
  start(options);
  RawClient one = client();
  one.get("/quick?secret");
  one.get("/secret");
  const std::lock_guard lock(mutex);
  EXPECT_THAT(seen, ::testing::ElementsAre("/quick 200", "none 404"));
}

TEST(HttpServerListen, ABusyPortAndAForeignAddressAreSaidInOneSentence) {
  const auto first = HttpServer::listen({.port = 0}, Router(), Access({}));
  ASSERT_TRUE(first.is_ok());
  const auto second = HttpServer::listen({.port = (*first)->port()}, Router(), Access({}));
  ASSERT_FALSE(second.is_ok());
  EXPECT_THAT(second.status().message(), HasSubstr("is in use by another program"));
  const auto foreign = HttpServer::listen({.host = "192.0.2.1", .port = 0}, Router(), Access({}));
  ASSERT_FALSE(foreign.is_ok());
  EXPECT_THAT(foreign.status().message(), HasSubstr("192.0.2.1"));
}

TEST(HttpServerListen, LoopbackIsToldFromOtherAddresses) {
  EXPECT_TRUE(*is_loopback_host("127.0.0.1"));
  EXPECT_TRUE(*is_loopback_host("127.1.2.3"));
  EXPECT_TRUE(*is_loopback_host("::1"));
  EXPECT_TRUE(*is_loopback_host("localhost"));
  EXPECT_FALSE(*is_loopback_host("0.0.0.0"));
  EXPECT_FALSE(*is_loopback_host("::"));
  EXPECT_FALSE(is_loopback_host("no such name").is_ok());
}

}  // namespace
}  // namespace shoal::server
