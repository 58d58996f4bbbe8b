#include "evenkeel/layers/layer_norm.hpp"

#include <cmath>  // abs, sqrt
#include <limits>
#include <string>
#include <utility>  // pair

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<double>;

}  // namespace

TEST_CASE("A wrong size of LayerNorm is an error that names it", "[layer_norm]") {
  CHECK(error_of([] { ek::LayerNorm<float> layer(0); }) ==
        "invalid_argument: LayerNorm: expected features >= 1, got 0");
  CHECK(error_of([] { ek::LayerNorm<float> layer(-3); }) ==
        "invalid_argument: LayerNorm: expected features >= 1, got -3");
  CHECK(error_of([] { ek::LayerNorm<float, 8> layer(7); }) ==
        "invalid_argument: LayerNorm: expected features = 8, fixed by the template argument, got 7");
}

TEST_CASE("EPS-3: LayerNorm rejects an epsilon that is not positive and finite", "[layer_norm]") {
  const auto error_for = [](double epsilon) {
    return error_of([&] { ek::LayerNorm<float> layer(3, {.epsilon = epsilon}); });
  };
  const std::string text = "invalid_argument: LayerNorm: expected a finite epsilon > 0, got ";
  CHECK(error_for(-1) == text + "-1");
  CHECK(error_for(-1e-5) == text + "-1e-05");
  CHECK(error_for(std::numeric_limits<double>::quiet_NaN()) == text + "nan");
  CHECK(error_for(std::numeric_limits<double>::infinity()) == text + "inf");
}

// Epsilon 0 is rejected by every norm: so no layer divides zero by zero.
TEST_CASE("EPS-4: LayerNorm rejects epsilon 0, and a constant row gives the shift", "[layer_norm]") {
  CHECK(error_of([] { ek::LayerNorm<double> layer(4, {.epsilon = 0}); }) ==
        "invalid_argument: LayerNorm: expected a finite epsilon > 0, got 0");
  ek::LayerNorm<double> layer(4);
  layer.parameters()[1].value.setConstant(0.5);
  CHECK((layer.forward(Matrix::Zero(3, 4), ek::Mode::train).array() == 0.5).all());
  CHECK(layer.backward(values::random<double>(3, 4, 1)).allFinite());
}

TEST_CASE("LayerNorm tells its sizes and where it starts", "[layer_norm]") {
  ek::LayerNorm<float> layer(3, {.epsilon = 0.25});
  CHECK(layer.features() == 3);
  CHECK(layer.epsilon() == 0.25);
  CHECK(layer.input_features() == 3);
  CHECK(layer.output_features(3) == 3);
  const auto parameters = layer.parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[0].kind == ek::ParameterKind::norm_scale);
  CHECK(compare::same_bits(parameters[0].value, ek::Matrix<float>::Ones(1, 3)));
  CHECK(parameters[1].name == "bias");
  CHECK(parameters[1].kind == ek::ParameterKind::norm_shift);
  CHECK(compare::same_bits(parameters[1].value, ek::Matrix<float>::Zero(1, 3)));
  CHECK(ek::LayerNorm<float>(3).epsilon() == 1e-5);
}

TEST_CASE("LayerNorm's weight and bias can be left out separately", "[layer_norm]") {
  CHECK(ek::LayerNorm<float>(3, {.weight = false, .bias = false}).parameters().empty());
  ek::LayerNorm<float> weight_only(3, {.bias = false}), bias_only(3, {.weight = false});
  REQUIRE(weight_only.parameters().size() == 1);
  CHECK(weight_only.parameters()[0].name == "weight");
  REQUIRE(bias_only.parameters().size() == 1);
  CHECK(bias_only.parameters()[0].name == "bias");
}

TEST_CASE("A fixed number of features computes what a dynamic one does", "[layer_norm]") {
  ek::LayerNorm<float, 8> fixed;
  ek::LayerNorm<float> dynamic(8);
  const auto x = values::random<float>(5, 8, 1);
  CHECK(fixed.features() == 8);
  CHECK(compare::same_bits(fixed.forward(x, ek::Mode::train), dynamic.forward(x, ek::Mode::train)));
  CHECK(compare::same_bits(fixed.backward(x), dynamic.backward(x)));
  CHECK(error_of([&] { fixed.infer(values::random<float>(5, 7, 1)); }) ==
        "ShapeError: LayerNorm::infer: expected input of shape (batch, 8), got (5, 7)");
}

