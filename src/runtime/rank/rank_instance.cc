#include "runtime/rank/rank_instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "runtime/measure/collect.h"
#include "runtime/rank/rank_report.h"
#include "runtime/rank/summary_codec.h"
#include "tensor/ops/embedding.h"

namespace shoal::runtime {
namespace {

// A follower waits this long for the next command: for as long as the group lives.
constexpr Nanoseconds kIdleDeadline = std::chrono::hours(24 * 365 * 20);

Status check_options(const EngineOptions& options, const plan::Plan& plan, size_t vocabulary) {
  if (options.prefill_chunk == 0 || options.prefill_chunk > EngineOptions::kPrefillChunkMax) {
    return Status::request(fmt::format("a prefill chunk of {} tokens: must be from 1 to {}",
                                       options.prefill_chunk, EngineOptions::kPrefillChunkMax));
  }
  if (options.sessions_max == 0 || options.sessions_max > EngineOptions::kSessionsMax) {
    return Status::request(fmt::format("{} sessions: must be from 1 to {}", options.sessions_max,
                                       EngineOptions::kSessionsMax));
  }
  if (options.tokens > vocabulary) {
    return Status::request(
        fmt::format("{} tokens, but the output head has only {} rows", options.tokens, vocabulary));
  }
  if (options.exact && plan.kv_type != plan::KvType::kF32) {
    return Status::request("the exact path needs a plan with a float32 KV cache");
  }
  return Status::ok();
}

tensor::DType kv_dtype(plan::KvType type) {
  switch (type) {
    case plan::KvType::kF16:
      return tensor::DType::kF16;
    case plan::KvType::kF32:
      return tensor::DType::kF32;
    case plan::KvType::kQ8:
      break;
  }
  return tensor::DType::kI8;
}

}  // namespace

Result<std::unique_ptr<RankInstance>> RankInstance::create(const model::Model& model,
                                                           const plan::Plan& plan,
                                                           collective::Group& group,
                                                           const EngineOptions& options) {
  CHECK(plan.ranks.size() == static_cast<size_t>(group.size()));
  std::unique_ptr<RankInstance> instance(new RankInstance(model, plan, group, options));
  RETURN_IF_ERROR(instance->exchange_reports(instance->load()));
  return instance;
}

Status RankInstance::load() {
  RETURN_IF_ERROR(check_options(options_, plan_, output_rows()));
  tensor::WorkerPoolOptions pool;
  pool.workers = static_cast<int>(options_.threads);
  pool.threads_on_machine = static_cast<int>(options_.threads_on_machine);
  if (options_.kernels.has_value()) pool.path = *options_.kernels;
  if (options_.exact) pool.path = tensor::KernelPath::kExact;
  ASSIGN_OR_RETURN(pool_, tensor::WorkerPool::create(pool));

  const auto rank = static_cast<size_t>(group_.rank());
  const plan::RankPlan& part = plan_.ranks[rank];
  ASSIGN_OR_RETURN(RankWeights weights, load_weights(model_, part, *pool_, options_.on_load));
  weights_ = std::make_unique<RankWeights>(std::move(weights));
  RETURN_IF_ERROR(create_cache());

  DecoderLimits limits;
  limits.tokens_max = options_.prefill_chunk;
  // A step gives one row for every session, and drafted tokens take those of idle ones; or blocks
  // of kFullOutputsMax.
  outputs_max_ = (options_.sessions_max + kFullOutputsMax - 1) / kFullOutputsMax * kFullOutputsMax;
  limits.outputs_max = outputs_max_;
  limits.candidates_max = kCandidatesMax;
  limits.summary_rows = static_cast<uint32_t>(summarized(rank).size());
  ASSIGN_OR_RETURN(decoder_, Decoder::create({model_.config, plan_.ranks[rank], *weights_, *cache_,
                                              *pool_, group_},
                                             limits));
  const size_t ranks = plan_.ranks.size();
  gathered_bytes_.resize(ranks);
  if (group_.rank() == 0) {
    summaries_.resize(outputs_max_);
    rank_summaries_.resize(ranks);
  }
  return Status::ok();
}

// A rank's vocabulary rows without the padding.
plan::Range RankInstance::summarized(size_t rank) const {
  const plan::Range& rows = plan_.ranks[rank].vocabulary;
  return {rows.begin, std::clamp<uint64_t>(token_count(), rows.begin, rows.end)};
}

Status RankInstance::create_cache() {
  const plan::RankPlan& part = plan_.ranks[static_cast<size_t>(group_.rank())];
  KvCacheOptions cache;
  cache.positions = plan_.context;
  cache.sessions_max = options_.sessions_max;
  for (size_t layer = 0; layer < part.layers.size(); ++layer) {
    tensor::KvLayout layout;
    layout.type = kv_dtype(plan_.kv_type);
    layout.kv_heads = static_cast<int64_t>(part.layers[layer].kv_heads.size());
    layout.head_dim = model_.config.layers[layer].head_dim;
    cache.layers.push_back(layout);
  }
  ASSIGN_OR_RETURN(KvCache created, KvCache::create(std::move(cache)));
  cache_ = std::make_unique<KvCache>(std::move(created));
  return Status::ok();
}

Status RankInstance::exchange_reports(Status loaded) {
  RankReport mine;
  mine.status = std::move(loaded);
  mine.fingerprint = fingerprint_of(model_, plan_, options_);
  if (mine.status.is_ok()) {
    mine.weight_bytes = weights_->bytes;
    mine.kv_bytes = cache_->bytes();
  }
  reports_ = {mine};
  if (group_.size() == 1) return mine.status;

  std::vector<std::byte> bytes = encode_report(mine);
  const std::vector<size_t> sizes(static_cast<size_t>(group_.size()), kReportBytes);
  std::vector<std::byte> all;
  if (group_.rank() == 0) all.resize(kReportBytes * sizes.size());
  RETURN_IF_ERROR(group_.gather({bytes, {all, sizes}, 0}, deadline(options_.load_deadline)));
  if (group_.rank() != 0) return mine.status;

  reports_.clear();
  Status failure;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto part =
        std::span(all).subspan(static_cast<size_t>(rank) * kReportBytes, kReportBytes);
    auto report = decode_report(part);
    if (report.is_ok() && report->status.is_ok() && report->fingerprint != mine.fingerprint) {
      report = Status::group(fmt::format("it holds {} than rank 0",
                                         difference(report->fingerprint, mine.fingerprint)));
    }
    const Status status = report.is_ok() ? report->status : report.status();
    if (failure.is_ok() && !status.is_ok()) {
      failure = rank == 0 ? status : status.with_context(group_.fabric().node_name(rank));
    }
    reports_.push_back(report.is_ok() ? *report : RankReport());
  }
  if (failure.is_ok()) return failure;
  Command shutdown;
  shutdown.op = Op::kShutdown;
  shutdown.number = ++commands_;
  const Status sent = send(shutdown, {});
  if (!sent.is_ok()) LOG(debug, "ranks that loaded were not told to end: {}", sent.message());
  return failure;
}

