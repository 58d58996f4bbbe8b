#pragma once

#include <bit>          // bit_cast
#include <cmath>        // abs, isnan
#include <cstdint>      // uint32_t, uint64_t
#include <limits>       // infinity
#include <type_traits>  // conditional_t, is_same_v

#include "evenkeel/core/types.hpp"  // Index

/// Comparisons of matrices.
namespace compare {

/// Whether two numbers are the same bits: tells 0 from -0 and one NaN from another.
template <typename Scalar>
bool same_bits(Scalar a, Scalar b) requires(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>) {
  using Bits = std::conditional_t<std::is_same_v<Scalar, float>, std::uint32_t, std::uint64_t>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
}

/// Whether two matrices have the same shape and in each place the same bits.
template <class A, class B>
bool same_bits(const A& a, const B& b) requires(!std::is_arithmetic_v<A>) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return false;
  for (evenkeel::Index i = 0; i < a.rows(); ++i)
    for (evenkeel::Index j = 0; j < a.cols(); ++j)
      if (!same_bits<typename A::Scalar>(a(i, j), b(i, j))) return false;
  return true;
}

/// The largest |actual - expected| / max(1, |expected|) over all elements; infinite where that is not a number or the
/// shapes differ.
template <class A, class B>
double difference(const A& actual, const B& expected) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (actual.rows() != expected.rows() || actual.cols() != expected.cols()) return infinity;
  long double largest = 0;
  for (evenkeel::Index i = 0; i < actual.rows(); ++i)
    for (evenkeel::Index j = 0; j < actual.cols(); ++j) {
      const auto number = static_cast<long double>(expected(i, j));
      const long double distance = std::abs(static_cast<long double>(actual(i, j)) - number);
      if (std::isnan(distance)) return infinity;
      const long double relative = std::abs(number) > 1 ? distance / std::abs(number) : distance;
      if (relative > largest) largest = relative;
    }
  return static_cast<double>(largest);
}

/// Machine epsilon as a double.
template <typename Scalar>
constexpr double epsilon = static_cast<double>(std::numeric_limits<Scalar>::epsilon());

}  // namespace compare
