#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "text/test_data.h"
#include "text/tokenizer_folder.h"

namespace shoal::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> build(const Json& file, const TokenizerFileOptions& options = {}) {
  auto tokenizer = Tokenizer::from_json(file.dump(), options);
  CHECK_MSG(tokenizer.is_ok(), tokenizer.status().message().c_str());
  return std::move(tokenizer).value();
}

std::string refusal(const std::string& json, const TokenizerFileOptions& options = {}) {
  auto tokenizer = Tokenizer::from_json(json, options);
  EXPECT_FALSE(tokenizer.is_ok()) << json;
  return tokenizer.status().message();
}

Json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// A byte-level BPE file with the tokens a, b, ab, Ġ and what is added.
Json byte_level_file(const Json& added) {
  return {{"added_tokens", added},
          {"pre_tokenizer",
           {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", false}}},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"Ġ", 3}, {"<", 4}, {"x", 5}, {">", 6}}},
            {"merges", {"a b"}}}}};
}

Json unigram_file() {
  return Json::parse(R"({"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true,
      "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["<0x0A>", -2.0]]}})");
}

TEST(TextCases, C23_ANewlineIsItsByteTokenAndTheSpelledByteTokenIsText) {
  const auto tokenizer = build(unigram_file());
  EXPECT_THAT(*tokenizer->encode("a\nb"), ElementsAre(1, 3, 2));
  EXPECT_EQ(*tokenizer->decode(Ids{1, 3, 2}), "a\nb");
  auto literal = tokenizer->encode("a<0x0A>b");
  ASSERT_TRUE(literal.is_ok());
  EXPECT_THAT(*literal, ElementsAre(1, 0, 2));
  // The same of SentencePiece BPE from a model file.
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "a", "b", "<0x0A>"};
  vocabulary.types = {2, 1, 1, 6};
  vocabulary.scores = {0, 0, 0, 0};
  vocabulary.add_space_prefix = false;
  auto scored = Tokenizer::from_vocabulary(vocabulary);
  ASSERT_TRUE(scored.is_ok()) << scored.status().message();
  EXPECT_THAT(*(*scored)->encode("a\nb"), ElementsAre(1, 3, 2));
  EXPECT_THAT(*(*scored)->encode("a<0x0A>b"), ElementsAre(1, 0, 2));
}

using Pieces = std::vector<std::pair<size_t, std::string>>;  // by id

// A published vocabulary as far as a case tells it: its pieces at their ids, and between them what
// they are merged from, at ids without a meaning.
class ToldVocabulary {
 public:
  ToldVocabulary(const char* model, size_t size) {
    all_.model = model;
    all_.scores.resize(size);
    all_.types.assign(size, static_cast<int32_t>(TokenKind::kUnused));
    for (size_t id = 0; id < size; ++id) all_.tokens.push_back("<free " + std::to_string(id) + ">");
  }

  void put(size_t id, const std::string& text, TokenKind kind = TokenKind::kNormal) {
    all_.tokens.at(id) = text;
    all_.types.at(id) = static_cast<int32_t>(kind);
    all_.scores.at(id) = -static_cast<float>(id);
    known_.insert(text);
  }
  // Every beginning of the piece, each made of the one before and a character.
  void put_steps_to(const std::string& piece) {
    std::string step;
    for (size_t begin = 0; begin < piece.size();) {
      const std::string character = piece.substr(begin, utf8_length(piece[begin]));
      begin += character.size();
      put_anywhere(character);
      if (!step.empty()) all_.merges.push_back(std::string(step).append(" ").append(character));
      step += character;
      put_anywhere(step);
    }
  }
  void put_merge(const std::string& left, const std::string& right) {
    all_.merges.push_back(left + " " + right);
    put_anywhere(left + right);
  }
  Vocabulary& all() { return all_; }

 private:
  static size_t utf8_length(char first) {
    const auto byte = static_cast<unsigned char>(first);
    if (byte < 0x80) return 1;
    if (byte < 0xE0) return 2;
    return byte < 0xF0 ? 3 : 4;
  }
  void put_anywhere(const std::string& text) {
    if (known_.contains(text)) return;
    while (all_.types.at(free_) != static_cast<int32_t>(TokenKind::kUnused)) ++free_;
    put(free_, text);
  }

  Vocabulary all_;
  std::set<std::string> known_;
  size_t free_ = 10000;
};

