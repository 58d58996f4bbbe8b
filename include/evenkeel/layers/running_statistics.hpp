#pragma once

#include <algorithm>  // max
#include <cstddef>    // size_t
#include <cstdint>    // int64_t, uint64_t
#include <limits>     // the most a counter can be
#include <optional>
#include <vector>

#include "evenkeel/core/check.hpp"              // fraction, is_finite
#include "evenkeel/core/error.hpp"              // EVENKEEL_THROW
#include "evenkeel/core/mode.hpp"               // Mode
#include "evenkeel/core/parameter.hpp"          // BufferView
#include "evenkeel/core/types.hpp"              // Real, Wide
#include "evenkeel/core/view.hpp"               // DenseOf, View
#include "evenkeel/kernels/column_moments.hpp"  // ColumnMoments

namespace evenkeel {

/// What happens to the running statistics of a channel whose batch statistics are NaN or infinite.
///
/// With `error` nothing changes in the layer that throws; in a network those before it have run already: their statistics have
/// moved and their dropouts drawn. Where that matters, forward with Mode::train_prepared, and call discard_statistics() when it
/// throws, else commit_statistics(); no statistics of the network then move by such a batch. Masks are drawn all the same.
enum class NonFinite {
  keep_last_good,  ///< The channel's running statistics stay as they are; the event is counted.
  error,           ///< forward throws std::invalid_argument, and nothing changes in this layer.
  accept           ///< They become what the arithmetic gives, as in PyTorch; the event is counted.
};

/// The momentum that means here what `momentum` means in Keras's BatchNormalization: there it is the weight of the running
/// value, here that of the batch. Keras's default of 0.99 is 0.01 here. Throws std::invalid_argument unless it is in [0, 1].
///
///     ek::BatchNorm<float> layer(64, {.epsilon = 1e-3, .momentum = ek::momentum_from_keras(0.99)});   // Keras's defaults
inline double momentum_from_keras(double momentum) {
  return 1 - detail::fraction(momentum, "momentum_from_keras", "momentum");
}
/// The same from the momentum of flax.linen.BatchNorm. Flax's running variance is that of biased variances.
inline double momentum_from_flax(double momentum) {
  return 1 - detail::fraction(momentum, "momentum_from_flax", "momentum");
}

/// The running statistics of a norm that tracks them, which are what it normalizes with at inference: a mean and a variance
/// for each channel.
///
///     running = (1 - momentum) * running + momentum * of the batch
///
/// Without a momentum, running is the plain average of all batches that were taken.
///
/// A batch can be prepared instead (Mode::train_prepared): then running_mean() and running_variance() rest until
/// commit_statistics(). Batches that are prepared one after another, as micro-batches are, are all committed or all
/// discarded; a forward that moves the statistics at once, set_running_statistics and reset_running_statistics discard them.
///
/// A layer derives from it, and calls update_statistics in a forward that takes the batch's statistics.
/// Source  torch.nn.modules.batchnorm._NormBase, momentum in its sense; see momentum_from_keras.
template <Real Scalar_>
class RunningStatisticsBase {
 public:
  using Vector = Eigen::Matrix<Scalar_, 1, Eigen::Dynamic, Eigen::RowMajor>;

  /// Empty where no statistics are tracked.
  const Vector& running_mean() const { return now_.mean; }
  const Vector& running_variance() const { return now_.variance; }
  /// Training batches since the start or the last reset.
  std::int64_t batches_tracked() const { return now_.batches; }
  /// How often a channel's statistics were NaN or infinite in training: not taken into the running ones, but with
  /// NonFinite::accept.
  std::int64_t non_finite_statistics() const { return static_cast<std::int64_t>(now_.non_finite.sum()); }

  /// The statistics become what the batches prepared since the last commit make of them. With none prepared, nothing happens.
  void commit_statistics() {
    if (pending_ != RunningStatistics::keep) now_ = next_;  // copied, so that views of it stay
    discard_statistics();
  }
  /// Forgets what was prepared.
  void discard_statistics() { pending_ = RunningStatistics::keep; }

  /// Mean 0, variance 1, no batches.
  void reset_running_statistics() {
    const Index size = tracking_.on ? channels_ : 0;
    now_.mean = Vector::Zero(size);  // in place, so that views of it stay
    now_.variance = Vector::Ones(size);
    now_.batches = 0;
    now_.non_finite = Counts::Zero(size);
    discard_statistics();
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
    now_.mean = new_mean;  // copied, so that views of it stay
    now_.variance = new_variance;
    discard_statistics();
  }

