#pragma once

#include <algorithm>  // fill
#include <array>

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/parameter.hpp"   // Accumulate
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/moments.hpp"  // row_moments

namespace evenkeel::kernels {

/// y = weight * (x - mean) / sqrt(variance + epsilon) + bias, with mean and biased variance of each row.
/// Ba, Kiros & Hinton 2016, equations 3 and 4, plus epsilon. Keeps the moments of each row where `kept` is given. y may be x.
template <typename Scalar>
void layer_norm_forward(View<const Scalar> x, const Scalar* weight, const Scalar* bias, double epsilon, View<Scalar> y,
                        RowMoments<Scalar>* kept = nullptr) {
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            Scalar* output = y.row(i);
            const RowMoments<Scalar> moments = row_moments(input, x.columns, x_stride, epsilon);
            for (Index j = 0; j < x.columns; ++j)
              output[j * y_stride] = moments.normalize(input[j * x_stride]) * weight[j] + bias[j];
            if (kept != nullptr) kept[i] = moments;
          }
        },
        x.column_stride, y.column_stride);
  });
}

/// Numbers of scratch that layer_norm_backward needs.
inline Index layer_norm_scratch(Index rows, Index columns) { return RowChunks(rows, columns).count * 2 * columns; }

/// The derivative of layer_norm_forward. With g = dy * weight and x^ = (x - mean) / sqrt(variance + epsilon),
///
///     dx      = (g - mean(g) - x^ mean(g x^)) / sqrt(variance + epsilon)      means over the row
///     dweight = sum(dy x^)        dbias = sum(dy)                             sums over the batch
///
/// dx without data is not computed; dweight and dbias may be null. dx may be x or dy.
template <typename Scalar>
void layer_norm_backward(View<const Scalar> x, View<const Scalar> dy, const Scalar* weight,
                         const RowMoments<Scalar>* kept, View<Scalar> dx, Scalar* dweight, Scalar* dbias,
                         Accumulate accumulate, Wide<Scalar>* scratch) {
  using Sum = Wide<Scalar>;
  const Index columns = x.columns;
  const RowChunks chunks(x.rows, columns);
  const bool any_parameter = dweight != nullptr || dbias != nullptr;

  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    Sum* weight_sum = scratch + chunk * 2 * columns;
    Sum* bias_sum = weight_sum + columns;
    std::fill(weight_sum, weight_sum + 2 * columns, Sum(0));
    with_strides(
        [&](auto x_stride, auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            const Scalar* delta = dy.row(i);
            const RowMoments<Scalar> moments = kept[i];
            if (any_parameter)
              for (Index j = 0; j < columns; ++j) {
                const Scalar d = delta[j * dy_stride];
                weight_sum[j] += static_cast<Sum>(d * moments.normalize(input[j * x_stride]));
                bias_sum[j] += static_cast<Sum>(d);
              }
            if (dx.data == nullptr) continue;
            const auto [sum_g, sum_gx] = sums<Sum, 2>(columns, [&](Index j) {
              const Scalar g = delta[j * dy_stride] * weight[j];
              return std::array{static_cast<Sum>(g), static_cast<Sum>(g * moments.normalize(input[j * x_stride]))};
            });
            const auto mean_g = static_cast<Scalar>(sum_g / static_cast<Sum>(columns));
            const auto mean_gx = static_cast<Scalar>(sum_gx / static_cast<Sum>(columns));
            Scalar* output = dx.row(i);
            for (Index j = 0; j < columns; ++j) {
              const Scalar g = delta[j * dy_stride] * weight[j];
              output[j * dx_stride] =
                  (g - mean_g - moments.normalize(input[j * x_stride]) * mean_gx) * moments.inverse_deviation;
            }
          }
        },
        x.column_stride, dy.column_stride, dx.column_stride);
  });

  add_partial_sums(scratch, chunks.count, 2 * columns, columns, accumulate, dweight);
  add_partial_sums(scratch + columns, chunks.count, 2 * columns, columns, accumulate, dbias);
}

}  // namespace evenkeel::kernels
