#pragma once

#include <algorithm>  // min
#include <array>
#include <cstddef>  // size_t
#include <tuple>    // apply

#include "evenkeel/core/parallel.hpp"           // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"              // Index, Wide, Arithmetic
#include "evenkeel/core/view.hpp"               // View
#include "evenkeel/kernels/channels.hpp"        // for_each_run
#include "evenkeel/kernels/column_moments.hpp"  // for_each_four_rows, TileSums, PackedTile
#include "evenkeel/kernels/contiguous.hpp"      // contiguous_rows
#include "evenkeel/kernels/lanes.hpp"           // Lanes, with_stores

/// What batch normalization does once the moments of its channels are known, and the way back.
namespace evenkeel::kernels {
namespace detail {

/// y = f(numbers, inputs) for some columns, all rows being contiguous.
template <typename Scalar, class Stores, class Numbers, class F, class... Inputs>
void transform_columns(Stores stores, bool near, const Numbers& numbers, const F& f, View<Scalar> y, Inputs... inputs) {
  for_each_four_rows(0, y.rows, rows_collide(near, y), [&](Index i, auto count) EVENKEEL_INLINE {
    constexpr std::size_t rows = decltype(count)::value;
    for_each_lanes<Scalar>(0, y.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
      const auto of_lanes = numbers.load(j, lanes);
      unrolled<rows>([&](Index r) EVENKEEL_INLINE {
        (lanes.prefetch(inputs.row(i + r) + j + (near ? 0 : static_cast<Index>(rows) * inputs.row_stride)), ...);
        stores.store(lanes, y.row(i + r) + j, f(of_lanes, lanes.load(inputs.row(i + r) + j)...));
      });
    });
  });
}

/// The same for matrices of any strides, or of halves, K numbers for each channel of so many positions.
template <typename Stored, std::size_t K, class F, class... Inputs>
void transform(Index positions, const std::array<const Arithmetic<Stored>*, K>& of_channels, const F& f, View<Stored> y,
               Inputs... inputs) {
  using Scalar = Arithmetic<Stored>;
  const RowChunks chunks(y.rows, y.columns);
  [[maybe_unused]] const bool contiguous = contiguous_rows(y, inputs...);
  parallel_for(chunks.count, y.size(), [&](Index chunk) {
    const Index first = chunks.first(chunk), count = chunks.end(chunk) - first;
    for_each_run(count, y.columns, positions, of_channels, [&](Index j0, Index columns, const auto& numbers) {
      if constexpr (Real<Stored>)
        if (contiguous)
          return with_stores(y, [&](auto stores) {
            const auto part = [&](auto x) { return x.middle_rows(first, count).middle_columns(j0, columns); };
            transform_columns(stores, is_near(y), numbers, f, part(y), part(inputs)...);
          });
      for (Index j = 0; j < columns; j += packed_tile)
        for (Index i = first; i < first + count; i += row_block) {
          const auto tile = [&](auto x) {
            return x.middle_rows(i, (std::min)(row_block, first + count - i))
                .middle_columns(j0 + j, (std::min)(packed_tile, columns - j));
          };
          const std::array<PackedTile<Scalar>, sizeof...(Inputs)> rooms;
          std::size_t next = 0;
          const std::array<View<Scalar>, sizeof...(Inputs)> packed{rooms[next++].packed(tile(inputs))...};
          std::apply(
              [&](auto... input) {
                transform_columns(CachedStores{}, true, numbers.middle(j), f, packed[0], View<const Scalar>(input)...);
              },
              packed);
          copy<Scalar, Stored>(packed[0], tile(y));
        }
    });
  });
}

}  // namespace detail

/// y = ((x - mean) - mean_residual) * scale + shift with one set of numbers a channel: BatchNorm's forward once the
/// statistics are known. y may be x.
template <typename Scalar>
struct ChannelTransform {
  const Scalar* mean;
  const Scalar* mean_residual;
  const Scalar* scale;
  const Scalar* shift;
};

template <typename Stored>
void transform_channels(View<const Stored> x, Index positions, ChannelTransform<Arithmetic<Stored>> by,
                        View<Stored> y) {
  using Scalar = Arithmetic<Stored>;
  detail::transform<Stored, 4>(
      positions, {by.mean, by.mean_residual, by.scale, by.shift},
      [](const auto& numbers, const auto& input) EVENKEEL_INLINE -> Lanes<Scalar> {
        const auto& [mean, residual, scale, shift] = numbers;
        return ((input - mean) - residual) * scale + shift;
      },
      y, x);
}

