// The optimizers against the figures of PyTorch.

#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/sgd.hpp"
#include "figures/figures.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;

namespace {

/// Compares the parameters after each of five steps, and what the optimizer remembers after the last.
template <class Optimizer>
void check(const char* name, const typename Optimizer::Options& options) {
  using Scalar = typename Optimizer::Scalar;
  // A few roundings a step in parameters that are about one, and in sums of gradients that are about one.
  constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  const figures::Figures all("optimizer");
  const auto expected = all.part(name);
  FreeParameters<Scalar> net;
  net.add("weight", all.as<Scalar>("start.weight"));
  net.add("bias", all.as<Scalar>("start.bias"), ek::ParameterKind::bias);
  Optimizer optimizer(net, options);

  for (int i = 0; i < 5; ++i) {
    INFO(name << ", step " << i);
    const auto gradients = all.part("gradient").part(std::to_string(i));
    for (auto& parameter : net.parameters()) parameter.gradient = gradients.as<Scalar>(parameter.name);
    optimizer.step();
    for (auto& parameter : net.parameters())
      CHECK(figures::difference(parameter.value, expected.part(std::to_string(i))[parameter.name]) <= tolerance);
  }
  for (const auto& moment : optimizer.state().moments) {
    INFO(name << ", " << moment.name);
    CHECK(figures::difference(moment.value, expected.part("state")[moment.name]) <= tolerance);
  }
}

constexpr auto everything = ek::Decay::everything;

}  // namespace

TEMPLATE_TEST_CASE("SGD takes PyTorch's steps", "[pytorch_optimizer]", double, float) {
  using SGD = ek::SGD<TestType>;
  check<SGD>("sgd", {.learning_rate = 0.1});
  check<SGD>("sgd_momentum", {.learning_rate = 0.1, .momentum = 0.9});
  check<SGD>("sgd_dampening", {.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.25});
  check<SGD>("sgd_nesterov", {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  check<SGD>("sgd_decay", {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.5, .decay = everything});
  check<SGD>("sgd_nesterov_decay",
             {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.5, .decay = everything});
}

TEMPLATE_TEST_CASE("Adam takes PyTorch's steps", "[pytorch_optimizer]", double, float) {
  using Adam = ek::Adam<TestType>;
  check<Adam>("adam", {});
  check<Adam>("adam_decay", {.learning_rate = 0.01, .weight_decay = 0.5, .decay = everything});
  check<Adam>("adam_amsgrad", {.learning_rate = 0.01, .amsgrad = true});
  check<Adam>("adam_amsgrad_decay", {.learning_rate = 0.01, .weight_decay = 0.5, .amsgrad = true, .decay = everything});
}

TEMPLATE_TEST_CASE("AdamW takes PyTorch's steps", "[pytorch_optimizer]", double, float) {
  using AdamW = ek::AdamW<TestType>;
  check<AdamW>("adamw", {.decay = everything});
  check<AdamW>("adamw_decay", {.learning_rate = 0.01, .weight_decay = 3.0, .decay = everything});
  check<AdamW>("adamw_weights_only", {.learning_rate = 0.01, .weight_decay = 3.0});
  check<AdamW>("adamw_amsgrad", {.learning_rate = 0.01, .weight_decay = 0.5, .amsgrad = true, .decay = everything});
  check<AdamW>("adamw_betas",
               {.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 0.001, .decay = everything});
}
