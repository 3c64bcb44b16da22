#include "server/generate/generator.h"

#include <utility>

namespace shoal::server {
namespace {

class SchedulerGenerator final : public Generator {
 public:
  explicit SchedulerGenerator(runtime::Scheduler& scheduler) : scheduler_(scheduler) {}
  Result<runtime::RequestId> submit(runtime::GenerationRequest request) override {
    return scheduler_.submit(std::move(request));
  }
  Result<runtime::RequestId> embed(runtime::EmbeddingRequest request) override {
    return scheduler_.embed(std::move(request));
  }
  void cancel(runtime::RequestId id) override { scheduler_.cancel(id); }
  size_t context() const override { return scheduler_.context(); }
  size_t token_count() const override { return scheduler_.token_count(); }
  runtime::SchedulerStats stats() const override { return scheduler_.stats(); }

 private:
  runtime::Scheduler& scheduler_;
};

}  // namespace

std::unique_ptr<Generator> make_generator(runtime::Scheduler& scheduler) {
  return std::make_unique<SchedulerGenerator>(scheduler);
}

}  // namespace shoal::server
