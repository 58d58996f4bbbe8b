#pragma once

#include <Eigen/Core>  // Array

#include <algorithm>  // max, min, clamp
#include <array>
#include <cmath>    // abs, exp2, log2, pow, round
#include <cstddef>  // size_t
#include <limits>   // epsilon, max
#include <optional>

#include "evenkeel/core/check.hpp"  // is_finite
#include "evenkeel/core/types.hpp"  // Index

/// The derivative of a function with respect to one number, by differences.
///
/// The function has outputs y(x), a vector, and is contracted with fixed weights w:
///
///     slope(h) = sum over i of w_i (y_i(x + h) - y_i(x - h)) / (step as taken)
///
/// The contraction is of differences, not the difference of contractions: an output that does not depend on x adds an
/// exact zero and no rounding, so that a small derivative is not lost beside large outputs of others.
///
/// Source  C. J. F. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software 4(2), 1982:
///         central differences at falling steps, extrapolated to step zero, the entry of the tableau with the smallest
///         error estimate being the answer. Departures: the steps are those that the type can store; the estimate is never
///         below rounding, nor below half the gap of the one-sided slopes; growth of the estimate does not end the search,
///         since a first step that is too large makes it grow and fall again.
namespace evenkeel::checking {

using Values = Eigen::Array<long double, Eigen::Dynamic, 1>;

/// How outputs become one number.
struct Contraction {
  Values weights;           // (outputs)
  Values base;              // the outputs at x itself, finite
  long double epsilon = 0;  // of the type in which outputs are evaluated
};

/// The estimate of an error of which nothing is known. Not infinity, which -ffast-math does not know.
inline constexpr long double unknown = (std::numeric_limits<long double>::max)();

struct Derivative {
  long double value = 0;
  long double error = unknown;      // estimate of |value - true|
  long double step = 0;             // the smallest that value is taken from
  bool kink = false;                // two slopes: then value is their mean
  long double left = 0, right = 0;  // the slopes

  /// The right value that is nearest to the analytic one: at a kink, any between the slopes is right.
  long double nearest(long double analytic) const {
    return kink ? std::clamp(analytic, (std::min)(left, right), (std::max)(left, right)) : value;
  }
  long double size() const { return kink ? (std::max)(std::abs(left), std::abs(right)) : std::abs(value); }
};

struct DerivativeOptions {
  long double analytic = 0;   // what the derivative is going to be compared with,
  long double tolerance = 0;  // and how closely, relative to the sum of both sizes: no need to look much closer
  long double step = 0;       // the first one; 0: first_step(x)

