#pragma once

#include <algorithm>  // min, max
#include <array>

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"       // Index, Wide
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/moments.hpp"  // with_strides

/// The parts of batch normalization. A channel is one column, or, with positions, a run of columns side by side. Columns
/// are summed across rows, in tiles; a channel of many positions is summed along each row.
namespace evenkeel::kernels {

/// Mean and sum of squared deviations of so many values.
template <typename Sum>
struct ColumnMoments {
  Sum count = 0;
  Sum mean = 0;
  Sum squares = 0;

  /// Takes the moments of other values in. Chan, Golub & LeVeque 1983: never E[x^2] - E[x]^2.
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

/// The moments of each channel of `positions` columns, by the same two passes over blocks of rows.
template <typename Scalar>
void channel_moments(View<const Scalar> x, Index positions, ColumnMoments<Wide<Scalar>>* moments) {
  using Sum = Wide<Scalar>;
  const Index block = (std::max)(Index{1}, Index{16384} / positions);  // so many rows of a channel stay in cache
  parallel_for(x.columns / positions, x.size(), [&](Index c) {
    moments[c] = {};
    for (Index i0 = 0; i0 < x.rows; i0 += block) {
      const Index i1 = (std::min)(i0 + block, x.rows);
      const auto n = static_cast<Sum>((i1 - i0) * positions);
      Sum mean = 0;
      Sum deviation = 0;
      Sum square = 0;
      with_strides(
          [&](auto stride) {
            const auto run = [&](Index i) { return x.row(i) + c * positions * stride; };
            for (Index i = i0; i < i1; ++i)
              mean += sums<Sum, 1>(positions, [values = run(i), stride](Index j) {
                return std::array{static_cast<Sum>(values[j * stride])};
              })[0];
            mean /= n;
            for (Index i = i0; i < i1; ++i) {
              const auto [d, s] = sums<Sum, 2>(positions, [values = run(i), stride, mean](Index j) {
                const Sum difference = static_cast<Sum>(values[j * stride]) - mean;
                return std::array{difference, difference * difference};
              });
              deviation += d;
              square += s;
            }
          },
          x.column_stride);
      moments[c].merge({n, mean + deviation / n, square - deviation * (deviation / n)});
    }
  });
}

/// Calls body(column, channel) for every column of a row. With one position the two are the same and the loop vectorizes
/// over channels, else over positions.
template <class Body>
void for_each_column(Index columns, Index positions, const Body& body) {
  if (positions == 1) {
    for (Index j = 0; j < columns; ++j) body(j, j);
    return;
  }
  for (Index c = 0; c < columns / positions; ++c)
    for (Index j = c * positions; j < (c + 1) * positions; ++j) body(j, c);
}

/// y = ((x - mean) - mean_residual) * scale + shift with one set of numbers a channel: BatchNorm's forward once the
/// statistics are known. y may be x.
template <typename Scalar>
struct ChannelTransform {
  const Scalar* mean;
  const Scalar* mean_residual;
  const Scalar* scale;
  const Scalar* shift;
};

template <typename Scalar>
void transform_channels(View<const Scalar> x, Index positions, ChannelTransform<Scalar> by, View<Scalar> y) {
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            Scalar* output = y.row(i);
            for_each_column(x.columns, positions, [&](Index j, Index c) {
              output[j * y_stride] =
                  ((input[j * x_stride] - by.mean[c]) - by.mean_residual[c]) * by.scale[c] + by.shift[c];
            });
          }
        },
        x.column_stride, y.column_stride);
  });
}

/// What the backward pass sums over each channel: dy, and dy times the centred input.
template <typename Sum>
struct ChannelGradientSums {
  Sum dy = 0;
  Sum dy_centred = 0;
};

/// Numbers of ChannelGradientSums that column_gradient_sums needs room for; the result stands in the first `columns`.
inline Index column_gradient_sums_room(Index rows, Index columns) { return column_moments_room(rows, columns); }

template <typename Scalar>
void column_gradient_sums(View<const Scalar> x, View<const Scalar> dy, const Scalar* mean, const Scalar* mean_residual,
                          ChannelGradientSums<Wide<Scalar>>* sums) {
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

/// The same for channels of `positions` columns.
template <typename Scalar>
void channel_gradient_sums(View<const Scalar> x, View<const Scalar> dy, Index positions, const Scalar* mean,
                           const Scalar* mean_residual, ChannelGradientSums<Wide<Scalar>>* sums) {
  using Sum = Wide<Scalar>;
  parallel_for(x.columns / positions, x.size(), [&](Index c) {
    sums[c] = {};
    with_strides(
        [&](auto x_stride, auto dy_stride) {
          for (Index i = 0; i < x.rows; ++i) {
            const Scalar* input = x.row(i) + c * positions * x_stride;
            const Scalar* delta = dy.row(i) + c * positions * dy_stride;
            const auto [sum, sum_centred] = kernels::sums<Sum, 2>(positions, [&](Index j) {
              const Scalar d = delta[j * dy_stride];
              const Scalar centred = (input[j * x_stride] - mean[c]) - mean_residual[c];
              return std::array{static_cast<Sum>(d), static_cast<Sum>(d * centred)};
            });
            sums[c].dy += sum;
            sums[c].dy_centred += sum_centred;
          }
        },
        x.column_stride, dy.column_stride);
  });
}

/// dx = dy * scale with one scale a channel: the gradient where the statistics are constants. dx may be dy.
template <typename Scalar>
void scale_channels(View<const Scalar> dy, Index positions, const Scalar* scale, View<Scalar> dx) {
  const RowChunks chunks(dy.rows, dy.columns);
  parallel_for(chunks.count, dy.size(), [&](Index chunk) {
    with_strides(
        [&](auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* delta = dy.row(i);
            Scalar* output = dx.row(i);
            for_each_column(dy.columns, positions,
                            [&](Index j, Index c) { output[j * dx_stride] = delta[j * dy_stride] * scale[c]; });
          }
        },
        dy.column_stride, dx.column_stride);
  });
}

/// dx = ((dy - mean_dy) - ((x - mean) - mean_residual) * slope) * scale with one set of numbers a channel: the gradient where
/// the statistics are those of the batch. dx may be x or dy.
template <typename Scalar>
struct ChannelGradient {
  const Scalar* mean;
  const Scalar* mean_residual;
  const Scalar* scale;
  const Scalar* mean_dy;
  const Scalar* slope;
};

template <typename Scalar>
void transform_channel_gradients(View<const Scalar> x, View<const Scalar> dy, Index positions,
                                 ChannelGradient<Scalar> by, View<Scalar> dx) {
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* input = x.row(i);
            const Scalar* delta = dy.row(i);
            Scalar* output = dx.row(i);
            for_each_column(x.columns, positions, [&](Index j, Index c) {
              const Scalar centred = (input[j * x_stride] - by.mean[c]) - by.mean_residual[c];
              output[j * dx_stride] = ((delta[j * dy_stride] - by.mean_dy[c]) - centred * by.slope[c]) * by.scale[c];
            });
          }
        },
        x.column_stride, dy.column_stride, dx.column_stride);
  });
}

}  // namespace evenkeel::kernels
