#pragma once

#include <algorithm>  // min, max

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"       // Index, Wide
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/moments.hpp"  // with_strides

/// The parts of batch normalization. A channel is one column, or `positions` columns side by side; the moments of each
/// column are taken first and merged over positions and chunks of rows, so one kernel serves both forms.
namespace evenkeel::kernels {

/// Mean and sum of squared deviations of so many values.
template <typename Sum>
struct ColumnMoments {
  Sum count = 0;
  Sum mean = 0;
  Sum squares = 0;

  /// Takes the moments of other values in. Chan, Golub & LeVeque 1983, equations 2.1: never E[x^2] - E[x]^2.
  void merge(const ColumnMoments& other) {
    if (other.count == 0) return;
    const Sum total = count + other.count;
    const Sum delta = other.mean - mean;
    mean += delta * (other.count / total);
    squares += other.squares + delta * delta * (count * other.count / total);
    count = total;
  }
};

/// Numbers of ColumnMoments that column_moments needs room for; the result stands in the first `columns` of them.
inline Index column_moments_room(Index rows, Index columns) {
  return (std::max)(Index{1}, RowChunks(rows, columns).count) * columns;
}

/// The moments of each column of x, in tiles of columns and blocks of rows that stay in cache: two passes over a block, the
/// second correcting the block's mean by the residual sum, blocks and chunks merged in order.
template <typename Scalar>
void column_moments(View<const Scalar> x, ColumnMoments<Wide<Scalar>>* moments) {
  using Sum = Wide<Scalar>;
  constexpr Index tile = 64;
  constexpr Index block = 128;
  const RowChunks chunks(x.rows, x.columns);

  for (Index j = 0; j < x.columns; ++j) moments[j] = {};
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    ColumnMoments<Sum>* merged = moments + chunk * x.columns;
    for (Index j0 = 0; j0 < x.columns; j0 += tile) {
      const Index width = (std::min)(tile, x.columns - j0);
      for (Index j = 0; j < width; ++j) merged[j0 + j] = {};
      for (Index i0 = chunks.first(chunk); i0 < chunks.end(chunk); i0 += block) {
        const Index i1 = (std::min)(i0 + block, chunks.end(chunk));
        const auto n = static_cast<Sum>(i1 - i0);
        Sum mean[tile] = {};
        Sum deviation[tile] = {};
        Sum square[tile] = {};
        for (Index i = i0; i < i1; ++i)
          for (Index j = 0; j < width; ++j) mean[j] += static_cast<Sum>(x(i, j0 + j));
        for (Index j = 0; j < width; ++j) mean[j] /= n;
        for (Index i = i0; i < i1; ++i)
          for (Index j = 0; j < width; ++j) {
            const Sum d = static_cast<Sum>(x(i, j0 + j)) - mean[j];
            deviation[j] += d;
            square[j] += d * d;
          }
        for (Index j = 0; j < width; ++j)
          merged[j0 + j].merge({n, mean[j] + deviation[j] / n, square[j] - deviation[j] * (deviation[j] / n)});
      }
    }
  });
  for (Index chunk = 1; chunk < chunks.count; ++chunk)
    for (Index j = 0; j < x.columns; ++j) moments[j].merge(moments[chunk * x.columns + j]);
}

/// y = ((x - mean) - mean_residual) * scale + shift with one set of numbers a column: BatchNorm's forward once the
/// statistics are known. y may be x.
template <typename Scalar>
struct ColumnTransform {
  const Scalar* mean;
  const Scalar* mean_residual;
  const Scalar* scale;
  const Scalar* shift;
};

template <typename Scalar>
void transform_columns(View<const Scalar> x, ColumnTransform<Scalar> columns, View<Scalar> y) {
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            Scalar* output = y.row(i);
            for (Index j = 0; j < x.columns; ++j)
              output[j * y_stride] =
                  ((input[j * x_stride] - columns.mean[j]) - columns.mean_residual[j]) * columns.scale[j] +
                  columns.shift[j];
          }
        },
        x.column_stride, y.column_stride);
  });
}

/// What the backward pass sums over each column: dy, and dy times the centred input.
template <typename Sum>
struct ColumnGradientSums {
  Sum dy = 0;
  Sum dy_centred = 0;
};

/// Numbers of ColumnGradientSums that column_gradient_sums needs room for; the result stands in the first `columns`.
inline Index column_gradient_sums_room(Index rows, Index columns) { return column_moments_room(rows, columns); }

template <typename Scalar>
void column_gradient_sums(View<const Scalar> x, View<const Scalar> dy, const Scalar* mean, const Scalar* mean_residual,
                          ColumnGradientSums<Wide<Scalar>>* sums) {
  using Sum = Wide<Scalar>;
  constexpr Index tile = 64;
  const RowChunks chunks(x.rows, x.columns);
  for (Index j = 0; j < x.columns; ++j) sums[j] = {};
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    for (Index j0 = 0; j0 < x.columns; j0 += tile) {
      const Index width = (std::min)(tile, x.columns - j0);
      Sum sum[tile] = {};
      Sum sum_centred[tile] = {};
      for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i)
        for (Index j = 0; j < width; ++j) {
          const Scalar delta = dy(i, j0 + j);
          sum[j] += static_cast<Sum>(delta);
          sum_centred[j] += static_cast<Sum>(delta * ((x(i, j0 + j) - mean[j0 + j]) - mean_residual[j0 + j]));
        }
      for (Index j = 0; j < width; ++j) sums[chunk * x.columns + j0 + j] = {sum[j], sum_centred[j]};
    }
  });
  for (Index chunk = 1; chunk < chunks.count; ++chunk)
    for (Index j = 0; j < x.columns; ++j) {
      sums[j].dy += sums[chunk * x.columns + j].dy;
      sums[j].dy_centred += sums[chunk * x.columns + j].dy_centred;
    }
}

/// dx = dy * scale with one scale a column: the gradient where the statistics are constants. dx may be dy.
template <typename Scalar>
void scale_columns(View<const Scalar> dy, const Scalar* scale, View<Scalar> dx) {
  const RowChunks chunks(dy.rows, dy.columns);
  parallel_for(chunks.count, dy.size(), [&](Index chunk) {
    with_strides(
        [&](auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* delta = dy.row(i);
            Scalar* output = dx.row(i);
            for (Index j = 0; j < dy.columns; ++j) output[j * dx_stride] = delta[j * dy_stride] * scale[j];
          }
        },
        dy.column_stride, dx.column_stride);
  });
}

/// dx = ((dy - mean_dy) - ((x - mean) - mean_residual) * slope) * scale with one set of numbers a column: the gradient where
/// the statistics are those of the batch. dx may be x or dy.
template <typename Scalar>
struct ColumnGradient {
  const Scalar* mean;
  const Scalar* mean_residual;
  const Scalar* scale;
  const Scalar* mean_dy;
  const Scalar* slope;
};

template <typename Scalar>
void transform_column_gradients(View<const Scalar> x, View<const Scalar> dy, ColumnGradient<Scalar> columns,
                                View<Scalar> dx) {
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            const Scalar* delta = dy.row(i);
            Scalar* output = dx.row(i);
            for (Index j = 0; j < x.columns; ++j) {
              const Scalar centred = (input[j * x_stride] - columns.mean[j]) - columns.mean_residual[j];
              output[j * dx_stride] =
                  ((delta[j * dy_stride] - columns.mean_dy[j]) - centred * columns.slope[j]) * columns.scale[j];
            }
          }
        },
        x.column_stride, dy.column_stride, dx.column_stride);
  });
}

}  // namespace evenkeel::kernels
