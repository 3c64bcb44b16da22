#include "cli/support/model_setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/limits.h"
#include "base/log.h"
#include "build_info.h"
#include "cli/support/format.h"
#include "cli/support/machine.h"
#include "cli/support/progress_bar.h"
#include "runtime/setup.h"
#include "tensor/kernel_path.h"

namespace shoal::cli {
namespace {

// Without --ctx a model gets at most this many positions: long-context models would otherwise
// reserve many gigabytes for caches that a chat on a desk never fills.
constexpr uint32_t kDefaultContextMax = 8192;
// The contexts of a large cache, as long as the model then takes half of the memory at most.
constexpr uint32_t kLargeCacheContexts = 4;
// How long nodes of a failed group may take to end by themselves: they have nothing to save, and
// one that is stopped never does.
constexpr Nanoseconds kFailedGroupGrace = std::chrono::milliseconds(200);
constexpr Nanoseconds kJoinDeadline = std::chrono::seconds(30);
constexpr std::string_view kNodesByDomain = "numa";
constexpr std::string_view kAutoLink = "auto";

double seconds_since(Nanoseconds start) {
  return std::chrono::duration<double>(SteadyClock::instance().now() - start).count();
}

Result<std::string> absolute_path(const std::string& path) {
  std::array<char, PATH_MAX> buffer{};
  if (realpath(path.c_str(), buffer.data()) == nullptr) {
    return Status::from_errno("cannot resolve the path " + path, errno);
  }
  return std::string(buffer.data());
}

// option: the one that says how many positions the plan has.
Status check_memory(const plan::Plan& plan, uint64_t available, std::string_view option) {
  const uint64_t needed = plan.weight_bytes + plan.kv_bytes;
  if (needed <= available) return Status::ok();
  return Status::request(
      fmt::format("the model needs {} ({} of weights and {} for {} positions of KV cache), but {} "
                  "of memory are available here; give a smaller {} or a smaller model",
                  format_bytes(needed), format_bytes(plan.weight_bytes),
                  format_bytes(plan.kv_bytes), plan.context, format_bytes(available), option));
}

// Gives the plan's cache more positions than one session needs.
Status enlarge_cache(const model::Model& model, const ModelOptions& options, uint64_t available,
                     PlannedModel* planned) {
  const plan::WeightBytes weights = plan::weight_bytes(model.tensors);
  const auto plan_with = [&](uint32_t positions) {
    plan::PlanRequest request = planned->request;
    request.context = positions;
    return plan::make_plan(model.config, weights, request);
  };
  if (options.cache != 0) {
    if (options.cache < planned->context) {
      return Status::request(
          fmt::format("--cache {} is less than one context of {}; give more, or a smaller --ctx",
                      options.cache, planned->context));
    }
    ASSIGN_OR_RETURN(planned->plan, plan_with(options.cache));
    planned->request.context = options.cache;
    return check_memory(planned->plan, available, "--cache");
  }
  for (uint32_t contexts = kLargeCacheContexts; options.wants_large_cache && contexts > 1;
       contexts /= 2) {
    auto plan = plan_with(contexts * planned->context);
    if (!plan.is_ok() || !check_memory(*plan, available / 2, "--ctx").is_ok()) continue;
    planned->plan = std::move(plan).value();
    planned->request.context = contexts * planned->context;
    break;
  }
  return Status::ok();
}

// A number of nodes; none for another text.
std::optional<int> parse_nodes(const std::string& text) {
  int nodes = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, nodes);
  if (error != std::errc() || parsed != end || nodes < 1 || nodes > kGroupSizeMax) return {};
  return nodes;
}

// What is wrong with a value of --nodes.
std::string check_nodes(const std::string& text) {
  if (text == kNodesByDomain || parse_nodes(text)) return {};
  return fmt::format("'{}' is neither a number from 1 to {} nor '{}'", text, kGroupSizeMax,
                     kNodesByDomain);
}

// Takes a checked value of --nodes.
void set_nodes(const std::string& text, ModelOptions* options) {
  options->by_domain = text == kNodesByDomain;
  options->domains.clear();
  if (options->by_domain) options->domains = numa_domains();
  const auto domains = static_cast<int>(std::min(options->domains.size(), size_t{kGroupSizeMax}));
  options->nodes = parse_nodes(text).value_or(std::max(1, domains));
}

// Threads of each node: nodes of domains are as many as the smallest domain has cores.
uint32_t default_threads(const ModelOptions& options) {
  uint32_t threads = usable_cores() / static_cast<uint32_t>(options.nodes);
  for (const NumaDomain& domain : options.domains) {
    threads = std::min(threads, physical_cores_of(domain.cpus));
  }
  return std::max(1U, threads);
}

// What is wrong with a value of --kernels.
std::string check_kernels(const std::string& name) {
  const auto path = tensor::kernel_path_from_name(name);
  if (path && tensor::kernel_path_runs_here(*path)) return {};
  const std::string what = path ? fmt::format("{} needs {}, which this processor does not have",
                                              name, tensor::kernel_path_needs(*path))
                                : fmt::format("there are no kernels '{}'", name);
  return fmt::format("{}; give one of {}", what, fmt::join(kernels_here(), ", "));
}

// The link that --link means.
Result<fabric::LinkKind> choose_link(const ModelOptions& options, Console& console) {
  if (options.link != kAutoLink) return fabric::parse_link_kind(options.link);
  const fabric::LinkChoice choice = fabric::choose_local_link(options.nodes);
  if (!choice.reason.empty() && !options.is_quiet) {
    console.err.write_line(fmt::format("shoal: note: {} instead of shared memory: {}",
                                       fabric::link_kind_name(choice.link), choice.reason));
  }
  return choice.link;
}

// Why a group did not come up, with where to look where a link that was asked for is the cause.
Status with_doctor(const Status& status, const ModelOptions& options) {
  const bool is_of_link = status.code() == StatusCode::kNode || options.link == "verbs";
  if (options.link == kAutoLink || !is_of_link) return status;
  return {status.code(), fmt::format("{}; see `shoal doctor --link {} --nodes {}`",
                                     status.message(), options.link, options.nodes)};
}

}  // namespace

