#include "evenkeel/checking/gradient_check.hpp"

#include <cmath>
#include <cstring>  // memcmp
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <vector>

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"

namespace ek = evenkeel;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using ek::GradientVerdict;
using ek::Index;
using ek::Mode;

namespace {

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(typename T::Scalar)) == 0;
}

/// Two layers, one after the other.
template <class First, class Second>
struct Chain {
  using Scalar = typename First::Scalar;
  First first;
  Second second;
  ek::Matrix<Scalar> middle = {};

  void forward(const ek::Matrix<Scalar>& x, ek::Matrix<Scalar>& y, Mode mode) {
    middle.resize(x.rows(), first.output_features(x.cols()));
    first.forward(x, middle, mode);
    second.forward(middle, y, mode);
  }
  void backward(const ek::Matrix<Scalar>& x, const ek::Matrix<Scalar>& dy, ek::Matrix<Scalar>& dx) {
    ek::Matrix<Scalar> between(middle.rows(), middle.cols());
    second.backward(middle, dy, between);
    first.backward(x, between, dx);
  }
  Index output_features(Index in) const { return second.output_features(first.output_features(in)); }
  auto parameters() {
    auto all = first.parameters();
    for (auto& parameter : second.parameters()) {
      parameter.name = "second." + parameter.name;
      all.push_back(parameter);
    }
    return all;
  }
  template <typename U>
  auto cast() const {
    const auto a = first.template cast<U>();
    const auto b = second.template cast<U>();
    return Chain<std::remove_const_t<decltype(a)>, std::remove_const_t<decltype(b)>>{a, b};
  }
};

/// A user's layer: y = x^3, derives from nothing, is in one type only, has no parameters, and cannot be assigned to.
struct Cube {
  using Scalar = double;
  const int power = 3;
  void forward(const ek::Matrix<double>& x, ek::Matrix<double>& y, Mode) { y = x.array().cube(); }
  void backward(const ek::Matrix<double>& x, const ek::Matrix<double>& dy, ek::Matrix<double>& dx) {
    dx = power * x.array().square() * dy.array();
  }
  Index output_features(Index in) const { return in; }
};

double square(const Eigen::VectorXd& x) { return x.squaredNorm(); }

}  // namespace

TEMPLATE_TEST_CASE("The library's layers pass in every type", "[gradient_check]", float, double, long double) {
  const ek::Matrix<TestType> x = values::random<TestType>(6, 5, 1);
  for (const Mode mode : {Mode::train, Mode::eval}) {
    CHECK(ek::check_gradients(ek::LayerNorm<TestType>(5), x, mode));
    CHECK(ek::check_gradients(ek::RMSNorm<TestType>(5), x, mode));
    CHECK(ek::check_gradients(ek::Linear<TestType>(5, 3), x, mode));
    CHECK(ek::check_gradients(ek::Dropout<TestType>(0.3), x, mode));
    CHECK(ek::check_gradients(ek::ReLU<TestType>(), x, mode));
    CHECK(ek::check_gradients(ek::LeakyReLU<TestType>(), x, mode));
    CHECK(ek::check_gradients(ek::GELU<TestType>(), x, mode));
    CHECK(ek::check_gradients(ek::SiLU<TestType>(), x, mode));
    CHECK(ek::check_gradients(ek::Tanh<TestType>(), x, mode));
    CHECK(ek::check_gradients(ek::Sigmoid<TestType>(), x, mode));
  }
  ek::BatchNorm<TestType> norm(5);
  norm.forward(values::random<TestType>(6, 5, 2), Mode::train);
  CHECK(ek::check_gradients(norm, x, Mode::train));
  CHECK(ek::check_gradients(norm, x, Mode::eval));
  CHECK(ek::check_gradients(norm, x, Mode::frozen_statistics));
}

TEST_CASE("The report has the input and every parameter in order", "[gradient_check]") {
  const auto report = ek::check_gradients(ek::Linear<double>(4, 3), values::random<double>(2, 4, 1), Mode::train);
  REQUIRE(report.tensors.size() == 3);
  CHECK(report.tensors[0].name == "input");
  CHECK(report.tensors[1].name == "weight");
  CHECK(report.tensors[2].name == "bias");
  CHECK(report.tensors[1].numeric.rows() == 3);
  CHECK(report.tensors[1].numeric.cols() == 4);
  CHECK(report.elements() == 8 + 12 + 3);
  CHECK(report.numeric_type == "long double");
  CHECK(report.tolerance == 1e-6);
  CHECK(report.largest_relative_error() < 1e-12);
  CHECK(report.worst.size() == 5);
}

