// Published tokenizers and their templates against what the reference libraries make of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/test_data.h"
#include "text/tokenizer.h"
#include "text/tokenizer_folder.h"

namespace shoal::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using ::testing::ElementsAre;

// Loaded once for all tests of the process: reading these files is most of the time.
const TokenizerFolder& load(const std::string& name) {
  static std::map<std::string, TokenizerFolder> loaded;
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  auto folder = load_tokenizer_folder((fetched_folder() / name).string());
  CHECK_MSG(folder.is_ok(), folder.status().message().c_str());
  return loaded.emplace(name, std::move(folder).value()).first->second;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool add_special = false) {
  auto ids = tokenizer.encode(text, {.add_special = add_special, .parse_special = true});
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return ids.is_ok() ? *ids : Ids{};
}

// The tokenizer's file as a model file would carry it: byte-level tokens, merges, kinds.
Vocabulary as_vocabulary(const std::string& name, const std::string& pre) {
  const Json file = Json::parse(read_file(fetched_folder() / name / "tokenizer.json"));
  const Json& model = file.at("model");
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = pre;
  const auto put = [&vocabulary](const std::string& text, size_t id, TokenKind kind) {
    if (vocabulary.tokens.size() <= id) {
      vocabulary.tokens.resize(id + 1);
      vocabulary.types.resize(id + 1, static_cast<int32_t>(TokenKind::kUnused));
    }
    vocabulary.tokens[id] = text;
    vocabulary.types[id] = static_cast<int32_t>(kind);
  };
  for (const auto& [text, id] : model.at("vocab").items()) put(text, id, TokenKind::kNormal);
  for (const Json& added : file.at("added_tokens")) {
    put(added.at("content"), added.at("id"),
        added.at("special") ? TokenKind::kControl : TokenKind::kUserDefined);
  }
  for (const Json& merge : model.at("merges")) {
    vocabulary.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                                  : merge[0].get<std::string>() + " " +
                                                        merge[1].get<std::string>());
  }
  return vocabulary;
}

const Tokenizer& load_vocabulary(const std::string& name, const std::string& pre) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  std::unique_ptr<Tokenizer>& tokenizer = loaded[name];
  if (tokenizer == nullptr) {
    Vocabulary vocabulary = as_vocabulary(name, pre);
    if (name == "llama3_1") vocabulary.bos = 128000;
    auto built = Tokenizer::from_vocabulary(vocabulary);
    CHECK_MSG(built.is_ok(), built.status().message().c_str());
    tokenizer = std::move(built).value();
  }
  return *tokenizer;
}

class PublishedTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedTokenizer, GivesTheReferenceIdsAndTextsForAllStrings) {
  REQUIRE_FETCHED(GetParam());
  const TokenizerFolder& folder = load(GetParam());
  const Tokenizer& tokenizer = *folder.tokenizer;
  const Json& expected = published(GetParam());
  ASSERT_EQ(expected.at("tokenize").size(), 35u);
  EXPECT_EQ(tokenizer.vocabulary_size(), expected.at("vocabulary").get<int32_t>());
  for (const Json& entry : expected.at("tokenize")) {
    const auto text = entry.at("text").get<std::string>();
    const Ids ids = encode(tokenizer, text);
    EXPECT_EQ(ids, entry.at("ids").get<Ids>()) << text;
    auto decoded = tokenizer.decode(ids, {.skip_special = false});
    ASSERT_TRUE(decoded.is_ok());
    EXPECT_EQ(*decoded, entry.at("decoded").get<std::string>()) << text;
  }
}