// The file of OpenLLaMA's tokenizer is in no package that a test could fetch.
TEST(TextCases, C23_ANewlineInOpenLlamasVocabularyIsItsByteToken) {
  ToldVocabulary told("llama", 32000);
  told.put(0, "<unk>", TokenKind::kUnknown);
  told.put(1, "<s>", TokenKind::kControl);
  told.put(2, "</s>", TokenKind::kControl);
  for (size_t byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    told.put(3 + byte, std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">",
             TokenKind::kByte);
  }
  const Pieces pieces = {{1059, "▁Q"},      {31871, ":"},  {1217, "▁What"},
                         {322, "▁is"},      {266, "▁the"}, {3682, "▁largest"},
                         {6075, "▁animal"}, {31902, "?"},  {31849, "A"}};
  for (const auto& [id, piece] : pieces) told.put(id, piece);
  for (const auto& [id, piece] : pieces) told.put_steps_to(piece);
  told.all().merges.clear();  // scores say the order
  told.all().bos = 1;
  told.all().add_bos = true;
  auto tokenizer = Tokenizer::from_vocabulary(told.all());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const std::string text = "Q: What is the largest animal?\nA:";
  const auto ids = (*tokenizer)->encode(text);
  EXPECT_THAT(*ids,
              ElementsAre(1, 1059, 31871, 1217, 322, 266, 3682, 6075, 31902, 13, 31849, 31871));
  EXPECT_EQ(*(*tokenizer)->decode(*ids), text);
}

// Nor is that of Kimi K2. How the whole text of the case is cut, the Rust part's tests have.
TEST(TextCases, C24_KimiKeepsHanRunsApartAndTakesContractionsInCapitals) {
  ToldVocabulary told("gpt2", 163840);
  told.all().pre = "kimi-k2";
  const Pieces pieces = {{1686, "âĢľ"},    {19180, "Hello"},   {4963, ",âĢĿ"},    {220, "Ġ"},
                         {2243, "ä¸ĸçķĮ"}, {123421, "ä¸ĸä¸ĸ"}, {35086, "âĢĶâĢĶ"}, {17172, "I'm"},
                         {29338, "ĠChat"}, {111021, "GPT"},    {13, "."},         {32330, "ĠCAN"},
                         {64833, "'T"},    {5161, "Ġwait"},    {542, "Ġ'"}};
  for (const auto& [id, piece] : pieces) told.put(id, piece);
  for (const char* piece : {"âĢľ", "Hello", "ä¸ĸ", "çķĮ", "ĠCAN", "'T"}) told.put_steps_to(piece);
  told.put_merge("ä¸ĸ", "çķĮ");  // the lower id is merged first
  told.put_merge("ä¸ĸ", "ä¸ĸ");
  // What would be merged if the text were not cut between them.
  told.put_merge("âĢĶâĢĶ", "ä¸ĸçķĮ");
  told.put_merge("ĠChat", "GPT");
  auto tokenizer = Tokenizer::from_vocabulary(told.all());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_THAT(*(*tokenizer)->encode("“Hello,” 世界世世世界世界——I'm ChatGPT. CAN'T wait '"),
              ElementsAre(1686, 19180, 4963, 220, 2243, 123421, 2243, 2243, 35086, 17172, 29338,
                          111021, 13, 32330, 64833, 5161, 542));
  EXPECT_THAT(*(*tokenizer)->encode("——世界"), ElementsAre(35086, 2243));
}

TEST(TextCases, C27_AddedTokensAreDecodedLiterally) {
  const auto tokenizer =
      build(byte_level_file(Json::array({added_token(7, "č", false), added_token(8, "Ġx", true)})));
  EXPECT_EQ(*tokenizer->decode(Ids{7}), "č");
  EXPECT_EQ(tokenizer->token_bytes(7), "č");
  EXPECT_EQ(*tokenizer->decode(Ids{8}, {.skip_special = false}), "Ġx");
  EXPECT_EQ(*tokenizer->decode(Ids{3}), " ");
  EXPECT_THAT(*tokenizer->encode("čab", {.parse_special = true}), ElementsAre(7, 2));
}

TEST(Tokenizer, ParsesControlTokensOnlyWhenAskedTo) {
  Json file =
      byte_level_file(Json::array({added_token(7, "<x>", true), added_token(8, "ba", false)}));
  // A merge that would make the control token out of plain text.
  file["model"]["vocab"]["<x"] = 9;
  file["model"]["vocab"]["<x>"] = 7;
  file["model"]["merges"] = {"a b", "< x", "<x >"};
  const auto tokenizer = build(file);
  EXPECT_EQ(tokenizer->token_kind(7), TokenKind::kControl);
  EXPECT_EQ(tokenizer->token_kind(8), TokenKind::kUserDefined);
  EXPECT_THAT(*tokenizer->encode("<x>bab", {.parse_special = true}), ElementsAre(7, 8, 1));
  EXPECT_THAT(*tokenizer->encode("<x>bab", {.parse_special = false}), ElementsAre(9, 6, 8, 1));
  EXPECT_EQ(*tokenizer->decode(*tokenizer->encode("<x>bab")), "<x>bab");
}

