#include "evenkeel/layers/fold.hpp"

#include <Eigen/SparseCore>
#include <cmath>  // abs
#include <cstdint>
#include <limits>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "figures/figures.hpp"
#include "layers/reference.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using reference::exact;
using reference::Numbers;
constexpr auto epsilon = static_cast<long double>(1e-5);

/// The layer with parameters (and running statistics) other than those it starts with.
template <class Layer>
Layer set(Layer layer) {
  using Scalar = typename Layer::Scalar;
  std::uint32_t seed = 1;
  for (auto& parameter : layer.parameters())
    parameter.value = values::random<Scalar>(parameter.value.rows(), parameter.value.cols(), seed++);
  if constexpr (requires { layer.set_running_statistics(layer.running_mean(), layer.running_variance()); })
    layer.set_running_statistics(values::random<Scalar>(1, layer.channels(), 7),
                                 values::positive<Scalar>(1, layer.channels(), 8));
  return layer;
}

/// A parameter by its name, or, of a layer that has none of that name, so many times `otherwise`.
template <class Layer>
Numbers parameter(const Layer& layer, const char* name, Index size, long double otherwise) {
  for (const auto& parameter : layer.parameters())
    if (parameter.name == name) return exact(parameter.value);
  return Numbers::Constant(1, size, otherwise);
}

template <class Layer>
Numbers linear(const Layer& layer, const Numbers& x) {
  return reference::linear(x, parameter(layer, "weight", 0, 0), parameter(layer, "bias", layer.output_features(0), 0));
}
template <class Layer>
Numbers batch_norm(const Layer& layer, const Numbers& x) {
  return reference::batch_norm(x, layer.positions(), exact(layer.running_mean()), exact(layer.running_variance()),
                               parameter(layer, "weight", layer.channels(), 1),
                               parameter(layer, "bias", layer.channels(), 0), epsilon);
}

// A few roundings of weights and of products, among terms of up to 20.
template <typename Scalar>
constexpr double tolerance = 16 * compare::epsilon<Scalar>;

}  // namespace

TEMPLATE_TEST_CASE("A Linear takes in the BatchNorm behind it", "[fold]", double, float) {
  const auto x = values::random<TestType>(7, 5, 9);
  for (const bool bias : {true, false})
    for (const bool affine : {true, false})
      for (const Index positions : {1, 3}) {
        INFO("bias " << bias << ", affine " << affine << ", " << positions << " positions");
        const auto first = set(ek::Linear<TestType>(5, 2 * positions, {.bias = bias}));
        const auto norm = set(ek::BatchNorm<TestType>(2, positions, {.affine = affine}));
        const ek::Linear<TestType> one = ek::fold(first, norm);
        CHECK(compare::difference(one.infer(x), batch_norm(norm, linear(first, exact(x)))) <= tolerance<TestType>);
      }
}

TEMPLATE_TEST_CASE("A Linear takes in the BatchNorm before it", "[fold]", double, float) {
  const auto x = values::random<TestType>(7, 6, 9);
  for (const bool bias : {true, false})
    for (const bool affine : {true, false})
      for (const Index channels : {6, 2}) {
        INFO("bias " << bias << ", affine " << affine << ", " << channels << " channels");
        const auto norm = set(ek::BatchNorm<TestType>(channels, 6 / channels, {.affine = affine}));
        const auto second = set(ek::Linear<TestType>(6, 4, {.bias = bias}));
        const ek::Linear<TestType> one = ek::fold(norm, second);
        CHECK(compare::difference(one.infer(x), linear(second, batch_norm(norm, exact(x)))) <= tolerance<TestType>);
      }
}

TEMPLATE_TEST_CASE("A Linear takes in gain and shift of the LayerNorm before it", "[fold]", double, float) {
  const auto x = values::random<TestType>(7, 6, 9);
  for (const bool bias : {true, false})
    for (const ek::LayerNormOptions& options :
         {ek::LayerNormOptions{}, ek::LayerNormOptions{.bias = false}, ek::LayerNormOptions{.weight = false}}) {
      INFO("bias " << bias << ", the norm's weight " << options.weight << " and bias " << options.bias);
      const auto norm = set(ek::LayerNorm<TestType>(6, options));
      const auto second = set(ek::Linear<TestType>(6, 4, {.bias = bias}));
      const auto folded = ek::fold(norm, second);
      CHECK(folded.norm.parameters().empty());
      CHECK(folded.linear.parameters().size() == (bias || options.bias ? 2 : 1));
      const Numbers normalized =
          reference::layer_norm(exact(x), parameter(norm, "weight", 6, 1), parameter(norm, "bias", 6, 0), epsilon);
      CHECK(compare::difference(folded.infer(x), linear(second, normalized)) <= tolerance<TestType>);
    }
}

