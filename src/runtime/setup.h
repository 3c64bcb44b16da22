// Setup: what rank 0 tells the other ranks of a new group, so that all of them build one instance.
//
// It travels once, before anything else, in one broadcast message (docs/step_protocol.md). A
// follower then loads the same model, makes the same plan from it, and runs run_follower().
// Thread rule: values; the functions use the group, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/group.h"
#include "plan/plan.h"
#include "runtime/rank/command.h"

namespace shoal::runtime {

// Raised with every change of the message.
inline constexpr uint32_t kSetupVersion = 5;
// Of all that ranks send one another: what fabric::Program::format is for a runtime.
inline constexpr uint32_t kProtocolFormat = kSetupVersion << 16 | kCommandVersion;

struct Setup {
  std::string model_path;  // absolute, as every rank of this machine opens it
  plan::PlanRequest plan;  // ranks, weights, context, KV type
  uint32_t threads = 1;    // per rank
  uint32_t prefill_chunk = 256;
  uint32_t sessions = 0;  // EngineOptions::sessions_max
  uint32_t tokens = 0;    // EngineOptions::tokens
  bool exact = false;
  std::string kernels;  // a kernel path's name; empty: the best of each rank's processor
};

// The message. decode_setup is kRequest when the bytes are no set-up; they are foreign.
std::vector<std::byte> encode_setup(const Setup& setup);
Result<Setup> decode_setup(std::span<const std::byte> bytes);

// On rank 0.
Status send_setup(collective::Group& group, const Setup& setup, const Deadline& deadline);
// On the others. kGroup when the bytes are no setup or do not fit this group.
Result<Setup> receive_setup(collective::Group& group, const Deadline& deadline);

}  // namespace shoal::runtime