TEST_CASE("The tolerance of float is wider, and can be set", "[gradient_check]") {
  const ek::LayerNorm<float> norm(4);
  const auto x = values::random<float>(2, 4, 1);
  CHECK(ek::check_gradients(norm, x, Mode::train).tolerance == 1e-3);
  CHECK(ek::check_gradients(norm, x, Mode::train, {.tolerance = 1e-5}));
  const auto report = ek::check_gradients(norm, x, Mode::train, {.tolerance = 1e-10});
  CHECK(report.verdict == GradientVerdict::fail);  // float cannot be as exact as that
}

TEST_CASE("Any dense expression of the layer's type is checked", "[gradient_check]") {
  const ek::LayerNorm<double> norm(3);
  const Eigen::MatrixXd columns = values::random<double>(3, 6, 1);
  CHECK(ek::check_gradients(norm, columns.transpose(), Mode::train));
  CHECK(ek::check_gradients(norm, 2 * columns.transpose().topRows(4), Mode::train));
  CHECK(ek::check_gradients(norm, Eigen::Map<const ek::Matrix<double>>(columns.data(), 6, 3), Mode::train));
}

TEST_CASE("A bias before a training BatchNorm is counted as zero", "[gradient_check]") {
  const Chain<ek::Linear<double>, ek::BatchNorm<double>> chain{ek::Linear<double>(4, 3), ek::BatchNorm<double>(3)};
  const auto report = ek::check_gradients(chain, values::random<double>(8, 4, 1), Mode::train);
  CHECK(report);
  REQUIRE(report.tensors.size() == 5);
  CHECK(report.tensors[2].name == "bias");
  CHECK(report.tensors[2].zeros == 3);
  CHECK(report.tensors[2].largest_relative_error == 0);
  CHECK(report.zeros() == 3);
  CHECK(report.largest_relative_error() < 1e-9);
}

TEST_CASE("A user's layer that derives from nothing is checked in its own type", "[gradient_check]") {
  static_assert(!std::is_copy_assignable_v<Cube>);
  const auto report = ek::check_gradients(Cube{}, values::random<double>(4, 3, 1), Mode::train);
  CHECK(report);
  CHECK(report.numeric_type == "double");
  CHECK(report.tensors.size() == 1);
}

TEST_CASE("GCK-1: ReLU at and beside its kink is not called wrong", "[gradient_check]") {
  ek::Matrix<double> x(1, 4);
  x << 0, 1e-9, -1e-9, 1;
  for (const std::optional<double> step : {std::optional<double>{}, std::optional<double>{1e-5}}) {
    const auto report = ek::check_gradients(ek::ReLU<double>(), x, Mode::train, {.step = step, .kink_share = 0.25});
    CHECK(report);
    CHECK(report.kinks() == 1);
  }
  CHECK(ek::check_gradients(ek::ReLU<double>(), x, Mode::train).verdict == GradientVerdict::inconclusive);
}

TEST_CASE("GCK-2: float steps are large enough, and divided by as taken", "[gradient_check]") {
  CHECK(ek::check_gradients(ek::Linear<float>(2, 1), values::random<float>(3, 2, 1), Mode::train));
  const auto square = [](const Eigen::VectorXf& x) { return x.squaredNorm(); };
  Eigen::VectorXf one(1), gradient(1);
  one << 1;
  gradient << 2;
  const auto report = ek::check_gradients(square, one, gradient);
  CHECK(report);
  CHECK(report.numeric_type == "float");
  CHECK(std::abs(report.tensors.at(0).numeric(0, 0) - 2) < 1e-5);
  const auto small_step = ek::check_gradients(square, one, gradient, {.step = 1e-6});
  CHECK(std::abs(small_step.tensors.at(0).numeric(0, 0) - 2) < 1e-5);
}

