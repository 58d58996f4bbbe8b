#include <evenkeel/evenkeel.hpp>

namespace ek = evenkeel;

int main() {
  const ek::Matrix<float> x = ek::Matrix<float>::Random(8, 4);
  ek::LayerNorm<float> norm(4);
  const ek::Matrix<float> y = norm.forward(x, ek::Mode::train);
  return y.rowwise().mean().cwiseAbs().maxCoeff() < 1e-5F ? 0 : 1;
}
