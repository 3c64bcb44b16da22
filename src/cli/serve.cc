// `shoal serve MODEL`: the HTTP API over one model, until it is told to end.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "base/os/descriptor_limit.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/support/files.h"
#include "cli/support/format.h"
#include "cli/support/model_setup.h"
#include "cli/support/signals.h"
#include "runtime/serve/scheduler.h"
#include "server/anthropic/routes.h"
#include "server/embed/routes.h"
#include "server/http/http_server.h"
#include "server/ollama/routes.h"
#include "server/openai/routes.h"
#include "server/own/routes.h"
#include "server/responses/routes.h"

namespace shoal::cli {
namespace {

constexpr size_t kKeyFileBytesMax = size_t{1} << 20;
constexpr size_t kConnectionsMax = 512;
// Files and sockets beside the connections: the model, the nodes.
constexpr size_t kOtherDescriptors = 64;
// How often the group of nodes is looked at while nobody asks for anything.
constexpr int kWatchMs = 500;
constexpr size_t kQueueMax = size_t{1} << 20;
constexpr uint32_t kGraceSecondsMax = 24 * 60 * 60;
constexpr Nanoseconds kCancelDeadline = std::chrono::seconds(10);

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string key_file;
  server::TlsFiles tls;
  std::vector<std::string> origins;
  std::string name;
  size_t queue_max = runtime::SchedulerOptions{}.queue_max;
  uint32_t grace_seconds = 30;
  bool has_no_prefix_cache = false;
  std::string speculation = "ngram";

  ServeOptions() {
    model.sessions = 32;
    model.wants_large_cache = true;
  }
};

// As requests name the model: what the user typed, without the folder and the ending of a file.
std::string served_name(const ServeOptions& options) {
  if (!options.name.empty()) return options.name;
  std::filesystem::path path(options.model.model);
  if (path.filename().empty()) path = path.parent_path();
  const bool is_file = path.extension() == ".gguf";
  return (is_file ? path.stem() : path.filename()).string();
}

Status check(const ServeOptions& options) {
  if (options.tls.certificate.empty() == options.tls.key.empty()) return Status::ok();
  return Status::request("--tls-cert and --tls-key belong together: give both or neither");
}

Result<server::AccessOptions> read_access(const ServeOptions& options) {
  server::AccessOptions access{.keys = {}, .origins = options.origins};
  ASSIGN_OR_RETURN(const bool is_loopback, server::is_loopback_host(options.host));
  if (options.key_file.empty()) {
    if (is_loopback) return access;
    return Status::request(fmt::format(
        "--host {} can be reached from other machines, so clients need a key; give one with "
        "--api-key-file FILE (`openssl rand -hex 32 > FILE` makes it), or listen on 127.0.0.1",
        options.host));
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(options.key_file, kKeyFileBytesMax));
  auto keys = server::ApiKeys::parse(text);
  if (!keys.is_ok()) return keys.status().with_context("--api-key-file " + options.key_file);
  access.keys = std::move(keys).value();
  return access;
}

// Where a client on this machine finds the server, also when it listens on all addresses.
std::string local_url(const server::HttpServer& http, const ServeOptions& options) {
  const bool is_any = options.host == "0.0.0.0" || options.host == "::";
  const std::string_view scheme = options.tls.certificate.empty() ? "http" : "https";
  return is_any ? fmt::format("{}://127.0.0.1:{}", scheme, http.port()) : http.url();
}

std::string first_lines(const std::string& url, const ServeOptions& options, bool has_chat) {
  const std::string name = served_name(options);
  const bool has_keys = !options.key_file.empty();
  const std::string header = has_keys ? " -H \"Authorization: Bearer $SHOAL_API_KEY\"" : "";
  const std::string python_key = has_keys ? R"(os.environ["SHOAL_API_KEY"])" : R"("none")";
  const std::string curl =
      has_chat ? fmt::format(R"(curl {}/v1/chat/completions{} -d '{{"model": "{}", "messages": )"
                             R"([{{"role": "user", "content": "Hello!"}}]}}')",
                             url, header, name)
               : fmt::format(R"(curl {}/v1/completions{} -d '{{"model": "{}", "prompt": )"
                             R"("Once upon a time"}}')",
                             url, header, name);
  const std::string call =
      has_chat ? fmt::format(R"(c.chat.completions.create(model="{}", messages=[{{"role": "user", )"
                             R"("content": "Hello!"}}]).choices[0].message.content)",
                             name)
               : fmt::format(R"(c.completions.create(model="{}", prompt="Once upon a time"))"
                             R"(.choices[0].text)",
                             name);
  const std::string python = fmt::format(
      R"(python3 -c 'import os, openai; c = openai.OpenAI(base_url="{}/v1", api_key={}); )"
      R"(print({})')",
      url, python_key, call);
  return fmt::format(
      "Try it:\n  {}\n  {}\n  In a chat client: OpenAI-compatible, base URL {}/v1, "
      "model {}, API key {}\n",
      curl, python, url, name, has_keys ? "one of the file" : "any");
}

server::ModelFacts facts_of(const model::Model& model, const TextParts& text) {
  server::ModelFacts facts{
      .format = model.file->format() == model::FileFormat::kGguf ? "gguf" : "safetensors",
      .family = model.config.family,
      .quantization = {},
      .parameters_text = {},
      .chat_template = text.chat_template_source};
  std::map<std::string_view, uint64_t> types;
  for (const model::TensorInfo& tensor : model.file->tensors()) {
    types[tensor.type.name] += tensor.data.size();
    facts.bytes += tensor.data.size();
    facts.parameters += tensor.shape.elements();
  }
  uint64_t most = 0;
  for (const auto& [name, bytes] : types) {
    if (bytes > most) facts.quantization = name;
    most = std::max(most, bytes);
  }
  facts.parameters_text = format_count(facts.parameters);
  return facts;
}

// All that serves, in the order of dependency: what is destroyed first stands last.
class Server {
 public:
  Server(const ServeOptions& options, Console& console)
      : options_(options), console_(console), metrics_(served_name(options)) {}

