#include "evenkeel/kernels/moments.hpp"

#include <array>
#include <cmath>  // sqrt, abs
#include <limits>
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;

namespace {

template <typename Scalar>
kernels::RowMoments<Scalar> moments_of(const std::vector<Scalar>& x, double epsilon = 1e-5) {
  return kernels::row_moments(std::array{x.data()}, static_cast<Index>(x.size()), epsilon).get(0);
}

template <typename Scalar>
Scalar inverse_rms_of(const std::vector<Scalar>& x, double epsilon = 1e-5) {
  return kernels::row_inverse_rms(std::array{x.data()}, static_cast<Index>(x.size()), epsilon)[0];
}

template <typename Scalar>
std::vector<Scalar> times(std::vector<Scalar> x, Scalar factor) {
  for (Scalar& number : x) number *= factor;
  return x;
}

}  // namespace

TEST_CASE("with_strides gives a constant only where every stride is one", "[moments]") {
  const auto constant = [](auto... strides) {
    return kernels::with_strides(
        [](auto... given) { return (std::is_same_v<decltype(given), kernels::UnitStride> && ...); }, Index{strides}...);
  };
  CHECK(constant(1));
  CHECK(constant(1, 1, 1));
  CHECK_FALSE(constant(2));
  CHECK_FALSE(constant(1, 1, 2));
  CHECK_FALSE(constant(0, 1));
}

TEST_CASE("sums adds every term once, for every length", "[moments]") {
  for (Index count = 0; count <= 70; ++count) {
    const auto [ones, squares] = kernels::sums<double, 2>(count, [](Index j) {
      return std::array{1.0, static_cast<double>(j * j)};
    });
    CHECK(ones == static_cast<double>(count));
    CHECK(squares == static_cast<double>((count - 1) * count * (2 * count - 1) / 6));
  }
}

TEST_CASE("Row moments are the mean, and one over the root of the biased variance plus epsilon", "[moments]") {
  for (Index size = 1; size <= 40; ++size) {
    const ek::Matrix<double> x = values::random<double>(1, size, static_cast<std::uint32_t>(size));
    long double mean = 0, variance = 0;
    for (Index j = 0; j < size; ++j) mean += static_cast<long double>(x(0, j)) / size;
    for (Index j = 0; j < size; ++j)
      variance += (static_cast<long double>(x(0, j)) - mean) * (static_cast<long double>(x(0, j)) - mean) / size;
    const auto moments = kernels::row_moments(std::array<const double*, 1>{x.data()}, size, 0.25).get(0);
    INFO(size);
    CHECK(std::abs(static_cast<long double>(moments.mean) + static_cast<long double>(moments.mean_residual) - mean) <
          2e-16L);
    CHECK(std::abs(static_cast<long double>(moments.inverse_deviation) - 1 / std::sqrt(variance + 0.25L)) < 1e-15L);
  }
}

TEST_CASE("The residual holds what the mean's type rounds away", "[moments]") {
  const auto moments = moments_of<float>({10000.001f, 10000.002f, 10000.004f});
  const double exact =
      (static_cast<double>(10000.001f) + static_cast<double>(10000.002f) + static_cast<double>(10000.004f)) / 3;
  CHECK(static_cast<double>(moments.mean) != exact);
  CHECK(std::abs(static_cast<double>(moments.mean) + static_cast<double>(moments.mean_residual) - exact) < 1e-10);
  CHECK(moments.normalize(10000.001f) ==
        ((10000.001f - moments.mean) - moments.mean_residual) * moments.inverse_deviation);

  // In double, where there is no wider type to sum in: the second pass finds what the first one lost.
  const auto wide = moments_of<double>({1e15 + 0.125, 1e15 + 0.25, 1e15 + 0.5, 1e15});
  CHECK(wide.mean + wide.mean_residual == 1e15 + 0.21875);
  CHECK((1e15 - wide.mean) - wide.mean_residual == -0.21875);
}

