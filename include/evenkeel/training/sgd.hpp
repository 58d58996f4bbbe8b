#pragma once

#include <cstdint>  // int64_t
#include <vector>

#include "evenkeel/core/check.hpp"          // not_negative
#include "evenkeel/training/optimizer.hpp"  // Optimizer, for_each_piece

namespace evenkeel {

struct SGDOptions {
  double learning_rate = 1e-3;   ///< Finite, >= 0; unit: parameter squared over loss. PyTorch's default.
  double momentum = 0;           ///< What is kept of the last update. Finite, >= 0, below 1 to be stable; often 0.9.
  double dampening = 0;          ///< What is left out of each gradient but the first in the momentum. Finite.
  bool nesterov = false;         ///< Whether to look ahead. Needs momentum > 0 and dampening 0.
  double weight_decay = 0;       ///< L2: decay * parameter is added to the gradient. Finite, >= 0.
  Decay decay = Decay::weights;  ///< Which parameters it applies to.
};

namespace kernels {

/// The numbers of one step, rounded once.
template <typename Scalar>
struct SGDStep {
  Scalar rate;          // gamma
  Scalar kept;          // of b: mu; 0 in the first step
  Scalar added;         // of g to b: 1 - tau; 1 in the first step
  Scalar ahead;         // of b to the update: mu with nesterov
  Scalar weight_decay;  // lambda
  bool nesterov;
};

template <typename Scalar>
void sgd_update_piece(Index count, Scalar* p, const Scalar* g, Scalar* b, const SGDStep<Scalar>& step) {
  Piece<Scalar> decayed;
  if (step.weight_decay != 0) {
    Scalar* sum = decayed.data();
    for (Index i = 0; i < count; ++i) sum[i] = g[i] + step.weight_decay * p[i];
    g = sum;
  }
  if (b != nullptr)
    for (Index i = 0; i < count; ++i) b[i] = step.kept * b[i] + step.added * g[i];
  if (step.rate == 0) return;  // p keeps its bits, even where the update is not finite

  if (b != nullptr && step.nesterov)
    for (Index i = 0; i < count; ++i) p[i] -= step.rate * (g[i] + step.ahead * b[i]);
  else if (b != nullptr)
    for (Index i = 0; i < count; ++i) p[i] -= step.rate * b[i];
  else
    for (Index i = 0; i < count; ++i) p[i] -= step.rate * g[i];
}

/// p: parameter, g: gradient, b: momentum buffer or null where momentum is 0.
template <typename Scalar>
void sgd_update(Index size, Scalar* p, const Scalar* g, Scalar* b, SGDStep<Scalar> step) {
  for_each_piece(size, [=](Index first, Index count) {
    sgd_update_piece(count, p + first, g + first, b == nullptr ? nullptr : b + first, step);
  });
}

}  // namespace kernels

/// Stochastic gradient descent, with momentum or Nesterov's momentum.
///
///     g = gradient + lambda p                   lambda: weight_decay, 0 where a parameter is not decayed
///     b = g in the first step, then mu b + (1 - tau) g        mu: momentum, tau: dampening
///     u = g + mu b with nesterov, b with momentum, else g
///     p = p - gamma u                           gamma: learning_rate times the schedule's factor
///
/// State   with momentum: momentum_buffer, b.
/// Source  torch.optim.SGD. Nesterov's momentum after Sutskever, Martens, Dahl & Hinton 2013, "On the importance of
///         initialization and momentum in deep learning", section 2, with PyTorch's two departures: the rate
///         multiplies the whole update, not each gradient in the buffer, and p is the point that is looked ahead to.
///         PyTorch decays all parameters; here weights only, unless decay is Decay::everything.
template <Real Scalar_>
class SGD final : public Optimizer<SGD<Scalar_>, Scalar_, SGDOptions> {
  using Base = Optimizer<SGD, Scalar_, SGDOptions>;

 public:
  static constexpr const char* name = "SGD";
  using Base::Base;

 private:
  friend Base;

  static void check(const SGDOptions& options, const char* place) {
    detail::not_negative(options.learning_rate, place, "learning_rate");
    detail::not_negative(options.momentum, place, "momentum");
    if (!detail::is_finite(options.dampening))
      EVENKEEL_THROW(std::invalid_argument, place, ": expected a finite dampening, got ", options.dampening);
    if (options.nesterov && !(options.momentum > 0))
      EVENKEEL_THROW(std::invalid_argument, place, ": expected momentum > 0 with nesterov, got ", options.momentum);
    if (options.nesterov && options.dampening != 0)
      EVENKEEL_THROW(std::invalid_argument, place, ": expected dampening = 0 with nesterov, got ", options.dampening);
    detail::not_negative(options.weight_decay, place, "weight_decay");
  }

  static std::vector<const char*> moment_names(const SGDOptions& options) {
    if (options.momentum > 0) return {"momentum_buffer"};
    return {};
  }

  static auto step_numbers(const SGDOptions& options, double rate, std::int64_t step) {
    const bool first = step == 1;
    return kernels::SGDStep<Scalar_>{.rate = static_cast<Scalar_>(rate),
                                     .kept = static_cast<Scalar_>(first ? 0 : options.momentum),
                                     .added = static_cast<Scalar_>(first ? 1 : 1 - options.dampening),
                                     .ahead = static_cast<Scalar_>(options.momentum),
                                     .weight_decay = Scalar_(0),
                                     .nesterov = options.nesterov};
  }
  static void update(detail::TrainedParameter<Scalar_>& parameter, kernels::SGDStep<Scalar_> numbers, double) {
    numbers.weight_decay = static_cast<Scalar_>(parameter.weight_decay);
    Scalar_* buffer = parameter.moments.empty() ? nullptr : parameter.moments[0].data();
    kernels::sgd_update(parameter.size, parameter.value, parameter.gradient, buffer, numbers);
  }
};

template <class Network>
SGD(Network&, SGDOptions = {}, std::vector<ParameterGroup<SGDOptions>> = {}) -> SGD<detail::ParameterNumber<Network>>;

}  // namespace evenkeel
