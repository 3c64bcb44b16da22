#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "base/check.h"

namespace shoal::runtime {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// So many of the best are looked at before all tokens are sorted.
constexpr size_t kTop = 128;
// Where a mask leaves no more, they are sorted right away.
constexpr size_t kFewAllowed = 2048;
// What biases and penalties are at most, so that no sum of them and a logit overflows.
constexpr float kBiasMax = 1e6F;
constexpr float kRepetitionPenaltyMax = 1e3F;

Status check_range(std::string_view name, float value, bool good, std::string_view range) {
  if (good) return Status::ok();
  return Status::request(fmt::format("{} is {}: must be {}", name, value, range));
}

Status check_token(std::string_view name, TokenId id, size_t vocabulary) {
  if (id >= 0 && static_cast<size_t>(id) < vocabulary) return Status::ok();
  return Status::request(
      fmt::format("{}: token {} is not in the vocabulary of {} tokens", name, id, vocabulary));
}

Status non_finite() {
  return Status::request(
      "non-finite logits: the model computed NaN or infinity for this request (damaged weights, "
      "overflow, or a context beyond its training)");
}

Status nothing_allowed() {
  return Status::request("the model holds every token that the grammar allows here for impossible");
}

bool are_below_infinity(std::span<const float> logits) {
  uint32_t bad = 0;  // without a branch, so that many are compared at a time
  for (const float logit : logits) bad |= logit < kInfinity ? 0U : 1U;
  return bad == 0;
}

// One order for "worst in front" of std::*_heap that puts the best in front.
bool comes_after(const Candidate& a, const Candidate& b) { return comes_before(b, a); }

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

Status validate(const SamplingParams& params, size_t vocabulary) {
  const SamplingParams& p = params;
  // Written so that NaN fails every one.
  RETURN_IF_ERROR(check_range("temperature", p.temperature,
                              p.temperature >= 0 && p.temperature < kInfinity,
                              "a finite number of 0 or more"));
  RETURN_IF_ERROR(check_range("top_p", p.top_p, p.top_p > 0 && p.top_p <= 1, "above 0, at most 1"));
  RETURN_IF_ERROR(check_range("min_p", p.min_p, p.min_p >= 0 && p.min_p <= 1, "from 0 to 1"));
  RETURN_IF_ERROR(check_range("repetition_penalty", p.repetition_penalty,
                              p.repetition_penalty >= 1 / kRepetitionPenaltyMax &&
                                  p.repetition_penalty <= kRepetitionPenaltyMax,
                              "from 0.001 to 1000"));
  RETURN_IF_ERROR(check_range("presence_penalty", p.presence_penalty,
                              std::abs(p.presence_penalty) <= kBiasMax, "from -1e6 to 1e6"));
  RETURN_IF_ERROR(check_range("frequency_penalty", p.frequency_penalty,
                              std::abs(p.frequency_penalty) <= kBiasMax, "from -1e6 to 1e6"));
  if (p.top_k < 0) {
    return Status::request(fmt::format("top_k is {}: must be 0 (off) or more", p.top_k));
  }
  for (const LogitBias& bias : p.logit_bias) {
    RETURN_IF_ERROR(check_token("logit_bias", bias.id, vocabulary));
    RETURN_IF_ERROR(check_range("logit_bias", bias.bias,
                                std::abs(bias.bias) <= kBiasMax || bias.bias == -kInfinity,
                                "from -1e6 to 1e6, or -infinity"));
  }
  for (const TokenId id : p.banned) RETURN_IF_ERROR(check_token("banned", id, vocabulary));
  return Status::ok();
}

Result<std::optional<uint64_t>> parse_seed(std::string_view text) {
  if (text == "-1" || text == "null" || text == "random") return std::optional<uint64_t>();
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return Status::request(fmt::format(
        "seed is \"{}\": must be an integer from 0 to 2^64-1, or -1 for a random one", text));
  }
  return std::optional<uint64_t>(seed);
}

Result<Sampler> Sampler::create(SamplingParams params, size_t vocabulary) {
  RETURN_IF_ERROR(validate(params, vocabulary));
  for (const TokenId id : params.banned) params.logit_bias.push_back({id, -kInfinity});
  std::sort(params.logit_bias.begin(), params.logit_bias.end(),
            [](const LogitBias& a, const LogitBias& b) {
              return std::pair(a.id, a.bias) < std::pair(b.id, b.bias);
            });
  // Biases of one token add up, so that a ban stays a ban.
  std::vector<LogitBias> joined;
  for (const LogitBias& bias : params.logit_bias) {
    if (!joined.empty() && joined.back().id == bias.id) {
      joined.back().bias += bias.bias;
    } else {
      joined.push_back(bias);
    }
  }
  params.logit_bias = std::move(joined);
  const uint64_t seed = params.seed.has_value() ? *params.seed : random_seed();
  return Sampler(std::move(params), vocabulary, seed);
}

Sampler::Sampler(SamplingParams params, size_t vocabulary, uint64_t seed)
    : params_(std::move(params)), random_(seed), seen_(vocabulary), generated_(vocabulary) {
  distinct_.reserve(vocabulary);
}

