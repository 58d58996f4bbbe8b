#pragma once

#include <algorithm>  // min
#include <array>
#include <cstddef>  // size_t

#include "evenkeel/core/parallel.hpp"           // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"              // Index, Wide
#include "evenkeel/core/view.hpp"               // View
#include "evenkeel/kernels/column_moments.hpp"  // for_each_four_rows, TileSums
#include "evenkeel/kernels/lanes.hpp"           // Lanes, with_row_access
#include "evenkeel/kernels/moments.hpp"         // sums

/// What batch normalization does once the moments of its channels are known, and the way back.
namespace evenkeel::kernels {

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
    with_row_access(
        y,
        [&](auto stores, auto y_stride, auto x_stride) {
          const Index first = chunks.first(chunk), end = chunks.end(chunk);
          if (positions > 1)
            for (Index i = first; i < end; ++i)
              for (Index j = 0; j < x.columns; ++j) {
                const Index c = j / positions;
                y.row(i)[j * y_stride] =
                    ((x.row(i)[j * x_stride] - by.mean[c]) - by.mean_residual[c]) * by.scale[c] + by.shift[c];
              }
          else
            detail::for_each_four_rows(first, end, [&](Index i, auto count) EVENKEEL_INLINE {
              constexpr std::size_t rows = decltype(count)::value;
              for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
                const Lanes<Scalar> mean = lanes.load(by.mean + j, UnitStride{});
                const Lanes<Scalar> residual = lanes.load(by.mean_residual + j, UnitStride{});
                const Lanes<Scalar> scale = lanes.load(by.scale + j, UnitStride{});
                const Lanes<Scalar> shift = lanes.load(by.shift + j, UnitStride{});
                unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                  const Scalar* from = x.row(i + r) + j * x_stride;
                  prefetch(from + 4 * x.row_stride, x_stride);
                  stores.store(lanes, y.row(i + r) + j * y_stride, y_stride,
                               ((lanes.load(from, x_stride) - mean) - residual) * scale + shift);
                });
              });
            });
          stores.finish();
        },
        x);
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
  const RowChunks chunks(x.rows, x.columns);
  for (Index j = 0; j < x.columns; ++j) sums[j] = {};
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    ChannelGradientSums<Sum>* of_chunk = sums + chunk * x.columns;
    for (Index j = 0; j < x.columns; ++j) of_chunk[j] = {};
    detail::TileSums<Scalar> partial;
    for (Index i0 = chunks.first(chunk); i0 < chunks.end(chunk); i0 += detail::row_block)
      for (Index j0 = 0; j0 < x.columns; j0 += detail::column_tile) {
        const Index width = (std::min)(detail::column_tile, x.columns - j0);
        partial.clear(width);
        with_strides(
            [&](auto x_stride, auto dy_stride) {
              detail::for_each_four_rows(
                  i0, (std::min)(i0 + detail::row_block, chunks.end(chunk)), [&](Index i, auto count) EVENKEEL_INLINE {
                    constexpr std::size_t rows = decltype(count)::value;
                    for_each_lanes<Scalar>(0, width, [&](Index j, auto lanes) EVENKEEL_INLINE {
                      const Lanes<Scalar> middle = lanes.load(mean + j0 + j, UnitStride{});
                      const Lanes<Scalar> residual = lanes.load(mean_residual + j0 + j, UnitStride{});
                      Lanes<Scalar> deltas[rows], products[rows];
                      unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                        prefetch(dy.row(i + r + 4) + (j0 + j) * dy_stride, dy_stride);
                        prefetch(x.row(i + r + 4) + (j0 + j) * x_stride, x_stride);
                        deltas[r] = lanes.load(dy.row(i + r) + (j0 + j) * dy_stride, dy_stride);
                        products[r] = deltas[r] *
                                      ((lanes.load(x.row(i + r) + (j0 + j) * x_stride, x_stride) - middle) - residual);
                      });
                      Scalar *first = partial.first.data() + j, *second = partial.second.data() + j;
                      lanes.store(first, UnitStride{}, lanes.load(first, UnitStride{}) + detail::sum_of_rows(deltas));
                      lanes.store(second, UnitStride{},
                                  lanes.load(second, UnitStride{}) + detail::sum_of_rows(products));
                    });
                  });
            },
            x.column_stride, dy.column_stride);
        for (Index j = 0; j < width; ++j) {
          of_chunk[j0 + j].dy += static_cast<Sum>(partial.first[j]);
          of_chunk[j0 + j].dy_centred += static_cast<Sum>(partial.second[j]);
        }
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
    with_row_access(
        dx,
        [&](auto stores, auto dx_stride, auto dy_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Scalar* delta = dy.row(i);
            Scalar* output = dx.row(i);
            if (positions > 1)
              for (Index j = 0; j < dy.columns; ++j)
                output[j * dx_stride] = delta[j * dy_stride] * scale[j / positions];
            else
              for_each_lanes<Scalar>(0, dy.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
                const Lanes<Scalar> factor = lanes.load(scale + j, UnitStride{});
                stores.store(lanes, output + j * dx_stride, dx_stride,
                             lanes.load(delta + j * dy_stride, dy_stride) * factor);
              });
          }
          stores.finish();
        },
        dy);
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
    with_row_access(
        dx,
        [&](auto stores, auto dx_stride, auto x_stride, auto dy_stride) {
          const Index first = chunks.first(chunk), end = chunks.end(chunk);
          if (positions > 1)
            for (Index i = first; i < end; ++i)
              for (Index j = 0; j < x.columns; ++j) {
                const Index c = j / positions;
                const Scalar centred = (x.row(i)[j * x_stride] - by.mean[c]) - by.mean_residual[c];
                dx.row(i)[j * dx_stride] =
                    ((dy.row(i)[j * dy_stride] - by.mean_dy[c]) - centred * by.slope[c]) * by.scale[c];
              }
          else
            detail::for_each_four_rows(first, end, [&](Index i, auto count) EVENKEEL_INLINE {
              constexpr std::size_t rows = decltype(count)::value;
              for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
                const Lanes<Scalar> mean = lanes.load(by.mean + j, UnitStride{});
                const Lanes<Scalar> residual = lanes.load(by.mean_residual + j, UnitStride{});
                const Lanes<Scalar> scale = lanes.load(by.scale + j, UnitStride{});
                const Lanes<Scalar> mean_dy = lanes.load(by.mean_dy + j, UnitStride{});
                const Lanes<Scalar> slope = lanes.load(by.slope + j, UnitStride{});
                unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                  prefetch(dy.row(i + r + 4) + j * dy_stride, dy_stride);
                  prefetch(x.row(i + r + 4) + j * x_stride, x_stride);
                  const Lanes<Scalar> delta = lanes.load(dy.row(i + r) + j * dy_stride, dy_stride);
                  const Lanes<Scalar> centred = (lanes.load(x.row(i + r) + j * x_stride, x_stride) - mean) - residual;
                  stores.store(lanes, dx.row(i + r) + j * dx_stride, dx_stride,
                               ((delta - mean_dy) - centred * slope) * scale);
                });
              });
            });
          stores.finish();
        },
        x, dy);
  });
}

}  // namespace evenkeel::kernels
