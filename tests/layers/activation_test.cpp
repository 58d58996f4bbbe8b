#include "evenkeel/layers/activation.hpp"

#include <cmath>  // isnan
#include <limits>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class Layer>
concept HasParameters = requires(Layer layer) {
  layer.parameters();
};

}  // namespace

TEMPLATE_TEST_CASE("NAN-1: ReLU passes NaN on at every place of every width", "[activation]", double, float) {
  constexpr TestType not_a_number = std::numeric_limits<TestType>::quiet_NaN();
  constexpr TestType large = std::numeric_limits<TestType>::infinity();
  ek::ReLU<TestType> relu;
  for (Index width = 1; width <= 17; ++width)
    CHECK(relu.infer(ek::Matrix<TestType>::Constant(1, width, not_a_number)).array().isNaN().all());
  const auto y = relu.infer(ek::Matrix<TestType>{{not_a_number, large, -large, -1, 2}});
  CHECK(std::isnan(y(0, 0)));
  CHECK(compare::same_bits(y.rightCols(4).eval(), ek::Matrix<TestType>{{large, 0, 0, 2}}));
}

TEST_CASE("BWD-5: ReLU's slope is 0 at 0 and at -0, and 1 from the first number above", "[activation]") {
  constexpr float tiny = std::numeric_limits<float>::denorm_min();
  ek::ReLU<float> relu;
  const ek::Matrix<float> x{{0, -0.0f, tiny, -tiny, std::numeric_limits<float>::quiet_NaN()}};
  const ek::Matrix<float> y = relu.forward(x, ek::Mode::train);
  CHECK(y(0, 0) == 0);
  CHECK(y(0, 1) == 0);
  CHECK(y(0, 2) == tiny);
  CHECK(y(0, 3) == 0);
  CHECK(std::isnan(y(0, 4)));
  const ek::Matrix<float> dx = relu.backward(ek::Matrix<float>::Ones(1, 5));
  CHECK(compare::same_bits(dx.leftCols(4).eval(), ek::Matrix<float>{{0, 0, 1, 0}}));
}

TEST_CASE("LeakyReLU's slope at 0 is that of its left side", "[activation]") {
  ek::LeakyReLU<double> leaky(0.25);
  const ek::Matrix<double> x{{-8, -0.0, 0, 8}};
  CHECK(compare::same_bits(leaky.forward(x, ek::Mode::train), ek::Matrix<double>{{-2, -0.0, 0, 8}}));
  CHECK(compare::same_bits(leaky.backward(ek::Matrix<double>::Ones(1, 4)), ek::Matrix<double>{{0.25, 0.25, 0.25, 1}}));
  CHECK(ek::LeakyReLU<double>().infer(ek::Matrix<double>{{-1}})(0, 0) == -0.01);
}

TEST_CASE("A slope that is not finite is an error", "[activation]") {
  CHECK(error_of([] { ek::LeakyReLU<float> layer(infinity); }) ==
        "invalid_argument: LeakyReLU: expected a finite slope, got inf");
  CHECK(error_of([] { ek::LeakyReLU<float> layer(std::numeric_limits<double>::quiet_NaN()); }) ==
        "invalid_argument: LeakyReLU: expected a finite slope, got nan");
  CHECK_NOTHROW(ek::LeakyReLU<float>(-0.5));
}

TEST_CASE("GELU is exact unless asked for the form with tanh", "[activation]") {
  const ek::Matrix<double> x{{1, -1}};
  // Phi(1) = 0.841344746068542948585232545632..., from tables.
  CHECK(compare::difference(ek::GELU<double>().infer(x),
                            ek::Matrix<double>{{0.84134474606854295, -0.15865525393145705}}) < 1e-15);
  // PyTorch's documentation, worked out: 0.5 (1 + tanh(sqrt(2/pi) 1.044715)).
  CHECK(compare::difference(ek::GELU<double>(ek::GeluForm::tanh).infer(x),
                            ek::Matrix<double>{{0.84119199060827676, -0.15880800939172324}}) < 1e-15);
}

TEMPLATE_TEST_CASE("Activations go to their limits without NaN far from zero", "[activation]", double, float) {
  using Matrix = ek::Matrix<TestType>;
  const TestType far = sizeof(TestType) == 4 ? TestType(1e13) : TestType(1e100);
  const Matrix x{{-far, far, -1000, 1000}};
  const Matrix ones = Matrix::Ones(1, 4);
  const auto check = [&](auto layer, const Matrix& y, const Matrix& dx) {
    INFO(layer.name);
    CHECK((layer.forward(x, ek::Mode::train).array() == y.array()).all());
    CHECK((layer.backward(ones).array() == dx.array()).all());
  };
  const Matrix positive{{0, far, 0, 1000}};
  const Matrix step{{0, 1, 0, 1}};
  const Matrix zeros = Matrix::Zero(1, 4);
  check(ek::ReLU<TestType>(), positive, step);
  check(ek::GELU<TestType>(), positive, step);
  check(ek::GELU<TestType>(ek::GeluForm::tanh), positive, step);
  check(ek::SiLU<TestType>(), positive, step);
  check(ek::Sigmoid<TestType>(), step, zeros);
  check(ek::Tanh<TestType>(), Matrix{{-1, 1, -1, 1}}, zeros);
}

TEST_CASE("Activations have no parameters, take any width, and have names", "[activation]") {
  ek::GELU<float> gelu;
  CHECK(gelu.output_features(11) == 11);
  STATIC_REQUIRE_FALSE(HasParameters<ek::GELU<float>>);
  CHECK(gelu.infer(ek::Matrix<float>::Zero(2, 3)).cols() == 3);
  CHECK(gelu.infer(ek::Matrix<float>::Zero(2, 5)).cols() == 5);
  CHECK(std::string(ek::ReLU<float>::name) == "ReLU");
  CHECK(std::string(ek::LeakyReLU<float>::name) == "LeakyReLU");
  CHECK(std::string(ek::GELU<float>::name) == "GELU");
  CHECK(std::string(ek::SiLU<float>::name) == "SiLU");
  CHECK(std::string(ek::Tanh<float>::name) == "Tanh");
  CHECK(std::string(ek::Sigmoid<float>::name) == "Sigmoid");
}
