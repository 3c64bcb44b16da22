// LoadedModel: a model ready to answer on N local nodes, made from the options of the command line.
//
// The whole way from what the user typed: find or fetch the model, read it, plan it, start the
// other node processes, join them, load every rank's part. Rank 0 is this process.
// Thread rule: the main thread, which must outlive it (local nodes end with that thread).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/numa.h"
#include "cli/support/json_output.h"
#include "cli/support/output.h"
#include "cli/support/text_setup.h"
#include "collective/group.h"
#include "fabric/fabric.h"
#include "fabric/local_launch.h"
#include "model/model.h"
#include "model/store.h"
#include "plan/plan.h"
#include "runtime/engine.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so
class App;
}

namespace shoal::cli {

// The least --ctx.
inline constexpr uint32_t kContextMin = 16;

// What every command that runs a model takes.
struct ModelOptions {
  std::string model;
  int nodes = 1;
  // With --nodes numa: the domain of each node, which keeps to it; empty where none are known.
  std::vector<NumaDomain> domains;
  bool by_domain = false;
  std::string link = "auto";  // of local nodes; "auto": fabric::choose_local_link()
  std::string split;          // "3,1"; empty: even
  uint32_t threads = 0;       // per node; 0: the usable cores, shared evenly
  uint32_t context = 0;       // 0: see plan_model()
  // What a user makes smaller to ask for less context; not --ctx where a command derives it.
  std::string_view context_option = "--ctx";
  // Positions of the KV cache, which all sessions share; 0: as many as one session's context.
  uint32_t cache = 0;
  // Without `cache`: several contexts of them, where memory is plentiful.
  bool wants_large_cache = false;
  uint32_t sessions = runtime::EngineOptions{}.sessions_max;  // at once
  bool exact = false;
  std::string kv;       // "f16", "q8", "f32"; empty: f16, or f32 with exact
  std::string kernels;  // a kernel path; empty: the best
  bool is_quiet = false;
};

// The option groups, for commands that need only some.
void add_model_name(CLI::App& command, std::string* model);
void add_layout_options(CLI::App& command,
                        ModelOptions* options);  // --nodes --split --ctx --kv --exact
void add_compute_options(CLI::App& command,
                         ModelOptions* options);  // --link --threads --kernels --quiet

// What --nodes numa has found, for people; empty without it.
std::string domains_note(const ModelOptions& options);

// A path, or a known model, fetched with its source and licence shown and a progress bar.
Result<model::ResolvedModel> resolve_with_progress(const std::string& name, Console& console,
                                                   bool is_quiet);

// The plan for these options, with the context that the memory of this machine allows: an explicit
// context that does not fit is kRequest with both byte counts.
struct PlannedModel {
  plan::Plan plan;
  plan::PlanRequest request;
  uint32_t context = 0;  // of one session; the plan's is that of the whole cache
  std::string note;  // why the context is smaller than what the model was made for; may be empty
};
Result<PlannedModel> plan_model(const model::Model& model, const ModelOptions& options);

// What to do about a prompt that is longer than `context`.
std::string shorter_prompt_remedy(uint32_t context, const model::Model& model);

class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> load(const ModelOptions& options, Console& console);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const ModelOptions& options() const { return options_; }
  const model::Model& model() const { return *model_; }
  const TextParts& text() const { return text_; }
  const plan::Plan& plan() const { return planned_.plan; }
  uint32_t threads() const { return threads_; }
  // What one conversation may hold; the engine's own is what all hold together.
  uint32_t context() const { return planned_.context; }
  runtime::Engine& engine() { return *engine_; }
  // From the first byte read to ready, fetching not counted.
  double load_seconds() const { return load_seconds_; }

  // "shm", "tcp", "verbs", "ucx"; "none" for one node.
  std::string_view link_name() { return fabric().link_name(); }
  // The kernel path, and for people also those that this processor cannot run.
  std::string kernels_name() const;
  std::string kernels_text() const;
  // {"nodes": [...], "link", "context", "exact", "kernels", "kernels_not_here",
  //  "threads_per_node", "load_seconds"}
  Json describe_layout();
  // Ok, or why the group of nodes has failed; from any thread, at any time while it is loaded.
  Status group_status() { return fabric().health().failure(); }
  // Ends the nodes in order, and says when one did not end well.
  Status close();

 private:
  explicit LoadedModel(ModelOptions options) : options_(std::move(options)) {}
  fabric::Fabric& fabric() { return local_group_ ? local_group_->fabric() : *single_; }
  uint32_t tokens() const;
  Status read(Console& console);
  Status start_nodes(Console& console);
  Status load_weights(Console& console);

  // In the order of dependency: what is destroyed first stands last.
  ModelOptions options_;
  std::unique_ptr<model::Model> model_;
  TextParts text_;
  PlannedModel planned_;
  std::string path_;
  uint32_t threads_ = 1;
  double load_seconds_ = 0;
  std::unique_ptr<fabric::LocalGroup> local_group_;  // null for one node
  std::unique_ptr<fabric::Fabric> single_;           // null for more
  std::unique_ptr<collective::Group> group_;
  std::unique_ptr<runtime::Engine> engine_;
};

// What goes wrong in a group is reported once, by rank 0's error message: its log stays silent from
// here on, unless SHOAL_LOG asks for it.
void silence_group_log();

// What the nodes of a group must have in common.
fabric::Program this_program();

// This build, for people: "0.1.0 (397a211)".
std::string build_name();

// The path of this program's own executable, to start nodes with.
Result<std::string> own_executable();

}  // namespace shoal::cli
