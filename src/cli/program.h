// Program: the tree of commands that `shoal` understands, and what runs when one was chosen.
//
// Exit codes: 0 done; 1 it failed, one line "shoal: what; what to do" on standard error says why;
// 2 the command line cannot be meant; 128 + n ended by signal n (130: Ctrl-C).
// Thread rule: the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/support/output.h"

namespace shoal::cli {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// A command's work: its exit code (0 unless a signal or a partial result asks for another one).
using Action = std::function<Result<int>()>;
// What about a parsed command line cannot be meant; reads no model and writes nothing.
using Check = std::function<Status()>;

class Program {
 public:
  explicit Program(Console& console);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // About when the process began, on SteadyClock.
  Nanoseconds started() const { return started_; }
  CLI::App& root() { return root_; }
  Console& console() { return console_; }

  struct CommandText {
    std::string name;
    std::string description;  // one sentence, without a full stop
    std::string examples;     // lines of shell, shown in --help and the manual
  };
  // A subcommand of `parent`; examples go under its options.
  CLI::App& add_command(CLI::App& parent, const CommandText& text);
  // What the command does once its options are parsed and checked. Commands without one show their
  // help.
  void set_action(const CLI::App& command, Action action, Check check = {});

  // Parses, runs, reports; returns the exit code.
  int run(int argc, char** argv);

 private:
  struct Work {
    const CLI::App* command = nullptr;
    Action action;
    Check check;
  };

  int parse(int argc, char** argv);
  int run_chosen();
  // The innermost command that was given.
  CLI::App& chosen();
  int report(const Status& status, int code = kExitFailed);

  const Nanoseconds started_ = SteadyClock::instance().now();
  Console& console_;
  CLI::App root_;
  std::vector<Work> works_;
};

// "shoal run": how the command is typed.
std::string full_name(const CLI::App& command);

}  // namespace shoal::cli
