#include "fabric/verbs/rail_candidates.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/bytes.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

constexpr size_t kCandidateBytes = 20;
constexpr uint32_t kMappedBits = 96;
constexpr std::array<uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

RailCandidate candidate_of(const InterfaceAddress& address) {
  RailCandidate candidate;
  const auto prefix_bits = static_cast<uint32_t>(address.prefix_bits);
  if (inet_pton(AF_INET6, address.text.c_str(), candidate.address.data()) == 1) {
    candidate.prefix_bits = prefix_bits;
  } else {
    std::ranges::copy(kMappedPrefix, candidate.address.begin());
    inet_pton(AF_INET, address.text.c_str(), candidate.address.data() + kMappedPrefix.size());
    candidate.prefix_bits = kMappedBits + prefix_bits;
  }
  return candidate;
}

uint32_t common_bits(const RailCandidate& a, const RailCandidate& b) {
  for (size_t i = 0; i < a.address.size(); ++i) {
    const auto differing = static_cast<uint8_t>(a.address[i] ^ b.address[i]);
    if (differing == 0) continue;
    return static_cast<uint32_t>(8 * i) + static_cast<uint32_t>(std::countl_zero(differing));
  }
  return 128;
}

// An address has no cable to itself.
bool may_be_joined(const RailCandidate& a, const RailCandidate& b) {
  const uint32_t common = common_bits(a, b);
  return common < 128 && common >= std::max(a.prefix_bits, b.prefix_bits);
}

}  // namespace

std::vector<RailCandidate> rail_candidates(std::span<const PortFacts> ports,
                                           std::span<const InterfaceAddress> addresses,
                                           const VerbsPort& in_use) {
  std::set<std::string> here;
  std::map<std::string, RailCandidate> by_text;
  for (const InterfaceAddress& address : addresses) {
    here.insert(address.text);
    by_text.emplace(address.text, candidate_of(address));
  }
  std::vector<RailCandidate> candidates;
  for (const PortFacts& port : ports) {
    const bool is_in_use = port.device == in_use.device && port.number == in_use.number;
    const std::string* address = meeting_address(port, here);
    if (is_in_use || port.state != "active" || address == nullptr) continue;
    if (candidates.size() < kRailCandidatesMax) candidates.push_back(by_text.at(*address));
  }
  return candidates;
}

SocketAddress socket_address(const Gid& address) {
  SocketAddress made;
  const bool is_mapped = std::ranges::equal(std::span(address).first<12>(), kMappedPrefix);
  if (is_mapped) {
    sockaddr_in ip{};
    ip.sin_family = AF_INET;
    std::memcpy(&ip.sin_addr, address.data() + kMappedPrefix.size(), 4);
    std::memcpy(&made.storage, &ip, sizeof(ip));
    made.bytes = sizeof(ip);
  } else {
    sockaddr_in6 ip{};
    ip.sin6_family = AF_INET6;
    std::memcpy(&ip.sin6_addr, address.data(), address.size());
    std::memcpy(&made.storage, &ip, sizeof(ip));
    made.bytes = sizeof(ip);
  }
  return made;
}

std::vector<RailPair> rail_pairs(std::span<const RailCandidate> lower,
                                 std::span<const RailCandidate> higher) {
  std::vector<RailPair> pairs;
  for (size_t i = 0; i < lower.size(); ++i) {
    for (size_t j = 0; j < higher.size(); ++j) {
      if (may_be_joined(lower[i], higher[j])) pairs.push_back({i, j});
    }
  }
  std::ranges::sort(pairs, {}, [&](const RailPair& pair) {
    return std::tuple(128 - common_bits(lower[pair.lower], higher[pair.higher]), pair.lower,
                      pair.higher);
  });
  return pairs;
}

std::vector<std::byte> encode_candidates(std::span<const RailCandidate> candidates) {
  ByteWriter writer;
  writer.write(static_cast<uint32_t>(candidates.size()));
  for (const RailCandidate& candidate : candidates) {
    writer.write_bytes(std::as_bytes(std::span(candidate.address)));
    writer.write(candidate.prefix_bits);
  }
  return writer.take();
}

Result<std::vector<RailCandidate>> decode_candidates(std::span<const std::byte> bytes) {
  std::vector<RailCandidate> candidates(bytes.size() / kCandidateBytes);
  ByteReader reader(bytes);
  for (RailCandidate& candidate : candidates) {
    std::memcpy(candidate.address.data(), reader.read_bytes(candidate.address.size())->data(),
                candidate.address.size());
    candidate.prefix_bits = *reader.read<uint32_t>();
    if (candidate.prefix_bits > 128) return Status::group("sent rubbish for its ports");
  }
  return candidates;
}

Result<std::vector<RailCandidate>> exchange_candidates(int socket,
                                                       std::span<const RailCandidate> own,
                                                       const Deadline& deadline) {
  RETURN_IF_ERROR(write_all(socket, encode_candidates(own), deadline));
  ASSIGN_OR_RETURN(const uint32_t count, read_number(socket, deadline));
  if (count > kRailCandidatesMax) return Status::group("sent rubbish for its ports");
  std::vector<std::byte> bytes(count * kCandidateBytes);
  RETURN_IF_ERROR(read_all(socket, bytes, deadline));
  return decode_candidates(bytes);
}

}  // namespace shoal::fabric