void Sampler::accept_prompt(TokenId id) {
  CHECK(id >= 0 && static_cast<size_t>(id) < seen_.size());
  uint8_t& is_seen = seen_[static_cast<size_t>(id)];
  if (is_seen == 0) distinct_.push_back(id);
  is_seen = 1;
}

void Sampler::accept_generated(TokenId id) {
  accept_prompt(id);
  ++generated_[static_cast<size_t>(id)];
  any_generated_ = true;
}

bool Sampler::adjusts_logits() const {
  return !params_.logit_bias.empty() || (!distinct_.empty() && params_.repetition_penalty != 1) ||
         (any_generated_ && (params_.presence_penalty != 0 || params_.frequency_penalty != 0));
}

bool Sampler::may_raise_logits() const {
  const bool biased_up = std::any_of(params_.logit_bias.begin(), params_.logit_bias.end(),
                                     [](const LogitBias& bias) { return bias.bias > 0; });
  return biased_up || params_.repetition_penalty < 1 || params_.presence_penalty < 0 ||
         params_.frequency_penalty < 0;
}

bool Sampler::wants_full(size_t candidates_max, const TokenMask& mask) const {
  if (adjusts_logits() && may_raise_logits()) return true;
  if (is_greedy()) return false;
  return params_.top_k == 0 ? adjusts_logits() || !mask.allows_all()
                            : static_cast<size_t>(params_.top_k) > candidates_max;
}

float Sampler::adjusted(Candidate candidate) const {
  if (!mask_.allows(candidate.id)) return -kInfinity;
  float logit = candidate.logit;
  const auto index = static_cast<size_t>(candidate.id);
  if (seen_[index] != 0) {
    const float penalty = params_.repetition_penalty;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  if (const uint32_t count = generated_[index]; count > 0) {
    logit -= params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty;
  }
  const auto bias =
      std::lower_bound(params_.logit_bias.begin(), params_.logit_bias.end(), candidate.id,
                       [](const LogitBias& entry, TokenId id) { return entry.id < id; });
  if (bias != params_.logit_bias.end() && bias->id == candidate.id) logit += bias->bias;
  return logit;
}

Result<std::optional<TokenId>> Sampler::sample(const LogitView& logits, const TokenMask& mask) {
  mask_ = mask;
  if (!logits.full.empty()) return sample_full(logits.full);
  CHECK(logits.summary != nullptr);
  return sample_summary(*logits.summary);
}

// The best and the total are found as ranks find them for a summary, and all tokens are sorted only
// where those are not enough; or where a mask leaves few of them.
Result<std::optional<TokenId>> Sampler::sample_full(std::span<const float> logits) {
  CHECK(logits.size() == seen_.size());
  if (!are_below_infinity(logits)) return non_finite();
  if (!mask_.allows_all() && count_allowed() <= kFewAllowed) {
    take_allowed(logits);
    if (heap_.empty()) return nothing_allowed();
  } else {
    const std::span<const float> adjusted = adjust(logits);
    const SummaryRequest request{
        .top_max = std::min(logits.size(), std::max(kTop, static_cast<size_t>(params_.top_k))),
        .inverse_temperature = inverse_temperature(),
        .path = path_,
    };
    summarize(adjusted, request, &summary_);
    if (summary_.non_finite) return non_finite();
    if (summary_.top.front().logit == -kInfinity) {
      return mask_.allows_all() ? non_finite() : nothing_allowed();
    }
    if (is_greedy()) return std::optional<TokenId>(summary_.top.front().id);
    heap_ = summary_.top;  // falling order is a heap already
    while (heap_.back().logit == -kInfinity) heap_.pop_back();
    const auto token = draw(summary_.log_sum_exp, summary_.top.size() == summary_.rows);
    if (token.has_value()) return token;
    heap_.clear();
    for (size_t i = 0; i < adjusted.size(); ++i) {
      if (adjusted[i] > -kInfinity) heap_.push_back({static_cast<TokenId>(i), adjusted[i]});
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), comes_after);
  if (is_greedy()) return std::optional<TokenId>(heap_.front().id);
  const auto token = draw(log_sum_of_heap(), /*complete=*/true);
  CHECK(token.has_value());
  return token;
}

size_t Sampler::count_allowed() const {
  size_t count = 0;
  for (size_t i = 0; i < mask_words(); ++i) {
    count += static_cast<size_t>(std::popcount(mask_.word(i)));
  }
  return count;
}

// The mask's tokens into the heap's memory, adjusted, in no order.
void Sampler::take_allowed(std::span<const float> logits) {
  heap_.clear();
  for (size_t i = 0; i < mask_words(); ++i) {
    for (uint32_t word = mask_.word(i); word != 0; word &= word - 1) {
      const size_t id = i * TokenMask::kWordBits + static_cast<size_t>(std::countr_zero(word));
      if (id >= logits.size()) break;
      const auto token = static_cast<TokenId>(id);
      const float logit = adjusted({token, logits[id]});
      if (logit > -kInfinity) heap_.push_back({token, logit});
    }
  }
}

// The logits after the mask, penalties and biases: themselves where nothing changes them.
std::span<const float> Sampler::adjust(std::span<const float> logits) {
  if (mask_.allows_all() && !adjusts_logits()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  const auto adjust_one = [&](TokenId id) {
    const auto index = static_cast<size_t>(id);
    adjusted_[index] = adjusted({id, logits[index]});
  };
  if (adjusts_logits()) {
    for (const TokenId id : distinct_) adjust_one(id);
    for (const LogitBias& bias : params_.logit_bias) adjust_one(bias.id);
  }
  if (mask_.allows_all()) return adjusted_;
  constexpr size_t kBits = TokenMask::kWordBits;
  for (size_t first = 0; first < logits.size(); first += kBits) {
    const uint32_t word = mask_.word(first / kBits);
    const size_t in_word = std::min(kBits, logits.size() - first);
    for (size_t i = 0; i < in_word; ++i) {
      if (((word >> i) & 1U) == 0) adjusted_[first + i] = -kInfinity;
    }
  }
  return adjusted_;
}

// ln of the sum of exp(logit / temperature) over the heap, which is not empty.
double Sampler::log_sum_of_heap() const {
  const double inverse = 1.0 / double{params_.temperature};
  const double best = double{heap_.front().logit};
  double sum = 0;
  for (const Candidate& candidate : heap_) {
    sum += std::exp((double{candidate.logit} - best) * inverse);
  }
  return best * inverse + std::log(sum);
}

// A summary is enough when no token outside it could change the choice. A token outside is at most
// `floor`, the last one's logit, as the model gave it; steps that only lower logits keep it there.
// So of the adjusted candidates those above the floor, and unchanged ones at it, come in the order
// that full logits would give, and only those are used.
Result<std::optional<TokenId>> Sampler::sample_summary(const LogitSummary& summary) {
  if (summary.non_finite) return non_finite();
  const bool complete = summary.top.size() == summary.rows;
  if (summary.top.empty() || summary.top.front().logit == -kInfinity) return non_finite();
  const bool adjusts = adjusts_logits();
  if (!complete && adjusts && may_raise_logits()) return std::optional<TokenId>();
  const bool changes = adjusts || !mask_.allows_all();

  const float floor = summary.top.back().logit;
  heap_.clear();
  for (Candidate candidate : summary.top) {
    const float given = candidate.logit;
    if (changes) candidate.logit = adjusted(candidate);
    const bool in_order = complete || candidate.logit > floor || candidate.logit == given;
    if (in_order && candidate.logit > -kInfinity) heap_.push_back(candidate);
  }
  if (heap_.empty() && complete) return mask_.allows_all() ? non_finite() : nothing_allowed();
  if (heap_.empty()) return std::optional<TokenId>();
  std::make_heap(heap_.begin(), heap_.end(), comes_after);
  if (is_greedy()) return std::optional<TokenId>(heap_.front().id);

  // Without a top_k the total over all tokens is needed, of the logits as they are.
  const bool total_known = !changes && summary.inverse_temperature == inverse_temperature();
  if (params_.top_k == 0 && !total_known) return std::optional<TokenId>();
  return draw(summary.log_sum_exp, complete);
}

bool Sampler::next_falling() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), comes_after);
  taken_.push_back(heap_.back());
  heap_.pop_back();
  return true;
}

