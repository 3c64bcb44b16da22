#include "server/http/outbox.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

struct Fixture {
  int wakes = 0;
  std::shared_ptr<Outbox> outbox = std::make_shared<Outbox>(8, [this] { ++wakes; });
  std::shared_ptr<Exchange> exchange = make_exchange(outbox);
};

TEST(Outbox, GivesTheAnswerOnce) {
  Fixture f;
  EXPECT_TRUE(f.outbox->take().is_empty());
  f.exchange->respond({.status = 404, .body = "no"});
  EXPECT_EQ(f.wakes, 1);
  EXPECT_EQ(f.outbox->take().whole->status, 404);
  EXPECT_TRUE(f.outbox->take().is_empty());
}

TEST(Outbox, AnExchangeThatIsDroppedAnswers500) {
  Fixture f;
  f.exchange = nullptr;
  EXPECT_EQ(f.outbox->take().whole->status, 500);
}

TEST(Outbox, WhatIsDroppedIsAnsweredAsThePathsApiDoes) {
  const auto outbox = std::make_shared<Outbox>(
      8, [] {},
      [](const ApiError& error) { return Response{.status = error.status, .body = "x"}; });
  make_exchange(outbox);
  const auto answer = outbox->take().whole;
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 500);
  EXPECT_EQ(answer->body, "x");
}

TEST(Outbox, AStreamThatIsDroppedIsAborted) {
  Fixture f;
  f.exchange->start_stream({});
  f.exchange->write("a");
  f.exchange = nullptr;
  const Outbox::Output output = f.outbox->take();
  EXPECT_EQ(output.bytes, "a");
  EXPECT_TRUE(output.is_aborted);
  EXPECT_FALSE(output.is_finished);
}

TEST(Outbox, AFullStreamHasRoomAgainOnceItWasTaken) {
  Fixture f;
  int rooms = 0;
  f.exchange->set_callbacks({.on_gone = {}, .on_room = [&] { ++rooms; }});
  f.exchange->start_stream({});
  f.exchange->write("1234");
  EXPECT_TRUE(f.exchange->has_room());
  f.exchange->write("5678");
  EXPECT_FALSE(f.exchange->has_room());
  EXPECT_EQ(f.outbox->take().bytes, "12345678");
  EXPECT_EQ(rooms, 1);
  EXPECT_TRUE(f.exchange->has_room());
  f.outbox->take();
  EXPECT_EQ(rooms, 1);
}

TEST(Outbox, AClientThatGoesIsToldOnceAndEverythingAfterIsDropped) {
  Fixture f;
  int gone = 0;
  f.exchange->set_callbacks({.on_gone = [&] { ++gone; }, .on_room = {}});
  f.exchange->start_stream({});
  f.outbox->set_gone();
  f.outbox->set_gone();
  EXPECT_EQ(gone, 1);
  f.exchange->write("123456789");
  EXPECT_TRUE(f.exchange->has_room());
  f.exchange->finish();
  EXPECT_TRUE(f.outbox->take().is_empty());
}

TEST(Outbox, WhoAsksAfterTheClientHasGoneIsToldAtOnce) {
  Fixture f;
  f.outbox->set_gone();
  int gone = 0;
  f.exchange->set_callbacks({.on_gone = [&] { ++gone; }, .on_room = {}});
  EXPECT_EQ(gone, 1);
}

}  // namespace
}  // namespace shoal::server
