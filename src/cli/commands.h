// The commands of `shoal`, one source file each; main.cc adds them to the program.
//
// Each function adds its command with options, and the action that wires the objects together.
#pragma once

#include "cli/program.h"

namespace shoal::cli {

void add_run(Program& program);
void add_serve(Program& program);
void add_eval(Program& program);
void add_tokenize(Program& program);
void add_info(Program& program);
void add_doctor(Program& program);
void add_plan(Program& program);
void add_models(Program& program);
void add_pull(Program& program);
void add_bench(Program& program);
void add_trace(Program& program);
void add_completion(Program& program);
void add_man(Program& program);
void add_node(Program& program);

// Parts of `shoal bench`.
void add_bench_model(Program& program, CLI::App& bench);
void add_bench_fabric(Program& program, CLI::App& bench);
void add_bench_machine(Program& program, CLI::App& bench);

// All of the above.
void add_all_commands(Program& program);

}  // namespace shoal::cli
