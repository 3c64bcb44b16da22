#include "fabric/fabric.h"

#include <utility>

#include "base/log.h"
#include "fabric/link/liveness.h"
#include "fabric/shm/mapped_memory.h"
#include "fabric/ucx/ucx_context.h"

namespace shoal::fabric {

std::string_view link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kShm:
      return "shm";
    case LinkKind::kTcp:
      return "tcp";
    case LinkKind::kVerbs:
      return "verbs";
    case LinkKind::kUcx:
      return "ucx";
  }
  CHECK_MSG(false, "unknown LinkKind");
}

Result<LinkKind> parse_link_kind(std::string_view name) {
  if (name == "shm") return LinkKind::kShm;
  if (name == "tcp") return LinkKind::kTcp;
  if (name == "verbs") return LinkKind::kVerbs;
  if (name == "ucx") return LinkKind::kUcx;
  return Status::request("unknown link '" + std::string(name) + "': it is shm, tcp, verbs or ucx");
}

Fabric::Parts::Parts() = default;
Fabric::Parts::~Parts() = default;
Fabric::Parts::Parts(Parts&&) noexcept = default;
Fabric::Parts& Fabric::Parts::operator=(Parts&&) noexcept = default;

Fabric::Fabric(Parts parts) : parts_(std::move(parts)) {
  CHECK(parts_.health != nullptr && parts_.clock != nullptr);
  CHECK(parts_.rank >= 0 && parts_.rank < size());
  CHECK(parts_.endpoints.size() == parts_.node_names.size());
}

Fabric::~Fabric() {
  // Endpoints flush what they hold before the goodbye goes out.
  parts_.endpoints.clear();
  parts_.monitor.reset();
}

const std::string& Fabric::node_name(int rank) const {
  CHECK(rank >= 0 && rank < size());
  return parts_.node_names[static_cast<size_t>(rank)];
}

Endpoint& Fabric::endpoint(int peer) {
  CHECK(peer >= 0 && peer < size() && peer != parts_.rank);
  return *parts_.endpoints[static_cast<size_t>(peer)];
}

std::string_view Fabric::link_name() const {
  for (const auto& endpoint : parts_.endpoints) {
    if (endpoint != nullptr) return endpoint->info().link;
  }
  return "none";
}

namespace {

// Calls with the registrar of each link that has one.
template <typename Call>
void for_each_registrar(Fabric& fabric, const Call& call) {
  for (int peer = 0; peer < fabric.size(); ++peer) {
    if (peer == fabric.rank()) continue;
    MemoryRegistrar* registrar = fabric.endpoint(peer).info().registrar;
    if (registrar != nullptr) call(*registrar);
  }
}

}  // namespace

RegisteredMemory::RegisteredMemory(Fabric& fabric, std::span<std::byte> memory)
    : fabric_(&fabric), memory_(memory) {
  for_each_registrar(fabric, [&](MemoryRegistrar& registrar) {
    const Status status = registrar.register_memory(memory);
    if (!status.is_ok()) LOG(warn, "messages are copied to be sent: {}", status.message());
  });
}

RegisteredMemory::~RegisteredMemory() {
  if (fabric_ == nullptr) return;
  for_each_registrar(*fabric_,
                     [&](MemoryRegistrar& registrar) { registrar.unregister_memory(memory_); });
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : fabric_(std::exchange(other.fabric_, nullptr)), memory_(other.memory_) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(fabric_, other.fabric_);
  std::swap(memory_, other.memory_);
  return *this;
}

std::unique_ptr<Fabric> make_single_fabric(std::string node_name) {
  Fabric::Parts parts;
  parts.node_names.push_back(std::move(node_name));
  parts.health = std::make_unique<GroupHealth>(0, parts.node_names);
  parts.endpoints.resize(1);
  parts.clock = &SteadyClock::instance();
  return std::make_unique<Fabric>(std::move(parts));
}

}  // namespace shoal::fabric
