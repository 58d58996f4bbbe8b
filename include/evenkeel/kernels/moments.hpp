#pragma once

#include <algorithm>  // min
#include <array>
#include <cmath>    // sqrt, hypot, abs, frexp, ldexp
#include <cstddef>  // size_t
#include <limits>   // smallest normal number

#include "evenkeel/core/check.hpp"      // is_finite
#include "evenkeel/core/parameter.hpp"  // Accumulate
#include "evenkeel/core/types.hpp"      // Index, Wide
#include "evenkeel/core/view.hpp"       // View
#include "evenkeel/kernels/lanes.hpp"   // row_sums

/// Sums and moments of one row, the step that all row norms share.
namespace evenkeel::kernels {

/// Sums K terms over j = 0 ... count - 1, term(j) being an array of K, in a type of its own choice. Sixteen partial sums a
/// term: vectorizable without -ffast-math, more accurate than one running sum, and the same bits for every stride.
template <typename Sum, std::size_t K, class Term>
std::array<Sum, K> sums(Index count, const Term& term) {
  constexpr Index lanes = 16;
  Sum partial[K][lanes] = {};
  Index j = 0;
  for (; j + lanes <= count; j += lanes)
    for (Index lane = 0; lane < lanes; ++lane) {
      const std::array<Sum, K> value = term(j + lane);
      for (std::size_t k = 0; k < K; ++k) partial[k][lane] += value[k];
    }
  for (Index lane = 0; j < count; ++j, ++lane) {
    const std::array<Sum, K> value = term(j);
    for (std::size_t k = 0; k < K; ++k) partial[k][lane] += value[k];
  }
  std::array<Sum, K> total{};
  for (std::size_t k = 0; k < K; ++k) {
    for (Index half = lanes / 2; half > 0; half /= 2)
      for (Index lane = 0; lane < half; ++lane) partial[k][lane] += partial[k][lane + half];
    total[k] = partial[k][0];
  }
  return total;
}

/// What a row needs to be normalized. The mean is kept as two numbers, mean + mean_residual: rounded to one float, a mean
/// of 1e4 would be off by more than the spread of many a row.
template <typename Scalar>
struct RowMoments {
  Scalar mean;
  Scalar mean_residual;
  Scalar inverse_deviation;  ///< 1 / sqrt(variance + epsilon)

