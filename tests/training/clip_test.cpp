#include <cmath>
#include <limits>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/training/clip.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;
using Catch::Approx;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Two parameters with these gradients, the second of one element.
template <typename S>
FreeParameters<S> gradients(std::initializer_list<S> first, S second) {
  FreeParameters<S> result;
  result.add("a", ek::Matrix<S>::Zero(1, static_cast<ek::Index>(first.size())));
  result.add("b", ek::Matrix<S>::Zero(1, 1), ek::ParameterKind::bias);
  ek::Index column = 0;
  for (const S gradient : first) result.gradient(column++) = gradient;
  result.list[1].gradient(0, 0) = second;
  return result;
}

template <typename S>
bool same_gradients(const FreeParameters<S>& a, const FreeParameters<S>& b) {
  for (std::size_t i = 0; i < a.list.size(); ++i)
    if (!compare::same_bits(a.list[i].gradient, b.list[i].gradient)) return false;
  return true;
}

}  // namespace

TEMPLATE_TEST_CASE("Clipping scales all gradients by one number to the wanted norm", "[clip]", float, double) {
  auto parameters = gradients<TestType>({2, -4}, 4);
  CHECK(ek::clip_gradient_norm(parameters, 3) == 6);
  const double factor = 3 / (6 + 1e-6);
  CHECK(static_cast<double>(parameters.gradient(0)) == Approx(2 * factor).epsilon(compare::epsilon<TestType>));
  CHECK(static_cast<double>(parameters.gradient(1)) == Approx(-4 * factor).epsilon(compare::epsilon<TestType>));
  CHECK(static_cast<double>(parameters.list[1].gradient(0, 0)) ==
        Approx(4 * factor).epsilon(compare::epsilon<TestType>));
  for (const auto& p : parameters.list) CHECK((p.value.array() == 0).all());
}

TEST_CASE("CLP-1: a gradient that is not finite is reported and spreads to no other", "[clip]") {
  for (const double bad : {std::nan(""), infinity, -infinity}) {
    for (const auto order : {ek::NormOrder::l1, ek::NormOrder::l2, ek::NormOrder::infinity}) {
      for (const double max_norm : {1.0, 0.0, infinity}) {
        auto parameters = gradients<double>({1, bad, 3}, 4);
        const auto before = parameters;
        const double norm = ek::clip_gradient_norm(parameters, max_norm, order);
        CHECK(std::isnan(norm) == std::isnan(bad));
        CHECK(std::isinf(norm) == std::isinf(bad));
        CHECK(same_gradients(parameters, before));
      }
    }
  }
  auto parameters = gradients<float>({1, std::nanf("")}, std::numeric_limits<float>::infinity());
  CHECK(std::isnan(ek::clip_gradient_norm(parameters, 1)));
  CHECK(std::isnan(ek::clip_gradient_norm(parameters, 1, ek::NormOrder::infinity)));
  CHECK(parameters.gradient(0) == 1);
}

TEST_CASE("CLP-2: zero and small norms are left alone, bounds of 0 and infinity mean what they say", "[clip]") {
  auto zero = gradients<double>({0}, 0);
  CHECK(ek::clip_gradient_norm(zero, 1) == 0);
  CHECK(same_gradients(zero, gradients<double>({0}, 0)));
  CHECK(ek::clip_gradient_norm(zero, 0) == 0);
  CHECK(same_gradients(zero, gradients<double>({0}, 0)));

  auto small = gradients<double>({0.3}, 0.4);
  CHECK(ek::clip_gradient_norm(small, 1) == Approx(0.5).epsilon(1e-15));
  CHECK(same_gradients(small, gradients<double>({0.3}, 0.4)));

  auto exact = gradients<double>({0.6}, 0.8);
  CHECK(ek::clip_gradient_norm(exact, 1) == Approx(1).epsilon(1e-15));
  CHECK(exact.gradient() == Approx(0.6).epsilon(1e-6));
  CHECK(exact.gradient() == Approx(0.6 / (1 + 1e-6)).epsilon(1e-14));  // PyTorch's

  auto free = gradients<double>({3}, 4);
  CHECK(ek::clip_gradient_norm(free, infinity) == 5);
  CHECK(same_gradients(free, gradients<double>({3}, 4)));
  CHECK(ek::clip_gradient_norm(free, 0) == 5);
  CHECK(same_gradients(free, gradients<double>({0}, 0)));

  auto refused = gradients<double>({3}, 4);
  const auto message = [&](double max_norm) {
    return thrown<std::invalid_argument>([&] { ek::clip_gradient_norm(refused, max_norm); });
  };
  CHECK(message(-1) == "clip_gradient_norm: expected max_norm >= 0, got -1");
  CHECK(message(-infinity) == "clip_gradient_norm: expected max_norm >= 0, got -inf");
  CHECK(message(std::nan("")) == "clip_gradient_norm: expected max_norm >= 0, got nan");
  CHECK(same_gradients(refused, gradients<double>({3}, 4)));
}

