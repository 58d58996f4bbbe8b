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
template <typename Scalar, class Stride>
Scalar range_scale(const Scalar* x, Index count, Stride stride) {
  Scalar largest = 0;
  for (Index j = 0; j < count; ++j) {
    const Scalar magnitude = std::abs(x[j * stride]);
    if (!evenkeel::detail::is_finite(magnitude)) return Scalar(1);
    if (magnitude > largest) largest = magnitude;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  return std::ldexp(Scalar(1), -exponent);
}

/// The moments of a row in the wide type throughout, for rows whose squares leave the range of their own. A row whose squares
/// leave even that of the wide type is scaled by a power of two first.
template <typename Scalar, class Stride>
RowMoments<Scalar> wide_row_moments(const Scalar* x, Index count, Stride stride, double epsilon) {
  using Sum = Wide<Scalar>;
  const auto n = static_cast<Sum>(count);
  const auto scaled_moments = [&](Sum scale) {
    struct {
      Sum mean, residual, variance;
    } result;
    const auto [sum] =
        sums<Sum, 1>(count, [&](Index j) { return std::array{static_cast<Sum>(x[j * stride]) * scale}; });
    result.mean = sum / n;
    const auto [deviation, square] = sums<Sum, 2>(count, [&](Index j) {
      const Sum d = static_cast<Sum>(x[j * stride]) * scale - result.mean;
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
    scale = static_cast<Sum>(range_scale(x, count, stride));
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
template <typename Scalar, class Stride>
Scalar wide_row_inverse_rms(const Scalar* x, Index count, Stride stride, double epsilon) {
  using Sum = Wide<Scalar>;
  const auto scaled_mean_square = [&](Sum scale) {
    const auto [square] = sums<Sum, 1>(count, [&](Index j) {
      const Sum value = static_cast<Sum>(x[j * stride]) * scale;
      return std::array{value * value};
    });
    return square / static_cast<Sum>(count);
  };
  Sum scale = 1;
  Sum mean_square = scaled_mean_square(scale);
  if (!evenkeel::detail::is_finite(mean_square)) {
    scale = static_cast<Sum>(range_scale(x, count, stride));
    mean_square = scaled_mean_square(scale);
  }
  return static_cast<Scalar>(scale / std::sqrt(mean_square + static_cast<Sum>(epsilon) * scale * scale));
}

/// Whether a mean of squares, with epsilon, is right as it was summed in Scalar: no square has overflowed, and what may have
/// underflowed does not count.
template <typename Scalar>
bool in_range(Wide<Scalar> mean_square, double epsilon) {
  constexpr auto least = static_cast<Wide<Scalar>>((std::numeric_limits<Scalar>::min)()) * Wide<Scalar>(1e8);
  return evenkeel::detail::is_finite(mean_square) && mean_square + static_cast<Wide<Scalar>>(epsilon) >= least;
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

  void set(std::size_t row, const RowMoments<Scalar>& moments) {
    const auto r = static_cast<Index>(row);
    mean[r] = moments.mean;
    mean_residual[r] = moments.mean_residual;
    inverse_deviation[r] = moments.inverse_deviation;
  }
  RowMoments<Scalar> get(std::size_t row) const {
    const auto r = static_cast<Index>(row);
    return {mean[r], mean_residual[r], inverse_deviation[r]};
  }
};

namespace detail {

/// The moments of R rows of `count` numbers, given a first mean of each and the sums of x - mean and of its square. wide(r) gives
/// those of row r where they have left the range of Scalar; only the first `rows` are there.
template <typename Scalar, std::size_t R, class WideMoments>
EVENKEEL_INLINE inline MomentsOfRows<Scalar, R> corrected_moments(const PerRow<Scalar, R>& mean,
                                                                  const PerRow<Wide<Scalar>, R>& deviation,
                                                                  const PerRow<Wide<Scalar>, R>& square, Index count,
                                                                  double epsilon, const WideMoments& wide,
                                                                  std::size_t rows = R) {
  using Sum = Wide<Scalar>;
  const Sum inverse_count = 1 / static_cast<Sum>(count);
  const PerRow<Sum, R> residual = deviation * inverse_count;
  const PerRow<Sum, R> variance = (square - deviation * residual) * inverse_count;
  const PerRow<Sum, R> corrected = mean.template cast<Sum>() + residual;

  MomentsOfRows<Scalar, R> moments;
  moments.mean = corrected.template cast<Scalar>();
  moments.mean_residual = ((mean - moments.mean).template cast<Sum>() + residual).template cast<Scalar>();
  moments.inverse_deviation =
      ((variance.max)(Sum(0)) + static_cast<Sum>(epsilon)).sqrt().inverse().template cast<Scalar>();
  for (std::size_t r = 0; r < rows; ++r)
    if (!in_range<Scalar>(variance[static_cast<Index>(r)], epsilon)) moments.set(r, wide(r));
  return moments;
}

/// 1 / sqrt(square / count + epsilon) of R rows.
template <typename Scalar, std::size_t R, class WideInverse>
EVENKEEL_INLINE inline PerRow<Scalar, R> inverse_rms_of(const PerRow<Wide<Scalar>, R>& square, Index count,
                                                        double epsilon, const WideInverse& wide, std::size_t rows = R) {
  using Sum = Wide<Scalar>;
  const PerRow<Sum, R> mean_square = square * (1 / static_cast<Sum>(count));
  PerRow<Scalar, R> inverse_rms = (mean_square + static_cast<Sum>(epsilon)).sqrt().inverse().template cast<Scalar>();
  for (std::size_t r = 0; r < rows; ++r)
    if (!in_range<Scalar>(mean_square[static_cast<Index>(r)], epsilon)) inverse_rms[static_cast<Index>(r)] = wide(r);
  return inverse_rms;
}

}  // namespace detail

/// Mean and biased variance of R rows, each in two passes while it is in cache. The second pass also sums x - mean, which
/// corrects both (for the variance: the corrected two-pass algorithm of Chan, Golub & LeVeque 1983, "Algorithms for computing
/// the sample variance").
template <typename Scalar, std::size_t R, class Stride>
EVENKEEL_INLINE inline MomentsOfRows<Scalar, R> row_moments(const std::array<const Scalar*, R>& x, Index count,
                                                            Stride stride, double epsilon) {
  using Sum = Wide<Scalar>;
  const auto [sum] = row_sums<Scalar, 1, R>(count, [&](Index r, Index j, auto lanes, auto& sums) EVENKEEL_INLINE {
    sums[0] += lanes.load(x[static_cast<std::size_t>(r)] + j * stride, stride);
  });
  const PerRow<Scalar, R> mean = (sum * (1 / static_cast<Sum>(count))).template cast<Scalar>();
  const auto [deviation, square] =
      row_sums<Scalar, 2, R>(count, [&](Index r, Index j, auto lanes, auto& sums) EVENKEEL_INLINE {
        const Lanes<Scalar> d = lanes.load(x[static_cast<std::size_t>(r)] + j * stride, stride, mean[r]) - mean[r];
        sums[0] += d;
        sums[1] += d * d;
      });
  return detail::corrected_moments<Scalar, R>(mean, deviation, square, count, epsilon, [&](std::size_t r) {
    return detail::wide_row_moments(x[r], count, stride, epsilon);
  });
}

/// The same for rows side by side: number j of the first at x + j * stride, those of the others behind it.
template <typename Scalar, class AnyLanes>
EVENKEEL_INLINE inline auto moments_side_by_side(const Scalar* x, Index count, Index stride, AnyLanes lanes,
                                                 double epsilon) {
  using Sum = Wide<Scalar>;
  constexpr auto rows = static_cast<std::size_t>(lane_count<Scalar>);
  const auto at = [&](Index j) EVENKEEL_INLINE { return lanes.load(x + j * stride, UnitStride{}); };
  const auto [sum] =
      sums_side_by_side<Scalar, 1>(count, [&](Index j, auto& sums) EVENKEEL_INLINE { sums[0] += at(j); });
  const Lanes<Scalar> mean = (sum * (1 / static_cast<Sum>(count))).template cast<Scalar>();
  const auto [deviation, square] = sums_side_by_side<Scalar, 2>(count, [&](Index j, auto& sums) EVENKEEL_INLINE {
    const Lanes<Scalar> d = at(j) - mean;
    sums[0] += d;
    sums[1] += d * d;
  });
  return detail::corrected_moments<Scalar, rows>(
      mean, deviation, square, count, epsilon,
      [&](std::size_t r) { return detail::wide_row_moments(x + r, count, stride, epsilon); },
      static_cast<std::size_t>(lanes.template count_of<Scalar>()));
}

/// 1 / sqrt(mean(x^2) + epsilon) of R rows.
template <typename Scalar, std::size_t R, class Stride>
EVENKEEL_INLINE inline PerRow<Scalar, R> row_inverse_rms(const std::array<const Scalar*, R>& x, Index count,
                                                         Stride stride, double epsilon) {
  const auto [square] = row_sums<Scalar, 1, R>(count, [&](Index r, Index j, auto lanes, auto& sums) EVENKEEL_INLINE {
    const Lanes<Scalar> values = lanes.load(x[static_cast<std::size_t>(r)] + j * stride, stride);
    sums[0] += values * values;
  });
  return detail::inverse_rms_of<Scalar, R>(square, count, epsilon, [&](std::size_t r) {
    return detail::wide_row_inverse_rms(x[r], count, stride, epsilon);
  });
}

/// The same for rows side by side.
template <typename Scalar, class AnyLanes>
EVENKEEL_INLINE inline Lanes<Scalar> inverse_rms_side_by_side(const Scalar* x, Index count, Index stride,
                                                              AnyLanes lanes, double epsilon) {
  constexpr auto rows = static_cast<std::size_t>(lane_count<Scalar>);
  const auto [square] = sums_side_by_side<Scalar, 1>(count, [&](Index j, auto& sums) EVENKEEL_INLINE {
    const Lanes<Scalar> values = lanes.load(x + j * stride, UnitStride{});
    sums[0] += values * values;
  });
  return detail::inverse_rms_of<Scalar, rows>(
      square, count, epsilon,
      [&](std::size_t r) { return detail::wide_row_inverse_rms(x + r, count, stride, epsilon); },
      static_cast<std::size_t>(lanes.template count_of<Scalar>()));
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
