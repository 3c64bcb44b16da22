#include "runtime/rank/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal::runtime {
namespace {

constexpr uint32_t kMagic = 0x5053'4853;  // "SHSP"

template <typename T>
void append(T value, std::vector<std::byte>* out) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out->insert(out->end(), bytes.begin(), bytes.end());
}

Status bad(std::string_view what) { return Status::request(fmt::format("bad command: {}", what)); }

Result<BatchItem> read_item(ByteReader& reader) {
  BatchItem item;
  ASSIGN_OR_RETURN(item.session, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(item.position, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(item.tokens, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t outputs, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(item.inverse_temperature, reader.read<float>());
  if (item.tokens == 0) return bad("an item has no tokens");
  if (outputs > static_cast<uint32_t>(Outputs::kAll)) return bad("unknown kind of outputs");
  if (!(item.inverse_temperature >= 0) || !std::isfinite(item.inverse_temperature)) {
    return bad("the inverse temperature is negative or not finite");
  }
  item.outputs = static_cast<Outputs>(outputs);
  return item;
}

bool takes_blocks(Op op) { return op == Op::kOpen || op == Op::kClose || op == Op::kDrop; }

Status read_blocks(ByteReader& reader, uint32_t count, std::vector<uint32_t>* blocks) {
  blocks->reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const uint32_t block, reader.read<uint32_t>());
    blocks->push_back(block);
  }
  return Status::ok();
}

}  // namespace

size_t Command::tokens() const {
  size_t sum = 0;
  for (const BatchItem& item : items) sum += item.tokens;
  return sum;
}

size_t Command::outputs() const {
  size_t sum = 0;
  for (const BatchItem& item : items) {
    if (item.outputs == Outputs::kLast) ++sum;
    if (item.outputs == Outputs::kAll) sum += item.tokens;
  }
  return sum;
}

tensor::Stage Command::stage() const {
  const bool is_decode = std::all_of(items.begin(), items.end(), [this](const BatchItem& item) {
    return item.tokens == 1 || (mode == OutputMode::kSummary && item.outputs == Outputs::kAll);
  });
  return is_decode ? tensor::Stage::kDecode : tensor::Stage::kPrefill;
}

void encode_command(const Command& command, std::span<const float> activations,
                    std::vector<std::byte>* message) {
  message->clear();
  append(kMagic, message);
  append(kCommandVersion, message);
  append(static_cast<uint8_t>(command.op), message);
  append(static_cast<uint8_t>(command.mode), message);
  append(command.number, message);
  append(command.session, message);
  append(command.length, message);
  append(static_cast<uint32_t>(command.items.size()), message);
  append(static_cast<uint32_t>(command.blocks.size()), message);
  for (const BatchItem& item : command.items) {
    append(item.session, message);
    append(item.position, message);
    append(item.tokens, message);
    append(static_cast<uint32_t>(item.outputs), message);
    append(item.inverse_temperature, message);
  }
  for (const uint32_t block : command.blocks) append(block, message);
  const auto bytes = std::as_bytes(activations);
  message->insert(message->end(), bytes.begin(), bytes.end());
}

Status decode_command(std::span<const std::byte> message, const CommandLimits& limits,
                      Command* command, std::span<const std::byte>* activations) {
  ByteReader reader(message);
  Command out;
  out.items.swap(command->items);  // for its memory
  out.items.clear();
  out.blocks.swap(command->blocks);
  out.blocks.clear();
  ASSIGN_OR_RETURN(const uint32_t magic, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint16_t version, reader.read<uint16_t>());
  if (magic != kMagic) return bad("wrong magic number");
  if (version != kCommandVersion) return bad(fmt::format("version {} is not supported", version));
  ASSIGN_OR_RETURN(const uint8_t op, reader.read<uint8_t>());
  ASSIGN_OR_RETURN(const uint8_t mode, reader.read<uint8_t>());
  ASSIGN_OR_RETURN(out.number, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(out.session, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(out.length, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t items, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t blocks, reader.read<uint32_t>());
  if (op < static_cast<uint8_t>(Op::kStep) || op > static_cast<uint8_t>(Op::kDrop)) {
    return bad(fmt::format("unknown operation {}", op));
  }
  if (mode > static_cast<uint8_t>(OutputMode::kFull)) return bad("unknown output mode");
  out.op = static_cast<Op>(op);
  out.mode = static_cast<OutputMode>(mode);
  if ((out.op == Op::kStep) != (items > 0)) return bad("items do not fit the operation");
  if (items > limits.items_max) {
    return bad(fmt::format("{} items, at most {} are allowed", items, limits.items_max));
  }
  if (blocks > 0 && !takes_blocks(out.op)) return bad("blocks do not fit the operation");
  if (blocks > limits.blocks_max) {
    return bad(fmt::format("{} blocks, at most {} are allowed", blocks, limits.blocks_max));
  }
  out.items.reserve(items);
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < items; ++i) {
    ASSIGN_OR_RETURN(const BatchItem item, read_item(reader));
    for (const BatchItem& other : out.items) {
      if (other.session == item.session) return bad("a session comes twice");
    }
    tokens += item.tokens;
    out.items.push_back(item);
  }
  RETURN_IF_ERROR(read_blocks(reader, blocks, &out.blocks));
  if (tokens > limits.tokens_max) {
    return bad(fmt::format("{} tokens, at most {} are allowed", tokens, limits.tokens_max));
  }
  if (out.mode == OutputMode::kSummary && out.outputs() > limits.summaries_max) {
    return bad(fmt::format("{} outputs to summarize, at most {} are allowed", out.outputs(),
                           limits.summaries_max));
  }
  if (reader.left() != tokens * limits.hidden * sizeof(float)) {
    return bad(fmt::format("{} bytes of activations for {} tokens", reader.left(), tokens));
  }
  ASSIGN_OR_RETURN(*activations, reader.read_bytes(reader.left()));
  *command = std::move(out);
  return Status::ok();
}

}  // namespace shoal::runtime