CommandLimits RankInstance::limits() const {
  return {options_.sessions_max, options_.prefill_chunk, model_.config.hidden,
          static_cast<uint32_t>(cache_->blocks_total()), summaries_max()};
}

Deadline RankInstance::deadline(Nanoseconds from_now) const {
  return Deadline::after(group_.fabric().clock(), from_now);
}

Status RankInstance::lead(Command& command, std::span<const TokenId> tokens,
                          const OnLogits& on_logits) {
  CHECK(group_.rank() == 0 && tokens.size() == command.tokens());
  command.number = ++commands_;
  std::span<const float> activations;
  if (command.op == Op::kStep) {
    const tensor::FloatRows x = decoder_->input(tokens.size());
    const tensor::MatrixView table = model::matrix_view(*model_.tensors.token_embedding);
    const tensor::Stage stage = command.stage();
    pool_->run([&](tensor::Worker& me) {
      me.clock().set_stage(stage);
      me.clock().enter(tensor::Phase::kRows);
      tensor::embedding(me, table, tokens, x);
    });
    activations = {x.data, static_cast<size_t>(x.rows * x.cols)};
  }
  if (group_.size() > 1) {
    const tensor::PhaseScope scope(clock(), tensor::Phase::kCollective);
    RETURN_IF_ERROR(send(command, activations));
  }
  return execute(command, on_logits);
}

