#pragma once

#include <algorithm>  // count
#include <cmath>      // sqrt
#include <cstdint>    // int64_t
#include <optional>

#include "evenkeel/core/buffer.hpp"         // Buffer
#include "evenkeel/core/check.hpp"          // positive, fraction, is_finite, features_of
#include "evenkeel/core/parameter.hpp"      // Parameter, BufferView
#include "evenkeel/kernels/batch_norm.hpp"  // the arithmetic
#include "evenkeel/layers/layer_base.hpp"   // LayerBase

namespace evenkeel {

/// What happens to the running statistics of a channel whose batch statistics are NaN or infinite.
enum class NonFinite {
  keep_last_good,  ///< The channel's running statistics stay as they are; the event is counted.
  error,           ///< forward throws std::invalid_argument and nothing changes.
  accept           ///< They become what the arithmetic gives, as in PyTorch.
};

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
/// Modes   train: the batch's statistics, the running ones move. eval, frozen_statistics, monte_carlo: running statistics,
///         which rest and are constants in backward. Without tracked statistics eval and monte_carlo normalize with the
///         batch, and frozen_statistics is a UsageError.
/// Errors  Statistics of the batch need more than one value in each channel: else ShapeError.
/// Source  Ioffe & Szegedy 2015, algorithms 1 and 2, https://arxiv.org/abs/1502.03167; torch.nn.BatchNorm1d(features) and
///         2d(channels), momentum in their sense (Keras's is one minus it). PyTorch lets a NaN batch spoil the running
///         statistics; see NonFinite.
template <Real Scalar_, int Channels = Eigen::Dynamic>
class BatchNorm final : public LayerBase<BatchNorm<Scalar_, Channels>, Scalar_> {
 public:
  using Scalar = Scalar_;
  using Vector = Eigen::Matrix<Scalar, 1, Eigen::Dynamic, Eigen::RowMajor>;
  static constexpr const char* name = "BatchNorm";

  /// Throws std::invalid_argument if a size is < 1, epsilon is not a positive finite number, or momentum not in [0, 1].
  explicit BatchNorm(Index features, BatchNormOptions options = {}) : BatchNorm(features, 1, options) {}
  BatchNorm(Index channels, Index positions, BatchNormOptions options = {})
      : channels_{detail::features_of<Channels>(channels, name)},
        positions_{detail::at_least(1, positions, name, "positions")},
        options_{options},
        weight_{"weight", ParameterKind::norm_scale, 1, channels_, Scalar(1), options.affine},
        bias_{"bias", ParameterKind::norm_shift, 1, channels_, Scalar(0), options.affine} {
    detail::positive(options.epsilon, name, "epsilon");
    if (options.momentum) detail::fraction(*options.momentum, name, "momentum");
    reset_running_statistics();
  }
  explicit BatchNorm(BatchNormOptions options = {}) requires(Channels != Eigen::Dynamic)
      : BatchNorm(Channels, 1, options) {}

  Index channels() const { return channels_; }
  Index positions() const { return positions_; }
  double epsilon() const { return options_.epsilon; }
  Index input_features() const { return channels_ * positions_; }
  Index output_features(Index) const { return channels_ * positions_; }

  Parameters<Scalar> parameters() { return detail::parameter_views<Scalar>(weight_, bias_); }
  Parameters<const Scalar> parameters() const { return detail::parameter_views<const Scalar>(weight_, bias_); }

  /// Empty where no statistics are tracked.
  const Vector& running_mean() const { return running_mean_; }
  const Vector& running_variance() const { return running_variance_; }
  /// Training batches since the start or the last reset.
  std::int64_t batches_tracked() const { return batches_tracked_; }
  /// How often a channel's statistics were NaN or infinite in training and were not taken into the running ones.
  std::int64_t non_finite_statistics() const { return non_finite_statistics_; }

  /// Mean 0, variance 1, no batches.
  void reset_running_statistics() {
    const Index size = options_.track_running_statistics ? channels_ : 0;
    running_mean_ = Vector::Zero(size);
    running_variance_ = Vector::Ones(size);
    batches_tracked_ = 0;
    non_finite_statistics_ = 0;
  }

  /// Sets what eval normalizes with. Throws UsageError where no statistics are tracked, ShapeError unless both have one
  /// number a channel, std::invalid_argument, naming the channel, unless all are finite and no variance is negative.
  template <DenseOf<Scalar> M, DenseOf<Scalar> V>
  void set_running_statistics(const M& mean, const V& variance) {
    constexpr const char* function = "set_running_statistics";
    if (!options_.track_running_statistics)
      EVENKEEL_THROW(UsageError, name, "::", function,
                     ": expected a layer that tracks statistics, got one that does not");
    check_channels(mean, "mean");
    check_channels(variance, "variance");
    const Vector new_mean = as_row(mean);
    const Vector new_variance = as_row(variance);
    for (Index c = 0; c < channels_; ++c) {
      if (!detail::is_finite(new_mean[c]))
        EVENKEEL_THROW(std::invalid_argument, name, "::", function, ": expected a finite mean in channel ", c, ", got ",
                       new_mean[c]);
      if (!detail::is_finite(new_variance[c]) || !(new_variance[c] >= 0))
        EVENKEEL_THROW(std::invalid_argument, name, "::", function, ": expected a finite variance >= 0 in channel ", c,
                       ", got ", new_variance[c]);
    }
    running_mean_ = new_mean;  // copied, so that views of it stay
    running_variance_ = new_variance;
  }

