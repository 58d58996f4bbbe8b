// Clipping of gradients against the figures of PyTorch.

#include <cmath>  // abs
#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/training/clip.hpp"
#include "figures/figures.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;

TEMPLATE_TEST_CASE("clip_gradient_norm scales gradients as PyTorch does", "[pytorch_clip]", double, float) {
  // The norm is summed in double, and each element rounded once or twice.
  constexpr double tolerance = 4 * static_cast<double>(std::numeric_limits<TestType>::epsilon());
  const figures::Figures given("clip");
  const std::string name = GENERATE("larger", "smaller");
  INFO("a norm " << name << " than the maximum");
  const auto expected = given.part(name);
  FreeParameters<TestType> net;
  for (const char* parameter : {"weight", "bias"}) net.add(parameter, given.as<TestType>(parameter));
  for (auto& parameter : net.parameters()) parameter.gradient = given.as<TestType>(parameter.name);

  const double norm = ek::clip_gradient_norm(net, expected["maximum"](0, 0));
  CHECK(std::abs(norm / expected["norm"](0, 0) - 1) <= tolerance);
  for (auto& parameter : net.parameters())
    CHECK(figures::relative_difference(parameter.gradient, expected[parameter.name]) <= tolerance);
}
