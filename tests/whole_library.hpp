#pragma once

#include <Eigen/Core>
#include <cmath>
#include <vector>

#include "evenkeel/evenkeel.hpp"

/// Uses a bit of everything, without exceptions and without a test framework: trains a small network, looks at it in eval
/// and checks one layer's gradients. True if the loss has fallen and the checker agrees.
template <typename Scalar>
bool whole_library_works() {
  namespace ek = evenkeel;
  ek::Matrix<Scalar> x(8, 4);
  std::vector<int> labels;
  for (ek::Index row = 0; row < x.rows(); ++row) {
    for (ek::Index column = 0; column < x.cols(); ++column)
      x(row, column) = std::sin(static_cast<Scalar>(1 + 3 * row + 5 * column));
    labels.push_back(x(row, 0) > x(row, 1) ? 1 : 0);
  }

  ek::Sequential net{ek::Linear<Scalar>(4, 8, {.seed = 1}), ek::BatchNorm<Scalar>(8), ek::ReLU<Scalar>(),
                     ek::Dropout<Scalar>(0.1, {.seed = 2}), ek::Linear<Scalar>(8, 2, {.seed = 3})};
  ek::AdamW<Scalar> optimizer(net, {.learning_rate = 1e-2});
  ek::SoftmaxCrossEntropy<Scalar> cross_entropy;
  const double before = static_cast<double>(cross_entropy(net.forward(x, ek::Mode::eval), labels).value);
  for (int step = 0; step < 50; ++step) {
    const auto& loss = cross_entropy(net.forward(x, ek::Mode::train), labels);
    net.backward_parameters(x, loss.gradient);
    optimizer.step();
  }
  const double after = static_cast<double>(cross_entropy(net.infer(x), labels).value);

  ek::Mlp<Scalar> mlp({4, 8, 2}, {.norm = ek::Norm::layer, .dropout = 0.5, .seed = 3});
  const ek::Matrix<Scalar> logits = mlp.infer(x);
  ek::RMSNorm<Scalar> norm(4);
  return after < before && logits.rows() == x.rows() && ek::check_gradients(norm, x, ek::Mode::train);
}
