// `shoal doctor`: what keeps nodes from being joined, or from being joined faster, and the
// remedies.
#include <fmt/format.h>

#include <memory>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/findings.h"
#include "cli/support/json_output.h"

namespace shoal::cli {
namespace {

struct DoctorOptions {
  std::string link = "auto";
  int nodes = 2;
  bool is_json = false;
};

Json json_of(const std::vector<Finding>& findings, const DoctorOptions& options, bool is_ok) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"id", finding.id},
                    {"level", level_name(finding.level)},
                    {"what", finding.what},
                    {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  return {{"link", options.link},
          {"nodes", options.nodes},
          {"ok", is_ok},
          {"findings", std::move(list)}};
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<9}{}\n", level_name(finding.level), finding.what);
    if (!finding.remedy.empty()) text += fmt::format("{:<9}-> {}\n", "", finding.remedy);
  }
  return text;
}

Result<int> examine(const DoctorOptions& options, Console& console) {
  Wanted wanted{.link = std::nullopt, .nodes = options.nodes};
  if (options.link != "auto") {
    ASSIGN_OR_RETURN(wanted.link, fabric::parse_link_kind(options.link));
  }
  const std::vector<Finding> findings = judge(read_facts(options.nodes), wanted);
  const Status status = verdict(findings, wanted);
  console.out.write(options.is_json ? to_text(json_of(findings, options, status.is_ok()))
                                    : text_of(findings));
  RETURN_IF_ERROR(status);
  return 0;
}

}  // namespace

void add_doctor(Program& program) {
  CLI::App& command = program.add_command(
      program.root(),
      {.name = "doctor",
       .description = "Say what keeps nodes from being joined, and what to do about it",
       .examples = "  shoal doctor\n"
                   "  shoal doctor --nodes 8 --json\n"
                   "  shoal doctor --link verbs"});
  const auto options = std::make_shared<DoctorOptions>();
  command
      .add_option("--link", options->link,
                  "The link that is wanted: what keeps it from being used is a problem, and the "
                  "exit status 1")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs", "ucx"}))
      ->type_name("{auto,shm,tcp,verbs,ucx}")
      ->capture_default_str();
  command.add_option("--nodes", options->nodes, "Nodes of the group, on this machine")
      ->check(CLI::Range(2, kGroupSizeMax))
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(command, [options, &program] { return examine(*options, program.console()); });
}

}  // namespace shoal::cli
