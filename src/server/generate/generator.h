// Generator: what routes ask for tokens: the scheduler of a loaded model, or a script in a test.
//
// By the rules of runtime::Scheduler. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/serve/scheduler.h"

namespace shoal::server {

class Generator {
 public:
  virtual ~Generator() = default;
  virtual Result<runtime::RequestId> submit(runtime::GenerationRequest request) = 0;
  virtual Result<runtime::RequestId> embed(runtime::EmbeddingRequest request) = 0;
  virtual void cancel(runtime::RequestId id) = 0;
  virtual size_t context() const = 0;
  virtual size_t token_count() const = 0;
  virtual runtime::SchedulerStats stats() const = 0;
};

// Borrows the scheduler.
std::unique_ptr<Generator> make_generator(runtime::Scheduler& scheduler);

}  // namespace shoal::server
