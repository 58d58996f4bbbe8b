#pragma once

#include <Eigen/Core>  // the product itself

#include <algorithm>  // min, fill
#include <cstddef>    // size_t

#include "evenkeel/core/parallel.hpp"  // parallel_for
#include "evenkeel/core/types.hpp"     // Index
#include "evenkeel/core/view.hpp"      // View
#include "evenkeel/kernels/lanes.hpp"  // with_strides

/// Matrix products on views of any strides. Eigen's product does the arithmetic, on blocks whose largest size is known at
/// compile time: so it packs on the stack and never allocates (a dynamic product of 16 x 391 x 64 doubles would), starts no
/// threads of its own (their splits would change the order of sums), and reads strided data block by block.
namespace evenkeel::kernels {
namespace detail {

inline constexpr int product_rows = 32;  // above 32 Eigen may use threads
inline constexpr int product_columns = 64;
inline constexpr int product_depth = 128;

template <typename Scalar, int Order, int MaxRows, int MaxColumns>
using BlockMatrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Order, MaxRows, MaxColumns>;

template <typename Scalar, int Order, int MaxRows, int MaxColumns>
using BlockMap =
    Eigen::Map<const BlockMatrix<Scalar, Order, MaxRows, MaxColumns>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <typename Scalar>
View<Scalar> block(View<Scalar> view, Index row, Index column, Index rows, Index columns) {
  return {&view(row, column), rows, columns, view.row_stride, view.column_stride};
}

/// The block as it is, or, where neither stride is one, copied into `room`.
template <typename Scalar>
View<const Scalar> with_unit_stride(View<const Scalar> view, Scalar* room) {
  if (view.column_stride == 1 || view.row_stride == 1) return view;
  const View<Scalar> copy{room, view.rows, view.columns, view.columns, 1};
  for (Index i = 0; i < view.rows; ++i)
    for (Index j = 0; j < view.columns; ++j) copy(i, j) = view(i, j);
  return copy;
}

/// Calls body with a block, one of whose strides is one, as an Eigen map.
template <int MaxRows, int MaxColumns, typename Scalar, class Body>
void with_block_map(View<const Scalar> view, const Body& body) {
  if (view.column_stride == 1)
    body(BlockMap<Scalar, Eigen::RowMajor, MaxRows, MaxColumns>(view.data, view.rows, view.columns,
                                                                Eigen::OuterStride<>(view.row_stride)));
  else
    body(BlockMap<Scalar, Eigen::ColMajor, MaxRows, MaxColumns>(view.data, view.rows, view.columns,
                                                                Eigen::OuterStride<>(view.column_stride)));
}

/// c += a b for blocks of at most the sizes above.
template <typename Scalar>
void add_block_product(View<const Scalar> a, View<const Scalar> b, View<Scalar> c) {
  using Result = BlockMatrix<Scalar, Eigen::RowMajor, product_rows, product_columns>;
  constexpr auto size = [](int rows, int columns) { return static_cast<std::size_t>(rows * columns); };
  Scalar a_room[size(product_rows, product_depth)];
  Scalar b_room[size(product_depth, product_columns)];
  Scalar c_room[size(product_rows, product_columns)];
  a = with_unit_stride(a, a_room);
  b = with_unit_stride(b, b_room);
  const bool direct = c.column_stride == 1;
  const View<Scalar> target = direct ? c : View<Scalar>{c_room, c.rows, c.columns, c.columns, 1};
  if (!direct) std::fill(c_room, c_room + c.size(), Scalar(0));
  Eigen::Map<Result, Eigen::Unaligned, Eigen::OuterStride<>> result(target.data, target.rows, target.columns,
                                                                    Eigen::OuterStride<>(target.row_stride));
  with_block_map<product_rows, product_depth>(a, [&](const auto& left) {
    with_block_map<product_depth, product_columns>(b, [&](const auto& right) { result.noalias() += left * right; });
  });
  if (direct) return;
  for (Index i = 0; i < c.rows; ++i)
    for (Index j = 0; j < c.columns; ++j) c(i, j) += target(i, j);
}

}  // namespace detail

/// c += a b. c must not overlap a or b. Sums run in the same order for any number of threads.
template <typename Scalar>
void add_product(View<const Scalar> a, View<const Scalar> b, View<Scalar> c) {
  if (c.column_stride != 1 && c.row_stride == 1) return add_product(b.transposed(), a.transposed(), c.transposed());
  const Index row_blocks = (c.rows + detail::product_rows - 1) / detail::product_rows;
  parallel_for(row_blocks, c.size() * a.columns, [&](Index row_block) {
    const Index i = row_block * detail::product_rows;
    const Index rows = (std::min)(Index{detail::product_rows}, c.rows - i);
    for (Index j = 0; j < c.columns; j += detail::product_columns) {
      const Index columns = (std::min)(Index{detail::product_columns}, c.columns - j);
      for (Index k = 0; k < a.columns; k += detail::product_depth) {
        const Index depth = (std::min)(Index{detail::product_depth}, a.columns - k);
        detail::add_block_product(detail::block(a, i, k, rows, depth), detail::block(b, k, j, depth, columns),
                                  detail::block(c, i, j, rows, columns));
      }
    }
  });
}

/// c += a^T b. c must not overlap a or b.
template <typename Scalar>
void add_transposed_product(View<const Scalar> a, View<const Scalar> b, View<Scalar> c) {
  add_product(a.transposed(), b, c);
}

/// Sets every element to zero, in the order of memory.
template <typename Scalar>
void set_zero(View<Scalar> y) {
  if (y.column_stride != 1 && y.row_stride == 1) y = y.transposed();
  with_strides(
      [&](auto stride) {
        for (Index i = 0; i < y.rows; ++i)
          for (Index j = 0; j < y.columns; ++j) y.row(i)[j * stride] = Scalar(0);
      },
      y.column_stride);
}

/// Sets every row to the bias.
template <typename Scalar>
void fill_rows(View<Scalar> y, const Scalar* bias) {
  with_strides(
      [&](auto stride) {
        for (Index i = 0; i < y.rows; ++i)
          for (Index j = 0; j < y.columns; ++j) y.row(i)[j * stride] = bias[j];
      },
      y.column_stride);
}

}  // namespace evenkeel::kernels
