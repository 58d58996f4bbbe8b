#include "evenkeel/layers/batch_norm.hpp"

#include <cmath>  // sqrt, abs
#include <limits>
#include <optional>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/linear.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

using Matrix = ek::Matrix<double>;

template <typename Scalar>
ek::Matrix<Scalar> column(std::initializer_list<Scalar> numbers) {
  ek::Matrix<Scalar> result(static_cast<Index>(numbers.size()), 1);
  Index row = 0;
  for (const Scalar number : numbers) result(row++, 0) = number;
  return result;
}

ek::BatchNorm<double> with_statistics(double mean, double variance, ek::BatchNormOptions options = {}) {
  ek::BatchNorm<double> layer(1, options);
  layer.set_running_statistics(Matrix::Constant(1, 1, mean), Matrix::Constant(1, 1, variance));
  return layer;
}

/// Whether the layers would go on alike.
bool same_statistics(const ek::BatchNorm<double>& a, const ek::BatchNorm<double>& b) {
  return compare::same_bits(a.running_mean(), b.running_mean()) &&
         compare::same_bits(a.running_variance(), b.running_variance()) && a.batches_tracked() == b.batches_tracked() &&
         a.non_finite_statistics() == b.non_finite_statistics();
}

}  // namespace

TEST_CASE("A wrong option of BatchNorm is an error that names it", "[batch_norm]") {
  const auto error_for = [](Index channels, Index positions, ek::BatchNormOptions options) {
    return error_of([&] { ek::BatchNorm<float> layer(channels, positions, options); });
  };
  CHECK(error_for(0, 1, {}) == "invalid_argument: BatchNorm: expected features >= 1, got 0");
  CHECK(error_for(3, 0, {}) == "invalid_argument: BatchNorm: expected positions >= 1, got 0");
  CHECK(error_for(4, Index{1} << 62, {}) ==
        "invalid_argument: BatchNorm: expected channels x positions of at most 9223372036854775807, got 4 x "
        "4611686018427387904");
  CHECK(error_for(3, 1, {.momentum = 1.5}) == "invalid_argument: BatchNorm: expected momentum in [0, 1], got 1.5");
  CHECK(error_for(3, 1, {.momentum = -0.1}) == "invalid_argument: BatchNorm: expected momentum in [0, 1], got -0.1");
  CHECK(error_for(3, 1, {.momentum = not_a_number}) ==
        "invalid_argument: BatchNorm: expected momentum in [0, 1], got nan");
  CHECK(error_of([] { ek::BatchNorm<float, 4> layer(5); }) ==
        "invalid_argument: BatchNorm: expected features = 4, fixed by the template argument, got 5");
}

TEST_CASE("EPS-3: BatchNorm rejects an epsilon that is not positive and finite", "[batch_norm]") {
  const auto error_for = [](double epsilon) {
    return error_of([&] { ek::BatchNorm<float> layer(3, {.epsilon = epsilon}); });
  };
  CHECK(error_for(-1) == "invalid_argument: BatchNorm: expected a finite epsilon > 0, got -1");
  CHECK(error_for(-1e-5) == "invalid_argument: BatchNorm: expected a finite epsilon > 0, got -1e-05");
  CHECK(error_for(not_a_number) == "invalid_argument: BatchNorm: expected a finite epsilon > 0, got nan");
  CHECK(error_for(infinity) == "invalid_argument: BatchNorm: expected a finite epsilon > 0, got inf");
}

// Epsilon 0 is rejected by every norm: so no layer divides zero by zero.
TEST_CASE("EPS-4: BatchNorm rejects epsilon 0, and a constant column gives the shift", "[batch_norm]") {
  CHECK(error_of([] { ek::BatchNorm<double> layer(4, {.epsilon = 0}); }) ==
        "invalid_argument: BatchNorm: expected a finite epsilon > 0, got 0");
  ek::BatchNorm<double> layer(4);
  layer.parameters()[1].value.setConstant(0.5);
  CHECK((layer.forward(Matrix::Zero(3, 4), ek::Mode::train).array() == 0.5).all());
  CHECK(layer.backward(values::random<double>(3, 4, 1)).allFinite());
}