// C38 names the official templates of Gemma 2, Llama 3.2 and Qwen 2.5. The registry's packages of
// tokenizers hold none of them, so those that they have of the same makers stand in (Gemma 3, Llama
// 3.1, Qwen 3), and DeepSeek V3: on the case's conversations ("one", "system", "turns", "tools")
// and four more. TextCases.C38_... in chat_template_test.cc has what the named ones do besides.
class PublishedTemplate : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedTemplate, C38_RendersTheReferenceConversations) {
  REQUIRE_FETCHED(GetParam());
  const Json& expected = published(GetParam());
  const TokenizerFolder& folder = load(GetParam());
  ASSERT_NE(folder.chat_template, nullptr) << folder.chat_template_status.to_string();
  ASSERT_EQ(expected.at("chats").size(), 8u);
  // The same order of keys as in the file: it shows in the rendered tools.
  const auto ordered = nlohmann::ordered_json::parse(
      read_file(std::string(SHOAL_TEXT_TESTDATA) + "/published.json"));
  for (const auto& package : ordered) {
    if (package.at("package") != expected.at("package")) continue;
    for (const auto& chat : package.at("chats")) {
      nlohmann::ordered_json request = chat;
      for (const char* key : {"name", "text", "refused"}) request.erase(key);
      auto rendered = folder.chat_template->render(request.dump());
      if (chat.contains("refused")) {
        ASSERT_FALSE(rendered.is_ok()) << chat.at("name");
        EXPECT_TRUE(ChatTemplate::is_refusal(rendered.status())) << rendered.status().message();
        EXPECT_EQ(
            "TemplateError: " + rendered.status().message().substr(ChatTemplate::kRefusal.size()),
            chat.at("refused").get<std::string>());
        continue;
      }
      ASSERT_TRUE(rendered.is_ok()) << chat.at("name") << ": " << rendered.status().message();
      EXPECT_EQ(*rendered, chat.at("text").get<std::string>()) << chat.at("name");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizer,
                         ::testing::Values("llama2", "llama3_1", "qwen3", "gemma3", "deepseek_v3",
                                           "gptoss"),
                         [](const auto& info) { return info.param; });

// The packages of Llama 2 and gpt-oss have no template.
INSTANTIATE_TEST_SUITE_P(All, PublishedTemplate,
                         ::testing::Values("llama3_1", "qwen3", "gemma3", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

struct PreTokenizer {
  std::string package;
  std::string pre;
};

class FromVocabulary : public ::testing::TestWithParam<PreTokenizer> {};

TEST_P(FromVocabulary, GivesTheIdsOfTheTokenizerFile) {
  REQUIRE_FETCHED(GetParam().package);
  const Tokenizer& tokenizer = load_vocabulary(GetParam().package, GetParam().pre);
  for (const Json& entry : published(GetParam().package).at("tokenize")) {
    const auto text = entry.at("text").get<std::string>();
    const Ids ids = encode(tokenizer, text);
    EXPECT_EQ(ids, entry.at("ids").get<Ids>()) << text;
    auto decoded = tokenizer.decode(ids, {.skip_special = false});
    ASSERT_TRUE(decoded.is_ok());
    EXPECT_EQ(*decoded, entry.at("decoded").get<std::string>()) << text;
  }
}

// Words, spaces, digits, punctuation, accents, scripts and control characters, joined at random.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> parts = {"a",
                                                 "The",
                                                 " word",
                                                 "'s",
                                                 "'LL",
                                                 "12345",
                                                 "½",
                                                 " ",
                                                 "  ",
                                                 "\t",
                                                 "\n",
                                                 "\r\n",
                                                 ".",
                                                 "!?",
                                                 "->",
                                                 "/*",
                                                 "_",
                                                 "世界",
                                                 "か",
                                                 "é",
                                                 "e\u0301",
                                                 "Ω",
                                                 "привет",
                                                 "🙂",
                                                 "\u00a0",
                                                 "\u0085",
                                                 "\u200d",
                                                 "İ",
                                                 "ǅ",
                                                 "ß",
                                                 "\u0e01\u0e33",
                                                 "한국",
                                                 "()",
                                                 "#",
                                                 "x1",
                                                 "http://",
                                                 "\x01"};
  std::string text;
  const size_t count = random() % 12;
  for (size_t i = 0; i < count; ++i) text += parts[random() % parts.size()];
  return text;
}

TEST_P(FromVocabulary, AgreesWithTheTokenizerFileOnRandomTexts) {
  REQUIRE_FETCHED(GetParam().package);
  const Tokenizer& tokenizer = load_vocabulary(GetParam().package, GetParam().pre);
  const TokenizerFolder& folder = load(GetParam().package);
  std::mt19937 random(20240229);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(encode(tokenizer, text), encode(*folder.tokenizer, text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FromVocabulary,
                         ::testing::Values(PreTokenizer{"llama3_1", "llama-bpe"},
                                           PreTokenizer{"qwen3", "qwen2"},
                                           PreTokenizer{"deepseek_v3", "deepseek-v3"},
                                           PreTokenizer{"gptoss", "gpt-4o"}),
                         [](const auto& info) { return info.param.package; });

// A SentencePiece vocabulary as a model file carries it. The packages keep merge ranks and no
// scores; a piece's score falls with the rank of the first merge that makes it.
Vocabulary with_scores(const std::vector<std::string>& tokens,
                       const std::vector<std::string>& merges) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = tokens;
  std::map<std::string, float> scores;
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    scores.emplace(merge.substr(0, space) + merge.substr(space + 1),
                   -static_cast<float>(scores.size()));
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto found = scores.find(tokens[id]);
    vocabulary.scores.push_back(found == scores.end() ? 0.0F : found->second);
    vocabulary.types.push_back(static_cast<int32_t>(id == 0    ? TokenKind::kUnknown
                                                    : id < 3   ? TokenKind::kControl
                                                    : id < 259 ? TokenKind::kByte
                                                               : TokenKind::kNormal));
  }
  return vocabulary;
}

TEST(FromVocabulary, OfSentencePieceMergesByScoreAsTheTokenizerFileDoesByRank) {
  REQUIRE_FETCHED("llama2");
  const Vocabulary bpe = as_vocabulary("llama2", "default");
  auto tokenizer = Tokenizer::from_vocabulary(with_scores(bpe.tokens, bpe.merges));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->special().bos, 1);
  EXPECT_EQ((*tokenizer)->special().eos, 2);
  EXPECT_EQ((*tokenizer)->special().unk, 0);
  EXPECT_TRUE((*tokenizer)->special().add_bos);
  for (const Json& entry : published("llama2").at("tokenize")) {
    const auto text = entry.at("text").get<std::string>();
    const Ids ids = encode(**tokenizer, text);
    EXPECT_EQ(ids, entry.at("ids").get<Ids>()) << text;
    auto decoded = (*tokenizer)->decode(ids, {.skip_special = false});
    ASSERT_TRUE(decoded.is_ok());
    EXPECT_EQ(*decoded, entry.at("decoded").get<std::string>()) << text;
  }
}

TEST(TextCases, C19_Llama1KeepsTheSpaceOfTheFirstWord) {
  if (!std::filesystem::exists(fetched_folder() / "llama1/tokens.json")) {
    REQUIRE_FETCHED("llama1");
  }
  const Json file = Json::parse(read_file(fetched_folder() / "llama1/tokens.json"));
  auto tokenizer = Tokenizer::from_vocabulary(with_scores(file.at("tokens"), file.at("merges")));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_THAT(encode(**tokenizer, "This is \U0001F999.cpp", true),
              ElementsAre(1, 910, 338, 29871, 243, 162, 169, 156, 29889, 8223));
  EXPECT_THAT(encode(**tokenizer, "The train is moving very fast!", true),
              ElementsAre(1, 450, 7945, 338, 8401, 1407, 5172, 29991));
}

TEST(TextCases, C20_AWordAfterAnAddedTokenIsTheOneThatTheTokenizerFileGives) {
  REQUIRE_FETCHED("llama2");
  // Mistral's vocabulary with the two tokens that the chat model adds; the file is of the legacy
  // kind, in which a text after an added token starts with a space of its own.
  Json file = Json::parse(read_file(fetched_folder() / "llama2/tokenizer.json"));
  for (const auto& [id, text] :
       {std::pair(32000, "<|im_end|>"), std::pair(32001, "<|im_start|>")}) {
    Json added = file.at("added_tokens")[0];
    added["id"] = id;
    added["content"] = text;
    file["added_tokens"].push_back(added);
  }
  auto tokenizer = Tokenizer::from_json(file.dump());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_THAT(encode(**tokenizer, "<|im_start|>", true), ElementsAre(1, 32001));
  EXPECT_THAT(encode(**tokenizer, "user", true), ElementsAre(1, 2188));
  EXPECT_THAT(encode(**tokenizer, "<|im_start|>user", true), ElementsAre(1, 32001, 2188));
  EXPECT_THAT(encode(**tokenizer, "<s>G"), ElementsAre(1, 420));
  // The same vocabulary in a file of the newer kind: the space is added at the start only.
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  tokenizer = Tokenizer::from_json(file.dump());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_THAT(encode(**tokenizer, "<|im_start|>user", true), ElementsAre(1, 32001, 1838));
  EXPECT_THAT(encode(**tokenizer, "user", true), ElementsAre(1, 2188));
}

TEST(TextCases, C21_Llama3SplitsTabsAndTakesWholePieces) {
  REQUIRE_FETCHED("llama3_1");
  const Tokenizer& from_vocabulary = load_vocabulary("llama3_1", "llama-bpe");
  for (const Tokenizer* tokenizer :
       std::vector<const Tokenizer*>{load("llama3_1").tokenizer.get(), &from_vocabulary}) {
    EXPECT_THAT(encode(*tokenizer, "\t", true), ElementsAre(128000, 197));
    EXPECT_THAT(encode(*tokenizer, "\t\t", true), ElementsAre(128000, 298));
    EXPECT_THAT(encode(*tokenizer, "-\t\t", true), ElementsAre(128000, 12, 298));
    EXPECT_THAT(encode(*tokenizer, "\t\t-", true), ElementsAre(128000, 197, 197, 12));
    EXPECT_THAT(encode(*tokenizer, "请你基于以下「评估标准」"),
                ElementsAre(15225, 57668, 125510, 88852, 13177, 64479, 112494, 110778, 10646));
    EXPECT_THAT(encode(*tokenizer, " hukuk"), ElementsAre(119422));
    EXPECT_THAT(encode(*tokenizer, " Merkez"), ElementsAre(120102));
    EXPECT_THAT(encode(*tokenizer, " bulundu"), ElementsAre(123416));
    EXPECT_THAT(encode(*tokenizer, " olursa"), ElementsAre(119830));
  }
}

TEST(TextCases, C22_QwenAndDeepSeekSplitPunctuationAndDigitsByTheirOwnRules) {
  for (const char* name : {"qwen3", "deepseek_v3", "llama3_1"}) REQUIRE_FETCHED(name);
  const TokenizerFolder& qwen = load("qwen3");
  EXPECT_THAT(encode(*qwen.tokenizer, "->"), ElementsAre(405));
  EXPECT_THAT(encode(*qwen.tokenizer, "(x):\n"), ElementsAre(2075, 982));
  EXPECT_EQ(encode(*qwen.tokenizer, "1234").size(), 4u);
  const TokenizerFolder& deepseek = load("deepseek_v3");
  EXPECT_THAT(encode(*deepseek.tokenizer, "501"), ElementsAre(19097));
  const TokenizerFolder& llama = load("llama3_1");
  EXPECT_EQ(encode(*llama.tokenizer, "1234").size(), 2u);
  EXPECT_EQ(encode(*llama.tokenizer, "123").size(), 1u);
}

TEST(TextCases, C28_UnicodeSpacesAreWhiteSpace) {
  // Made with the Python package tokenizers 0.22 from the same files.
  const std::map<std::string, std::vector<Ids>> expected = {
      {"llama3_1", {{64, 13, 116360, 960}, {87, 4194, 88}, {87, 378, 101, 88}, {87, 23249, 88}}},
      {"qwen3", {{64, 13, 126, 227, 948}, {87, 4102, 88}, {87, 378, 101, 88}, {87, 22441, 88}}},
      {"deepseek_v3",
       {{67, 16, 129, 230, 6229}, {90, 2162, 91}, {90, 300, 104, 91}, {90, 18524, 91}}},
      {"gptoss", {{64, 13, 126, 227, 1292}, {87, 5310, 88}, {87, 51008, 88}, {87, 1397, 88}}},
  };
  const std::vector<std::string> texts = {"a.\u0085.b", "x\u00a0y", "x\u2028y", "x\u3000y"};
  for (const auto& [name, ids] : expected) {
    REQUIRE_FETCHED(name);
    const TokenizerFolder& folder = load(name);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(encode(*folder.tokenizer, texts[i]), ids[i]) << name << " " << texts[i];
    }
  }
}

