#pragma once

#include <algorithm>  // fill, min, max
#include <array>
#include <cstddef>      // size_t
#include <limits>       // smallest normal number
#include <type_traits>  // integral_constant

#include "evenkeel/core/check.hpp"       // is_finite
#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"       // Index, Wide
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/lanes.hpp"    // Lanes, with_row_access
#include "evenkeel/kernels/moments.hpp"  // sums

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
inline Index column_moments_room(Index rows, Index columns) { return (RowChunks(rows, columns).count + 1) * columns; }

namespace detail {

/// Columns whose sums are held side by side, and rows that are summed in the type of the data, in cache from the first pass
/// to the second.
inline constexpr Index column_tile = 512;
inline constexpr Index row_block = 64;

/// Calls body(row, R) for the rows from `first` to `end`, four at a time while there are four.
template <class Body>
EVENKEEL_INLINE inline void for_each_four_rows(Index first, Index end, const Body& body) {
  for (; first + 4 <= end; first += 4) body(first, std::integral_constant<std::size_t, 4>{});
  for (; first < end; ++first) body(first, std::integral_constant<std::size_t, 1>{});
}

/// The sum of R arrays, in a tree.
template <std::size_t R, typename Scalar>
EVENKEEL_INLINE inline Lanes<Scalar> sum_of_rows(const Lanes<Scalar> (&rows)[R]) {
  if constexpr (R == 1)
    return rows[0];
  else
    return (rows[0] + rows[1]) + (rows[2] + rows[3]);
}

/// Sums over some rows of a tile of columns, in the type of the data.
template <typename Scalar>
struct TileSums {
  Eigen::Array<Scalar, column_tile, 1> first, second;

  void clear(Index width) {
    std::fill(first.data(), first.data() + width, Scalar(0));
    std::fill(second.data(), second.data() + width, Scalar(0));
  }
};

/// The moments of one column of a block in the wide type, for columns whose squares leave the range of their own.
template <typename Scalar>
ColumnMoments<Wide<Scalar>> wide_column_moments(View<const Scalar> x, Index column) {
  using Sum = Wide<Scalar>;
  const auto n = static_cast<Sum>(x.rows);
  Sum mean = 0, deviation = 0, square = 0;
  for (Index i = 0; i < x.rows; ++i) mean += static_cast<Sum>(x(i, column));
  mean /= n;
  for (Index i = 0; i < x.rows; ++i) {
    const Sum d = static_cast<Sum>(x(i, column)) - mean;
    deviation += d;
    square += d * d;
  }
  return {n, mean + deviation / n, square - deviation * (deviation / n)};
}

/// Mean and sum of squared deviations of so many values in each of some columns side by side.
template <typename Sum>
struct MomentsSideBySide {
  Sum count = 0;
  Sum* mean;
  Sum* squares;

