#pragma once

#include "evenkeel/core/sparse.hpp"      // SparseView
#include "evenkeel/core/types.hpp"       // Index
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/lanes.hpp"    // with_strides
#include "evenkeel/kernels/product.hpp"  // Product, set_zero

/// Products with a sparse matrix. Each stored value costs one pass over a row of the dense factor; sums run in the order of
/// columns, so both storage orders give the same bits.
namespace evenkeel::kernels {
namespace detail {

/// y += factor x, for rows of matrices.
template <typename Scalar, class XStride, class YStride>
void add_scaled(Index count, Scalar factor, const Scalar* x, XStride x_stride, Scalar* y, YStride y_stride) {
  for (Index j = 0; j < count; ++j) y[j * y_stride] += factor * x[j * x_stride];
}

/// c.row(row) += value * b.row(column) for every stored value of a, or with rows and columns of a exchanged.
template <bool Transposed, typename Scalar>
void add_stored_rows(const SparseView<Scalar>& a, View<const Scalar> b, View<Scalar> c) {
  with_strides(
      [&](auto b_stride, auto c_stride) {
        a.for_each([&](Index row, Index column, Scalar value) {
          add_scaled(c.columns, value, b.row(Transposed ? row : column), b_stride, c.row(Transposed ? column : row),
                     c_stride);
        });
      },
      b.column_stride, c.column_stride);
}

}  // namespace detail

/// c = a b or c += a b. c must not overlap b.
template <typename Scalar>
void multiply(SparseView<Scalar> a, View<const Scalar> b, View<Scalar> c, Product product) {
  if (product == Product::set) set_zero(c);
  detail::add_stored_rows<false>(a, b, c);
}

/// c = a^T b or c += a^T b. c must not overlap b.
template <typename Scalar>
void multiply_transposed(SparseView<Scalar> a, View<const Scalar> b, View<Scalar> c, Product product) {
  if (product == Product::set) set_zero(c);
  detail::add_stored_rows<true>(a, b, c);
}

}  // namespace evenkeel::kernels
