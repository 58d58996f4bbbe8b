#include "evenkeel/core/mode.hpp"
#include "evenkeel/layers/layer_norm.hpp"

namespace ek = evenkeel;

int main() {
  ek::LayerNorm<float> norm(4);
  ek::Matrix<float> x(2, 4);
#ifdef POSITIVE
  norm.forward(x, ek::Mode::train);
#else
  norm.forward(x, {});
#endif
}
