#pragma once

#include "evenkeel/kernels/alpha_dropout.hpp"  // the arithmetic
#include "evenkeel/layers/dropout_base.hpp"    // DropoutBase, KeptMask

namespace evenkeel {

/// Dropout for self-normalizing networks: sets each element to SELU's limit for large negative inputs with probability p,
/// independently, then brings mean and variance back to those of the input where these were 0 and 1.
///
///     y = a (x where kept, else alpha') + b      alpha' = -1.7580993408473766, q = 1 - p
///     a = (q + alpha'^2 q p)^(-1/2)              b = -a p alpha'
///
/// Shapes  input, output and their gradients: (batch, features), any number of features.
/// Modes   train, frozen_statistics, monte_carlo: draw a new mask at every call. eval: the identity, bit for bit.
/// Masks   Those of Dropout with the same p, seed and place; see DropoutBase. In a and b, p is T / 65536, so mean and variance
///         are exact.
/// Source  Klambauer, Unterthiner, Mayr & Hochreiter 2017, https://arxiv.org/abs/1706.02515;
///         torch.nn.AlphaDropout(p), whose p is not rounded and whose masks are others. p = 1, where a is infinite, gives
///         zeros, as in PyTorch. NaN and infinity at a dropped place are dropped; in PyTorch they come through.
template <Storable Scalar_>
class AlphaDropout final : public DropoutBase<AlphaDropout<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "AlphaDropout";

  /// p is the probability that an element is dropped. Throws std::invalid_argument unless p is in [0, 1].
  explicit AlphaDropout(double p = 0.5, DropoutOptions options = {})
      : DropoutBase<AlphaDropout, Scalar>(p, options), rule_{kernels::alpha_rule<Number>(this->threshold())} {}

  Index output_features(Index input_features) const { return input_features; }

  template <Storable U>
  AlphaDropout<U> cast() const {
    AlphaDropout<U> result(this->p());
    static_cast<detail::MaskSource&>(result) = *this;
    return result;
  }

  void check_input(Index, Index, Mode, const char*) const {}

 private:
  using Number = Arithmetic<Scalar>;
  friend DropoutBase<AlphaDropout, Scalar>;
  template <Storable>
  friend class AlphaDropout;

  void drop_forward(View<const Scalar> x, View<Scalar> y) {
    kernels::alpha_dropout_forward(x, this->key(), rule_, y, mask_.room(x, y));
  }
  void drop_backward(View<const Scalar> dy, View<Scalar> dx) { mask_.backward(dy, this->key(), rule_.scale, dx); }

  kernels::AlphaRule<Number> rule_;  // a, b, and what a dropped element becomes
  detail::KeptMask<Scalar> mask_;    // of the last forward
};

}  // namespace evenkeel