Status RankInstance::send(const Command& command, std::span<const float> activations) {
  encode_command(command, activations, &message_);
  return group_.broadcast_message(message_, 0, deadline(options_.step_deadline));
}

Result<bool> RankInstance::follow() {
  RETURN_IF_ERROR(group_.broadcast_message(message_, 0, deadline(kIdleDeadline)));
  std::span<const std::byte> activations;
  Status status = decode_command(message_, limits(), &received_, &activations);
  if (status.is_ok() && received_.number != commands_ + 1) {
    status = Status::request(
        fmt::format("command {} came after command {}", received_.number, commands_));
  }
  if (status.is_ok() && received_.op == Op::kStep) status = check_step(received_);
  if (!status.is_ok()) return break_group(0, status);
  ++commands_;
  if (received_.op == Op::kStep) {
    std::memcpy(decoder_->input(received_.tokens()).data, activations.data(), activations.size());
  }
  RETURN_IF_ERROR(execute(received_, nullptr));
  return received_.op != Op::kShutdown;
}

// A rank sent what none of our own sends: the group is of no use any more.
Status RankInstance::break_group(int culprit, const Status& cause) {
  group_.fabric().health().fail(culprit, cause.message());
  return group_.fabric().health().failure();
}

Status RankInstance::check_step(const Command& step) const {
  for (const BatchItem& item : step.items) {
    if (!cache_->is_open(item.session)) {
      return Status::request(fmt::format("a step of session {}, which is not open", item.session));
    }
    if (cache_->length(item.session) != item.position) {
      return Status::request(fmt::format("a step at position {} of session {}, which holds {}",
                                         item.position, item.session,
                                         cache_->length(item.session)));
    }
  }
  return Status::ok();
}

Status RankInstance::execute(const Command& command, const OnLogits& on_logits) {
  Status status;
  switch (command.op) {
    case Op::kStep:
      return run_step(command, on_logits);
    case Op::kOpen:
      status = cache_->open(command.session, {command.blocks, command.length});
      break;
    case Op::kClose:
      status = cache_->close(command.session, command.blocks);
      break;
    case Op::kDrop:
      status = cache_->drop(command.blocks);
      break;
    case Op::kTruncate:
      status = cache_->truncate(command.session, command.length);
      break;
    case Op::kFetchLogits: {
      if (command.length >= outputs_) return break_group(0, Status::request("no such logits"));
      RETURN_IF_ERROR(gather_logits(command.length, 1, deadline(options_.step_deadline)));
      if (on_logits) on_logits(command.length, std::span(full_logits_).first(output_rows()));
      return Status::ok();
    }
    case Op::kShutdown:
      return Status::ok();
    case Op::kTakeTimes:
    case Op::kStartTrace:
    case Op::kTakeTrace:
      return execute_measurement(command.op);
  }
  // Rank 0 knows the state of all sessions: it asks for nothing that cannot be.
  if (!status.is_ok()) return break_group(0, status);
  return status;
}

Status RankInstance::execute_measurement(Op op) {
  if (op == Op::kTakeTimes) {
    ASSIGN_OR_RETURN(times_, collect_times(*pool_, group_, deadline(options_.step_deadline)));
  } else if (op == Op::kTakeTrace) {
    ASSIGN_OR_RETURN(trace_, collect_trace(*pool_, group_, deadline(options_.step_deadline)));
  } else {
    start_trace(*pool_);
  }
  return Status::ok();
}