TEST(TextCases, C29_AChatStartsWithExactlyOneBos) {
  for (const char* name : {"llama3_1", "gemma3", "deepseek_v3", "qwen3"}) {
    REQUIRE_FETCHED(name);
    const TokenizerFolder& folder = load(name);
    auto rendered =
        folder.chat_template->render(R"({"messages": [{"role": "user", "content": "Hi"}]})");
    ASSERT_TRUE(rendered.is_ok()) << rendered.status().message();
    auto ids = folder.tokenizer->encode_chat(*rendered);
    ASSERT_TRUE(ids.is_ok());
    const auto bos = folder.tokenizer->special().bos;
    if (std::string_view(name) == "qwen3") {
      EXPECT_FALSE(bos.has_value());
      EXPECT_EQ(folder.tokenizer->token_text(ids->front()), "<|im_start|>");
      continue;
    }
    ASSERT_TRUE(bos.has_value()) << name;
    EXPECT_EQ(ids->at(0), *bos) << name;
    EXPECT_NE(ids->at(1), *bos) << name;
  }
}

TEST(TextCases, C29_RawTextGetsABosByTheModelsSwitchAndKeepsALiteralOneSingle) {
  REQUIRE_FETCHED("llama3_1");
  REQUIRE_FETCHED("qwen3");
  const TokenizerFolder& llama = load("llama3_1");
  EXPECT_TRUE(llama.tokenizer->special().add_bos);
  const Ids once = encode(*llama.tokenizer, "Hi", true);
  EXPECT_EQ(once.front(), 128000);
  EXPECT_EQ(encode(*llama.tokenizer, "<|begin_of_text|>Hi", true), once);
  // Without parsing, the same text from a user is only characters after the one BOS.
  auto plain = llama.tokenizer->encode("<|begin_of_text|>Hi", {.add_special = true});
  ASSERT_TRUE(plain.is_ok());
  EXPECT_EQ(std::count(plain->begin(), plain->end(), 128000), 1);
  EXPECT_GT(plain->size(), once.size());
  const TokenizerFolder& qwen = load("qwen3");
  EXPECT_EQ(encode(*qwen.tokenizer, "Hi", true), encode(*qwen.tokenizer, "Hi", false));
}