TEMPLATE_TEST_CASE("A Linear takes in the gain of the RMSNorm before it, also one plus a weight", "[fold]", double,
                   float) {
  const auto x = values::random<TestType>(7, 6, 9);
  for (const bool bias : {true, false})
    for (const bool unit_offset : {true, false}) {
      INFO("bias " << bias << ", unit offset " << unit_offset);
      const auto norm = set(ek::RMSNorm<TestType>(6, {.unit_offset = unit_offset}));
      const auto second = set(ek::Linear<TestType>(6, 4, {.bias = bias}));
      const auto folded = ek::fold(norm, second);
      CHECK(folded.norm.parameters().empty());
      CHECK(folded.linear.parameters().size() == (bias ? 2 : 1));
      const Numbers gain = exact(norm.parameters()[0].value).array() + (unit_offset ? 1 : 0);
      const Numbers normalized = reference::rms_norm(exact(x), gain, epsilon);
      CHECK(compare::difference(folded.infer(x), linear(second, normalized)) <= tolerance<TestType>);
    }
}

TEST_CASE("A fold keeps the norm's epsilon, and sizes fixed by the template", "[fold]") {
  const auto norm = set(ek::LayerNorm<float, 3>({.epsilon = 0.25}));
  const auto second = set(ek::Linear<float, 3, 2>());
  const ek::FoldedNorm<ek::LayerNorm<float, 3>, ek::Linear<float, 3, 2>> folded = ek::fold(norm, second);
  CHECK(folded.norm.epsilon() == 0.25);
  CHECK(ek::fold(ek::RMSNorm<float, 3>({.epsilon = 0.5}), second).norm.epsilon() == 0.5);
  const ek::Linear<float, 3, 2> one = ek::fold(second, set(ek::BatchNorm<float, 2>()));
  CHECK(one.input_features() == 3);
}

TEST_CASE("A folded Linear and BatchNorm are PyTorch's fuse_linear_bn_eval", "[fold]") {
  for (const char* name : {"bias", "no_bias"}) {
    const auto expected = figures::Figures("fold").part(name);
    ek::Linear<double> first(5, 4, {.bias = expected.has("0.bias")});
    ek::BatchNorm<double> norm(4, {.epsilon = 0.0625});
    for (auto& parameter : first.parameters()) parameter.value = expected["0." + parameter.name];
    for (auto& parameter : norm.parameters()) parameter.value = expected["1." + parameter.name];
    norm.set_running_statistics(expected["mean"], expected["variance"]);
    const ek::Linear<double> one = ek::fold(first, norm);
    CHECK(figures::difference(one.parameters()[0].value, expected["fused.weight"]) <= 1e-15);
    CHECK(figures::difference(one.parameters()[1].value, expected["fused.bias"]) <= 1e-15);
    CHECK(figures::difference(one.infer(expected["x"]), expected["y"]) <= 1e-15);
  }
}

TEST_CASE("Folded weights are worked out in double and rounded once", "[fold]") {
  const auto first = set(ek::Linear<float>(5, 4));
  const auto norm = set(ek::BatchNorm<float>(4));
  const auto one = ek::fold(first, norm), exact_one = ek::fold(first.cast<double>(), norm.cast<double>()).cast<float>();
  CHECK(compare::same_values(one, exact_one));
}

TEST_CASE("A fold changes neither layer", "[fold]") {
  const auto first = set(ek::Linear<float>(4, 4));
  const auto norm = set(ek::BatchNorm<float>(4));
  const auto first_before = first;
  const auto norm_before = norm;
  ek::Linear<float> one = ek::fold(first, norm);
  one.parameters()[0].value.setZero();
  CHECK(compare::same_values(first, first_before));
  CHECK(compare::same_values(norm, norm_before));
  CHECK(compare::same_buffers(norm, norm_before));
}

TEST_CASE("The deviation is the largest difference of outputs over the largest output", "[fold]") {
  const auto first = set(ek::Linear<float>(5, 4));
  const auto norm = set(ek::BatchNorm<float>(4));
  const auto x = values::random<float>(50, 5, 9);
  const auto [one, deviation] = ek::fold(first, norm, x);
  const auto unmeasured = ek::fold(first, norm);
  CHECK(compare::same_values(one, unmeasured));
  const ek::Matrix<double> expected = norm.infer(first.infer(x)).cast<double>(), actual = one.infer(x).cast<double>();
  CHECK(deviation > 0);
  CHECK(deviation == (actual - expected).cwiseAbs().maxCoeff() / expected.cwiseAbs().maxCoeff());
  CHECK(ek::fold(first, norm, Eigen::SparseMatrix<float>(x.sparseView())).deviation < 1e-6);

  auto spoilt = x;
  spoilt(3, 1) = std::numeric_limits<float>::quiet_NaN();
  CHECK(ek::fold(first, norm, spoilt).deviation == std::numeric_limits<double>::infinity());
  CHECK(ek::fold(first, norm, x.topRows(0)).deviation == 0);
}

