// LayerNorm and RMSNorm against the figures of PyTorch.

#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "figures/layer_figures.hpp"

namespace ek = evenkeel;

namespace {

// A handful of roundings an element; sums over a row are taken in double.
template <typename Scalar>
constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());

}  // namespace

TEMPLATE_TEST_CASE("LayerNorm gives PyTorch's output and gradients", "[pytorch_norm]", double, float) {
  struct Case {
    const char* name;
    ek::LayerNormOptions options;
  };
  const auto [name, options] = GENERATE(values<Case>({
      {"default", {}},
      {"wide", {}},
      {"epsilon", {.epsilon = 0.125}},
      {"weight_only", {.bias = false}},
      {"bias_only", {.weight = false}},
      {"bare", {.weight = false, .bias = false}},
  }));
  INFO(name);
  const auto expected = figures::Figures("layer_norm").part(name);
  ek::LayerNorm<TestType> layer(expected["x"].cols(), options);
  figures::check_layer(layer, expected, tolerance<TestType>);
}

TEMPLATE_TEST_CASE("RMSNorm gives the output and gradients of the formula in PyTorch", "[pytorch_norm]", double,
                   float) {
  struct Case {
    const char* name;
    ek::RMSNormOptions options;
  };
  const auto [name, options] = GENERATE(values<Case>({
      {"default", {}},
      {"wide", {}},
      {"epsilon", {.epsilon = 0.125}},
      {"unit_offset", {.unit_offset = true}},
      {"bare", {.weight = false}},
  }));
  INFO(name);
  const auto expected = figures::Figures("rms_norm").part(name);
  ek::RMSNorm<TestType> layer(expected["x"].cols(), options);
  figures::check_layer(layer, expected, tolerance<TestType>);
}

TEST_CASE("Float rows far from zero normalize as accurately as others", "[pytorch_norm]") {
  const figures::Figures expected("hard_norm");
  ek::LayerNorm<float> layer_norm(expected["layer_norm.x"].cols());
  figures::check_layer(layer_norm, expected.part("layer_norm"), tolerance<float>);
  ek::RMSNorm<float> rms_norm(expected["rms_norm.x"].cols());
  figures::check_layer(rms_norm, expected.part("rms_norm"), tolerance<float>);

  // These rows can be got wrong: PyTorch's own float results are off by several per cent.
  CHECK(figures::difference(expected["layer_norm.y.float32"], expected["layer_norm.y"]) > 0.01);
}
