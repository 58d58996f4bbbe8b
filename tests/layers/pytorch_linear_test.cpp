// Linear against the figures of PyTorch.

#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/layers/linear.hpp"
#include "figures/layer_figures.hpp"

namespace ek = evenkeel;

TEMPLATE_TEST_CASE("Linear gives PyTorch's output and gradients", "[pytorch_linear]", double, float) {
  // Sums of up to 18 products, each product and sum rounded once.
  constexpr double tolerance = 18 * static_cast<double>(std::numeric_limits<TestType>::epsilon());
  const std::string name = GENERATE("default", "wide", "no_bias");
  INFO(name);
  const auto expected = figures::Figures("linear").part(name);
  ek::Linear<TestType> layer(expected["x"].cols(), expected["y"].cols(), {.bias = expected.has("bias")});
  figures::check_layer(layer, expected, tolerance);  // forward, backward, gradients
  CHECK(figures::difference(layer.infer(expected.as<TestType>("x")), expected["y"]) <= tolerance);
}