TEST_CASE("BatchNorm tells its sizes and where it starts", "[batch_norm]") {
  ek::BatchNorm<float> layer(3, 4, {.epsilon = 0.25});
  CHECK(layer.channels() == 3);
  CHECK(layer.positions() == 4);
  CHECK(layer.epsilon() == 0.25);
  CHECK(layer.input_features() == 12);
  CHECK(layer.output_features(12) == 12);
  CHECK((layer.running_mean().array() == 0).all());
  CHECK((layer.running_variance().array() == 1).all());
  CHECK(layer.batches_tracked() == 0);
  CHECK(layer.non_finite_statistics() == 0);
  const auto parameters = layer.parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[0].kind == ek::ParameterKind::norm_scale);
  CHECK((parameters[0].value.array() == 1).all());
  CHECK(parameters[1].name == "bias");
  CHECK(parameters[1].kind == ek::ParameterKind::norm_shift);
  CHECK((parameters[1].value.array() == 0).all());
  for (const auto& parameter : parameters) {
    CHECK(parameter.value.rows() == 1);
    CHECK(parameter.value.cols() == 3);
    CHECK((parameter.gradient.array() == 0).all());
  }
  CHECK(ek::BatchNorm<float>(3).epsilon() == 1e-5);
  CHECK(ek::BatchNorm<float>(3, {.affine = false}).parameters().empty());
  CHECK(ek::BatchNorm<float, 5>().channels() == 5);
}

TEST_CASE("BatchNorm's buffers have PyTorch's names and show what eval uses", "[batch_norm]") {
  ek::BatchNorm<double> layer(2);
  const auto buffers = layer.buffers();
  REQUIRE(buffers.size() == 3);
  CHECK(buffers[0].name == "running_mean");
  CHECK(buffers[1].name == "running_var");
  CHECK(buffers[2].name == "num_batches_tracked");
  CHECK(buffers[0].count == nullptr);
  CHECK(buffers[2].value.size() == 0);
  layer.forward(Matrix{{1, 2}, {3, 6}}, ek::Mode::train);
  layer.set_running_statistics(layer.running_mean(), layer.running_variance());
  CHECK(compare::same_bits(buffers[0].value, layer.running_mean()));
  CHECK(compare::same_bits(buffers[1].value, layer.running_variance()));
  CHECK(*buffers[2].count == 1);
  layer.reset_running_statistics();
  CHECK(compare::same_bits(buffers[1].value, Matrix::Ones(1, 2)));
  CHECK(*buffers[2].count == 0);
  CHECK(ek::BatchNorm<double>(2, {.track_running_statistics = false}).buffers().empty());
}

TEMPLATE_TEST_CASE("VAR-2: four consecutive large integers normalize exactly", "[batch_norm]", double, float) {
  for (const TestType v : {TestType(40000), TestType(80000), TestType(1e6), TestType(4e6)}) {
    INFO("from " << v);
    ek::BatchNorm<TestType> layer(1);
    const auto& y = layer.forward(column<TestType>({v, v + 1, v + 2, v + 3}), ek::Mode::train);
    const double outer = 1.5 / std::sqrt(1.25001), inner = 0.5 / std::sqrt(1.25001);
    CHECK(compare::difference(y, column<double>({-outer, -inner, inner, outer})) <= 4 * compare::epsilon<TestType>);
  }
}

TEST_CASE("VAR-3, VAR-4: a constant channel gives the shift, whatever its value", "[batch_norm]") {
  const auto check = [](Index rows, float value) {
    INFO(rows << " times " << value);
    ek::BatchNorm<float> layer(1, {.momentum = 1.0});
    const ek::Matrix<float> x = ek::Matrix<float>::Constant(rows, 1, value);
    CHECK(layer.forward(x, ek::Mode::train).cwiseAbs().maxCoeff() < 1e-3f);
    CHECK(layer.running_mean()[0] == value);
    CHECK(layer.running_variance()[0] >= 0);
    CHECK(layer.backward(x.cwiseSign()).allFinite());
  };
  check(6, 300.1f);
  check(3, 12.1f);
  check(6, 33.3f);
  check(7, 123456789.0f);
  check(100, 1e10f);
  check(10, 10000000.f / 3);
}