  Status run() {
    RETURN_IF_ERROR(listen());
    note(fmt::format("listening on {}; loading {}", http_->url(), options_.model.model));
    RETURN_IF_ERROR(load());
    console_.out.write(first_lines(local_url(*http_, options_), options_,
                                   loaded_->text().chat_template != nullptr));
    if (loaded_->text().chat_template != nullptr) note(answer_format_note());
    note(fmt::format("ready in {}; Ctrl-C ends it", format_seconds(loaded_->load_seconds())));
    wait_for_signal();
    return end();
  }

 private:
  void note(const std::string& text) {
    if (!options_.model.is_quiet) console_.err.write_line("shoal: " + text);
  }

  std::string answer_format_note() const {
    const text::AnswerFormat format =
        text::find_answer_format(loaded_->text().chat_template_source);
    return fmt::format(
        "tools are called in the format {}, told by {}; thoughts: {}", text::name(format.calls),
        format.has_tools ? "the model's template" : "a system text", text::name(format.thoughts));
  }

  Status listen() {
    ASSIGN_OR_RETURN(server::AccessOptions access, read_access(options_));
    if (access.keys && options_.tls.certificate.empty()) {
      note("note: keys and prompts travel unencrypted; --tls-cert and --tls-key encrypt them");
    }
    RETURN_IF_ERROR(reserve_descriptors(kConnectionsMax + server::HttpOptions::kTurnedAwayMax +
                                        kOtherDescriptors));
    ASSIGN_OR_RETURN(text_worker_, server::Workers::start(1));
    service_ = std::make_unique<server::Service>(
        server::ServiceNames{
            .model = served_name(options_),
            .fingerprint = fmt::format("shoal-{}-{}", kBuildCommit, options_.model.nodes),
            .version = kBuildVersion},
        *text_worker_, metrics_);
    server::Router router;
    server::add_openai_routes(*service_, &router);
    server::add_anthropic_routes(*service_, &router);
    server::add_ollama_routes(*service_, &router);
    server::add_embedding_routes(*service_, &router);
    server::add_responses_routes(*service_, &router);
    server::add_own_routes(*service_, &router);
    server::HttpOptions http{.host = options_.host, .port = options_.port};
    http.connections_max = kConnectionsMax;
    http.tls = options_.tls;
    http.on_answer = [this](std::string_view route, int status, double) {
      metrics_.on_http(route, status);
    };
    ASSIGN_OR_RETURN(http_, server::HttpServer::listen(std::move(http), std::move(router),
                                                       server::Access(std::move(access))));
    return Status::ok();
  }

  Status load() {
    ASSIGN_OR_RETURN(loaded_, LoadedModel::load(options_.model, console_));
    runtime::SchedulerOptions scheduler;
    scheduler.queue_max = options_.queue_max;
    scheduler.prefix_cache = !options_.has_no_prefix_cache;
    scheduler.speculation =
        options_.speculation == "off" ? runtime::Speculation::kOff : runtime::Speculation::kNgram;
    ASSIGN_OR_RETURN(scheduler_, runtime::Scheduler::create(loaded_->engine(), scheduler));
    generator_ = server::make_generator(*scheduler_);
    const TextParts& text = loaded_->text();
    const model::ModelConfig& config = loaded_->model().config;
    ASSIGN_OR_RETURN(grammars_, text::GrammarCompiler::create(*text.tokenizer));
    const std::string no_chat =
        text.chat_template_status.is_ok()
            ? "the model has no chat template, so it was not made for chats: use /v1/completions, "
              "or serve a file that carries its template (GGUF: tokenizer.chat_template; beside "
              "safetensors: chat_template.jinja)"
            : "the model's chat template is unusable: " + text.chat_template_status.message();
    service_->set_ready({.tokenizer = text.tokenizer.get(),
                         .chat_template = text.chat_template.get(),
                         .no_chat = no_chat,
                         .grammars = grammars_.get(),
                         .generator = generator_.get(),
                         .context = loaded_->context(),
                         .facts = facts_of(loaded_->model(), text),
                         .embedding = {.size = config.hidden,
                                       .pooling = config.pooling,
                                       .unserved = config.unserved_embedding}});
    return Status::ok();
  }

