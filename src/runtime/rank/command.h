// Command: what rank 0 tells the others to do next, and the bytes that it travels in.
//
// A step's command carries the embeddings of its tokens, so that only rank 0 needs the embedding
// table. The bytes are foreign: decode_command checks every count before it is used; whether the
// sessions and positions fit the receiver's state is checked by RankInstance.
// Format: docs/step_protocol.md. Thread rule: values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/machine/step_clock.h"

namespace shoal::runtime {

enum class Op : uint8_t {
  kStep = 1,
  kOpen = 2,         // session; length, blocks: the positions that it begins with
  kClose = 3,        // session; blocks: those of its blocks that are kept
  kTruncate = 4,     // session, length
  kFetchLogits = 5,  // length: a row of the last step's outputs, now wanted in full
  kShutdown = 6,
  kTakeTimes = 7,   // what the workers have counted (measure/collect.h)
  kStartTrace = 8,  // from now on they keep what they do
  kTakeTrace = 9,   // which ends that
  kDrop = 10,       // blocks that were kept
};

// Which of an item's tokens give logits.
enum class Outputs : uint8_t { kNone = 0, kLast = 1, kAll = 2 };

// How they come to rank 0.
enum class OutputMode : uint8_t {
  kSummary = 0,  // best candidates and log-sum-exp of every rank
  kFull = 1,     // all logits
};

struct BatchItem {
  uint32_t session = 0;
  uint32_t position = 0;  // of the first token: what the session holds already
  uint32_t tokens = 0;
  Outputs outputs = Outputs::kLast;
  // kSummary: what log_sum_exp is taken at; 0: it is not wanted.
  float inverse_temperature = 0;
};

// Raised with every change of a command's bytes or meaning.
inline constexpr uint16_t kCommandVersion = 3;

struct Command {
  Op op = Op::kStep;
  OutputMode mode = OutputMode::kSummary;
  uint64_t number = 0;  // counts commands, from 1
  uint32_t session = 0;
  uint32_t length = 0;
  std::vector<BatchItem> items;  // kStep
  std::vector<uint32_t> blocks;  // kOpen, kClose, kDrop: of the KV cache

  size_t tokens() const;
  size_t outputs() const;  // rows of logits
  // kDecode: of every session one token, or several that are all summarized (drafted ones).
  tensor::Stage stage() const;
};

struct CommandLimits {
  uint32_t items_max = 0;
  uint32_t tokens_max = 0;
  uint32_t hidden = 0;
  uint32_t blocks_max = 0;
  uint32_t summaries_max = 0;  // outputs in OutputMode::kSummary
};

// activations: [tokens, hidden] for kStep, else empty. Reuses the memory of *message.
void encode_command(const Command& command, std::span<const float> activations,
                    std::vector<std::byte>* message);

// kRequest saying which rule the bytes break; *command is then without meaning. *activations is
// borrowed from the message, little-endian float32. Reuses the memory of *command.
Status decode_command(std::span<const std::byte> message, const CommandLimits& limits,
                      Command* command, std::span<const std::byte>* activations);

}  // namespace shoal::runtime