TEST_CASE("VAR-6: the mean of a long column does not drift, in either storage order", "[batch_norm]") {
  constexpr Index rows = 1000000;
  const auto check = [](const auto& x) {
    ek::BatchNorm<float> layer(3);
    const ek::Matrix<float>& y = layer.forward(x, ek::Mode::train);
    for (Index c = 0; c < 3; ++c) CHECK(std::abs(layer.running_mean()[c] - 0.01f) < 1e-6f);
    CHECK(y.cwiseAbs().maxCoeff() < 1e-3f);
  };
  check(ek::Matrix<float>::Constant(rows, 3, 0.1f).eval());
  check(Eigen::MatrixXf::Constant(rows, 3, 0.1f).eval());
}

TEST_CASE("VAR-7: one outlier above a floor comes out right", "[batch_norm]") {
  ek::Matrix<float> x = ek::Matrix<float>::Constant(1000, 1, -15.94f);
  x(500, 0) = -15.78f;
  ek::BatchNorm<float> layer(1);
  const auto& y = layer.forward(x, ek::Mode::train);
  CHECK(y(0, 0) == Catch::Approx(-0.0268257).epsilon(1e-5));
  CHECK(y(500, 0) == Catch::Approx(26.798875).epsilon(1e-5));
}

TEST_CASE("EPS-2: epsilon stands under the root in eval too", "[batch_norm]") {
  auto layer = with_statistics(0, 1e-6, {.epsilon = 1e-3});
  CHECK(layer.infer(column<double>({1e-3}))(0, 0) == Catch::Approx(0.031606977).epsilon(1e-7));
}

TEST_CASE("BNS-1: the output takes the biased variance, the running variance the unbiased one", "[batch_norm]") {
  ek::BatchNorm<double> layer(1);
  const auto& y = layer.forward(column<double>({1, 2, 3, 4}), ek::Mode::train);
  CHECK(y(0, 0) == Catch::Approx(-1.34163542).epsilon(1e-8));
  CHECK(layer.running_mean()[0] == Catch::Approx(0.25).epsilon(1e-14));
  CHECK(layer.running_variance()[0] == Catch::Approx(0.9 + 0.5 / 3).epsilon(1e-14));
  layer.forward(column<double>({5, 6, 7, 8}), ek::Mode::train);
  CHECK(layer.running_mean()[0] == Catch::Approx(0.875).epsilon(1e-14));
  CHECK(layer.running_variance()[0] == Catch::Approx(0.9 * (0.9 + 0.5 / 3) + 0.5 / 3).epsilon(1e-14));
  CHECK(layer.batches_tracked() == 2);
}

TEST_CASE("BNS-2: one value per channel in training is an error that names the remedies", "[batch_norm]") {
  ek::BatchNorm<double> layer(3);
  layer.forward(values::random<double>(4, 3, 1), ek::Mode::train);
  const auto dy = values::random<double>(4, 3, 2);
  const Matrix dx = layer.backward(dy);
  const auto before = layer;
  const Matrix x{{1, 2, 3}};
  const std::string text =
      "ShapeError: BatchNorm::forward: expected more than one value per channel to take statistics of, got 1 from "
      "input "
      "of shape (1, 3); use a larger batch (drop an incomplete last one), running statistics (Mode::eval, "
      "Mode::frozen_statistics), or LayerNorm";
  CHECK(error_of([&] { layer.forward(x, ek::Mode::train); }) == text);
  Matrix y(1, 3);
  CHECK(error_of([&] { layer.forward(x, y, ek::Mode::train); }) == text);
  CHECK(same_statistics(layer, before));
  for (const std::size_t i : {0u, 1u})
    CHECK(compare::same_bits(layer.parameters()[i].gradient, before.parameters()[i].gradient));
  CHECK(compare::same_bits(layer.backward(dy), dx));  // of the forward that was not refused
  CHECK(layer.forward(x, ek::Mode::eval).allFinite());
  CHECK(layer.forward(x, ek::Mode::frozen_statistics).allFinite());
  CHECK(layer.infer(x).allFinite());
}

TEST_CASE("BNS-2: one example with several positions has statistics", "[batch_norm]") {
  ek::BatchNorm<double> layer(3, 4);
  const auto x = values::random<double>(1, 12, 3);
  const auto statistics = reference::channel_statistics(reference::exact(x), 4);
  layer.forward(x, ek::Mode::train);
  CHECK(compare::difference(layer.running_mean(), statistics.mean / 10) <= 4 * compare::epsilon<double>);
  const reference::Numbers expected = statistics.unbiased.array() / 10 + 0.9L;
  CHECK(compare::difference(layer.running_variance(), expected) <= 4 * compare::epsilon<double>);
}

