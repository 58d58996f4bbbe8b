#pragma once

#include <algorithm>  // fill, min, max
#include <array>
#include <cstddef>      // size_t
#include <limits>       // smallest normal number
#include <type_traits>  // integral_constant

#include "evenkeel/core/check.hpp"          // is_finite
#include "evenkeel/core/parallel.hpp"       // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"          // Index, Wide, Arithmetic
#include "evenkeel/core/view.hpp"           // View
#include "evenkeel/kernels/channels.hpp"    // column_tile
#include "evenkeel/kernels/contiguous.hpp"  // PackedRows
#include "evenkeel/kernels/lanes.hpp"       // Lanes

/// Moments of channels. A channel is one column, or, with positions, a run of columns side by side. Columns are summed across
/// rows, in tiles; a channel of many positions is summed along each row.
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
constexpr Index column_moments_room(Index rows, Index columns) {
  return (RowChunks(rows, columns).count + 1) * columns;
}

namespace detail {

/// Rows that are summed in the type of the data, in cache from the first pass to the second.
inline constexpr Index row_block = 64;

/// Columns of a block of rows that are packed at a time, where rows are not contiguous.
inline constexpr Index packed_tile = 96;

/// A block of rows and so many columns, packed on the stack.
template <typename Scalar>
class PackedTile {
 public:
  /// The tile itself, or packed.
  template <typename Stored>
  View<const Scalar> contiguous(View<const Stored> tile) const {
    return packed_.contiguous(tile);
  }
  template <typename Stored>
  View<Scalar> packed(View<const Stored> tile) const {
    return packed_(tile);
  }

 private:
  PackedRows<Scalar> packed_{Packing(packed_tile), nullptr, 0};
};
static_assert(Packing(packed_tile).on_stack() && Packing(packed_tile).rows == row_block);

/// Calls body(first, width) for the columns, so many at a time as fit for these views.
template <class Body, class... Views>
void for_each_tile(Index columns, const Body& body, const Views&... views) {
  const Index tile = contiguous_rows(views...) ? column_tile : packed_tile;
  for (Index first = 0; first < columns; first += tile) body(first, (std::min)(tile, columns - first));
}

/// Calls body(row, R) for the rows from `first` to `end`, four at a time while there are four, unless they are to go one by one.
template <class Body>
EVENKEEL_INLINE inline void for_each_four_rows(Index first, Index end, bool one_by_one, const Body& body) {
  if (!one_by_one)
    for (; first + 4 <= end; first += 4) body(first, std::integral_constant<std::size_t, 4>{});
  for (; first < end; ++first) body(first, std::integral_constant<std::size_t, 1>{});
}

/// The sum of R arrays, in a tree.
template <class AnyLanes, std::size_t R>
EVENKEEL_INLINE inline AnyLanes sum_of_rows(const AnyLanes (&rows)[R]) {
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

/// Whether squares that were summed in Scalar may have left its range.
template <typename Scalar, typename Sum>
bool in_doubt(Sum squares) {
  constexpr Sum least = static_cast<Sum>((std::numeric_limits<Scalar>::min)()) * Sum(1e8L);
  return !evenkeel::detail::is_finite(squares) || !(squares >= least);
}

/// Whether they have: the sum over a column of equal values, which is zero, can be trusted.
template <typename Scalar, typename Sum>
bool out_of_range(Sum squares, View<const Scalar> x, Index column) {
  if (squares != 0) return in_doubt<Scalar>(squares);
  for (Index i = 1; i < x.rows; ++i)
    if (!(x(i, column) == x(0, column))) return true;
  return false;
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
template <typename Stored>
void tile_moments(bool near, View<const Stored> x, MomentsSideBySide<Wide<Stored>> moments) {
  using Scalar = Arithmetic<Stored>;
  using Sum = Wide<Scalar>;
  const PackedTile<Scalar> packed;
  TileSums<Scalar> sums;
  Eigen::Array<Scalar, column_tile, 1> mean;
  for (Index i0 = 0; i0 < x.rows; i0 += row_block) {
    const View<const Scalar> block = packed.contiguous(x.middle_rows(i0, (std::min)(row_block, x.rows - i0)));
    const auto n = static_cast<Sum>(block.rows);
    const auto inverse_n = static_cast<Scalar>(1 / n);
    sums.clear(x.columns);
    for_each_four_rows(0, block.rows, rows_collide(near, block), [&](Index i, auto count) EVENKEEL_INLINE {
      constexpr std::size_t rows = decltype(count)::value;
      for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
        Lanes<Scalar> values[rows];
        unrolled<rows>([&](Index r) EVENKEEL_INLINE {
          const Scalar* from = block.row(i + r) + j;
          lanes.prefetch(from + (near ? 0 : static_cast<Index>(rows) * block.row_stride));
          values[r] = lanes.load(from);
        });
        Scalar* sum = sums.first.data() + j;
        lanes.store(sum, lanes.load(sum) + sum_of_rows(values));
      });
    });
    for (Index j = 0; j < x.columns; ++j) {
      mean[j] = sums.first[j] * inverse_n;
      sums.first[j] = Scalar(0);
    }
    for_each_four_rows(0, block.rows, rows_collide(near, block), [&](Index i, auto count) EVENKEEL_INLINE {
      constexpr std::size_t rows = decltype(count)::value;
      for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
        const Lanes<Scalar> middle = lanes.load(mean.data() + j);
        Lanes<Scalar> deviations[rows], squares[rows];
        unrolled<rows>([&](Index r) EVENKEEL_INLINE {
          deviations[r] = lanes.load(block.row(i + r) + j) - middle;
          squares[r] = deviations[r] * deviations[r];
        });
        Scalar *first = sums.first.data() + j, *second = sums.second.data() + j;
        lanes.store(first, lanes.load(first) + sum_of_rows(deviations));
        lanes.store(second, lanes.load(second) + sum_of_rows(squares));
      });
    });