  // A node that dies while nobody asks for anything is noticed too.
  void wait_for_signal() {
    const SignalScope signals;
    while (!SignalScope::should_stop()) {
      pollfd waiting{.fd = SignalScope::wake_fd(), .events = POLLIN, .revents = 0};
      (void)poll(&waiting, 1, kWatchMs);
      const Status group = loaded_->group_status();
      if (!group.is_ok()) service_->set_failed(group);
      if (service_->phase() == server::Service::Phase::kFailed && !has_told_failure_) {
        has_told_failure_ = true;
        console_.err.write_line("shoal: the model has failed: " + service_->failure() +
                                "; requests are refused until the server is started anew");
      }
    }
  }

  // From here on a second signal has its default effect: it ends the program at once.
  Status end() {
    note("letting the answers under way end; a second signal ends at once");
    service_->set_draining();
    const Status drained =
        http_->drain(Deadline::after(std::chrono::seconds(options_.grace_seconds)));
    http_ = nullptr;
    // Whoever was cut off has cancelled its request: these end within a step. Their last texts may
    // still ask the scheduler for something.
    (void)scheduler_->drain(Deadline::after(kCancelDeadline));
    text_worker_ = nullptr;
    scheduler_ = nullptr;
    Status closed = has_told_failure_ ? Status::ok() : loaded_->close();
    if (!drained.is_ok()) console_.err.write_line("shoal: " + drained.message());
    return closed;
  }

  const ServeOptions& options_;
  Console& console_;
  server::Metrics metrics_;
  std::unique_ptr<server::Workers> text_worker_;
  std::unique_ptr<server::Service> service_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<text::GrammarCompiler> grammars_;
  std::unique_ptr<server::Generator> generator_;
  std::unique_ptr<runtime::Scheduler> scheduler_;
  std::unique_ptr<server::HttpServer> http_;
  bool has_told_failure_ = false;
};

void add_options(CLI::App& command, ServeOptions* options) {
  add_model_name(command, &options->model.model);
  command.add_option("--host", options->host, "The address to listen on; all: 0.0.0.0, with keys")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command.add_option("--port", options->port, "The port to listen on; 0: any free one")
      ->check(CLI::Range(0U, 65535U))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--api-key-file", options->key_file,
                  "Let in only who has a key of FILE: one a line, # begins a comment")
      ->type_name("FILE");
  command
      .add_option("--tls-cert", options->tls.certificate,
                  "Encrypt connections with this certificate, the chain behind it (PEM)")
      ->type_name("FILE");
  command.add_option("--tls-key", options->tls.key, "The certificate's key (PEM, no password)")
      ->type_name("FILE");
  command
      .add_option("--cors-origin", options->origins,
                  "Let web pages of this origin in, such as http://localhost:3000; * for all")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  command
      .add_option("--name", options->name,
                  "The model's name in requests; default: as MODEL, without folder and ending")
      ->type_name("NAME");
  command
      .add_option("--queue", options->queue_max,
                  "Requests that may wait; more are told to come back (429)")
      ->check(CLI::Range(size_t{1}, kQueueMax))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--grace", options->grace_seconds,
                  "Seconds that answers under way get to end after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0U, kGraceSecondsMax))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--sessions", options->model.sessions,
                  "Requests that are computed at once; others wait")
      ->check(CLI::Range(1U, runtime::EngineOptions::kSessionsMax))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--cache", options->model.cache,
                  "Positions of the KV cache over all requests; default: up to 4 contexts")
      ->check(CLI::Range(int64_t{kContextMin}, model::kContextMax))
      ->type_name("N");
  command.add_flag("--no-prefix-cache", options->has_no_prefix_cache,
                   "Compute every prompt from its beginning");
  command
      .add_option("--speculation", options->speculation,
                  "Draft tokens that repeat what was said before, where that pays: ngram; or off")
      ->check(CLI::IsMember({"off", "ngram"}))
      ->type_name("{off,ngram}")
      ->capture_default_str();
  add_layout_options(command, &options->model);
  add_compute_options(command, &options->model);
}

}  // namespace

void add_serve(Program& program) {
  CLI::App& command = program.add_command(
      program.root(),
      {.name = "serve",
       .description = "Serve a model to clients of OpenAI's API",
       .examples =
           "  shoal serve smollm2\n"
           "  shoal serve smollm2 --nodes 2 --port 8081\n"
           "  shoal serve ./model.gguf --name my-model --cors-origin http://localhost:3000\n"
           "  shoal serve smollm2 --host 0.0.0.0 --api-key-file keys.txt"});
  // Shared: the options live as long as the action that reads them.
  const auto options = std::make_shared<ServeOptions>();
  add_options(command, options.get());
  const auto action = [options, &program]() -> Result<int> {
    RETURN_IF_ERROR(Server(*options, program.console()).run());
    return 0;
  };
  program.set_action(command, action, [options] { return check(*options); });
}

}  // namespace shoal::cli
