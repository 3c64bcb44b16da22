#include "runtime/setup.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/limits.h"
#include "tensor/kernel_path.h"

namespace shoal::runtime {
namespace {

constexpr uint32_t kMagic = 0x5553'4853;  // "SHSU"
constexpr size_t kPathBytesMax = 4096;
constexpr size_t kKernelsBytesMax = 32;

}  // namespace

std::vector<std::byte> encode_setup(const Setup& setup) {
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(kSetupVersion);
  writer.write(setup.plan.ranks);
  writer.write(static_cast<uint32_t>(setup.plan.weights.size()));
  for (const double weight : setup.plan.weights) writer.write(weight);
  writer.write(setup.plan.context);
  writer.write(static_cast<uint32_t>(setup.plan.kv_type));
  writer.write(setup.threads);
  writer.write(setup.prefill_chunk);
  writer.write(setup.sessions);
  writer.write(setup.tokens);
  writer.write(static_cast<uint32_t>(setup.exact));
  writer.write_string(setup.kernels);
  writer.write_string(setup.model_path);
  return writer.take();
}

Result<Setup> decode_setup(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Setup setup;
  ASSIGN_OR_RETURN(const uint32_t magic, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t version, reader.read<uint32_t>());
  if (magic != kMagic) return Status::request("wrong magic number");
  if (version != kSetupVersion) {
    return Status::request(fmt::format("version {}, this node speaks {}", version, kSetupVersion));
  }
  ASSIGN_OR_RETURN(setup.plan.ranks, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t weights, reader.read<uint32_t>());
  if (weights > kGroupSizeMax) return Status::request("too many shares");
  for (uint32_t i = 0; i < weights; ++i) {
    ASSIGN_OR_RETURN(const double weight, reader.read<double>());
    setup.plan.weights.push_back(weight);
  }
  ASSIGN_OR_RETURN(setup.plan.context, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t kv_type, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(setup.threads, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(setup.prefill_chunk, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(setup.sessions, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(setup.tokens, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t exact, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const std::string_view kernels, reader.read_string(kKernelsBytesMax));
  ASSIGN_OR_RETURN(const std::string_view path, reader.read_string(kPathBytesMax));
  if (kv_type > static_cast<uint32_t>(plan::KvType::kQ8)) return Status::request("unknown KV type");
  if (!kernels.empty() && !tensor::kernel_path_from_name(kernels).has_value()) {
    return Status::request("unknown kernels");
  }
  if (exact > 1) return Status::request("unknown flags");
  if (reader.left() != 0) return Status::request("bytes after the end");
  setup.plan.kv_type = static_cast<plan::KvType>(kv_type);
  setup.exact = exact != 0;
  setup.kernels = kernels;
  setup.model_path = path;
  return setup;
}

Status send_setup(collective::Group& group, const Setup& setup, const Deadline& deadline) {
  CHECK(group.rank() == 0);
  std::vector<std::byte> message = encode_setup(setup);
  return group.broadcast_message(message, 0, deadline);
}

Result<Setup> receive_setup(collective::Group& group, const Deadline& deadline) {
  CHECK(group.rank() != 0);
  std::vector<std::byte> message;
  RETURN_IF_ERROR(group.broadcast_message(message, 0, deadline));
  auto setup = decode_setup(message);
  if (setup.is_ok() && setup->plan.ranks != static_cast<uint32_t>(group.size())) {
    setup = Status::request(fmt::format("it plans for {} ranks", setup->plan.ranks));
  }
  if (setup.is_ok()) return setup;
  group.fabric().health().fail(0, "bad set-up: " + setup.status().message());
  return group.fabric().health().failure();
}

}  // namespace shoal::runtime