TEST_CASE("BNS-3: momentum is the weight of the new batch", "[batch_norm]") {
  ek::BatchNorm<double> layer(1);
  layer.forward(column<double>({9, 11}), ek::Mode::train);
  CHECK(layer.running_mean()[0] == Catch::Approx(1.0).epsilon(1e-14));
  CHECK(layer.running_variance()[0] == Catch::Approx(1.1).epsilon(1e-14));
}

TEST_CASE("BNS-4: after a step of momentum 1, eval differs from train by the factor n / (n - 1)", "[batch_norm]") {
  ek::BatchNorm<double> layer(1, {.momentum = 1.0});
  const auto x = column<double>({1, 2, 3, 4});
  CHECK(layer.forward(x, ek::Mode::train)(0, 0) == Catch::Approx(-1.3416354).epsilon(1e-7));
  CHECK(layer.forward(x, ek::Mode::eval)(0, 0) == Catch::Approx(-1.1618915).epsilon(1e-7));
  CHECK(layer.running_mean()[0] == 2.5);
  CHECK(layer.running_variance()[0] == Catch::Approx(5.0 / 3).epsilon(1e-15));
}

TEST_CASE("BNS-5: momentum 0 leaves the statistics, counts the batch and normalizes with it", "[batch_norm]") {
  ek::BatchNorm<double> layer(1, {.momentum = 0.0});
  CHECK(layer.forward(column<double>({1, 2, 3, 4}), ek::Mode::train)(0, 0) == Catch::Approx(-1.3416354).epsilon(1e-7));
  CHECK(layer.running_mean()[0] == 0);
  CHECK(layer.running_variance()[0] == 1);
  CHECK(layer.batches_tracked() == 1);
}

TEST_CASE("BNS-6: epsilon is not in the n/(n-1) factor", "[batch_norm]") {
  ek::BatchNorm<double> layer(1, {.epsilon = 0.5, .momentum = 1.0});
  layer.forward(column<double>({0, 2}), ek::Mode::train);
  CHECK(layer.running_variance()[0] == 2);
}

TEST_CASE("BNS-7: statistics that cannot be are rejected, the channel named, and nothing changes", "[batch_norm]") {
  ek::BatchNorm<double> layer(2);
  layer.forward(Matrix{{1, 2}, {3, 6}}, ek::Mode::train);
  const auto before = layer;
  const auto error_for = [&](const Matrix& mean, const Matrix& variance) {
    return error_of([&] { layer.set_running_statistics(mean, variance); });
  };
  const std::string place = "invalid_argument: BatchNorm::set_running_statistics: expected a finite ";
  const Matrix zeros = Matrix::Zero(1, 2);
  CHECK(error_for(zeros, Matrix{{-0.5, 1}}) == place + "variance >= 0 in channel 0, got -0.5");
  CHECK(error_for(zeros, Matrix{{1, -9.99e-6}}) == place + "variance >= 0 in channel 1, got -9.99e-06");
  CHECK(error_for(zeros, Matrix{{1, not_a_number}}) == place + "variance >= 0 in channel 1, got nan");
  CHECK(error_for(zeros, Matrix{{infinity, 1}}) == place + "variance >= 0 in channel 0, got inf");
  CHECK(error_for(Matrix{{0, not_a_number}}, zeros) == place + "mean in channel 1, got nan");
  CHECK(error_for(Matrix{{-infinity, 0}}, zeros) == place + "mean in channel 0, got -inf");
  const std::string shape = "ShapeError: BatchNorm::set_running_statistics: expected ";
  CHECK(error_for(Matrix::Zero(1, 3), zeros) == shape + "mean of shape (1, 2), got (1, 3)");
  CHECK(error_for(zeros, Matrix::Zero(2, 2)) == shape + "variance of shape (1, 2), got (2, 2)");
  CHECK(same_statistics(layer, before));
  CHECK(error_of([] { ek::BatchNorm<double>(4).set_running_statistics(Matrix::Zero(2, 2), Matrix::Ones(1, 4)); }) ==
        "ShapeError: BatchNorm::set_running_statistics: expected mean of shape (1, 4), got (2, 2)");

  ek::BatchNorm<double> none(2, {.track_running_statistics = false});
  CHECK(
      error_of([&] { none.set_running_statistics(zeros, zeros); }) ==
      "UsageError: BatchNorm::set_running_statistics: expected a layer that tracks statistics, got one that does not");
}

