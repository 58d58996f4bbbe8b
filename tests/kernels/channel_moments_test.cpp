#include "evenkeel/kernels/channel_moments.hpp"

#include <algorithm>  // max
#include <cmath>      // abs, sqrt, isnan
#include <cstddef>    // size_t
#include <limits>
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

using Moments = std::vector<kernels::ColumnMoments<double>>;
using Sums = std::vector<kernels::ChannelGradientSums<double>>;

template <typename Scalar>
Moments moments_of(ek::View<const Scalar> x, Index positions) {
  Moments moments(static_cast<std::size_t>(x.columns / positions), {5, 5, 5});  // as if used before
  kernels::channel_moments(x, positions, moments.data());
  return moments;
}

struct Shape {
  Index rows, channels, positions;
};
// Channels of which many, few and one fill a tile, in one piece and in several; of few rows and of many, and of more than are
// summed at a time in either way.
constexpr Shape shapes[] = {{1, 3, 2},     {7, 5, 15},    {7, 300, 3},  {131, 2, 64}, {60, 3, 200},
                            {125, 2, 480}, {125, 2, 481}, {37, 2, 200}, {1, 1, 1500}, {3, 2, 20000}};

/// Calls body(x, dy) in long double for all numbers of channel c.
template <typename Scalar, class Body>
void each(const ek::Matrix<Scalar>& x, const ek::Matrix<Scalar>& dy, Index positions, Index c, const Body& body) {
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = c * positions; j < (c + 1) * positions; ++j)
      body(static_cast<long double>(x(i, j)), static_cast<long double>(dy(i, j)));
}

/// Relative to the size that the numbers have.
double error(double actual, long double exact, long double size) {
  return static_cast<double>(std::abs(static_cast<long double>(actual) - exact) / size);
}

}  // namespace

TEMPLATE_TEST_CASE("Channel moments are those of all the channel's values", "[channel_moments]", double, float) {
  for (const Shape shape : shapes)
    for (const TestType offset : {TestType(0), TestType(100000)}) {
      ek::Matrix<TestType> x = values::random<TestType>(shape.rows, shape.channels * shape.positions, 1);
      for (Index c = 0; c < shape.channels; ++c)
        x.middleCols(c * shape.positions, shape.positions).array() += offset + static_cast<TestType>(c);
      const Moments moments = moments_of<TestType>(Storage<TestType>(x, Order::row_major).fixed(), shape.positions);
      const auto count = static_cast<long double>(shape.rows * shape.positions);
      double mean_error = 0, squares_error = 0;
      for (Index c = 0; c < shape.channels; ++c) {
        long double mean = 0, squares = 0;
        each(x, x, shape.positions, c, [&](long double value, long double) { mean += value / count; });
        each(x, x, shape.positions, c,
             [&](long double value, long double) { squares += (value - mean) * (value - mean); });
        const auto& actual = moments[static_cast<std::size_t>(c)];
        REQUIRE(actual.count == static_cast<double>(count));
        mean_error = (std::max)(mean_error, error(actual.mean, mean, std::abs(mean) + std::sqrt(squares / count)));
        squares_error = (std::max)(squares_error, error(actual.squares, squares, squares));
      }
      INFO(shape.rows << " x " << shape.channels << " x " << shape.positions << ", offset " << offset);
      CHECK(mean_error <= 16 * compare::epsilon<TestType>);
      // The means of pieces are off by their rounding in double.
      CHECK(squares_error <=
            8 * compare::epsilon<TestType> + (static_cast<double>(offset) + 300) * compare::epsilon<double>);
    }
}

TEMPLATE_TEST_CASE("The gradient's sums over channels are those over all of their values", "[channel_moments]", double,
                   float) {
  for (const Shape shape : shapes) {
    const auto x = values::random<TestType>(shape.rows, shape.channels * shape.positions, 1);
    const auto dy = values::random<TestType>(shape.rows, shape.channels * shape.positions, 2);
    const auto mean = values::random<TestType>(1, shape.channels, 3);
    const ek::Matrix<TestType> residual = values::random<TestType>(1, shape.channels, 4) / TestType(1024);
    Sums sums(static_cast<std::size_t>(shape.channels), {5, 5});
    kernels::channel_gradient_sums(Storage<TestType>(x, Order::row_major).fixed(),
                                   Storage<TestType>(dy, Order::row_major).fixed(), shape.positions, mean.data(),
                                   residual.data(), sums.data());
    const auto count = static_cast<long double>(shape.rows * shape.positions);
    double worst = 0;
    for (Index c = 0; c < shape.channels; ++c) {
      long double sum = 0, sum_centred = 0;
      each(x, dy, shape.positions, c, [&](long double value, long double d) {
        sum += d;
        sum_centred += d * (value - static_cast<long double>(mean(0, c)) - static_cast<long double>(residual(0, c)));
      });
      const auto& actual = sums[static_cast<std::size_t>(c)];
      worst = (std::max)({worst, error(actual.dy, sum, count), error(actual.dy_centred, sum_centred, count)});
    }
    INFO(shape.rows << " x " << shape.channels << " x " << shape.positions);
    CHECK(worst <= 8 * compare::epsilon<TestType>);  // terms of size up to 8 with two roundings each
  }
}

