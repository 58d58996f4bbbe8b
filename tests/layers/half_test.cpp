// Layers whose data are halves: Eigen::half and Eigen::bfloat16.

#include <cstdint>  // uint32_t
#include <type_traits>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/loss.hpp"
#include "kernels/strided.hpp"
#include "layers/reference.hpp"
#include "layers/rounding.hpp"

namespace ek = evenkeel;
using ek::Index;
using ek::Matrix;
using reference::exact;
using reference::Numbers;
using rounding::rounded_once;
using strided::Order;
using strided::Storage;

namespace {

template <typename Stored>
Matrix<Stored> halves(Index rows, Index columns, std::uint32_t seed) {
  return values::random<float>(rows, columns, seed).template cast<Stored>();
}
template <class M>
Matrix<float> floats(const M& matrix) {
  return matrix.template cast<float>();
}

template <class Layer>
ek::Parameters<float> parameters_of(Layer& layer) {
  if constexpr (requires { layer.parameters(); })
    return layer.parameters();
  else
    return {};
}

template <class Layer>
void set_parameters(Layer& layer) {
  std::uint32_t seed = 100;
  for (auto& parameter : parameters_of(layer))
    parameter.value = values::positive<float>(parameter.value.rows(), parameter.value.cols(), ++seed);
}

/// What the layer computes is what it computes of the same numbers in float, rounded once: output, gradients, in every storage
/// order and in place. The gradients of parameters are the float layer's.
template <class Layer>
void check_is_float_rounded_once(Layer layer, Index rows, Index columns, ek::Mode mode = ek::Mode::train) {
  using Stored = typename Layer::Scalar;
  set_parameters(layer);
  const auto x = halves<Stored>(rows, columns, 1);
  auto in_float = layer.template cast<float>();
  const Matrix<Stored> y = floats(in_float.forward(floats(x), mode)).template cast<Stored>();
  const auto dy = halves<Stored>(rows, y.cols(), 2);
  const Matrix<Stored> dx = floats(in_float.backward(floats(dy))).template cast<Stored>();
  const Matrix<Stored> inferred = floats(in_float.infer(floats(x))).template cast<Stored>();
  const auto same = [](const Matrix<Stored>& a, const Matrix<Stored>& b) {
    return compare::same_bits(floats(a), floats(b));
  };
  const auto same_parameter_gradients = [&](Layer& other) {
    const auto expected = parameters_of(in_float);
    const auto actual = parameters_of(other);
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      if (!compare::same_bits(actual[i].gradient, expected[i].gradient)) return false;
    return true;
  };

  for (const Order in : strided::orders)
    for (const Order out : strided::orders) {
      INFO("orders " << static_cast<int>(in) << ", " << static_cast<int>(out));
      Layer fresh = layer;
      Storage<Stored> input(x, in), output(y, out), delta(dy, in), gradient(x, out);
      fresh.forward(ek::as_map(input.fixed()), ek::as_map(output.view()), mode);
      CHECK(same(output.matrix(), y));
      CHECK(output.gaps_untouched());
      fresh.backward(ek::as_map(input.fixed()), ek::as_map(delta.fixed()), ek::as_map(gradient.view()));
      CHECK(same(gradient.matrix(), dx));
      CHECK(gradient.gaps_untouched());
      CHECK(same_parameter_gradients(fresh));
      ek::Workspace<Stored> workspace;
      fresh.infer(ek::as_map(input.fixed()), ek::as_map(output.view()), workspace);
      CHECK(same(output.matrix(), inferred));
    }

  Layer fresh = layer;
  fresh.forward(x, Matrix<Stored>(y), mode);
  fresh.backward_parameters(x, dy);
  CHECK(same_parameter_gradients(fresh));
  fresh.backward_parameters(x, dy, ek::Accumulate::yes);
  in_float.backward(floats(dy), ek::Accumulate::yes);
  CHECK(same_parameter_gradients(fresh));
  CHECK(same(Layer(layer).forward(x, mode), y));  // the call that stands alone
  fresh = layer;
  fresh.forward(x, mode);
  CHECK(same(fresh.backward(dy), dx));
  if (x.cols() != y.cols()) return;
  Layer again = layer;
  Matrix<Stored> in_place = x;
  again.forward(in_place, in_place, mode);
  CHECK(same(in_place, y));
  in_place = dy;
  again.backward(x, in_place, in_place);
  CHECK(same(in_place, dx));
  in_place = x;
  ek::Workspace<Stored> workspace;
  again.infer(in_place, in_place, workspace);
  CHECK(same(in_place, inferred));
}

/// The gradient by the input is the double layer's, which is checked by finite differences, rounded once.
template <class Layer>
void check_gradient_rounds_once(Layer layer, const Matrix<typename Layer::Scalar>& x) {
  const auto dy = halves<typename Layer::Scalar>(x.rows(), layer.output_features(x.cols()), 9);
  auto in_double = layer.template cast<double>();
  layer.forward(x, ek::Mode::train);
  in_double.forward(x.template cast<double>(), ek::Mode::train);
  CHECK(rounded_once(layer.backward(dy), exact(in_double.backward(dy.template cast<double>()))));
}

}  // namespace