void add_model_name(CLI::App& command, std::string* model) {
  command.add_option("MODEL", *model, "A model file or folder, or a known name such as smollm2")
      ->required();
}

void add_layout_options(CLI::App& command, ModelOptions* options) {
  command
      .add_option_function<std::string>(
          "--nodes", [options](const std::string& text) { set_nodes(text, options); },
          "Nodes to lay the model over: this process and N-1 more on this machine, or numa: one "
          "per NUMA domain, with its threads and memory there")
      ->check(check_nodes)
      ->type_name("N|numa")
      ->default_str("1");
  command
      .add_option("--split", options->split,
                  "Shares of the nodes, such as 3,1: the first gets three times as much")
      ->type_name("A,B,...");
  command
      .add_option("--ctx", options->context,
                  "Positions of context; default: the model's, at most 8192")
      ->check(CLI::Range(int64_t{kContextMin}, model::kContextMax))
      ->type_name("N");
  command
      .add_option(
          "--kv", options->kv,
          "The KV cache's numbers: f16; q8 in half the memory; f32 (the default of --exact)")
      ->check(CLI::IsMember({"f16", "q8", "f32"}))
      ->type_name("{f16,q8,f32}");
  command.add_flag("--exact", options->exact,
                   "Compute in float32 throughout, slowly: the reference path");
}

void add_compute_options(CLI::App& command, ModelOptions* options) {
  command
      .add_option(
          "--link", options->link,
          "How local nodes are joined: shared memory, TCP, verbs (RDMA) or UCX; auto: shm where "
          "the machine lets it")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs", "ucx"}))
      ->type_name("{auto,shm,tcp,verbs,ucx}")
      ->capture_default_str();
  command
      .add_option("--threads", options->threads,
                  "Compute threads of each node; default: the usable cores, shared evenly")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command
      .add_option("--kernels", options->kernels,
                  "Compute with these kernels of those that `shoal info` names; default: the best")
      ->check(check_kernels)
      ->type_name("NAME");
  command.add_flag("-q,--quiet", options->is_quiet, "No progress and no notes on standard error");
}

