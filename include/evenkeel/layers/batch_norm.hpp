#pragma once

#include <concepts>  // integral
#include <optional>

#include "evenkeel/core/buffer.hpp"                // Buffer
#include "evenkeel/core/check.hpp"                 // positive, positions_of, size_of
#include "evenkeel/core/parameter.hpp"             // Parameter
#include "evenkeel/kernels/channel_moments.hpp"    // of many positions
#include "evenkeel/kernels/column_moments.hpp"     // of one
#include "evenkeel/layers/channel_numbers.hpp"     // the arithmetic
#include "evenkeel/layers/layer_base.hpp"          // LayerBase, check_channel_columns
#include "evenkeel/layers/running_statistics.hpp"  // RunningStatisticsBase

namespace evenkeel {

struct BatchNormOptions {
  double epsilon = 1e-5;  ///< Added to the variance, under the root. Finite, > 0; unit: input squared.
  std::optional<double> momentum =
      0.1;             ///< Weight of the new batch, in [0, 1]; nullopt: the plain average of all batches.
  bool affine = true;  ///< Whether there are a gain and a shift for each channel to learn.
  bool track_running_statistics = true;  ///< Without them, eval normalizes with the batch.
  NonFinite non_finite = NonFinite::keep_last_good;
};

/// Normalizes each channel over the batch (and over positions), then scales and shifts each channel.
///
///     y = weight * (x - mean) / sqrt(variance + epsilon) + bias
///     running = (1 - momentum) * running + momentum * of the batch
///
/// With the batch's statistics the variance is biased; the running variance takes the unbiased one, n / (n - 1) times it.
///
/// Shapes  BatchNorm(features): (batch, features). BatchNorm(channels, positions): (batch, channels x positions), a row being
///         channel after channel (NCHW flattened). weight, bias, running statistics: (1, channels).
/// Modes   train: the batch's statistics, the running ones move; train_prepared: these move when committed. eval,
///         frozen_statistics, monte_carlo: running statistics, which rest and are constants in backward. Without tracked
///         statistics eval and monte_carlo normalize with the batch, and frozen_statistics is a UsageError.
/// Errors  Statistics of the batch need more than one value in each channel: else ShapeError.
/// Source  Ioffe & Szegedy 2015, algorithms 1 and 2, https://arxiv.org/abs/1502.03167; torch.nn.BatchNorm1d(features) and
///         2d(channels), momentum in their sense (see momentum_from_keras). PyTorch lets a NaN batch spoil the running
///         statistics; see NonFinite.
template <Storable Scalar_, int Channels = Eigen::Dynamic>
class BatchNorm final : public LayerBase<BatchNorm<Scalar_, Channels>, Scalar_>,
                        public RunningStatisticsBase<Arithmetic<Scalar_>> {
 public:
  using Scalar = Scalar_;
  using Number = Arithmetic<Scalar>;  ///< Of parameters and statistics.
  static constexpr const char* name = "BatchNorm";

  /// Throws std::invalid_argument if a size is < 1, their product is beyond Index, epsilon is not a positive finite
  /// number, or momentum not in [0, 1].
  explicit BatchNorm(Index features, BatchNormOptions options = {}) : BatchNorm(features, Index{1}, options) {}
  template <std::integral Positions>  // not Index: {} is options, not positions
  BatchNorm(Index channels, Positions positions, BatchNormOptions options = {})
      : Running(name, detail::size_of<Channels>(channels, name),
                {options.track_running_statistics, options.momentum, options.non_finite}),
        channels_{channels},
        positions_{detail::positions_of(channels, static_cast<Index>(positions), name)},
        options_{options},
        weight_{"weight", ParameterKind::norm_scale, 1, channels_, Number(1), options.affine},
        bias_{"bias", ParameterKind::norm_shift, 1, channels_, Number(0), options.affine} {
    detail::positive(options.epsilon, name, "epsilon");
  }
  explicit BatchNorm(BatchNormOptions options = {}) requires(Channels != Eigen::Dynamic)
      : BatchNorm(Channels, Index{1}, options) {}

  Index channels() const { return channels_; }
  Index positions() const { return positions_; }
  double epsilon() const { return options_.epsilon; }
  Index input_features() const { return channels_ * positions_; }
  Index output_features(Index) const { return channels_ * positions_; }
  static constexpr int fixed_output_features(int features) { return features; }
  /// Without running statistics; with them it takes less.
  static constexpr Index fixed_infer_bytes(int rows, int features) {
    using Room = Workspace<Scalar>;
    const Index channels = Channels == Eigen::Dynamic ? features : Channels;
    return Room::template bytes<Moments>(kernels::column_moments_room(rows, channels)) +
           Room::template bytes<Number>(ChannelNumbers::room(channels));
  }

  Parameters<Number> parameters() { return detail::parameter_views<Number>(weight_, bias_); }
  Parameters<const Number> parameters() const { return detail::parameter_views<const Number>(weight_, bias_); }

  template <Storable U>
  BatchNorm<U, Channels> cast() const {
    BatchNorm<U, Channels> result(channels_, positions_, options_);
    result.weight_ = weight_.template cast<Arithmetic<U>>();
    result.bias_ = bias_.template cast<Arithmetic<U>>();
    result.copy_statistics(*this);
    return result;
  }

  void check_input(Index rows, Index columns, Mode mode, const char* function) const {
    detail::check_channel_columns(name, function, channels_, positions_, rows, columns);
    if (mode.statistics() == Statistics::frozen && !options_.track_running_statistics)
      EVENKEEL_THROW(UsageError, name, "::", function,
                     ": expected running statistics to be frozen, got a layer that tracks none");
    if (uses_batch(mode) && rows * positions_ < 2)
      EVENKEEL_THROW(ShapeError, name, "::", function,
                     ": expected more than one value per channel to take statistics of, got ", rows * positions_,
                     " from input of shape ", detail::shape(rows, columns),
                     "; use a larger batch (drop an incomplete last one), running statistics (Mode::eval, "
                     "Mode::frozen_statistics), or LayerNorm");
  }

 private:
  friend LayerBase<BatchNorm, Scalar>;
  template <Storable, int>
  friend class BatchNorm;
  using Running = RunningStatisticsBase<Number>;
  using Sum = Wide<Scalar>;
  using Moments = kernels::ColumnMoments<Sum>;

  using ChannelNumbers = detail::ChannelNumbers<Scalar>;

  static constexpr bool needs_input() { return true; }

  bool uses_batch(Mode mode) const {
    return mode.statistics() == Statistics::batch || !options_.track_running_statistics;
  }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    const Moments* moments = nullptr;
    if (uses_batch(mode)) {
      moments = take_moments(x, moments_.resize(moments_room(x)));
      this->update_statistics(mode, of_batch(moments));
    }
    with_batch_statistics_ = moments != nullptr;
    normalize(x, moments, numbers_.resize(ChannelNumbers::room(channels_)), y);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    const Moments* moments = nullptr;
    if (uses_batch(Mode::eval)) moments = take_moments(x, frame.template take_array<Moments>(moments_room(x)));
    normalize(x, moments, frame.template take_array<Number>(ChannelNumbers::room(channels_)), y);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    auto* sums = sums_.resize(ChannelNumbers::sums_room(x.rows, channels_, positions_));
    ChannelNumbers(channels_, positions_, numbers_.data())
        .backward(x, dy, with_batch_statistics_, weight_, bias_, dx, accumulate, sums);
  }

