// summary: the whole text.

#include "evenkeel/network/summary.hpp"

#include <string>

#include "catch.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "network/own_layers.hpp"

namespace ek = evenkeel;

TEST_CASE("The summary of an Mlp shows its layers, shapes, parameters and what decays", "[summary]") {
  const ek::Mlp<float> net({391, 64, 4}, {.norm = ek::Norm::layer, .dropout = 0.5});
  CHECK(ek::summary(net) ==
        "layer  type       output       parameters  decayed\n"
        "0      Linear     (batch, 64)       25088    25024\n"
        "1      LayerNorm  (batch, 64)         128        0\n"
        "2      ReLU       (batch, 64)           0        0\n"
        "3      Dropout    (batch, 64)           0        0\n"
        "4      Linear     (batch, 4)          260      256\n"
        "                  total             25476    25280\n");
}

TEST_CASE("The summary counts nested networks and layers of the user's own", "[summary]") {
  const auto net = ek::sequential(ek::sequential(ek::Linear<double>(3, 5), ek::BatchNorm<double>(5)),
                                  own::Twice<double>(), own::AddOneInTraining<double>());
  CHECK(ek::summary(net) ==
        "layer  type        output       parameters  decayed\n"
        "0      Sequential  (batch, 5)           30       15\n"
        "1      Twice       (batch, 10)           2        2\n"
        "2      layer       (batch, 10)           0        0\n"
        "                   total                32       17\n");
}

TEST_CASE("The summary knows the shapes behind a first layer that takes any number of features", "[summary]") {
  const auto net = ek::sequential(ek::Dropout<float>(0.2), ek::Linear<float>(3, 5));
  CHECK(ek::summary(net) ==
        "layer  type     output      parameters  decayed\n"
        "0      Dropout  (batch, 3)           0        0\n"
        "1      Linear   (batch, 5)          20       15\n"
        "                total               20       15\n");
}