  Buffers<Scalar> buffers() {
    if (!options_.track_running_statistics) return {};
    const auto map = [this](Vector& vector) { return as_map(View<Scalar>{vector.data(), 1, channels_, channels_, 1}); };
    return {{"running_mean", map(running_mean_)},
            {"running_var", map(running_variance_)},
            {"num_batches_tracked", as_map(View<Scalar>{}), &batches_tracked_}};
  }

  template <Real U>
  BatchNorm<U, Channels> cast() const {
    BatchNorm<U, Channels> result(channels_, positions_, options_);
    result.weight_ = weight_.template cast<U>();
    result.bias_ = bias_.template cast<U>();
    result.running_mean_ = running_mean_.template cast<U>();
    result.running_variance_ = running_variance_.template cast<U>();
    result.batches_tracked_ = batches_tracked_;
    result.non_finite_statistics_ = non_finite_statistics_;
    return result;
  }

  void check_input(Index rows, Index columns, Mode mode, const char* function) const {
    if (columns != channels_ * positions_ && positions_ > 1)
      EVENKEEL_THROW(ShapeError, name, "::", function, ": expected input of shape (batch, ", channels_ * positions_,
                     ") for ", channels_, " channels x ", positions_, " positions, got ", detail::shape(rows, columns));
    detail::check_columns(name, function, channels_ * positions_, rows, columns);
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
  template <Real, int>
  friend class BatchNorm;
  using Sum = Wide<Scalar>;
  using Moments = kernels::ColumnMoments<Sum>;

  /// The numbers a channel is normalized with.
  struct Normalization {
    Scalar mean, mean_residual, inverse_deviation;
  };

  static constexpr bool needs_input() { return true; }

  bool uses_batch(Mode mode) const {
    return mode.statistics() == Statistics::batch || !options_.track_running_statistics;
  }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    Moments* moments = nullptr;
    if (uses_batch(mode)) {
      moments = moments_.resize(kernels::column_moments_room(x.rows, x.columns));
      take_moments(x, moments);
      if (mode.updates_running_statistics()) update_running_statistics(moments);
    }
    with_batch_statistics_ = moments != nullptr;
    Normalization* normalization = normalization_.resize(channels_);
    normalizations(moments, normalization);
    transform(x, normalization, columns_.resize(4 * x.columns), y);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    Moments* moments = nullptr;
    if (uses_batch(Mode::eval)) {
      moments = frame.template take_array<Moments>(kernels::column_moments_room(x.rows, x.columns));
      take_moments(x, moments);
    }
    auto* normalization = frame.template take_array<Normalization>(channels_);
    normalizations(moments, normalization);
    transform(x, normalization, frame.template take_array<Scalar>(4 * x.columns), y);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    const Index columns = x.columns;
    const Normalization* normalization = normalization_.data();
    Scalar* mean = columns_.resize(5 * columns);
    Scalar* mean_residual = mean + columns;
    Scalar* scale = mean + 2 * columns;
    Scalar* mean_dy = mean + 3 * columns;
    Scalar* slope = mean + 4 * columns;
    for (Index j = 0; j < columns; ++j) {
      const Normalization& channel = normalization[j / positions_];
      mean[j] = channel.mean;
      mean_residual[j] = channel.mean_residual;
      scale[j] = channel.inverse_deviation * weight_.data()[j / positions_];
    }

    auto* sums = sums_.resize(kernels::column_gradient_sums_room(x.rows, columns));
    kernels::column_gradient_sums(x, dy, mean, mean_residual, sums);
    const auto n = static_cast<Sum>(x.rows * positions_);
    for (Index c = 0; c < channels_; ++c) {
      kernels::ColumnGradientSums<Sum> sum;
      for (Index j = c * positions_; j < (c + 1) * positions_; ++j) {
        sum.dy += sums[j].dy;
        sum.dy_centred += sums[j].dy_centred;
      }
      const auto inverse = static_cast<Sum>(normalization[c].inverse_deviation);
      for (Index j = c * positions_; j < (c + 1) * positions_; ++j) {
        mean_dy[j] = static_cast<Scalar>(sum.dy / n);
        slope[j] = static_cast<Scalar>(inverse * inverse * (sum.dy_centred / n));
      }
      if (!options_.affine) continue;
      const Sum dweight = sum.dy_centred * inverse;
      kernels::add_partial_sums(&dweight, 1, 1, 1, accumulate, weight_.gradient().data + c);
      kernels::add_partial_sums(&sum.dy, 1, 1, 1, accumulate, bias_.gradient().data + c);
    }
    if (dx.data == nullptr) return;
    if (with_batch_statistics_)
      kernels::transform_column_gradients(x, dy, {mean, mean_residual, scale, mean_dy, slope}, dx);
    else
      kernels::scale_columns(dy, scale, dx);
  }

