#pragma once

#include "evenkeel/core/types.hpp"  // Matrix, Index
#include "evenkeel/core/view.hpp"   // View

/// Matrices in memory in every way that a View can describe.
namespace strided {

using evenkeel::Index;

enum class Order { row_major, column_major, gaps };
inline constexpr Order orders[] = {Order::row_major, Order::column_major, Order::gaps};

/// Holds a matrix in one of these orders; where there are gaps between its elements they hold -77.
template <typename Scalar>
class Storage {
 public:
  Storage(const evenkeel::Matrix<Scalar>& matrix, Order order)
      : rows_{matrix.rows()}, columns_{matrix.cols()}, order_{order} {
    const Index size = order == Order::gaps ? rows_ * (2 * columns_ + 3) : rows_ * columns_;
    memory_ = Eigen::Array<Scalar, Eigen::Dynamic, 1>::Constant(size, Scalar(-77));
    evenkeel::as_map(view()) = matrix;
  }

  evenkeel::View<Scalar> view() {
    if (order_ == Order::row_major) return {memory_.data(), rows_, columns_, columns_, 1};
    if (order_ == Order::column_major) return {memory_.data(), rows_, columns_, 1, rows_};
    return {memory_.data(), rows_, columns_, 2 * columns_ + 3, 2};
  }
  evenkeel::View<const Scalar> fixed() { return view(); }
  evenkeel::Matrix<Scalar> matrix() { return evenkeel::as_map(view()); }

  /// Whether nothing has been written between the elements.
  bool gaps_untouched() {
    Storage copy = *this;
    evenkeel::as_map(copy.view()).setConstant(Scalar(-77));
    return (copy.memory_ == Scalar(-77)).all();
  }

 private:
  Index rows_, columns_;
  Order order_;
  Eigen::Array<Scalar, Eigen::Dynamic, 1> memory_;
};

}  // namespace strided