std::string domains_note(const ModelOptions& options) {
  if (!options.by_domain) return {};
  if (options.domains.empty()) return "this system tells no NUMA domains: one node";
  if (options.nodes == 1) return "this machine has one NUMA domain: one node";
  std::vector<std::string> parts;
  for (int rank = 0; rank < options.nodes; ++rank) {
    const NumaDomain& domain = options.domains[static_cast<size_t>(rank)];
    parts.push_back(fmt::format("{} ({} processors)", domain.number, domain.cpus.size()));
  }
  return fmt::format("{} nodes, on the NUMA domains {}", options.nodes, fmt::join(parts, ", "));
}

Result<model::ResolvedModel> resolve_with_progress(const std::string& name, Console& console,
                                                   bool is_quiet) {
  std::unique_ptr<ProgressBar> bar;
  model::StoreOptions store;
  store.on_progress = [&](const model::KnownModel& known, const model::FetchProgress& progress) {
    using Stage = model::FetchProgress::Stage;
    if (bar == nullptr) {
      if (!is_quiet) {
        console.err.write_line(fmt::format("Fetching {} once, from {} (licence: {})", known.title,
                                           known.source, known.licence));
      }
      bar = std::make_unique<ProgressBar>(
          console.err, ProgressBarOptions{.label = fmt::format("fetching {}", known.name),
                                          .total = progress.bytes_total,
                                          .is_quiet = is_quiet});
    }
    bar->set_label(progress.stage == Stage::kWaiting     ? "another process is fetching it"
                   : progress.stage == Stage::kUnpacking ? fmt::format("unpacking {}", known.name)
                                                         : fmt::format("fetching {}", known.name));
    bar->set_total(progress.bytes_total);
    bar->update(progress.bytes);
  };
  auto resolved = model::resolve_model(name, store);
  if (bar != nullptr && resolved.is_ok()) bar->finish();
  return resolved;
}

Result<PlannedModel> plan_model(const model::Model& model, const ModelOptions& options) {
  PlannedModel planned;
  planned.request.ranks = static_cast<uint32_t>(options.nodes);
  planned.request.kv_type = options.exact ? plan::KvType::kF32 : plan::KvType::kF16;
  if (!options.kv.empty()) planned.request.kv_type = *plan::kv_type_from_name(options.kv);
  if (options.exact && planned.request.kv_type != plan::KvType::kF32) {
    return Status::request(
        fmt::format("--exact computes in float32 throughout: no --kv {}", options.kv));
  }
  if (options.exact && !options.kernels.empty()) {
    return Status::request("--exact is a kernel path of its own: no --kernels");
  }
  if (!options.split.empty()) {
    ASSIGN_OR_RETURN(planned.request.weights, plan::parse_split(options.split));
  }
  const plan::WeightBytes weights = plan::weight_bytes(model.tensors);
  const uint32_t trained = model.config.context;
  const bool is_default = options.context == 0;
  planned.request.context = is_default ? std::min(trained, kDefaultContextMax) : options.context;
  if (planned.request.context > trained) {
    return Status::request(
        fmt::format("a context of {} is more than the {} positions that this model was made for; "
                    "give a smaller {}",
                    planned.request.context, trained, options.context_option));
  }
  ASSIGN_OR_RETURN(planned.plan, plan::make_plan(model.config, weights, planned.request));
  const uint64_t available = available_memory();
  while (is_default && planned.request.context > 512 &&
         !check_memory(planned.plan, available, "--ctx").is_ok()) {
    planned.request.context /= 2;
    ASSIGN_OR_RETURN(planned.plan, plan::make_plan(model.config, weights, planned.request));
  }
  RETURN_IF_ERROR(check_memory(planned.plan, available, options.context_option));
  planned.context = planned.request.context;
  if (planned.context < trained && is_default) {
    planned.note = fmt::format("context {} of the {} that the model was made for (--ctx sets it)",
                               planned.context, trained);
  }
  RETURN_IF_ERROR(enlarge_cache(model, options, available, &planned));
  return planned;
}

