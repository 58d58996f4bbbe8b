#pragma once

#include <algorithm>  // fill, min
#include <array>
#include <cstddef>  // size_t

#include "evenkeel/core/parallel.hpp"           // parallel_for
#include "evenkeel/core/types.hpp"              // Index, Wide, Arithmetic
#include "evenkeel/core/view.hpp"               // View
#include "evenkeel/kernels/batch_norm.hpp"      // ChannelGradientSums
#include "evenkeel/kernels/channels.hpp"        // ChannelGroups
#include "evenkeel/kernels/column_moments.hpp"  // ColumnMoments, tile_moments
#include "evenkeel/kernels/contiguous.hpp"      // PackedRows
#include "evenkeel/kernels/lanes.hpp"           // row_sums
#include "evenkeel/kernels/moments.hpp"         // row_deviations

/// Sums over channels of more than one position. The columns of short channels are summed each, then together; long channels are
/// summed along each row.
namespace evenkeel::kernels {
namespace detail {

/// Calls body(first row, rows, first column, columns) for pieces of a long channel.
template <class Body>
void for_each_piece(Index rows, Index positions, const Body& body) {
  for (Index i = 0; i < rows; i += run_rows)
    for (Index j = 0; j < positions; j += run_tile)
      body(i, (std::min)(run_rows, rows - i), j, (std::min)(run_tile, positions - j));
}

/// The moments of channels whose columns, all those of x, fit in a tile.
template <typename Stored>
void short_channel_moments(bool near, View<const Stored> x, Index positions, ColumnMoments<Wide<Stored>>* moments) {
  using Sum = Wide<Stored>;
  Sum mean[column_tile], squares[column_tile];
  std::fill(mean, mean + x.columns, Sum(0));
  std::fill(squares, squares + x.columns, Sum(0));
  for_each_tile(
      x.columns,
      [&](Index first, Index width) {
        tile_moments<Stored>(near, x.middle_columns(first, width), {0, mean + first, squares + first});
      },
      x);
  const auto rows = static_cast<Sum>(x.rows);
  for (Index c = 0; c < x.columns / positions; ++c) {
    const Index begin = c * positions, end = begin + positions;
    const auto n = static_cast<Sum>(positions);
    Sum all = 0, deviation = 0, square = 0;  // as tile_moments does: about the mean of means, which is then corrected
    for (Index j = begin; j < end; ++j) all += mean[j];
    all /= n;
    for (Index j = begin; j < end; ++j) {
      const Sum d = mean[j] - all;
      deviation += d;
      square += squares[j] + rows * d * d;
    }
    moments[c] = {rows * n, all + deviation / n, square - rows * deviation * (deviation / n)};
  }
}

/// The moments of one channel, whose columns are all those of x.
template <typename Stored>
ColumnMoments<Wide<Stored>> long_channel_moments(bool near, View<const Stored> x) {
  using Sum = Wide<Stored>;
  using Scalar = Arithmetic<Stored>;
  const PackedRows<Scalar> room(run_packing, nullptr, 0);
  ColumnMoments<Sum> moments;
  for_each_piece(x.rows, x.columns, [&](Index i, Index rows, Index j, Index columns) {
    const View<const Scalar> piece = room.contiguous(x.middle_rows(i, rows).middle_columns(j, columns));
    const auto n = static_cast<Sum>(columns);
    for_each_rows<most_rows<Scalar>>(
        0, rows, columns * static_cast<Index>(sizeof(Scalar)), rows_collide(near, piece),
        [&]<std::size_t R>(Index first, std::integral_constant<std::size_t, R>) EVENKEEL_INLINE {
          const DeviationsOfRows<Scalar, R> of = row_deviations<Scalar, R>(rows_from<R>(piece, first), columns);
          for (Index r = 0; r < static_cast<Index>(R); ++r) {
            const View<const Scalar> row{piece.row(first + r), columns, 1, 1, 1};  // as a column
            if (out_of_range(of.squares[r], row, 0))
              moments.merge(wide_column_moments(row, 0));
            else
              moments.merge({n, static_cast<Sum>(of.mean[r]) + of.residual[r], of.squares[r]});
          }
        });
  });
  return moments;
}

/// Adds the sums of channels whose columns, all those of x, fit in a tile.
template <typename Stored>
void add_short_channel_gradient_sums(bool near, View<const Stored> x, View<const Stored> dy, Index positions,
                                     const Arithmetic<Stored>* mean, const Arithmetic<Stored>* mean_residual,
                                     ChannelGradientSums<Wide<Stored>>* sums) {
  using Scalar = Arithmetic<Stored>;
  Scalar mean_of[column_tile], residual_of[column_tile];
  ChannelGradientSums<Wide<Stored>> of_column[column_tile];
  for (Index j = 0; j < x.columns; ++j) {
    mean_of[j] = mean[j / positions];
    residual_of[j] = mean_residual[j / positions];
  }
  const PackedTile<Scalar> packed_x, packed_dy;
  TileSums<Scalar> of_block;
  for (Index i = 0; i < x.rows; i += row_block)
    for_each_tile(
        x.columns,
        [&](Index first, Index width) {
          const auto tile = [&](View<const Stored> all) {
            return all.middle_rows(i, (std::min)(row_block, x.rows - i)).middle_columns(first, width);
          };
          add_gradient_sums<Scalar>(near, packed_x.contiguous(tile(x)), packed_dy.contiguous(tile(dy)), mean_of + first,
                                    residual_of + first, of_block, of_column + first);
        },
        x, dy);
  for (Index j = 0; j < x.columns; ++j) {
    sums[j / positions].dy += of_column[j].dy;
    sums[j / positions].dy_centred += of_column[j].dy_centred;
  }
}

/// Adds the sums of one channel, whose columns are all those of x.
template <typename Stored>
void add_long_channel_gradient_sums(bool near, View<const Stored> x, View<const Stored> dy, Arithmetic<Stored> mean,
                                    Arithmetic<Stored> mean_residual, ChannelGradientSums<Wide<Stored>>& sums) {
  using Scalar = Arithmetic<Stored>;
  const PackedRows<Scalar> room_x(run_packing, nullptr, 0), room_dy(run_packing, nullptr, 0);
  for_each_piece(x.rows, x.columns, [&](Index i, Index rows, Index j, Index columns) {
    const View<const Scalar> input = room_x.contiguous(x.middle_rows(i, rows).middle_columns(j, columns));
    const View<const Scalar> delta = room_dy.contiguous(dy.middle_rows(i, rows).middle_columns(j, columns));
    for_each_rows<most_rows<Scalar>>(
        0, rows, 2 * columns * static_cast<Index>(sizeof(Scalar)), rows_collide(near, input),
        [&]<std::size_t R>(Index first, std::integral_constant<std::size_t, R>) EVENKEEL_INLINE {
          const auto [sum, sum_centred] =
              row_sums<Scalar, 2, R>(columns, [&](Index r, Index k, auto lanes, auto& of_row) EVENKEEL_INLINE {
                const Lanes<Scalar> d = lanes.load(delta.row(first + r) + k);
                of_row[0] += d;
                of_row[1] += d * ((lanes.load(input.row(first + r) + k) - mean) - mean_residual);
              });
          for (Index r = 0; r < static_cast<Index>(R); ++r) {
            sums.dy += sum[r];
            sums.dy_centred += sum_centred[r];
          }
        });
  });
}

}  // namespace detail

/// The moments of each channel of `positions` columns, two or more. Sums run in the type of the data over some numbers, and
/// in the wide type over all.
template <typename Stored>
void channel_moments(View<const Stored> x, Index positions, ColumnMoments<Wide<Stored>>* moments) {
  const ChannelGroups groups{x.rows, x.columns / positions, positions};
  parallel_for(groups.count(), x.size(), [&](Index group) {
    const Index first = groups.first(group);
    const View<const Stored> columns = x.middle_columns(first * positions, groups.size(group) * positions);
    if (groups.by_columns())
      detail::short_channel_moments(is_near(x), columns, positions, moments + first);
    else
      moments[first] = detail::long_channel_moments(is_near(x), columns);
  });
}

/// What the backward pass sums over each channel of `positions` columns, two or more.
template <typename Stored>
void channel_gradient_sums(View<const Stored> x, View<const Stored> dy, Index positions, const Arithmetic<Stored>* mean,
                           const Arithmetic<Stored>* mean_residual, ChannelGradientSums<Wide<Stored>>* sums) {
  const ChannelGroups groups{x.rows, x.columns / positions, positions};
  parallel_for(groups.count(), x.size(), [&](Index group) {
    const Index first = groups.first(group), count = groups.size(group);
    const auto columns_of = [&](View<const Stored> all) {
      return all.middle_columns(first * positions, count * positions);
    };
    std::fill(sums + first, sums + first + count, ChannelGradientSums<Wide<Stored>>{});
    if (groups.by_columns())
      detail::add_short_channel_gradient_sums<Stored>(is_near(x), columns_of(x), columns_of(dy), positions,
                                                      mean + first, mean_residual + first, sums + first);
    else
      detail::add_long_channel_gradient_sums<Stored>(is_near(x), columns_of(x), columns_of(dy), mean[first],
                                                     mean_residual[first], sums[first]);
  });
}

}  // namespace evenkeel::kernels
