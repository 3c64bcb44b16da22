// LocalCluster: an engine and its followers as threads of one process, over real links.
//
// Thread rule: one thread makes and uses it. Borrows the model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/group.h"
#include "fabric/fabric.h"
#include "model/model.h"
#include "plan/plan.h"
#include "runtime/engine.h"
#include "runtime/token.h"

namespace shoal::runtime::testing {

struct ClusterOptions {
  uint32_t ranks = 1;
  std::vector<double> weights;  // of the split; empty: even
  uint32_t context = 256;
  plan::KvType kv_type = plan::KvType::kF16;  // the exact path's is kF32
  fabric::LinkKind link = fabric::LinkKind::kShm;
  EngineOptions engine;
  // What a follower runs instead of run_follower().
  std::function<Status(collective::Group&, const plan::Plan&, const EngineOptions&)> follower;
};

class LocalCluster {
 public:
  LocalCluster(const model::Model& model, const ClusterOptions& options);
  ~LocalCluster() { end(); }
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Of Engine::create.
  const Status& status() const { return status_; }
  // CHECKs that it was created.
  Engine& engine();
  // Ends the engine and waits for the followers; their statuses, from rank 1 on.
  std::vector<Status> end();

 private:
  std::vector<std::unique_ptr<fabric::Fabric>> fabrics_;
  std::unique_ptr<collective::Group> group_;
  std::unique_ptr<Engine> engine_;
  Status status_;
  std::vector<Status> follower_statuses_;
  std::vector<std::thread> followers_;
};

// All logits [tokens, vocabulary] of a text, by prefill or token by token.
std::vector<float> all_logits(Engine& engine, std::span<const TokenId> tokens,
                              bool by_decode = false);

// The largest difference, and the largest size in `a`.
double max_difference(std::span<const float> a, std::span<const float> b);
double max_size(std::span<const float> a);

// Text with nothing in it: `count` tokens below `vocabulary`.
std::vector<TokenId> some_tokens(size_t count, size_t vocabulary);

}  // namespace shoal::runtime::testing
