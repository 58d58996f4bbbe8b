#include <cmath>
#include <functional>
#include <string>

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"

/// Faults that people make in a backward pass, each planted in a layer that is right otherwise. Every one must be called
/// wrong, in the tensor it is in and nowhere else.

namespace ek = evenkeel;
using ek::GradientVerdict;
using ek::Index;
using ek::Mode;
using Matrix = ek::Matrix<double>;

namespace {

/// A layer whose backward is followed by a fault.
template <class Inner>
struct Spoiled {
  using Scalar = typename Inner::Scalar;
  using Gradients = ek::Matrix<Scalar>;
  using Fault = std::function<void(Inner& layer, const Gradients& x, const Gradients& dy, Gradients& dx)>;

  Inner inner;
  Fault fault;

  void forward(const Gradients& x, Gradients& y, Mode mode) { inner.forward(x, y, mode); }
  void backward(const Gradients& x, const Gradients& dy, Gradients& dx) {
    inner.backward(x, dy, dx);
    fault(inner, x, dy, dx);
  }
  Index output_features(Index in) const { return inner.output_features(in); }
  auto parameters() {
    if constexpr (ek::checking::HasParameters<Inner>)
      return inner.parameters();
    else
      return ek::Parameters<Scalar>{};
  }
  template <typename U>
  auto cast() const {
    return inner.template cast<U>();
  }
};

/// Fails, with elements wrong in the tensor of this name and in no other.
void check_wrong_in(const std::string& name, const ek::GradientReport& report) {
  CAPTURE(report);
  CHECK(report.verdict == GradientVerdict::fail);
  CHECK_FALSE(report);
  for (const auto& tensor : report.tensors) {
    CAPTURE(tensor.name);
    CHECK((tensor.failed > 0) == (tensor.name == name));
    CHECK(tensor.undecided == 0);
  }
  REQUIRE_FALSE(report.worst.empty());
  CHECK(report.worst.front().tensor == name);
  CHECK(report.worst.front().verdict == GradientVerdict::fail);
}

ek::GradientReport check(ek::Linear<double> layer, Spoiled<ek::Linear<double>>::Fault fault) {
  return ek::check_gradients(Spoiled<ek::Linear<double>>{std::move(layer), std::move(fault)},
                             values::random<double>(4, 3, 1), Mode::train);
}

/// ReLU with any slope at zero.
template <typename Scalar_>
struct SlopeAtZero {
  using Scalar = Scalar_;
  Scalar slope;
  void forward(const ek::Matrix<Scalar>& x, ek::Matrix<Scalar>& y, Mode) { y = x.cwiseMax(Scalar(0)); }
  void backward(const ek::Matrix<Scalar>& x, const ek::Matrix<Scalar>& dy, ek::Matrix<Scalar>& dx) {
    for (Index i = 0; i < x.size(); ++i) {
      const Scalar at = x.data()[i];
      dx.data()[i] = dy.data()[i] * (at > 0 ? 1 : at < 0 ? 0 : slope);
    }
  }
  Index output_features(Index in) const { return in; }
  template <typename U>
  SlopeAtZero<U> cast() const {
    return {static_cast<U>(slope)};
  }
};

}  // namespace

TEST_CASE("A factor of 1.01 is found in the input gradient", "[wrong_gradient]") {
  const auto fault = [](auto&, const auto&, const auto&, auto& dx) { dx *= 1.01; };
  check_wrong_in("input", check(ek::Linear<double>(3, 2), fault));
}

TEST_CASE("A factor of 1.01 is found in each parameter, in every type", "[wrong_gradient]") {
  const auto in_type = [](auto one) {
    using Scalar = decltype(one);
    for (const std::size_t which : {0u, 1u}) {
      const Spoiled<ek::LayerNorm<Scalar>> spoiled{ek::LayerNorm<Scalar>(5),
                                                   [which](auto& layer, const auto&, const auto&, auto&) {
                                                     layer.parameters()[which].gradient *= static_cast<Scalar>(1.01);
                                                   }};
      check_wrong_in(which == 0 ? "weight" : "bias",
                     ek::check_gradients(spoiled, values::random<Scalar>(4, 5, 1), Mode::train));
    }
  };
  in_type(1.0f);
  in_type(1.0);
  in_type(1.0L);
}

