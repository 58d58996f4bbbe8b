// BatchNorm against the figures of PyTorch.

#include <cstdint>  // int64_t
#include <limits>
#include <optional>
#include <string>

#include "catch.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "figures/layer_figures.hpp"

namespace ek = evenkeel;

namespace {

// A handful of roundings an element; sums over the batch are taken in double.
template <typename Scalar>
constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());

template <class Layer>
void check_running_statistics(const Layer& layer, const figures::Figures& expected, double bound) {
  CHECK(figures::difference(layer.running_mean(), expected["running_mean"]) <= bound);
  CHECK(figures::difference(layer.running_variance(), expected["running_var"]) <= bound);
  CHECK(layer.batches_tracked() == static_cast<std::int64_t>(expected["num_batches_tracked"](0, 0)));
}

struct Case {
  const char* name;
  ek::BatchNormOptions options;
  ek::Index positions = 1;
};

}  // namespace

TEMPLATE_TEST_CASE("BatchNorm gives PyTorch's output, gradients and running statistics", "[pytorch_batch_norm]", double,
                   float) {
  const auto [name, options, positions] = GENERATE(values<Case>({
      {"default", {}},
      {"epsilon", {.epsilon = 0.125}},
      {"momentum", {.momentum = 0.3}},
      {"cumulative", {.momentum = std::nullopt}},
      {"no_affine", {.affine = false}},
      {"untracked", {.track_running_statistics = false}},
      {"many_rows", {}},
      {"positions", {}, 6},
      {"one_example", {}, 4},
  }));
  const auto expected = figures::Figures("batch_norm").part(name);
  ek::BatchNorm<TestType> layer(expected["0.x"].cols() / positions, positions, options);

  for (int batch = 0; expected.has(std::to_string(batch) + ".x"); ++batch) {
    INFO(name << ", batch " << batch);
    const auto part = expected.part(std::to_string(batch));
    figures::check_layer(layer, part, tolerance<TestType>);
    if (options.track_running_statistics) check_running_statistics(layer, part, tolerance<TestType>);
  }

  INFO(name << ", running statistics");
  const auto part = expected.part("eval");
  figures::check_layer(layer, part, tolerance<TestType>, ek::Mode::eval);
  CHECK(figures::difference(layer.infer(part.template as<TestType>("x")), part["y"]) <= tolerance<TestType>);
  if (!options.track_running_statistics) return;
  figures::check_layer(layer, part, tolerance<TestType>, ek::Mode::frozen_statistics);
  check_running_statistics(layer, part, tolerance<TestType>);
}

TEST_CASE("Float columns far from zero normalize as accurately as others", "[pytorch_batch_norm]") {
  const auto expected = figures::Figures("hard_norm").part("batch_norm");
  ek::BatchNorm<float> layer(expected["x"].cols());
  figures::check_layer(layer, expected, tolerance<float>);
  check_running_statistics(layer, expected, tolerance<float>);

  // These columns can be got wrong: PyTorch's own float results are off by two per cent.
  CHECK(figures::difference(expected["y.float32"], expected["y"]) > 0.01);
}