std::string shorter_prompt_remedy(uint32_t context, const model::Model& model) {
  return context < model.config.context
             ? "give a larger --ctx or a shorter prompt"
             : "give a shorter prompt: the model was made for no larger context";
}

void silence_group_log() {
  if (std::getenv("SHOAL_LOG") == nullptr) spdlog::set_level(spdlog::level::off);
}

fabric::Program this_program() { return {runtime::kProtocolFormat, build_name()}; }

std::string build_name() { return fmt::format("{} ({})", kBuildVersion, kBuildCommit); }

Result<std::string> own_executable() {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t length = readlink("/proc/self/exe", buffer.data(), buffer.size() - 1);
  if (length <= 0) return Status::from_errno("cannot read /proc/self/exe", errno);
  return std::string(buffer.data(), static_cast<size_t>(length));
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const ModelOptions& options,
                                                       Console& console) {
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(options));
  ASSIGN_OR_RETURN(const model::ResolvedModel resolved,
                   resolve_with_progress(options.model, console, options.is_quiet));
  ASSIGN_OR_RETURN(loaded->path_, absolute_path(resolved.path));
  const Nanoseconds start = SteadyClock::instance().now();
  RETURN_IF_ERROR(loaded->read(console));
  RETURN_IF_ERROR(loaded->start_nodes(console));
  RETURN_IF_ERROR(loaded->load_weights(console));
  loaded->load_seconds_ = seconds_since(start);
  return loaded;
}

Status LoadedModel::read(Console& console) {
  ASSIGN_OR_RETURN(model_, model::load_model(path_));
  ASSIGN_OR_RETURN(text_, make_text(*model_->file));
  if (tokens() > model_->config.vocab) {
    return Status::request(
        fmt::format("{}: the tokenizer has {} tokens, the output head only {}; the files do not "
                    "belong together",
                    path_, tokens(), model_->config.vocab));
  }
  ASSIGN_OR_RETURN(planned_, plan_model(*model_, options_));
  const uint32_t cores = usable_cores();
  const auto nodes = static_cast<uint32_t>(options_.nodes);
  threads_ = options_.threads != 0 ? options_.threads : default_threads(options_);
  if (options_.is_quiet) return Status::ok();
  if (const std::string note = domains_note(options_); !note.empty()) {
    console.err.write_line("shoal: note: " + note);
  }
  if (!planned_.note.empty()) console.err.write_line("shoal: note: " + planned_.note);
  if (options_.threads != 0 && options_.threads * nodes > cores) {
    console.err.write_line(
        fmt::format("shoal: note: {} nodes of {} threads on {} usable cores wait for each other",
                    nodes, threads_, cores));
  }
  return Status::ok();
}

// Output rows beyond the tokenizer's vocabulary are padding.
uint32_t LoadedModel::tokens() const {
  return static_cast<uint32_t>(text_.tokenizer->vocabulary_size());
}