TEST(Tokenizer, AddsWhatThePostProcessorOfTheFileSays) {
  Json file =
      byte_level_file(Json::array({added_token(7, "<s>", true), added_token(8, "</s>", true)}));
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
                            {"pair",
                             {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "B"}, {"type_id", 0}}}}}},
                            {"special_tokens",
                             {{"<s>", {{"id", "<s>"}, {"ids", {7}}, {"tokens", {"<s>"}}}},
                              {"</s>", {{"id", "</s>"}, {"ids", {8}}, {"tokens", {"</s>"}}}}}}};
  auto tokenizer = build(file, {.eos_token = "</s>"});
  EXPECT_THAT(*tokenizer->encode("ab"), ElementsAre(7, 2, 8));
  EXPECT_THAT(*tokenizer->encode("ab", {.add_special = false}), ElementsAre(2));
  EXPECT_THAT(*tokenizer->encode_chat("ab"), ElementsAre(7, 2));
  EXPECT_THAT(*tokenizer->encode_chat("<s>ab"), ElementsAre(7, 2));
  EXPECT_THAT(*tokenizer->encode(""), ElementsAre(7, 8));
  EXPECT_TRUE(tokenizer->special().add_bos);
  EXPECT_TRUE(tokenizer->special().add_eos);
  // The model's configuration wins.
  tokenizer =
      build(file, {.bos_token = "<s>", .eos_token = "</s>", .add_bos = false, .add_eos = false});
  EXPECT_THAT(*tokenizer->encode("ab"), ElementsAre(2));
  tokenizer = build(byte_level_file(file["added_tokens"]),
                    {.bos_token = "<s>", .eos_token = "</s>", .add_bos = true});
  EXPECT_THAT(*tokenizer->encode("ab"), ElementsAre(7, 2));
  EXPECT_EQ(tokenizer->special().end_of_generation, Ids{8});
}

TEST(Tokenizer, RefusesFilesThatItCannotUse) {
  EXPECT_THAT(refusal(""), HasSubstr("tokenizer.json"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("tokenizer.json"));
  EXPECT_THAT(refusal("{}"), HasSubstr("model"));
  EXPECT_THAT(refusal(R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})"),
              HasSubstr("WordPiece"));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})"),
              HasSubstr("empty"));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}})"),
              HasSubstr("4000000000"));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE", "vocab": {"a": 0}}})"), HasSubstr("merges"));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                          "added_tokens": [
      {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 1, "content": "<t>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true}]})"),
              AllOf(HasSubstr("added_tokens[1]"), HasSubstr("<t>"), HasSubstr("<s>")));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["aa"]}})"),
              HasSubstr("model.merges[0]"));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}})"),
              HasSubstr("aa"));
  Json file = byte_level_file(Json::array());
  file["decoder"] = {{"type", "CTC"}};
  EXPECT_THAT(refusal(file.dump()), HasSubstr("CTC"));
  file = byte_level_file(Json::array());
  file["pre_tokenizer"] = {{"type", "NoSuch"}};
  EXPECT_THAT(refusal(file.dump()), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(refusal(byte_level_file(Json::array()).dump(), {.bos_token = "<nope>"}),
              HasSubstr("<nope>"));
  EXPECT_THAT(refusal(byte_level_file(Json::array()).dump(), {.end_of_generation = {99}}),
              HasSubstr("99"));
}

TEST(Tokenizer, RefusesTextThatIsNoUtf8AndIdsThatDoNotExist) {
  const auto tokenizer = build(byte_level_file(Json::array()));
  auto ids = tokenizer->encode("ab\xFF");
  ASSERT_FALSE(ids.is_ok());
  EXPECT_THAT(ids.status().message(), HasSubstr("UTF-8 at byte 2"));
  for (const int32_t id : {-1, 7}) {
    auto text = tokenizer->decode(Ids{id});
    ASSERT_FALSE(text.is_ok());
    EXPECT_THAT(text.status().message(), HasSubstr(std::to_string(id)));
  }
}