TEST_CASE("GCK-3: what is given stays bit for bit as it is", "[gradient_check]") {
  Eigen::VectorXd point(3), gradient(3);
  point << 1, 2, 3;
  gradient << 3, 12, 27;
  const Eigen::VectorXd before = point;
  const auto sum_of_cubes = [](const auto& x) { return x.array().cube().sum(); };
  const auto report = ek::check_gradients(sum_of_cubes, point, gradient);
  CHECK(report);
  CHECK((report.tensors.at(0).numeric - gradient).cwiseAbs().maxCoeff() < 1e-8);
  CHECK(same_bits(point, before));

  int calls = 0;
  const auto throws = [&calls](const Eigen::VectorXd& x) {
    if (++calls > 5) throw std::runtime_error("no more");
    return x.sum();
  };
  CHECK_THROWS_MATCHES(ek::check_gradients(throws, point, gradient), std::runtime_error, Message("no more"));
  CHECK(same_bits(point, before));

  ek::Linear<double> linear(3, 2);
  const auto x = values::random<double>(4, 3, 1);
  linear.forward(x, Mode::train);
  linear.backward(values::random<double>(4, 2, 1));
  const ek::Linear<double> copy = linear;
  CHECK(ek::check_gradients(linear, x, Mode::train));
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(same_bits(ek::Matrix<double>(linear.parameters()[i].value), ek::Matrix<double>(copy.parameters()[i].value)));
    CHECK(same_bits(ek::Matrix<double>(linear.parameters()[i].gradient),
                    ek::Matrix<double>(copy.parameters()[i].gradient)));
  }
}

TEST_CASE("GCK-4: masks are held and statistics do not move", "[gradient_check]") {
  const auto x = values::random<double>(8, 3, 1);
  ek::Dropout<double> dropout(0.3, {.seed = 4});
  dropout.forward(x, Mode::train);
  const auto report = ek::check_gradients(dropout, x, Mode::train);
  CHECK(report);
  CHECK(report.zeros() > 0);
  CHECK(dropout.calls() == 1);

  ek::BatchNorm<double> norm(3);
  norm.forward(x, Mode::train);
  const auto mean = norm.running_mean();
  const auto variance = norm.running_variance();
  CHECK(ek::check_gradients(norm, x, Mode::train));
  CHECK(same_bits(norm.running_mean(), mean));
  CHECK(same_bits(norm.running_variance(), variance));
  CHECK(norm.batches_tracked() == 1);
}

TEST_CASE("GCK-5: steps fit tiny and huge points", "[gradient_check]") {
  const auto numeric = [](auto function, auto x) {
    using Vector = Eigen::Matrix<decltype(x), Eigen::Dynamic, 1>;
    const Vector point = Vector::Constant(1, x);
    const auto report = ek::check_gradients(function, point, Vector(2 * point));
    CHECK(report);
    return report.tensors.at(0).numeric(0, 0);
  };
  const auto generic = [](const auto& x) { return x(0) * x(0); };
  const auto in_double = [](const Eigen::VectorXd& x) { return x(0) * x(0); };
  const auto in_float = [](const Eigen::VectorXf& x) { return x(0) * x(0); };
  CHECK(std::abs(numeric(generic, 1e-16)) < 1e-6);
  CHECK(std::abs(numeric(in_double, 1e-16)) < 1e-6);
  CHECK(std::abs(numeric(generic, 0.0)) < 1e-6);
  CHECK(std::abs(numeric(in_double, 0.0)) < 1e-6);
  CHECK(numeric(generic, 1e8) == Catch::Approx(2e8).epsilon(1e-4));
  CHECK(numeric(in_double, 1e8) == Catch::Approx(2e8).epsilon(1e-4));
  CHECK(numeric(in_float, 1e4f) == Catch::Approx(2e4).epsilon(1e-4));
}

TEST_CASE("GCK-5: a step that is given is the largest that is taken", "[gradient_check]") {
  double largest = 0;
  const Eigen::VectorXd point = Eigen::VectorXd::Constant(1, 3);
  const auto record = [&](const Eigen::VectorXd& x) {
    largest = (std::max)(largest, std::abs(x(0) - 3));
    return x(0) * x(0);
  };
  CHECK(ek::check_gradients(record, point, Eigen::VectorXd::Constant(1, 6), {.step = 0.25}));
  CHECK(largest == 0.25);
}

