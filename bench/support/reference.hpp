#pragma once

// What a norm should give, by plain loops in long double, and how far a result is from it.

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <limits>

#include "evenkeel/core/types.hpp"

namespace bench {

using evenkeel::Index;

/// The numbers that share their statistics.
enum class Group { row, column };
/// What is divided out: the deviation from the mean, or the size (RMSNorm).
enum class Norm { deviation, root_mean_square };

struct Reference {
  using Matrix = evenkeel::Matrix<long double>;
  Matrix y, dx;
  Matrix dweight;  // (1, columns)
};

/// Of y = weight * (x - mean) / sqrt(variance + epsilon) + bias, without mean and bias for the root mean square.
template <class B>
Reference reference(const B& batch, Group group, Norm norm) {
  using Real = long double;
  constexpr Real epsilon = 1e-5L;
  const bool by_row = group == Group::row, centred = norm == Norm::deviation;
  const Index rows = batch.rows(), columns = batch.columns();
  const Index groups = by_row ? rows : columns, size = by_row ? columns : rows;
  const auto n = static_cast<Real>(size);

  Reference result{Reference::Matrix(rows, columns), Reference::Matrix(rows, columns),
                   Reference::Matrix::Zero(1, columns)};
  for (Index g = 0; g < groups; ++g) {
    const auto row = [&](Index i) { return by_row ? g : i; };
    const auto column = [&](Index i) { return by_row ? i : g; };
    const auto x = [&](Index i) { return static_cast<Real>(batch.x(row(i), column(i))); };
    const auto dy = [&](Index i) { return static_cast<Real>(batch.dy(row(i), column(i))); };
    const auto weight = [&](Index i) { return static_cast<Real>(batch.weight[column(i)]); };

    Real mean = 0, square = 0;
    if (centred)
      for (Index i = 0; i < size; ++i) mean += x(i);
    mean /= n;
    for (Index i = 0; i < size; ++i) square += (x(i) - mean) * (x(i) - mean);
    const Real inverse = 1 / std::sqrt(square / n + epsilon);

    Real mean_slope = 0, mean_product = 0;  // of the gradient on the normalized number, and of its product with that
    for (Index i = 0; i < size; ++i) {
      const Real normalized = (x(i) - mean) * inverse, slope = weight(i) * dy(i);
      const Real bias = centred ? static_cast<Real>(batch.bias[column(i)]) : 0;
      result.y(row(i), column(i)) = weight(i) * normalized + bias;
      result.dweight(0, column(i)) += dy(i) * normalized;
      if (centred) mean_slope += slope / n;
      mean_product += slope * normalized / n;
    }
    for (Index i = 0; i < size; ++i) {
      const Real normalized = (x(i) - mean) * inverse;
      result.dx(row(i), column(i)) = inverse * (weight(i) * dy(i) - mean_slope - normalized * mean_product);
    }
  }
  return result;
}

/// Of a result, over the largest number that the reference holds (over one, where that holds nothing but zeros).
struct Error {
  double largest = 0;
  double root_mean_square = 0;

  static constexpr double not_finite = 1e30;  ///< Stands for results that are NaN or infinite.
};

/// `result` lies row by row.
inline Error error_of(const float* result, const Reference::Matrix& expected) {
  long double largest = 0, squares = 0, scale = 0;
  for (Index i = 0; i < expected.size(); ++i) {
    const long double difference = std::abs(static_cast<long double>(result[i]) - expected.data()[i]);
    if (!(difference < std::numeric_limits<long double>::infinity())) return {Error::not_finite, Error::not_finite};
    largest = (std::max)(largest, difference);
    squares += difference * difference;
    scale = (std::max)(scale, std::abs(expected.data()[i]));
  }
  if (scale == 0) scale = 1;
  return {static_cast<double>(largest / scale),
          static_cast<double>(std::sqrt(squares / static_cast<long double>(expected.size())) / scale)};
}

}  // namespace bench
