// EmbeddingBatch: the embeddings of one request's texts, from their tokens to a receiver.
//
// It submits a few texts at a time, so that thousands of them leave sessions and the queue to
// others, and hands each vector over as it comes, on a thread apart from the scheduler's. Where one
// fails or the client has gone, the others end too.
// Thread rule: any thread. Kept alive by the scheduler until every text has ended, and by the
// callbacks of its receiver's exchange.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/generate/generation.h"
#include "server/generate/generator.h"
#include "server/http/workers.h"

namespace shoal::server {

// Where the embeddings go. All calls come from one thread at a time, never during start().
class EmbeddingReceiver {
 public:
  virtual ~EmbeddingReceiver() = default;
  // Each text's once, in any order: runtime::EmbeddingResult::values.
  virtual void on_embedding(size_t text, std::vector<float> values) = 0;
  // Once, at the end. With end.has_broken_off() some embeddings did not come.
  virtual void on_end(const ChoiceEnd& end) = 0;
};

struct EmbeddingParts {
  Generator& generator;
  Workers& workers;
  GenerationObserver& observer;
};

class EmbeddingBatch : public std::enable_shared_from_this<EmbeddingBatch> {
 public:
  static constexpr size_t kAtOnceMax = 16;  // texts in the scheduler

  // `requests`, at least one, without sinks. On an error none of them runs on, and the receiver is
  // never called. Shared with the scheduler and the client's connection, whichever ends last.
  static Result<std::shared_ptr<EmbeddingBatch>> start(
      const EmbeddingParts& parts, std::vector<runtime::EmbeddingRequest> requests,
      std::unique_ptr<EmbeddingReceiver> receiver);
  EmbeddingBatch(const EmbeddingBatch&) = delete;
  EmbeddingBatch& operator=(const EmbeddingBatch&) = delete;

  // The client has gone: ends every text.
  void cancel();

 private:
  class Sink;
  struct Text {
    runtime::EmbeddingRequest request;
    runtime::RequestId id = 0;  // of one that runs
    bool has_ended = false;
  };

  EmbeddingBatch(const EmbeddingParts& parts, std::vector<runtime::EmbeddingRequest> requests,
                 std::unique_ptr<EmbeddingReceiver> receiver);
  Status submit_more();
  void on_result(size_t index, runtime::EmbeddingResult result);
  void break_off(FinishReason reason, const Status& status);
  bool has_broken_off() const { return end_.has_broken_off(); }
  void schedule();
  void pump();

  EmbeddingParts parts_;
  std::unique_ptr<EmbeddingReceiver> receiver_;
  const Nanoseconds started_;
  bool has_told_end_ = false;  // of the pump's thread
  std::mutex mutex_;           // below
  std::vector<Text> texts_;
  std::deque<size_t> waiting_;  // texts that were not submitted yet, or refused
  size_t running_ = 0;
  bool is_submitting_ = false;
  std::vector<std::pair<size_t, std::vector<float>>> arrived_;
  ChoiceEnd end_;
  bool is_scheduled_ = false;
  bool is_open_ = false;  // start() has gone well
};

}  // namespace shoal::server