  /// The moments of each channel, in the first `channels` of `moments`.
  void take_moments(View<const Scalar> x, Moments* moments) const {
    kernels::column_moments(x, moments);
    if (positions_ == 1) return;
    for (Index c = 0; c < channels_; ++c) {
      Moments merged;
      for (Index j = c * positions_; j < (c + 1) * positions_; ++j) merged.merge(moments[j]);
      moments[c] = merged;
    }
  }

  /// From the moments of the batch, or, without them, from the running statistics.
  void normalizations(const Moments* moments, Normalization* result) const {
    const auto epsilon = static_cast<Sum>(options_.epsilon);
    for (Index c = 0; c < channels_; ++c) {
      const Sum mean = moments ? moments[c].mean : static_cast<Sum>(running_mean_[c]);
      const Sum variance = moments ? moments[c].squares / moments[c].count : static_cast<Sum>(running_variance_[c]);
      result[c].mean = static_cast<Scalar>(mean);
      result[c].mean_residual = static_cast<Scalar>(mean - static_cast<Sum>(result[c].mean));
      result[c].inverse_deviation = static_cast<Scalar>(1 / std::sqrt(variance + epsilon));
    }
  }

  void transform(View<const Scalar> x, const Normalization* normalization, Scalar* columns, View<Scalar> y) const {
    Scalar* mean = columns;
    Scalar* mean_residual = columns + x.columns;
    Scalar* scale = columns + 2 * x.columns;
    Scalar* shift = columns + 3 * x.columns;
    for (Index j = 0; j < x.columns; ++j) {
      const Index c = j / positions_;
      mean[j] = normalization[c].mean;
      mean_residual[j] = normalization[c].mean_residual;
      scale[j] = normalization[c].inverse_deviation * weight_.data()[c];
      shift[j] = bias_.data()[c];
    }
    kernels::transform_columns(x, {mean, mean_residual, scale, shift}, y);
  }

  void update_running_statistics(const Moments* moments) {
    if (!options_.track_running_statistics) return;
    const auto finite = [&](Index c) {  // as running statistics: float may not hold what a double does
      return detail::is_finite(static_cast<Scalar>(moments[c].mean)) &&
             detail::is_finite(static_cast<Scalar>(moments[c].squares / (moments[c].count - 1)));
    };
    if (options_.non_finite == NonFinite::error)
      for (Index c = 0; c < channels_; ++c)
        if (!finite(c))
          EVENKEEL_THROW(std::invalid_argument, name,
                         "::forward: expected finite statistics in every channel, got mean ", moments[c].mean,
                         " and variance ", moments[c].squares / moments[c].count, " in channel ", c);
    ++batches_tracked_;
    const auto m =
        static_cast<Sum>(options_.momentum ? *options_.momentum : 1.0 / static_cast<double>(batches_tracked_));
    const auto average = [m](Scalar& running, Sum batch) {
      running = static_cast<Scalar>((1 - m) * static_cast<Sum>(running) + m * batch);
    };
    for (Index c = 0; c < channels_; ++c) {
      if (!finite(c)) {
        ++non_finite_statistics_;
        if (options_.non_finite == NonFinite::keep_last_good) continue;
      }
      average(running_mean_[c], moments[c].mean);
      average(running_variance_[c], moments[c].squares / (moments[c].count - 1));
    }
  }

  template <class V>
  void check_channels(const V& vector, const char* what) const {
    if (vector.size() != channels_ || (vector.rows() != 1 && vector.cols() != 1))
      EVENKEEL_THROW(ShapeError, name, "::set_running_statistics: expected ", what, " of shape (1, ", channels_,
                     "), got ", detail::shape(vector.rows(), vector.cols()));
  }

  template <class V>
  static Vector as_row(const V& vector) {
    Vector row(vector.size());
    if (vector.rows() == 1)
      for (Index c = 0; c < row.size(); ++c) row[c] = vector.coeff(0, c);
    else
      for (Index c = 0; c < row.size(); ++c) row[c] = vector.coeff(c, 0);
    return row;
  }

  Index channels_, positions_;                             // >= 1
  BatchNormOptions options_;                               // checked
  detail::Parameter<Scalar> weight_;                       // (1, channels), starts at one
  detail::Parameter<Scalar> bias_;                         // (1, channels), starts at zero
  Vector running_mean_;                                    // (1, channels), finite unless accepted otherwise
  Vector running_variance_;                                // (1, channels), unbiased, >= 0
  std::int64_t batches_tracked_ = 0;                       //
  std::int64_t non_finite_statistics_ = 0;                 // channels not taken, over all batches
  bool with_batch_statistics_ = false;                     // in the last forward
  detail::Buffer<Normalization> normalization_;            // (channels), of the last forward
  detail::Buffer<Moments> moments_;                        // scratch
  detail::Buffer<kernels::ColumnGradientSums<Sum>> sums_;  // scratch
  detail::Buffer<Scalar> columns_;                         // scratch, one number a column each
};

}  // namespace evenkeel
