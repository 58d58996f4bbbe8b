#pragma once

#include <Eigen/Core>  // transposeInPlace

#include <algorithm>    // copy, max
#include <type_traits>  // remove_const_t

#include "evenkeel/core/parallel.hpp"    // most_workers
#include "evenkeel/core/types.hpp"       // Index, Wide, Real
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/convert.hpp"  // convert
#include "evenkeel/kernels/lanes.hpp"    // prefetch

/// The kernels of the norms work on rows that are contiguous in memory. Of other matrices, stored by columns, with gaps or in
/// halves, some rows at a time are packed into a small piece of memory, worked on there, and brought back: so every storage
/// order gives the same bits, and halves are converted on the way in and rounded once on the way out.
namespace evenkeel::kernels {

/// Whether the rows of a view are contiguous, whatever their type.
template <typename Stored>
bool rows_together(View<Stored> view) {
  return view.column_stride == 1;
}

/// How the numbers of a row lie in memory, where that decides how rows are packed.
enum class RowLayout { together, apart };

/// Apart, unless those of all views lie together.
template <typename... Stored>
RowLayout row_layout(const View<Stored>&... views) {
  return (rows_together(views) && ...) ? RowLayout::together : RowLayout::apart;
}

/// Whether the rows of all views are contiguous, and of a type that is computed in: what kernels work on where it is.
template <typename... Stored>
bool contiguous_rows(const View<Stored>&... views) {
  return (Real<std::remove_const_t<Stored>> && ...) && (rows_together(views) && ...);
}

namespace detail {

/// As many numbers as a vector has, once they are what is computed in.
template <typename Scalar>
inline constexpr Index square_size = (std::max)(register_bytes / static_cast<Index>(sizeof(Arithmetic<Scalar>)),
                                                Index{1});

/// to(i, j) = from(i, j) for square_size rows and columns, from being stored by columns and to by rows, or the other way round.
/// Eigen transposes a square of that size in registers.
template <typename From, typename To>
void copy_square(const From* from, Index from_stride, To* to, Index to_stride) {
  constexpr int size = square_size<From>;
  using Scalar = Arithmetic<From>;
  using Line = Eigen::Matrix<Scalar, size, 1>;
  Eigen::Matrix<Scalar, size, size> square;
  for (int k = 0; k < size; ++k)
    if constexpr (Real<From>)
      square.col(k) = Eigen::Map<const Line>(from + k * from_stride);
    else
      convert(Index{size}, from + k * from_stride, square.col(k).data());
  square.transposeInPlace();
  for (int k = 0; k < size; ++k)
    if constexpr (Real<To>)
      Eigen::Map<Line>(to + k * to_stride) = square.col(k);
    else
      convert(Index{size}, square.col(k).data(), to + k * to_stride);
}

/// to = from, one of which is stored by columns and the other by rows.
template <typename From, typename To>
void copy_turned(View<const From> from, View<To> to) {
  constexpr Index size = square_size<From>;
  const Index from_stride = from.row_stride == 1 ? from.column_stride : from.row_stride;
  const Index to_stride = to.row_stride == 1 ? to.column_stride : to.row_stride;
  const Index rows = from.rows - from.rows % size, columns = from.columns - from.columns % size;
  for (Index j = 0; j < columns; j += size) {
    if (from.row_stride == 1 && j + 2 * size <= columns)
      for (Index k = 0; k < size; ++k)
        for (Index i = 0; i < rows; i += line_bytes / static_cast<Index>(sizeof(From)))
          prefetch(&from(i, j + size + k));
    for (Index i = 0; i < rows; i += size) copy_square(&from(i, j), from_stride, &to(i, j), to_stride);
  }
  for (Index j = columns; j < from.columns; ++j)
    for (Index i = 0; i < rows; ++i) convert(from(i, j), to(i, j));
  for (Index i = rows; i < from.rows; ++i)
    for (Index j = 0; j < from.columns; ++j) convert(from(i, j), to(i, j));
}

}  // namespace detail

/// to = from, whatever their strides: of the same type, or one of halves and the other of floats.
template <typename From, typename To>
void copy(View<const From> from, View<To> to) {
  if (rows_together(from) && rows_together(to))
    for (Index i = 0; i < from.rows; ++i) convert(from.columns, from.row(i), to.row(i));
  else if ((from.row_stride == 1 && to.column_stride == 1) || (from.column_stride == 1 && to.row_stride == 1))
    detail::copy_turned(from, to);
  else
    for (Index i = 0; i < from.rows; ++i)
      for (Index j = 0; j < from.columns; ++j) convert(from(i, j), to(i, j));
}

/// So many numbers are packed on the stack; more in memory from the caller.
inline constexpr Index packed_on_stack = 8192;

/// How rows are packed: where they lie apart, as many at a time as fill some whole cache lines of each column of a matrix stored
/// by columns; where they lie together, as many as stay in the innermost cache; or all there are, where these are fewer; and
/// at such a distance that they do not fall on the same lines of the cache.
struct Packing {
  Index rows = 64, stride;

  explicit constexpr Packing(Index columns, Index all_rows = 64, RowLayout layout = RowLayout::apart)
      : stride{columns + line} {
    while (rows > 1 && rows / 2 >= all_rows) rows /= 2;
    const Index fewest = layout == RowLayout::together ? 4 : line;
    for (Index few = rows; few >= fewest; few /= 2)  // rather fewer on the stack
      if (few * stride <= packed_on_stack) {
        rows = few;
        return;
      }
    if (layout == RowLayout::together) rows = (std::min)(rows, fewest);
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
  /// `scratch` as Packing says, or null where nothing will be packed; this is number `which` of as many as there are matrices for
  /// all workers.
  PackedRows(Packing packing, Wide<Scalar>* scratch, Index which) : packing_{packing} {
    if (packing.on_stack())
      data_ = on_stack_;
    else if (scratch != nullptr)
      data_ = reinterpret_cast<Scalar*>(scratch + which * packing.room_each<Scalar>());
  }
  PackedRows(const PackedRows&) = delete;
  PackedRows& operator=(const PackedRows&) = delete;

  template <typename Stored>
  View<Scalar> like(View<Stored> x) const {
    return {data_, x.rows, x.columns, packing_.stride, 1};
  }
  template <typename Stored>
  View<Scalar> operator()(View<const Stored> x) const {
    copy(x, like(x));
    return like(x);
  }
  /// The rows themselves where kernels can work on them, else packed.
  template <typename Stored>
  View<const Scalar> contiguous(View<const Stored> x) const {
    if constexpr (Real<Stored>)
      if (contiguous_rows(x)) return x;
    return (*this)(x);
  }

 private:
  Packing packing_;
  Scalar* data_ = nullptr;
  alignas(64) Scalar on_stack_[packed_on_stack];
};

}  // namespace evenkeel::kernels
