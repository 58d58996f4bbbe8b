#include "evenkeel/layers/rms_norm.hpp"

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
using FloatMatrix = ek::Matrix<float>;

}  // namespace

TEST_CASE("A wrong size of RMSNorm is an error that names it", "[rms_norm]") {
  CHECK(error_of([] { ek::RMSNorm<float> layer(0); }) == "invalid_argument: RMSNorm: expected features >= 1, got 0");
  CHECK(error_of([] { ek::RMSNorm<float, 8> layer(7); }) ==
        "invalid_argument: RMSNorm: expected features = 8, fixed by the template argument, got 7");
}

TEST_CASE("EPS-3: RMSNorm rejects an epsilon that is not positive and finite", "[rms_norm]") {
  const auto error_for = [](double epsilon) {
    return error_of([&] { ek::RMSNorm<float> layer(3, {.epsilon = epsilon}); });
  };
  const std::string text = "invalid_argument: RMSNorm: expected a finite epsilon > 0, got ";
  CHECK(error_for(-1) == text + "-1");
  CHECK(error_for(-1e-5) == text + "-1e-05");
  CHECK(error_for(std::numeric_limits<double>::quiet_NaN()) == text + "nan");
  CHECK(error_for(std::numeric_limits<double>::infinity()) == text + "inf");
}

// Epsilon 0 is rejected by every norm: so no layer divides zero by zero.
TEST_CASE("EPS-4, OVF-3: RMSNorm rejects epsilon 0, and a row of zeros gives zeros", "[rms_norm]") {
  CHECK(error_of([] { ek::RMSNorm<double> layer(4, {.epsilon = 0}); }) ==
        "invalid_argument: RMSNorm: expected a finite epsilon > 0, got 0");
  ek::RMSNorm<double> layer(4);
  CHECK(compare::same_bits(layer.forward(Matrix::Zero(3, 4), ek::Mode::train), Matrix::Zero(3, 4)));
  const auto dy = values::random<double>(3, 4, 1);
  CHECK(compare::difference(layer.backward(dy), dy / std::sqrt(1e-5)) <= 2 * compare::epsilon<double>);
}

TEST_CASE("RMSNorm tells its sizes and where it starts", "[rms_norm]") {
  ek::RMSNorm<float> layer(3, {.epsilon = 0.25});
  CHECK(layer.features() == 3);
  CHECK(layer.epsilon() == 0.25);
  CHECK(layer.input_features() == 3);
  CHECK(layer.output_features(3) == 3);
  REQUIRE(layer.parameters().size() == 1);
  CHECK(layer.parameters()[0].name == "weight");
  CHECK(layer.parameters()[0].kind == ek::ParameterKind::norm_scale);
  CHECK(compare::same_bits(layer.parameters()[0].value, FloatMatrix::Ones(1, 3)));
  CHECK(ek::RMSNorm<float, 5>().features() == 5);
  CHECK(ek::RMSNorm<float>(3, {.weight = false}).parameters().empty());
}

TEST_CASE("With unit_offset the weight starts at zero and the gain at one", "[rms_norm]") {
  ek::RMSNorm<double> offset(3, {.unit_offset = true}), plain(3);
  const auto x = values::random<double>(4, 3, 1);
  CHECK(compare::same_bits(offset.parameters()[0].value, Matrix::Zero(1, 3)));
  CHECK(compare::same_bits(offset.infer(x), plain.infer(x)));
  ek::RMSNorm<double> neither(3, {.weight = false, .unit_offset = true});
  CHECK(neither.parameters().empty());
  CHECK(compare::same_bits(neither.infer(x), plain.infer(x)));
}

TEST_CASE("EPS-1: epsilon stands under the root", "[rms_norm]") {
  const Matrix y = ek::RMSNorm<double>(4, {.epsilon = 1e-6}).infer(Matrix{{1e-3, -1e-3, 1e-3, -1e-3}});
  const double expected = 0.70710678;
  CHECK(compare::difference(y, Matrix{{expected, -expected, expected, -expected}}) < 1e-8);
}

// The default is 1e-5, as in every other norm, not the epsilon of the type, as in PyTorch.
TEST_CASE("EPS-5: epsilon is whatever it is set to, and 1e-5 if it is not", "[rms_norm]") {
  const Matrix x = Matrix::Constant(1, 4, 1e-4);
  for (const auto& [epsilon, expected] :
       {std::pair(0x1p-23, 0.27819744), std::pair(1e-6, 0.09950372), std::pair(1e-5, 0.03160698)})
    CHECK(std::abs(ek::RMSNorm<double>(4, {.epsilon = epsilon}).infer(x)(0, 0) - expected) < 1e-8);
  CHECK(ek::RMSNorm<double>(4).epsilon() == 1e-5);
  CHECK(std::abs(ek::RMSNorm<double>(4).infer(x)(0, 0) - 0.03160698) < 1e-8);
}

