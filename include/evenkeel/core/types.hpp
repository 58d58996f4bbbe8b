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

template <typename Scalar>
struct WideType {
  using type = double;
};
template <>
struct WideType<long double> {
  using type = long double;
};

}  // namespace detail

/// The type in which statistics, sums over a batch and losses are accumulated: double, or long double for itself.
template <typename Scalar>
using Wide = typename detail::WideType<Scalar>::type;

}  // namespace evenkeel
