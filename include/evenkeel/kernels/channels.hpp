#pragma once

#include "evenkeel/core/types.hpp"     // Index
#include "evenkeel/core/view.hpp"      // View
#include "evenkeel/kernels/lanes.hpp"  // Lanes

/// Where the channels of a row lie. A channel is one column, or, with positions, so many columns side by side.
namespace evenkeel::kernels {

/// Columns side by side whose numbers are found in the same way: columns that are channels of their own (PerColumn), or those
/// of one channel.
template <bool PerColumn>
struct ColumnRun {
  Index first, width;
  Index channel;  ///< Of the first column.

  ColumnRun part(Index from, Index columns) const {
    return {first + from, columns, PerColumn ? channel + from : channel};
  }
  template <typename Scalar>
  View<Scalar> of(View<Scalar> x) const {
    return x.middle_columns(first, width);
  }
  /// The numbers of the lanes at column j of the run, in an array of one number a channel.
  template <typename Scalar, class AnyLanes>
  EVENKEEL_INLINE Lanes<Scalar> load(const Scalar* each, [[maybe_unused]] Index j,
                                     [[maybe_unused]] AnyLanes lanes) const {
    if constexpr (PerColumn)
      return lanes.load(each + channel + j);
    else
      return filled_with<Lanes<Scalar>>(each[channel]);
  }
};

/// Calls body(run) for the runs of so many columns, one after another.
template <class Body>
EVENKEEL_INLINE inline void for_each_run(Index columns, Index positions, const Body& body) {
  if (positions == 1) return body(ColumnRun<true>{0, columns, 0});
  for (Index c = 0; c < columns / positions; ++c) body(ColumnRun<false>{c * positions, positions, c});
}

}  // namespace evenkeel::kernels