// 1e-5 proves that the mean is kept in more than a float.
TEST_CASE("VAR-1: a float row far from zero with a small spread normalizes", "[layer_norm]") {
  struct Case {
    float base;
    double first, last;
  };
  for (const auto& [base, first, last] :
       {Case{100, -1.3415277, 1.3413571}, Case{1000, -1.3415078, 1.3442372}, Case{10000, -1.3313334, 1.3313334}}) {
    INFO("at " << base);
    ek::Matrix<float> x(1, 16);
    for (Index i = 0; i < 16; ++i) x(0, i) = base + static_cast<float>(i) * 1e-3f;
    const auto y = ek::LayerNorm<float>(16).infer(x);
    CHECK(std::abs(static_cast<double>(y(0, 0)) - first) < 1e-5);
    CHECK(std::abs(static_cast<double>(y(0, 15)) - last) < 1e-5);
  }
}

TEMPLATE_TEST_CASE("VAR-2: a row of four consecutive large integers normalizes exactly", "[layer_norm]", double,
                   float) {
  for (const TestType v : {TestType(40000), TestType(80000), TestType(1e6), TestType(4e6)}) {
    INFO("from " << v);
    ek::LayerNorm<TestType> layer(4);
    const auto y = layer.infer(ek::Matrix<TestType>{{v, v + 1, v + 2, v + 3}});
    const double outer = 1.5 / std::sqrt(1.25001), inner = 0.5 / std::sqrt(1.25001);
    CHECK(compare::difference(y, Matrix{{-outer, -inner, inner, outer}}) <= 4 * compare::epsilon<TestType>);
  }
}

TEST_CASE("VAR-3, VAR-4: a constant row gives the shift, whatever its value", "[layer_norm]") {
  for (const auto& [size, value] :
       {std::pair(256, 1234.0f), std::pair(7, 123456789.0f), std::pair(7, 300.1f), std::pair(7, 1e10f)}) {
    INFO(size << " times " << value);
    ek::LayerNorm<float> layer(size);
    const ek::Matrix<float> x = ek::Matrix<float>::Constant(1, size, value);
    CHECK(layer.forward(x, ek::Mode::train).cwiseAbs().maxCoeff() < 1e-3f);
    CHECK(layer.backward(x.cwiseSign()).allFinite());
  }
}

TEST_CASE("VAR-5: alternating values over a long row", "[layer_norm]") {
  ek::Matrix<float> x(1, 32768);
  for (Index i = 0; i < x.cols(); ++i) x(0, i) = i % 2 == 0 ? 99.99f : 100.01f;
  const auto y = ek::LayerNorm<float>(32768).infer(x);
  CHECK(std::abs(y(0, 0) + 0.9534811f) < 1e-6f);
  CHECK(std::abs(y(0, 32767) - 0.9534811f) < 1e-6f);
}

TEST_CASE("Rows whose squares leave the range normalize like others", "[layer_norm]") {
  const Matrix row{{1, 2, 4, 7}};
  const Matrix expected = ek::LayerNorm<double>(4, {.epsilon = 1e-300}).infer(row);
  for (const double size : {1e160, 1e200, 1e307, -1e307}) {
    INFO("times " << size);
    ek::LayerNorm<double> layer(4);
    const Matrix y = layer.forward(row * size, ek::Mode::train);
    CHECK(compare::difference(y, size > 0 ? expected : Matrix(-expected)) <= 8 * compare::epsilon<double>);
    // The gradient shrinks as the input grows.
    const Matrix dy{{1, 0, 2, -1}};
    ek::LayerNorm<double> small(4, {.epsilon = 1e-300});
    small.forward(row, ek::Mode::train);
    const Matrix dx = layer.backward(dy * std::abs(size));
    CHECK(compare::difference(dx, small.backward(dy)) <= 16 * compare::epsilon<double>);
  }
  const auto y = ek::LayerNorm<float>(4).infer((row * 1e37).cast<float>());
  CHECK(compare::difference(y, expected) <= 8 * compare::epsilon<float>);
}

