#include "evenkeel/kernels/batch_norm.hpp"

#include <algorithm>  // max
#include <cmath>      // abs, sqrt, pow
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using strided::Order;
using strided::Storage;

namespace {

template <typename Scalar>
using Moments = std::vector<kernels::ColumnMoments<ek::Wide<Scalar>>>;

template <typename Scalar>
Moments<Scalar> moments_of(ek::View<const Scalar> x) {
  const Index room = kernels::column_moments_room(x.rows, x.columns);
  CHECK(room >= x.columns);
  Moments<Scalar> moments(static_cast<std::size_t>(room), {5, 5, 5});  // as if used before
  kernels::column_moments(x, moments.data());
  moments.resize(static_cast<std::size_t>(x.columns));
  return moments;
}

/// Compares with two passes over each column in long double.
template <typename Scalar>
void check_moments(const ek::Matrix<Scalar>& x, const Moments<Scalar>& moments) {
  double mean_error = 0, squares_error = 0;
  for (Index j = 0; j < x.cols(); ++j) {
    long double mean = 0, squares = 0;
    for (Index i = 0; i < x.rows(); ++i) mean += static_cast<long double>(x(i, j));
    mean /= static_cast<long double>(x.rows());
    for (Index i = 0; i < x.rows(); ++i) {
      const long double deviation = static_cast<long double>(x(i, j)) - mean;
      squares += deviation * deviation;
    }
    const auto& column = moments[static_cast<std::size_t>(j)];
    CHECK(column.count == static_cast<double>(x.rows()));
    const auto error = [](long double actual, long double exact, long double size) {
      return static_cast<double>(std::abs(actual - exact) / (size > 0 ? size : 1));
    };
    const long double size = std::abs(mean) + std::sqrt(squares / static_cast<long double>(x.rows()));
    mean_error = std::max(mean_error, error(static_cast<long double>(column.mean), mean, size));
    squares_error = std::max(squares_error, error(static_cast<long double>(column.squares), squares, squares));
  }
  INFO(x.rows() << " x " << x.cols());
  CHECK(mean_error <= (std::is_same_v<Scalar, float> ? 1e-7 : 1e-15));
  CHECK(squares_error <= (std::is_same_v<Scalar, float> ? 3e-7 : 3e-12));
}

}  // namespace

TEST_CASE("Merged moments are those of all values", "[batch_norm]") {
  kernels::ColumnMoments<double> moments;
  moments.merge({});
  CHECK(moments.mean == 0);
  moments.merge({2, 1.5, 0.5});  // 1, 2
  CHECK(moments.mean == 1.5);
  moments.merge({});          // none
  moments.merge({3, 5, 14});  // 2, 5, 8 would have 18; 3, 4, 8 have 14
  CHECK(moments.count == 5);
  CHECK(moments.mean == Catch::Approx(18.0 / 5).epsilon(1e-15));
  CHECK(moments.squares == Catch::Approx(1 + 4 + 9 + 16 + 64 - 18 * 18 / 5.0).epsilon(1e-15));
}

TEMPLATE_TEST_CASE("Column moments are right across tiles of columns and blocks of rows", "[batch_norm]", double,
                   float) {
  for (const Index rows : {1, 2, 127, 128, 129, 300})
    for (const Index columns : {1, 63, 64, 65, 130}) {
      ek::Matrix<TestType> x = values::random<TestType>(rows, columns, 1);
      x.array() += TestType(100000);
      check_moments<TestType>(x, moments_of<TestType>(Storage<TestType>(x, Order::row_major).fixed()));
    }
}

TEST_CASE("Column moments are right across chunks of rows", "[batch_norm]") {
  for (const Index rows : {9001, 40001}) {  // 4 and 16 chunks
    ek::Matrix<double> x = values::random<double>(rows, 17, 2);
    x.array() += 1000;
    x.col(3).array() += Eigen::ArrayXd::LinSpaced(rows, 0, 1000);  // no chunk has the mean of the whole
    check_moments<double>(x, moments_of<double>(Storage<double>(x, Order::row_major).fixed()));
  }
}

TEST_CASE("Column moments are the same bits in every storage order", "[batch_norm]") {
  const auto x = values::random<float>(200, 70, 1);
  const auto plain = moments_of<float>(Storage<float>(x, Order::row_major).fixed());
  for (const Order order : strided::orders) {
    const auto moments = moments_of<float>(Storage<float>(x, order).fixed());
    for (std::size_t j = 0; j < plain.size(); ++j) {
      CHECK(compare::same_bits(moments[j].mean, plain[j].mean));
      CHECK(compare::same_bits(moments[j].squares, plain[j].squares));
    }
  }
}

TEST_CASE("A block's mean is corrected by the sum of what it leaves", "[batch_norm]") {
  // Doubles so large that the first mean is rounded: without the correction the squares are off by that rounding's.
  ek::Matrix<double> x(3, 1);
  x << 0x1p53, 0x1p53 + 2, 0x1p53 + 2;
  const auto moments = moments_of<double>(Storage<double>(x, Order::row_major).fixed());
  CHECK(moments[0].squares == Catch::Approx(8.0 / 3).epsilon(1e-15));
  // The sum of 127 times 0.1 is rounded at every step.
  const ek::Matrix<double> tenths = ek::Matrix<double>::Constant(127, 1, 0.1);
  CHECK(moments_of<double>(Storage<double>(tenths, Order::row_major).fixed())[0].mean == 0.1);
}

