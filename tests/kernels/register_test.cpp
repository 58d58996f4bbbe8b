#include "evenkeel/kernels/register.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "catch.hpp"
#include "core/compare.hpp"

namespace kernels = evenkeel::kernels;

namespace {

template <typename Scalar>
constexpr auto width = static_cast<std::size_t>(kernels::register_count<Scalar>);

/// f of one register after another, on numbers that do not lie at the register's alignment.
template <typename Scalar, std::size_t Count, class Function>
std::array<Scalar, Count> each_register(const std::array<Scalar, Count>& x, const Function& f) {
  std::array<Scalar, Count> y{};
  for (std::size_t i = 1; i + width<Scalar> <= Count; i += width<Scalar>)
    kernels::store(y.data() + i, f(kernels::load<kernels::Register<Scalar>>(x.data() + i)));
  return y;
}

}  // namespace

TEMPLATE_TEST_CASE("Square roots of a register are rounded correctly", "[register]", float, double, long double) {
  using Limits = std::numeric_limits<TestType>;
  std::array<TestType, 65> x{TestType(0),     TestType(0), TestType(2),        Limits::denorm_min(), (Limits::max)(),
                             (Limits::min)(), TestType(5), Limits::infinity(), TestType(-0.0)};
  for (std::size_t i = 9; i < x.size(); ++i) x[i] = TestType(0.37L) * static_cast<TestType>(i * i);
  const auto roots = each_register(
      x, [](const kernels::Register<TestType>& values) { return kernels::square_root<TestType>(values); });
  for (std::size_t i = 1; i < x.size(); ++i) {
    CHECK(roots[i] == std::sqrt(x[i]));
    CHECK(std::signbit(roots[i]) == std::signbit(x[i]));
  }
}

TEMPLATE_TEST_CASE("The larger of two registers is the second where either is NaN", "[register]", float, double,
                   long double) {
  using R = kernels::Register<TestType>;
  const TestType nan = std::numeric_limits<TestType>::quiet_NaN();
  std::array<TestType, 65> x{TestType(0), TestType(1), TestType(-2), nan, TestType(3)};
  const auto with_one = each_register(x, [](const R& values) {
    const R one = values - values + TestType(1);
    return kernels::larger<R>(values, one);
  });
  CHECK(with_one[1] == 1);
  CHECK(with_one[2] == 1);
  CHECK(std::isnan(with_one[3]));  // the one is NaN there too
  CHECK(with_one[4] == 3);
  const auto with_nan = each_register(x, [nan](const R& values) { return kernels::larger<R>(values, values + nan); });
  for (std::size_t i = 1; i < x.size(); ++i) CHECK(std::isnan(with_nan[i]));
}