TEST_CASE("On ordinary data every fold deviates by less than 1e-6 in float", "[fold]") {
  const auto x = values::random<float>(200, 64, 9);
  const ek::Linear<float> first(64, 64, {.seed = 1}), second(64, 32, {.seed = 2});
  const auto batch_norm = set(ek::BatchNorm<float>(64));
  CHECK(ek::fold(first, batch_norm, x).deviation < 1e-6);
  CHECK(ek::fold(batch_norm, second, x).deviation < 1e-6);
  CHECK(ek::fold(set(ek::LayerNorm<float>(64)), second, x).deviation < 1e-6);
  CHECK(ek::fold(set(ek::RMSNorm<float>(64, {.unit_offset = true})), second, x).deviation < 1e-6);
}

TEST_CASE("The deviation shows where a mean much larger than its deviation costs digits", "[fold]") {
  const ek::Linear<float> second(4, 3, {.seed = 1});
  ek::BatchNorm<float> norm(4);
  const ek::Matrix<float> mean = ek::Matrix<float>::Constant(1, 4, 1e5f);
  norm.set_running_statistics(mean, ek::Matrix<float>::Ones(1, 4));
  const ek::Matrix<float> x = values::random<float>(20, 4, 9).rowwise() + mean.row(0);
  const double deviation = ek::fold(norm, second, x).deviation;
  CHECK(deviation > 1e-4);
  CHECK(deviation < 0.1);
}

TEST_CASE("What cannot be folded is an error that says why", "[fold]") {
  const ek::Linear<double> linear(4, 6);
  CHECK(error_of([&] { ek::fold(linear, ek::BatchNorm<double>(5)); }) ==
        "ShapeError: fold: Linear gives 6 features, but BatchNorm expects 5");
  CHECK(error_of([&] { ek::fold(linear, ek::BatchNorm<double>(6, 2)); }) ==
        "ShapeError: fold: Linear gives 6 features, but BatchNorm expects 12");
  CHECK(error_of([&] { ek::fold(ek::BatchNorm<double>(6), linear); }) ==
        "ShapeError: fold: BatchNorm gives 6 features, but Linear expects 4");
  CHECK(error_of([&] { ek::fold(ek::LayerNorm<double>(6), linear); }) ==
        "ShapeError: fold: LayerNorm gives 6 features, but Linear expects 4");
  CHECK(error_of([&] { ek::fold(ek::RMSNorm<double>(6), linear); }) ==
        "ShapeError: fold: RMSNorm gives 6 features, but Linear expects 4");
  CHECK(error_of([&] { ek::fold(linear, ek::BatchNorm<double>(6, {.track_running_statistics = false})); }) ==
        "UsageError: fold: expected a BatchNorm with running statistics, got one that tracks none");
  CHECK(error_of([&] { ek::fold(ek::LayerNorm<double>(4, {.weight = false, .bias = false}), linear); }) ==
        "invalid_argument: fold: expected a LayerNorm with weight or bias, got one without: there is nothing to fold");
  CHECK(error_of([&] { ek::fold(ek::RMSNorm<double>(4, {.weight = false}), linear); }) ==
        "invalid_argument: fold: expected an RMSNorm with weight, got one without: there is nothing to fold");
  CHECK(error_of([&] { ek::fold(linear, ek::BatchNorm<double>(6), ek::Matrix<double>::Zero(2, 3)); }) ==
        "ShapeError: Linear::infer: expected input of shape (batch, 4), got (2, 3)");

  ek::BatchNorm<double> norm(6);
  norm.buffers()[1].value(0, 2) = -0.5;
  CHECK(error_of([&] { ek::fold(linear, norm); }) ==
        "invalid_argument: fold: expected a finite mean and a finite variance >= 0 in channel 2 of BatchNorm, got 0 "
        "and -0.5");
  norm.buffers()[0].value(0, 1) = std::numeric_limits<double>::quiet_NaN();
  CHECK(error_of([&] { ek::fold(linear, norm); }) ==
        "invalid_argument: fold: expected a finite mean and a finite variance >= 0 in channel 1 of BatchNorm, got nan "
        "and 1");
}
