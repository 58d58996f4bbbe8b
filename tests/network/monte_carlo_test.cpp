#include "evenkeel/network/monte_carlo.hpp"

#include <Eigen/SparseCore>
#include <cmath>    // abs, sqrt
#include <cstdint>  // uint32_t
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/loss.hpp"
#include "network/own_layers.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using compare::difference;
using compare::same_bits;
using ek::Index;

namespace {

template <typename Scalar>
auto network() {
  ek::Sequential net{ek::Linear<Scalar>(5, 8, {.seed = 1}), ek::BatchNorm<Scalar>(8), ek::Dropout<Scalar>(0.4),
                     ek::Linear<Scalar>(8, 3, {.seed = 2})};
  net.forward(values::random<Scalar>(20, 5, 9), ek::Mode::train);  // running statistics that are not 0 and 1
  return net;
}

}  // namespace

TEMPLATE_TEST_CASE("Mean and variance are those of the next samples", "[monte_carlo]", double, float) {
  const auto net = network<TestType>();
  const auto x = values::random<TestType>(6, 5, 1);
  constexpr Index samples = 9;
  const auto result = ek::monte_carlo(net, x, samples);
  CHECK(result.samples == samples);

  // By two passes in long double, each sample from a network of its own.
  std::vector<ek::Matrix<long double>> all;
  for (Index k = 0; k < samples; ++k) {
    auto other = net;
    other.replay(static_cast<std::uint32_t>(1 + k));  // the first mask was drawn in training
    all.emplace_back(other.forward(x, ek::Mode::monte_carlo).template cast<long double>());
  }
  ek::Matrix<long double> mean = ek::Matrix<long double>::Zero(6, 3), variance = mean;
  for (const auto& sample : all) mean += sample / samples;
  for (const auto& sample : all) variance += (sample - mean).cwiseAbs2() / (samples - 1);
  CHECK(difference(result.mean, mean) <= 2 * compare::epsilon<TestType>);
  CHECK(difference(result.variance, variance) <= 4 * compare::epsilon<TestType>);
  CHECK((result.variance.array() > 0).all());
}

TEST_CASE("The network stays as it is, a pending backward included, and the answer is the same again",
          "[monte_carlo]") {
  auto net = network<double>();
  auto twin = network<double>();
  const auto x = values::random<double>(6, 5, 1);
  const auto dy = values::random<double>(6, 3, 2);
  net.forward(x, ek::Mode::train);
  twin.forward(x, ek::Mode::train);
  const auto first = ek::monte_carlo(net, values::random<double>(4, 5, 3), 5);
  const auto second = ek::monte_carlo(net, values::random<double>(4, 5, 3), 5);
  CHECK(same_bits(first.mean, second.mean));
  CHECK(same_bits(first.variance, second.variance));
  CHECK(same_bits(net.backward(dy), twin.backward(dy)));
  CHECK(compare::same_gradients(net, twin));
  CHECK(compare::same_buffers(net, twin));
  CHECK(same_bits(net.forward(x, ek::Mode::train), twin.forward(x, ek::Mode::train)));  // the next mask

  net.replay(100);
  const auto others = ek::monte_carlo(net, values::random<double>(4, 5, 3), 5);
  CHECK_FALSE(same_bits(first.mean, others.mean));
}

TEST_CASE("Of one dropout the mean is x and the variance x^2 p / (1 - p)", "[monte_carlo]") {
  const ek::Matrix<double> x = ek::Matrix<double>::Constant(30, 40, 3);
  for (const double p : {0.25, 0.5, 0.75}) {
    INFO("p = " << p);
    const auto result = ek::monte_carlo(ek::Dropout<double>(p, {.seed = 4}), x, 400);
    const double expected = 9 * p / (1 - p);
    // Six standard deviations of means over 480000 draws; the fourth moment of a scaled coin is below 9 variances^2 here.
    CHECK(std::abs(result.mean.mean() - 3) < 6 * std::sqrt(expected / 480000));
    CHECK(std::abs(result.variance.mean() - expected) < 6 * expected * std::sqrt(8.0 / 480000));
  }
}

