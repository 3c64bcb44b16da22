// JoinInfo: what a launching node tells a local child over its inherited socket.
//
// Specified in docs/fabric.md. Thread rule: one thread per socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/group_setup.h"

namespace shoal::fabric {

struct JoinInfo {
  LinkKind link = LinkKind::kShm;
  GroupSetup setup;
  std::vector<std::string> node_names;  // by rank
  std::string host = "127.0.0.1";       // where rank 0 listens, but for shm
  uint16_t port = 0;
  bool has_mapped_memory = false;  // the descriptor of the memory of all ranks follows, for shm
};

Status send_join_info(int fd, const JoinInfo& info, const Deadline& deadline);
Result<JoinInfo> receive_join_info(int fd, const Deadline& deadline);

std::vector<std::byte> encode_join_info(const JoinInfo& info);
// Of what follows the 8 bytes of magic and length; kGroup for rubbish.
Result<JoinInfo> decode_join_info(std::span<const std::byte> bytes);

}  // namespace shoal::fabric