/// dx = dy * scale with one scale a channel: the gradient where the statistics are constants. dx may be dy.
template <typename Stored>
void scale_channels(View<const Stored> dy, Index positions, const Arithmetic<Stored>* scale, View<Stored> dx) {
  using Scalar = Arithmetic<Stored>;
  detail::transform<Stored, 1>(
      positions, {scale},
      [](const auto& numbers, const auto& delta) EVENKEEL_INLINE -> Lanes<Scalar> { return delta * numbers[0]; }, dx,
      dy);
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

template <typename Stored>
void transform_channel_gradients(View<const Stored> x, View<const Stored> dy, Index positions,
                                 ChannelGradient<Arithmetic<Stored>> by, View<Stored> dx) {
  using Scalar = Arithmetic<Stored>;
  detail::transform<Stored, 5>(
      positions, {by.mean, by.mean_residual, by.scale, by.mean_dy, by.slope},
      [](const auto& numbers, const auto& input, const auto& delta) EVENKEEL_INLINE -> Lanes<Scalar> {
        const auto& [mean, residual, scale, mean_dy, slope] = numbers;
        return ((delta - mean_dy) - ((input - mean) - residual) * slope) * scale;
      },
      dx, x, dy);
}

/// What the backward pass sums over each channel: dy, and dy times the centred input.
template <typename Sum>
struct ChannelGradientSums {
  Sum dy = 0;
  Sum dy_centred = 0;
};

/// Numbers of ChannelGradientSums that column_gradient_sums needs room for; the result stands in the first `columns`.
inline Index column_gradient_sums_room(Index rows, Index columns) { return column_moments_room(rows, columns); }

namespace detail {

/// Adds the sums of a block of contiguous rows, few enough for sums in Scalar.
template <typename Scalar>
void add_gradient_sums(bool near, View<const Scalar> x, View<const Scalar> dy, const Scalar* mean,
                       const Scalar* mean_residual, TileSums<Scalar>& sums, ChannelGradientSums<Wide<Scalar>>* totals) {
  sums.clear(x.columns);
  for_each_four_rows(0, x.rows, rows_collide(near, x), [&](Index i, auto count) EVENKEEL_INLINE {
    constexpr std::size_t rows = decltype(count)::value;
    for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
      const Lanes<Scalar> middle = lanes.load(mean + j), residual = lanes.load(mean_residual + j);
      Lanes<Scalar> deltas[rows], products[rows];
      unrolled<rows>([&](Index r) EVENKEEL_INLINE {
        const Scalar *input = x.row(i + r) + j, *delta = dy.row(i + r) + j;
        lanes.prefetch(input + (near ? 0 : static_cast<Index>(rows) * x.row_stride));
        lanes.prefetch(delta + (near ? 0 : static_cast<Index>(rows) * dy.row_stride));
        deltas[r] = lanes.load(delta);
        products[r] = deltas[r] * ((lanes.load(input) - middle) - residual);
      });
      Scalar *first = sums.first.data() + j, *second = sums.second.data() + j;
      lanes.store(first, lanes.load(first) + sum_of_rows(deltas));
      lanes.store(second, lanes.load(second) + sum_of_rows(products));
    });
  });
  for (Index j = 0; j < x.columns; ++j) {
    totals[j].dy += static_cast<Wide<Scalar>>(sums.first[j]);
    totals[j].dy_centred += static_cast<Wide<Scalar>>(sums.second[j]);
  }
}

}  // namespace detail

template <typename Stored>
void column_gradient_sums(View<const Stored> x, View<const Stored> dy, const Arithmetic<Stored>* mean,
                          const Arithmetic<Stored>* mean_residual, ChannelGradientSums<Wide<Stored>>* sums) {
  using Scalar = Arithmetic<Stored>;
  using Sum = Wide<Scalar>;
  const RowChunks chunks(x.rows, x.columns);
  for (Index j = 0; j < x.columns; ++j) sums[j] = {};
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    ChannelGradientSums<Sum>* of_chunk = sums + chunk * x.columns;
    for (Index j = 0; j < x.columns; ++j) of_chunk[j] = {};
    const detail::PackedTile<Scalar> packed_x, packed_dy;
    detail::TileSums<Scalar> of_block;
    for (Index i = chunks.first(chunk); i < chunks.end(chunk); i += detail::row_block) {
      const Index rows = (std::min)(detail::row_block, chunks.end(chunk) - i);
      detail::for_each_tile(
          x.columns,
          [&](Index first, Index width) {
            const auto tile = [&](View<const Stored> all) {
              return all.middle_rows(i, rows).middle_columns(first, width);
            };
            detail::add_gradient_sums<Scalar>(is_near(x), packed_x.contiguous(tile(x)), packed_dy.contiguous(tile(dy)),
                                              mean + first, mean_residual + first, of_block, of_chunk + first);
          },
          x, dy);
    }
  });
  for (Index chunk = 1; chunk < chunks.count; ++chunk)
    for (Index j = 0; j < x.columns; ++j) {
      sums[j].dy += sums[chunk * x.columns + j].dy;
      sums[j].dy_centred += sums[chunk * x.columns + j].dy_centred;
    }
}

}  // namespace evenkeel::kernels