TEST_CASE("Statistics can be set from rows, columns and arrays; a variance of zero is one", "[batch_norm]") {
  ek::BatchNorm<double> layer(3);
  layer.set_running_statistics(Eigen::VectorXd{{1, 2, 3}}, Eigen::ArrayXd{{0, 5, 6}});
  CHECK(compare::same_bits(layer.running_mean(), Matrix{{1, 2, 3}}));
  CHECK(compare::same_bits(layer.running_variance(), Matrix{{0, 5, 6}}));
  layer.set_running_statistics(Matrix{{7, 8, 9}}, Matrix::Ones(3, 3).row(0));
  CHECK(compare::same_bits(layer.running_mean(), Matrix{{7, 8, 9}}));
  CHECK(layer.batches_tracked() == 0);
}

TEST_CASE("Without momentum, a batch that is not taken does not count in the average", "[batch_norm]") {
  ek::BatchNorm<double> layer(1, {.momentum = std::nullopt});
  layer.forward(column<double>({1, 3}), ek::Mode::train);
  layer.forward(column<double>({not_a_number, 3}), ek::Mode::train);
  layer.forward(column<double>({4, 8}), ek::Mode::train);
  CHECK(layer.running_mean()[0] == 4);
  CHECK(layer.batches_tracked() == 3);
}

TEST_CASE("Without momentum, running statistics are the plain average of all batches", "[batch_norm]") {
  ek::BatchNorm<double> layer(1, {.momentum = std::nullopt});
  layer.forward(column<double>({1, 3}), ek::Mode::train);
  CHECK(layer.running_mean()[0] == 2);
  CHECK(layer.running_variance()[0] == 2);
  layer.forward(column<double>({4, 8}), ek::Mode::train);
  layer.forward(column<double>({10, 10}), ek::Mode::train);
  CHECK(layer.running_mean()[0] == Catch::Approx(6).epsilon(1e-15));
  CHECK(layer.running_variance()[0] == Catch::Approx(10.0 / 3).epsilon(1e-15));
  layer.reset_running_statistics();
  layer.forward(column<double>({1, 3}), ek::Mode::train);
  CHECK(layer.running_mean()[0] == 2);
}

TEST_CASE("Statistics move only where the mode says so", "[batch_norm]") {
  const auto x = column<double>({1, 2, 3, 4});
  auto layer = with_statistics(0, 1);
  layer.forward(x, {ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::keep});
  CHECK(layer.running_mean()[0] == 0);
  CHECK(layer.batches_tracked() == 0);
  layer.forward(x, {ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::update});
  CHECK(layer.running_mean()[0] == 0.25);
  CHECK(layer.batches_tracked() == 1);
}

TEST_CASE("MODE-1: backward in eval takes running statistics as constants, whatever came between", "[batch_norm]") {
  auto layer = with_statistics(1, 4);
  layer.parameters()[0].value.setConstant(2);
  const auto x = column<double>({3, 5});
  const auto dy = column<double>({1, 1});
  for (const ek::Mode mode : {ek::Mode::eval, ek::Mode::frozen_statistics, ek::Mode::monte_carlo}) {
    layer.set_running_statistics(Matrix::Ones(1, 1), Matrix::Constant(1, 1, 4));
    layer.forward(x, mode);
    for (int time = 0; time < 2; ++time) {
      const Matrix dx = layer.backward(dy);
      CHECK(compare::difference(dx, column<double>({0.99999875, 0.99999875})) < 1e-8);
      CHECK(layer.parameters()[0].gradient(0, 0) == Catch::Approx(2.99999625).epsilon(1e-8));
      CHECK(layer.parameters()[1].gradient(0, 0) == 2);
    }
    layer.forward(values::random<double>(9, 1, 4), ek::Mode::train);
    CHECK(std::abs(layer.backward(Matrix::Ones(9, 1)).sum()) < 1e-12);
  }
}

