#pragma once

#include "evenkeel/core/buffer.hpp"              // Buffer
#include "evenkeel/core/check.hpp"               // at_least, positions_of
#include "evenkeel/core/error.hpp"               // ShapeError
#include "evenkeel/kernels/spatial_dropout.hpp"  // the arithmetic
#include "evenkeel/layers/dropout_base.hpp"      // DropoutBase

namespace evenkeel {

/// Sets each channel of each example to zero as a whole with probability p, independently, and scales the others so that the
/// mean stays: where neighbouring positions say much the same, dropping them one by one would hide nothing.
///
///     y = x * scale where the channel is kept, else 0      scale = 1 / (1 - p), p being rounded to a multiple of 2^-16
///
/// Shapes  input, output and their gradients: (batch, channels x positions), a row being channel after channel (NCHW
///         flattened).
/// Modes   train, frozen_statistics, monte_carlo: draw a new mask at every call. eval: the identity, bit for bit.
/// Masks   Those of Dropout on a (batch, channels) matrix with the same p, seed and place; see DropoutBase: the channel
///         takes the place of the column. So with one position SpatialDropout is Dropout. Forward keeps the factor of each
///         channel of each row for backward.
/// Source  Tompson, Goroshin, Jain, LeCun & Bregler 2015, https://arxiv.org/abs/1411.4280;
///         torch.nn.Dropout1d(p) on (N, C, L) and Dropout2d(p) on (N, C, H, W), whose p is not rounded and whose masks are
///         others. NaN and infinity in a dropped channel are dropped; in PyTorch they come through as NaN.
template <Storable Scalar_>
class SpatialDropout final : public DropoutBase<SpatialDropout<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "SpatialDropout";

  /// p is the probability that a channel is dropped. Throws std::invalid_argument unless p is in [0, 1], both sizes are
  /// at least 1, and Index holds their product.
  SpatialDropout(double p, Index channels, Index positions, DropoutOptions options = {})
      : DropoutBase<SpatialDropout, Scalar>(p, options),
        channels_{detail::at_least(1, channels, name, "channels")},
        positions_{detail::positions_of(channels, positions, name)} {}

  Index channels() const { return channels_; }
  Index positions() const { return positions_; }
  Index input_features() const { return channels_ * positions_; }
  Index output_features(Index) const { return channels_ * positions_; }

  template <Storable U>
  SpatialDropout<U> cast() const {
    SpatialDropout<U> result(this->p(), channels_, positions_);
    static_cast<detail::MaskSource&>(result) = *this;
    return result;
  }

  void check_input(Index rows, Index columns, Mode, const char* function) const {
    if (columns != channels_ * positions_)
      EVENKEEL_THROW(ShapeError, name, "::", function, ": expected input of shape (batch, ", channels_ * positions_,
                     ") for ", channels_, " channels x ", positions_, " positions, got ", detail::shape(rows, columns));
  }

 private:
  using Number = Arithmetic<Scalar>;
  friend DropoutBase<SpatialDropout, Scalar>;
  template <Storable>
  friend class SpatialDropout;

  void drop_forward(View<const Scalar> x, View<Scalar> y) {
    const View<Number> factors = factors_.matrix(x.rows, channels_);
    kernels::draw_channel_factors(this->key(), this->template scale<Number>(), factors);
    kernels::spatial_dropout<Scalar>(x, factors, positions_, y);
  }
  void drop_backward(View<const Scalar> dy, View<Scalar> dx) {
    kernels::spatial_dropout<Scalar>(dy, factors_.matrix(dy.rows, channels_), positions_, dx);
  }

  Index channels_, positions_;      // >= 1
  detail::Buffer<Number> factors_;  // (batch, channels), of the last forward
};

}  // namespace evenkeel
