// The losses against the figures of PyTorch.

#include <cmath>  // abs
#include <limits>
#include <string>

#include "catch.hpp"
#include "evenkeel/training/loss.hpp"
#include "figures/figures.hpp"

namespace ek = evenkeel;

namespace {

// A handful of roundings an element.
template <typename Scalar>
constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());

template <class Loss, class Target>
void check(Loss loss, const figures::Figures& expected, const Target& target) {
  using Scalar = typename Loss::Scalar;
  const auto result = loss(expected.as<Scalar>("x"), target);
  CHECK(std::abs(static_cast<double>(result.value) / expected["value"](0, 0) - 1) <= tolerance<Scalar>);
  CHECK(figures::difference(result.gradient, expected["dx"]) <= tolerance<Scalar>);
}

}  // namespace

TEMPLATE_TEST_CASE("SoftmaxCrossEntropy gives PyTorch's value and gradient", "[pytorch_loss]", double, float) {
  struct Case {
    const char* name;
    ek::CrossEntropyOptions options;
  };
  constexpr auto sum = ek::Reduction::sum;
  const auto [name, options] = GENERATE_COPY(values<Case>({
      {"mean", {}},
      {"sum", {.reduction = sum}},
      {"smoothing", {.label_smoothing = 0.1}},
      {"smoothing_sum", {.reduction = sum, .label_smoothing = 0.1}},
      {"ignored", {.ignored_label = -100}},
      {"ignored_sum", {.reduction = sum, .ignored_label = -100}},
      {"ignored_smoothing", {.label_smoothing = 0.1, .ignored_label = -100}},
  }));
  INFO(name);
  const auto expected = figures::Figures("loss").part("cross_entropy").part(name);
  check(ek::SoftmaxCrossEntropy<TestType>(options), expected, Eigen::RowVectorXi(expected.template as<int>("target")));
}

TEMPLATE_TEST_CASE("MeanSquaredError and BinaryCrossEntropy give PyTorch's values and gradients", "[pytorch_loss]",
                   double, float) {
  struct Case {
    const char* name;
    ek::LossOptions options;
  };
  const figures::Figures expected("loss");
  const auto [name, options] = GENERATE(values<Case>({{"mean", {}}, {"sum", {.reduction = ek::Reduction::sum}}}));
  INFO(name);
  const auto squares = expected.part("mean_squared_error").part(name);
  check(ek::MeanSquaredError<TestType>(options), squares, squares.template as<TestType>("target"));
  const auto hard = expected.part("binary_cross_entropy").part(name);
  check(ek::BinaryCrossEntropy<TestType>(options), hard, hard.template as<TestType>("target"));
}

TEMPLATE_TEST_CASE("BinaryCrossEntropy takes probabilities as targets, as PyTorch does", "[pytorch_loss]", double,
                   float) {
  const auto expected = figures::Figures("loss").part("binary_cross_entropy").part("soft");
  check(ek::BinaryCrossEntropy<TestType>(), expected, expected.template as<TestType>("target"));
}

TEMPLATE_TEST_CASE("softmax and log_softmax give PyTorch's values", "[pytorch_loss]", double, float) {
  const figures::Figures expected("loss");
  const auto logits = expected.as<TestType>("softmax.x");
  CHECK(figures::difference(ek::softmax(logits), expected["softmax.y"]) <= tolerance<TestType>);
  CHECK(figures::difference(ek::log_softmax(logits), expected["log_softmax.y"]) <= tolerance<TestType>);
}
