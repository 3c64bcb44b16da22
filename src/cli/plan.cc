// `shoal plan MODEL --nodes N`: how a model would be laid over nodes, without loading it.
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/support/format.h"
#include "cli/support/model_setup.h"

namespace shoal::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  bool explains = false;
  bool is_json = false;
};

std::string range_text(const plan::Range& range) {
  return fmt::format("{} ({}-{})", range.size(), range.begin, range.end - 1);
}

Json range_json(const plan::Range& range) { return Json::array({range.begin, range.end}); }

Json json_of(const plan::Plan& plan, const std::string& name) {
  Json ranks = Json::array();
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    const plan::RankPlan& rank = plan.ranks[i];
    Json layers = Json::array();
    for (const plan::LayerShard& layer : rank.layers) {
      layers.push_back({{"heads", range_json(layer.q_heads)},
                        {"kv_heads", range_json(layer.kv_heads)},
                        {"ffn", range_json(layer.ffn)}});
    }
    ranks.push_back({{"rank", i},
                     {"vocabulary", range_json(rank.vocabulary)},
                     {"weight_bytes", rank.weight_bytes},
                     {"kv_bytes_per_token", rank.kv_bytes_per_token},
                     {"kv_bytes", rank.kv_bytes},
                     {"layers", std::move(layers)}});
  }
  return {{"model", name},
          {"context", plan.context},
          {"kv_type", plan::kv_type_name(plan.kv_type)},
          {"kv_heads_replicated", plan.kv_heads_replicated},
          {"weight_bytes", plan.weight_bytes},
          {"kv_bytes_per_token", plan.kv_bytes_per_token},
          {"kv_bytes", plan.kv_bytes},
          {"ranks", std::move(ranks)},
          {"explanation", plan.explanation}};
}

bool layers_differ(const plan::RankPlan& rank) {
  const plan::LayerShard& first = rank.layers.front();
  return std::any_of(rank.layers.begin(), rank.layers.end(), [&](const plan::LayerShard& layer) {
    return !(layer.q_heads == first.q_heads && layer.kv_heads == first.kv_heads &&
             layer.ffn == first.ffn);
  });
}

// Of the layers it shows the first.
std::string table_of(const plan::Plan& plan) {
  using enum Table::Align;
  Table table({{"rank", kRight},
               {"heads", kRight},
               {"KV heads", kRight},
               {"FFN columns", kRight},
               {"vocabulary rows", kRight},
               {"weights", kRight},
               {"KV per token", kRight},
               {fmt::format("KV for {}", plan.context), kRight}});
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    const plan::RankPlan& rank = plan.ranks[i];
    const plan::LayerShard& layer = rank.layers.front();
    table.add_row({fmt::format("{}", i), range_text(layer.q_heads), range_text(layer.kv_heads),
                   range_text(layer.ffn), range_text(rank.vocabulary),
                   format_bytes(rank.weight_bytes), format_bytes(rank.kv_bytes_per_token),
                   format_bytes(rank.kv_bytes)});
  }
  table.add_row({"all", "", "", "", "", format_bytes(plan.weight_bytes),
                 format_bytes(plan.kv_bytes_per_token), format_bytes(plan.kv_bytes)});
  return table.to_string();
}

Result<int> show_plan(const PlanOptions& options, Console& console) {
  ASSIGN_OR_RETURN(const model::ResolvedModel resolved,
                   resolve_with_progress(options.model.model, console, options.is_json));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model, model::load_model(resolved.path));
  ASSIGN_OR_RETURN(const PlannedModel planned, plan_model(*model, options.model));
  if (options.is_json) {
    console.out.write(to_text(json_of(planned.plan, model->config.display_name)));
    return 0;
  }
  std::string text = fmt::format("{}: {} layers over {} {}\n", model->config.display_name,
                                 model->config.layers.size(), planned.plan.ranks.size(),
                                 planned.plan.ranks.size() == 1 ? "node" : "nodes");
  text += table_of(planned.plan);
  if (std::any_of(planned.plan.ranks.begin(), planned.plan.ranks.end(), layers_differ)) {
    text += "Heads and FFN columns are the first layer's; layers differ, --json has all of them.\n";
  }
  if (!planned.note.empty()) text += planned.note + "\n";
  if (const std::string note = domains_note(options.model); !note.empty()) text += note + "\n";
  if (options.explains) {
    for (const std::string& sentence : planned.plan.explanation) text += "- " + sentence + "\n";
  }
  console.out.write(text);
  return 0;
}

}  // namespace

void add_plan(Program& program) {
  CLI::App& command = program.add_command(
      program.root(), {.name = "plan",
                       .description = "Show how a model would be laid over nodes",
                       .examples = "  shoal plan smollm2 --nodes 2\n"
                                   "  shoal plan smollm2 --nodes 2 --split 3,1 --explain\n"
                                   "  shoal plan ./model.gguf --nodes 4 --ctx 4096 --json"});
  const auto options = std::make_shared<PlanOptions>();
  add_model_name(command, &options->model.model);
  add_layout_options(command, &options->model);
  command.add_flag("--explain", options->explains, "Say why it is laid out like this");
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(command,
                     [options, &program] { return show_plan(*options, program.console()); });
}

}  // namespace shoal::cli
