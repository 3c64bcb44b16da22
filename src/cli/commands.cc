#include "cli/commands.h"

namespace shoal::cli {

void add_bench(Program& program) {
  CLI::App& bench = program.add_command(
      program.root(), {.name = "bench",
                       .description = "Measure the speed of a model, of the links, of this machine",
                       .examples = "  shoal bench model smollm2 --nodes 2\n"
                                   "  shoal bench fabric --link tcp\n"
                                   "  shoal bench machine --types Q4_0"});
  bench.require_subcommand(0, 1);
  add_bench_model(program, bench);
  add_bench_fabric(program, bench);
  add_bench_machine(program, bench);
}

void add_all_commands(Program& program) {
  add_run(program);
  add_serve(program);
  add_info(program);
  add_doctor(program);
  add_models(program);
  add_pull(program);
  add_plan(program);
  add_bench(program);
  add_trace(program);
  add_eval(program);
  add_tokenize(program);
  add_completion(program);
  add_man(program);
  add_node(program);
}

}  // namespace shoal::cli