TEST_CASE("CLP-3: the other norms are the sum and the maximum of the magnitudes", "[clip]") {
  auto parameters = gradients<double>({3, -4}, 1);
  CHECK(ek::clip_gradient_norm(parameters, infinity, ek::NormOrder::infinity) == 4);
  CHECK(ek::clip_gradient_norm(parameters, infinity, ek::NormOrder::l1) == 8);
  CHECK(ek::clip_gradient_norm(parameters, 2, ek::NormOrder::l1) == 8);
  CHECK(parameters.gradient(1) == Approx(-1).epsilon(1e-6));
  CHECK(ek::clip_gradient_norm(parameters, 0.5, ek::NormOrder::infinity) == Approx(1).epsilon(1e-6));
  CHECK(parameters.gradient(1) == Approx(-0.5).epsilon(2e-6));  // PyTorch's 1e-6, twice
}

TEST_CASE("OVF-4: float gradients whose squares leave the range have a norm and are clipped like others", "[clip]") {
  auto large = gradients<float>({3e20f}, 4e20f);
  CHECK(ek::clip_gradient_norm(large, 1) == Approx(5e20).epsilon(1e-5));
  CHECK(large.gradient() == Approx(0.6).epsilon(1e-5));
  CHECK(large.list[1].gradient(0, 0) == Approx(0.8).epsilon(1e-5));

  auto tiny = gradients<float>({3e-30f}, 4e-30f);
  CHECK(ek::clip_gradient_norm(tiny, 1) == Approx(5e-30).epsilon(1e-5));
  CHECK(same_gradients(tiny, gradients<float>({3e-30f}, 4e-30f)));
}

TEST_CASE("Norms neither overflow nor underflow", "[clip]") {
  auto large = gradients<double>({3e200}, -4e200);
  CHECK(ek::clip_gradient_norm(large, 10) == Approx(5e200).epsilon(1e-15));
  CHECK(large.gradient() == Approx(6).epsilon(1e-14));
  CHECK(large.list[1].gradient(0, 0) == Approx(-8).epsilon(1e-14));

  for (const double tiny : {1e-200, 1e-310}) {
    auto small = gradients<double>({3 * tiny}, -4 * tiny);
    CHECK(ek::clip_gradient_norm(small, 1) == Approx(5 * tiny).epsilon(1e-9));  // 1e-310 has 13 digits
    CHECK(small.gradient() == 3 * tiny);
  }

  auto floats = gradients<float>({3e38f}, -3e38f);
  CHECK(ek::clip_gradient_norm(floats, 1) == Approx(3e38 * std::sqrt(2.0)).epsilon(1e-7));
  CHECK(floats.gradient() == Approx(std::sqrt(0.5)).epsilon(1e-6));
  floats = gradients<float>({3e38f}, -3e38f);
  ek::clip_gradient_norm(floats, 1e-3);  // by 2e-42, which float holds with three digits
  CHECK(floats.gradient() == Approx(1e-3 * std::sqrt(0.5)).epsilon(1e-6));
  auto denormals = gradients<float>({3e-44f}, 4e-44f);
  CHECK(ek::clip_gradient_norm(denormals, 1) ==
        Approx(std::hypot(static_cast<double>(3e-44f), static_cast<double>(4e-44f))).epsilon(1e-14));

  auto extended = gradients<long double>({3e300L}, 4e300L);
  CHECK(ek::clip_gradient_norm(extended, 1) == Approx(5e300).epsilon(1e-15));
  CHECK(static_cast<double>(extended.gradient()) == Approx(0.6).epsilon(1e-14));
}

TEST_CASE("A norm beyond double is returned as infinity and the gradients are left alone", "[clip]") {
  auto parameters = gradients<double>({1.7e308}, 1.7e308);
  CHECK(ek::clip_gradient_norm(parameters, 1) == infinity);
  CHECK(parameters.gradient() == 1.7e308);
  auto extended = gradients<long double>({1e4000L}, 1);
  CHECK(ek::clip_gradient_norm(extended, 1) == infinity);
  CHECK(extended.gradient() == 1e4000L);
}

TEMPLATE_TEST_CASE("The norm of many gradients is exact to rounding", "[clip]", float, double, long double) {
  FreeParameters<TestType> parameters;
  parameters.add("w", ek::Matrix<TestType>::Zero(123, 45));
  parameters.add("b", ek::Matrix<TestType>::Zero(1, 45), ek::ParameterKind::bias);
  long double squares = 0, magnitudes = 0;
  for (auto& p : parameters.list) {
    p.gradient = values::random<TestType>(p.value.rows(), p.value.cols(), 1);
    for (ek::Index i = 0; i < p.gradient.size(); ++i) {
      const auto g = static_cast<long double>(p.gradient.data()[i]);
      squares += g * g;
      magnitudes += std::abs(g);
    }
  }
  // Summed in double whatever the type, thousands of numbers in sixteen partial sums.
  CHECK(ek::clip_gradient_norm(parameters, infinity) == Approx(static_cast<double>(std::sqrt(squares))).epsilon(1e-14));
  CHECK(ek::clip_gradient_norm(parameters, infinity, ek::NormOrder::l1) ==
        Approx(static_cast<double>(magnitudes)).epsilon(1e-14));
}

TEST_CASE("A list of parameters, taken once, clips as the network does", "[clip]") {
  auto network = gradients<float>({3, 4}, 12);
  auto listed = network;
  const auto list = listed.parameters();
  CHECK(ek::clip_gradient_norm(list, 1) == ek::clip_gradient_norm(network, 1));
  CHECK(same_gradients(network, listed));
  CHECK(network.gradient() < 1);
}

TEST_CASE("Without parameters the norm is 0", "[clip]") {
  FreeParameters<double> none;
  CHECK(ek::clip_gradient_norm(none, 1) == 0);
}
