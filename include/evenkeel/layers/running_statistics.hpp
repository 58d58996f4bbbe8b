#pragma once

#include <cstdint>  // int64_t
#include <optional>

#include "evenkeel/core/check.hpp"      // fraction, is_finite
#include "evenkeel/core/error.hpp"      // EVENKEEL_THROW
#include "evenkeel/core/mode.hpp"       // Mode
#include "evenkeel/core/parameter.hpp"  // BufferView
#include "evenkeel/core/types.hpp"      // Real, Wide
#include "evenkeel/core/view.hpp"       // DenseOf, View

namespace evenkeel {

/// What happens to the running statistics of a channel whose batch statistics are NaN or infinite.
enum class NonFinite {
  keep_last_good,  ///< The channel's running statistics stay as they are; the event is counted.
  error,           ///< forward throws std::invalid_argument and nothing changes.
  accept           ///< They become what the arithmetic gives, as in PyTorch.
};

/// The running statistics of a norm that tracks them, which are what it normalizes with at inference: a mean and a variance
/// for each channel.
///
///     running = (1 - momentum) * running + momentum * of the batch
///
/// Without a momentum, running is the plain average of all batches that were taken. A layer derives from it, and in a forward
/// that takes the batch's statistics calls update_statistics.
/// Source  torch.nn.modules.batchnorm._NormBase, momentum in its sense.
template <Real Scalar_>
class RunningStatisticsBase {
 public:
  using Vector = Eigen::Matrix<Scalar_, 1, Eigen::Dynamic, Eigen::RowMajor>;

  /// Empty where no statistics are tracked.
  const Vector& running_mean() const { return mean_; }
  const Vector& running_variance() const { return variance_; }
  /// Training batches since the start or the last reset.
  std::int64_t batches_tracked() const { return batches_; }
  /// How often a channel's statistics were NaN or infinite in training and were not taken into the running ones.
  std::int64_t non_finite_statistics() const { return non_finite_.sum(); }

  /// Mean 0, variance 1, no batches.
  void reset_running_statistics() {
    const Index size = tracking_.on ? channels_ : 0;
    mean_ = Vector::Zero(size);
    variance_ = Vector::Ones(size);
    batches_ = 0;
    non_finite_ = Counts::Zero(size);
  }

  /// Sets what eval normalizes with. Throws UsageError where no statistics are tracked, ShapeError unless both have one
  /// number a channel, std::invalid_argument, naming the channel, unless all are finite and no variance is negative.
  template <DenseOf<Scalar_> M, DenseOf<Scalar_> V>
  void set_running_statistics(const M& mean, const V& variance) {
    constexpr const char* function = "::set_running_statistics";
    if (!tracking_.on)
      EVENKEEL_THROW(UsageError, name_, function, ": expected a layer that tracks statistics, got one that does not");
    check_channels(mean, "mean");
    check_channels(variance, "variance");
    const Vector new_mean = as_row(mean);
    const Vector new_variance = as_row(variance);
    for (Index c = 0; c < channels_; ++c) {
      if (!detail::is_finite(new_mean[c]))
        EVENKEEL_THROW(std::invalid_argument, name_, function, ": expected a finite mean in channel ", c, ", got ",
                       new_mean[c]);
      if (!detail::is_finite(new_variance[c]) || !(new_variance[c] >= 0))
        EVENKEEL_THROW(std::invalid_argument, name_, function, ": expected a finite variance >= 0 in channel ", c,
                       ", got ", new_variance[c]);
    }
    mean_ = new_mean;  // copied, so that views of it stay
    variance_ = new_variance;
  }

  /// None where no statistics are tracked.
  Buffers<Scalar_> buffers() { return buffer_views<Scalar_>(*this); }
  Buffers<const Scalar_> buffers() const { return buffer_views<const Scalar_>(*this); }

 protected:
  using Sum = Wide<Scalar_>;

  /// The layer's options that concern running statistics.
  struct Tracking {
    bool on;                         ///< Else there are none.
    std::optional<double> momentum;  ///< In [0, 1], or none.
    NonFinite non_finite;
  };

  /// What a batch says about a channel.
  struct BatchStatistics {
    Sum count;     ///< Taken of so many values,
    Sum mean;      ///< their mean,
    Sum variance;  ///< and unbiased variance.
  };

