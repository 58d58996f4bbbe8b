#pragma once

#include <algorithm>    // max
#include <cmath>        // abs, frexp, ldexp
#include <type_traits>  // is_same_v

#include "evenkeel/core/types.hpp"  // Matrix, Index
#include "layers/reference.hpp"     // Numbers

namespace rounding {

/// Whether each number is `expected`, once computed in float, with a last bit or two off, and then rounded once.
template <typename Stored>
bool rounded_once(const evenkeel::Matrix<Stored>& numbers, const reference::Numbers& expected) {
  constexpr int fraction = std::is_same_v<Stored, Eigen::half> ? 10 : 7;
  constexpr int lowest = std::is_same_v<Stored, Eigen::half> ? -14 : -126;  // exponent of the smallest normal number
  const long double float_error = std::ldexp(expected.cwiseAbs().maxCoeff(), -21);
  for (evenkeel::Index i = 0; i < expected.rows(); ++i)
    for (evenkeel::Index j = 0; j < expected.cols(); ++j) {
      int exponent;
      std::frexp(expected(i, j), &exponent);
      const long double unit = std::ldexp(1.0L, (std::max)(exponent - 1, lowest) - fraction);  // of the last place
      if (!(std::abs(static_cast<long double>(numbers(i, j)) - expected(i, j)) <= unit / 2 + float_error)) return false;
    }
  return true;
}

}  // namespace rounding
