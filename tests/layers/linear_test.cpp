#include "evenkeel/layers/linear.hpp"

#include <cmath>  // sqrt, abs
#include <cstdint>
#include <limits>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<double>;

ek::Linear<double> with(const Matrix& weight, const Matrix& bias) {
  ek::Linear<double> layer(weight.cols(), weight.rows());
  layer.parameters()[0].value = weight;
  layer.parameters()[1].value = bias;
  return layer;
}

}  // namespace

TEST_CASE("A wrong size of Linear is an error that names it", "[linear]") {
  CHECK(error_of([] { ek::Linear<float> layer(0, 4); }) == "invalid_argument: Linear: expected in >= 1, got 0");
  CHECK(error_of([] { ek::Linear<float> layer(4, 0); }) == "invalid_argument: Linear: expected out >= 1, got 0");
  CHECK(error_of([] { ek::Linear<float, 3, 2> layer(4, 2); }) ==
        "invalid_argument: Linear: expected in = 3, fixed by the template argument, got 4");
  CHECK(error_of([] { ek::Linear<float, 3, 2> layer(3, 3); }) ==
        "invalid_argument: Linear: expected out = 2, fixed by the template argument, got 3");
}

TEST_CASE("Linear tells its sizes, and its parameters have PyTorch's shapes", "[linear]") {
  ek::Linear<float> layer(3, 2);
  CHECK(layer.input_features() == 3);
  CHECK(layer.output_features(3) == 2);
  const auto parameters = layer.parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[0].kind == ek::ParameterKind::weight);
  CHECK(parameters[0].value.rows() == 2);
  CHECK(parameters[0].value.cols() == 3);
  CHECK(parameters[0].gradient.rows() == 2);
  CHECK(parameters[0].gradient.cols() == 3);
  CHECK(parameters[1].name == "bias");
  CHECK(parameters[1].kind == ek::ParameterKind::bias);
  CHECK(parameters[1].value.rows() == 1);
  CHECK(parameters[1].value.cols() == 2);
  CHECK(ek::Linear<float>(3, 2, {.bias = false}).parameters().size() == 1);
  CHECK(ek::Linear<float, 3, 2>().output_features(3) == 2);
}

TEST_CASE("A weight's value, gradient and flat views show the same elements in the same order", "[linear]") {
  ek::Linear<double> layer(3, 2);
  layer.forward(values::random<double>(4, 3, 1), ek::Mode::train);
  layer.backward(values::random<double>(4, 2, 2));
  auto weight = layer.parameters()[0];
  REQUIRE(weight.flat_value().size() == 6);
  for (Index i = 0; i < 2; ++i)
    for (Index j = 0; j < 3; ++j) {
      const auto place = &weight.value(i, j) - weight.flat_value().data();
      CHECK(weight.flat_value()[place] == weight.value(i, j));
      CHECK(weight.flat_gradient()[place] == weight.gradient(i, j));
    }
}

TEST_CASE("BWD-3: Linear's output and gradients by hand", "[linear]") {
  auto layer = with(Matrix{{1, 0, -1}, {2, 1, 0}}, Matrix{{0.5, -0.5}});
  const Matrix x{{1, 2, 3}, {4, 5, 6}};
  const Matrix dy{{1, -1}, {2, 0.5}};
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::train), Matrix{{-1.5, 3.5}, {-1.5, 12.5}}));
  CHECK(compare::same_bits(layer.backward(dy), Matrix{{-1, -1, -1}, {3, 0.5, -2}}));
  CHECK(compare::same_bits(Matrix(layer.parameters()[0].gradient), Matrix{{9, 12, 15}, {1, 0.5, 0}}));
  CHECK(compare::same_bits(Matrix(layer.parameters()[1].gradient), Matrix{{3, -0.5}}));

  layer.forward(x.row(1), ek::Mode::train);
  layer.backward(dy.row(1));
  CHECK(compare::same_bits(Matrix(layer.parameters()[1].gradient), Matrix(dy.row(1))));
}