TEST_CASE("A row of equal numbers has a deviation of nothing but epsilon", "[moments]") {
  for (const float value : {300.1f, 12.1f, 123456789.0f, 1e10f, -3e30f}) {
    const auto moments = moments_of(std::vector<float>(7, value), 0.25);
    CHECK(moments.mean == value);
    CHECK(moments.mean_residual == 0);
    CHECK(moments.inverse_deviation == 2);
  }
}

TEST_CASE("Rows whose squares overflow are scaled", "[moments]") {
  const std::vector<double> row{1, 2, 4, 7, -3, 0, 0, 5, 6};
  const auto plain = moments_of(row, 1e-300);
  for (const double size : {1e153, 1e155, 1e200, 1e300, 2e307}) {
    INFO("times " << size);
    const auto moments = moments_of(times(row, size));
    CHECK(moments.mean / size == Catch::Approx(plain.mean).epsilon(1e-14));
    CHECK(moments.inverse_deviation * size == Catch::Approx(plain.inverse_deviation).epsilon(1e-14));
    CHECK(moments.normalize(7 * size) == Catch::Approx(plain.normalize(7)).epsilon(1e-14));
    CHECK(inverse_rms_of(times(row, size)) * size == Catch::Approx(inverse_rms_of(row, 1e-300)).epsilon(1e-14));
  }
  const auto of_float = moments_of(times({1.0f, 2.0f, 4.0f, 7.0f}, 1e25f));
  CHECK(static_cast<double>(of_float.normalize(7e25f)) ==
        Catch::Approx(moments_of<double>({1, 2, 4, 7}, 1e-300).normalize(7)).epsilon(1e-6));
}

TEST_CASE("A sum that overflows is no reason to lose the mean", "[moments]") {
  const double large = std::numeric_limits<double>::max();
  const auto moments = moments_of(std::vector<double>(20, large), 0.25);
  CHECK(moments.mean + moments.mean_residual == large);
  CHECK(moments.inverse_deviation == 2);  // of epsilon alone
  CHECK(moments.normalize(large) == 0);
}

TEST_CASE("What is not finite stays so", "[moments]") {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CHECK(std::isnan(moments_of<double>({1, bad, 2}).normalize(1)));
    CHECK(std::isnan(moments_of<double>({1e200, bad, 2}).normalize(1)));
    CHECK(std::isnan(moments_of<float>({1, static_cast<float>(bad), 2}).normalize(1)));
  }
  CHECK(std::isnan(inverse_rms_of<double>({1, std::numeric_limits<double>::quiet_NaN(), 1e200})));
  CHECK(inverse_rms_of<double>({1, std::numeric_limits<double>::infinity()}) == 0);
}

TEST_CASE("range_scale is a power of two that brings the largest into [1/2, 1)", "[moments]") {
  const auto scale = [](const std::vector<double>& x) {
    return kernels::detail::range_scale(x.data(), static_cast<Index>(x.size()));
  };
  CHECK(scale({0, -3, 2}) == 0.25);
  CHECK(scale({0.25}) == 2);
  CHECK(scale({0, 0}) == 1);
  CHECK(scale({1e300, std::numeric_limits<double>::infinity()}) == 1);
  CHECK(scale({std::numeric_limits<double>::quiet_NaN(), 1e300}) == 1);
}

TEST_CASE("add_partial_sums sets or adds the sum over the chunks, or does nothing", "[moments]") {
  const double partial[] = {1, 2, -9, 10, 20, -9, 100, 200, -9};  // three chunks, three apart, two numbers each
  float target[] = {1000, 2000, 3000};
  kernels::add_partial_sums(partial, 3, 3, 2, ek::Accumulate::yes, target);
  CHECK(target[0] == 1111);
  CHECK(target[1] == 2222);
  CHECK(target[2] == 3000);
  kernels::add_partial_sums(partial, 3, 3, 2, ek::Accumulate::no, target);
  CHECK(target[0] == 111);
  CHECK(target[1] == 222);
  kernels::add_partial_sums(partial, 0, 3, 2, ek::Accumulate::no, target);
  CHECK(target[1] == 0);
  kernels::add_partial_sums(partial, 3, 3, 2, ek::Accumulate::no, static_cast<float*>(nullptr));
}