TEST_CASE("frozen_statistics without tracked statistics is an error; eval takes the batch", "[batch_norm]") {
  ek::BatchNorm<double> layer(1, {.track_running_statistics = false});
  const auto x = column<double>({1, 2, 3, 4});
  CHECK(error_of([&] { layer.forward(x, ek::Mode::frozen_statistics); }) ==
        "UsageError: BatchNorm::forward: expected running statistics to be frozen, got a layer that tracks none");
  CHECK(layer.running_mean().size() == 0);
  CHECK(layer.running_variance().size() == 0);
  const Matrix y = layer.forward(x, ek::Mode::train);
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::eval), y));
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::monte_carlo), y));
  CHECK(compare::same_bits(layer.infer(x), y));
  CHECK(
      error_of([&] { layer.infer(column<double>({1})); }) ==
      "ShapeError: BatchNorm::infer: expected more than one value per channel to take statistics of, got 1 from input "
      "of shape (1, 1); use a larger batch (drop an incomplete last one), running statistics (Mode::eval, "
      "Mode::frozen_statistics), or LayerNorm");
}

TEST_CASE("BWD-2: BatchNorm's backward gives the reference's numbers", "[batch_norm]") {
  ek::BatchNorm<double> layer(2);
  layer.parameters()[0].value = Matrix{{2, 0.5}};
  const Matrix x{{1, 10}, {2, 12}, {4, 9}, {7, 15}};
  const Matrix dy{{1, 0}, {0, 2}, {2, -1}, {-1, 1}};
  const Matrix normalized{
      {-1.09108841, -0.65465305}, {-0.65465305, 0.21821768}, {0.21821768, -1.09108841}, {1.52752378, 1.52752378}};
  const Matrix y = layer.forward(x, ek::Mode::train);
  CHECK(compare::difference(y.col(0) / 2, normalized.col(0)) < 1e-8);
  CHECK(compare::difference(y.col(1) * 2, normalized.col(1)) < 1e-8);
  const Matrix dx = layer.backward(dy);
  CHECK(compare::difference(dx, Matrix{{-0.08312956, -2.1e-7},
                                       {-0.74817432, 0.29095698},
                                       {1.41321908, -0.14547880},
                                       {-0.58191521, -0.14547797}}) < 1e-8);
  CHECK(compare::difference(layer.parameters()[0].gradient, Matrix{{-2.18217682, 3.05504755}}) < 1e-8);
  CHECK(compare::difference(layer.parameters()[1].gradient, Matrix{{2, 2}}) < 1e-15);
}

TEST_CASE("BWD-2: BatchNorm's input gradient is right behind a Linear layer", "[batch_norm]") {
  ek::Linear<double> linear(3, 2, {.seed = 1});
  ek::BatchNorm<double> norm(2);
  const auto x = values::random<double>(6, 3, 1);
  const auto dy = values::random<double>(6, 2, 2);
  norm.forward(linear.forward(x, ek::Mode::train), ek::Mode::train);
  linear.backward(norm.backward(dy));
  const Matrix gradient = linear.parameters()[0].gradient;

  // The slope of sum(dy y) by central differences on the equations.
  reference::Numbers weight = reference::exact(linear.parameters()[0].value);
  const reference::Numbers bias = reference::exact(linear.parameters()[1].value);
  const auto loss = [&] {
    const auto h = reference::linear(reference::exact(x), weight, bias);
    const auto statistics = reference::channel_statistics(h, 1);
    return reference::batch_norm(h, 1, statistics.mean, statistics.biased, reference::Numbers::Ones(1, 2),
                                 reference::Numbers::Zero(1, 2), static_cast<long double>(1e-5))
        .cwiseProduct(reference::exact(dy))
        .sum();
  };
  constexpr long double step = 0x1p-20L;
  for (Index o = 0; o < 2; ++o)
    for (Index i = 0; i < 3; ++i) {
      const long double middle = weight(o, i);
      weight(o, i) = middle + step;
      const long double above = loss();
      weight(o, i) = middle - step;
      const long double below = loss();
      weight(o, i) = middle;
      CHECK(gradient(o, i) == Catch::Approx(static_cast<double>((above - below) / (2 * step))).epsilon(1e-9));
    }
}

