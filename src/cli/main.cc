// The program `shoal`. Every command is a file of this folder: start reading at run.cc.
#include "cli/commands.h"
#include "cli/support/output.h"
#include "cli/support/signals.h"

int main(int argc, char** argv) {
  shoal::cli::hold_standard_descriptors();
  shoal::cli::ignore_broken_pipes();
  shoal::cli::Console console;
  shoal::cli::Program program(console);
  shoal::cli::add_all_commands(program);
  return program.run(argc, argv);
}
