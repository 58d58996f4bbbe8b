#pragma once

#include <algorithm>  // fill, max

#include "evenkeel/core/parallel.hpp"     // parallel_for, most_workers
#include "evenkeel/core/parameter.hpp"    // Accumulate
#include "evenkeel/core/types.hpp"        // Index, Wide, Arithmetic
#include "evenkeel/core/view.hpp"         // View
#include "evenkeel/kernels/channels.hpp"  // ChannelGroups
#include "evenkeel/kernels/moments.hpp"   // RowMoments
#include "evenkeel/kernels/row_norm.hpp"  // the arithmetic

/// LayerNorm's kernel over pieces of a row.
namespace evenkeel::kernels {

/// How a row falls into groups: `groups` pieces side by side of as many channels each, a channel being `positions` columns.
struct Groups {
  Index groups, channels, positions;

  Index channels_each() const { return channels / groups; }
  Index width() const { return channels_each() * positions; }
  template <typename Scalar>
  View<Scalar> of(View<Scalar> x, Index group) const {
    if (x.data == nullptr) return {nullptr, x.rows, width(), x.row_stride, x.column_stride};
    return x.middle_columns(group * width(), width());
  }
  /// Whether the scale and shift of each channel are spread over its columns, as those of features: where channels are short.
  bool spreads(Index rows) const { return ChannelGroups{rows, channels, positions}.by_columns() && positions > 1; }

  /// Threads that work on a group each, and on the rows of one.
  Index workers() const { return groups > 1 ? most_workers() : 1; }
  Index workers_each() const { return groups > 1 ? 1 : most_workers(); }

