#pragma once

#include <Eigen/Core>  // Matrix, Map, Index

#include <concepts>  // same_as

static_assert(EIGEN_VERSION_AT_LEAST(3, 4, 0), "evenkeel needs Eigen 3.4.0 or newer");

/// Dropout and normalization layers for Eigen matrices.
namespace evenkeel {

using Index = Eigen::Index;

/// Types a layer can compute in. Storage-only half types are not among them.
template <typename T>
concept Real = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, long double>;

/// A batch: one example per row, row-major.
template <typename Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace detail {

/// Whether Eigen has an object of so many bytes on the stack.
constexpr bool fits_on_stack(Index bytes) {
  constexpr Index most = EIGEN_STACK_ALLOCATION_LIMIT;
  return most == 0 || bytes <= most;
}

template <typename Scalar, int Rows, int Columns>
struct FixedMatrixType {
  using type = Matrix<Scalar>;
};
template <typename Scalar, int Rows, int Columns>
requires(Rows >= 0 && Columns >= 0 && fits_on_stack(Index{Rows} * Columns * Index{sizeof(Scalar)}))  //
    struct FixedMatrixType<Scalar, Rows, Columns> {
  using type = Eigen::Matrix<Scalar, Rows, Columns, Columns == 1 && Rows != 1 ? Eigen::ColMajor : Eigen::RowMajor>;
};

template <typename Scalar>
struct WideType {
  using type = double;
};
template <>
struct WideType<long double> {
  using type = long double;
};

}  // namespace detail

/// A batch whose sizes are known at compile time, without memory from the heap: row-major, except for a single column, which
/// Eigen stores in no other way than by columns. Matrix where a size is Eigen::Dynamic, or where it would have more bytes than
/// EIGEN_STACK_ALLOCATION_LIMIT, Eigen's bound (128 KB unless defined otherwise).
template <typename Scalar, int Rows, int Columns>
using FixedMatrix = typename detail::FixedMatrixType<Scalar, Rows, Columns>::type;

/// The type in which statistics, sums over a batch and losses are accumulated: double, or long double for itself.
template <typename Scalar>
using Wide = typename detail::WideType<Scalar>::type;

}  // namespace evenkeel