  /// ColumnMoments::merge for `columns` columns, of n values each: other(j) gives the mean and the squares of column j.
  template <class Other>
  EVENKEEL_INLINE void merge(Sum n, Index columns, const Other& other) {
    const Sum total = count + n;
    const Sum to_mean = n / total, to_squares = count * n / total;
    for (Index j = 0; j < columns; ++j) {
      const auto [other_mean, other_squares] = other(j);
      const Sum delta = other_mean - mean[j];
      mean[j] += delta * to_mean;
      squares[j] += other_squares + delta * delta * to_squares;
    }
    count = total;
  }
};

/// The moments of a tile of columns: two passes over each block of rows, the second correcting the block's mean by the
/// residual sum, blocks merged in order.
template <typename Scalar, class Stride>
void tile_moments(View<const Scalar> x, Stride stride, MomentsSideBySide<Wide<Scalar>> moments) {
  using Sum = Wide<Scalar>;
  TileSums<Scalar> sums;
  Eigen::Array<Scalar, column_tile, 1> mean;
  for (Index i0 = 0; i0 < x.rows; i0 += row_block) {
    const View<const Scalar> block = x.middle_rows(i0, (std::min)(row_block, x.rows - i0));
    const auto n = static_cast<Sum>(block.rows);
    const auto inverse_n = static_cast<Scalar>(1 / n);
    sums.clear(x.columns);
    for_each_four_rows(0, block.rows, [&](Index i, auto count) EVENKEEL_INLINE {
      constexpr std::size_t rows = decltype(count)::value;
      for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
        Lanes<Scalar> values[rows];
        unrolled<rows>([&](Index r) EVENKEEL_INLINE {
          const Scalar* from = block.row(i + r) + j * stride;
          prefetch(from + 4 * x.row_stride, stride);
          values[r] = lanes.load(from, stride);
        });
        Scalar* sum = sums.first.data() + j;
        lanes.store(sum, UnitStride{}, lanes.load(sum, UnitStride{}) + sum_of_rows(values));
      });
    });
    for (Index j = 0; j < x.columns; ++j) {
      mean[j] = sums.first[j] * inverse_n;
      sums.first[j] = Scalar(0);
    }
    for_each_four_rows(0, block.rows, [&](Index i, auto count) EVENKEEL_INLINE {
      constexpr std::size_t rows = decltype(count)::value;
      for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
        const Lanes<Scalar> middle = lanes.load(mean.data() + j, UnitStride{});
        Lanes<Scalar> deviations[rows], squares[rows];
        unrolled<rows>([&](Index r) EVENKEEL_INLINE {
          deviations[r] = lanes.load(block.row(i + r) + j * stride, stride) - middle;
          squares[r] = deviations[r] * deviations[r];
        });
        Scalar *first = sums.first.data() + j, *second = sums.second.data() + j;
        lanes.store(first, UnitStride{}, lanes.load(first, UnitStride{}) + sum_of_rows(deviations));
        lanes.store(second, UnitStride{}, lanes.load(second, UnitStride{}) + sum_of_rows(squares));
      });
    });

    const auto out_of_range = [&](Index j) {
      constexpr Scalar least = (std::numeric_limits<Scalar>::min)() * Scalar(1e8L);
      const bool constant = sums.first[j] == 0 && sums.second[j] == 0;
      return !evenkeel::detail::is_finite(sums.second[j]) || (sums.second[j] < least && !constant);
    };
    const auto summed = [&](Index j) {
      const auto deviation = static_cast<Sum>(sums.first[j]);
      const Sum residual = deviation * (1 / n);
      return std::array{static_cast<Sum>(mean[j]) + residual, static_cast<Sum>(sums.second[j]) - deviation * residual};
    };
    bool any_out_of_range = false;
    for (Index j = 0; j < x.columns; ++j) any_out_of_range |= out_of_range(j);
    if (any_out_of_range)
      moments.merge(n, x.columns, [&](Index j) {
        if (!out_of_range(j)) return summed(j);
        const auto wide = wide_column_moments(block, j);
        return std::array{wide.mean, wide.squares};
      });
    else
      moments.merge(n, x.columns, summed);
  }
}

}  // namespace detail

/// The moments of each column of x. Sums run in the type of the data over some rows, and in the wide type over all.
template <typename Scalar>
void column_moments(View<const Scalar> x, ColumnMoments<Wide<Scalar>>* moments) {
  using Sum = Wide<Scalar>;
  const Index columns = x.columns;
  const RowChunks chunks(x.rows, columns);
  const auto of_chunk = [&](Index chunk, Index first) {
    Sum* numbers = &moments[(chunk + 1) * columns].count;
    return detail::MomentsSideBySide<Sum>{0, numbers + first, numbers + columns + first};
  };
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    const View<const Scalar> rows = x.middle_rows(chunks.first(chunk), chunks.end(chunk) - chunks.first(chunk));
    for (Index j0 = 0; j0 < columns; j0 += detail::column_tile) {
      const Index width = (std::min)(detail::column_tile, columns - j0);
      const auto tile = of_chunk(chunk, j0);
      std::fill(tile.mean, tile.mean + width, Sum(0));
      std::fill(tile.squares, tile.squares + width, Sum(0));
      with_strides([&](auto stride) { detail::tile_moments(rows.middle_columns(j0, width), stride, tile); },
                   x.column_stride);
    }
  });
  if (chunks.count == 0) {
    for (Index j = 0; j < columns; ++j) moments[j] = {};
    return;
  }
  auto all = of_chunk(0, 0);
  all.count = static_cast<Sum>(chunks.end(0));
  for (Index chunk = 1; chunk < chunks.count; ++chunk) {
    const auto next = of_chunk(chunk, 0);
    all.merge(static_cast<Sum>(chunks.end(chunk) - chunks.first(chunk)), columns, [&](Index j) {
      return std::array{next.mean[j], next.squares[j]};
    });
  }
  for (Index j = 0; j < columns; ++j) moments[j] = {all.count, all.mean[j], all.squares[j]};
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