TEST_CASE("ALI-5: Linear into itself, and with its own weight as input", "[linear]") {
  auto layer = with(Matrix{{1, 2}, {3, 4}}, Matrix{{10, 20}});
  Matrix x{{1, 1}};
  x = layer.forward(x, ek::Mode::train);
  CHECK(compare::same_bits(x, Matrix{{13, 27}}));
  x = Matrix{{1, 1}};
  layer.forward(x, x, ek::Mode::train);
  CHECK(compare::same_bits(x, Matrix{{13, 27}}));
  x = Matrix{{1, 1}};
  ek::Workspace<double> workspace;
  layer.infer(x, x, workspace);
  CHECK(compare::same_bits(x, Matrix{{13, 27}}));
  CHECK(compare::same_bits(layer.forward(layer.parameters()[0].value, ek::Mode::train), Matrix{{15, 31}, {21, 45}}));
}

TEMPLATE_TEST_CASE("Linear is right for sizes around those of its blocks", "[linear]", double, float) {
  struct Size {
    Index rows, in, out;
  };
  for (const auto& [rows, in, out] : {Size{33, 129, 65}, Size{1, 391, 64}, Size{16, 391, 64}, Size{130, 5, 3}}) {
    INFO(rows << " x " << in << " x " << out);
    ek::Linear<TestType> layer(in, out, {.seed = 5});
    const auto x = values::random<TestType>(rows, in, 1);
    const auto dy = values::random<TestType>(rows, out, 2);
    const auto exact = [](const auto& m) { return reference::exact(m); };
    const auto parameters = layer.parameters();
    const auto weight = exact(parameters[0].value);
    // Each of the sums has at most 391 terms of size 1, and as many roundings.
    const double tolerance = 64 * compare::epsilon<TestType>;
    CHECK(compare::difference(layer.forward(x, ek::Mode::train),
                              reference::linear(exact(x), weight, exact(parameters[1].value))) <= tolerance);
    const auto zeros = [](Index columns) { return reference::Numbers::Zero(1, columns); };
    CHECK(compare::difference(layer.backward(dy), reference::linear(exact(dy), weight.transpose(), zeros(in))) <=
          tolerance);
    CHECK(compare::difference(parameters[0].gradient,
                              reference::linear(exact(dy.transpose()), exact(x.transpose()), zeros(in))) <= tolerance);
    const reference::Numbers bias_gradient = exact(dy).colwise().sum();
    CHECK(compare::difference(parameters[1].gradient, bias_gradient) <= tolerance);
    layer.backward(dy, ek::Accumulate::yes);
    CHECK(compare::difference(parameters[0].gradient, 2 * reference::linear(exact(dy.transpose()), exact(x.transpose()),
                                                                            zeros(in))) <= tolerance);
  }
}

TEST_CASE("The bias gradient of a long batch is summed in double", "[linear]") {
  ek::Linear<float> layer(1, 1);
  constexpr int rows = 100000;
  const ek::Matrix<float> x = ek::Matrix<float>::Zero(rows, 1);
  ek::Matrix<float> y(rows, 1);
  layer.forward(x, y, ek::Mode::train);
  layer.backward_parameters(x, ek::Matrix<float>::Constant(rows, 1, 0.1f));
  CHECK(layer.parameters()[1].gradient(0, 0) == static_cast<float>(rows * static_cast<double>(0.1f)));
}

