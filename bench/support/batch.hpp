#pragma once

// The batches that all programs work on.

#include <Eigen/Core>

#include <array>
#include <cstddef>
#include <string>

#include "bench/support/pairs.hpp"
#include "evenkeel/core/random.hpp"
#include "evenkeel/core/types.hpp"

namespace bench {

using evenkeel::Index;

struct Shape {
  Index rows, columns;
  Index size() const { return rows * columns; }
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(columns); }
};

/// In the first cache, in the second, about the last one's size, and far beyond any.
inline constexpr std::array shapes = {Shape{32, 64}, Shape{512, 768}, Shape{8192, 768}, Shape{16384, 4096}};
inline constexpr Shape middle_shape = shapes[1];

/// Numbers in [-1, 1).
template <class Array>
void fill(Array& array, evenkeel::RandomStream& random) {
  using Scalar = typename Array::Scalar;
  for (Index i = 0; i < array.size(); ++i) array[i] = static_cast<Scalar>(random.word()) * Scalar(0x1p-31) - Scalar(1);
}

/// Four arrays, aligned as Eigen's matrices are, filled and so touched.
template <typename Scalar>
struct Arrays {
  Eigen::Array<Scalar, Eigen::Dynamic, 1> x, dy, y, dx;

  explicit Arrays(Index count = 0) { grow(count); }

  void grow(Index count) {
    if (count <= x.size()) return;
    evenkeel::RandomStream random(0, evenkeel::stream_of("bench"));
    for (auto* array : {&x, &dy, &y, &dx}) {
      array->resize(count);
      fill(*array, random);
    }
  }

  /// One set for all benchmarks of a type, so that memory is bounded by the largest.
  static Arrays& shared(Index count) {
    static Arrays arrays;
    arrays.grow(count);
    return arrays;
  }
};

/// How the numbers of a batch lie in memory; strided is a block of a wider row-major matrix.
enum class Layout { rows, columns, strided };

/// Input, output and their gradients in one shape and layout, and parameters for its columns.
template <typename Scalar_, Layout layout = Layout::rows>
struct Batch {
  using Scalar = Scalar_;
  static constexpr int order = layout == Layout::columns ? Eigen::ColMajor : Eigen::RowMajor;
  using Map =
      Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, order>, Eigen::Unaligned, Eigen::OuterStride<>>;
  using Vector = Eigen::Array<Scalar, Eigen::Dynamic, 1>;

  Map x, dy, y, dx;
  Vector weight, bias;
  Yardstick<Scalar> yardstick;

  explicit Batch(Shape shape) : Batch(shape, Arrays<Scalar>::shared(shape.rows * stride(shape))) {}
  Batch(Shape shape, Arrays<Scalar>& arrays)
      : x{map(shape, arrays.x)},
        dy{map(shape, arrays.dy)},
        y{map(shape, arrays.y)},
        dx{map(shape, arrays.dx)},
        weight(shape.columns),
        bias(shape.columns),
        yardstick{static_cast<std::size_t>(shape.size()), x.data(), dy.data(), dx.data()} {
    evenkeel::RandomStream random(0, evenkeel::stream_of("parameters"));
    fill(weight, random);
    fill(bias, random);
  }

  Index rows() const { return x.rows(); }
  Index columns() const { return x.cols(); }

 private:
  static Index stride(Shape shape) {
    return layout == Layout::strided ? shape.columns + shape.columns / 4 : shape.columns;
  }
  static Map map(Shape shape, Vector& array) {
    const Index outer = layout == Layout::columns ? shape.rows : stride(shape);
    return Map(array.data(), shape.rows, shape.columns, Eigen::OuterStride<>(outer));
  }
};

/// The path of a benchmark of `what` on a shape: layer_norm_forward/512x768, and perhaps /double behind it.
inline std::string path(const std::string& what, Shape shape, const std::string& variant = "") {
  return what + "/" + shape.name() + (variant.empty() ? "" : "/" + variant);
}

}  // namespace bench
