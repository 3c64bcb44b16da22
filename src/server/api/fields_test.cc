#include "server/api/fields.h"

#include <gmock/gmock.h>

#include <limits>

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

Json object(std::string_view text) {
  auto json = parse_body(text);
  CHECK_MSG(json.is_ok(), json.error().message.c_str());
  return *json;
}

TEST(ParseBody, TakesObjectsOnly) {
  EXPECT_TRUE(parse_body(R"({"a": 1})").is_ok());
  for (const char* bad : {"", "{", "[]", "null", "1", "{\"a\": NaN}", "{\"a\": 1e999}",
                          "{\"a\": \"\xff\"}", "{\"a\": \"\\ud800\"}", "{} {}"}) {
    const auto parsed = parse_body(bad);
    ASSERT_FALSE(parsed.is_ok()) << bad;
    EXPECT_EQ(parsed.error().status, 400);
  }
}

TEST(ParseBody, NestingIsBoundedBeforeAnythingIsBuilt) {
  const auto nested = [](size_t levels) {
    return "{\"a\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_TRUE(parse_body(nested(kNestingMax - 1)).is_ok());
  EXPECT_FALSE(parse_body(nested(kNestingMax)).is_ok());
  EXPECT_FALSE(parse_body(nested(1'000'000)).is_ok());
  EXPECT_TRUE(parse_body("{\"a\": \"" + std::string(1000, '[') + "\\\"" + "\"}").is_ok());
}

TEST(Fields, ReadsEachTypeAndTakesNullForAbsent) {
  const Json json = object(R"({"b": true, "i": 3, "n": 0.5, "t": "x", "z": null})");
  Fields fields(json);
  EXPECT_EQ(fields.boolean("b"), true);
  EXPECT_EQ(fields.integer("i", {.max = 5}), 3);
  EXPECT_EQ(fields.number("n", {.max = 1}), 0.5);
  EXPECT_EQ(fields.text("t"), "x");
  EXPECT_EQ(fields.text("z"), std::nullopt);
  EXPECT_EQ(fields.text("absent"), std::nullopt);
  EXPECT_FALSE(fields.finish().has_value());
}

TEST(Fields, RefusesAnotherTypeByName) {
  const Json json = object(R"({"b": 1, "i": 1.5, "j": "1", "n": "0.5", "t": 1, "o": [], "a": {}})");
  const std::vector<std::pair<std::string, std::function<void(Fields*)>>> reads = {
      {"b", [](Fields* f) { (void)f->boolean("b"); }},
      {"i", [](Fields* f) { (void)f->integer("i", {}); }},
      {"j", [](Fields* f) { (void)f->integer("j", {}); }},
      {"n", [](Fields* f) { (void)f->number("n", {.max = 1}); }},
      {"t", [](Fields* f) { (void)f->text("t"); }},
      {"o", [](Fields* f) { (void)f->object("o"); }},
      {"a", [](Fields* f) { (void)f->array("a"); }}};
  for (const auto& [name, read] : reads) {
    Fields fields(json);
    read(&fields);
    const auto error = fields.finish();
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->param, name);
    EXPECT_THAT(error->message, HasSubstr("must be"));
  }
}

TEST(Fields, RangesAreCheckedAtTheirEnds) {
  const auto integer = [](const std::string& value) {
    const Json json = object("{\"x\": " + value + "}");
    Fields fields(json);
    (void)fields.integer("x", {.min = 1, .max = 10});
    return !fields.has_failed();
  };
  EXPECT_TRUE(integer("1"));
  EXPECT_TRUE(integer("10"));
  for (const char* bad : {"0", "11", "-1", "18446744073709551615", "1e3", "99999999999999999999"}) {
    EXPECT_FALSE(integer(bad)) << bad;
  }
  const auto number = [](const Json& value) {
    const Json json = {{"x", value}};
    Fields fields(json);
    (void)fields.number("x", {.min = 0, .max = 2});
    return !fields.has_failed();
  };
  EXPECT_TRUE(number(0));
  EXPECT_TRUE(number(2));
  EXPECT_FALSE(number(-0.001));
  EXPECT_FALSE(number(2.001));
  EXPECT_FALSE(number(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(number(std::numeric_limits<double>::infinity()));
}

TEST(Fields, AFieldThatNobodyAskedForIsRefused) {
  const Json json = object(R"({"known": 1, "unknown": null})");
  Fields fields(json, "outer[0]");
  (void)fields.any("known");
  const auto error = fields.finish();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->param, "outer[0].unknown");
  EXPECT_EQ(error->code, "unknown_parameter");
}

TEST(Fields, ARefusedFieldMayStandThereWithoutEffect) {
  const Json json = object(R"({"a": null, "b": "auto", "c": 1})");
  Fields fields(json);
  fields.refuse("a", "is not served");
  fields.refuse_unless("b", {"auto"}, "is not served");
  EXPECT_FALSE(fields.has_failed());
  fields.refuse_unless("c", {"auto"}, "is not served");
  EXPECT_EQ(fields.finish()->code, "unsupported_parameter");
}

TEST(Fields, TheFirstErrorIsKept) {
  const Json json = object(R"({"a": 1, "b": 1})");
  Fields fields(json);
  (void)fields.text("b");
  (void)fields.text("a");
  EXPECT_EQ(fields.finish()->param, "b");
}

}  // namespace
}  // namespace shoal::server
