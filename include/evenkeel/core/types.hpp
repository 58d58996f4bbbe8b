#pragma once

#include <Eigen/Core>  // Matrix, Map, Index, half, bfloat16

#include <concepts>     // same_as
#include <type_traits>  // conditional_t

static_assert(EIGEN_VERSION_AT_LEAST(3, 4, 0), "evenkeel needs Eigen 3.4.0 or newer");

/// Dropout and normalization layers for Eigen matrices.
namespace evenkeel {

using Index = Eigen::Index;

/// Types a layer can compute in.
template <typename T>
concept Real = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, long double>;

/// Types of 16 bits: data can be stored in them, nothing is computed in them.
template <typename T>
concept Half = std::same_as<T, Eigen::half> || std::same_as<T, Eigen::bfloat16>;

/// Types a layer's input and output can be stored in.
template <typename T>
concept Storable = Real<T> || Half<T>;

/// The type of parameters, of statistics and of all that is computed for data of a storable type: float for the halves, which
/// become floats as they are read and are rounded once, as they are written; each other type for itself.
template <typename T>
using Arithmetic = std::conditional_t<Half<T>, float, T>;

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