TEST_CASE("NAN-3: a channel whose batch is not finite keeps its last good statistics, and is counted", "[batch_norm]") {
  ek::BatchNorm<double> layer(3), clean(3);
  const auto good = values::random<double>(5, 3, 1);
  layer.forward(good, ek::Mode::train);
  clean.forward(good, ek::Mode::train);
  const Matrix before = layer.running_mean();

  auto spoilt = values::random<double>(5, 3, 2);
  clean.forward(spoilt, ek::Mode::train);
  spoilt(2, 0) = not_a_number;
  layer.forward(spoilt, ek::Mode::train);
  CHECK(layer.non_finite_statistics() == 1);
  CHECK(layer.batches_tracked() == 2);
  CHECK(layer.running_mean()[0] == before(0, 0));
  CHECK(layer.running_mean().tail(2) == clean.running_mean().tail(2));
  CHECK(layer.running_variance().tail(2) == clean.running_variance().tail(2));

  spoilt(2, 0) = infinity;
  spoilt(0, 1) = -infinity;
  layer.forward(spoilt, ek::Mode::train);
  CHECK(layer.non_finite_statistics() == 3);
  for (std::uint32_t seed = 10; seed < 20; ++seed) layer.forward(values::random<double>(5, 3, seed), ek::Mode::train);
  CHECK(layer.running_mean().allFinite());
  CHECK(layer.infer(good).allFinite());
  layer.reset_running_statistics();
  CHECK(layer.non_finite_statistics() == 0);
}

TEST_CASE("A layer in another scalar type has counted as many batches and as many that were not finite",
          "[batch_norm]") {
  ek::BatchNorm<double> layer(2, {.momentum = std::nullopt});
  layer.forward(Matrix{{1, 1}, {2, 3}}, ek::Mode::train);
  layer.forward(Matrix{{not_a_number, 1}, {2, 3}}, ek::Mode::train);
  auto cast = layer.cast<float>();
  CHECK(cast.non_finite_statistics() == 1);
  CHECK(cast.batches_tracked() == 2);
  cast.forward(ek::Matrix<float>{{4, 1}, {5, 3}}, ek::Mode::train);
  CHECK(cast.running_mean()[0] == 3);  // of 1.5 and 4.5
}

TEST_CASE("NAN-3: with NonFinite::accept a NaN enters the statistics, and a reset cures it", "[batch_norm]") {
  ek::BatchNorm<double> layer(2, {.non_finite = ek::NonFinite::accept});
  layer.forward(Matrix{{not_a_number, 1}, {2, 3}}, ek::Mode::train);
  CHECK(std::isnan(layer.running_mean()[0]));
  CHECK(std::isnan(layer.running_variance()[0]));
  CHECK(layer.running_mean()[1] == 0.2);
  CHECK(layer.non_finite_statistics() == 1);
  layer.reset_running_statistics();
  CHECK(layer.infer(Matrix::Ones(1, 2)).allFinite());
}

TEST_CASE("NAN-3: with NonFinite::error a NaN is an error and the statistics stay", "[batch_norm]") {
  ek::BatchNorm<double> layer(2, {.non_finite = ek::NonFinite::error});
  layer.forward(Matrix{{1, 1}, {2, 3}}, ek::Mode::train);
  const auto before = layer;
  CHECK(error_of([&] {
          layer.forward(Matrix{{1, not_a_number}, {2, 3}}, ek::Mode::train);
        }) ==
        "invalid_argument: BatchNorm::forward: expected finite statistics in every channel, got mean nan and variance "
        "nan "
        "in channel 1");
  CHECK(same_statistics(layer, before));
  CHECK_NOTHROW(layer.forward(Matrix{{1, not_a_number}, {2, 3}}, ek::Mode::eval));
}

TEST_CASE("NAN-3: with NonFinite::error a pending backward survives the error", "[batch_norm]") {
  ek::BatchNorm<double> layer(2, {.non_finite = ek::NonFinite::error});
  const auto x = values::random<double>(5, 2, 1), dy = values::random<double>(5, 2, 2);
  auto spoilt = values::random<double>(5, 2, 3);
  spoilt(1, 1) = not_a_number;
  layer.forward(x, ek::Mode::train);
  const Matrix expected = layer.backward(dy);
  CHECK_FALSE(error_of([&] { layer.forward(spoilt, ek::Mode::train); }).empty());
  CHECK(compare::same_bits(layer.backward(dy), expected));
  Matrix y(5, 2), dx(5, 2);
  CHECK_FALSE(error_of([&] { layer.forward(spoilt, y, ek::Mode::train); }).empty());
  CHECK_FALSE(error_of([&] { layer.forward(spoilt, spoilt, ek::Mode::train); }).empty());
  CHECK(compare::same_bits(layer.backward(dy), expected));
  layer.backward(x, dy, dx);
  CHECK(compare::same_bits(dx, expected));
}

