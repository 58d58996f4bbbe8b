// GroupNorm and InstanceNorm against the figures of PyTorch.

#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "figures/layer_figures.hpp"

namespace ek = evenkeel;

namespace {

// A handful of roundings an element; sums are taken in double.
template <typename Scalar>
constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());

}  // namespace

TEMPLATE_TEST_CASE("GroupNorm gives PyTorch's output and gradients", "[pytorch_group_norm]", double, float) {
  struct Case {
    const char* name;
    ek::Index groups, channels, positions;
    ek::GroupNormOptions options;
  };
  const auto [name, groups, channels, positions, options] = GENERATE(values<Case>({
      {"features", 3, 12, 1, {}},
      {"positions", 2, 4, 3, {}},
      {"many_positions", 2, 4, 30, {}},
      {"one_group", 1, 3, 6, {}},
      {"epsilon", 2, 4, 3, {.epsilon = 0.125}},
      {"no_affine", 2, 4, 3, {.affine = false}},
  }));
  INFO(name);
  ek::GroupNorm<TestType> layer(groups, channels, positions, options);
  figures::check_layer(layer, figures::Figures("group_norm").part(name), tolerance<TestType>);
}

TEMPLATE_TEST_CASE("InstanceNorm gives PyTorch's output, gradients and running statistics", "[pytorch_group_norm]",
                   double, float) {
  struct Case {
    const char* name;
    ek::Index channels, positions;
    ek::InstanceNormOptions options;
  };
  const auto [name, channels, positions, options] = GENERATE(values<Case>({
      {"default", 3, 6, {}},
      {"affine", 3, 5, {.affine = true}},
      {"one_example", 2, 30, {.epsilon = 0.125, .affine = true}},
      {"tracked", 3, 5, {.affine = true, .track_running_statistics = true}},
      {"momentum", 3, 5, {.momentum = 0.3, .track_running_statistics = true}},
  }));
  const auto expected = figures::Figures("instance_norm").part(name);
  ek::InstanceNorm<TestType> layer(channels, positions, options);
  const auto check_running = [&](const figures::Figures& part) {
    CHECK(figures::difference(layer.running_mean(), part["running_mean"]) <= tolerance<TestType>);
    CHECK(figures::difference(layer.running_variance(), part["running_var"]) <= tolerance<TestType>);
  };
  for (int batch = 0; expected.has(std::to_string(batch) + ".x"); ++batch) {
    INFO(name << ", batch " << batch);
    const auto part = expected.part(std::to_string(batch));
    figures::check_layer(layer, part, tolerance<TestType>);
    if (options.track_running_statistics) check_running(part);
  }
  INFO(name << ", eval");
  const auto part = expected.part("eval");
  for (const ek::Mode mode : {ek::Mode::eval, ek::Mode::frozen_statistics})
    figures::check_layer(layer, part, tolerance<TestType>, mode);
  CHECK(figures::difference(layer.infer(part.template as<TestType>("x")), part["y"]) <= tolerance<TestType>);
  if (options.track_running_statistics) check_running(part);
}