Status LoadedModel::start_nodes(Console& console) {
  silence_group_log();
  if (options_.nodes == 1) {
    single_ = fabric::make_single_fabric("node-0");
  } else {
    fabric::LocalGroupOptions launch;
    launch.size = options_.nodes;
    ASSIGN_OR_RETURN(launch.link, choose_link(options_, console));
    ASSIGN_OR_RETURN(const std::string executable, own_executable());
    launch.child_command = {executable, "node"};
    if (options_.by_domain) launch.child_command.emplace_back("--numa");
    launch.exit_grace = kFailedGroupGrace;
    launch.fabric.program = this_program();
    launch.fabric.threads_per_rank = static_cast<int>(threads_);
    auto group = fabric::LocalGroup::launch(std::move(launch), Deadline::after(kJoinDeadline));
    if (!group.is_ok()) return with_doctor(group.status(), options_);
    local_group_ = std::move(*group);
  }
  group_ = std::make_unique<collective::Group>(fabric());
  if (options_.nodes == 1) return Status::ok();
  if (options_.by_domain) {
    // After the launch, since processes inherit a binding.
    ASSIGN_OR_RETURN(const NumaBinding binding, bind_to_domain(options_.domains.front()));
    if (!binding.holds_memory && !options_.is_quiet) {
      console.err.write_line(
          "shoal: note: this system does not let memory be bound to NUMA domains; it comes from "
          "the domain of the thread that first writes to it");
    }
  }
  const runtime::Setup setup{.model_path = path_,
                             .plan = planned_.request,
                             .threads = threads_,
                             .prefill_chunk = runtime::EngineOptions{}.prefill_chunk,
                             .sessions = options_.sessions,
                             .tokens = tokens(),
                             .exact = options_.exact,
                             .kernels = options_.kernels};
  return runtime::send_setup(*group_, setup, Deadline::after(fabric().clock(), kJoinDeadline));
}

Status LoadedModel::load_weights(Console& console) {
  ProgressBar bar(console.err, {.label = fmt::format("loading {}", model_->config.display_name),
                                .total = planned_.plan.ranks.front().weight_bytes,
                                .is_quiet = options_.is_quiet});
  runtime::EngineOptions engine_options;
  engine_options.threads = threads_;
  // A node that keeps to a domain shares its processors with no other.
  engine_options.threads_on_machine =
      options_.by_domain ? threads_ : threads_ * static_cast<uint32_t>(options_.nodes);
  engine_options.exact = options_.exact;
  engine_options.kernels = tensor::kernel_path_from_name(options_.kernels);
  engine_options.tokens = tokens();
  engine_options.sessions_max = options_.sessions;
  engine_options.on_load = [&](uint64_t done, uint64_t total) {
    bar.set_total(total);
    bar.update(done);
  };
  ASSIGN_OR_RETURN(engine_,
                   runtime::Engine::create(*model_, planned_.plan, *group_, engine_options));
  bar.finish();
  return Status::ok();
}

std::string LoadedModel::kernels_name() const {
  if (options_.exact) return std::string(tensor::kernel_path_name(tensor::KernelPath::kExact));
  if (!options_.kernels.empty()) return options_.kernels;
  return std::string(tensor::kernel_path_name(tensor::best_kernel_path()));
}

std::string LoadedModel::kernels_text() const {
  return fmt::format("{} (not on this processor: {})", kernels_name(),
                     fmt::join(kernels_not_here(), ", "));
}

Json LoadedModel::describe_layout() {
  const runtime::EngineStats stats = engine_->stats();
  Json nodes = Json::array();
  for (size_t rank = 0; rank < stats.nodes.size(); ++rank) {
    const runtime::NodeStats& node = stats.nodes[rank];
    nodes.push_back({{"rank", rank},
                     {"name", node.name},
                     {"weight_bytes", node.weight_bytes},
                     {"kv_bytes", node.kv_bytes}});
    if (stats.nodes.size() > 1 && options_.by_domain) {
      nodes.back()["numa_domain"] = options_.domains[rank].number;
    }
  }
  return {{"nodes", std::move(nodes)},     {"link", link_name()},
          {"context", engine_->context()}, {"exact", options_.exact},
          {"kernels", kernels_name()},     {"kernels_not_here", kernels_not_here()},
          {"threads_per_node", threads_},  {"load_seconds", load_seconds_}};
}

Status LoadedModel::close() {
  engine_.reset();
  group_.reset();
  if (local_group_ == nullptr) return Status::ok();
  const Status ended = local_group_->wait_for_exit(Deadline::after(std::chrono::seconds(5)));
  local_group_.reset();
  return ended;
}

}  // namespace shoal::cli
