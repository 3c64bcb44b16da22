// `shoal info [MODEL]`: what this machine can do, or what a model is.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "build_info.h"
#include "cli/commands.h"
#include "cli/doctor/rdma_view.h"
#include "cli/support/format.h"
#include "cli/support/machine.h"
#include "cli/support/model_setup.h"
#include "fabric/local_launch.h"
#include "tensor/kernel_path.h"

namespace shoal::cli {
namespace {

constexpr size_t kTemplateLinesShown = 6;

struct InfoOptions {
  std::string model;
  bool shows_template = false;
  bool is_json = false;
};

// How nodes of this machine are joined unless --link says otherwise.
std::string local_link_text() {
  const fabric::LinkChoice choice = fabric::choose_local_link(2);
  return fmt::format("{} between nodes of this machine (--link auto){}",
                     fabric::link_kind_name(choice.link),
                     choice.reason.empty() ? "" : "; no shared memory: " + choice.reason);
}

Json machine_json(const Machine& machine) {
  Json caches = Json::object();
  for (const CacheLevel& cache : machine.caches) caches[cache.name] = cache.bytes;
  return {{"version", kBuildVersion},
          {"commit", kBuildCommit},
          {"build_type", kBuildType},
          {"compiler", kBuildCompiler},
          {"host", machine.host},
          {"system", machine.system},
          {"architecture", machine.architecture},
          {"cpu", machine.cpu},
          {"logical_cpus", machine.logical_cpus},
          {"allowed_cpus", machine.allowed_cpus},
          {"physical_cores", machine.physical_cores},
          {"cpu_quota", machine.cpu_quota > 0 ? Json(machine.cpu_quota) : Json(nullptr)},
          {"default_threads", usable_cores()},
          {"instructions", machine.instructions},
          {"kernels", tensor::kernel_path_name(tensor::best_kernel_path())},
          {"kernels_available", kernels_here()},
          {"kernels_not_here", kernels_not_here()},
          {"caches", std::move(caches)},
          {"memory_bytes", machine.memory_bytes},
          {"memory_available", machine.memory_available},
          {"local_link", fabric::link_kind_name(fabric::choose_local_link(2).link)},
          {"rdma", rdma_json(read_rdma_ports())}};
}

std::string machine_text(const Machine& machine) {
  KeyValueList list;
  list.add("shoal",
           fmt::format("{} ({}, {}, {})", kBuildVersion, kBuildCommit, kBuildType, kBuildCompiler));
  list.add("host", machine.host);
  list.add("system", fmt::format("{}, {}", machine.system, machine.architecture));
  list.add("processor", machine.cpu);
  list.add("cores",
           fmt::format("{} ({} logical, {} allowed to this process{})", machine.physical_cores,
                       machine.logical_cpus, machine.allowed_cpus,
                       machine.cpu_quota > 0 ? fmt::format(", quota {:.2f}", machine.cpu_quota)
                                             : std::string()));
  list.add("threads used", fmt::format("{} by default", usable_cores()));
  list.add("instructions", fmt::format("{}", fmt::join(machine.instructions, " ")));
  list.add("kernels",
           fmt::format("{} (of {}; not on this processor: {})",
                       tensor::kernel_path_name(tensor::best_kernel_path()),
                       fmt::join(kernels_here(), ", "), fmt::join(kernels_not_here(), ", ")));
  std::string caches;
  for (const CacheLevel& cache : machine.caches) {
    caches +=
        fmt::format("{}{} {} KiB", caches.empty() ? "" : ", ", cache.name, cache.bytes / 1024);
  }
  list.add("caches", caches);
  list.add("memory", fmt::format("{}, {} available", format_bytes(machine.memory_bytes),
                                 format_bytes(machine.memory_available)));
  list.add("link", local_link_text());
  list.add("RDMA", rdma_text(read_rdma_ports()));
  return list.to_string();
}

struct TypeShare {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

struct ModelFacts {
  std::unique_ptr<model::ModelFile> file;
  Result<model::ModelConfig> config;
  Result<TextParts> text;
  std::map<std::string, TypeShare> types;
  uint64_t parameters = 0;
  std::string licence;
};

Result<ModelFacts> read_facts(const std::string& name, Console& console) {
  ASSIGN_OR_RETURN(const model::ResolvedModel resolved,
                   resolve_with_progress(name, console, false));
  ASSIGN_OR_RETURN(std::unique_ptr<model::ModelFile> file, model::open_model(resolved.path));
  ModelFacts facts{.file = nullptr,
                   .config = model::read_config(*file),
                   .text = make_text(*file),
                   .types = {},
                   .parameters = 0,
                   .licence = resolved.known ? std::string(resolved.known->licence) : ""};
  for (const model::TensorInfo& tensor : file->tensors()) {
    TypeShare& share = facts.types[std::string(tensor.type.name)];
    ++share.tensors;
    share.bytes += tensor.data.size();
    facts.parameters += tensor.shape.elements();
  }
  const model::MetadataValue* licence = file->metadata().find("general.license");
  if (licence != nullptr && licence->string()) facts.licence = *licence->string();
  facts.file = std::move(file);
  return facts;
}

std::string_view scaling_name(tensor::RopeScaling scaling) {
  switch (scaling) {
    case tensor::RopeScaling::kNone:
      return "none";
    case tensor::RopeScaling::kLinear:
      return "linear";
    case tensor::RopeScaling::kLlama3:
      return "llama3";
    case tensor::RopeScaling::kYarn:
      return "yarn";
  }
  return "";
}

Json config_json(const model::ModelConfig& config) {
  const model::LayerSpec& layer = config.layers.front();
  return {{"name", config.display_name},
          {"family", config.family},
          {"architecture", config.architecture},
          {"layers", config.layers.size()},
          {"hidden", config.hidden},
          {"heads", layer.heads},
          {"kv_heads", layer.kv_heads},
          {"head_dim", layer.head_dim},
          {"ffn", layer.ffn},
          {"vocabulary", config.vocab},
          {"context", config.context},
          {"tied_embeddings", config.tied_embeddings},
          {"norm_epsilon", config.norm_epsilon},
          {"rope",
           {{"base", config.rope.theta},
            {"dims", config.rope.rotary_dims},
            {"scaling", scaling_name(config.rope.scaling)},
            {"factor", config.rope.factor}}}};
}

// The special tokens that the tokenizer has, by role.
std::vector<std::pair<std::string, int32_t>> special_tokens(const text::Tokenizer& tokenizer) {
  const text::SpecialTokens& special = tokenizer.special();
  std::vector<std::pair<std::string, int32_t>> list;
  const auto add = [&](const char* role, const std::optional<int32_t>& id) {
    if (id) list.emplace_back(role, *id);
  };
  add("bos", special.bos);
  add("eos", special.eos);
  add("eot", special.eot);
  add("unk", special.unk);
  add("pad", special.pad);
  for (const int32_t id : special.end_of_generation) list.emplace_back("ends an answer", id);
  return list;
}

Json text_json(const TextParts& text) {
  Json special = Json::array();
  for (const auto& [role, id] : special_tokens(*text.tokenizer)) {
    special.push_back({{"role", role}, {"id", id}, {"token", text.tokenizer->token_text(id)}});
  }
  Json json = {{"vocabulary", text.tokenizer->vocabulary_size()},
               {"add_bos", text.tokenizer->special().add_bos},
               {"special_tokens", std::move(special)},
               {"has_chat_template", text.chat_template != nullptr}};
  if (!text.chat_template_source.empty()) json["chat_template"] = text.chat_template_source;
  if (!text.chat_template_status.is_ok()) {
    json["chat_template_error"] = text.chat_template_status.message();
  }
  return json;
}

Json model_json(const ModelFacts& facts) {
  Json types = Json::object();
  for (const auto& [name, share] : facts.types) {
    types[name] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
  }
  Json json = {{"files", facts.file->paths()},
               {"format", facts.file->format_name()},
               {"file_bytes", facts.file->file_bytes()},
               {"tensor_bytes", facts.file->tensor_bytes()},
               {"tensors", facts.file->tensors().size()},
               {"parameters", facts.parameters},
               {"types", std::move(types)},
               {"licence", facts.licence.empty() ? Json(nullptr) : Json(facts.licence)}};
  if (facts.config.is_ok()) {
    json["config"] = config_json(*facts.config);
  } else {
    json["config_error"] = facts.config.status().message();
  }
  if (facts.text.is_ok()) {
    json["text"] = text_json(*facts.text);
  } else {
    json["text_error"] = facts.text.status().message();
  }
  return json;
}

std::string template_text(const TextParts& text, bool is_whole) {
  std::string shown = "yes";
  if (!text.chat_template_status.is_ok()) {
    shown = "unusable: " + text.chat_template_status.message();
  } else if (text.chat_template == nullptr) {
    shown = "none: continues text only (--raw)";
  }
  size_t lines = 0;
  for (size_t start = 0; start < text.chat_template_source.size(); ++lines) {
    if (!is_whole && lines == kTemplateLinesShown) {
      return shown + "\n  ... (--template shows it whole)";
    }
    const size_t end =
        std::min(text.chat_template_source.find('\n', start), text.chat_template_source.size());
    std::string line = text.chat_template_source.substr(start, end - start);
    constexpr size_t kColumns = 96;
    if (!is_whole && line.size() > kColumns) line = line.substr(0, kColumns) + "...";
    shown += "\n  " + escape(line);
    start = end + 1;
  }
  return shown;
}

void add_config(const model::ModelConfig& config, KeyValueList* list) {
  const model::LayerSpec& layer = config.layers.front();
  list->add("name", config.display_name);
  list->add("family", fmt::format("{} (architecture {})", config.family, config.architecture));
  list->add("shape",
            fmt::format("{} layers, hidden {}, {} heads of {}, {} KV heads, feed-forward {}",
                        config.layers.size(), config.hidden, layer.heads, layer.head_dim,
                        layer.kv_heads, layer.ffn));
  list->add("context", fmt::format("{}", config.context));
  list->add("rotary", fmt::format("base {}, {} dimensions, scaling {}", config.rope.theta,
                                  config.rope.rotary_dims, scaling_name(config.rope.scaling)));
  list->add("output head", config.tied_embeddings ? "the embedding (tied)" : "its own matrix");
}

std::string model_text(const ModelFacts& facts, bool shows_template) {
  KeyValueList list;
  if (facts.config.is_ok()) add_config(*facts.config, &list);
  list.add("parameters", format_count(facts.parameters));
  for (const std::string& path : facts.file->paths()) list.add("file", path);
  list.add("format", fmt::format("{}, {}", facts.file->format_name(),
                                 format_bytes(facts.file->file_bytes())));
  for (const auto& [name, share] : facts.types) {
    list.add("type " + name,
             fmt::format("{} in {} tensors", format_bytes(share.bytes), share.tensors));
  }
  list.add("licence", facts.licence.empty() ? "the file does not say" : facts.licence);
  if (facts.text.is_ok()) {
    const TextParts& text = *facts.text;
    list.add("vocabulary", fmt::format("{} tokens", text.tokenizer->vocabulary_size()));
    for (const auto& [role, id] : special_tokens(*text.tokenizer)) {
      list.add("token, " + role, fmt::format("{} {}", id, escape(text.tokenizer->token_text(id))));
    }
    list.add("chat template", template_text(text, shows_template));
  } else {
    list.add("text", "unusable: " + facts.text.status().message());
  }
  if (!facts.config.is_ok()) list.add("cannot run", facts.config.status().message());
  return list.to_string();
}

Result<int> info(const InfoOptions& options, Console& console) {
  if (options.model.empty()) {
    const Machine machine = read_machine();
    console.out.write(options.is_json ? to_text(machine_json(machine)) : machine_text(machine));
    return 0;
  }
  ASSIGN_OR_RETURN(const ModelFacts facts, read_facts(options.model, console));
  console.out.write(options.is_json ? to_text(model_json(facts))
                                    : model_text(facts, options.shows_template));
  return 0;
}

}  // namespace

void add_info(Program& program) {
  CLI::App& command = program.add_command(
      program.root(), {.name = "info",
                       .description = "Show what this machine can do, or what a model is",
                       .examples = "  shoal info\n"
                                   "  shoal info smollm2\n"
                                   "  shoal info ./model.gguf --template\n"
                                   "  shoal info --json"});
  const auto options = std::make_shared<InfoOptions>();
  const CLI::Option* model =
      command.add_option("MODEL", options->model, "A model; none: this machine");
  command.add_flag("--template", options->shows_template, "Show the whole chat template");
  command.add_flag("--json", options->is_json, "Print JSON");
  const auto action = [options, &program] { return info(*options, program.console()); };
  program.set_action(command, action, [options, model] {
    if (!options->model.empty()) return Status::ok();
    if (model->count() > 0) return Status::request("MODEL is empty; leave it out for this machine");
    return options->shows_template ? Status::request("--template needs a MODEL") : Status::ok();
  });
}

}  // namespace shoal::cli