TEMPLATE_TEST_CASE("LayerNorm and RMSNorm of halves are those of floats, rounded once", "[half]", Eigen::half,
                   Eigen::bfloat16) {
  // Rows packed on the stack and in scratch, more than at a time, and more than are summed in float.
  check_is_float_rounded_once(ek::LayerNorm<TestType>(37), 70, 37);
  check_is_float_rounded_once(ek::LayerNorm<TestType>(2500), 18, 2500);
  check_is_float_rounded_once(ek::LayerNorm<TestType>(1, {.bias = false}), 3, 1);
  check_is_float_rounded_once(ek::RMSNorm<TestType>(37), 70, 37);
}

TEMPLATE_TEST_CASE("LayerNorm and RMSNorm of halves are the equation, rounded once", "[half]", Eigen::half,
                   Eigen::bfloat16) {
  constexpr Index rows = 9, columns = 50;
  auto x = halves<TestType>(rows, columns, 1);
  x.row(1) *= TestType(1000);
  x.row(2) /= TestType(1000);
  x.row(3).array() += TestType(30);
  ek::LayerNorm<TestType> layer_norm(columns);
  set_parameters(layer_norm);
  const auto of_layer_norm = layer_norm.parameters();
  CHECK(rounded_once(
      layer_norm.forward(x, ek::Mode::train),
      reference::layer_norm(exact(x), exact(of_layer_norm[0].value), exact(of_layer_norm[1].value), 1e-5L)));
  check_gradient_rounds_once(layer_norm, x);
  ek::RMSNorm<TestType> rms_norm(columns);
  set_parameters(rms_norm);
  CHECK(rounded_once(rms_norm.forward(x, ek::Mode::train),
                     reference::rms_norm(exact(x), exact(rms_norm.parameters()[0].value), 1e-5L)));
}

// 1000^2 is beyond Eigen::half.
TEMPLATE_TEST_CASE("OVF-1: halves of size 1000 normalize to numbers of size 1", "[half]", Eigen::half,
                   Eigen::bfloat16) {
  const Matrix<float> equal = Matrix<float>::Constant(1, 8, 1000);
  const Matrix<float> alternating{{1000, -1000, 1000, -1000, 1000, -1000, 1000, -1000}};
  ek::RMSNorm<TestType> rms_norm(8, {.epsilon = 1e-6});
  ek::LayerNorm<TestType> layer_norm(8);
  const auto check = [](auto& layer, const Matrix<float>& x) {
    const Matrix<float> expected = x / 1000;
    CHECK(compare::difference(layer.infer(x.template cast<TestType>().eval()), expected) <= 1e-3);
    CHECK(compare::difference(layer.forward(x.template cast<TestType>().eval(), ek::Mode::train), expected) <= 1e-3);
  };
  check(rms_norm, equal);
  check(rms_norm, alternating);
  check(layer_norm, alternating);
}