Status RankInstance::run_step(const Command& step, const OnLogits& on_logits) {
  const Deadline until = deadline(options_.step_deadline);
  for (const BatchItem& item : step.items) {
    if (Status status = cache_->extend(item.session, item.tokens); !status.is_ok()) {
      return break_group(0, status);
    }
  }
  RETURN_IF_ERROR(decoder_->forward(step, until));
  const size_t outputs = step.outputs();
  if (step.mode == OutputMode::kSummary) {
    outputs_ = outputs;
    return gather_summaries(outputs, until);
  }
  outputs_ = 0;
  for (size_t first = 0; first < outputs; first += kFullOutputsMax) {
    // forward() has computed the logits of the first outputs_max_ outputs.
    const size_t block = first % outputs_max_;
    if (block == 0 && first > 0) {
      decoder_->compute_outputs(first, std::min<size_t>(outputs_max_, outputs - first));
    }
    const size_t rows = std::min<size_t>(kFullOutputsMax, outputs - first);
    RETURN_IF_ERROR(gather_logits(block, rows, until));
    if (on_logits) on_logits(first, std::span(full_logits_).first(rows * output_rows()));
  }
  return Status::ok();
}

// summaries_[0, rows) on rank 0 from every rank's.
Status RankInstance::gather_summaries(size_t rows, const Deadline& until) {
  if (rows == 0) return Status::ok();
  const size_t ranks = plan_.ranks.size();
  if (ranks == 1) {
    for (size_t row = 0; row < rows; ++row) summaries_[row] = decoder_->summary(row);
    return Status::ok();
  }
  const size_t row_bytes = summary_bytes(kCandidatesMax);
  mine_.resize(rows * row_bytes);
  for (size_t row = 0; row < rows; ++row) {
    encode_summary(decoder_->summary(row), std::span(mine_).subspan(row * row_bytes, row_bytes));
  }
  const bool is_root = group_.rank() == 0;
  std::fill(gathered_bytes_.begin(), gathered_bytes_.end(), mine_.size());
  if (is_root) gathered_.resize(ranks * mine_.size());
  const tensor::PhaseScope scope(clock(), tensor::Phase::kCollective);
  RETURN_IF_ERROR(group_.gather({mine_, {gathered_, gathered_bytes_}, 0}, until));
  if (!is_root) return Status::ok();

  for (size_t row = 0; row < rows; ++row) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto bytes = std::span(gathered_).subspan((rank * rows + row) * row_bytes, row_bytes);
      Status status = decode_summary(bytes, summarized(rank), &rank_summaries_[rank]);
      if (status.is_ok() &&
          rank_summaries_[rank].inverse_temperature != decoder_->summary(row).inverse_temperature) {
        status = Status::request("bad logit summary: taken at another temperature");
      }
      if (!status.is_ok()) {
        return break_group(static_cast<int>(rank), status);
      }
    }
    merge(rank_summaries_, kCandidatesMax, &summaries_[row]);
  }
  return Status::ok();
}

// full_logits_ [rows, vocabulary] on rank 0 from every rank's logits of `row` and after.
Status RankInstance::gather_logits(size_t row, size_t rows, const Deadline& until) {
  const size_t ranks = plan_.ranks.size();
  const bool is_root = group_.rank() == 0;
  if (is_root) full_logits_.resize(kFullOutputsMax * output_rows());
  const std::span<const float> first = decoder_->logits(row);
  // Rows of a rank lie one after another.
  const std::span<const float> mine(first.data(), rows * first.size());
  if (ranks == 1) {
    std::copy(mine.begin(), mine.end(), full_logits_.begin());
    return Status::ok();
  }
  size_t total = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    gathered_bytes_[rank] = rows * plan_.ranks[rank].vocabulary.size() * sizeof(float);
    total += gathered_bytes_[rank];
  }
  if (is_root) gathered_.resize(total);
  const tensor::PhaseScope scope(clock(), tensor::Phase::kCollective);
  RETURN_IF_ERROR(group_.gather({std::as_bytes(mine), {gathered_, gathered_bytes_}, 0}, until));
  if (!is_root) return Status::ok();

  const std::byte* from = gathered_.data();
  for (const plan::RankPlan& rank : plan_.ranks) {
    const size_t bytes = rank.vocabulary.size() * sizeof(float);
    for (size_t i = 0; i < rows; ++i, from += bytes) {
      std::memcpy(&full_logits_[i * output_rows() + rank.vocabulary.begin], from, bytes);
    }
  }
  return Status::ok();
}

}  // namespace shoal::runtime
