#pragma once

#include <Eigen/Core>  // transposeInPlace

#include <algorithm>  // copy, max

#include "evenkeel/core/parallel.hpp"  // most_workers
#include "evenkeel/core/types.hpp"     // Index, Wide
#include "evenkeel/core/view.hpp"      // View
#include "evenkeel/kernels/lanes.hpp"  // prefetch

/// The kernels of the norms work on rows that are contiguous in memory. Of other matrices, stored by columns or with gaps, some
/// rows at a time are packed into a small piece of memory, worked on there, and brought back: so every storage order gives the
/// same bits.
namespace evenkeel::kernels {

/// Whether the rows of all views are contiguous.
template <class... Views>
bool contiguous_rows(const Views&... views) {
  return ((views.column_stride == 1) && ...);
}

namespace detail {

/// As many numbers as a vector has.
template <typename Scalar>
inline constexpr Index square_size = (std::max)(register_bytes / static_cast<Index>(sizeof(Scalar)), Index{1});

/// to(i, j) = from(i, j) for square_size rows and columns, from being stored by columns and to by rows, or the other way round.
/// Eigen transposes a square of that size in registers.
template <typename Scalar>
void copy_square(const Scalar* from, Index from_stride, Scalar* to, Index to_stride) {
  constexpr int size = square_size<Scalar>;
  using Line = Eigen::Matrix<Scalar, size, 1>;
  Eigen::Matrix<Scalar, size, size> square;
  for (int k = 0; k < size; ++k) square.col(k) = Eigen::Map<const Line>(from + k * from_stride);
  square.transposeInPlace();
  for (int k = 0; k < size; ++k) Eigen::Map<Line>(to + k * to_stride) = square.col(k);
}

/// to = from, one of which is stored by columns and the other by rows.
template <typename Scalar>
void copy_turned(View<const Scalar> from, View<Scalar> to) {
  constexpr Index size = square_size<Scalar>;
  const Index from_stride = from.row_stride == 1 ? from.column_stride : from.row_stride;
  const Index to_stride = to.row_stride == 1 ? to.column_stride : to.row_stride;
  const Index rows = from.rows - from.rows % size, columns = from.columns - from.columns % size;
  for (Index j = 0; j < columns; j += size) {
    if (from.row_stride == 1 && j + 2 * size <= columns)
      for (Index k = 0; k < size; ++k)
        for (Index i = 0; i < rows; i += line_bytes / static_cast<Index>(sizeof(Scalar)))
          prefetch(&from(i, j + size + k));
    for (Index i = 0; i < rows; i += size) copy_square(&from(i, j), from_stride, &to(i, j), to_stride);
  }
  for (Index j = columns; j < from.columns; ++j)
    for (Index i = 0; i < rows; ++i) to(i, j) = from(i, j);
  for (Index i = rows; i < from.rows; ++i)
    for (Index j = 0; j < from.columns; ++j) to(i, j) = from(i, j);
}

}  // namespace detail

/// to = from, whatever their strides.
template <typename Scalar>
void copy(View<const Scalar> from, View<Scalar> to) {
  if (contiguous_rows(from, to))
    for (Index i = 0; i < from.rows; ++i) std::copy(from.row(i), from.row(i) + from.columns, to.row(i));
  else if ((from.row_stride == 1 && to.column_stride == 1) || (from.column_stride == 1 && to.row_stride == 1))
    detail::copy_turned(from, to);
  else
    for (Index i = 0; i < from.rows; ++i)
      for (Index j = 0; j < from.columns; ++j) to(i, j) = from(i, j);
}

/// So many numbers are packed on the stack; more in memory from the caller.
inline constexpr Index packed_on_stack = 8192;

/// How rows are packed: as many at a time as fill some whole cache lines of each column of a matrix stored by columns, or all
/// there are where these are fewer, and at such a distance that they do not fall on the same lines of the cache.
struct Packing {
  Index rows = 64, stride;

  explicit constexpr Packing(Index columns, Index all_rows = 64) : stride{columns + line} {
    while (rows > 1 && rows / 2 >= all_rows) rows /= 2;
    for (Index few = rows; few >= line; few /= 2)  // rather fewer on the stack
      if (few * stride <= packed_on_stack) {
        rows = few;
        break;
      }
  }
  constexpr Index numbers() const { return rows * stride; }
  constexpr bool on_stack() const { return numbers() <= packed_on_stack; }
  /// Numbers of scratch, besides the stack, for so many matrices of this type.
  template <typename Scalar>
  constexpr Index room(Index matrices, Index workers = most_workers()) const {
    return on_stack() ? 0 : workers * matrices * room_each<Scalar>();
  }
  template <typename Scalar>
  constexpr Index room_each() const {
    constexpr auto in_one = static_cast<Index>(sizeof(Wide<Scalar>) / sizeof(Scalar));
    return (numbers() + in_one - 1) / in_one;
  }

 private:
  static constexpr Index line = 16;
};

/// Some rows, packed.
template <typename Scalar>
class PackedRows {
 public:
  /// `scratch` as Packing says; this is number `which` of as many as there are matrices for all workers.
  PackedRows(Packing packing, Wide<Scalar>* scratch, Index which)
      : packing_{packing},
        data_{packing.on_stack() ? on_stack_
                                 : reinterpret_cast<Scalar*>(scratch + which * packing.room_each<Scalar>())} {}
  PackedRows(const PackedRows&) = delete;
  PackedRows& operator=(const PackedRows&) = delete;

  View<Scalar> like(View<const Scalar> x) const { return {data_, x.rows, x.columns, packing_.stride, 1}; }
  View<Scalar> operator()(View<const Scalar> x) const {
    copy(x, like(x));
    return like(x);
  }

 private:
  Packing packing_;
  Scalar* data_;
  alignas(64) Scalar on_stack_[packed_on_stack];
};

}  // namespace evenkeel::kernels
