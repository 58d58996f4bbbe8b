#pragma once

#include <algorithm>  // fill_n, min

#include "evenkeel/core/parallel.hpp"       // parallel_for, most_workers
#include "evenkeel/core/types.hpp"          // Index, Half, Wide
#include "evenkeel/core/view.hpp"           // View
#include "evenkeel/kernels/contiguous.hpp"  // copy
#include "evenkeel/kernels/product.hpp"     // multiply, add_column_sums

/// Products of matrices of halves with matrices of floats, in floats: some rows at a time are converted, multiplied and rounded
/// once. The blocks are such that the sums are those of the same products of floats.
namespace evenkeel::kernels {
namespace detail {

/// Some rows of a, as floats without gaps.
template <Half Stored>
View<const float> as_floats(View<const Stored> a, float* room) {
  const View<float> floats{room, a.rows, a.columns, a.columns, 1};
  copy(a, floats);
  return floats;
}

}  // namespace detail

/// Floats of scratch for multiply_halves where a and c have so many columns.
constexpr Index multiply_halves_scratch(Index a_columns, Index c_columns, Index workers = most_workers()) {
  return workers * detail::product_rows * (a_columns + c_columns);
}

/// c = a b, plus the bias in every row unless that is null. c may be a.
template <Half Stored>
void multiply_halves(View<const Stored> a, View<const float> b, const float* bias, View<Stored> c, float* scratch) {
  const Index blocks = (c.rows + detail::product_rows - 1) / detail::product_rows;
  parallel_for(blocks, c.size() * a.columns, [&](Index block, Index worker) {
    const Index first = block * detail::product_rows, rows = (std::min)(detail::product_rows, c.rows - first);
    float* const room = scratch + worker * multiply_halves_scratch(a.columns, c.columns, 1);
    const View<const float> left = detail::as_floats(a.middle_rows(first, rows), room);
    const View<float> sums{room + rows * a.columns, rows, c.columns, c.columns, 1};
    if (bias != nullptr) fill_rows(sums, bias);
    multiply(left, b, sums, bias == nullptr ? Product::set : Product::add);
    copy<float, Stored>(sums, c.middle_rows(first, rows));
  });
}

/// Floats of scratch for multiply_transposed_halves where a and b have so many columns.
inline Index multiply_transposed_halves_scratch(Index a_columns, Index b_columns) {
  return detail::product_depth * (a_columns + b_columns);
}

/// c = a^T b or c += a^T b, and sums[j] = the sum of column j of b, unless that is null.
template <Half Stored>
void multiply_transposed_halves(View<const Stored> a, View<const Stored> b, View<float> c, Product product,
                                Wide<Stored>* sums, float* scratch) {
  if (sums != nullptr) std::fill_n(sums, b.columns, Wide<Stored>(0));
  if (a.rows == 0 && product == Product::set) set_zero(c);
  for (Index first = 0; first < a.rows; first += detail::product_depth) {
    const Index rows = (std::min)(detail::product_depth, a.rows - first);
    const View<const float> left = detail::as_floats(a.middle_rows(first, rows), scratch);
    const View<const float> right = detail::as_floats(b.middle_rows(first, rows), scratch + rows * a.columns);
    multiply_transposed(left, right, c, first == 0 ? product : Product::add);
    if (sums != nullptr) add_column_sums(right, sums);
  }
}

}  // namespace evenkeel::kernels
