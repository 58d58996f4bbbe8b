#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"

namespace ek = evenkeel;

int main() {
#ifdef POSITIVE
  const ek::Sequential net{ek::Linear<float, 4, 6>(), ek::LayerNorm<float, 6>()};
#else
  const ek::Sequential net{ek::Linear<float, 4, 6>(), ek::LayerNorm<float, 5>()};
#endif
}
