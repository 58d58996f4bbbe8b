#include <string>
#include <vector>

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/training/loss.hpp"

/// check_gradients on whole networks, alone and under a loss.

namespace ek = evenkeel;
using ek::GradientVerdict;
using ek::Index;
using ek::Mode;

namespace {

template <typename Scalar>
ek::Mlp<Scalar> network(ek::Norm norm) {
  return ek::Mlp<Scalar>({5, 8, 8, 3}, {.norm = norm, .dropout = 0.3, .seed = 3});
}

/// Half the squared distance from a target, as a user may write it: in double only, and without a cast.
struct Distance {
  struct Result {
    double value;
    ek::Matrix<double> gradient;
  };
  double slope = 1;
  Result operator()(const ek::Matrix<double>& y, const ek::Matrix<double>& target) const {
    return {(y - target).squaredNorm() / 2, slope * (y - target)};
  }
};

}  // namespace

TEMPLATE_TEST_CASE("A network under cross-entropy passes with every norm", "[network_check]", float, double,
                   long double) {
  const auto x = values::random<TestType>(6, 5, 1);
  const std::vector<int> labels{0, 1, 2, 0, 1, 2};
  for (const ek::Norm norm : {ek::Norm::none, ek::Norm::layer, ek::Norm::rms, ek::Norm::batch}) {
    const auto net = network<TestType>(norm);
    const auto report = ek::check_gradients(net, ek::SoftmaxCrossEntropy<TestType>(), x, labels, Mode::train);
    CHECK(report);
    CHECK(report.numeric_type == "long double");
  }
}

TEST_CASE("A network alone passes, and each parameter has its name", "[network_check]") {
  const auto report =
      ek::check_gradients(network<double>(ek::Norm::batch), values::random<double>(6, 5, 1), Mode::train);
  CHECK(report);
  REQUIRE(report.tensors.size() == 11);
  CHECK(report.tensors[1].name == "0.weight");
  CHECK(report.tensors[2].name == "0.bias");
  CHECK(report.tensors[2].zeros == 8);  // before a BatchNorm
  CHECK(report.tensors[3].name == "1.weight");
}

TEST_CASE("Labels may be any integers, targets any dense object", "[network_check]") {
  const auto net = network<double>(ek::Norm::layer);
  const auto x = values::random<double>(3, 5, 1);
  const ek::SoftmaxCrossEntropy<double> cross_entropy;
  CHECK(ek::check_gradients(net, cross_entropy, x, Eigen::Vector3i(2, 1, 0), Mode::train));
  CHECK(ek::check_gradients(net, cross_entropy, x, std::vector<unsigned char>{2, 1, 0}, Mode::train));
  const Eigen::MatrixXd target = values::random<double>(3, 3, 2);
  CHECK(ek::check_gradients(net, ek::MeanSquaredError<double>(), x, target, Mode::train));
  CHECK(ek::check_gradients(net, ek::MeanSquaredError<double>(), x, target.transpose(), Mode::train));
  const ek::Matrix<double> probability = (target.array() * target.array()) / 4;
  CHECK(ek::check_gradients(net, ek::BinaryCrossEntropy<double>(), x, probability, Mode::train));
  const ek::Matrix<float> float_x = x.cast<float>(), float_target = target.cast<float>();
  const auto report = ek::check_gradients(network<float>(ek::Norm::layer), ek::MeanSquaredError<float>(), float_x,
                                          float_target, Mode::train);
  CHECK(report);
  CHECK(report.numeric_type == "long double");
}

TEST_CASE("A loss without a cast is taken in the network's type", "[network_check]") {
  const auto net = network<double>(ek::Norm::layer);
  const auto x = values::random<double>(3, 5, 1);
  const auto target = values::random<double>(3, 3, 2);
  const auto report = ek::check_gradients(net, Distance{}, x, target, Mode::train);
  CHECK(report);
  CHECK(report.numeric_type == "double");
}

TEST_CASE("A wrong loss gradient makes every tensor wrong", "[network_check]") {
  const auto net = network<double>(ek::Norm::layer);
  const auto x = values::random<double>(3, 5, 1);
  const auto target = values::random<double>(3, 3, 2);
  const auto report = ek::check_gradients(net, Distance{1.01}, x, target, Mode::train);
  CHECK(report.verdict == GradientVerdict::fail);
  for (const auto& tensor : report.tensors) CHECK(tensor.failed > 0);
}

TEST_CASE("GCK-3: a network stays bit for bit as it is", "[network_check]") {
  auto net = network<double>(ek::Norm::batch);
  const auto x = values::random<double>(6, 5, 1);
  const std::vector<int> labels{0, 1, 2, 0, 1, 2};
  ek::SoftmaxCrossEntropy<double> cross_entropy;
  ek::Matrix<double> dx(6, 5);
  ek::Matrix<double> y(6, 3);
  net.forward(x, y, Mode::train);
  net.backward(x, cross_entropy(y, labels).gradient, dx);
  const ek::Mlp<double> copy = net;
  CHECK(ek::check_gradients(net, cross_entropy, x, labels, Mode::train));

  const auto before = copy.parameters();
  const auto after = std::as_const(net).parameters();
  REQUIRE(before.size() == after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i].value == after[i].value);
    CHECK(before[i].gradient == after[i].gradient);
  }
  // Statistics and masks too: the next outputs are the same.
  ek::Mlp<double> first = copy;
  CHECK(first.forward(x, Mode::train) == net.forward(x, Mode::train));
  CHECK(first.infer(x) == net.infer(x));
}

TEST_CASE("Directions check a large network in few evaluations", "[network_check]") {
  const ek::Mlp<double> net({100, 300, 100, 4}, {.norm = ek::Norm::layer, .dropout = 0.5, .seed = 3});
  const auto x = values::random<double>(8, 100, 1);
  const std::vector<int> labels{0, 1, 2, 3, 0, 1, 2, 3};
  const auto report =
      ek::check_gradients(net, ek::SoftmaxCrossEntropy<double>(), x, labels, Mode::train, {.directions = 3});
  CHECK(report);
  CHECK(report.elements() == 3);
}