    const auto summed = [&](Index j) {
      const auto deviation = static_cast<Sum>(sums.first[j]);
      const Sum residual = deviation * (1 / n);
      return std::array{static_cast<Sum>(mean[j]) + residual, static_cast<Sum>(sums.second[j]) - deviation * residual};
    };
    bool any_in_doubt = false;
    for (Index j = 0; j < x.columns; ++j) any_in_doubt |= in_doubt<Scalar>(sums.second[j]);
    if (any_in_doubt)
      moments.merge(n, x.columns, [&](Index j) {
        if (!out_of_range(sums.second[j], block, j)) return summed(j);
        const auto wide = wide_column_moments(block, j);
        return std::array{wide.mean, wide.squares};
      });
    else
      moments.merge(n, x.columns, summed);
  }
}

}  // namespace detail

/// The moments of each column of x. Sums run in the type of the data over some rows, and in the wide type over all.
template <typename Stored>
void column_moments(View<const Stored> x, ColumnMoments<Wide<Stored>>* moments) {
  using Sum = Wide<Stored>;
  const Index columns = x.columns;
  const RowChunks chunks(x.rows, columns);
  const auto of_chunk = [&](Index chunk, Index first) {
    Sum* numbers = &moments[(chunk + 1) * columns].count;
    return detail::MomentsSideBySide<Sum>{0, numbers + first, numbers + columns + first};
  };
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    const View<const Stored> rows = x.middle_rows(chunks.first(chunk), chunks.end(chunk) - chunks.first(chunk));
    detail::for_each_tile(
        columns,
        [&](Index first, Index width) {
          const auto tile = of_chunk(chunk, first);
          std::fill(tile.mean, tile.mean + width, Sum(0));
          std::fill(tile.squares, tile.squares + width, Sum(0));
          detail::tile_moments(is_near(x), rows.middle_columns(first, width), tile);
        },
        rows);
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

}  // namespace evenkeel::kernels