TEST_CASE("Statistics that float cannot hold are not finite, though double holds them", "[batch_norm]") {
  ek::BatchNorm<float> layer(1);
  const auto& y = layer.forward(column<float>({1e30f, -1e30f}), ek::Mode::train);
  CHECK(compare::difference(y, column<float>({1, -1})) < 1e-6);
  CHECK(layer.running_variance()[0] == 1);
  CHECK(layer.non_finite_statistics() == 1);
}

TEMPLATE_TEST_CASE("BatchNorm's statistics and gradients hold over many rows", "[batch_norm]", double, float) {
  constexpr Index rows = 20000;  // several chunks
  constexpr Index channels = 3, positions = 4;
  const auto x = values::random<TestType>(rows, channels * positions, 1);
  const auto dy = values::random<TestType>(rows, channels * positions, 2);
  ek::BatchNorm<TestType> layer(channels, positions, {.momentum = 1.0});
  const auto statistics = reference::channel_statistics(reference::exact(x), positions);
  const auto expected = reference::batch_norm(reference::exact(x), positions, statistics.mean, statistics.biased,
                                              reference::Numbers::Ones(1, 3), reference::Numbers::Zero(1, 3),
                                              static_cast<long double>(1e-5));
  CHECK(compare::difference(layer.forward(x, ek::Mode::train), expected) <= 8 * compare::epsilon<TestType>);
  CHECK(compare::difference(layer.running_mean(), statistics.mean) <= 8 * compare::epsilon<TestType>);
  CHECK(compare::difference(layer.running_variance(), statistics.unbiased) <= 8 * compare::epsilon<TestType>);

  const ek::Matrix<TestType> dx = layer.backward(dy);
  reference::Numbers dweight = reference::Numbers::Zero(1, channels), dbias = dweight;
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < channels * positions; ++j) {
      dweight(0, j / positions) += static_cast<long double>(dy(i, j)) * expected(i, j);
      dbias(0, j / positions) += static_cast<long double>(dy(i, j));
    }
  reference::Numbers expected_dx(rows, channels * positions);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < channels * positions; ++j) {
      const Index c = j / positions;
      constexpr long double n = rows * positions;
      expected_dx(i, j) = (static_cast<long double>(dy(i, j)) - dbias(0, c) / n - expected(i, j) * dweight(0, c) / n) /
                          std::sqrt(statistics.biased(0, c) + 1e-5L);
    }
  CHECK(compare::difference(dx, expected_dx) <= 8 * compare::epsilon<TestType>);
  // Terms of size 1 add up to something of size 100 here: their roundings do too.
  CHECK(compare::difference(layer.parameters()[0].gradient, dweight) <= 100 * compare::epsilon<TestType>);
  CHECK(compare::difference(layer.parameters()[1].gradient, dbias) <= 100 * compare::epsilon<TestType>);
}

TEST_CASE("A channel's positions are neighbours in a row", "[batch_norm]") {
  ek::BatchNorm<double> layer(2, 3, {.momentum = 1.0});
  layer.forward(Matrix{{0, 0, 0, 1, 1, 1}, {0, 0, 0, 1, 1, 1}}, ek::Mode::train);
  CHECK(compare::same_bits(layer.running_mean(), Matrix{{0, 1}}));
  CHECK(compare::same_bits(layer.running_variance(), Matrix{{0, 0}}));
}

TEST_CASE("BatchNorm's training state is what the plain average has not counted", "[batch_norm]") {
  ek::BatchNorm<double> layer(2, {.momentum = std::nullopt});
  Matrix x = values::random<double>(4, 2, 1);
  x(0, 1) = not_a_number;
  layer.forward(x, ek::Mode::train);
  const ek::TrainingState state = layer.training_state();
  REQUIRE(state.size() == 1);
  CHECK(state[0].name == "non_finite");
  REQUIRE(state[0].values.size() == 2);
  CHECK(state[0].values[0] == 0);
  CHECK(state[0].values[1] == 1);
  state[0].values[1] = 0;
  CHECK(layer.non_finite_statistics() == 0);
  CHECK(ek::BatchNorm<double>(2, {.track_running_statistics = false}).training_state().empty());
}