  /// `name`, the layer's, stands in messages. Throws std::invalid_argument for a momentum not in [0, 1].
  RunningStatisticsBase(const char* name, Index channels, Tracking tracking)
      : name_{name}, channels_{channels}, tracking_{tracking} {
    if (tracking.momentum) detail::fraction(*tracking.momentum, name, "momentum");
    reset_running_statistics();
  }

  bool tracks_statistics() const { return tracking_.on; }

  /// Whether check_statistics is to be called before a forward of this mode has changed anything.
  bool checks_statistics(Mode mode) const {
    return tracking_.non_finite == NonFinite::error && mode.updates_running_statistics();
  }
  /// Throws std::invalid_argument unless all are finite; of(c) gives the BatchStatistics of channel c.
  template <class OfChannel>
  void check_statistics(const OfChannel& of) const {
    for (Index c = 0; c < channels_; ++c) {
      const BatchStatistics batch = of(c);
      if (!finite(batch))
        EVENKEEL_THROW(std::invalid_argument, name_,
                       "::forward: expected finite statistics in every channel, got mean ", batch.mean,
                       " and variance ", batch.variance, " in channel ", c);
    }
  }

  /// What a forward of this mode does to the running statistics; of(c) gives the BatchStatistics of channel c.
  template <class OfChannel>
  void update_statistics(Mode mode, const OfChannel& of) {
    if (!tracking_.on || !mode.updates_running_statistics()) return;
    ++batches_;
    const bool skips = tracking_.non_finite == NonFinite::keep_last_good;
    for (Index c = 0; c < channels_; ++c) {
      const BatchStatistics batch = of(c);
      if (!finite(batch)) {
        ++non_finite_[c];
        if (skips) continue;
      }
      const auto taken = static_cast<double>(batches_ - (skips ? non_finite_[c] : 0));
      const auto m = static_cast<Sum>(tracking_.momentum ? *tracking_.momentum : 1 / taken);
      const auto average = [m](Scalar_& running, Sum of_batch) {
        running = static_cast<Scalar_>((1 - m) * static_cast<Sum>(running) + m * of_batch);
      };
      average(mean_[c], batch.mean);
      average(variance_[c], batch.variance);
    }
  }

  /// The state of a layer of another scalar type; all but its options.
  template <Real U>
  void copy_statistics(const RunningStatisticsBase<U>& other) {
    mean_ = other.mean_.template cast<Scalar_>();
    variance_ = other.variance_.template cast<Scalar_>();
    batches_ = other.batches_;
    non_finite_ = other.non_finite_;
  }

 private:
  template <Real>
  friend class RunningStatisticsBase;
  using Counts = Eigen::Array<std::int64_t, 1, Eigen::Dynamic, Eigen::RowMajor>;

  /// As running statistics: float may not hold what a double does.
  static bool finite(const BatchStatistics& batch) {
    return detail::is_finite(static_cast<Scalar_>(batch.mean)) &&
           detail::is_finite(static_cast<Scalar_>(batch.variance));
  }

  template <typename S, class Self>
  static Buffers<S> buffer_views(Self& self) {
    if (!self.tracking_.on) return {};
    const auto map = [&](auto& vector) { return as_map(View<S>{vector.data(), 1, self.channels_, self.channels_, 1}); };
    return {{"running_mean", map(self.mean_)},
            {"running_var", map(self.variance_)},
            {"num_batches_tracked", as_map(View<S>{}), &self.batches_}};
  }

  template <class V>
  void check_channels(const V& vector, const char* what) const {
    if (vector.size() != channels_ || (vector.rows() != 1 && vector.cols() != 1))
      EVENKEEL_THROW(ShapeError, name_, "::set_running_statistics: expected ", what, " of shape (1, ", channels_,
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

  const char* name_;          // the layer's
  Index channels_;            // >= 1
  Tracking tracking_;         // checked
  Vector mean_;               // (1, channels), finite unless accepted otherwise
  Vector variance_;           // (1, channels), unbiased, >= 0
  std::int64_t batches_ = 0;  //
  Counts non_finite_;         // (1, channels), batches whose statistics were not finite
};

}  // namespace evenkeel
