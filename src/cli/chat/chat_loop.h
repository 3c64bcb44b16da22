// ChatLoop: a conversation: lines in, answers out as they come, commands that begin with '/'.
//
// Ctrl-C stops an answer (what it has so far stays part of the conversation), at the prompt it
// drops what was typed; twice at the prompt, or Ctrl-D, leaves. A failed request (a template's
// refusal, a full context) is reported and leaves the conversation as it was before; a broken group
// ends the chat.
// Thread rule: the main thread, inside a SignalScope. Borrows model, lines and console.
#pragma once

#include <string>

#include "cli/chat/answer.h"
#include "cli/chat/line_source.h"
#include "cli/support/output.h"

namespace shoal::cli {

struct ChatOptions {
  GenerationOptions generation;
  std::string system;  // empty: none
  bool shows_stats = false;
};

class ChatLoop {
 public:
  ChatLoop(LoadedModel& loaded, LineSource& lines, Console& console, ChatOptions options);
  ChatLoop(const ChatLoop&) = delete;
  ChatLoop& operator=(const ChatLoop&) = delete;

  // Until the user leaves.
  Status run();

 private:
  enum class Next { kGoOn, kLeave };

  void greet();
  // A whole message: lines joined by a trailing backslash, or between two """.
  Line read_message();
  Line read_block(std::string first);
  Result<Next> take_command(const std::string& text);
  void set_system(const std::string& text);
  // Answers the conversation as it is; on kRequest nothing is added.
  Status answer();
  Status ask(const std::string& text);
  Status retry();
  void note(const std::string& text);
  Status report_request(const Status& status);

  LoadedModel& loaded_;
  LineSource& lines_;
  Console& console_;
  ChatOptions options_;
  Json messages_ = Json::array();
  runtime::SessionId session_ = 0;
  std::string last_stats_;
};

}  // namespace shoal::cli