TEST(Tokenizer, FindsTokensByTheirText) {
  const auto tokenizer = build(byte_level_file(Json::array()));
  EXPECT_EQ(tokenizer->find_token("ab"), 2);
  EXPECT_EQ(tokenizer->find_token("Ġ"), 3);
  EXPECT_EQ(tokenizer->find_token(" "), std::nullopt);
  EXPECT_EQ(tokenizer->find_token(""), std::nullopt);
  EXPECT_EQ(tokenizer->token_text(2), "ab");
}

TEST(Tokenizer, IsUsedByManyThreadsAtOnce) {
  const auto tokenizer = build(byte_level_file(Json::array({added_token(7, "<s>", true)})));
  std::vector<int> good(4);
  std::vector<std::thread> threads;
  threads.reserve(good.size());
  for (int& count : good) {
    threads.emplace_back([&tokenizer, &count] {
      for (int i = 0; i < 500; ++i) {
        const std::string text(static_cast<size_t>(i % 50), 'a');
        auto ids = tokenizer->encode(text + "<s>b", {.parse_special = true});
        if (ids.is_ok() && *tokenizer->decode(*ids) == text + "b") ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(good, ::testing::Each(500));
}

TEST(TokenizerFolder, ReadsTokensTemplateAndEndsBesideTheTokenizer) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "text_folder_test";
  std::filesystem::create_directories(folder);
  const auto write = [&folder](const char* name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  auto loaded = load_tokenizer_folder(folder.string());
  ASSERT_FALSE(loaded.is_ok());
  EXPECT_THAT(loaded.status().message(), HasSubstr("no tokenizer.json"));

  write("tokenizer.json",
        byte_level_file(Json::array({added_token(7, "<s>", true), added_token(8, "</s>", true)}))
            .dump());
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true,
            "chat_template": [{"name": "tool_use", "template": "no"},
                              {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}"}]})");
  write("generation_config.json", R"({"eos_token_id": [8, 6]})");
  loaded = load_tokenizer_folder(folder.string());
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  EXPECT_EQ(loaded->tokenizer->special().bos, 7);
  EXPECT_EQ(loaded->tokenizer->special().end_of_generation, (Ids{6, 8}));
  ASSERT_NE(loaded->chat_template, nullptr);
  const std::string request = R"({"messages": [{"role": "user", "content": "ab"}]})";
  EXPECT_EQ(*loaded->chat_template->render(request), "<s>ab");
  EXPECT_EQ(loaded->chat_template_source, "{{ bos_token }}{{ messages[0].content }}");
  EXPECT_THAT(*loaded->tokenizer->encode_chat("<s>ab"), ElementsAre(7, 2));

  // A template file wins over the configuration; a broken one leaves the tokenizer usable.
  write("chat_template.jinja", "a{% foo %}b");
  loaded = load_tokenizer_folder(folder.string());
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  EXPECT_EQ(loaded->chat_template, nullptr);
  EXPECT_THAT(loaded->chat_template_status.message(), HasSubstr("foo"));
  EXPECT_EQ(loaded->chat_template_source, "a{% foo %}b");
  EXPECT_THAT(*loaded->tokenizer->encode("ab"), ElementsAre(7, 2));

  write("tokenizer_config.json", "{");
  loaded = load_tokenizer_folder(folder.string());
  ASSERT_FALSE(loaded.is_ok());
  EXPECT_THAT(loaded.status().message(), HasSubstr("tokenizer_config.json"));
  std::filesystem::remove_all(folder);
}

TEST(TokenizerFolder, RefusesJsonThatNestsWithoutEnd) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "text_deep_folder_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << byte_level_file(Json::array()).dump();
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
    for (const char* key : {"bos_token", "chat_template", "eos_token_id"}) {
      std::ofstream(folder / name) << "{\"" << key << "\": " << deep << "}";
      const auto loaded = load_tokenizer_folder(folder.string());
      ASSERT_FALSE(loaded.is_ok()) << name << " " << key;
      EXPECT_EQ(loaded.status().code(), StatusCode::kRequest);
      EXPECT_THAT(loaded.status().message(), AllOf(HasSubstr(name), HasSubstr("nested deeper")));
    }
    std::filesystem::remove(folder / name);
  }
  // Any value may stand where a name is expected.
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"chat_template": [7, {"name": [[1]], "template": "no"},
                               {"name": "default", "template": {"content": "yes"}}],
             "bos_token": [], "add_bos_token": "true"})";
  const auto loaded = load_tokenizer_folder(folder.string());
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  ASSERT_NE(loaded->chat_template, nullptr);
  EXPECT_EQ(*loaded->chat_template->render(R"({"messages": []})"), "yes");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace shoal::text
