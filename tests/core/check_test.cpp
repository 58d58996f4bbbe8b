#include "evenkeel/core/check.hpp"

#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/error_of.hpp"

namespace ek = evenkeel;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <typename Number>
void check_finite() {
  using Limits = std::numeric_limits<Number>;
  for (const Number number : {Number(0), Number(-1), Limits::max(), Limits::lowest(), Limits::denorm_min()})
    CHECK(ek::detail::is_finite(number));
  for (const Number number : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN()})
    CHECK_FALSE(ek::detail::is_finite(number));
}

}  // namespace

TEST_CASE("is_finite tells numbers from NaN and infinity in every type", "[check]") {
  check_finite<float>();
  check_finite<double>();
  check_finite<long double>();
}

TEST_CASE("Checks of options return what they were given, up to their bounds", "[check]") {
  CHECK(ek::detail::at_least(3, 3, "Place", "size") == 3);
  CHECK(ek::detail::positive(1e-300, "Place", "x") == 1e-300);
  CHECK(ek::detail::not_negative(0, "Place", "x") == 0);
  CHECK(ek::detail::fraction(0, "Place", "x") == 0);
  CHECK(ek::detail::fraction(1, "Place", "x") == 1);
  CHECK(ek::detail::fraction_below_one(0, "Place", "x") == 0);
  CHECK(ek::detail::fraction_below_one(0.999, "Place", "x") == 0.999);
  CHECK(ek::detail::size_of<Eigen::Dynamic>(1, "Place") == 1);
  CHECK(ek::detail::size_of<6>(6, "Place") == 6);
}

TEST_CASE("Checks of options say where, what was expected and what came", "[check]") {
  using namespace ek::detail;
  CHECK(error_of([] { at_least(3, 2, "Place", "size"); }) == "invalid_argument: Place: expected size >= 3, got 2");
  const auto check = [](auto function, const std::string& expected, const std::vector<double>& wrong) {
    for (const double value : wrong) {
      CHECK(error_of([&] { function(value, "Place", "x"); }) ==
            "invalid_argument: Place: expected " + expected + ", got " + text(value));
    }
  };
  check(positive, "a finite x > 0", {0.0, -0.0, -1.0, infinity, -infinity, not_a_number});
  check(not_negative, "a finite x >= 0", {-1e-300, infinity, -infinity, not_a_number});
  check(fraction, "x in [0, 1]", {-1e-300, 1.5, infinity, -infinity, not_a_number});
  check(fraction_below_one, "x in [0, 1)", {-1e-300, 1.0, infinity, -infinity, not_a_number});
  CHECK(error_of([] { size_of<Eigen::Dynamic>(0, "Place"); }) ==
        "invalid_argument: Place: expected features >= 1, got 0");
  CHECK(error_of([] { size_of<6>(0, "Place"); }) ==
        "invalid_argument: Place: expected features = 6, fixed by the template argument, got 0");
  CHECK(error_of([] { size_of<6>(5, "Place", "in"); }) ==
        "invalid_argument: Place: expected in = 6, fixed by the template argument, got 5");
}