TEST_CASE("A missing row in the bias gradient is found", "[wrong_gradient]") {
  const auto fault = [](auto& layer, const auto&, const auto& dy, auto&) {
    layer.parameters()[1].gradient -= dy.bottomRows(1);
  };
  check_wrong_in("bias", check(ek::Linear<double>(3, 2), fault));
}

TEST_CASE("A bias gradient that was forgotten is found", "[wrong_gradient]") {
  const auto fault = [](auto& layer, const auto&, const auto&, auto&) { layer.parameters()[1].gradient.setZero(); };
  const auto report = check(ek::Linear<double>(3, 2), fault);
  check_wrong_in("bias", report);
  CHECK(report.failed() == 2);
}

TEST_CASE("A transposed weight is found", "[wrong_gradient]") {
  const auto fault = [](auto& layer, const auto&, const auto& dy, auto& dx) {
    dx = dy * layer.parameters()[0].value.transpose();
  };
  check_wrong_in("input", check(ek::Linear<double>(3, 3), fault));
}

TEST_CASE("Rows that are off by one are found", "[wrong_gradient]") {
  const auto fault = [](auto&, const auto&, const auto&, auto& dx) {
    const Matrix copy = dx;
    for (Index i = 0; i < dx.rows(); ++i) dx.row(i) = copy.row((i + 1) % dx.rows());
  };
  check_wrong_in("input", check(ek::Linear<double>(3, 2), fault));
}

TEST_CASE("A sign at one element is found and placed", "[wrong_gradient]") {
  const auto fault = [](auto&, const auto&, const auto&, auto& dx) { dx(2, 1) = -dx(2, 1); };
  const auto report = check(ek::Linear<double>(3, 2), fault);
  check_wrong_in("input", report);
  CHECK(report.failed() == 1);
  CHECK(report.worst.front().row == 2);
  CHECK(report.worst.front().column == 1);
  CHECK(report.worst.front().relative_error == Catch::Approx(1));
}

TEST_CASE("A NaN in the analytic gradient is found", "[wrong_gradient]") {
  const auto fault = [](auto&, const auto&, const auto&, auto& dx) { dx(0, 0) = std::nan(""); };
  const auto report = check(ek::Linear<double>(3, 2), fault);
  check_wrong_in("input", report);
  CHECK(report.failed() == 1);
}

TEST_CASE("A mask without its scale is found", "[wrong_gradient]") {
  const Spoiled<ek::Dropout<double>> spoiled{
      ek::Dropout<double>(0.3), [](auto&, const auto&, const auto&, auto& dx) { dx *= (65536.0 - 19661) / 65536; }};
  const auto report = ek::check_gradients(spoiled, values::random<double>(4, 5, 1), Mode::train);
  check_wrong_in("input", report);
  CHECK(report.failed() == 20 - report.zeros());
}

TEST_CASE("A gradient that ignores the mask is found", "[wrong_gradient]") {
  const Spoiled<ek::Dropout<double>> spoiled{
      ek::Dropout<double>(0.3),
      [](auto&, const auto&, const auto& dy, auto& dx) { dx = dy * 65536 / (65536.0 - 19661); }};
  check_wrong_in("input", ek::check_gradients(spoiled, values::random<double>(4, 5, 1), Mode::train));
}

TEST_CASE("A mean term dropped from LayerNorm is found", "[wrong_gradient]") {
  const Spoiled<ek::LayerNorm<double>> spoiled{
      ek::LayerNorm<double>(5), [](auto&, const Matrix& x, const Matrix& dy, Matrix& dx) {
        for (Index i = 0; i < x.rows(); ++i) {  // weight one; without - mean(dy)
          const Eigen::RowVectorXd centred = x.row(i).array() - x.row(i).mean();
          const double inverse = 1 / std::sqrt(centred.squaredNorm() / 5 + 1e-5);
          dx.row(i) = inverse * (dy.row(i) - inverse * inverse * (dy.row(i).dot(centred) / 5) * centred);
        }
      }};
  check_wrong_in("input", ek::check_gradients(spoiled, values::random<double>(4, 5, 1), Mode::train));
}

