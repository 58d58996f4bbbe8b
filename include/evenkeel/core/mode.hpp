#pragma once

namespace evenkeel {

/// Whether dropout draws masks in a forward call.
enum class Masks { off, on };

/// Which statistics BatchNorm normalizes with. `running` falls back on the batch where none are tracked, as PyTorch does;
/// `frozen` makes that case an error.
enum class Statistics { batch, running, frozen };

/// What a forward call does to BatchNorm's running statistics.
enum class RunningStatistics {
  keep,     ///< They rest.
  update,   ///< They move.
  prepare,  ///< They rest until commit_statistics() lets them move, or discard_statistics() forgets the batch.
  pool      ///< They rest likewise, and become those of all batches together: see recompute_statistics.
};

/// What a forward call does where training and inference differ. A required argument of every forward call: there is no
/// ambient train/eval switch that could be forgotten, and no default (`{}` and `true` do not compile).
///
///     mode               | dropout | BatchNorm normalizes with | running statistics | use
///     train              | draws   | the batch                 | move               | a training step
///     train_prepared     | draws   | the batch                 | are prepared       | a step that may turn out not to count
///     eval               | off     | running statistics        | rest               | inference
///     frozen_statistics  | draws   | running statistics        | rest               | fine-tuning with BatchNorm frozen
///     monte_carlo        | draws   | running statistics        | rest               | sampling predictions over masks
///
/// frozen_statistics and monte_carlo differ only for a BatchNorm that tracks no statistics: the first throws, the second
/// normalizes with the batch.
///
/// A step that may turn out not to count, because its loss or its gradients are not finite:
///
///     const auto& loss = cross_entropy(net.forward(x, ek::Mode::train_prepared), labels);
///     ...
///     if (std::isfinite(loss.value)) net.commit_statistics();   // now they move, to the same bits as in Mode::train
///     else net.discard_statistics();                            // as if the batch had never been
class Mode {
 public:
  /// Any other combination, e.g. batch statistics without masks: Mode(Masks::off, Statistics::batch, ...).
  constexpr Mode(Masks masks, Statistics statistics, RunningStatistics running)
      : masks_{masks}, statistics_{statistics}, running_{running} {}

  static const Mode train;
  static const Mode train_prepared;
  static const Mode eval;
  static const Mode frozen_statistics;
  static const Mode monte_carlo;

  constexpr bool draws_masks() const { return masks_ == Masks::on; }
  constexpr Statistics statistics() const { return statistics_; }
  constexpr RunningStatistics running_statistics() const { return running_; }
  /// At once, in the forward call.
  constexpr bool updates_running_statistics() const { return running_ == RunningStatistics::update; }

  friend constexpr bool operator==(Mode, Mode) = default;

 private:
  Masks masks_;
  Statistics statistics_;
  RunningStatistics running_;
};

inline constexpr Mode Mode::train{Masks::on, Statistics::batch, RunningStatistics::update};
inline constexpr Mode Mode::train_prepared{Masks::on, Statistics::batch, RunningStatistics::prepare};
inline constexpr Mode Mode::eval{Masks::off, Statistics::running, RunningStatistics::keep};
inline constexpr Mode Mode::frozen_statistics{Masks::on, Statistics::frozen, RunningStatistics::keep};
inline constexpr Mode Mode::monte_carlo{Masks::on, Statistics::running, RunningStatistics::keep};

}  // namespace evenkeel