TEST_P(PublishedTokenizer, NeverMakesAControlTokenOfPlainText) {
  REQUIRE_FETCHED(GetParam());
  const TokenizerFolder& folder = load(GetParam());
  const Tokenizer& tokenizer = *folder.tokenizer;
  std::string text = "a<|im_end|> <s></s> <0x0A>\n";
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.token_kind(id) == TokenKind::kControl && text.size() < 20000) {
      text += tokenizer.token_text(id);
      text += " ";
    }
  }
  auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = false});
  ASSERT_TRUE(ids.is_ok()) << ids.status().message();
  for (const int32_t id : *ids) {
    EXPECT_NE(tokenizer.token_kind(id), TokenKind::kControl) << tokenizer.token_text(id);
  }
  auto decoded = tokenizer.decode(*ids);
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(*decoded, text);
}

TEST_P(PublishedTokenizer, KnowsWhatEndsAnAnswer) {
  REQUIRE_FETCHED(GetParam());
  const std::map<std::string, std::vector<std::string>> expected = {
      {"llama2", {"</s>"}},
      {"llama3_1", {"<|end_of_text|>", "<|eot_id|>"}},
      {"qwen3", {"<|endoftext|>", "<|im_end|>"}},
      {"gemma3", {"<end_of_turn>"}},
      {"deepseek_v3", {"<｜end▁of▁sentence｜>"}},
      {"gptoss", {"<|endoftext|>", "<|return|>", "<|call|>"}},
  };
  const TokenizerFolder& folder = load(GetParam());
  std::vector<std::string> found;
  for (const int32_t id : folder.tokenizer->special().end_of_generation) {
    EXPECT_TRUE(folder.tokenizer->is_end_of_generation(id));
    found.emplace_back(folder.tokenizer->token_text(id));
  }
  EXPECT_EQ(found, expected.at(GetParam()));
  EXPECT_FALSE(folder.tokenizer->is_end_of_generation(100));
}

}  // namespace
}  // namespace shoal::text