TEST_CASE("OVF-2: RMSNorm does not care about the size of its input, up to the ends of the range", "[rms_norm]") {
  const Matrix row{{3, -4}};
  const Matrix expected = row / std::sqrt(12.5);
  for (const float size : {1e15f, 1e25f, 8e37f}) {
    INFO("float times " << size);
    ek::RMSNorm<float> layer(2);
    const FloatMatrix x = row.cast<float>() * size;
    CHECK(compare::difference(layer.forward(x, ek::Mode::train), expected) <= 4 * compare::epsilon<float>);
    CHECK(compare::difference(layer.infer(x), expected) <= 4 * compare::epsilon<float>);
  }
  for (const double size : {1e153, 1e160, 1e200, 4e307}) {
    INFO("double times " << size);
    ek::RMSNorm<double> layer(2);
    CHECK(compare::difference(layer.forward(row * size, ek::Mode::train), expected) <= 4 * compare::epsilon<double>);
    ek::RMSNorm<double> small(2, {.epsilon = 1e-300});
    small.forward(row, ek::Mode::train);
    const Matrix dy{{1, 2}};
    CHECK(compare::difference(layer.backward(dy * size), small.backward(dy)) <= 8 * compare::epsilon<double>);
  }
}

TEMPLATE_TEST_CASE("OVF-3: one large element among zeros", "[rms_norm]", double, float) {
  ek::Matrix<TestType> x = ek::Matrix<TestType>::Zero(1, 256);
  x(0, 0) = 100;
  const auto y = ek::RMSNorm<TestType>(256).infer(x);
  CHECK(std::abs(static_cast<double>(y(0, 0)) - 100 / std::sqrt(10000 / 256.0 + 1e-5)) <=
        64 * compare::epsilon<TestType>);
  CHECK((y.rightCols(255).array() == 0).all());
}

TEST_CASE("OVF-3: a row that is scaled takes its epsilon scaled too", "[rms_norm]") {
  // The mean square, 1e308, fits into a double; the sum of the squares does not.
  const Matrix x{{1e154, -1e154, 1e154, -1e154}};
  const Matrix expected = x / std::sqrt(1e308 + 0.5e308);
  CHECK(compare::difference(ek::RMSNorm<double>(4, {.epsilon = 0.5e308}).infer(x), expected) <= 1e-15);
}

TEST_CASE("ALI-1: the input gradient may be written over the output gradient", "[rms_norm]") {
  const auto check = [](double epsilon, const FloatMatrix& x, const FloatMatrix& dy, const Matrix& expected) {
    ek::RMSNorm<float> layer(4, {.epsilon = epsilon});
    FloatMatrix gradient = dy, y(1, 4);
    layer.forward(x, y, ek::Mode::train);
    layer.backward(x, gradient, gradient);
    CHECK(compare::difference(gradient, expected) < 2e-6);

    gradient = dy;
    layer.forward(x, ek::Mode::train);
    gradient = layer.backward(gradient);
    CHECK(compare::difference(gradient, expected) < 2e-6);

    gradient = dy;
    Eigen::Map<FloatMatrix> map(gradient.data(), 1, 4);
    layer.backward(x, map, map);
    CHECK(compare::difference(gradient, expected) < 2e-6);
  };
  check(1e-4, FloatMatrix{{1, 0, 0, 0}}, FloatMatrix{{1, 0, 0, 0}}, Matrix{{7.9952e-4, 0, 0, 0}});
  check(1e-6, FloatMatrix{{1, 2, 3, 4}}, FloatMatrix{{0.5, -1, 2, 1}},
        Matrix{{0.07911549, -0.57206572, 0.41992064, -0.04868639}});
}

TEST_CASE("STR-4: RMSNorm on the middle columns of a wider matrix", "[rms_norm]") {
  const auto wide = values::random<double>(5, 11, 1);
  const Matrix expected = ek::RMSNorm<double>(4).infer(Matrix(wide.middleCols(3, 4)));
  Matrix target = Matrix::Constant(5, 11, 7);
  ek::Workspace<double> workspace;
  using Map = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
  ek::RMSNorm<double>(4).infer(Map(wide.data() + 3, 5, 4, Eigen::OuterStride<>(11)), target.middleCols(3, 4),
                               workspace);
  CHECK(compare::same_bits(Matrix(target.middleCols(3, 4)), expected));
  target.middleCols(3, 4).setConstant(7);
  CHECK((target.array() == 7).all());
}

TEST_CASE("RMSNorm's gradient over many rows is the sum of those of its rows", "[rms_norm]") {
  constexpr Index rows = 20000, features = 5;  // several chunks
  const auto x = values::random<double>(rows, features, 1);
  const auto dy = values::random<double>(rows, features, 2);
  ek::RMSNorm<double> layer(features);
  const Matrix y = layer.forward(x, ek::Mode::train);
  layer.backward(dy);
  const Matrix dweight = y.cwiseProduct(dy).colwise().sum();
  // Terms of size 1 add up to something of size 100 here: their roundings do too.
  CHECK(compare::difference(layer.parameters()[0].gradient, dweight) <= 200 * compare::epsilon<double>);
  layer.backward(dy, ek::Accumulate::yes);
  CHECK(compare::difference(layer.parameters()[0].gradient, 2 * dweight) <= 200 * compare::epsilon<double>);
}
