#include "evenkeel/checking/derivative.hpp"

#include <cmath>
#include <limits>

#include "catch.hpp"

namespace checking = evenkeel::checking;

namespace {

struct Counted {
  checking::Derivative derivative;
  int evaluations = 0;
  long double largest_step = 0;
};

/// The derivative of a function of one number, evaluated in the number's type.
template <typename Scalar, class F>
Counted differentiate(F function, Scalar x, long double analytic, long double step = 0) {
  checking::Contraction contraction;
  contraction.weights = checking::Values::Ones(1);
  contraction.base = checking::Values::Constant(1, static_cast<long double>(function(x)));
  contraction.epsilon = static_cast<long double>(std::numeric_limits<Scalar>::epsilon());
  Counted result;
  const auto evaluate = [&](Scalar at, checking::Values& outputs) {
    ++result.evaluations;
    result.largest_step = (std::max)(result.largest_step, std::abs(static_cast<long double>(at - x)));
    outputs = checking::Values::Constant(1, static_cast<long double>(function(at)));
  };
  result.derivative = checking::differentiate(x, evaluate, contraction, {analytic, 1e-6L, step});
  return result;
}

/// Whether the value is as close as the comparison needs it, and its error estimate is true and close enough too.
void check_close(const checking::Derivative& derivative, long double expected, long double tolerance = 1e-6L) {
  CHECK_FALSE(derivative.kink);
  CHECK(std::abs(derivative.value - expected) <= tolerance * std::abs(expected));
  CHECK(derivative.error <= 2 * tolerance * std::abs(expected));
  CHECK(std::abs(derivative.value - expected) <= derivative.error);
}

}  // namespace

TEST_CASE("The derivative of a smooth function is found in four evaluations", "[derivative]") {
  const Counted linear = differentiate([](long double x) { return 3 * x; }, 0.7L, 3.0L);
  check_close(linear.derivative, 3.0L, 1e-14L);
  CHECK(linear.evaluations == 4);
  const Counted exponential = differentiate([](long double x) { return std::exp(x); }, 1.0L, std::exp(1.0L));
  check_close(exponential.derivative, std::exp(1.0L));
  CHECK(exponential.evaluations == 4);
  // The value is far better than its estimate says: the estimate is that of the entry before.
  CHECK(std::abs(exponential.derivative.value - std::exp(1.0L)) < 1e-14L);
}

TEST_CASE("The error estimate holds in each type", "[derivative]") {
  const auto check = [](auto one, long double tolerance) {
    using Scalar = decltype(one);
    const Scalar x = static_cast<Scalar>(0.75);
    const auto exact = static_cast<long double>(x);
    check_close(differentiate([](Scalar v) { return std::exp(v); }, x, 1).derivative, std::exp(exact), tolerance);
    check_close(differentiate([](Scalar v) { return std::sin(v); }, x, 1).derivative, std::cos(exact), tolerance);
    check_close(differentiate([](Scalar v) { return 1 / v; }, x, 1).derivative, -1 / (exact * exact), tolerance);
    check_close(differentiate([](Scalar v) { return std::tanh(4 * v); }, x, 1).derivative,
                4 / (std::cosh(4 * exact) * std::cosh(4 * exact)), 10 * tolerance);
  };
  check(1.0f, 1e-4L);
  check(1.0, 1e-9L);
  check(1.0L, 1e-6L);
}

TEST_CASE("A first step that is too large is halved until the derivative settles", "[derivative]") {
  const auto wave = [](long double x) { return std::sin(1000 * x); };
  check_close(differentiate(wave, 0.0L, 1000.0L).derivative, 1000.0L);
  // 500 radians: the estimate grows and falls several times on the way, and five steps in a row are near full turns.
  check_close(differentiate(wave, 0.0L, 1000.0L, 0.5L).derivative, 1000.0L);
  check_close(differentiate(wave, 0.3L, 1000.0L, 0.5L).derivative, 1000 * std::cos(300.0L));
}

TEST_CASE("Steps at which the function is not finite are passed over", "[derivative]") {
  check_close(differentiate([](long double x) { return std::log(x); }, 1e-6L, 1e6L).derivative, 1e6L);
  check_close(differentiate([](double x) { return std::sqrt(x); }, 1e-8, 5000.0L).derivative, 5000.0L);
  // Never finite on the left: nothing is claimed.
  const auto nowhere = differentiate([](double x) { return std::sqrt(x); }, 0.0, 0.0L).derivative;
  CHECK(nowhere.error == checking::unknown);
}

TEST_CASE("The first step is a power of two that grows with the number", "[derivative]") {
  CHECK(checking::first_step(0.0f) == 0x1p-5L);
  CHECK(checking::first_step(1.0f) == 0x1p-5L);
  CHECK(checking::first_step(1e-16) == 0x1p-10L);
  CHECK(checking::first_step(1024.0) == 1);
  CHECK(checking::first_step(-1024.0) == 1);
  CHECK(checking::first_step(1.5e8) == 0x1p17L);
}

