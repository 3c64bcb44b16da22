// `shoal tokenize MODEL TEXT`: text to token ids, and back.
#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "cli/commands.h"
#include "cli/support/files.h"
#include "cli/support/format.h"
#include "cli/support/json_output.h"
#include "cli/support/model_setup.h"
#include "cli/support/text_setup.h"

namespace shoal::cli {
namespace {

constexpr size_t kTextBytesMax = size_t{256} * 1024 * 1024;

struct TokenizeOptions {
  std::string model;
  std::string text;
  bool parses_special = false;
  bool adds_special = false;
  bool is_chat = false;
  bool prints_ids = false;
  bool decodes = false;
  bool is_json = false;
};

std::string_view kind_name(text::TokenKind kind) {
  switch (kind) {
    case text::TokenKind::kNormal:
      return "";
    case text::TokenKind::kUnknown:
      return "unknown";
    case text::TokenKind::kControl:
      return "control";
    case text::TokenKind::kUserDefined:
      return "added";
    case text::TokenKind::kUnused:
      return "unused";
    case text::TokenKind::kByte:
      return "byte";
  }
  return "";
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    out += fmt::format("{}{:02x}", out.empty() ? "" : " ", static_cast<unsigned char>(byte));
  }
  return out;
}

// Ids separated by anything that is no digit: "1, 2 3" and "[1,2,3]".
Result<std::vector<int32_t>> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
      int32_t id = 0;
      const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), id);
      if (error != std::errc()) {
        return Status::request(fmt::format("{} is not a token id", text.substr(i, 24)));
      }
      ids.push_back(id);
      i = static_cast<size_t>(end - text.data());
    } else if (std::string_view(" \t\r\n,;[]").find(text[i]) != std::string_view::npos) {
      ++i;
    } else {
      return Status::request(fmt::format("--decode takes token ids such as 1,2,3, not {}",
                                         escape(text.substr(i, 24))));
    }
  }
  return ids;
}

std::string table_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Table table({{"id", Table::Align::kRight}, {"token"}, {"text"}, {"bytes"}, {"kind"}});
  for (const int32_t id : ids) {
    table.add_row({fmt::format("{}", id), escape(tokenizer.token_text(id)),
                   escape(tokenizer.token_bytes(id)), hex(tokenizer.token_bytes(id)),
                   std::string(kind_name(tokenizer.token_kind(id)))});
  }
  return table.to_string() + fmt::format("{} tokens\n", ids.size());
}

Json json_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json tokens = Json::array();
  for (const int32_t id : ids) {
    Json bytes = Json::array();
    for (const char byte : tokenizer.token_bytes(id)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
    tokens.push_back({{"id", id}, {"token", tokenizer.token_text(id)}, {"bytes", bytes}});
  }
  return {{"ids", ids}, {"count", ids.size()}, {"tokens", std::move(tokens)}};
}

Result<int> decode(const TokenizeOptions& options, const text::Tokenizer& tokenizer,
                   Console& console) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, parse_ids(options.text));
  ASSIGN_OR_RETURN(const std::string text,
                   tokenizer.decode(ids, {.skip_special = !options.parses_special}));
  console.out.write(options.is_json ? to_text({{"ids", ids}, {"text", text}}) : text + "\n");
  return 0;
}

Result<std::vector<int32_t>> encode(const TokenizeOptions& options, const TextParts& text) {
  if (options.is_chat) {
    ASSIGN_OR_RETURN(
        RenderedPrompt prompt,
        render_chat(text, Json::array({{{"role", "user"}, {"content", options.text}}})));
    return std::move(prompt.ids);
  }
  return text.tokenizer->encode(
      options.text, {.add_special = options.adds_special, .parse_special = options.parses_special});
}

Result<int> tokenize(TokenizeOptions options, Console& console) {
  if (options.text == "-") {
    ASSIGN_OR_RETURN(options.text, read_standard_input(kTextBytesMax));
  }
  ASSIGN_OR_RETURN(const model::ResolvedModel model,
                   resolve_with_progress(options.model, console, false));
  ASSIGN_OR_RETURN(const TextParts text, load_text(model.path));
  if (options.decodes) return decode(options, *text.tokenizer, console);
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, encode(options, text));
  if (options.is_json) {
    console.out.write(to_text(json_of(*text.tokenizer, ids)));
  } else if (options.prints_ids) {
    console.out.write(fmt::format("{}\n", fmt::join(ids, " ")));
  } else {
    console.out.write(table_of(*text.tokenizer, ids));
  }
  return 0;
}

}  // namespace

void add_tokenize(Program& program) {
  CLI::App& command = program.add_command(
      program.root(), {.name = "tokenize",
                       .description = "Show how a model cuts text into tokens",
                       .examples = "  shoal tokenize smollm2 \"Hello, world\"\n"
                                   "  shoal tokenize smollm2 --ids - < file.txt\n"
                                   "  shoal tokenize smollm2 \"<|im_start|>user\" --special\n"
                                   "  shoal tokenize smollm2 --decode 19556,28,905\n"
                                   "  shoal tokenize ./folder-with-tokenizer.json \"Hello\""});
  const auto options = std::make_shared<TokenizeOptions>();
  command
      .add_option("MODEL", options->model,
                  "A model, or a folder that holds a tokenizer.json and no weights")
      ->required();
  command.add_option("TEXT", options->text, "The text; - reads it from standard input")->required();
  command.add_flag("--special", options->parses_special,
                   "Text such as <|im_end|> is the control token; with --decode: show them");
  command.add_flag("--add-special", options->adds_special,
                   "Put BOS and EOS where the model wants them");
  command.add_flag("--chat", options->is_chat, "TEXT is a user's message in the chat template");
  command.add_flag("--ids", options->prints_ids, "Print the ids alone, in one line");
  command.add_flag("--decode", options->decodes, "TEXT is a list of ids; print what they say");
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(command,
                     [options, &program] { return tokenize(*options, program.console()); });
}

}  // namespace shoal::cli
