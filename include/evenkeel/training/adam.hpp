#pragma once

#include <algorithm>  // copy_n
#include <array>
#include <cmath>    // pow, sqrt
#include <cstddef>  // size_t
#include <cstdint>  // int64_t
#include <limits>   // smallest normal number
#include <vector>

#include "evenkeel/core/check.hpp"          // fraction_below_one, not_negative, positive
#include "evenkeel/kernels/register.hpp"    // Register
#include "evenkeel/training/optimizer.hpp"  // Optimizer, for_each_piece

namespace evenkeel {

struct AdamOptions {
  double learning_rate = 1e-3;   ///< About how far an element moves in a step. Finite, >= 0. The paper's default.
  double beta1 = 0.9;            ///< What the mean of the gradients keeps each step. In [0, 1).
  double beta2 = 0.999;          ///< What the mean of their squares keeps. In [0, 1).
  double epsilon = 1e-8;         ///< Added to the root. Finite, > 0, normal in the scalar type; unit: of the gradient.
  double weight_decay = 0;       ///< L2: decay * parameter is added to the gradient, and rescaled. Finite, >= 0.
  bool amsgrad = false;          ///< Whether to divide by the largest mean of squares so far.
  Decay decay = Decay::weights;  ///< Which parameters weight_decay applies to.
};

struct AdamWOptions {
  double learning_rate = 1e-3;   ///< About how far an element moves in a step. Finite, >= 0. The paper's default.
  double beta1 = 0.9;            ///< What the mean of the gradients keeps each step. In [0, 1).
  double beta2 = 0.999;          ///< What the mean of their squares keeps. In [0, 1).
  double epsilon = 1e-8;         ///< Added to the root. Finite, > 0, normal in the scalar type; unit: of the gradient.
  double weight_decay = 0.01;    ///< Decoupled: a step takes off rate * decay of a parameter. Finite, >= 0.
  bool amsgrad = false;          ///< Whether to divide by the largest mean of squares so far.
  Decay decay = Decay::weights;  ///< Which parameters weight_decay applies to.
};

namespace kernels {

/// The numbers of one step, worked out in double and rounded once: 1 - 0.999 in float is off by 1e-5.
template <typename Scalar>
struct AdamStep {
  Scalar l2;                         // lambda of Adam
  Scalar kept;                       // of the parameter: 1 - gamma lambda of AdamW
  Scalar one_minus_beta1;            //
  Scalar beta2;                      //
  Scalar one_minus_beta2;            //
  Scalar rate;                       // gamma / (1 - beta1^t)
  Scalar inverse_root_correction_2;  // 1 / sqrt(1 - beta2^t)
  Scalar epsilon;                    //
};

/// rate: gamma, t: 1 in the first step. Its decay is that of a parameter that is not decayed.
template <typename Scalar, class Options>
AdamStep<Scalar> adam_step(const Options& options, double rate, std::int64_t t) {
  const double correction_1 = 1 - std::pow(options.beta1, static_cast<double>(t));
  const double correction_2 = 1 - std::pow(options.beta2, static_cast<double>(t));
  return {.l2 = Scalar(0),
          .kept = Scalar(1),
          .one_minus_beta1 = static_cast<Scalar>(1 - options.beta1),
          .beta2 = static_cast<Scalar>(options.beta2),
          .one_minus_beta2 = static_cast<Scalar>(1 - options.beta2),
          .rate = static_cast<Scalar>(rate / correction_1),
          .inverse_root_correction_2 = static_cast<Scalar>(1 / std::sqrt(correction_2)),
          .epsilon = static_cast<Scalar>(options.epsilon)};
}

/// average + weight (x - average), in the form that is exact at the nearer end, as torch.lerp has it.
template <bool Usual, typename Scalar, class R>
EVENKEEL_INLINE inline R moved_towards(const R& average, const R& x, Scalar weight) {
  if (Usual || weight < Scalar(0.5)) return average + weight * (x - average);
  return x - (Scalar(1) - weight) * (x - average);
}

/// Whether a step is one of AdamW as it mostly is, for which the loop has no branches.
template <typename Scalar>
bool is_usual(const AdamStep<Scalar>& step, const Scalar* v_max) {
  return step.l2 == 0 && step.one_minus_beta1 < Scalar(0.5) && v_max == nullptr && step.rate != 0;
}

/// Moves one register of each, at these places in memory.
template <bool Usual, typename Scalar>
EVENKEEL_INLINE inline void adam_update_register(Scalar* p, const Scalar* g, Scalar* m, Scalar* v, Scalar* v_max,
                                                 const AdamStep<Scalar>& step) {
  using R = Register<Scalar>;
  const R parameter = load<R>(p);
  R gradient = load<R>(g);
  if (!Usual && step.l2 != 0) gradient = gradient + step.l2 * parameter;
  const R mean = moved_towards<Usual, Scalar, R>(load<R>(m), gradient, step.one_minus_beta1);
  const R square = step.beta2 * load<R>(v) + step.one_minus_beta2 * gradient * gradient;
  store<R>(m, mean);
  store<R>(v, square);
  R largest = square;
  if (!Usual && v_max != nullptr) store<R>(v_max, largest = larger<R>(load<R>(v_max), square));  // a NaN stays visible
  if (!Usual && step.rate == 0) return;  // p keeps its bits, even where the update is not finite

  const R root = square_root<Scalar>(largest);
  store<R>(p, step.kept * parameter - step.rate * mean / (root * step.inverse_root_correction_2 + step.epsilon));
}

template <typename Scalar>
void adam_update_piece(Index count, Scalar* p, const Scalar* g, Scalar* m, Scalar* v, Scalar* v_max,
                       const AdamStep<Scalar> step) {
  constexpr Index width = register_count<Scalar>;
  const Index end = count - count % width;
  Index i = 0;
  if (is_usual(step, v_max))
    for (; i < end; i += width) adam_update_register<true>(p + i, g + i, m + i, v + i, v_max, step);
  else
    for (; i < end; i += width)
      adam_update_register<false>(p + i, g + i, m + i, v + i, v_max == nullptr ? nullptr : v_max + i, step);
  if (i == count) return;

  std::array<Scalar, static_cast<std::size_t>(width)> rest[5] = {};
  Scalar* const moved[] = {p + i, m + i, v + i, v_max == nullptr ? nullptr : v_max + i};
  const auto copy = [&](const Scalar* from, Scalar* to) { std::copy_n(from, count - i, to); };
  for (std::size_t k = 0; k < 4; ++k)
    if (moved[k] != nullptr) copy(moved[k], rest[k].data());
  copy(g + i, rest[4].data());
  adam_update_register<false>(rest[0].data(), rest[4].data(), rest[1].data(), rest[2].data(),
                              v_max == nullptr ? nullptr : rest[3].data(), step);
  for (std::size_t k = 0; k < 4; ++k)
    if (moved[k] != nullptr) copy(rest[k].data(), moved[k]);
}

/// p: parameter, g: gradient, m: mean of gradients, v: mean of squares, v_max: its maximum or null without amsgrad.
template <typename Scalar>
void adam_update(Index size, Scalar* p, const Scalar* g, Scalar* m, Scalar* v, Scalar* v_max, AdamStep<Scalar> step) {
  for_each_piece(size, [=](Index first, Index count) {
    adam_update_piece(count, p + first, g + first, m + first, v + first, v_max == nullptr ? nullptr : v_max + first,
                      step);
  });
}

}  // namespace kernels

namespace detail {

template <typename Scalar, class Options>
void check_adam(const Options& options, const char* place) {
  not_negative(options.learning_rate, place, "learning_rate");
  fraction_below_one(options.beta1, place, "beta1");
  fraction_below_one(options.beta2, place, "beta2");
  positive(options.epsilon, place, "epsilon");
  constexpr auto least = static_cast<double>((std::numeric_limits<Scalar>::min)());
  if (options.epsilon < least)
    EVENKEEL_THROW(std::invalid_argument, place, ": expected epsilon >= ", least,
                   ", the smallest normal number of the scalar type, got ", options.epsilon);
  not_negative(options.weight_decay, place, "weight_decay");
}

template <class Options>
std::vector<const char*> adam_moment_names(const Options& options) {
  if (options.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

template <typename Scalar>
void adam_update(TrainedParameter<Scalar>& parameter, const kernels::AdamStep<Scalar>& step) {
  auto& moments = parameter.moments;
  kernels::adam_update(parameter.size, parameter.value, parameter.gradient, moments[0].data(), moments[1].data(),
                       moments.size() > 2 ? moments[2].data() : nullptr, step);
}

}  // namespace detail

/// Adam, with L2 regularization.
///
///     g = gradient + lambda p                    lambda: weight_decay, 0 where a parameter is not decayed
///     m = beta1 m + (1 - beta1) g
///     v = beta2 v + (1 - beta2) g^2
///     p = p - gamma / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)        t = 1 in the first step
///                                                gamma (the paper's alpha): learning_rate times the schedule's factor
///
/// With amsgrad the root is that of the largest v so far.
///
/// State   exp_avg: m; exp_avg_sq: v; with amsgrad max_exp_avg_sq.
/// Source  Kingma & Ba 2015, Algorithm 1, https://arxiv.org/abs/1412.6980, and torch.optim.Adam: epsilon is added after the
///         bias correction, as in the algorithm and not in the paper's faster form. amsgrad: Reddi, Kale & Kumar 2018,
///         Algorithm 2, https://openreview.net/forum?id=ryQu7f-RZ, with PyTorch's departure: both moments are
///         bias-corrected, v after the maximum is taken. PyTorch decays all parameters; here weights only, unless decay is
///         Decay::everything. Weight decay that Adam does not rescale: AdamW.
template <Real Scalar_>
class Adam final : public Optimizer<Adam<Scalar_>, Scalar_, AdamOptions> {
  using Base = Optimizer<Adam, Scalar_, AdamOptions>;

 public:
  static constexpr const char* name = "Adam";
  using Base::Base;

 private:
  friend Base;

  static void check(const AdamOptions& options, const char* place) { detail::check_adam<Scalar_>(options, place); }
  static auto moment_names(const AdamOptions& options) { return detail::adam_moment_names(options); }
  static auto step_numbers(const AdamOptions& options, double rate, std::int64_t t) {
    return kernels::adam_step<Scalar_>(options, rate, t);
  }
  static void update(detail::TrainedParameter<Scalar_>& parameter, kernels::AdamStep<Scalar_> step, double) {
    step.l2 = static_cast<Scalar_>(parameter.weight_decay);
    detail::adam_update(parameter, step);
  }
};

template <class Network>
Adam(Network&, AdamOptions = {}, std::vector<ParameterGroup<AdamOptions>> = {})
    -> Adam<detail::ParameterNumber<Network>>;

/// Adam with decoupled weight decay: the decay is not rescaled by the gradients' history.
///
///     p = p - gamma lambda p                     lambda: weight_decay, 0 where a parameter is not decayed
///     m = beta1 m + (1 - beta1) g                g: gradient
///     v = beta2 v + (1 - beta2) g^2
///     p = p - gamma / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)        t = 1 in the first step
///                                                gamma: learning_rate times the schedule's factor
///
/// With amsgrad the root is that of the largest v so far.
///
/// State   exp_avg: m; exp_avg_sq: v; with amsgrad max_exp_avg_sq.
/// Source  Loshchilov & Hutter 2019, Algorithm 2, https://arxiv.org/abs/1711.05101, with the departure of torch.optim.AdamW:
///         there the decay is multiplied by the schedule alone, here by the scheduled learning rate, so that halving
///         learning_rate halves the decay of a step. PyTorch decays all parameters; here weights only, unless decay is
///         Decay::everything. Epsilon and amsgrad as in Adam.
template <Real Scalar_>
class AdamW final : public Optimizer<AdamW<Scalar_>, Scalar_, AdamWOptions> {
  using Base = Optimizer<AdamW, Scalar_, AdamWOptions>;

 public:
  static constexpr const char* name = "AdamW";
  using Base::Base;

 private:
  friend Base;

  static void check(const AdamWOptions& options, const char* place) { detail::check_adam<Scalar_>(options, place); }
  static auto moment_names(const AdamWOptions& options) { return detail::adam_moment_names(options); }
  static auto step_numbers(const AdamWOptions& options, double rate, std::int64_t t) {
    return kernels::adam_step<Scalar_>(options, rate, t);
  }
  static void update(detail::TrainedParameter<Scalar_>& parameter, kernels::AdamStep<Scalar_> step, double rate) {
    step.kept = static_cast<Scalar_>(1 - rate * parameter.weight_decay);
    detail::adam_update(parameter, step);
  }
};

template <class Network>
AdamW(Network&, AdamWOptions = {}, std::vector<ParameterGroup<AdamWOptions>> = {})
    -> AdamW<detail::ParameterNumber<Network>>;

}  // namespace evenkeel
