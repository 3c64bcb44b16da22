// Finding: one thing that `shoal doctor` has looked at, what it is worth, and what to do about it.
//
// Thread rule: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"

namespace shoal::cli {

enum class Level {
  kOk,
  kNote,     // a fact that somebody may be looking for; nothing is wrong
  kWarning,  // works, but slower or less surely than it could
  kProblem,  // a link that was asked for cannot be used
};
// "ok", "note", "warning", "problem".
std::string_view level_name(Level level);

struct Finding {
  std::string id;  // stays the same over versions, for programs: "rdma-port"
  Level level = Level::kOk;
  std::string what{};
  std::string remedy{};  // what to do; empty where there is nothing to do
};

// What the user wants to join, and with what.
struct Wanted {
  std::optional<fabric::LinkKind> link;  // none: --link auto, shared memory or else TCP
  int nodes = 2;                         // of the group, on this machine
  // How bad it is that this kind of link cannot be used.
  Level obstacle(fabric::LinkKind kind) const;
};

}  // namespace shoal::cli
