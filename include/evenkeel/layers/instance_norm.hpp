#pragma once

#include <algorithm>  // fill
#include <concepts>   // integral
#include <optional>

#include "evenkeel/core/buffer.hpp"                // Buffer
#include "evenkeel/core/check.hpp"                 // positive, at_least, positions_of
#include "evenkeel/core/parameter.hpp"             // Parameter
#include "evenkeel/kernels/channel_moments.hpp"    // what running statistics are told
#include "evenkeel/kernels/group_norm.hpp"         // the arithmetic of instance statistics
#include "evenkeel/layers/channel_numbers.hpp"     // and that of running statistics
#include "evenkeel/layers/layer_base.hpp"          // LayerBase, check_channel_columns
#include "evenkeel/layers/running_statistics.hpp"  // RunningStatisticsBase

namespace evenkeel {

struct InstanceNormOptions {
  double epsilon = 1e-5;  ///< Added to the variance, under the root. Finite, > 0; unit: input squared.
  std::optional<double> momentum =
      0.1;              ///< Weight of the new batch, in [0, 1]; nullopt: the plain average of all batches.
  bool affine = false;  ///< Whether there are a gain and a shift for each channel to learn. PyTorch's default.
  bool track_running_statistics = false;  ///< Without them, eval normalizes as training does. PyTorch's default.
  NonFinite non_finite = NonFinite::keep_last_good;
};

/// Normalizes each channel of each example over its positions, then scales and shifts each channel.
///
///     y = weight * (x - mean) / sqrt(variance + epsilon) + bias      mean and biased variance of the example's channel
///     running = (1 - momentum) * running + momentum * (the batch's average of the examples' means and unbiased variances)
///
/// Shapes  (batch, channels x positions), a row being channel after channel (NCHW flattened); weight, bias, running statistics:
///         (1, channels).
/// Modes   Without tracked statistics all compute the same. With them, train normalizes each example with its own and moves
///         the running ones (train_prepared: these move when committed); eval, frozen_statistics and monte_carlo normalize with
///         the running ones, which rest and are constants in backward.
/// Errors  A channel of one position has no statistics of its own: ShapeError, where these are wanted, whatever the batch.
/// Source  Ulyanov, Vedaldi & Lempitsky 2016, equation 1 of section 2, https://arxiv.org/abs/1607.08022;
///         torch.nn.InstanceNorm1d/2d(channels), which counts no batches and takes a momentum of None for 0.
template <Storable Scalar_>
class InstanceNorm final : public LayerBase<InstanceNorm<Scalar_>, Scalar_>,
                           public RunningStatisticsBase<Arithmetic<Scalar_>> {
 public:
  using Scalar = Scalar_;
  using Number = Arithmetic<Scalar>;  ///< Of parameters and statistics.
  static constexpr const char* name = "InstanceNorm";

  /// Throws std::invalid_argument if a size is < 1, their product is beyond Index, epsilon is not a positive finite
  /// number, or momentum not in [0, 1].
  InstanceNorm(Index channels, Index positions, InstanceNormOptions options = {})
      : Running(name, detail::at_least(1, channels, name, "channels"),
                {options.track_running_statistics, options.momentum, options.non_finite, Running::Pooling::averages}),
        groups_{channels, channels, detail::positions_of(channels, positions, name)},
        options_{options},
        weight_{"weight", ParameterKind::norm_scale, 1, channels, Number(1), options.affine},
        bias_{"bias", ParameterKind::norm_shift, 1, channels, Number(0), options.affine} {
    detail::positive(options.epsilon, name, "epsilon");
  }

  Index channels() const { return groups_.channels; }
  Index positions() const { return groups_.positions; }
  double epsilon() const { return options_.epsilon; }
  Index input_features() const { return groups_.channels * groups_.positions; }
  Index output_features(Index) const { return input_features(); }

  Parameters<Number> parameters() { return detail::parameter_views<Number>(weight_, bias_); }
  Parameters<const Number> parameters() const { return detail::parameter_views<const Number>(weight_, bias_); }

  template <Storable U>
  InstanceNorm<U> cast() const {
    InstanceNorm<U> result(channels(), positions(), options_);
    result.weight_ = weight_.template cast<Arithmetic<U>>();
    result.bias_ = bias_.template cast<Arithmetic<U>>();
    result.copy_statistics(*this);
    return result;
  }

  void check_input(Index rows, Index columns, Mode mode, const char* function) const {
    detail::check_channel_columns(name, function, channels(), positions(), rows, columns);
    if (uses_instances(mode) && positions() < 2)
      EVENKEEL_THROW(ShapeError, name, "::", function,
                     ": expected more than one position per channel to take statistics of, got 1 from input of shape ",
                     detail::shape(rows, columns), "; use BatchNorm, or running statistics (Mode::eval)");
  }

 private:
  friend LayerBase<InstanceNorm, Scalar>;
  template <Storable>
  friend class InstanceNorm;
  using Running = RunningStatisticsBase<Number>;
  using Sum = Wide<Scalar>;
  using ChannelNumbers = detail::ChannelNumbers<Scalar>;

  static constexpr bool needs_input() { return true; }

  bool uses_instances(Mode mode) const {
    return mode.statistics() == Statistics::batch || !options_.track_running_statistics;
  }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    with_instance_statistics_ = uses_instances(mode);
    if (!with_instance_statistics_)
      return normalize_with_running(x, numbers_.resize(ChannelNumbers::room(channels())), y);
    if (options_.track_running_statistics && mode.running_statistics() != RunningStatistics::keep && x.rows > 0)
      this->update_statistics(mode, of_batch(x));
    Wide<Scalar>* scratch = scratch_.resize(kernels::group_norm_forward_scratch<Scalar>(x, y, groups_));
    kernels::group_norm_forward(x, groups_, weight_.data(), bias_.data(), options_.epsilon, y,
                                moments_.resize(x.rows * channels()), scratch);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    if (!with_instance_statistics_) {
      auto* sums = sums_.resize(ChannelNumbers::sums_room(x.rows, channels(), positions()));
      return ChannelNumbers(channels(), positions(), numbers_.data())
          .backward(x, dy, false, weight_, bias_, dx, accumulate, sums);
    }
    Wide<Scalar>* scratch = scratch_.resize(kernels::group_norm_backward_scratch<Scalar>(x, dy, dx, groups_));
    kernels::group_norm_backward(x, dy, groups_, weight_.data(), moments_.data(), dx, weight_.gradient().data,
                                 bias_.gradient().data, accumulate, scratch);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    if (!uses_instances(Mode::eval))
      return normalize_with_running(x, frame.template take_array<Number>(ChannelNumbers::room(channels())), y);
    const Index needed = kernels::group_norm_forward_scratch<Scalar>(x, y, groups_);
    auto* scratch = needed > 0 ? frame.template take_array<Wide<Scalar>>(needed) : nullptr;
    kernels::group_norm_forward<Scalar>(x, groups_, weight_.data(), bias_.data(), options_.epsilon, y, nullptr,
                                        scratch);
  }

