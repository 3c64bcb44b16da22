// SimEndpoint: the Endpoint of a SimNetwork.
//
// Thread rule: as endpoint.h; the network is shared by all ranks and locks.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "fabric/endpoint.h"
#include "fabric/sim/sim_network.h"

namespace shoal::fabric {

class SimEndpoint final : public Endpoint {
 public:
  SimEndpoint(EndpointInfo info, SimNetwork& network, GroupHealth& health);
  ~SimEndpoint() override;

  Result<std::optional<SendSlot>> try_acquire_send() override;
  Status post_send(const SendSlot& slot, const SlotNote& note) override;
  Result<bool> poll_sends() override;
  Result<std::optional<ReceivedSlot>> poll_receive() override;
  Status release_receive(const ReceivedSlot& slot) override;
  void wait(const Deadline& deadline) override;

 private:
  SimNetwork::Link outgoing() const { return {info().self_rank, info().peer_rank}; }
  SimNetwork::Link incoming() const { return {info().peer_rank, info().self_rank}; }

  SimNetwork& network_;
  std::vector<std::vector<std::byte>> send_buffers_;
  uint64_t acquired_ = 0;
  uint64_t posted_ = 0;
  std::deque<SimNetwork::Slot> held_;  // given to the caller and not released
  uint64_t received_ = 0;
  uint64_t released_ = 0;
};

}  // namespace shoal::fabric