TEST_CASE("Each column has moments of its own, whatever the size of the others", "[batch_norm]") {
  ek::Matrix<double> x = values::random<double>(9, 150, 1);
  for (Index j = 0; j < x.cols(); ++j) x.col(j) *= std::pow(10.0, (7 * j) % 31 - 15);
  check_moments<double>(x, moments_of<double>(Storage<double>(x, Order::row_major).fixed()));
}

TEST_CASE("Columns whose squares leave the range of float have moments like all others", "[batch_norm]") {
  ek::Matrix<float> x = values::random<float>(70, 40, 3);  // two blocks of rows
  x.col(3) *= 1e25f;
  x.col(7) *= 1e-25f;
  x.col(9).setConstant(1e30f);
  x.col(11).setZero();
  check_moments<float>(x, moments_of<float>(Storage<float>(x, Order::row_major).fixed()));
}

TEST_CASE("Moments and sums of no rows are those of nothing", "[batch_norm]") {
  for (const auto& moments : moments_of<double>({nullptr, 0, 3, 3, 1})) {
    CHECK(moments.count == 0);
    CHECK(moments.squares == 0);
  }
  const double mean[3] = {}, residual[3] = {};
  const ek::View<const double> none{nullptr, 0, 3, 3, 1};
  std::vector<kernels::ChannelGradientSums<double>> sums(3, {5, 5});
  kernels::column_gradient_sums(none, none, mean, residual, sums.data());
  for (const auto& sum : sums) {
    CHECK(sum.dy == 0);
    CHECK(sum.dy_centred == 0);
  }
}

TEMPLATE_TEST_CASE("The gradient's column sums are right across tiles and chunks", "[batch_norm]", double, float) {
  struct Shape {
    Index rows, columns;
  };
  for (const auto& [rows, columns] : {Shape{3, 130}, Shape{129, 64}, Shape{9001, 17}, Shape{40001, 17}}) {
    const auto x = values::random<TestType>(rows, columns, 1);
    const auto dy = values::random<TestType>(rows, columns, 2);
    const auto mean = values::random<TestType>(1, columns, 3);
    const ek::Matrix<TestType> residual = values::random<TestType>(1, columns, 4) / TestType(1024);
    std::vector<kernels::ChannelGradientSums<double>> sums(
        static_cast<std::size_t>(kernels::column_gradient_sums_room(rows, columns)), {5, 5});  // as if used before
    kernels::column_gradient_sums(Storage<TestType>(x, Order::row_major).fixed(),
                                  Storage<TestType>(dy, Order::row_major).fixed(), mean.data(), residual.data(),
                                  sums.data());
    ek::Matrix<long double> expected = ek::Matrix<long double>::Zero(2, columns), actual(2, columns);
    for (Index j = 0; j < columns; ++j) {
      for (Index i = 0; i < rows; ++i) {
        const auto delta = static_cast<long double>(dy(i, j));
        expected(0, j) += delta;
        expected(1, j) += delta * (static_cast<long double>(x(i, j)) - static_cast<long double>(mean(0, j)) -
                                   static_cast<long double>(residual(0, j)));
      }
      actual(0, j) = static_cast<long double>(sums[static_cast<std::size_t>(j)].dy);
      actual(1, j) = static_cast<long double>(sums[static_cast<std::size_t>(j)].dy_centred);
    }
    INFO(rows << " x " << columns);
    // The terms, of size 4, carry two roundings each, and the sum in double, of size root(rows), one for each of them.
    const auto count = static_cast<double>(rows);
    const double tolerance = 8 * std::sqrt(count) * compare::epsilon<TestType> + count * compare::epsilon<double>;
    CHECK((actual - expected).cwiseAbs().maxCoeff() <= static_cast<long double>(tolerance));
  }
}

TEST_CASE("The transformations by channel are their equations, in every storage order", "[batch_norm]") {
  constexpr Index rows = 70, columns = 1260;  // more than are packed at a time
  const auto x = values::random<double>(rows, columns, 1), dy = values::random<double>(rows, columns, 2);
  const auto numbers = values::random<double>(5, columns, 3);
  const double *a = &numbers(0, 0), *b = &numbers(1, 0), *c = &numbers(2, 0), *d = &numbers(3, 0), *e = &numbers(4, 0);
  for (const Index positions : {1, 2, 105, 630}) {
    ek::Matrix<double> transformed(rows, columns), scaled(rows, columns), gradient(rows, columns);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j) {
        const Index k = j / positions;
        transformed(i, j) = (x(i, j) - a[k] - b[k]) * c[k] + d[k];
        scaled(i, j) = dy(i, j) * a[k];
        gradient(i, j) = (dy(i, j) - d[k] - (x(i, j) - a[k] - b[k]) * e[k]) * c[k];
      }
    for (const Order in : strided::orders)
      for (const Order out : strided::orders) {
        Storage<double> input(x, in), delta(dy, in), y(x, out);
        kernels::transform_channels(input.fixed(), positions, {a, b, c, d}, y.view());
        CHECK(compare::difference(y.matrix(), transformed) <= 4 * compare::epsilon<double>);
        kernels::scale_channels(delta.fixed(), positions, a, y.view());
        CHECK(compare::difference(y.matrix(), scaled) == 0);
        kernels::transform_channel_gradients(input.fixed(), delta.fixed(), positions, {a, b, c, d, e}, y.view());
        CHECK(compare::difference(y.matrix(), gradient) <= 4 * compare::epsilon<double>);
        CHECK(y.gaps_untouched());
      }
  }
}