TEST_CASE("Init::uniform draws weights and biases from +-1/sqrt(in)", "[linear]") {
  ek::Linear<double> layer(100, 200, {.seed = 3});
  const auto weight = layer.parameters()[0].value;
  CHECK(weight.maxCoeff() < 0.1);
  CHECK(weight.minCoeff() > -0.1);
  CHECK(weight.maxCoeff() > 0.0999);
  CHECK(weight.minCoeff() < -0.0999);
  // Of 20000 numbers: five deviations of the mean and of the variance.
  CHECK(std::abs(weight.mean()) < 5 * 0.1 / std::sqrt(3 * 20000.0));
  CHECK(weight.squaredNorm() / 20000 == Catch::Approx(0.01 / 3).epsilon(0.04));
  const auto bias = layer.parameters()[1].value;
  CHECK(bias.cwiseAbs().maxCoeff() < 0.1);
  CHECK(bias.maxCoeff() > 0.09);
  CHECK(bias.minCoeff() < -0.09);
}

TEST_CASE("Init::he and Init::normal draw normal weights and leave the bias at zero", "[linear]") {
  ek::Linear<double> he(50, 400, {.init = ek::Init::he, .seed = 3});
  ek::Linear<double> normal(50, 400, {.init = ek::Init::normal(0.7), .seed = 3});
  const auto weight = he.parameters()[0].value;
  CHECK(std::abs(weight.mean()) < 5 * 0.2 / std::sqrt(20000.0));
  CHECK(weight.squaredNorm() / 20000 == Catch::Approx(2.0 / 50).epsilon(0.05));
  CHECK(static_cast<double>((weight.array().abs() < 0.2).count()) / 20000 == Catch::Approx(0.6827).epsilon(0.02));
  CHECK((he.parameters()[1].value.array() == 0).all());
  CHECK(compare::difference(normal.parameters()[0].value, weight * (0.7 / 0.2)) <= 4 * compare::epsilon<double>);
  CHECK((normal.parameters()[1].value.array() == 0).all());
  CHECK((ek::Linear<double>(3, 2, {.init = ek::Init::normal(0)}).parameters()[0].value.array() == 0).all());
  CHECK(error_of([] { (void)ek::Init::normal(-0.1); }) ==
        "invalid_argument: Init::normal: expected a finite standard deviation >= 0, got -0.1");
  CHECK(error_of([] { (void)ek::Init::normal(std::numeric_limits<double>::quiet_NaN()); }) ==
        "invalid_argument: Init::normal: expected a finite standard deviation >= 0, got nan");
}

TEST_CASE("Weights are drawn row by row, weight and bias from streams of their own names", "[linear]") {
  const auto check = [](const std::string& path, const std::string& prefix) {
    ek::Linear<double> layer(3, 2, {.seed = 9, .path = path});
    ek::RandomStream weights(9, ek::stream_of(prefix + "weight")), biases(9, ek::stream_of(prefix + "bias"));
    const auto next = [](ek::RandomStream& random) { return (2 * random.uniform() - 1) / std::sqrt(3.0); };
    const auto parameters = layer.parameters();
    for (Index i = 0; i < 2; ++i)
      for (Index j = 0; j < 3; ++j) CHECK(parameters[0].value(i, j) == Catch::Approx(next(weights)).epsilon(1e-14));
    for (Index i = 0; i < 2; ++i) CHECK(parameters[1].value(0, i) == Catch::Approx(next(biases)).epsilon(1e-14));
  };
  check("", "");
  check("linear.1", "linear.1.");
}

TEST_CASE("Layers of equal seed, path and size start equal, others do not", "[linear]") {
  const auto weight = [](std::uint64_t seed, const std::string& path) {
    ek::Linear<double> layer(5, 4, {.seed = seed, .path = path});
    return Matrix(layer.parameters()[0].value);
  };
  CHECK(compare::same_bits(weight(1, "a"), weight(1, "a")));
  CHECK((weight(1, "a").array() != weight(2, "a").array()).all());
  CHECK((weight(1, "a").array() != weight(1, "b").array()).all());
  ek::Linear<double> with_bias(5, 4, {.seed = 1, .path = "a"}), without(5, 4, {.bias = false, .seed = 1, .path = "a"});
  CHECK(compare::same_bits(with_bias.parameters()[0].value, without.parameters()[0].value));
}