// Where the squares of a row overflow, epsilon is nothing; the row is scaled, and epsilon with it.
TEST_CASE("OVF-3: epsilon counts as much for a row that is scaled as for any other", "[layer_norm]") {
  // Variance 1e308, which double holds, of deviations whose squares add up to more than it holds.
  const Matrix x{{1e154, -1e154, 1e154, -1e154}};
  const Matrix expected = x / std::sqrt(1e308 + 0.5e308);
  CHECK(compare::difference(ek::LayerNorm<double>(4, {.epsilon = 0.5e308}).infer(x), expected) <= 1e-15);
}

TEST_CASE("A NaN or an infinity makes its row NaN, not a number that looks right", "[layer_norm]") {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Matrix y = ek::LayerNorm<double>(4).infer(Matrix{{1, bad, 4, 7}, {1, 2, 4, 7}});
    CHECK(y.row(0).array().isNaN().any());
    CHECK(y.row(1).allFinite());
  }
}

TEST_CASE("BWD-1: LayerNorm's backward gives the reference's numbers", "[layer_norm]") {
  ek::LayerNorm<double> layer(4);
  layer.parameters()[0].value = Matrix{{1, 2, -1, 0.5}};
  layer.parameters()[1].value = Matrix{{0, 0.1, 0.2, 0.3}};
  const Matrix y = layer.forward(Matrix{{1, 2, 4, 7}, {0, -1, 3, 2}}, ek::Mode::train);
  CHECK(compare::difference(y, Matrix{{-1.09108841, -1.20930609, -0.01821768, 1.06376189},
                                      {-0.63245427, -2.42981707, -1.06490853, 0.61622713}}) < 1e-8);
  const Matrix dx = layer.backward(Matrix{{1, 0, 2, -1}, {0.5, 1, -1, 2}});
  CHECK(compare::difference(dx, Matrix{{0.32732704, 3.1e-7, -0.65465315, 0.32732580},
                                       {-0.49015168, 0.36366196, 0.11067874, 0.01581099}}) < 2e-8);  // their last digit
  CHECK(dx.rowwise().sum().cwiseAbs().maxCoeff() < 1e-15);
  CHECK(compare::difference(layer.parameters()[0].gradient,
                            Matrix{{-1.40731555, -1.26490853, -0.82847317, -0.26261524}}) < 1e-8);
  CHECK(compare::same_bits(layer.parameters()[1].gradient, Matrix{{1.5, 1, 1, 1}}));
}

TEST_CASE("STR-4: LayerNorm on the middle columns of a wider matrix", "[layer_norm]") {
  const auto wide = values::random<double>(5, 11, 1);
  const Matrix expected = ek::LayerNorm<double>(4).infer(Matrix(wide.middleCols(3, 4)));
  Matrix target = Matrix::Constant(5, 11, 7);
  ek::Workspace<double> workspace;
  using Map = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
  ek::LayerNorm<double>(4).infer(Map(wide.data() + 3, 5, 4, Eigen::OuterStride<>(11)), target.middleCols(3, 4),
                                 workspace);
  CHECK(compare::same_bits(Matrix(target.middleCols(3, 4)), expected));
  target.middleCols(3, 4).setConstant(7);
  CHECK((target.array() == 7).all());
}

TEST_CASE("LayerNorm's gradients over many rows are the sums of those of its rows", "[layer_norm]") {
  constexpr Index rows = 20000, features = 5;  // several chunks
  const auto x = values::random<double>(rows, features, 1);
  const auto dy = values::random<double>(rows, features, 2);
  ek::LayerNorm<double> layer(features);
  const Matrix y = layer.forward(x, ek::Mode::train);
  layer.backward(dy);
  const Matrix dweight = y.cwiseProduct(dy).colwise().sum(), dbias = dy.colwise().sum();
  // Terms of size 1 add up to something of size 100 here: their roundings do too.
  CHECK(compare::difference(layer.parameters()[0].gradient, dweight) <= 200 * compare::epsilon<double>);
  CHECK(compare::difference(layer.parameters()[1].gradient, dbias) <= 200 * compare::epsilon<double>);
  layer.backward(dy, ek::Accumulate::yes);
  CHECK(compare::difference(layer.parameters()[0].gradient, 2 * dweight) <= 200 * compare::epsilon<double>);
  CHECK(compare::difference(layer.parameters()[1].gradient, 2 * dbias) <= 200 * compare::epsilon<double>);
}
