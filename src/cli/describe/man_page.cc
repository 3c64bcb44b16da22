#include "cli/describe/man_page.h"

#include <fmt/format.h>

namespace shoal::cli {
namespace {

// roff takes a backslash and a line's first dot or quote for its own.
std::string roff(std::string_view text) {
  std::string out;
  bool is_line_start = true;
  for (const char c : text) {
    if (is_line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    is_line_start = c == '\n';
  }
  return out;
}

std::string option_text(const OptionView& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  }
  if (!option.value.empty() && !option.is_positional) {
    names += fmt::format(" \\fI{}\\fR", roff(option.value));
  }
  std::string text = roff(option.description);
  if (!option.default_text.empty())
    text += fmt::format(" (default: {})", roff(option.default_text));
  return fmt::format(".TP\n{}\n{}.\n", names, text);
}

std::string examples_text(const std::string& footer) {
  constexpr std::string_view kHeading = "Examples:\n";
  if (!footer.starts_with(kHeading)) return {};
  return fmt::format(".PP\nExamples:\n.PP\n.nf\n{}\n.fi\n",
                     roff(std::string_view(footer).substr(kHeading.size())));
}

std::string command_text(const CommandView& command) {
  std::string synopsis = fmt::format("{}", fmt::join(command.path, " "));
  for (const OptionView& option : command.options) {
    if (!option.is_positional) continue;
    synopsis += option.is_required ? " " + option.names[0] : " [" + option.names[0] + "]";
  }
  if (!command.commands.empty()) synopsis += " COMMAND";
  std::string text = fmt::format(".SS {}\n{}.\n", roff(synopsis), roff(command.description));
  for (const OptionView& option : command.options) text += option_text(option);
  return text + examples_text(command.footer);
}

constexpr std::string_view kDescription =
    "Shoal pools the memory and the speed of several ordinary machines, so that a model too big or "
    "too slow for one of them runs on all of them. A model is a GGUF file, a safetensors folder, "
    "or "
    "a known name: smollm2 is a small demo model that is fetched once into the cache.\n";

constexpr std::string_view kEnd =
    ".SH CHAT\n"
    "Without a PROMPT, \\fBshoal run\\fR is a chat. A line that ends in a backslash goes on in the "
    "next one; three double quotes begin and end a block of lines. Ctrl\\-C stops an answer; twice "
    "at the prompt, or Ctrl\\-D, leaves. /help lists the commands.\n"
    ".SH EXIT STATUS\n"
    ".TP\n0\nDone; also when the reader of a pipe closed it early.\n"
    ".TP\n1\nIt failed; one line on standard error says what, and what to do.\n"
    ".TP\n2\nThe command line cannot be meant.\n"
    ".TP\n128 + n\nEnded by signal n, in order: 130 after Ctrl\\-C in a single answer.\n"
    ".SH ENVIRONMENT\n"
    ".TP\nSHOAL_CACHE\nThe folder of fetched models; else $XDG_CACHE_HOME/shoal, else "
    "~/.cache/shoal.\n"
    ".TP\nXDG_STATE_HOME\nThe chat's history is in shoal/chat_history there, else in "
    "~/.local/state; only its owner can read it.\n"
    ".TP\nSHOAL_LOG\ntrace, debug, info, warn, error or off: what is logged to standard error. "
    "Prompts and answers never are.\n";

}  // namespace

std::string man_page(const CommandView& root) {
  std::string text =
      ".\\\" Made by `shoal man` from the program's own options: change those.\n"
      ".TH SHOAL 1\n.SH NAME\nshoal \\- several machines joined into one machine "
      "for AI\n.SH SYNOPSIS\n.B shoal\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
      ".SH DESCRIPTION\n";
  text += kDescription;
  text += ".SH OPTIONS\n";
  for (const OptionView& option : root.options) text += option_text(option);
  text += ".SH COMMANDS\n";
  for (const CommandView* command : flatten(root)) {
    if (command != &root) text += command_text(*command);
  }
  return text + std::string(kEnd);
}

}  // namespace shoal::cli