TEST_CASE("GCK-6: truncation is not blamed on the gradient", "[gradient_check]") {
  const auto wave = [](const auto& x) { return std::sin(1000 * x(0)); };
  const Eigen::VectorXd zero = Eigen::VectorXd::Zero(1);
  for (const double step : {0.5, 3e-4, 1e-6}) {
    const auto report = ek::check_gradients(wave, zero, Eigen::VectorXd::Constant(1, 1000), {.step = step});
    CHECK(report);
    CHECK(report.tensors.at(0).numeric(0, 0) == Catch::Approx(1000).epsilon(1e-7));
    // Half a per cent off, which is what a step of 3e-4 would have excused.
    CHECK(ek::check_gradients(wave, zero, Eigen::VectorXd::Constant(1, 995), {.step = step}).verdict ==
          GradientVerdict::fail);
  }
}

TEST_CASE("A generic function is evaluated in long double, any other in its own type", "[gradient_check]") {
  const Eigen::VectorXd point = values::random<double>(3, 1, 1);
  const Eigen::VectorXd gradient = 2 * point;
  const auto type = [&](auto&& function) {
    const auto report = ek::check_gradients(function, point, gradient);
    CHECK(report);
    return report.numeric_type;
  };
  CHECK(type([](const auto& x) { return x.squaredNorm(); }) == "long double");
  CHECK(type([](const Eigen::VectorXd& x) { return x.squaredNorm(); }) == "double");
  CHECK(type([](const Eigen::VectorXd& x) -> long double { return x.cast<long double>().squaredNorm(); }) == "double");
  CHECK(type([](const Eigen::Ref<const Eigen::VectorXd>& x) { return x.squaredNorm(); }) == "double");
  CHECK(type([count = 0](const Eigen::VectorXd& x) mutable { return ++count > 0 ? x.squaredNorm() : 0; }) == "double");
  CHECK(type(std::function<double(const Eigen::VectorXd&)>(square)) == "double");
  CHECK(type(square) == "double");
}

TEST_CASE("Points may be matrices, arrays, fixed, mapped or expressions, gradients may be callables",
          "[gradient_check]") {
  const auto squares = [](const auto& x) { return x.cwiseProduct(x).sum(); };
  const auto twice = [](const auto& x) { return (2 * x).eval(); };
  const ek::Matrix<double> matrix = values::random<double>(3, 2, 1);
  CHECK(ek::check_gradients(squares, matrix, twice));
  CHECK(ek::check_gradients(squares, matrix, 2 * matrix));
  CHECK(ek::check_gradients(squares, matrix.transpose(), twice));
  CHECK(ek::check_gradients(squares, Eigen::Matrix<double, 2, 3>(matrix.transpose()), twice));
  CHECK(ek::check_gradients(squares, Eigen::Vector4d(1, 2, 3, 4), Eigen::Vector4d(2, 4, 6, 8)));
  CHECK(ek::check_gradients(squares, Eigen::Map<const Eigen::Vector3d>(matrix.data()), twice));
  CHECK(ek::check_gradients([](const auto& x) { return x.square().sum(); }, matrix.array().eval(), twice));
  // Places are those of the point, whatever its storage order.
  Eigen::MatrixXd wrong = 2 * matrix;
  wrong(2, 1) += 1;
  const auto report = ek::check_gradients(squares, Eigen::MatrixXd(matrix), wrong);
  CHECK(report.verdict == GradientVerdict::fail);
  CHECK(report.failed() == 1);
  CHECK(report.worst.at(0).row == 2);
  CHECK(report.worst.at(0).column == 1);
}

TEST_CASE("A gradient of another shape is an error", "[gradient_check]") {
  const Eigen::VectorXd point = Eigen::VectorXd::Ones(3);
  CHECK_THROWS_MATCHES(ek::check_gradients(square, point, Eigen::RowVectorXd(Eigen::RowVectorXd::Ones(3))),
                       ek::ShapeError, Message("check_gradients: expected gradient of shape (3, 1), got (1, 3)"));
}

