#include "evenkeel/core/types.hpp"
#include "evenkeel/layers/layer_norm.hpp"

namespace ek = evenkeel;

int main() {
  const ek::LayerNorm<float, 4> norm;
#ifdef POSITIVE
  const ek::FixedMatrix<float, 2, 4> x = ek::FixedMatrix<float, 2, 4>::Zero();
#else
  const ek::FixedMatrix<float, 2, 5> x = ek::FixedMatrix<float, 2, 5>::Zero();
#endif
  norm.infer(x);
}
