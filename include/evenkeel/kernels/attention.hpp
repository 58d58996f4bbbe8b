#pragma once

#include <algorithm>  // fill
#include <cmath>      // sqrt

#include "evenkeel/core/parallel.hpp"    // parallel_for
#include "evenkeel/core/types.hpp"       // Index, Wide
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/product.hpp"  // multiply
#include "evenkeel/kernels/softmax.hpp"  // SoftmaxRow

/// Causal self-attention without its projections: what each token takes from those before it and from itself. A row of `qkv` is a
/// token: query, key and value of all heads side by side; `positions` rows are a sequence. Weights have a row for each
/// (sequence, head, query), in this order, and a column for each key.
namespace evenkeel::kernels {

struct AttentionShape {
  Index heads, positions, features;  ///< features: of all heads together

  Index head_size() const { return features / heads; }
  /// Pairs of a sequence and a head.
  Index units(Index rows) const { return rows / positions * heads; }
  Index weight_rows(Index rows) const { return units(rows) * positions; }
};

namespace detail {

/// A pair of a sequence and a head, and its parts of the matrices.
struct AttentionUnit {
  AttentionShape shape;
  Index number;

  template <typename Scalar>
  View<Scalar> weights(View<Scalar> all) const {
    return all.middle_rows(number * shape.positions, shape.positions);
  }
  /// In a matrix of all heads side by side.
  template <typename Scalar>
  View<Scalar> head(View<Scalar> all, Index first_column = 0) const {
    return all.middle_rows(number / shape.heads * shape.positions, shape.positions)
        .middle_columns(first_column + number % shape.heads * shape.head_size(), shape.head_size());
  }
  template <typename Scalar>
  View<Scalar> query(View<Scalar> qkv) const {
    return head(qkv);
  }
  template <typename Scalar>
  View<Scalar> key(View<Scalar> qkv) const {
    return head(qkv, shape.features);
  }
  template <typename Scalar>
  View<Scalar> value(View<Scalar> qkv) const {
    return head(qkv, 2 * shape.features);
  }
};

template <class Body>
void for_each_unit(const AttentionShape& shape, Index rows, const Body& body) {
  const Index units = shape.units(rows);
  parallel_for(units, units * shape.positions * shape.positions, [&](Index unit) { body(AttentionUnit{shape, unit}); });
}

template <typename Scalar>
Scalar attention_scale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<Scalar>(shape.head_size()));
}

/// product = lower * values, where numbers of `lower` behind each row's own place stand for nothing: what is multiplied with them
/// does not count, not even if it is NaN or infinite.
template <typename Scalar>
void multiply_lower(View<const Scalar> lower, View<const Scalar> values, View<Scalar> product) {
  if (as_map(values).allFinite()) return multiply(lower, values, product, Product::set);  // by zeros
  for (Index i = 0; i < lower.rows; ++i)
    multiply(lower.middle_rows(i, 1).middle_columns(0, i + 1), values.middle_rows(0, i + 1), product.middle_rows(i, 1),
             Product::set);
}
/// product = lower^T * values, likewise.
template <typename Scalar>
void multiply_lower_transposed(View<const Scalar> lower, View<const Scalar> values, View<Scalar> product) {
  if (as_map(values).allFinite()) return multiply_transposed(lower, values, product, Product::set);
  for (Index j = 0; j < lower.columns; ++j)
    multiply_transposed(lower.middle_rows(j, lower.rows - j).middle_columns(j, 1),
                        values.middle_rows(j, lower.rows - j), product.middle_rows(j, 1), Product::set);
}

}  // namespace detail

/// weights = softmax(Q K^T / sqrt(head size)) over the keys up to the query's own place; 0 behind it.
/// Vaswani et al. 2017, equation 1. The largest logit is taken off first, so that no exponential overflows.
template <typename Scalar>
void attention_weights(View<const Scalar> qkv, const AttentionShape& shape, View<Scalar> weights) {
  const auto scale = detail::attention_scale<Scalar>(shape);
  detail::for_each_unit(shape, qkv.rows, [&](const detail::AttentionUnit& unit) {
    const View<Scalar> own = unit.weights(weights);
    multiply(unit.query(qkv), unit.key(qkv).transposed(), own, Product::set);
    for (Index query = 0; query < shape.positions; ++query) {
      Scalar* const row = own.row(query);
      const Index keys = query + 1;
      for (Index key = 0; key < keys; ++key) row[key] *= scale;
      const SoftmaxRow<Scalar> softmax(row, keys, 1, row);
      for (Index key = 0; key < keys; ++key) row[key] = softmax.probability_of(row[key]);
      std::fill(row + keys, row + shape.positions, Scalar(0));
    }
  });
}

/// y = weights V, head by head. A query does not see what is behind its place, be it NaN.
template <typename Scalar>
void attention_mix(View<const Scalar> weights, View<const Scalar> qkv, const AttentionShape& shape, View<Scalar> y) {
  detail::for_each_unit(shape, qkv.rows, [&](const detail::AttentionUnit& unit) {
    detail::multiply_lower(unit.weights(weights), unit.value(qkv), unit.head(y));
  });
}

/// The derivative of attention_mix: dweights = dy V^T, also behind the query's place, and the part of dqkv that is by V.
/// dweights may be weights.
template <typename Scalar>
void attention_mix_backward(View<const Scalar> weights, View<const Scalar> qkv, const AttentionShape& shape,
                            View<const Scalar> dy, View<Scalar> dweights, View<Scalar> dqkv) {
  detail::for_each_unit(shape, qkv.rows, [&](const detail::AttentionUnit& unit) {
    detail::multiply_lower_transposed(unit.weights(weights), unit.head(dy), unit.value(dqkv));
    multiply(unit.head(dy), unit.value(qkv).transposed(), unit.weights(dweights), Product::set);
  });
}

/// The derivative of attention_weights: the parts of dqkv that are by Q and K. With w = weights and g = dweights,
///
///     dlogits = w (g - sum(w g))        sum over the keys of a query; dlogits take the place of dweights
template <typename Scalar>
void attention_weights_backward(View<const Scalar> weights, View<const Scalar> qkv, const AttentionShape& shape,
                                View<Scalar> dweights, View<Scalar> dqkv) {
  const auto scale = detail::attention_scale<Scalar>(shape);
  detail::for_each_unit(shape, qkv.rows, [&](const detail::AttentionUnit& unit) {
    const View<Scalar> gradient = unit.weights(dweights);
    for (Index query = 0; query < shape.positions; ++query) {
      const Scalar* const weight = unit.weights(weights).row(query);
      Scalar* const row = gradient.row(query);
      const Index keys = query + 1;
      Wide<Scalar> sum = 0;
      for (Index key = 0; key < keys; ++key) sum += static_cast<Wide<Scalar>>(weight[key] * row[key]);
      for (Index key = 0; key < keys; ++key) row[key] = weight[key] * (row[key] - static_cast<Scalar>(sum)) * scale;
      std::fill(row + keys, row + shape.positions, Scalar(0));
    }
    detail::multiply_lower<Scalar>(gradient, unit.key(qkv), unit.query(dqkv));
    detail::multiply_lower_transposed<Scalar>(gradient, unit.query(qkv), unit.key(dqkv));
  });
}

}  // namespace evenkeel::kernels
