// `shoal models` and `shoal pull NAME`: the models of this machine, and those that can be fetched.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/support/format.h"
#include "cli/support/json_output.h"
#include "cli/support/model_setup.h"
#include "model/store.h"

namespace shoal::cli {
namespace {

Json json_of(const std::vector<model::ListedModel>& models) {
  Json list = Json::array();
  for (const model::ListedModel& model : models) {
    Json entry = {{"name", model.name},
                  {"path", model.path.empty() ? Json(nullptr) : Json(model.path)},
                  {"bytes", model.bytes},
                  {"files", model.parts}};
    if (model.known != nullptr) {
      entry["title"] = model.known->title;
      entry["source"] = model.known->source;
      entry["licence"] = model.known->licence;
    }
    list.push_back(std::move(entry));
  }
  return {{"models", std::move(list)}};
}

Result<int> list(bool is_json, Console& console) {
  ASSIGN_OR_RETURN(const std::vector<model::ListedModel> models, model::list_models({}));
  if (is_json) {
    console.out.write(to_text(json_of(models)));
    return 0;
  }
  Table table({{"name"}, {"size", Table::Align::kRight}, {"here"}, {"what it is"}});
  for (const model::ListedModel& model : models) {
    std::string what;
    if (model.known != nullptr) {
      what = fmt::format("{} ({})", model.known->title, model.known->licence);
    } else if (model.parts > 1) {
      what = fmt::format("{} files", model.parts);
    }
    table.add_row({model.name, format_bytes(model.bytes), model.path.empty() ? "no" : "yes", what});
  }
  console.out.write(table.to_string());
  ASSIGN_OR_RETURN(const std::string folder, model::models_folder({}));
  console.out.write(fmt::format("\nModels are kept in {}\n", folder));
  return 0;
}

struct PullOptions {
  std::string name;
  bool is_json = false;
  bool is_quiet = false;
};

Json json_of(const PullOptions& options, const model::ResolvedModel& model) {
  Json json = {{"name", options.name}, {"path", model.path}, {"was_fetched", model.was_fetched}};
  if (model.known != nullptr) {
    json["title"] = model.known->title;
    json["source"] = model.known->source;
    json["licence"] = model.known->licence;
  }
  return json;
}

Result<int> pull(const PullOptions& options, Console& console) {
  ASSIGN_OR_RETURN(const model::ResolvedModel model,
                   resolve_with_progress(options.name, console, options.is_quiet));
  if (options.is_json) {
    console.out.write(to_text(json_of(options, model)));
  } else {
    console.out.write_line(model.path);
  }
  return 0;
}

}  // namespace

void add_models(Program& program) {
  CLI::App& command = program.add_command(
      program.root(), {.name = "models",
                       .description = "List the models of this machine and those it can fetch",
                       .examples = "  shoal models\n  shoal models --json"});
  const auto is_json = std::make_shared<bool>(false);
  command.add_flag("--json", *is_json, "Print JSON");
  program.set_action(command, [is_json, &program] { return list(*is_json, program.console()); });
}

void add_pull(Program& program) {
  CLI::App& command = program.add_command(
      program.root(), {.name = "pull",
                       .description = "Fetch a known model into the cache and print its path",
                       .examples = "  shoal pull smollm2"});
  const auto options = std::make_shared<PullOptions>();
  command.add_option("NAME", options->name, "The model's name; `shoal models` lists them")
      ->required();
  command.add_flag("--json", options->is_json, "Print JSON");
  command.add_flag("-q,--quiet", options->is_quiet, "No progress on standard error");
  program.set_action(command, [options, &program] { return pull(*options, program.console()); });
}

}  // namespace shoal::cli