TEST_CASE("A network that draws no masks has its eval output as mean and no variance", "[monte_carlo]") {
  ek::Sequential net{ek::Linear<float>(5, 8, {.seed = 1}), ek::BatchNorm<float>(8)};
  net.forward(values::random<float>(20, 5, 9), ek::Mode::train);
  const auto x = values::random<float>(6, 5, 1);
  const auto result = ek::monte_carlo(net, x, 7);
  CHECK(same_bits(result.mean, net.infer(x)));
  CHECK(same_bits(result.variance, ek::Matrix<float>::Zero(6, 8)));
}

TEST_CASE("A function of the output is averaged, not the function of the average taken", "[monte_carlo]") {
  const auto net = network<double>();
  const auto x = values::random<double>(6, 5, 1);
  const auto probabilities = ek::monte_carlo(net, x, 20, [](const auto& logits) { return ek::softmax(logits); });
  CHECK(difference(probabilities.mean.rowwise().sum(), Eigen::VectorXd::Ones(6)) < 1e-14);
  CHECK(difference(probabilities.mean, ek::softmax(ek::monte_carlo(net, x, 20).mean)) > 1e-4);
  const auto sums = ek::monte_carlo(net, x, 20, [](const auto& y) { return y.rowwise().sum(); });
  CHECK(sums.mean.rows() == 6);
  CHECK(sums.mean.cols() == 1);
  CHECK(difference(sums.mean, ek::monte_carlo(net, x, 20).mean.rowwise().sum()) < 1e-13);
}

TEST_CASE("A variance far below the square of the mean keeps its digits", "[monte_carlo]") {
  // Outputs of 1e4 + 1 and 1e4 - 1, or nearly: E[y^2] - E[y]^2 in float would be off by several units.
  ek::Sequential net{ek::Dropout<float>(0.5, {.seed = 4}), ek::Linear<float>(1, 1)};
  net.parameters()[0].value(0, 0) = 1;
  net.parameters()[1].value(0, 0) = 1e4f;
  const auto result = ek::monte_carlo(net, ek::Matrix<float>::Ones(1, 1), 1000);
  const double kept = (static_cast<double>(result.mean(0, 0)) - 1e4) / 2;  // the share, to float's digits of 1e4
  CHECK(static_cast<double>(result.variance(0, 0)) == Catch::Approx(4 * kept * (1 - kept) * 1000 / 999).epsilon(1e-3));
}

TEST_CASE("Spread too small for halves is told in float", "[monte_carlo]") {
  const ek::Sequential net{ek::Dropout<Eigen::half>(0.5)};
  const auto result = ek::monte_carlo(net, ek::Matrix<Eigen::half>::Constant(1, 1, Eigen::half(1e-3f)), 400);
  static_assert(std::is_same_v<decltype(result.variance), ek::Matrix<float>>);
  CHECK(result.variance(0, 0) == Catch::Approx(1e-6).epsilon(0.1));  // x^2 p / (1 - p); the least half is 6e-8
}

TEST_CASE("Any dense x goes in, a sparse one where the network takes it, and a user's own layer", "[monte_carlo]") {
  const auto net = network<double>();
  const auto x = values::random<double>(6, 5, 1);
  const auto expected = ek::monte_carlo(net, x, 5);
  CHECK(difference(ek::monte_carlo(net, Eigen::MatrixXd(x), 5).mean, expected.mean) < 1e-14);
  CHECK(difference(ek::monte_carlo(net, x + 0 * x, 5).mean, expected.mean) < 1e-14);
  CHECK(difference(ek::monte_carlo(net, Eigen::SparseMatrix<double, Eigen::RowMajor>(x.sparseView()), 5).mean,
                   expected.mean) < 1e-14);
  CHECK(same_bits(ek::monte_carlo(own::AddOneInTraining<double>(), x, 5).mean, (x.array() + 1).matrix().eval()));
}

TEST_CASE("monte_carlo needs two samples, and says what the network says", "[monte_carlo]") {
  const auto net = network<double>();
  CHECK(error_of([&] { ek::monte_carlo(net, ek::Matrix<double>::Ones(6, 5), 1); }) ==
        "invalid_argument: monte_carlo: expected samples >= 2, got 1");
  CHECK(error_of([&] { ek::monte_carlo(net, ek::Matrix<double>::Ones(6, 4), 5); }) ==
        "ShapeError: Linear::forward (layer 0): expected input of shape (batch, 5), got (6, 4)");
}
