#pragma once

#include <algorithm>  // minmax
#include <array>
#include <concepts>     // same_as
#include <cstdint>      // uintptr_t
#include <type_traits>  // conditional_t

#include "evenkeel/core/types.hpp"  // Matrix, Index

namespace evenkeel {

/// A matrix somewhere in memory: what kernels see of any Eigen object, in either storage order.
template <typename Scalar>
struct View {
  Scalar* data = nullptr;
  Index rows = 0;
  Index columns = 0;
  Index row_stride = 0;     ///< Elements from one row to the next.
  Index column_stride = 1;  ///< Elements from one column to the next.

  Scalar& operator()(Index row, Index column) const { return data[row * row_stride + column * column_stride]; }
  Scalar* row(Index index) const { return data + index * row_stride; }
  Index size() const { return rows * columns; }

  // Parts; of a view without elements, which may be without data, some that start where it does.
  View middle_rows(Index first, Index count) const {
    return {size() == 0 ? data : data + first * row_stride, count, columns, row_stride, column_stride};
  }
  View middle_columns(Index first, Index count) const {
    return {size() == 0 ? data : data + first * column_stride, rows, count, row_stride, column_stride};
  }
  View transposed() const { return {data, columns, rows, column_stride, row_stride}; }

  operator View<const Scalar>() const requires(!std::is_const_v<Scalar>) {
    return {data, rows, columns, row_stride, column_stride};
  }
};

/// A view as an Eigen object of run-time strides; View<const Scalar> gives a read-only one.
template <typename Scalar>
using StridedMap =
    Eigen::Map<std::conditional_t<std::is_const_v<Scalar>, const Matrix<std::remove_const_t<Scalar>>, Matrix<Scalar>>,
               Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

template <typename Scalar>
StridedMap<Scalar> as_map(View<Scalar> view) {
  return {view.data, view.rows, view.columns,
          Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(view.row_stride, view.column_stride)};
}

namespace detail {

// Asked this way because vector.head(n) derives from the DenseBase of another type, the block that it is.
template <class D>
void takes_dense(const Eigen::DenseBase<D>&);
template <class D>
void takes_array(const Eigen::ArrayBase<D>&);

}  // namespace detail

/// A dense Eigen expression with elements of this type.
template <class X, typename Scalar>
concept DenseOf = requires(const std::remove_cvref_t<X>& x) {
  detail::takes_dense(x);
  requires std::same_as<typename std::remove_cvref_t<X>::Scalar, Scalar>;
};

/// A dense Eigen object with elements of this type that can be written to, temporary blocks included.
template <class Y, typename Scalar>
concept WritableDenseOf = DenseOf<Y, Scalar> && !std::is_const_v<std::remove_reference_t<Y>> &&
                          (std::remove_cvref_t<Y>::Flags & Eigen::LvalueBit) != 0;

namespace detail {

/// Whether the elements of an expression lie in memory at a constant stride, and it says where. (Eigen 3.4's IndexedView
/// has the flag alone.)
template <class X>
inline constexpr bool directly_accessible = (std::remove_cvref_t<X>::Flags & Eigen::DirectAccessBit) != 0 &&
                                            requires(const std::remove_cvref_t<X>& x) {
  x.data();
  x.innerStride();
  x.outerStride();
};

/// The view of a directly accessible expression. A single column or row counts as contiguous across the other way.
template <typename Scalar, class X>
View<Scalar> view_of(Scalar* data, const X& x) {
  constexpr bool row_major = X::IsRowMajor;
  View<Scalar> view{data, x.rows(), x.cols(), row_major ? x.outerStride() : x.innerStride(),
                    row_major ? x.innerStride() : x.outerStride()};
  if (view.columns == 1) view.column_stride = 1;
  if (view.rows == 1) view.row_stride = view.columns * view.column_stride;
  return view;
}

struct Nothing {};

}  // namespace detail

/// Reads any dense expression as a view. What is directly accessible is not copied; what is not (a product, a sum, a
/// broadcast) is evaluated once.
template <typename Scalar, class X>
class Input {
 public:
  explicit Input(const X& x) {
    if constexpr (detail::directly_accessible<X>) {
      view_ = detail::view_of<const Scalar>(x.data(), x);
    } else {
      evaluated_ = x;
      view_ = detail::view_of<const Scalar>(evaluated_.data(), evaluated_);
    }
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  View<const Scalar> view() const { return view_; }

 private:
  using Evaluated = FixedMatrix<Scalar, X::RowsAtCompileTime, X::ColsAtCompileTime>;

  std::conditional_t<detail::directly_accessible<X>, detail::Nothing, Evaluated> evaluated_;
  View<const Scalar> view_;
};

template <typename Scalar, class X>
Input<Scalar, X> read(const X& x) {
  return Input<Scalar, X>(x);
}

namespace detail {

/// The bytes from a view's first to behind its last, whatever the signs of its strides.
template <typename Scalar>
std::array<std::uintptr_t, 2> memory_of(View<Scalar> v) {
  const auto corner = [&](Index row, Index column) { return reinterpret_cast<std::uintptr_t>(&v(row, column)); };
  const auto [first, last] =
      std::minmax({corner(0, 0), corner(v.rows - 1, 0), corner(0, v.columns - 1), corner(v.rows - 1, v.columns - 1)});
  return {first, last + sizeof(Scalar)};
}

/// Whether two views are different columns of one row-major block of memory.
template <typename A, typename B>
bool other_columns(View<A> a, View<B> b) {
  if (a.column_stride != 1 || b.column_stride != 1 || a.row_stride != b.row_stride || a.row_stride <= 0) return false;
  const auto distance = reinterpret_cast<std::intptr_t>(b.data) - reinterpret_cast<std::intptr_t>(a.data);
  const auto row = static_cast<std::intptr_t>(sizeof(A)) * a.row_stride;
  const auto shift = ((distance % row) + row) % row;  // of b's first column, from a's, in bytes along a row
  return shift >= static_cast<std::intptr_t>(sizeof(A)) * a.columns &&
         shift + static_cast<std::intptr_t>(sizeof(B)) * b.columns <= row;
}

}  // namespace detail

/// Whether two views may share elements. Exact for blocks of one matrix; where strides differ, views whose memory is
/// interleaved count as sharing it.
template <typename A, typename B>
bool overlap(View<A> a, View<B> b) {
  if (a.size() == 0 || b.size() == 0) return false;
  const auto [a_first, a_end] = detail::memory_of(a);
  const auto [b_first, b_end] = detail::memory_of(b);
  if (a_end <= b_first || b_end <= a_first) return false;
  return !detail::other_columns(a, b) && !detail::other_columns(a.transposed(), b.transposed());
}

/// Whether two views are the same elements in the same places.
template <typename A, typename B>
bool coincide(View<A> a, View<B> b) {
  return static_cast<const void*>(a.data) == static_cast<const void*>(b.data) && a.rows == b.rows &&
         a.columns == b.columns && a.row_stride == b.row_stride && a.column_stride == b.column_stride;
}

/// Lets a kernel write into any Eigen object. An object that is not directly accessible, or that overlaps an input
/// without being it, is written through a temporary matrix; commit() copies it there.
template <typename Scalar, class Y>
class Output {
 public:
  template <class... Inputs>
  explicit Output(Y& y, const Inputs&... inputs) : target_{y} {
    if constexpr (detail::directly_accessible<Y>) {
      view_ = detail::view_of<Scalar>(y.data(), y);
      overwrites_ = (overlap(view_, View<const Scalar>(inputs)) || ...);
      if (((!overlap(view_, View<const Scalar>(inputs)) || coincide(view_, View<const Scalar>(inputs))) && ...)) return;
    } else {
      overwrites_ = true;  // nobody can tell
    }
    temporary_.resize(y.rows(), y.cols());
    view_ = detail::view_of<Scalar>(temporary_.data(), temporary_);
    through_temporary_ = true;
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  View<Scalar> view() const { return view_; }

  /// Whether an input may be gone once the output is there.
  bool overwrites_input() const { return overwrites_; }

  void commit() {
    if (!through_temporary_) return;
    if constexpr (requires { detail::takes_array(target_); })
      target_ = temporary_.array();
    else
      target_ = temporary_;
  }

 private:
  Y& target_;
  Matrix<Scalar> temporary_;
  View<Scalar> view_;
  bool overwrites_ = false;
  bool through_temporary_ = false;
};

}  // namespace evenkeel
