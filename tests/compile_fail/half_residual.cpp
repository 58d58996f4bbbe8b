#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/residual.hpp"

int main() {
#if defined(POSITIVE)
  using Scalar = float;
#else
  using Scalar = Eigen::half;
#endif
  return evenkeel::Residual(evenkeel::LayerNorm<Scalar>(3), evenkeel::Linear<Scalar>(3, 3)).output_features(3) == 0;
}
