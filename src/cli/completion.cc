// `shoal completion SHELL` and `shoal man`: what the shell and the manual know of the commands.
#include "cli/describe/completion.h"

#include <memory>

#include "cli/commands.h"
#include "cli/describe/man_page.h"

namespace shoal::cli {

void add_completion(Program& program) {
  CLI::App& command = program.add_command(
      program.root(),
      {.name = "completion",
       .description = "Print a completion script for a shell",
       .examples = "  source <(shoal completion bash)\n"
                   "  shoal completion zsh > ~/.zfunc/_shoal\n"
                   "  shoal completion fish > ~/.config/fish/completions/shoal.fish"});
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("{bash,zsh,fish}");
  program.set_action(command, [shell, &program]() -> Result<int> {
    const CommandView root = describe(program.root());
    program.console().out.write(*shell == "bash"  ? bash_completion(root)
                                : *shell == "zsh" ? zsh_completion(root)
                                                  : fish_completion(root));
    return 0;
  });
}

void add_man(Program& program) {
  CLI::App& command = program.add_command(program.root(), {.name = "man",
                                                           .description = "Print the manual page",
                                                           .examples = "  shoal man | man -l -"});
  program.set_action(command, [&program]() -> Result<int> {
    program.console().out.write(man_page(describe(program.root())));
    return 0;
  });
}

}  // namespace shoal::cli
