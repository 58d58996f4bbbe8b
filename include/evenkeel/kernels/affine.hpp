#pragma once

#include "evenkeel/core/types.hpp"        // Index
#include "evenkeel/kernels/channels.hpp"  // ColumnNumbers
#include "evenkeel/kernels/register.hpp"  // EVENKEEL_INLINE

/// What a norm learns: scales and shifts, and which columns of a row they belong to.
namespace evenkeel::kernels {

/// The learned scale and shift of each feature. A norm that is centred has a shift and no offset, the other an offset and no shift.
template <typename Scalar>
struct Affine {
  const Scalar* weight;
  const Scalar* bias;
  Scalar offset = Scalar(0);  ///< Added to the weight.

  static constexpr bool of_each_feature = true;
  Index size(Index columns) const { return columns; }

  /// Calls body(first column, columns, numbers, number of the first) for columns whose numbers are found in the same way.
  template <class Body>
  EVENKEEL_INLINE void for_each_run(Index columns, const Body& body) const {
    body(Index{0}, columns, ColumnNumbers<Scalar, 2, true>{{weight, bias}}, Index{0});
  }
};

/// The same where so many features side by side, those of a channel, share one scale and shift.
template <typename Scalar>
struct ChannelAffine {
  const Scalar* weight;
  const Scalar* bias;
  Index positions;

  static constexpr bool of_each_feature = false;
  static constexpr Scalar offset = Scalar(0);
  Index size(Index columns) const { return columns / positions; }

  template <class Body>
  EVENKEEL_INLINE void for_each_run(Index columns, const Body& body) const {
    for (Index c = 0; c < columns / positions; ++c)
      body(c * positions, positions, ColumnNumbers<Scalar, 2, false>{{weight + c, bias == nullptr ? bias : bias + c}},
           c);
  }
};

}  // namespace evenkeel::kernels