TEST_CASE("A LayerNorm that gives no input gradient is found", "[wrong_gradient]") {
  // The sum of its outputs does not depend on the input: contracted with ones this would pass.
  const Spoiled<ek::LayerNorm<double>> spoiled{ek::LayerNorm<double>(5),
                                               [](auto&, const auto&, const auto&, auto& dx) { dx.setZero(); }};
  const auto report = ek::check_gradients(spoiled, values::random<double>(4, 5, 1), Mode::train);
  check_wrong_in("input", report);
  CHECK(report.failed() == 20);
}

TEST_CASE("The training formula in a frozen BatchNorm is found", "[wrong_gradient]") {
  const auto fault = [](ek::BatchNorm<double>& layer, const Matrix& x, const Matrix& dy, Matrix& dx) {
    ek::BatchNorm<double> training = layer;
    Matrix y(x.rows(), x.cols());
    training.forward(x, y, Mode::train);
    training.backward(x, dy, dx);
  };
  ek::BatchNorm<double> norm(3);
  norm.forward(values::random<double>(8, 3, 2), Mode::train);
  const Spoiled<ek::BatchNorm<double>> spoiled{norm, fault};
  const auto x = values::random<double>(8, 3, 1);
  check_wrong_in("input", ek::check_gradients(spoiled, x, Mode::frozen_statistics));
  CHECK(ek::check_gradients(spoiled, x, Mode::train));
}

TEST_CASE("At ReLU's kink any slope between both sides passes, and no other", "[wrong_gradient]") {
  Matrix x = values::random<double>(5, 8, 1);
  x(1, 2) = 0;
  x(3, 7) = 0;
  for (const double slope : {0.0, 0.5, 1.0}) {
    CAPTURE(slope);
    const auto report = ek::check_gradients(SlopeAtZero<double>{slope}, x, Mode::train);
    CHECK(report);
    CHECK(report.kinks() == 2);
  }
  for (const double slope : {-0.01, 1.01, 1.5}) {
    CAPTURE(slope);
    const auto report = ek::check_gradients(SlopeAtZero<double>{slope}, x, Mode::train);
    check_wrong_in("input", report);
    CHECK(report.failed() == 2);
    CHECK(report.worst.front().kink);
    CHECK(x(report.worst.front().row, report.worst.front().column) == 0);
  }
}

TEST_CASE("GCK-1: a slope of 1.5 at ReLU's kink is called wrong", "[wrong_gradient]") {
  Matrix x(1, 4);
  x << 0, 1e-9, -1e-9, 1;
  const auto report = ek::check_gradients(SlopeAtZero<double>{1.5}, x, Mode::train, {.step = 1e-5, .kink_share = 1});
  check_wrong_in("input", report);
  CHECK(report.failed() == 1);
  CHECK(report.worst.front().column == 0);
}

TEST_CASE("Wrong slopes beside a kink are found", "[wrong_gradient]") {
  const Spoiled<ek::ReLU<double>> spoiled{ek::ReLU<double>(), [](auto&, const Matrix& x, const Matrix& dy, Matrix& dx) {
                                            dx = (x.array() > -1e-6).select(dy, Matrix::Zero(x.rows(), x.cols()));
                                          }};
  Matrix x = values::random<double>(5, 8, 1);
  x(2, 2) = -1e-9;
  const auto report = ek::check_gradients(spoiled, x, Mode::train);
  check_wrong_in("input", report);
  CHECK(report.failed() == 1);
}

TEST_CASE("Directions find a factor of 1.01 in one small parameter", "[wrong_gradient]") {
  const Spoiled<ek::Linear<double>> spoiled{
      ek::Linear<double>(30, 20),
      [](auto& layer, const auto&, const auto&, auto&) { layer.parameters()[1].gradient *= 1.01; }};
  const auto x = values::random<double>(4, 30, 1);
  const auto report = ek::check_gradients(spoiled, x, Mode::train, {.directions = 3});
  CHECK(report.verdict == GradientVerdict::fail);
  CHECK(report.failed() == 3);
}