  /// None where no statistics are tracked.
  Buffers<Scalar_> buffers() { return buffer_views<Scalar_>(*this); }
  Buffers<const Scalar_> buffers() const { return buffer_views<const Scalar_>(*this); }
  /// How often each channel's statistics were not finite, which the plain average leaves out of its count where it left
  /// them out. None where no
  /// statistics are tracked.
  TrainingState training_state() { return training_state_views<TrainingState>(*this); }
  ConstTrainingState training_state() const { return training_state_views<ConstTrainingState>(*this); }

 protected:
  using Sum = Wide<Scalar_>;

  /// What the pooled statistics of several batches are.
  enum class Pooling {
    values,  ///< Those of all their values together.
    averages  ///< The averages of theirs, weighted by their counts: for a layer whose batch statistics are averages already.
  };

  /// The layer's options that concern running statistics.
  struct Tracking {
    bool on;                         ///< Else there are none.
    std::optional<double> momentum;  ///< In [0, 1], or none.
    NonFinite non_finite;
    Pooling pooling = Pooling::values;
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
    return tracking_.non_finite == NonFinite::error && mode.running_statistics() != RunningStatistics::keep;
  }
  /// Throws std::invalid_argument unless all are finite; of(c) gives the BatchStatistics of channel c.
  template <class OfChannel>
  void check_statistics(Mode mode, const OfChannel& of) const {
    for (Index c = 0; c < channels_; ++c) {
      BatchStatistics batch = of(c);
      if (mode.running_statistics() == RunningStatistics::pool) batch = statistics_of(pooled_with(c, batch));
      if (!finite(batch))
        EVENKEEL_THROW(std::invalid_argument, name_,
                       "::forward: expected finite statistics in every channel, got mean ", batch.mean,
                       " and variance ", batch.variance, " in channel ", c);
    }
  }

  /// What a forward of this mode does to the running statistics; of(c) gives the BatchStatistics of channel c.
  template <class OfChannel>
  void update_statistics(Mode mode, const OfChannel& of) {
    const RunningStatistics wanted = mode.running_statistics();
    if (!tracking_.on || wanted == RunningStatistics::keep) return;
    if (wanted == RunningStatistics::update) {
      discard_statistics();
      return average(of, now_);
    }
    if (pending_ != wanted) begin(wanted);
    wanted == RunningStatistics::pool ? pool(of) : average(of, next_);
  }

  /// The running statistics of a layer of another scalar type, without what is prepared.
  template <Real U>
  void copy_statistics(const RunningStatisticsBase<U>& other) {
    now_.mean = other.now_.mean.template cast<Scalar_>();
    now_.variance = other.now_.variance.template cast<Scalar_>();
    now_.batches = other.now_.batches;
    now_.non_finite = other.now_.non_finite;
    discard_statistics();
  }

 private:
  template <Real>
  friend class RunningStatisticsBase;
  using Counts = Eigen::Array<std::uint64_t, 1, Eigen::Dynamic, Eigen::RowMajor>;

  struct State {
    Vector mean;               // (1, channels), finite unless accepted otherwise
    Vector variance;           // (1, channels), unbiased, >= 0
    std::int64_t batches = 0;  //
    Counts non_finite;         // (1, channels), batches whose statistics were not finite
  };

  using Moments = kernels::ColumnMoments<Sum>;

  static constexpr std::int64_t most_counted = (std::numeric_limits<std::int64_t>::max)();

  /// One more, as long as that can be counted: a counter may have been read from a file.
  template <typename Counter>
  static void count(Counter& counter) {
    if (counter < static_cast<Counter>(most_counted)) ++counter;
  }

  /// Makes next_ ready for batches that are prepared, or pooled.
  void begin(RunningStatistics pending) {
    next_ = now_;
    pending_ = pending;
    if (pending != RunningStatistics::pool) return;
    next_.batches = 0;
    next_.non_finite.setZero();
    pooled_.assign(static_cast<std::size_t>(channels_), Moments{});
  }

