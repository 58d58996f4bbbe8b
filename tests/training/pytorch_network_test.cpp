// Training of a whole network against the figures of PyTorch.

#include <cmath>  // abs
#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/loss.hpp"
#include "figures/figures.hpp"

namespace ek = evenkeel;

namespace {

/// Trains on the batches of the figures, and compares the losses on the way and everything at the end.
template <class Norm>
void check_training(const char* name, Norm norm, ek::Decay decay) {
  using Scalar = typename Norm::Scalar;
  // Rounding errors of five steps. Adam does not enlarge them: all gradients are far above its epsilon.
  constexpr double tolerance = 16 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  INFO(name);
  const auto expected = figures::Figures("network").part(name);
  ek::Sequential net{ek::Linear<Scalar>(6, 8, {.bias = expected.has("start.0.bias")}), norm, ek::ReLU<Scalar>(),
                     ek::Linear<Scalar>(8, 3)};
  for (auto& parameter : net.parameters()) parameter.value = expected.part("start").template as<Scalar>(parameter.name);

  ek::SoftmaxCrossEntropy<Scalar> cross_entropy;
  ek::AdamW<Scalar> optimizer(net, {.learning_rate = 0.01, .weight_decay = 0.5, .decay = decay});
  for (int i = 0; i < 5; ++i) {
    INFO("step " << i);
    const auto step = expected.part(std::to_string(i));
    const auto x = step.template as<Scalar>("x");
    const Eigen::RowVectorXi labels = step.template as<int>("labels");
    const auto loss = cross_entropy(net.forward(x, ek::Mode::train), labels);
    CHECK(std::abs(static_cast<double>(loss.value) / step["loss"](0, 0) - 1) <= tolerance);
    net.backward(loss.gradient);
    optimizer.step();
  }

  const auto eval = expected.part("eval");
  CHECK(figures::difference(net.infer(eval.template as<Scalar>("x")), eval["y"]) <= tolerance);
  for (auto& parameter : net.parameters()) {
    INFO(parameter.name);
    CHECK(figures::difference(parameter.value, expected.part("end")[parameter.name]) <= tolerance);
  }
  for (auto& buffer : net.buffers())
    if (buffer.count == nullptr) {
      INFO(buffer.name);
      CHECK(figures::difference(buffer.value, expected.part("end")[buffer.name]) <= tolerance);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("A small network trains as in PyTorch", "[pytorch_network]", double, float) {
  check_training("batch", ek::BatchNorm<TestType>(8), ek::Decay::everything);
  check_training("layer", ek::LayerNorm<TestType>(8), ek::Decay::weights);
}
