#pragma once

#include <cstdint>  // uint32_t
#include <random>   // mt19937: its numbers, unlike those of distributions, are fixed by the standard

#include "evenkeel/core/types.hpp"  // Matrix, Index

/// Numbers to test with, the same on every platform.
namespace values {

/// Multiples of 2^-18 in (-2, 2), which float holds exactly; none nearer to zero than 1/64, so that the steps of finite
/// differences stay clear of kinks there.
template <typename Scalar>
evenkeel::Matrix<Scalar> random(evenkeel::Index rows, evenkeel::Index columns, std::uint32_t seed) {
  std::mt19937 engine(seed);
  evenkeel::Matrix<Scalar> result(rows, columns);
  for (evenkeel::Index i = 0; i < rows; ++i)
    for (evenkeel::Index j = 0; j < columns; ++j) {
      double number = static_cast<double>(engine() >> 12) / 262144 - 2;
      if (number > -1.0 / 64 && number < 1.0 / 64) number += 1.0 / 16;
      result(i, j) = static_cast<Scalar>(number);
    }
  return result;
}

/// Numbers of the same kind in (1/2, 5/2).
template <typename Scalar>
evenkeel::Matrix<Scalar> positive(evenkeel::Index rows, evenkeel::Index columns, std::uint32_t seed) {
  return ((random<Scalar>(rows, columns, seed).array() + Scalar(3)) / Scalar(2)).matrix();
}

}  // namespace values