  /// Takes a batch into running averages.
  template <class OfChannel>
  void average(const OfChannel& of, State& state) const {
    count(state.batches);
    for (Index c = 0; c < channels_; ++c) {
      const BatchStatistics batch = of(c);
      if (!enters(batch, c, state)) continue;
      const auto m = static_cast<Sum>(tracking_.momentum ? *tracking_.momentum : 1 / taken(c, state));
      const auto move = [m](Scalar_& running, Sum of_batch) {
        running = static_cast<Scalar_>((1 - m) * static_cast<Sum>(running) + m * of_batch);
      };
      move(state.mean[c], batch.mean);
      move(state.variance[c], batch.variance);
    }
  }

  /// Takes a batch into the moments of all that are pooled.
  template <class OfChannel>
  void pool(const OfChannel& of) {
    count(next_.batches);
    for (Index c = 0; c < channels_; ++c) {
      const Moments moments = pooled_with(c, of(c));
      const BatchStatistics all = statistics_of(moments);
      if (!enters(all, c, next_)) continue;
      pooled_[static_cast<std::size_t>(c)] = moments;
      next_.mean[c] = static_cast<Scalar_>(all.mean);
      next_.variance[c] = static_cast<Scalar_>(all.variance);
    }
  }

  /// The moments of all batches that are pooled, and this one.
  Moments pooled_with(Index c, const BatchStatistics& batch) const {
    Moments all;
    if (pending_ == RunningStatistics::pool) all = pooled_[static_cast<std::size_t>(c)];
    if (tracking_.pooling == Pooling::values) {
      all.merge({batch.count, batch.mean, batch.variance * (batch.count - 1)});
    } else {
      all.count += batch.count;
      all.mean += (batch.mean - all.mean) * (batch.count / all.count);
      all.squares += batch.variance * batch.count;
    }
    return all;
  }
  BatchStatistics statistics_of(const Moments& moments) const {
    const Sum divisor = tracking_.pooling == Pooling::values ? moments.count - 1 : moments.count;
    return {moments.count, moments.mean, moments.squares / divisor};
  }

  /// How many batches a channel's plain average is of: at least the one that enters, whatever was written into the counters.
  double taken(Index c, const State& state) const {
    const double left_out = keeps_last_good() ? static_cast<double>(state.non_finite[c]) : 0;
    return (std::max)(1.0, static_cast<double>(state.batches) - left_out);
  }

  bool keeps_last_good() const { return tracking_.non_finite == NonFinite::keep_last_good; }

  /// Whether they are taken into a channel of `state`, where they are counted if they are not finite.
  bool enters(const BatchStatistics& statistics, Index c, State& state) const {
    if (finite(statistics)) return true;
    count(state.non_finite[c]);
    return !keeps_last_good();
  }

  /// As running statistics: float may not hold what a double does.
  static bool finite(const BatchStatistics& batch) {
    return detail::is_finite(static_cast<Scalar_>(batch.mean)) &&
           detail::is_finite(static_cast<Scalar_>(batch.variance));
  }

  template <typename S, class Self>
  static Buffers<S> buffer_views(Self& self) {
    if (!self.tracking_.on) return {};
    const auto map = [&](auto& vector) { return as_map(View<S>{vector.data(), 1, self.channels_, self.channels_, 1}); };
    Buffers<S> views{{"running_mean", map(self.now_.mean)},
                     {"running_var", map(self.now_.variance)},
                     {"num_batches_tracked", as_map(View<S>{}), &self.now_.batches}};
    for (auto& view : views) view.takes_non_finite = self.tracking_.non_finite == NonFinite::accept;
    return views;
  }

  template <class Views, class Self>
  static Views training_state_views(Self& self) {
    constexpr std::uint64_t most = most_counted;
    if (!self.tracking_.on) return {};
    return {{"non_finite", {self.now_.non_finite.data(), static_cast<std::size_t>(self.channels_)}, most}};
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

  const char* name_;             // the layer's
  Index channels_;               // >= 1
  Tracking tracking_;            // checked
  State now_;                    // what is shown and used; empty where nothing is tracked
  State next_;                   // what commit_statistics makes of it; empty until it is needed
  std::vector<Moments> pooled_;  // (channels), of all batches that are pooled; empty until it is needed
  RunningStatistics pending_ = RunningStatistics::keep;  // how next_ came about: prepare, pool; keep: nothing to commit
};

}  // namespace evenkeel
