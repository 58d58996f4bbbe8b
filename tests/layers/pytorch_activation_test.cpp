// The activations against the figures of PyTorch.

#include <limits>

#include "catch.hpp"
#include "evenkeel/layers/activation.hpp"
#include "figures/figures.hpp"

namespace ek = evenkeel;

namespace {

/// Values are compared relative to themselves where they are above one, absolutely below, slopes likewise in terms of dy:
/// the tails come from subtractions from one.
template <class Layer>
void check(const char* name, Layer layer) {
  using Scalar = typename Layer::Scalar;
  constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  INFO(name);
  const auto expected = figures::Figures("activation").part(name);
  const auto& y = layer.forward(expected.as<Scalar>("x"), ek::Mode::train);
  const auto& dx = layer.backward(expected.as<Scalar>("dy"));
  CHECK(figures::relative_difference(y, expected["y"], 1) <= tolerance);
  CHECK(figures::relative_difference(dx, expected["dx"], expected["dy"].maxCoeff()) <= tolerance);
}

}  // namespace

TEMPLATE_TEST_CASE("Activations give PyTorch's values and slopes, near zero and far from it", "[pytorch_activation]",
                   double, float) {
  check("relu", ek::ReLU<TestType>());
  check("leaky_relu", ek::LeakyReLU<TestType>());
  check("leaky_relu_slope", ek::LeakyReLU<TestType>(0.2));
  check("gelu", ek::GELU<TestType>());
  check("gelu_tanh", ek::GELU<TestType>(ek::GeluForm::tanh));
  check("silu", ek::SiLU<TestType>());
  check("tanh", ek::Tanh<TestType>());
  check("sigmoid", ek::Sigmoid<TestType>());
}

TEST_CASE("GELU keeps its digits far to the left, where PyTorch's has none", "[pytorch_activation]") {
  // At -35 the argument of erfc has been rounded at 25, and erfc multiplies that error by 2 * 25^2.
  const double tolerance = 2000 * std::numeric_limits<double>::epsilon();
  const auto expected = figures::Figures("activation").part("gelu_tail");
  ek::GELU<double> gelu;
  CHECK(figures::relative_difference(gelu.forward(expected["x"], ek::Mode::train), expected["y"]) <= tolerance);
  CHECK(figures::relative_difference(gelu.backward(expected["dy"]), expected["dx"]) <= tolerance);
}
