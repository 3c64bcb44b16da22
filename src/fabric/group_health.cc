#include "fabric/group_health.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace shoal::fabric {

GroupHealth::GroupHealth(int self_rank, std::vector<std::string> node_names)
    : self_rank_(self_rank), node_names_(std::move(node_names)), left_(node_names_.size()) {
  CHECK(self_rank >= 0 && self_rank < size());
}

std::string GroupHealth::rank_text(int rank) const {
  std::string text = "rank " + std::to_string(rank);
  if (rank < 0 || rank >= size()) return text;
  return text + " (" + node_names_[static_cast<size_t>(rank)] + ")";
}

Status GroupHealth::failure() const {
  if (!failed()) return Status::ok();
  const std::scoped_lock lock(mutex_);
  return failure_;
}

int GroupHealth::culprit() const {
  const std::scoped_lock lock(mutex_);
  return cause_.culprit;
}

void GroupHealth::fail(int culprit, std::string_view reason) {
  fail_with(culprit, rank_text(culprit) + " " + std::string(reason));
}

void GroupHealth::fail_with(int culprit, std::string message) {
  const std::scoped_lock lock(mutex_);
  if (failed()) return;
  LOG(error, "the group has failed: {}", message);
  is_told_to_others_ = true;
  fail_locked({.culprit = culprit, .message = message}, message);
}

void GroupHealth::fail_as_told(const FailureNotice& notice, int teller) {
  const std::scoped_lock lock(mutex_);
  if (failed()) return;
  FailureNotice cause = notice;
  if (cause.culprit < 0 || cause.culprit >= size()) cause.culprit = teller;
  const std::string message =
      cause.culprit == self_rank_
          ? "this node was given up by " + rank_text(teller) + ": " + cause.message
          : cause.message + " (told by " + rank_text(teller) + ")";
  LOG(warn, "the group has failed: {}", message);
  is_told_to_others_ = true;
  fail_locked(std::move(cause), message);
}

void GroupHealth::fail_left(int rank) {
  const std::scoped_lock lock(mutex_);
  if (failed()) return;
  const std::string message = rank_text(rank) + " has left the group";
  LOG(info, "{}", message);
  fail_locked({.culprit = rank, .message = message}, message);
}

void GroupHealth::fail_locked(FailureNotice cause, std::string message) {
  cause_ = std::move(cause);
  failure_ = Status::group(std::move(message));
  failed_.store(true, std::memory_order_seq_cst);
  wake_all_locked();
}

std::optional<FailureNotice> GroupHealth::notice() const {
  const std::scoped_lock lock(mutex_);
  if (!is_told_to_others_) return std::nullopt;
  return cause_;
}

void GroupHealth::mark_left(int rank) {
  CHECK(rank >= 0 && rank < size());
  const std::scoped_lock lock(mutex_);
  left_[static_cast<size_t>(rank)].store(true, std::memory_order_seq_cst);
  wake_all_locked();
}

void GroupHealth::suspect(int rank, std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  for (const Suspicion& known : suspicions_) {
    if (known.rank == rank) return;
  }
  suspicions_.push_back({rank, std::string(reason)});
  wake_all_locked();
}

std::vector<GroupHealth::Suspicion> GroupHealth::suspicions() const {
  const std::scoped_lock lock(mutex_);
  return suspicions_;
}

uint64_t GroupHealth::add_waker(std::function<void()> waker) {
  const std::scoped_lock lock(mutex_);
  wakers_.push_back({next_ticket_, std::move(waker)});
  return next_ticket_++;
}

void GroupHealth::remove_waker(uint64_t ticket) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(wakers_, [&](const Waker& waker) { return waker.ticket == ticket; });
}

void GroupHealth::wake_all_locked() {
  for (const Waker& waker : wakers_) waker.wake();
}

}  // namespace shoal::fabric
