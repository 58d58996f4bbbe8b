#pragma once

#include <cmath>  // sqrt

#include "evenkeel/core/parameter.hpp"           // Parameter, Accumulate
#include "evenkeel/core/types.hpp"               // Wide
#include "evenkeel/core/view.hpp"                // View
#include "evenkeel/kernels/batch_norm.hpp"       // the arithmetic
#include "evenkeel/kernels/channel_moments.hpp"  // of many positions

namespace evenkeel::detail {

/// A mean and a biased variance.
template <typename Sum>
struct MeanAndVariance {
  Sum mean, variance;
};

/// What each channel of a batch is normalized with, and its derivative: for norms whose statistics are one set a channel for
/// the whole batch, which may be of halves. Stands in room of its owner, which keeps it from forward to backward.
template <typename Stored>
class ChannelNumbers {
 public:
  using Scalar = Arithmetic<Stored>;
  using Sum = Wide<Scalar>;
  using Sums = kernels::ChannelGradientSums<Sum>;

  /// Numbers of room, and of Sums for the derivative.
  static constexpr Index room(Index channels) { return 6 * channels; }
  static Index sums_room(Index rows, Index channels, Index positions) {
    return positions == 1 ? kernels::column_gradient_sums_room(rows, channels) : channels;
  }

  ChannelNumbers(Index channels, Index positions, Scalar* room)
      : channels_{channels},
        positions_{positions},
        mean_{room},
        mean_residual_{room + channels},
        inverse_deviation_{room + 2 * channels},
        scale_{room + 3 * channels},
        mean_dy_{room + 4 * channels},
        slope_{room + 5 * channels} {}

  /// y = weight * (x - mean) / sqrt(variance + epsilon) + bias, where of(c) gives the MeanAndVariance of channel c.
  template <class OfChannel>
  void normalize(View<const Stored> x, const OfChannel& of, double epsilon, const Scalar* weight, const Scalar* bias,
                 View<Stored> y) const {
    for (Index c = 0; c < channels_; ++c) {
      const MeanAndVariance<Sum> statistics = of(c);
      mean_[c] = static_cast<Scalar>(statistics.mean);
      mean_residual_[c] = static_cast<Scalar>(statistics.mean - static_cast<Sum>(mean_[c]));
      inverse_deviation_[c] = static_cast<Scalar>(1 / std::sqrt(statistics.variance + static_cast<Sum>(epsilon)));
      scale_[c] = inverse_deviation_[c] * weight[c];
    }
    kernels::transform_channels(x, positions_, {mean_, mean_residual_, scale_, bias}, y);
  }

  /// The derivative of the last normalize, the statistics being those of x itself or constants. `sums`: see sums_room. dx
  /// without data is not computed.
  void backward(View<const Stored> x, View<const Stored> dy, bool statistics_of_x, Parameter<Scalar>& weight,
                Parameter<Scalar>& bias, View<Stored> dx, Accumulate accumulate, Sums* sums) const {
    if (statistics_of_x || weight.present()) {
      if (positions_ == 1)
        kernels::column_gradient_sums(x, dy, mean_, mean_residual_, sums);
      else
        kernels::channel_gradient_sums(x, dy, positions_, mean_, mean_residual_, sums);
      const auto n = static_cast<Sum>(x.rows * positions_);
      const auto add = [accumulate](Scalar& gradient, Sum term) {
        gradient = static_cast<Scalar>(accumulate == Accumulate::yes ? static_cast<Sum>(gradient) + term : term);
      };
      for (Index c = 0; c < channels_; ++c) {
        const auto inverse = static_cast<Sum>(inverse_deviation_[c]);
        mean_dy_[c] = static_cast<Scalar>(sums[c].dy / n);
        slope_[c] = static_cast<Scalar>(inverse * inverse * (sums[c].dy_centred / n));
        if (!weight.present()) continue;
        add(weight.gradient().data[c], sums[c].dy_centred * inverse);
        add(bias.gradient().data[c], sums[c].dy);
      }
    }
    if (dx.data == nullptr) return;
    for (Index c = 0; c < channels_; ++c) scale_[c] = inverse_deviation_[c] * weight.data()[c];
    if (statistics_of_x)
      kernels::transform_channel_gradients(x, dy, positions_, {mean_, mean_residual_, scale_, mean_dy_, slope_}, dx);
    else
      kernels::scale_channels(dy, positions_, scale_, dx);
  }

 private:
  Index channels_, positions_;
  Scalar *mean_, *mean_residual_, *inverse_deviation_;  // kept from forward to backward
  Scalar *scale_, *mean_dy_, *slope_;                   // scratch
};

}  // namespace evenkeel::detail
