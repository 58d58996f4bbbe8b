#pragma once

#include <algorithm>  // min, fill
#include <array>
#include <cstddef>  // size_t

#include "evenkeel/core/types.hpp"          // Index
#include "evenkeel/kernels/contiguous.hpp"  // Packing
#include "evenkeel/kernels/lanes.hpp"       // Lanes

/// How kernels go through the channels of a row. A channel is one column or, with positions, so many columns side by side. Short
/// channels are worked on as columns, as many side by side as fill a tile; long ones one by one.
namespace evenkeel::kernels {

/// Columns whose sums are held side by side.
inline constexpr Index column_tile = 512;

/// Positions of a long channel that are summed at a time, and of how many rows: as many as are packed on the stack.
inline constexpr Index run_tile = 480;
inline constexpr Index run_rows = 16;
inline constexpr Packing run_packing(run_tile);
static_assert(run_packing.on_stack() && run_packing.rows == run_rows && run_tile <= column_tile);

/// Short channels whose columns fill a tile, or single long ones. What is long depends on the rows: each column costs something
/// by itself, and each row of a channel.
struct ChannelGroups {
  Index rows, channels, positions;

  bool by_columns() const { return positions <= (std::min)(run_tile, 4 * rows); }
  Index each() const { return by_columns() ? column_tile / positions : 1; }
  Index count() const { return (channels + each() - 1) / each(); }
  Index first(Index group) const { return group * each(); }
  Index size(Index group) const { return (std::min)(each(), channels - first(group)); }
};

/// K numbers for each of some columns, or, for those of one channel, the same for all.
template <typename Scalar, std::size_t K, bool ForEach>
struct ColumnNumbers {
  std::array<const Scalar*, K> from;

  /// Those of the columns from j on.
  ColumnNumbers middle(Index j) const {
    ColumnNumbers result = *this;
    if constexpr (ForEach)
      for (auto& numbers : result.from) numbers += j;
    return result;
  }
  /// Number k of the lanes at column j.
  template <class AnyLanes>
  EVENKEEL_INLINE Lanes<Scalar> load(std::size_t k, [[maybe_unused]] Index j, [[maybe_unused]] AnyLanes lanes) const {
    if constexpr (ForEach)
      return lanes.load(from[k] + j);
    else
      return filled_with<Lanes<Scalar>>(*from[k]);
  }
  template <class AnyLanes>
  EVENKEEL_INLINE std::array<Lanes<Scalar>, K> load(Index j, AnyLanes lanes) const {
    std::array<Lanes<Scalar>, K> numbers;
    unrolled<K>([&](Index k) EVENKEEL_INLINE {
      const auto at = static_cast<std::size_t>(k);
      numbers[at] = load(at, j, lanes);
    });
    return numbers;
  }
};

/// Calls body(first column, columns, numbers) until all columns of so many rows are done, for K arrays of one number a channel.
template <typename Scalar, std::size_t K, class Body>
void for_each_run(Index rows, Index columns, Index positions, const std::array<const Scalar*, K>& of_channels,
                  const Body& body) {
  if (positions == 1) return body(Index{0}, columns, ColumnNumbers<Scalar, K, true>{of_channels});
  const ChannelGroups groups{rows, columns / positions, positions};
  Scalar room[K][column_tile];
  for (Index group = 0; group < groups.count(); ++group) {
    const Index first = groups.first(group), width = groups.size(group) * positions;
    std::array<const Scalar*, K> numbers;
    for (std::size_t k = 0; k < K; ++k) {
      numbers[k] = of_channels[k] + first;
      if (!groups.by_columns()) continue;
      for (Index c = 0; c < groups.size(group); ++c)
        std::fill(room[k] + c * positions, room[k] + (c + 1) * positions, numbers[k][c]);
      numbers[k] = room[k];
    }
    if (groups.by_columns())
      body(first * positions, width, ColumnNumbers<Scalar, K, true>{numbers});
    else
      body(first * positions, width, ColumnNumbers<Scalar, K, false>{numbers});
  }
}

}  // namespace evenkeel::kernels
