#include "cli/chat/chat_loop.h"

#include <fmt/format.h>

#include "cli/support/format.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

constexpr std::string_view kHelp =
    "/help            this list\n"
    "/clear           forget the conversation (the system message stays)\n"
    "/system [TEXT]   set the system message and start anew; without TEXT: none\n"
    "/retry           answer the last message again\n"
    "/stats           speed of the last answer, bytes of each node\n"
    "/exit            leave (also Ctrl-D, or Ctrl-C twice)\n"
    "A line that ends in \\ goes on in the next one; \"\"\" begins and ends a block of lines.\n"
    "Ctrl-C stops an answer.";

constexpr std::string_view kBlockMark = "\"\"\"";

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

}  // namespace

ChatLoop::ChatLoop(LoadedModel& loaded, LineSource& lines, Console& console, ChatOptions options)
    : loaded_(loaded), lines_(lines), console_(console), options_(std::move(options)) {}

void ChatLoop::note(const std::string& text) {
  console_.err.write_line(console_.err.is_terminal() ? "\x1b[90m" + text + "\x1b[0m" : text);
}

void ChatLoop::set_system(const std::string& text) {
  options_.system = text;
  messages_ = Json::array();
  if (!text.empty()) messages_.push_back({{"role", "system"}, {"content", text}});
}

void ChatLoop::greet() {
  if (!lines_.is_terminal()) return;
  std::string text = loaded_.model().config.display_name;
  const size_t nodes = loaded_.plan().ranks.size();
  if (nodes > 1) text += fmt::format(" · {} nodes over {}", nodes, loaded_.link_name());
  note(text + fmt::format(" · context {} · /help for help", loaded_.engine().context()));
}

Status ChatLoop::run() {
  ASSIGN_OR_RETURN(session_, loaded_.engine().open_session());
  set_system(options_.system);
  greet();
  bool was_interrupted = false;
  while (!console_.out.is_done()) {
    const Line line = read_message();
    if (line.kind == LineKind::kEnd) {
      if (lines_.is_terminal()) console_.out.write("\n");
      break;
    }
    if (line.kind == LineKind::kInterrupted) {
      SignalScope::clear_interrupt();
      console_.out.write("\n");
      if (was_interrupted) break;
      note("Ctrl-C again or Ctrl-D leaves");
      was_interrupted = true;
      continue;
    }
    was_interrupted = false;
    const std::string text = trimmed(line.text);
    if (text.empty()) continue;
    lines_.remember(line.text);
    if (text.front() == '/') {
      ASSIGN_OR_RETURN(const Next next, take_command(text));
      if (next == Next::kLeave) break;
    } else {
      RETURN_IF_ERROR(report_request(ask(line.text)));
    }
    if (SignalScope::termination_signal() != 0) break;
  }
  return console_.out.status();
}

Line ChatLoop::read_message() {
  Line line = lines_.read("> ");
  if (line.kind != LineKind::kLine) return line;
  if (trimmed(line.text).starts_with(kBlockMark)) {
    return read_block(line.text.substr(line.text.find(kBlockMark) + kBlockMark.size()));
  }
  while (line.text.ends_with('\\')) {
    line.text.back() = '\n';
    Line more = lines_.read(". ");
    if (more.kind == LineKind::kInterrupted) return more;
    if (more.kind == LineKind::kEnd) break;
    line.text += more.text;
  }
  return line;
}

Line ChatLoop::read_block(std::string first) {
  Line block{.kind = LineKind::kLine, .text = std::move(first)};
  for (;;) {
    if (const size_t end = block.text.find(kBlockMark); end != std::string::npos) {
      block.text.resize(end);
      return block;
    }
    Line more = lines_.read(". ");
    if (more.kind == LineKind::kInterrupted) return more;
    if (more.kind == LineKind::kEnd) return block;
    if (!block.text.empty()) block.text += '\n';
    block.text += more.text;
  }
}

Result<ChatLoop::Next> ChatLoop::take_command(const std::string& text) {
  const size_t space = text.find_first_of(" \t\n");
  const std::string command = text.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : trimmed(text.substr(space));
  if (command == "/exit" || command == "/quit" || command == "/bye") return Next::kLeave;
  if (command == "/help" || command == "/?") {
    note(std::string(kHelp));
  } else if (command == "/clear") {
    set_system(options_.system);
    note("the conversation starts anew");
  } else if (command == "/system") {
    set_system(rest);
    note(rest.empty() ? "no system message; the conversation starts anew"
                      : "system message set; the conversation starts anew");
  } else if (command == "/retry") {
    RETURN_IF_ERROR(report_request(retry()));
  } else if (command == "/stats") {
    note(last_stats_.empty() ? "no answer yet" : last_stats_);
    note(nodes_line(loaded_));
  } else {
    note(fmt::format("there is no command {}; /help lists them", escape(command)));
  }
  return Next::kGoOn;
}

Status ChatLoop::report_request(const Status& status) {
  if (status.is_ok() || status.code() != StatusCode::kRequest) return status;
  console_.err.write_line("shoal: " + status.message());
  SignalScope::clear_interrupt();  // one that came meanwhile was for the answer that failed
  return Status::ok();
}

Status ChatLoop::ask(const std::string& text) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  Status status = answer();
  if (!status.is_ok()) messages_.erase(messages_.size() - 1);
  return status;
}

Status ChatLoop::retry() {
  if (messages_.empty() || messages_.back()["role"] != "assistant") {
    return Status::request("there is no answer yet to give again");
  }
  const Json last = messages_.back();
  messages_.erase(messages_.size() - 1);
  Status status = answer();
  if (!status.is_ok()) messages_.push_back(last);
  return status;
}

Status ChatLoop::answer() {
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, render_chat(loaded_.text(), messages_));
  if (prompt.ids.size() >= loaded_.engine().context()) {
    return Status::request(
        fmt::format("the conversation has {} tokens and the context holds {}; /clear starts anew",
                    prompt.ids.size(), loaded_.engine().context()));
  }
  const AnswerRequest request{
      .session = session_,
      .prompt = prompt.ids,
      .options = options_.generation,
      .on_text =
          [&](std::string_view text) {
            console_.out.write(console_.out.is_terminal() ? without_controls(text) : text);
            return !console_.out.is_done();
          },
      .on_prefill = {}};
  ASSIGN_OR_RETURN(const Answer answer, generate_answer(loaded_, request));
  console_.out.write("\n");
  messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
  last_stats_ = stats_line(loaded_, answer);
  if (answer.result.reason == runtime::StopReason::kCancelled) note("(stopped)");
  if (answer.result.reason == runtime::StopReason::kContextFull) {
    note("(the context is full; /clear starts anew)");
  }
  if (options_.shows_stats) note(last_stats_);
  SignalScope::clear_interrupt();
  return Status::ok();
}

}  // namespace shoal::cli