TEMPLATE_TEST_CASE("BatchNorm of halves is that of floats, rounded once", "[half]", Eigen::half, Eigen::bfloat16) {
  for (const ek::Mode mode : {ek::Mode::train, ek::Mode::frozen_statistics}) {
    check_is_float_rounded_once(ek::BatchNorm<TestType>(130), 141, 130,
                                mode);  // more than a tile of columns, and of rows
    check_is_float_rounded_once(ek::BatchNorm<TestType>(5, 7), 30, 35, mode);     // short channels
    check_is_float_rounded_once(ek::BatchNorm<TestType>(2, 500), 3, 1000, mode);  // long ones
  }
  const auto x = halves<TestType>(20, 6, 1);
  ek::BatchNorm<TestType> layer(6);
  set_parameters(layer);
  const auto batch = reference::channel_statistics(exact(x), 1);
  const auto parameters = layer.parameters();
  CHECK(rounded_once(layer.forward(x, ek::Mode::train),
                     reference::batch_norm(exact(x), 1, batch.mean, batch.biased, exact(parameters[0].value),
                                           exact(parameters[1].value), 1e-5L)));
  check_gradient_rounds_once(layer, x);
  static_assert(std::is_same_v<decltype(layer.buffers()), ek::Buffers<float>>);
  // Running statistics are floats, not halves: exact to some of their own last places.
  CHECK(compare::difference(layer.running_mean(), Numbers(batch.mean * 0.1L)) <= 4 * compare::epsilon<float>);
}

TEST_CASE("GroupNorm and InstanceNorm of halves are those of floats, rounded once", "[half]") {
  using Stored = Eigen::half;
  check_is_float_rounded_once(ek::GroupNorm<Stored>(3, 12), 9, 12);
  check_is_float_rounded_once(ek::GroupNorm<Stored>(2, 4, 10), 70, 40);   // short channels
  check_is_float_rounded_once(ek::GroupNorm<Stored>(2, 4, 100), 3, 400);  // long ones
  for (const ek::Mode mode : {ek::Mode::train, ek::Mode::eval})
    check_is_float_rounded_once(ek::InstanceNorm<Stored>(4, 30, {.affine = true, .track_running_statistics = true}), 9,
                                120, mode);
  const auto x = halves<Stored>(9, 40, 1);
  ek::GroupNorm<Stored> layer(2, 4, 10);
  set_parameters(layer);
  const auto parameters = layer.parameters();
  CHECK(rounded_once(
      layer.forward(x, ek::Mode::train),
      reference::group_norm(exact(x), 2, 10, exact(parameters[0].value), exact(parameters[1].value), 1e-5L)));
}

TEMPLATE_TEST_CASE("Linear of halves is that of floats, rounded once", "[half]", Eigen::half, Eigen::bfloat16) {
  check_is_float_rounded_once(ek::Linear<TestType>(37, 20), 150, 37);  // more rows than are converted at a time
  check_is_float_rounded_once(ek::Linear<TestType>(20, 20, {.bias = false}), 9, 20);
  check_is_float_rounded_once(ek::Linear<TestType>(5, 3), 1, 5);
  const auto x = halves<TestType>(20, 50, 1);
  ek::Linear<TestType> layer(50, 7);
  const auto parameters = layer.parameters();
  CHECK(rounded_once(layer.forward(x, ek::Mode::train),
                     reference::linear(exact(x), exact(parameters[0].value), exact(parameters[1].value))));
  check_gradient_rounds_once(layer, x);

  layer.backward(halves<TestType>(20, 7, 2));  // gradients that an empty batch is to replace
  layer.forward(Matrix<TestType>(0, 50), ek::Mode::train);
  layer.backward(Matrix<TestType>(0, 7));
  for (auto& parameter : layer.parameters()) CHECK(parameter.gradient.isZero(0));
}

TEMPLATE_TEST_CASE("Dropout of halves has the masks of floats, and rounds once", "[half]", Eigen::half,
                   Eigen::bfloat16) {
  // Rows drawn several at a time, one by one, and in more pieces than one.
  for (const Index columns : {5, 130, 4200})
    check_is_float_rounded_once(ek::Dropout<TestType>(0.3, {.seed = 7}), 9, columns);
  check_is_float_rounded_once(ek::Dropout<TestType>(0.3), 9, 20, ek::Mode::eval);

  const auto x = halves<TestType>(6, 50, 1);
  ek::Dropout<TestType> layer(0.25, {.seed = 3});
  CHECK(rounded_once(layer.forward(x, ek::Mode::train), reference::dropout(exact(x), {.p = 0.25, .seed = 3})));
}

TEST_CASE("AlphaDropout and SpatialDropout of halves are those of floats, rounded once", "[half]") {
  check_is_float_rounded_once(ek::AlphaDropout<Eigen::bfloat16>(0.3), 9, 130);
  check_is_float_rounded_once(ek::SpatialDropout<Eigen::half>(0.3, 6, 20), 9, 120);
}

