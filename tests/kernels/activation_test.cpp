#include "evenkeel/kernels/activation.hpp"

#include <cmath>  // exp, sqrt, erfc, cosh

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using reference::Number;
using strided::Order;
using strided::Storage;

namespace {

/// Compares value and slope with equations in long double, from -12 to 12. Tolerances are in epsilons: `relative` of
/// the number itself, and `absolute` where two larger numbers have been subtracted.
template <typename Scalar, class Function, class Value, class Slope>
void check(const Function& function, const Value& value, const Slope& slope, long double relative,
           long double absolute = 0) {
  INFO(Function::name);
  const auto within = [&](Scalar actual, Number exact) {
    const auto epsilon = static_cast<Number>(std::numeric_limits<Scalar>::epsilon());
    return std::abs(static_cast<Number>(actual) - exact) <= epsilon * (relative * std::abs(exact) + absolute);
  };
  for (int step = -768; step <= 768; ++step) {
    const Scalar x = static_cast<Scalar>(step) / 64 + Scalar(1) / 1024;
    INFO("at " << x);
    const auto exact = static_cast<Number>(x);
    if (!within(function.value(x), value(exact))) CHECK(static_cast<Number>(function.value(x)) == value(exact));
    const Number expected = Number(0.75L) * slope(exact);
    const Scalar actual = function.gradient(x, Scalar(0.75));
    if (!within(actual, expected)) CHECK(static_cast<Number>(actual) == expected);
  }
}

Number sigmoid_slope(Number x) { return 1 / ((1 + std::exp(-x)) * (1 + std::exp(x))); }
Number normal_density(Number x) { return std::exp(-x * x / 2) / std::sqrt(2 * reference::pi); }
Number normal_distribution(Number x) { return std::erfc(-x / std::sqrt(Number(2))) / 2; }

}  // namespace

TEMPLATE_TEST_CASE("Activations and their slopes are their equations'", "[activation]", double, float) {
  using std::exp, std::cosh;
  check<TestType>(
      kernels::Relu(), reference::relu, [](Number x) { return Number(x > 0 ? 1 : 0); }, 0);
  const auto leak = static_cast<Number>(TestType(0.2));
  check<TestType>(
      kernels::LeakyRelu(0.2), [&](Number x) { return reference::leaky_relu(x, leak); },
      [&](Number x) { return x > 0 ? 1 : leak; }, 1);
  check<TestType>(kernels::Sigmoid(), reference::sigmoid, sigmoid_slope, 4);
  check<TestType>(
      kernels::Silu(), reference::silu, [](Number x) { return reference::sigmoid(x) + x * sigmoid_slope(x); }, 4, 4);
  check<TestType>(
      kernels::Tanh(), reference::tanh, [](Number x) { return 1 / (cosh(x) * cosh(x)); }, 4, 2);
  // The argument of erfc is rounded, which at -12 changes it by 144 roundings.
  check<TestType>(
      kernels::Gelu(), [](Number x) { return x * normal_distribution(x); },
      [](Number x) { return normal_distribution(x) + x * normal_density(x); }, 2 * 144, 1);
  check<TestType>(
      kernels::Gelu(kernels::GeluForm::tanh), reference::gelu_tanh,
      [](Number x) {
        const Number root = std::sqrt(2 / reference::pi);
        const Number inner = root * (x + 0.044715L * x * x * x);
        const Number t = std::tanh(inner);
        return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715L * x * x);
      },
      4, 12);
}

TEST_CASE("Activations run over any storage order, y and dx being x or not", "[activation]") {
  const auto x = values::random<double>(5, 7, 1), dy = values::random<double>(5, 7, 2);
  const kernels::Silu f;
  ek::Matrix<double> value(5, 7), gradient(5, 7);
  for (Index k = 0; k < x.size(); ++k) {
    value.data()[k] = f.value(x.data()[k]);
    gradient.data()[k] = f.gradient(x.data()[k], dy.data()[k]);
  }
  for (const Order in : strided::orders)
    for (const Order out : strided::orders) {
      Storage<double> input(x, in), delta(dy, in), y(x, out);
      kernels::activation_forward(input.fixed(), f, y.view());
      CHECK(compare::same_bits(y.matrix(), value));
      kernels::activation_backward(input.fixed(), delta.fixed(), f, y.view());
      CHECK(compare::same_bits(y.matrix(), gradient));
      CHECK(y.gaps_untouched());
    }
}

TEST_CASE("Activations reach every row of many", "[activation]") {
  const auto x = values::random<double>(9001, 11, 1);  // 3 chunks
  Storage<double> y(x, Order::row_major);
  kernels::activation_forward(y.fixed(), kernels::Relu(), y.view());
  CHECK(compare::same_bits(y.matrix(), ek::Matrix<double>(x.cwiseMax(0.0))));
  Storage<double> dx(x, Order::row_major);
  kernels::activation_backward(dx.fixed(), dx.fixed(), kernels::Relu(), dx.view());
  CHECK(compare::same_bits(dx.matrix(), ek::Matrix<double>(x.cwiseMax(0.0))));
}
