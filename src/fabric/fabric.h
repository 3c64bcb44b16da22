// Fabric: all endpoints of one group, by rank, with the group's health and liveness.
//
// Made by one of the makers: fabric/local_launch.h (processes of this machine, over any link),
// fabric/tcp/tcp_group.h (any machines, over TCP, RDMA or UCX), fabric/in_process.h (threads of one
// process), fabric/sim/sim_network.h (virtual time). The destructor says goodbye to the peers, or
// tells them why the group failed. Thread rule: endpoints as endpoint.h says; everything else is
// safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/group_health.h"
#include "fabric/spin.h"

namespace shoal::fabric {

class LivenessMonitor;
class MappedMemory;
class UcxContext;

// The numbers travel in join infos.
enum class LinkKind : uint32_t { kShm = 1, kTcp = 2, kVerbs = 3, kUcx = 4 };

std::string_view link_kind_name(LinkKind kind);
// "shm", "tcp", "verbs" or "ucx"; kRequest otherwise.
Result<LinkKind> parse_link_kind(std::string_view name);

// How a peer's death is noticed.
struct LivenessOptions {
  Nanoseconds beat_interval{std::chrono::milliseconds(100)};
  int missed_beats_max = 12;  // silence of 1.2 s
};

// The program whose nodes join. Only programs of one format join.
struct Program {
  uint32_t format = 1;            // ProtocolVersion::format
  std::string build = "unknown";  // what it calls itself where versions do not fit
};

struct FabricOptions {
  SlotClass slots;
  LivenessOptions liveness;
  int threads_per_rank = 1;  // compute threads, to choose between spinning and yielding
  Program program;
};

class Fabric {
 public:
  // Everything that a maker has put together. endpoints[rank] is null for the own rank.
  struct Parts {
    int rank = 0;
    uint64_t epoch = 0;
    std::vector<std::string> node_names;  // by rank
    std::unique_ptr<GroupHealth> health;
    std::unique_ptr<MappedMemory> mapped;  // null where not all ranks share memory
    std::unique_ptr<UcxContext> ucx;       // of endpoints over UCX; else null
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    std::unique_ptr<LivenessMonitor> monitor;  // null in the simulation
    const Clock* clock = nullptr;
    SpinPolicy spin;

    Parts();
    ~Parts();
    Parts(Parts&&) noexcept;
    Parts& operator=(Parts&&) noexcept;
  };
  explicit Fabric(Parts parts);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  int rank() const { return parts_.rank; }
  int size() const { return static_cast<int>(parts_.node_names.size()); }
  uint64_t epoch() const { return parts_.epoch; }
  const std::string& node_name(int rank) const;
  // peer: any rank but the own.
  Endpoint& endpoint(int peer);
  GroupHealth& health() { return *parts_.health; }
  // Memory that all ranks map (shm/mapped_memory.h), or null.
  MappedMemory* mapped() { return parts_.mapped.get(); }
  // The clock to make deadlines with (virtual in the simulation).
  const Clock& clock() const { return *parts_.clock; }
  const SpinPolicy& spin() const { return parts_.spin; }
  // How this rank waits from now on. Its is_crowded is the same on all ranks.
  void set_spin(const SpinPolicy& spin) { parts_.spin = spin; }
  // As EndpointInfo::link, or "none" for a group of one.
  std::string_view link_name() const;
  // Closes this descriptor with the fabric: others watch it to know that the process lives.
  void keep_open(UniqueFd fd) { kept_open_.push_back(std::move(fd)); }

 private:
  Parts parts_;
  std::vector<UniqueFd> kept_open_;
};

// Memory that all endpoints of a fabric may send from without a copy, as long as this object lives.
// Where a device refuses that, the log says so, and messages are copied.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  // Borrows both.
  RegisteredMemory(Fabric& fabric, std::span<std::byte> memory);
  ~RegisteredMemory();
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;

 private:
  Fabric* fabric_ = nullptr;
  std::span<std::byte> memory_;
};

// A group of one: no endpoints.
std::unique_ptr<Fabric> make_single_fabric(std::string node_name);

}  // namespace shoal::fabric