TEST_CASE("Gradients a billion times smaller than others are judged", "[gradient_check]") {
  const auto lopsided = [](const auto& x) {
    using Scalar = typename std::remove_cvref_t<decltype(x)>::Scalar;
    return std::exp(x(0)) + static_cast<Scalar>(1e-9) * std::exp(x(1));
  };
  const Eigen::Vector2d point(0.5, 0.25);
  Eigen::Vector2d gradient(std::exp(0.5), 1e-9 * std::exp(0.25));
  const auto right = ek::check_gradients(lopsided, point, gradient);
  CHECK(right);
  CHECK(right.zeros() == 0);
  gradient(1) *= 1.0001;
  const auto wrong = ek::check_gradients(lopsided, point, gradient);
  CHECK(wrong.verdict == GradientVerdict::fail);
  CHECK(wrong.failed() == 1);
  gradient(1) = 0;
  CHECK(ek::check_gradients(lopsided, point, gradient).verdict == GradientVerdict::fail);
}

TEST_CASE("Tiny gradients of a layer are judged beside large outputs of others", "[gradient_check]") {
  ek::Linear<double> linear(3, 3);
  auto parameters = linear.parameters();
  parameters[0].value.setIdentity();
  parameters[0].value(1, 1) = 1e-9;
  parameters[1].value << 1e6, 0, 1e6;
  const auto report = ek::check_gradients(linear, values::random<double>(4, 3, 1), Mode::train);
  CHECK(report);
  CHECK(report.tensors.at(0).zeros == 0);
  CHECK(report.tensors.at(0).numeric.cwiseAbs().minCoeff() < 2e-9);
}

namespace {

/// Counts forwards over all copies, and lets the count show.
struct Unsteady {
  using Scalar = double;
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  void forward(const ek::Matrix<double>& x, ek::Matrix<double>& y, Mode) { y = x.array() + ++*calls; }
  void backward(const ek::Matrix<double>&, const ek::Matrix<double>& dy, ek::Matrix<double>& dx) { dx = dy; }
  Index output_features(Index in) const { return in; }
};

/// Multiplies by a factor that its cast forgets.
template <typename Scalar_>
struct Forgetful {
  using Scalar = Scalar_;
  Scalar factor = 1;
  void forward(const ek::Matrix<Scalar>& x, ek::Matrix<Scalar>& y, Mode) { y = factor * x; }
  void backward(const ek::Matrix<Scalar>&, const ek::Matrix<Scalar>& dy, ek::Matrix<Scalar>& dx) { dx = factor * dy; }
  Index output_features(Index in) const { return in; }
  template <typename U>
  Forgetful<U> cast() const {
    return {};
  }
};

}  // namespace

TEST_CASE("A layer that is not deterministic is reported as such, not as wrong", "[gradient_check]") {
  const auto report = ek::check_gradients(Unsteady{}, ek::Matrix<double>::Zero(2, 2), Mode::train);
  CHECK(report.verdict == GradientVerdict::inconclusive);
  CHECK(report.reason ==
        "not deterministic: two evaluations from equal copies gave 1 and 2 in output 0 (does forward read y before it "
        "writes it, or draw numbers from outside of the layer?)");
  std::ostringstream out;
  out << report;
  CHECK_THAT(out.str(), ContainsSubstring("INCONCLUSIVE, not deterministic: "));
}

TEST_CASE("A function that is not deterministic is reported as such", "[gradient_check]") {
  auto drifts = [drift = 0.0](const Eigen::VectorXd& x) mutable { return x.sum() + (drift += 1e-12); };
  const Eigen::VectorXd point = Eigen::VectorXd::Ones(2);
  const auto report = ek::check_gradients(drifts, point, point);
  CHECK(report.verdict == GradientVerdict::inconclusive);
  CHECK_THAT(report.reason, ContainsSubstring("not deterministic"));
}

TEST_CASE("A cast that is another function is reported as such", "[gradient_check]") {
  const auto x = ek::Matrix<double>::Constant(2, 2, 3);
  CHECK(ek::check_gradients(Forgetful<double>{1}, x, Mode::train));
  const auto report = ek::check_gradients(Forgetful<double>{2}, x, Mode::train);
  CHECK(report.verdict == GradientVerdict::inconclusive);
  CHECK(report.reason == "not comparable: in long double output 0 is 3, in its own type 6");
}

