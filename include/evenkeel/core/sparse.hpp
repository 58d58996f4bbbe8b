#pragma once

#include <algorithm>  // max
#include <concepts>   // same_as, convertible_to
#include <cstddef>    // size_t
#include <span>
#include <type_traits>  // remove_cvref_t

#include "evenkeel/core/buffer.hpp"  // Buffer
#include "evenkeel/core/types.hpp"   // Index

namespace evenkeel {

/// A sparse matrix somewhere in memory, by rows or by columns: what kernels see of an Eigen::SparseMatrix, or of a Map or a
/// block of its rows (columns, if it is stored by columns), compressed or not.
template <typename Scalar_>
struct SparseView {
  using Scalar = Scalar_;

  Index row_count = 0;
  Index column_count = 0;
  bool by_rows = true;             ///< Whether the outer vectors are rows.
  const Scalar* values = nullptr;  ///< Of all outer vectors.
  const int* places = nullptr;     ///< Beside each value its place in its outer vector.
  const int* begins = nullptr;     ///< Where outer vector i begins in them; it ends where the next begins ...
  const int* lengths = nullptr;    ///< ... or, unless null, after so many.

  Index rows() const { return row_count; }
  Index cols() const { return column_count; }

  int end(Index outer) const { return lengths == nullptr ? begins[outer + 1] : begins[outer] + lengths[outer]; }

  /// Calls body(row, column, value) for every stored value, outer vector by outer vector.
  template <class Body>
  void for_each(const Body& body) const {
    const Index outer_count = by_rows ? row_count : column_count;
    for (Index outer = 0; outer < outer_count; ++outer)
      for (int k = begins[outer]; k < end(outer); ++k)
        by_rows ? body(outer, Index{places[k]}, values[k]) : body(Index{places[k]}, outer, values[k]);
  }
};

/// A sparse matrix with elements of this type and indices of Eigen's default type, int.
template <class X, typename Scalar>
concept SparseOf = std::same_as<std::remove_cvref_t<X>, SparseView<Scalar>> ||
    requires(const std::remove_cvref_t<X>& x) {
  { x.valuePtr() } -> std::convertible_to<const Scalar*>;
  { x.innerIndexPtr() } -> std::convertible_to<const int*>;
  { x.outerIndexPtr() } -> std::convertible_to<const int*>;
  { x.innerNonZeroPtr() } -> std::convertible_to<const int*>;
  requires !bool(std::remove_cvref_t<X>::IsVectorAtCompileTime);
};

/// What is never copied: a view of any sparse matrix.
template <typename Scalar, SparseOf<Scalar> X>
SparseView<Scalar> sparse_view(const X& x) {
  if constexpr (std::same_as<X, SparseView<Scalar>>)
    return x;
  else
    return {x.rows(),          x.cols(),          bool(X::IsRowMajor), x.valuePtr(),
            x.innerIndexPtr(), x.outerIndexPtr(), x.innerNonZeroPtr()};
}

namespace detail {

/// A sparse matrix of its own, compressed by rows, in memory that is kept from use to use.
template <typename Scalar>
class SparseRows {
 public:
  SparseView<Scalar> view() const {
    return {rows_, columns_, true, values_.data(), places_.data(), begins_.data(), nullptr};
  }

  /// Copies a matrix of either order.
  void assign(const SparseView<Scalar>& x) {
    int* begins = set_shape(x.rows(), x.cols());
    for (Index i = 0; i <= rows_; ++i) begins[i] = 0;
    x.for_each([&](Index row, Index, Scalar) { ++begins[row]; });
    for (Index i = 1; i <= rows_; ++i) begins[i] += begins[i - 1];
    Scalar* values = values_.resize(begins[rows_]);
    int* places = places_.resize(begins[rows_]);
    // Until here begins[i] is where row i ends. Going back through the columns of x, each value is put before the others of
    // its row, after which begins[i] is where it begins.
    for_each_backwards(x, [&](Index row, Index column, Scalar value) {
      const int place = --begins[row];
      values[place] = value;
      places[place] = static_cast<int>(column);
    });
  }

  /// Copies some rows of a matrix by rows, one after another.
  void gather(const SparseView<Scalar>& x, std::span<const Index> rows) {
    int* begins = set_shape(static_cast<Index>(rows.size()), x.cols());
    begins[0] = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) begins[i + 1] = begins[i] + x.end(rows[i]) - x.begins[rows[i]];
    Scalar* value = values_.resize(begins[rows.size()]);
    int* place = places_.resize(begins[rows.size()]);
    for (const Index row : rows)
      for (int k = x.begins[row]; k < x.end(row); ++k) {
        *value++ = x.values[k];
        *place++ = x.places[k];
      }
  }

  /// Makes room for any gather of so many rows of x, so that none allocates.
  void reserve(const SparseView<Scalar>& x, Index rows) {
    int longest = 0;
    for (Index i = 0; i < x.rows(); ++i) longest = (std::max)(longest, x.end(i) - x.begins[i]);
    values_.resize(rows * longest);
    places_.resize(rows * longest);
    begins_.resize(rows + 1);
  }

 private:
  int* set_shape(Index rows, Index columns) {
    rows_ = rows;
    columns_ = columns;
    return begins_.resize(rows + 1);
  }

  template <class Body>
  static void for_each_backwards(const SparseView<Scalar>& x, const Body& body) {
    for (Index outer = (x.by_rows ? x.rows() : x.cols()) - 1; outer >= 0; --outer)
      for (int k = x.end(outer) - 1; k >= x.begins[outer]; --k)
        x.by_rows ? body(outer, Index{x.places[k]}, x.values[k]) : body(Index{x.places[k]}, outer, x.values[k]);
  }

  Index rows_ = 0, columns_ = 0;
  Buffer<Scalar> values_;  // of all rows
  Buffer<int> places_;     // the column of each
  Buffer<int> begins_;     // where each row begins in them, and where the last ends
};

}  // namespace detail
}  // namespace evenkeel
