#pragma once

#include <algorithm>  // fill
#include <array>

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/parameter.hpp"   // Accumulate
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/moments.hpp"  // row_inverse_rms

namespace evenkeel::kernels {

/// y = (offset + weight) * x / sqrt(mean(x^2) + epsilon), the mean being that of the row.
/// Zhang & Sennrich 2019, equation 4, plus epsilon. Keeps 1 / sqrt(...) of each row where `kept` is given. y may be x.
template <typename Scalar>
void rms_norm_forward(View<const Scalar> x, const Scalar* weight, Scalar offset, double epsilon, View<Scalar> y,
                      Scalar* kept = nullptr) {
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            Scalar* output = y.row(i);
            const Scalar inverse_rms = row_inverse_rms(input, x.columns, x_stride, epsilon);
            for (Index j = 0; j < x.columns; ++j)
              output[j * y_stride] = input[j * x_stride] * inverse_rms * (offset + weight[j]);
            if (kept != nullptr) kept[i] = inverse_rms;
          }
        },
        x.column_stride, y.column_stride);
  });
}

/// Numbers of scratch that rms_norm_backward needs.
inline Index rms_norm_scratch(Index rows, Index columns) { return RowChunks(rows, columns).count * columns; }

/// The derivative of rms_norm_forward. With g = dy * (offset + weight) and x^ = x / sqrt(mean(x^2) + epsilon),
///
///     dx      = (g - x^ mean(g x^)) / sqrt(mean(x^2) + epsilon)      means over the row
///     dweight = sum(dy x^)                                           sum over the batch
///
/// dx without data is not computed; dweight may be null. dx may be x or dy.
template <typename Scalar>
void rms_norm_backward(View<const Scalar> x, View<const Scalar> dy, const Scalar* weight, Scalar offset,
                       const Scalar* kept, View<Scalar> dx, Scalar* dweight, Accumulate accumulate,
                       Wide<Scalar>* scratch) {
  using Sum = Wide<Scalar>;
  const Index columns = x.columns;
  const RowChunks chunks(x.rows, columns);

  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    Sum* weight_sum = scratch + chunk * columns;
    std::fill(weight_sum, weight_sum + columns, Sum(0));
    with_strides(
        [&](auto x_stride, auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            const Scalar* delta = dy.row(i);
            const Scalar inverse_rms = kept[i];
            if (dweight != nullptr)
              for (Index j = 0; j < columns; ++j)
                weight_sum[j] += static_cast<Sum>(delta[j * dy_stride] * (input[j * x_stride] * inverse_rms));
            if (dx.data == nullptr) continue;
            const auto [sum_gx] = sums<Sum, 1>(columns, [&](Index j) {
              const Scalar g = delta[j * dy_stride] * (offset + weight[j]);
              return std::array{static_cast<Sum>(g * (input[j * x_stride] * inverse_rms))};
            });
            const auto mean_gx = static_cast<Scalar>(sum_gx / static_cast<Sum>(columns));
            Scalar* output = dx.row(i);
            for (Index j = 0; j < columns; ++j) {
              const Scalar g = delta[j * dy_stride] * (offset + weight[j]);
              output[j * dx_stride] = (g - input[j * x_stride] * inverse_rms * mean_gx) * inverse_rms;
            }
          }
        },
        x.column_stride, dy.column_stride, dx.column_stride);
  });

  add_partial_sums(scratch, chunks.count, columns, columns, accumulate, dweight);
}

}  // namespace evenkeel::kernels