// Every filter keeps a prefix of the falling order. Candidates are taken one by one until the
// prefix is known, then one is drawn from it; where no filter is on, until the draw is reached.
// Without `complete` it gives up when the candidates run out before that.
std::optional<TokenId> Sampler::draw(double log_total, bool complete) {
  taken_.clear();
  const double inverse = 1.0 / double{params_.temperature};
  const double best = double{heap_.front().logit};
  auto weight_of = [&](const Candidate& candidate) {
    return std::exp((double{candidate.logit} - best) * inverse);
  };
  double total = std::exp(log_total - best * inverse);
  if (params_.top_k > 0) {
    const auto top_k = static_cast<size_t>(params_.top_k);
    total = 0;
    while (taken_.size() < top_k && next_falling()) total += weight_of(taken_.back());
    if (taken_.size() < top_k && !complete) return std::nullopt;
    heap_.swap(taken_);  // falling order is a heap already
    taken_.clear();
    complete = true;
  }

  const bool filters = params_.top_p < 1 || params_.min_p > 0;
  const double random = random_.peek();
  const double mass_kept_max = filters ? double{params_.top_p} * total : random * total;
  double mass = 0;
  bool ended = false;
  while (!ended) {
    if (heap_.empty()) {
      if (!complete) return std::nullopt;
      break;
    }
    if (filters && !taken_.empty() && weight_of(heap_.front()) < double{params_.min_p}) break;
    next_falling();
    mass += weight_of(taken_.back());
    ended = filters ? params_.top_p < 1 && mass >= mass_kept_max : mass > mass_kept_max;
  }
  random_.advance();
  if (!filters) return taken_.back().id;

  double left = random * mass;
  for (const Candidate& candidate : taken_) {
    left -= weight_of(candidate);
    if (left < 0) return candidate.id;
  }
  return taken_.back().id;
}

}  // namespace shoal::runtime
