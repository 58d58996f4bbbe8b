#pragma once

#include "catch.hpp"
#include "evenkeel/core/mode.hpp"
#include "figures/figures.hpp"

namespace figures {

/// Checks output, input gradient and parameter gradients of a layer against a part of the figures, to `tolerance` in terms
/// of the largest element of each. The layer is given the part's parameters.
template <class Layer>
void check_layer(Layer& layer, const Figures& expected, double tolerance, evenkeel::Mode mode = evenkeel::Mode::train) {
  using Scalar = typename Layer::Scalar;
  for (auto& parameter : layer.parameters()) parameter.value = expected.as<Scalar>(parameter.name);

  CHECK(difference(layer.forward(expected.as<Scalar>("x"), mode), expected["y"]) <= tolerance);
  CHECK(difference(layer.backward(expected.as<Scalar>("dy")), expected["dx"]) <= tolerance);
  for (auto& parameter : layer.parameters()) {
    INFO("gradient of " << parameter.name);
    CHECK(difference(parameter.gradient, expected["d" + parameter.name]) <= tolerance);
  }
}

}  // namespace figures