  long double allowed(const Derivative& numeric) const { return tolerance * (numeric.size() + std::abs(analytic)); }
  bool agrees(const Derivative& numeric) const {
    const long double difference = std::abs(numeric.nearest(analytic) - analytic);
    return difference <= allowed(numeric) && numeric.error <= allowed(numeric);
  }
  bool disagrees(const Derivative& numeric) const {
    return std::abs(numeric.nearest(analytic) - analytic) > allowed(numeric) + numeric.error;
  }
};

/// About epsilon^(1/5) max(1, |x|), where rounding and what is left of truncation meet; a power of two, so that x + h and
/// x - h are mostly exact.
template <typename Scalar>
long double first_step(Scalar x) {
  const auto epsilon = static_cast<long double>(std::numeric_limits<Scalar>::epsilon());
  const long double size = (std::max)(1.0L, std::abs(static_cast<long double>(x)));
  return std::exp2(std::round(std::log2(std::pow(epsilon, 0.2L) * size)));
}

/// The number as memory holds it: without excess precision, and out of reach of an optimizer that knows (x + h) - x = h.
template <typename Scalar>
Scalar stored(Scalar value) {
  volatile Scalar memory = value;
  return memory;
}

/// What two evaluations, at x + up and x - down, say.
struct Slopes {
  bool finite = true;
  long double up = 0, down = 0;  // the steps as taken
  long double centre = 0, right = 0, left = 0;
  long double rounding = 0;  // of any of the three, about
  long double hidden = 0;    // where no output changes: the slope that may hide below their last digits
};

/// The contracted differences of the outputs above and below x.
inline Slopes slopes(const Contraction& contraction, long double up, long double down, const Values& above,
                     const Values& below) {
  Slopes result;
  result.up = up;
  result.down = down;
  long double changed_sizes = 0;
  long double all_sizes = 0;
  bool changed = false;
  for (Index i = 0; i < contraction.base.size(); ++i) {
    const long double weight = contraction.weights[i];
    const long double size = std::abs(weight * contraction.base[i]);
    all_sizes += size;
    if (above[i] == below[i] && above[i] == contraction.base[i]) continue;
    if (!detail::is_finite(above[i]) || !detail::is_finite(below[i])) {
      result.finite = false;
      return result;
    }
    changed = true;
    changed_sizes += (std::max)({size, std::abs(weight * above[i]), std::abs(weight * below[i])});
    result.centre += weight * (above[i] - below[i]);
    result.right += weight * (above[i] - contraction.base[i]);
    result.left += weight * (contraction.base[i] - below[i]);
  }
  result.centre /= up + down;
  result.right /= up;
  result.left /= down;
  constexpr long double roundings = 4;  // an output is the result of a few
  result.rounding = roundings * contraction.epsilon * changed_sizes / (up + down);
  if (!changed) result.hidden = roundings * contraction.epsilon * all_sizes / (up + down);
  return result;
}

/// Central differences extrapolated to step zero: the error has even powers of the step alone.
class Extrapolation {
 public:
  struct Entry {
    long double value, error;
  };

  /// Takes the slope at the next smaller step. Gives the entry of the new row with the smallest error estimate: its
  /// distance from the two entries it was made of. The first row has none.
  Entry add(long double step, long double slope) {
    std::array<long double, columns> row{slope};
    Entry best{slope, unknown};
    for (std::size_t j = 1; j <= rows_; ++j) {
      const long double ratio = steps_[j - 1] / step;
      row[j] = row[j - 1] + (row[j - 1] - row_[j - 1]) / (ratio * ratio - 1);
      const long double error = (std::max)(std::abs(row[j] - row[j - 1]), std::abs(row[j] - row_[j - 1]));
      if (error < best.error) best = {row[j], error};
    }
    rows_ = (std::min)(rows_ + 1, columns - 1);
    for (std::size_t j = columns - 1; j > 0; --j) steps_[j] = steps_[j - 1];
    steps_[0] = step;
    row_ = row;
    return best;
  }

 private:
  static constexpr std::size_t columns = 7;

  std::size_t rows_ = 0;                      // before the next one, as far as they are used
  std::array<long double, columns> steps_{};  // of these, the latest first
  std::array<long double, columns> row_{};    // the latest: extrapolated 0, 1, ... times
};

/// Watches the slopes to both sides, extrapolated once. For a smooth function their gap vanishes with the step; at a kink
/// it stays.
class OneSided {
 public:
  void add(const Slopes& now) {
    if (seen_ > 0) {
      const long double right = extrapolate(last_.up / now.up, now.right, last_.right);
      const long double left = extrapolate(last_.down / now.down, now.left, last_.left);
      const long double gap = right - left;
      const long double drift = (std::max)(std::abs(right - right_), std::abs(left - left_));
      const bool stays = seen_ > 1 && std::abs(gap) > noise * now.rounding &&
                         std::abs(gap - (right_ - left_)) <= steadiness * std::abs(gap);
      stayed_ = stays ? stayed_ + 1 : 0;
      right_ = right;
      left_ = left;
      if (persists()) record((std::max)(drift, noise * now.rounding), (std::min)(now.up, now.down));
    }
    last_ = now;
    ++seen_;
  }

  /// The gap that is left at step zero; unknown before the second step.
  long double gap() const { return seen_ > 1 ? std::abs(right_ - left_) : unknown; }
  bool persists() const { return stayed_ >= steps_to_believe; }
  /// The two slopes where the gap last persisted, if it ever did.
  const std::optional<Derivative>& kink() const { return kink_; }

