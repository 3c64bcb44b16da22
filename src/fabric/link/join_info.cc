#include "fabric/link/join_info.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "fabric/link/printable.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

constexpr uint32_t kMagic = 0x4e494f4a;  // "JOIN"
constexpr size_t kHeaderBytes = 8;
constexpr size_t kBodyBytesMax = 16 * 1024;
constexpr size_t kNameBytesMax = 63;
constexpr size_t kHostBytesMax = 63;

// Limits of the liveness options; a parent is trusted, but a wrong program may be on the socket.
constexpr int64_t kBeatNsMin = 1'000'000;
constexpr int64_t kBeatNsMax = 60'000'000'000;
constexpr int32_t kMissedBeatsMax = 10'000;
constexpr int32_t kThreadsMax = 4096;

}  // namespace

std::vector<std::byte> encode_join_info(const JoinInfo& info) {
  const GroupSetup& setup = info.setup;
  ByteWriter body;
  body.write(static_cast<uint32_t>(info.link));
  body.write(static_cast<int32_t>(setup.rank));
  body.write(static_cast<int32_t>(setup.size));
  body.write(setup.epoch);
  body.write_bytes(setup.secret);
  body.write(setup.fabric.slots.payload_bytes);
  body.write(setup.fabric.slots.count);
  body.write(static_cast<int64_t>(setup.fabric.liveness.beat_interval.count()));
  body.write(static_cast<int32_t>(setup.fabric.liveness.missed_beats_max));
  body.write(static_cast<int32_t>(setup.fabric.threads_per_rank));
  body.write_string(std::string_view(info.host).substr(0, kHostBytesMax));
  body.write(info.port);
  body.write(static_cast<uint16_t>(info.has_mapped_memory ? 1 : 0));
  for (const std::string& name : info.node_names) {
    body.write_string(std::string_view(name).substr(0, kNameBytesMax));
  }
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(static_cast<uint32_t>(body.bytes().size()));
  writer.write_bytes(body.bytes());
  return writer.take();
}

namespace {

Result<JoinInfo> read_join_info(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  JoinInfo info;
  GroupSetup& setup = info.setup;
  ASSIGN_OR_RETURN(const uint32_t link, reader.read<uint32_t>());
  if (link < 1 || link > 4) return Status::group("names an unknown kind of link");
  info.link = static_cast<LinkKind>(link);
  ASSIGN_OR_RETURN(setup.rank, reader.read<int32_t>());
  ASSIGN_OR_RETURN(setup.size, reader.read<int32_t>());
  ASSIGN_OR_RETURN(setup.epoch, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(const auto secret, reader.read_bytes(setup.secret.size()));
  std::ranges::copy(secret, setup.secret.begin());
  ASSIGN_OR_RETURN(setup.fabric.slots.payload_bytes, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(setup.fabric.slots.count, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const int64_t beat_ns, reader.read<int64_t>());
  ASSIGN_OR_RETURN(setup.fabric.liveness.missed_beats_max, reader.read<int32_t>());
  ASSIGN_OR_RETURN(setup.fabric.threads_per_rank, reader.read<int32_t>());
  ASSIGN_OR_RETURN(const std::string_view host, reader.read_string(kHostBytesMax));
  info.host = printable(host);
  ASSIGN_OR_RETURN(info.port, reader.read<uint16_t>());
  ASSIGN_OR_RETURN(const uint16_t mapped, reader.read<uint16_t>());
  info.has_mapped_memory = mapped == 1;
  RETURN_IF_ERROR(check_group_setup(setup));
  if (mapped > 1 || beat_ns < kBeatNsMin || beat_ns > kBeatNsMax ||
      setup.fabric.threads_per_rank < 1 || setup.fabric.threads_per_rank > kThreadsMax ||
      setup.fabric.liveness.missed_beats_max < 1 ||
      setup.fabric.liveness.missed_beats_max > kMissedBeatsMax) {
    return Status::group("has impossible options");
  }
  setup.fabric.liveness.beat_interval = Nanoseconds(beat_ns);
  for (int rank = 0; rank < setup.size; ++rank) {
    ASSIGN_OR_RETURN(const std::string_view name, reader.read_string(kNameBytesMax));
    info.node_names.push_back(printable(name));
  }
  if (reader.left() != 0) return Status::group("sent too long a message");
  setup.node_name = info.node_names[static_cast<size_t>(setup.rank)];
  return info;
}

}  // namespace

Result<JoinInfo> decode_join_info(std::span<const std::byte> bytes) {
  Result<JoinInfo> info = read_join_info(bytes);
  if (info.is_ok() || info.status().code() == StatusCode::kGroup) return info;
  return Status::group("sent rubbish: " + info.status().message());
}

Status send_join_info(int fd, const JoinInfo& info, const Deadline& deadline) {
  return write_all(fd, encode_join_info(info), deadline);
}

Result<JoinInfo> receive_join_info(int fd, const Deadline& deadline) {
  std::array<std::byte, kHeaderBytes> header;
  RETURN_IF_ERROR(read_all(fd, header, deadline));
  ByteReader reader(header);
  const uint32_t magic = *reader.read<uint32_t>();
  const uint32_t bytes = *reader.read<uint32_t>();
  if (magic != kMagic || bytes > kBodyBytesMax) {
    return Status::group("does not speak Shoal's protocol");
  }
  std::vector<std::byte> body(bytes);
  RETURN_IF_ERROR(read_all(fd, body, deadline));
  return decode_join_info(body);
}

}  // namespace shoal::fabric