TEST_CASE("Parameters of a layer of halves are floats", "[half]") {
  ek::LayerNorm<Eigen::half> layer(3);
  const ek::LayerNorm<Eigen::half> fixed(3);
  static_assert(std::is_same_v<decltype(layer.parameters()), ek::Parameters<float>>);
  static_assert(std::is_same_v<decltype(fixed.parameters()), ek::Parameters<const float>>);
  layer.parameters()[0].value.setConstant(1.0001f);  // no half
  CHECK(layer.cast<Eigen::bfloat16>().parameters()[0].value(0, 2) == 1.0001f);
  CHECK(layer.cast<double>().parameters()[0].value(0, 2) == static_cast<double>(1.0001f));
}

TEST_CASE("A layer of halves takes and gives halves alone", "[half]") {
  using Layer = ek::LayerNorm<Eigen::half>;
  const auto takes = []<class X, class Y>(const X&, const Y&) {
    return requires(Layer & layer, X x, Y y) { layer.forward(x, y, ek::Mode::train); };
  };
  const Matrix<Eigen::half> half;
  const Matrix<Eigen::bfloat16> other;
  const Matrix<float> number;
  CHECK(takes(half, half));
  CHECK_FALSE(takes(half, number));
  CHECK_FALSE(takes(number, half));
  CHECK_FALSE(takes(other, half));
}

TEST_CASE("Activations of halves are those of floats, rounded once", "[half]") {
  check_is_float_rounded_once(ek::ReLU<Eigen::half>(), 5, 37);
  check_is_float_rounded_once(ek::GELU<Eigen::bfloat16>(), 5, 37);
}

TEST_CASE("A network of halves is trained by optimizers of floats", "[half]") {
  using Stored = Eigen::bfloat16;
  ek::Sequential net{ek::Linear<Stored>(6, 8), ek::BatchNorm<Stored>(8), ek::ReLU<Stored>(), ek::Dropout<Stored>(0.1),
                     ek::Linear<Stored>(8, 2, {.seed = 1})};
  static_assert(std::is_same_v<decltype(net.parameters()), ek::Parameters<float>>);
  static_assert(std::is_same_v<decltype(net.buffers()), ek::Buffers<float>>);
  const auto x = halves<Stored>(30, 6, 1);
  const Matrix<float> target = floats(x).leftCols(2);
  ek::MeanSquaredError<float> loss;
  ek::Adam optimizer(net, {.learning_rate = 0.03});
  static_assert(std::is_same_v<decltype(optimizer), ek::Adam<float>>);
  const auto mean_error = [&] { return loss(floats(net.infer(x)), target).value; };
  const auto before = mean_error();
  for (int step = 0; step < 100; ++step) {
    const auto result = loss(floats(net.forward(x, ek::Mode::train)), target);
    net.backward(result.gradient.cast<Stored>().eval());
    optimizer.step();
  }
  CHECK(mean_error() < 0.1 * before);

  // Between types nothing is rounded: parameters and running statistics are floats in both.
  const auto back = net.cast<float>().cast<Stored>();
  CHECK(compare::same_bits(floats(back.infer(x)), floats(net.infer(x))));
  // Each layer rounds its output: some roundings of an eighth bit, of sums of some such numbers.
  CHECK(compare::difference(net.infer(x), net.cast<float>().infer(floats(x))) < 0.05);
}

TEST_CASE("Gradients of halves pass the check, against slopes in long double", "[half]") {
  const auto report = ek::check_gradients(ek::BatchNorm<Eigen::half>(6), halves<Eigen::half>(8, 6, 1), ek::Mode::train);
  INFO(report);
  CHECK(report);
  const ek::LayerNorm<Eigen::bfloat16> norm(6);
  CHECK(ek::check_gradients(norm, halves<Eigen::bfloat16>(8, 6, 1), ek::Mode::train));
}

TEST_CASE("Mlp's layers can be of halves", "[half]") {
  const ek::Mlp<Eigen::half> net({6, 16, 3}, {.norm = ek::Norm::layer, .seed = 2});
  const auto x = halves<Eigen::half>(9, 6, 1);
  CHECK(compare::difference(net.infer(x), net.cast<float>().infer(floats(x))) < 0.005);
}