 private:
  static constexpr long double noise = 8;          // gaps below so many times rounding say nothing
  static constexpr long double steadiness = 0.1L;  // by which share a gap that stays may change from step to step
  static constexpr int steps_to_believe = 2;

  static long double extrapolate(long double ratio, long double now, long double last) {
    return ratio > 1 ? (ratio * now - last) / (ratio - 1) : now;
  }

  void record(long double error, long double step) {
    if (stayed_ > steps_to_believe && error >= kink_->error) return;
    kink_ = Derivative{(left_ + right_) / 2, error, step, true, left_, right_};
  }

  Slopes last_;                       // at the step before
  int seen_ = 0;                      // steps so far
  int stayed_ = 0;                    // steps since the gap stays
  long double right_ = 0, left_ = 0;  // extrapolated, of the last two steps
  std::optional<Derivative> kink_;    //
};

/// The derivative at x by steps that fall from `first`.
template <typename Scalar, class Evaluate>
Derivative differentiate_from(long double first, Scalar x, Evaluate& evaluate, const Contraction& contraction,
                              const DerivativeOptions& options) {
  constexpr long double far_below = 0.01L;         // share of the allowed difference with which the search ends
  constexpr long double smallest_step = 0x1p-44L;  // share of the first step
  constexpr long double past_a_kink = 16;          // factor on the step while a gap persists

  const auto centre = static_cast<long double>(x);
  Extrapolation extrapolation;
  OneSided sides;
  Derivative best;
  long double hidden = 0;
  Values above, below;
  for (long double step = first; step >= smallest_step * first;) {
    const Scalar high = stored(static_cast<Scalar>(centre + step));
    const Scalar low = stored(static_cast<Scalar>(centre - step));
    if (high == x || low == x) break;
    evaluate(high, above);
    evaluate(low, below);
    const Slopes now = slopes(contraction, static_cast<long double>(high) - centre,
                              centre - static_cast<long double>(low), above, below);
    if (!now.finite) {
      step /= 2;
      continue;
    }
    const long double taken = (now.up + now.down) / 2;
    const Extrapolation::Entry entry = extrapolation.add(taken, now.centre);
    sides.add(now);
    const long double error = (std::max)({entry.error, now.rounding, sides.gap() / 2});
    if (error < best.error) {
      best = {entry.value, error, taken};
      hidden = now.hidden;
    }
    if (best.error <= far_below * options.allowed(best)) break;
    if (now.rounding > best.error) break;
    step /= sides.persists() ? past_a_kink : 2;
  }
  const bool settled = best.error <= options.allowed(best);
  if (!settled && sides.kink()) return *sides.kink();
  if (options.analytic != 0) best.error = (std::max)(best.error, hidden);
  return best;
}

/// The derivative at x. evaluate(value, outputs) writes the outputs at another value of the type of x. Where the slopes to
/// both sides differ however small the step, the result is a kink.
///
/// Two results are looked at again. One that says the analytic derivative is wrong, from a much smaller first step: the
/// steps of one search are doubles of each other, and to doubled steps a fast oscillation can look like a slow one. One that
/// cannot tell, from a larger first step, where rounding weighs less: a derivative may be small beside the outputs.
template <typename Scalar, class Evaluate>
Derivative differentiate(Scalar x, Evaluate&& evaluate, const Contraction& contraction,
                         const DerivativeOptions& options) {
  constexpr long double smaller = 0.011L;  // factors on the first step; no power of two
  constexpr long double larger = 32;       // a power of two
  const long double first = options.step > 0 ? options.step : first_step(x);
  const auto search = [&](long double step) { return differentiate_from(step, x, evaluate, contraction, options); };
  const Derivative found = search(first);
  if (options.agrees(found)) return found;
  if (options.disagrees(found)) {
    const Derivative closer = search(smaller * first);
    return options.agrees(closer) ? closer : found;
  }
  if (options.step > 0) return found;
  const Derivative wider = search(larger * first);
  return wider.error < found.error ? wider : found;
}

}  // namespace evenkeel::checking