  void normalize_with_running(View<const Scalar> x, Number* numbers, View<Scalar> y) const {
    const auto of = [&](Index c) {
      return detail::MeanAndVariance<Sum>{static_cast<Sum>(this->running_mean()[c]),
                                          static_cast<Sum>(this->running_variance()[c])};
    };
    ChannelNumbers(channels(), positions(), numbers)
        .normalize(x, of, options_.epsilon, weight_.data(), bias_.data(), y);
  }

  /// The means of the examples' means and of their unbiased variances, channel by channel.
  const detail::MeanAndVariance<Sum>* take_average(View<const Scalar> x) {
    detail::MeanAndVariance<Sum>* average = average_.resize(channels());
    kernels::ColumnMoments<Sum>* moments = example_.resize(channels());
    std::fill(average, average + channels(), detail::MeanAndVariance<Sum>{0, 0});
    const auto rows = static_cast<Sum>(x.rows);
    for (Index i = 0; i < x.rows; ++i) {
      kernels::channel_moments(x.middle_rows(i, 1), positions(), moments);
      for (Index c = 0; c < channels(); ++c) {
        average[c].mean += moments[c].mean / rows;
        average[c].variance += moments[c].squares / (moments[c].count - 1) / rows;
      }
    }
    return average;
  }

  /// The average as running statistics are told of it, channel by channel.
  auto of_batch(View<const Scalar> x) {
    return [average = take_average(x), count = static_cast<Sum>(x.rows)](Index c) {
      return typename Running::BatchStatistics{count, average[c].mean, average[c].variance};
    };
  }

  /// NonFinite::error, before anything has changed.
  void check_values(View<const Scalar> x, Mode mode) {
    if (!options_.track_running_statistics || !uses_instances(mode) || !this->checks_statistics(mode)) return;
    if (x.rows == 0) return;  // which run_forward does not take either
    this->check_statistics(mode, of_batch(x));
  }

  kernels::Groups groups_;                                // a channel each
  InstanceNormOptions options_;                           // checked
  detail::Parameter<Number> weight_;                      // (1, channels), starts at one
  detail::Parameter<Number> bias_;                        // (1, channels), starts at zero
  bool with_instance_statistics_ = false;                 // in the last forward
  detail::Buffer<kernels::RowMoments<Number>> moments_;   // (channels, batch), of the last forward
  detail::Buffer<Number> numbers_;                        // see ChannelNumbers, of the last forward
  detail::Buffer<Wide<Scalar>> scratch_;                  // partial sums, packed rows
  detail::Buffer<detail::MeanAndVariance<Sum>> average_;  // scratch
  detail::Buffer<kernels::ColumnMoments<Sum>> example_;   // scratch
  detail::Buffer<typename ChannelNumbers::Sums> sums_;    // scratch
};

}  // namespace evenkeel
