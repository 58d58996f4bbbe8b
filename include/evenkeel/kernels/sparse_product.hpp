#pragma once

#include <cstddef>      // size_t
#include <type_traits>  // integral_constant

#include "evenkeel/core/sparse.hpp"       // SparseView
#include "evenkeel/core/types.hpp"        // Index
#include "evenkeel/core/view.hpp"         // View
#include "evenkeel/kernels/lanes.hpp"     // with_strides, unrolled
#include "evenkeel/kernels/product.hpp"   // Product, set_zero
#include "evenkeel/kernels/register.hpp"  // Register

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
void add_stored_values(const SparseView<Scalar>& a, View<const Scalar> b, View<Scalar> c) {
  with_strides(
      [&](auto b_stride, auto c_stride) {
        a.for_each([&](Index row, Index column, Scalar value) {
          add_scaled(c.columns, value, b.row(Transposed ? row : column), b_stride, c.row(Transposed ? column : row),
                     c_stride);
        });
      },
      b.column_stride, c.column_stride);
}

/// The same for a by rows and for Count registers of each row of b and c, where the numbers of rows lie together: the row that
/// all values of a row of a have in common stays in registers.
template <bool Transposed, std::size_t Count, typename Scalar>
void add_stored_rows_strip(const SparseView<Scalar>& a, View<const Scalar> b, View<Scalar> c) {
  using R = Register<Scalar>;
  const auto each = [](const auto& body) EVENKEEL_INLINE {
    unrolled<Count>([&](Index n) EVENKEEL_INLINE { body(n, n * register_count<Scalar>); });
  };
  for (Index row = 0; row < a.rows(); ++row) {
    R common[Count];
    const Scalar* start = Transposed ? b.row(row) : c.row(row);
    each([&](Index n, Index j) EVENKEEL_INLINE { common[n] = load<R>(start + j); });
    const int end = a.end(row);
    EVENKEEL_AS_WRITTEN for (int k = a.begins[row]; k < end; ++k) {
      const Scalar value = a.values[k];
      if constexpr (Transposed) {
        Scalar* target = c.row(a.places[k]);
        each([&](Index n, Index j) EVENKEEL_INLINE {
          const R there = load<R>(target + j);
          store<R>(target + j, there + value * common[n]);
        });
      } else {
        const Scalar* source = b.row(a.places[k]);
        each([&](Index n, Index j) EVENKEEL_INLINE {
          const R there = load<R>(source + j);
          common[n] = common[n] + value * there;
        });
      }
    }
    if constexpr (!Transposed) each([&](Index n, Index j) EVENKEEL_INLINE { store<R>(c.row(row) + j, common[n]); });
  }
}

template <bool Transposed, typename Scalar>
void add_stored_rows(const SparseView<Scalar>& a, View<const Scalar> b, View<Scalar> c) {
  Index j = 0;
  const auto strips_of = [&](auto count) {
    constexpr Index width = static_cast<Index>(count.value) * register_count<Scalar>;
    for (; j + width <= c.columns; j += width)
      add_stored_rows_strip<Transposed, count.value>(a, b.middle_columns(j, width), c.middle_columns(j, width));
  };
  if (a.by_rows && b.column_stride == 1 && c.column_stride == 1) {
    strips_of(std::integral_constant<std::size_t, 8>{});
    strips_of(std::integral_constant<std::size_t, 1>{});
  }
  if (j < c.columns)
    add_stored_values<Transposed>(a, b.middle_columns(j, c.columns - j), c.middle_columns(j, c.columns - j));
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