  /// (x - mean) / sqrt(variance + epsilon)
  Scalar normalize(Scalar x) const { return ((x - mean) - mean_residual) * inverse_deviation; }
};

namespace detail {

/// The power of two that brings the largest magnitude of a row into [1/2, 1); one if the row holds a NaN or an infinity.
template <typename Scalar>
Scalar range_scale(const Scalar* x, Index count) {
  Scalar largest = 0;
  for (Index j = 0; j < count; ++j) {
    const Scalar magnitude = std::abs(x[j]);
    if (!evenkeel::detail::is_finite(magnitude)) return Scalar(1);
    if (magnitude > largest) largest = magnitude;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  return std::ldexp(Scalar(1), -exponent);
}

/// The moments of a row in the wide type throughout, for rows whose squares leave the range of their own. A row whose squares
/// leave even that of the wide type is scaled by a power of two first.
template <typename Scalar>
EVENKEEL_APART RowMoments<Scalar> wide_row_moments(const Scalar* x, Index count, double epsilon) {
  using Sum = Wide<Scalar>;
  const auto n = static_cast<Sum>(count);
  const auto scaled_moments = [&](Sum scale) {
    struct {
      Sum mean, residual, variance;
    } result;
    const auto [sum] = sums<Sum, 1>(count, [&](Index j) { return std::array{static_cast<Sum>(x[j]) * scale}; });
    result.mean = sum / n;
    const auto [deviation, square] = sums<Sum, 2>(count, [&](Index j) {
      const Sum d = static_cast<Sum>(x[j]) * scale - result.mean;
      return std::array{d, d * d};
    });
    result.residual = deviation / n;
    const Sum variance = square / n - result.residual * result.residual;
    result.variance = variance < 0 ? Sum(0) : variance;  // keeps NaN
    return result;
  };

  Sum scale = 1;
  auto moments = scaled_moments(scale);
  if (!evenkeel::detail::is_finite(moments.variance)) {
    scale = static_cast<Sum>(range_scale(x, count));
    moments = scaled_moments(scale);
  }
  const Sum mean = moments.mean / scale;
  const Sum added = static_cast<Sum>(epsilon);
  const Sum inverse = 1 / (scale == 1 ? std::sqrt(moments.variance + added)
                                      : std::hypot(std::sqrt(moments.variance) / scale, std::sqrt(added)));
  RowMoments<Scalar> result;
  result.mean = static_cast<Scalar>(mean);
  result.mean_residual = static_cast<Scalar>((mean - static_cast<Sum>(result.mean)) + moments.residual / scale);
  result.inverse_deviation = static_cast<Scalar>(inverse);
  return result;
}

/// The same for 1 / sqrt(mean(x^2) + epsilon).
template <typename Scalar>
EVENKEEL_APART Scalar wide_row_inverse_rms(const Scalar* x, Index count, double epsilon) {
  using Sum = Wide<Scalar>;
  const auto scaled_mean_square = [&](Sum scale) {
    const auto [square] = sums<Sum, 1>(count, [&](Index j) {
      const Sum value = static_cast<Sum>(x[j]) * scale;
      return std::array{value * value};
    });
    return square / static_cast<Sum>(count);
  };
  Sum scale = 1;
  Sum mean_square = scaled_mean_square(scale);
  if (!evenkeel::detail::is_finite(mean_square)) {
    scale = static_cast<Sum>(range_scale(x, count));
    mean_square = scaled_mean_square(scale);
  }
  return static_cast<Scalar>(scale / std::sqrt(mean_square + static_cast<Sum>(epsilon) * scale * scale));
}

/// Whether means of squares, with epsilon, are right as they were summed in Scalar: no square has overflowed, and what may
/// have underflowed does not count.
template <typename Scalar, int R>
EVENKEEL_INLINE inline bool in_range(const Eigen::Array<Wide<Scalar>, R, 1>& mean_squares, double epsilon) {
  using Sum = Wide<Scalar>;
  constexpr auto least = static_cast<Sum>((std::numeric_limits<Scalar>::min)()) * Sum(1e8);
  return evenkeel::detail::is_finite(mean_squares.sum()) &&
         mean_squares.minCoeff() + static_cast<Sum>(epsilon) >= least;
}

/// Calls correct(r) for each row whose mean of squares is not in range.
template <typename Scalar, int R, class Correct>
EVENKEEL_INLINE inline void for_each_out_of_range(const Eigen::Array<Wide<Scalar>, R, 1>& mean_squares, double epsilon,
                                                  const Correct& correct) {
  if (in_range<Scalar>(mean_squares, epsilon)) return;  // nearly always
  unrolled<static_cast<std::size_t>(R)>([&](Index r) EVENKEEL_INLINE {
    if (!in_range<Scalar>(Eigen::Array<Wide<Scalar>, 1, 1>(mean_squares[r]), epsilon))
      correct(static_cast<std::size_t>(r));
  });
}

/// 1 / sqrt(x + epsilon), in the wide type, then rounded.
template <typename Scalar, int R>
EVENKEEL_INLINE inline Eigen::Array<Scalar, R, 1> inverse_root(const Eigen::Array<Wide<Scalar>, R, 1>& x,
                                                               double epsilon) {
  using Sums = Eigen::Array<Wide<Scalar>, R, 1>;
  const Sums root = (x + static_cast<Wide<Scalar>>(epsilon)).sqrt();
  const Sums inverse = root.inverse();  // by itself, since together with the cast it would not be vectorized
  return inverse.template cast<Scalar>();
}

}  // namespace detail

/// R rows of a view, one after another.
template <std::size_t R, typename Scalar>
std::array<Scalar*, R> rows_from(View<Scalar> x, Index first) {
  std::array<Scalar*, R> rows;
  for (std::size_t r = 0; r < R; ++r) rows[r] = x.row(first + static_cast<Index>(r));
  return rows;
}

/// The moments of R rows, see RowMoments.
template <typename Scalar, std::size_t R>
struct MomentsOfRows {
  PerRow<Scalar, R> mean, mean_residual, inverse_deviation;

