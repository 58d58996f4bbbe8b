#pragma once

#include <array>
#include <cmath>        // sqrt, hypot, abs, frexp, ldexp
#include <cstddef>      // size_t
#include <type_traits>  // integral_constant

#include "evenkeel/core/check.hpp"      // is_finite
#include "evenkeel/core/parameter.hpp"  // Accumulate
#include "evenkeel/core/types.hpp"      // Index, Wide

/// Sums and moments of one row, the step that all row norms share.
namespace evenkeel::kernels {

/// A stride that is one, known at compile time: what lets the compilers vectorize a row.
using UnitStride = std::integral_constant<Index, 1>;

/// Calls body with UnitStride where every stride is one, and with the run-time strides otherwise.
template <class Body, class... Strides>
decltype(auto) with_strides(const Body& body, Strides... strides) {
  if ((true && ... && (strides == 1))) return body(((void)strides, UnitStride{})...);
  return body(strides...);
}

/// Sums K terms over j = 0 ... count - 1, term(j) being an array of K. Sixteen partial sums a term: vectorizable without
/// -ffast-math, more accurate than one running sum, and the same bits for every stride.
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

}  // namespace detail

/// Mean and biased variance of a row in two passes while it is in cache. The second pass also sums x - mean, which corrects
/// both (for the variance: the corrected two-pass algorithm of Chan, Golub & LeVeque 1983, "Algorithms for computing the
/// sample variance"). A row whose squares
/// leave the range of the accumulator is scaled by a power of two first.
template <typename Scalar, class Stride>
RowMoments<Scalar> row_moments(const Scalar* x, Index count, Stride stride, double epsilon) {
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
    scale = static_cast<Sum>(detail::range_scale(x, count, stride));
    moments = scaled_moments(scale);
  }
  const Sum mean = moments.mean / scale;
  // Where the row was scaled, epsilon times the square of the scale might be too small for the type.
  const auto added = static_cast<Sum>(epsilon);
  const Sum inverse = 1 / (scale == 1 ? std::sqrt(moments.variance + added)
                                      : std::hypot(std::sqrt(moments.variance) / scale, std::sqrt(added)));
  RowMoments<Scalar> result;
  result.mean = static_cast<Scalar>(mean);
  result.mean_residual = static_cast<Scalar>((mean - static_cast<Sum>(result.mean)) + moments.residual / scale);
  result.inverse_deviation = static_cast<Scalar>(inverse);
  return result;
}

/// 1 / sqrt(mean(x^2) + epsilon) of a row, scaled like row_moments where squares leave the range.
template <typename Scalar, class Stride>
Scalar row_inverse_rms(const Scalar* x, Index count, Stride stride, double epsilon) {
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
    scale = static_cast<Sum>(detail::range_scale(x, count, stride));
    mean_square = scaled_mean_square(scale);
  }
  return static_cast<Scalar>(scale / std::sqrt(mean_square + static_cast<Sum>(epsilon) * scale * scale));
}

/// target[j] = (target[j] if accumulating) + the sum over chunks of partial[chunk * chunk_stride + j]: the last step of a
/// sum over the batch, in the order of the chunks. Does nothing without a target.
template <typename Scalar, typename Sum>
void add_partial_sums(const Sum* partial, Index chunks, Index chunk_stride, Index count, Accumulate accumulate,
                      Scalar* target) {
  if (target == nullptr) return;
  for (Index j = 0; j < count; ++j) {
    Sum total = accumulate == Accumulate::yes ? static_cast<Sum>(target[j]) : Sum(0);
    for (Index chunk = 0; chunk < chunks; ++chunk) total += partial[chunk * chunk_stride + j];
    target[j] = static_cast<Scalar>(total);
  }
}

}  // namespace evenkeel::kernels