TEST_CASE("Sums over channels are the same bits in every storage order", "[channel_moments]") {
  for (const Shape shape : shapes) {
    if (shape.positions > 1500) continue;
    const auto x = values::random<float>(shape.rows, shape.channels * shape.positions, 1);
    const auto dy = values::random<float>(shape.rows, shape.channels * shape.positions, 2);
    const auto mean = values::random<float>(1, shape.channels, 3),
               residual = values::random<float>(1, shape.channels, 4);
    Moments first;
    Sums first_sums;
    for (const Order order : strided::orders) {
      Storage<float> input(x, order), delta(dy, order);
      const Moments moments = moments_of<float>(input.fixed(), shape.positions);
      Sums sums(moments.size(), {5, 5});
      kernels::channel_gradient_sums(input.fixed(), delta.fixed(), shape.positions, mean.data(), residual.data(),
                                     sums.data());
      if (first.empty()) {
        first = moments;
        first_sums = sums;
      }
      bool same = true;
      for (std::size_t c = 0; c < first.size(); ++c)
        same = same && compare::same_bits(moments[c].mean, first[c].mean) &&
               compare::same_bits(moments[c].squares, first[c].squares) &&
               compare::same_bits(sums[c].dy, first_sums[c].dy) &&
               compare::same_bits(sums[c].dy_centred, first_sums[c].dy_centred);
      INFO(shape.rows << " x " << shape.channels << " x " << shape.positions);
      CHECK(same);
    }
  }
}

TEST_CASE("A channel's mean is corrected by the sum of what it leaves", "[channel_moments]") {
  // Doubles so large that the first mean is rounded, in one short row and in long ones.
  ek::Matrix<double> x(1, 3);
  x << 0x1p53, 0x1p53 + 2, 0x1p53 + 2;
  CHECK(moments_of<double>({x.data(), 1, 3, 3, 1}, 3)[0].squares == Catch::Approx(8.0 / 3).epsilon(1e-15));
  const ek::Matrix<double> wide = x.replicate(1, 200);
  CHECK(moments_of<double>({wide.data(), 1, 600, 600, 1}, 600)[0].squares == Catch::Approx(1600.0 / 3).epsilon(1e-14));
  // The sum of so many times 0.1 is rounded at every step.
  const ek::Matrix<double> tenths = ek::Matrix<double>::Constant(3, 600, 0.1);
  CHECK(moments_of<double>({tenths.data(), 3, 127, 600, 1}, 127)[0].mean == Catch::Approx(0.1).epsilon(2e-16));
  CHECK(moments_of<double>({tenths.data(), 3, 600, 600, 1}, 600)[0].mean == Catch::Approx(0.1).epsilon(2e-16));
}

TEST_CASE("Channels whose squares leave the range of float have moments like all others", "[channel_moments]") {
  for (const Index positions : {40, 600})
    for (const float scale : {1e25f, 1e-25f}) {
      ek::Matrix<float> x = values::random<float>(70, 2 * positions, 3);
      x.leftCols(positions) *= scale;
      const ek::Matrix<double> exact = x.cast<double>().leftCols(positions);
      const double mean = exact.mean(), squares = (exact.array() - mean).square().sum();
      const Moments moments = moments_of<float>({x.data(), 70, 2 * positions, 2 * positions, 1}, positions);
      INFO(positions << " positions, scaled by " << scale);
      CHECK(moments[0].mean == Catch::Approx(mean).epsilon(1e-6));
      CHECK(moments[0].squares == Catch::Approx(squares).epsilon(1e-6));
      CHECK(moments[1].squares < 1e6);
    }
  // Equal values have no deviation, small ones neither.
  for (const float value : {0.0f, 1e30f, 1e-30f}) {
    const ek::Matrix<float> x = ek::Matrix<float>::Constant(20, 600, value);
    for (const Index positions : {60, 600})
      CHECK(moments_of<float>({x.data(), 20, 600, 600, 1}, positions)[0].squares <=
            1e-6 * static_cast<double>(value) * static_cast<double>(value));
  }
}

TEST_CASE("A NaN spoils the sums of its channel alone", "[channel_moments]") {
  for (const Index positions : {5, 600}) {
    ek::Matrix<float> x = values::random<float>(9, 3 * positions, 1);
    x(4, positions + 2) = std::numeric_limits<float>::quiet_NaN();
    const Moments moments = moments_of<float>({x.data(), 9, 3 * positions, 3 * positions, 1}, positions);
    CHECK(std::isnan(moments[1].mean));
    CHECK(std::isnan(moments[1].squares));
    CHECK(std::isfinite(moments[0].squares));
    CHECK(std::isfinite(moments[2].squares));
  }
}