  EVENKEEL_INLINE void set(std::size_t row, const RowMoments<Scalar>& moments) {
    const auto r = static_cast<Index>(row);
    mean[r] = moments.mean;
    mean_residual[r] = moments.mean_residual;
    inverse_deviation[r] = moments.inverse_deviation;
  }
  EVENKEEL_INLINE RowMoments<Scalar> get(std::size_t row) const {
    const auto r = static_cast<Index>(row);
    return {mean[r], mean_residual[r], inverse_deviation[r]};
  }
};

/// Sums over R rows: the mean of each, what the mean leaves, and the sum of squares about mean + residual.
template <typename Scalar, std::size_t R>
struct DeviationsOfRows {
  PerRow<Scalar, R> mean;
  PerRow<Wide<Scalar>, R> residual, squares;  ///< Squares: >= 0 or NaN; infinite where they left the range of Scalar.
};

/// In two passes over rows that are in cache. The second pass also sums x - mean, which corrects the mean and the squares: the
/// corrected two-pass algorithm of Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance".
template <typename Scalar, std::size_t R>
EVENKEEL_INLINE inline DeviationsOfRows<Scalar, R> row_deviations(const std::array<const Scalar*, R>& x, Index count) {
  using Sum = Wide<Scalar>;
  const Sum inverse_count = 1 / static_cast<Sum>(count);
  const auto [sum] = row_sums<Scalar, 1, R>(count, [&](Index r, Index j, auto lanes, auto& sums) EVENKEEL_INLINE {
    sums[0] += lanes.load(x[static_cast<std::size_t>(r)] + j);
  });
  const PerRow<Scalar, R> mean = (sum * inverse_count).template cast<Scalar>();
  const auto [deviation, square] =
      row_sums<Scalar, 2, R>(count, [&](Index r, Index j, auto lanes, auto& sums) EVENKEEL_INLINE {
        const Lanes<Scalar> d = lanes.load(x[static_cast<std::size_t>(r)] + j, mean[r]) - mean[r];
        sums[0] += d;
        sums[1] += d * d;
      });
  const PerRow<Sum, R> residual = deviation * inverse_count;
  return {mean, residual, ((square - deviation * residual).max)(Sum(0))};
}

/// Mean and biased variance of R rows.
template <typename Scalar, std::size_t R>
EVENKEEL_INLINE inline MomentsOfRows<Scalar, R> row_moments(const std::array<const Scalar*, R>& x, Index count,
                                                            double epsilon) {
  using Sum = Wide<Scalar>;
  const DeviationsOfRows<Scalar, R> of = row_deviations<Scalar, R>(x, count);
  const PerRow<Sum, R> variance = of.squares * (1 / static_cast<Sum>(count));
  const PerRow<Sum, R> corrected = of.mean.template cast<Sum>() + of.residual;

  MomentsOfRows<Scalar, R> moments;
  moments.mean = corrected.template cast<Scalar>();
  moments.mean_residual = ((of.mean - moments.mean).template cast<Sum>() + of.residual).template cast<Scalar>();
  moments.inverse_deviation = detail::inverse_root<Scalar>(variance, epsilon);
  detail::for_each_out_of_range<Scalar>(variance, epsilon, [&](std::size_t r) EVENKEEL_INLINE {
    moments.set(r, detail::wide_row_moments(x[r], count, epsilon));
  });
  return moments;
}

/// 1 / sqrt(mean(x^2) + epsilon) of R rows.
template <typename Scalar, std::size_t R>
EVENKEEL_INLINE inline PerRow<Scalar, R> row_inverse_rms(const std::array<const Scalar*, R>& x, Index count,
                                                         double epsilon) {
  using Sum = Wide<Scalar>;
  const auto [square] = row_sums<Scalar, 1, R>(count, [&](Index r, Index j, auto lanes, auto& sums) EVENKEEL_INLINE {
    const Lanes<Scalar> values = lanes.load(x[static_cast<std::size_t>(r)] + j);
    sums[0] += values * values;
  });
  const PerRow<Sum, R> mean_square = square * (1 / static_cast<Sum>(count));
  PerRow<Scalar, R> inverse_rms = detail::inverse_root<Scalar>(mean_square, epsilon);
  detail::for_each_out_of_range<Scalar>(mean_square, epsilon, [&](std::size_t r) EVENKEEL_INLINE {
    inverse_rms[static_cast<Index>(r)] = detail::wide_row_inverse_rms(x[r], count, epsilon);
  });
  return inverse_rms;
}

/// target[j] = (target[j] if accumulating) + the sum over chunks of partial[chunk * chunk_stride + j]: the last step of a
/// sum over the batch, in the order of the chunks. Does nothing without a target.
template <typename Scalar, typename Sum>
void add_partial_sums(const Sum* partial, Index chunks, Index chunk_stride, Index count, Accumulate accumulate,
                      Scalar* target) {
  if (target == nullptr) return;
  constexpr Index width = 64;
  for (Index j0 = 0; j0 < count; j0 += width) {
    const Index n = (std::min)(width, count - j0);
    Sum totals[width] = {};
    if (accumulate == Accumulate::yes)
      for (Index j = 0; j < n; ++j) totals[j] = static_cast<Sum>(target[j0 + j]);
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      const Sum* terms = partial + chunk * chunk_stride + j0;
      for (Index j = 0; j < n; ++j) totals[j] += terms[j];
    }
    for (Index j = 0; j < n; ++j) target[j0 + j] = static_cast<Scalar>(totals[j]);
  }
}

}  // namespace evenkeel::kernels