  Index moments_room(View<const Scalar> x) const {
    return positions_ == 1 ? kernels::column_moments_room(x.rows, channels_) : channels_;
  }

  /// The moments of each channel, in the first `channels` of `room`.
  const Moments* take_moments(View<const Scalar> x, Moments* room) const {
    if (positions_ == 1)
      kernels::column_moments(x, room);
    else
      kernels::channel_moments(x, positions_, room);
    return room;
  }

  /// With the moments of the batch, or, without them, with the running statistics.
  void normalize(View<const Scalar> x, const Moments* moments, Number* numbers, View<Scalar> y) const {
    const auto of = [&](Index c) {
      return moments ? detail::MeanAndVariance<Sum>{moments[c].mean, moments[c].squares / moments[c].count}
                     : detail::MeanAndVariance<Sum>{static_cast<Sum>(this->running_mean()[c]),
                                                    static_cast<Sum>(this->running_variance()[c])};
    };
    ChannelNumbers(channels_, positions_, numbers).normalize(x, of, options_.epsilon, weight_.data(), bias_.data(), y);
  }

  /// The moments as running statistics are told of them, channel by channel.
  static auto of_batch(const Moments* moments) {
    return [moments](Index c) {
      return typename Running::BatchStatistics{moments[c].count, moments[c].mean,
                                               moments[c].squares / (moments[c].count - 1)};
    };
  }

  /// NonFinite::error, before anything has changed.
  void check_values(View<const Scalar> x, Mode mode) {
    if (!uses_batch(mode) || !this->checks_statistics(mode)) return;
    Moments* moments = moments_.resize(moments_room(x));
    this->check_statistics(mode, of_batch(take_moments(x, moments)));
  }

  Index channels_, positions_;                          // >= 1
  BatchNormOptions options_;                            // checked
  detail::Parameter<Number> weight_;                    // (1, channels), starts at one
  detail::Parameter<Number> bias_;                      // (1, channels), starts at zero
  bool with_batch_statistics_ = false;                  // in the last forward
  detail::Buffer<Number> numbers_;                      // see ChannelNumbers, of the last forward
  detail::Buffer<Moments> moments_;                     // scratch
  detail::Buffer<typename ChannelNumbers::Sums> sums_;  // scratch
};

}  // namespace evenkeel