TEST_CASE("A first step that is given is taken, and no larger one", "[derivative]") {
  const Counted given = differentiate([](double x) { return x * x * x; }, 2.0, 12.0L, 0.125L);
  CHECK(given.largest_step == 0.125L);
  check_close(given.derivative, 12.0L);
}

TEST_CASE("The step that is divided by is the one that was taken", "[derivative]") {
  // 2e-6 is 16.8 units in the last place of 1.0f above one: the nominal step would give 1.967 (a first step of 1e-6).
  const auto square = differentiate([](float x) { return x * x; }, 1.0f, 2.0L, 1e-6L).derivative;
  CHECK(std::abs(square.value - 2.0L) < 1e-5L);
}

TEST_CASE("A step that the type cannot store claims nothing", "[derivative]") {
  const Counted vanished = differentiate([](double x) { return x; }, 1e8, 1.0L, 1e-9L);
  CHECK(vanished.evaluations == 0);
  CHECK(vanished.derivative.error == checking::unknown);
}

TEST_CASE("A change that is lost below the outputs' last digit is not called zero", "[derivative]") {
  const auto lost = [](double x) { return 1e10 + x; };
  const auto derivative = differentiate(lost, 0.0, 1.0L, 1e-8L).derivative;
  CHECK(derivative.value == 0);
  CHECK(derivative.error > 1);
  // But where nothing is expected, nothing changing is what was expected.
  CHECK(differentiate([](double) { return 1e10; }, 0.0, 0.0L).derivative.error == 0);
}

TEST_CASE("At a kink both slopes are found", "[derivative]") {
  const auto bent = [](long double x) { return (x > 0 ? 3 * x : -x) + std::sin(x); };
  const auto kink = differentiate(bent, 0.0L, 4.0L).derivative;
  REQUIRE(kink.kink);
  CHECK(std::abs(kink.right - 4) < 1e-9L);
  CHECK(std::abs(kink.left) < 1e-9L);
  CHECK(kink.error < 1e-9L);
}

TEST_CASE("A kink at the point does not take a hundred evaluations", "[derivative]") {
  const Counted counted = differentiate([](long double x) { return x > 0 ? x : 0; }, 0.0L, 0.0L);
  CHECK(counted.derivative.kink);
  CHECK(counted.evaluations <= 40);
}

TEST_CASE("A kink beside the point is stepped over", "[derivative]") {
  const auto relu = [](long double x) { return x > 0 ? x : 0; };
  for (const long double distance : {1e-2L, 1e-4L, 3e-5L, 1e-6L, 1e-9L, 1e-12L}) {
    CAPTURE(static_cast<double>(distance));
    const auto right = differentiate(relu, distance, 1.0L).derivative;
    CHECK_FALSE(right.kink);
    CHECK(std::abs(right.value - 1) < 1e-6L);
    const auto left = differentiate(relu, -distance, 0.0L).derivative;
    CHECK_FALSE(left.kink);
    CHECK(left.value == 0);
    CHECK(left.error == 0);
  }
}

TEST_CASE("A kink too near to be stepped over is a kink, not a wrong slope", "[derivative]") {
  // At 1e-14 from it, beside an output of size one, rounding hides which side the point is on.
  const auto offset = [](double x) { return 1 + (x > 0 ? x : 0); };
  const auto kink = differentiate(offset, 1e-14, 1.0L).derivative;
  REQUIRE(kink.kink);
  CHECK(std::abs(kink.right - 1) < 1e-6L);
  CHECK(std::abs(kink.left) < 1e-6L);
}

TEST_CASE("Curvature is no kink", "[derivative]") {
  check_close(differentiate([](double x) { return 1e6 * x * x + x; }, 0.0, 1.0L).derivative, 1.0L);
  check_close(differentiate([](long double x) { return std::sqrt(x * x + 1e-12L); }, 1e-6L, 0.7L).derivative,
              std::sqrt(0.5L));
}

TEST_CASE("At a jump nothing is claimed", "[derivative]") {
  const auto jump = differentiate([](double x) { return x > 0 ? 1.0 : 0.0; }, 0.0, 0.0L).derivative;
  CHECK_FALSE(jump.kink);
  CHECK(jump.error >= std::abs(jump.value));
}

TEST_CASE("Outputs that do not depend on the element add no rounding", "[derivative]") {
  checking::Contraction contraction;
  contraction.weights = checking::Values::Ones(2);
  contraction.base = checking::Values{{1e12L / 3, 1e-9L}};
  contraction.epsilon = static_cast<long double>(std::numeric_limits<double>::epsilon());
  const auto evaluate = [](double x, checking::Values& outputs) {
    outputs = checking::Values{{1e12L / 3, 1e-9L * static_cast<long double>(x)}};
  };
  const auto derivative = checking::differentiate(1.0, evaluate, contraction, {1e-9L, 1e-6L});
  CHECK(std::abs(derivative.value - 1e-9L) < 1e-20L);
  CHECK(derivative.error < 1e-15L);
}