  /// Numbers of the wide type that hold scale and shift, or their gradients, of a group's columns.
  Index spread_room(Index rows) const { return spreads(rows) ? width() * 2 : 0; }
};

/// Numbers of scratch that group_norm_forward needs.
template <typename Stored>
Index group_norm_forward_scratch(View<const Stored> x, View<const Stored> y, const Groups& groups) {
  return groups.workers() * (groups.spread_room(x.rows) +
                             row_norm_forward_scratch<Stored>(groups.of(x, 0), groups.of(y, 0), groups.workers_each()));
}

/// Numbers of scratch that group_norm_backward needs. (dx may be without data.)
template <typename Stored>
Index group_norm_backward_scratch(View<const Stored> x, View<const Stored> dy, View<const Stored> dx,
                                  const Groups& groups) {
  const Index scales = groups.spreads(x.rows) || groups.positions == 1 ? groups.width() : groups.channels_each();
  return groups.workers() * (2 * groups.spread_room(x.rows) +
                             row_norm_backward_scratch<Stored>(groups.of(x, 0), groups.of(dy, 0), groups.of(dx, 0),
                                                               scales, groups.workers_each()));
}

namespace detail {

/// Calls body(affine, rest of the scratch) with what the kernel of the rows takes for the scale and shift of one group.
template <typename Scalar, class Body>
void with_affine(const Groups& groups, Index rows, const Scalar* weight, const Scalar* bias, Wide<Scalar>* scratch,
                 const Body& body) {
  if (groups.positions == 1) return body(Affine<Scalar>{weight, bias}, scratch);
  if (!groups.spreads(rows)) return body(ChannelAffine<Scalar>{weight, bias, groups.positions}, scratch);
  auto* const weights = reinterpret_cast<Scalar*>(scratch);
  auto* const biases = weights + groups.width();
  for (Index c = 0; c < groups.channels_each(); ++c) {
    std::fill(weights + c * groups.positions, weights + (c + 1) * groups.positions, weight[c]);
    if (bias != nullptr) std::fill(biases + c * groups.positions, biases + (c + 1) * groups.positions, bias[c]);
  }
  body(Affine<Scalar>{weights, biases}, scratch + groups.spread_room(rows));
}

/// target[c] = (target[c] if accumulating) + the sum over the channel's columns.
template <typename Scalar>
void add_channel_sums(const Groups& groups, const Scalar* of_columns, Accumulate accumulate, Scalar* target) {
  using Sum = Wide<Scalar>;
  for (Index c = 0; c < groups.channels_each(); ++c) {
    Sum total = 0;
    for (Index j = 0; j < groups.positions; ++j) total += static_cast<Sum>(of_columns[c * groups.positions + j]);
    if (accumulate == Accumulate::yes) total += static_cast<Sum>(target[c]);
    target[c] = static_cast<Scalar>(total);
  }
}

}  // namespace detail

/// y = weight * (x - mean) / sqrt(variance + epsilon) + bias, with mean and biased variance of each group of each row, weight and
/// bias of each channel. Wu & He 2018, equations 1 to 7. Keeps the moments where `kept` is given: those of group g stand in
/// kept + g * rows. y may be x. scratch: as group_norm_forward_scratch says.
template <typename Stored>
void group_norm_forward(View<const Stored> x, const Groups& groups, const Arithmetic<Stored>* weight,
                        const Arithmetic<Stored>* bias, double epsilon, View<Stored> y,
                        RowMoments<Arithmetic<Stored>>* kept, Wide<Stored>* scratch) {
  using Scalar = Arithmetic<Stored>;
  const Index room = group_norm_forward_scratch<Stored>(x, y, groups) / groups.workers();
  parallel_for(groups.groups, x.size(), [&](Index g, Index worker) {
    const Index c = g * groups.channels_each();
    detail::with_affine(groups, x.rows, weight + c, bias + c, scratch + worker * room,
                        [&](const auto& affine, Wide<Scalar>* rest) {
                          row_norm_forward<ByMoments<Scalar>>(groups.of(x, g), affine, epsilon, groups.of(y, g),
                                                              kept == nullptr ? kept : kept + g * x.rows, rest);
                        });
  });
}

/// The derivative of group_norm_forward. With g = dy * weight and x^ = (x - mean) / sqrt(variance + epsilon),
///
///     dx      = (g - mean(g) - x^ mean(g x^)) / sqrt(variance + epsilon)      means over the group
///     dweight = sum(dy x^)        dbias = sum(dy)                             sums over the batch and the channel's positions
///
/// dx without data is not computed; dweight and dbias may both be null. dx may be x or dy.
/// scratch: as group_norm_backward_scratch says.
template <typename Stored>
void group_norm_backward(View<const Stored> x, View<const Stored> dy, const Groups& groups,
                         const Arithmetic<Stored>* weight, const RowMoments<Arithmetic<Stored>>* kept, View<Stored> dx,
                         Arithmetic<Stored>* dweight, Arithmetic<Stored>* dbias, Accumulate accumulate,
                         Wide<Stored>* scratch) {
  using Scalar = Arithmetic<Stored>;
  const Index room = group_norm_backward_scratch<Stored>(x, dy, dx, groups) / groups.workers();
  const bool spreads = groups.spreads(x.rows);
  parallel_for(groups.groups, x.size(), [&](Index g, Index worker) {
    const Index c = g * groups.channels_each();
    Scalar* to_weight = dweight == nullptr ? nullptr : dweight + c;
    Scalar* to_bias = dbias == nullptr ? nullptr : dbias + c;
    detail::with_affine<Scalar>(
        groups, x.rows, weight + c, nullptr, scratch + worker * room, [&](const auto& affine, Wide<Scalar>* rest) {
          const auto run = [&](Scalar* weights, Scalar* biases, Accumulate how, Wide<Scalar>* free) {
            row_norm_backward<ByMoments<Scalar>>(groups.of(x, g), groups.of(dy, g), affine, kept + g * x.rows,
                                                 groups.of(dx, g), weights, biases, how, free);
          };
          if (!spreads || dweight == nullptr) return run(to_weight, to_bias, accumulate, rest);
          auto* const of_columns = reinterpret_cast<Scalar*>(rest);
          run(of_columns, of_columns + groups.width(), Accumulate::no, rest + groups.spread_room(x.rows));
          detail::add_channel_sums(groups, of_columns, accumulate, to_weight);
          detail::add_channel_sums(groups, of_columns + groups.width(), accumulate, to_bias);
        });
  });
}

}  // namespace evenkeel::kernels
