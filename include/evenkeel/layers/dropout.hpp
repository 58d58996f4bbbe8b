#pragma once

#include "evenkeel/kernels/dropout.hpp"      // the arithmetic
#include "evenkeel/layers/dropout_base.hpp"  // DropoutBase, KeptMask

namespace evenkeel {

/// Sets each element to zero with probability p, independently, and scales the others so that the mean stays.
///
///     y = x * scale where kept, else 0           scale = 1 / (1 - p), p being rounded to a multiple of 2^-16
///
/// Shapes  input, output and their gradients: (batch, features), any number of features.
/// Modes   train, frozen_statistics, monte_carlo: draw a new mask at every call. eval: the identity, bit for bit; no mask is
///         used up.
/// Masks   A function of (seed, stream, number of the call, row, column) alone; see DropoutBase and kernels::MaskKey. The
///         scale is 65536 / (65536 - T), T being p's threshold, so the mean is exact. Forward keeps the mask for backward, in
///         one bit an element.
/// Source  Srivastava et al. 2014, section 10, https://jmlr.org/papers/v15/srivastava14a.html; torch.nn.Dropout(p), whose
///         p is not rounded and whose masks are others.
template <Storable Scalar_>
class Dropout final : public DropoutBase<Dropout<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "Dropout";

  /// p is the probability that an element is dropped. Throws std::invalid_argument unless p is in [0, 1].
  explicit Dropout(double p = 0.5, DropoutOptions options = {}) : DropoutBase<Dropout, Scalar>(p, options) {}

  Index output_features(Index input_features) const { return input_features; }

  template <Storable U>
  Dropout<U> cast() const {
    Dropout<U> result(this->p());
    static_cast<detail::MaskSource&>(result) = *this;
    return result;
  }

  void check_input(Index, Index, Mode, const char*) const {}

 private:
  using Number = Arithmetic<Scalar>;
  friend DropoutBase<Dropout, Scalar>;
  template <Storable>
  friend class Dropout;

  void drop_forward(View<const Scalar> x, View<Scalar> y) {
    kernels::dropout_forward(x, this->key(), this->template scale<Number>(), y, mask_.room(x, y));
  }
  void drop_backward(View<const Scalar> dy, View<Scalar> dx) {
    mask_.backward(dy, this->key(), this->template scale<Number>(), dx);
  }

  detail::KeptMask<Scalar> mask_;  // of the last forward
};

}  // namespace evenkeel
