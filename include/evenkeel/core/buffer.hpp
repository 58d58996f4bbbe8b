#pragma once

#include <algorithm>  // max, rotate
#include <array>

#include "evenkeel/core/types.hpp"  // Matrix, Index
#include "evenkeel/core/view.hpp"   // View

namespace evenkeel::detail {

/// Memory that is kept from call to call and only ever grows.
template <typename T>
class Buffer {
 public:
  /// Room for at least `size` elements, and never a null pointer, from which nothing may be counted. What was there may be
  /// gone.
  T* resize(Index size) {
    size = (std::max)(size, Index{1});
    if (size > storage_.size()) storage_.resize(size);
    return storage_.data();
  }
  View<T> matrix(Index rows, Index columns) { return {resize(rows * columns), rows, columns, columns, 1}; }

  T* data() { return storage_.data(); }
  const T* data() const { return storage_.data(); }

 private:
  Eigen::Array<T, Eigen::Dynamic, 1> storage_;
};

/// Matrices that are handed out by reference, one for each of the last few shapes: a training loop whose last batch is
/// smaller, with an evaluation between, allocates each of its matrices once.
template <typename Scalar>
class MatrixCache {
 public:
  /// The matrix of this shape, now the latest. Its values are those it had, or none.
  Matrix<Scalar>& get(Index rows, Index columns) {
    auto found = matrices_.begin();
    while (found != matrices_.end() - 1 && !(found->rows() == rows && found->cols() == columns)) ++found;
    std::rotate(matrices_.begin(), found, found + 1);
    matrices_.front().resize(rows, columns);
    return matrices_.front();
  }
  const Matrix<Scalar>& latest() const { return matrices_.front(); }
  Matrix<Scalar>& latest() { return matrices_.front(); }

 private:
  std::array<Matrix<Scalar>, 4> matrices_;
};

}  // namespace evenkeel::detail