TEST_CASE("Outputs that are not finite are reported as such", "[gradient_check]") {
  ek::Matrix<double> x = values::random<double>(2, 3, 1);
  x(1, 0) = std::numeric_limits<double>::quiet_NaN();
  const auto report = ek::check_gradients(ek::ReLU<double>(), x, Mode::train);
  CHECK(report.verdict == GradientVerdict::inconclusive);
  CHECK(report.reason == "not finite: output 3 is nan");
}

TEST_CASE("What a layer throws passes", "[gradient_check]") {
  CHECK_THROWS_MATCHES(ek::check_gradients(ek::LayerNorm<double>(4), values::random<double>(2, 3, 1), Mode::train),
                       ek::ShapeError, Message("LayerNorm::forward: expected input of shape (batch, 4), got (2, 3)"));
}

TEST_CASE("Options out of bounds are named", "[gradient_check]") {
  const auto check = [](const ek::GradientCheckOptions& options, const std::string& message) {
    const ek::LayerNorm<double> norm(3);
    CHECK_THROWS_MATCHES(ek::check_gradients(norm, values::random<double>(2, 3, 1), Mode::train, options),
                         std::invalid_argument, Message(message));
    const Eigen::VectorXd point = Eigen::VectorXd::Ones(2);
    CHECK_THROWS_MATCHES(ek::check_gradients(square, point, point, options), std::invalid_argument, Message(message));
  };
  check({.tolerance = 0.0}, "check_gradients: expected a finite tolerance > 0, got 0");
  check({.tolerance = std::numeric_limits<double>::infinity()},
        "check_gradients: expected a finite tolerance > 0, got inf");
  check({.step = -1e-3}, "check_gradients: expected a finite step > 0, got -0.001");
  check({.shown = -1}, "check_gradients: expected shown >= 0, got -1");
  check({.kink_share = 1.5}, "check_gradients: expected kink_share in [0, 1], got 1.5");
  check({.directions = -2}, "check_gradients: expected directions >= 0, got -2");
}

TEST_CASE("Another seed is another check", "[gradient_check]") {
  const ek::LayerNorm<double> norm(3);
  const auto x = values::random<double>(2, 3, 1);
  const auto numeric = [&](std::uint64_t seed) {
    return ek::check_gradients(norm, x, Mode::train, {.seed = seed}).tensors.at(2).numeric;
  };
  CHECK(numeric(1) == numeric(1));
  CHECK(numeric(1) != numeric(2));
}

TEST_CASE("The weights of the outputs are the documented draws", "[gradient_check]") {
  // The gradient of an identity layer is the weights themselves.
  const auto report =
      ek::check_gradients(Forgetful<double>{1}, ek::Matrix<double>::Zero(5, 8), Mode::train, {.seed = 11});
  ek::RandomStream random(11, ek::stream_of("weights"));
  Index negative = 0;
  for (Index i = 0; i < 40; ++i) {
    const double u = random.uniform();
    const double weight = report.tensors.at(0).analytic.data()[i];
    CHECK(weight == static_cast<double>(static_cast<float>(u < 0.5 ? 0.5 + 2 * u : 0.5 - 2 * u)));
    CHECK(std::abs(weight) >= 0.5);
    CHECK(std::abs(weight) <= 1.5);
    if (weight < 0) ++negative;
  }
  CHECK(negative > 10);
  CHECK(negative < 30);
}

TEST_CASE("Directions check all inputs and parameters together", "[gradient_check]") {
  const ek::Linear<double> linear(40, 30);
  const auto x = values::random<double>(4, 40, 1);
  const auto report = ek::check_gradients(linear, x, Mode::train, {.directions = 3});
  CHECK(report);
  REQUIRE(report.tensors.size() == 1);
  CHECK(report.tensors[0].name == "direction");
  CHECK(report.elements() == 3);
  CHECK(report.tensors[0].numeric(0, 0) != report.tensors[0].numeric(0, 1));
  CHECK(report.largest_relative_error() < 1e-10);

  const Eigen::VectorXd point = values::random<double>(50, 1, 1);
  Eigen::VectorXd gradient = 2 * point;
  const auto squares = [](const auto& v) { return v.squaredNorm(); };
  CHECK(ek::check_gradients(squares, point, gradient, {.directions = 2}));
  gradient(17) *= 1.01;
  CHECK(ek::check_gradients(squares, point, gradient, {.directions = 2}).verdict == GradientVerdict::fail);
}
