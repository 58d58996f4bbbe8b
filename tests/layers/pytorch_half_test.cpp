// Layers of bfloat16 against the figures of PyTorch.

#include <string>

#include "catch.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "figures/figures.hpp"
#include "layers/rounding.hpp"

namespace ek = evenkeel;

namespace {

/// The layer gives what PyTorch gives in double, rounded once, and what PyTorch gives in bfloat16 up to the roundings of that:
/// PyTorch 1.13 keeps what is between the steps of a norm in bfloat16, so that many of its own results are off by more than one
/// rounding. (Its Linear's outputs are not.)
template <class Layer>
void check(Layer layer, const std::string& name) {
  using Stored = Eigen::bfloat16;
  const auto expected = figures::Figures("bfloat16").part(name);
  for (auto& parameter : layer.parameters()) parameter.value = expected.as<float>(parameter.name);
  const auto agrees = [&](const ek::Matrix<Stored>& actual, const std::string& what) {
    INFO(name << ": " << what);
    const ek::Matrix<double> exact = expected[what + ".float64"], own = expected[what];
    CHECK(rounding::rounded_once(actual, exact.cast<long double>()));
    CHECK(figures::difference(actual.cast<double>(), own) <= 3.0 / 256);
    return rounding::rounded_once<Stored>(own.cast<Stored>(), exact.cast<long double>());
  };
  const bool once = agrees(layer.forward(expected.as<Stored>("x"), ek::Mode::train), "y");
  CHECK(once == (name == "linear"));
  agrees(layer.backward(expected.as<Stored>("dy")), "dx");
}

}  // namespace

TEST_CASE("Layers of bfloat16 give PyTorch's results, more exactly", "[pytorch_half]") {
  check(ek::LayerNorm<Eigen::bfloat16>(40), "layer_norm");
  check(ek::BatchNorm<Eigen::bfloat16>(6), "batch_norm");
  check(ek::GroupNorm<Eigen::bfloat16>(2, 8, 6), "group_norm");
  check(ek::Linear<Eigen::bfloat16>(40, 8), "linear");
}
