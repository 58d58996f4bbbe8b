#include "evenkeel/layers/group_norm.hpp"

#include <limits>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"

namespace ek = evenkeel;
using ek::Index;
using Matrix = ek::Matrix<double>;

TEST_CASE("GRP-1, GRP-2: groups are at least one and divide the channels", "[group_norm]") {
  const auto error_for = [](Index groups, Index channels) {
    return error_of([&] { ek::GroupNorm<float> layer(groups, channels); });
  };
  CHECK(error_for(4, 6) == "invalid_argument: GroupNorm: expected channels that 4 groups divide evenly, got 6");
  CHECK(error_for(5, 6) == "invalid_argument: GroupNorm: expected channels that 5 groups divide evenly, got 6");
  CHECK(error_for(4, 2) == "invalid_argument: GroupNorm: expected channels that 4 groups divide evenly, got 2");
  CHECK(error_for(2, 4).empty());
  CHECK(error_for(0, 4) == "invalid_argument: GroupNorm: expected groups >= 1, got 0");
  CHECK(error_for(-1, 4) == "invalid_argument: GroupNorm: expected groups >= 1, got -1");
  CHECK(error_for(-2, 4) == "invalid_argument: GroupNorm: expected groups >= 1, got -2");
  CHECK(error_for(2, 0) == "invalid_argument: GroupNorm: expected channels >= 1, got 0");
  CHECK(error_of([] { ek::GroupNorm<float> layer(2, 4, 0); }) ==
        "invalid_argument: GroupNorm: expected positions >= 1, got 0");
  CHECK(error_of([] { ek::GroupNorm<float> layer(2, 4, 1, {.epsilon = 0}); }) ==
        "invalid_argument: GroupNorm: expected a finite epsilon > 0, got 0");
  CHECK(error_of([] { ek::GroupNorm<float> layer(1, 4, Index{1} << 62); }) ==
        "invalid_argument: GroupNorm: expected channels x positions of at most 9223372036854775807, got 4 x "
        "4611686018427387904");
}

TEST_CASE("EPS-3, EPS-4: GroupNorm and InstanceNorm reject an epsilon that is not positive and finite",
          "[group_norm]") {
  using Limits = std::numeric_limits<double>;
  for (const double epsilon : {-1.0, -1e-5, 0.0, Limits::quiet_NaN(), Limits::infinity()}) {
    const std::string text = ": expected a finite epsilon > 0, got " + ek::detail::text(epsilon);
    CHECK(error_of([&] { ek::GroupNorm<float> layer(2, 4, {.epsilon = epsilon}); }) ==
          "invalid_argument: GroupNorm" + text);
    CHECK(error_of([&] { ek::InstanceNorm<float> layer(2, 4, {.epsilon = epsilon}); }) ==
          "invalid_argument: InstanceNorm" + text);
  }
}

TEST_CASE("EPS-4: groups of zeros give the shift, and finite gradients", "[group_norm]") {
  const auto check = [](auto layer) {
    INFO(layer.name);
    layer.parameters()[1].value.setConstant(0.5);
    CHECK((layer.forward(Matrix::Zero(3, 4), ek::Mode::train).array() == 0.5).all());
    CHECK(layer.backward(values::random<double>(3, 4, 1)).allFinite());
  };
  check(ek::GroupNorm<double>(2, 4));
  check(ek::InstanceNorm<double>(2, 2, {.affine = true}));
}

TEST_CASE("GRP-3: GroupNorm's gradients sum over samples and positions and couple the channels of a group",
          "[group_norm]") {
  ek::GroupNorm<double> layer(2, 4, 2);
  layer.parameters()[0].value << 1, 2, 3, 4;
  Matrix x(1, 8), dy(1, 8), y(1, 8), dx(1, 8), dweight(1, 4);
  x << 1, 2, 3, 5, 0, 4, 7, 9;
  dy << 1, 0, 0, 1, 2, -1, 0.5, 0.5;
  y << -1.18321325, -0.50709139, 0.33806093, 3.04254836, -4.42325676, -0.88465135, 2.35907027, 4.71814055;
  dx << 0.5408958, -0.3477205, -0.5602150, 0.3670398, 0.7724677, -1.4968556, 0.2660363, 0.4583516;
  dweight << -1.18321325, 1.52127418, -2.65395406, 0.88465135;
  CHECK(compare::difference(layer.forward(x, ek::Mode::train), y) <= 1e-8);
  CHECK(compare::difference(layer.backward(dy), dx) <= 1e-7);
  CHECK(compare::difference(layer.parameters()[0].gradient, dweight) <= 1e-8);
  CHECK(compare::difference(layer.parameters()[1].gradient, Matrix::Ones(1, 4)) <= 1e-15);
}

TEST_CASE("GRP-4: one group normalizes over all channels and positions", "[group_norm]") {
  ek::GroupNorm<double> layer(1, 2, 2);
  Matrix x(1, 4), y(1, 4);
  x << 1, 2, 3, 4;
  y << -1.34163542, -0.44721181, 0.44721181, 1.34163542;
  CHECK(compare::difference(layer.forward(x, ek::Mode::train), y) <= 1e-8);
}

TEST_CASE("VAR-2: groups of large integers keep all their digits", "[group_norm]") {
  ek::GroupNorm<float> group(1, 4);
  ek::InstanceNorm<float> instance(1, 4);
  for (const float first : {40000.0f, 80000.0f, 1e6f, 4e6f}) {
    ek::Matrix<float> x(1, 4), y(1, 4);
    x << first, first + 1, first + 2, first + 3;
    y << -1.3416354f, -0.4472118f, 0.4472118f, 1.3416354f;
    CHECK(compare::difference(group.forward(x, ek::Mode::train), y) <= 1e-6);
    CHECK(compare::difference(instance.forward(x, ek::Mode::train), y) <= 1e-6);
  }
}

// Rows of few and of many for their positions, which are worked on differently.
TEST_CASE("GroupNorm with one group is LayerNorm over the row, but for the affine part", "[group_norm]") {
  for (const Index rows : {1, 9})
    for (const Index positions : {1, 4, 40}) {
      const auto x = values::random<double>(rows, 3 * positions, 1),
                 dy = values::random<double>(rows, 3 * positions, 2);
      ek::GroupNorm<double> group(1, 3, positions, {.affine = false});
      ek::LayerNorm<double> layer(3 * positions, {.weight = false, .bias = false});
      INFO(rows << " x " << positions);
      CHECK(compare::same_bits(group.forward(x, ek::Mode::train), layer.forward(x, ek::Mode::train)));
      CHECK(compare::difference(group.backward(dy), layer.backward(dy)) <= 1e-14);
    }
}

TEST_CASE("GroupNorm with one channel a group is InstanceNorm", "[group_norm]") {
  for (const Index rows : {1, 9})
    for (const Index positions : {2, 40, 600}) {
      const auto x = values::random<double>(rows, 5 * positions, 1),
                 dy = values::random<double>(rows, 5 * positions, 2);
      ek::GroupNorm<double> group(5, 5, positions);
      ek::InstanceNorm<double> instance(5, positions, {.affine = true});
      group.parameters()[0].value = instance.parameters()[0].value = values::positive<double>(1, 5, 3);
      group.parameters()[1].value = instance.parameters()[1].value = values::random<double>(1, 5, 4);
      INFO(rows << " x " << positions);
      CHECK(compare::same_bits(group.forward(x, ek::Mode::train), instance.forward(x, ek::Mode::train)));
      CHECK(compare::same_bits(group.backward(dy), instance.backward(dy)));
      for (const std::size_t k : {0u, 1u})
        CHECK(compare::same_bits(group.parameters()[k].gradient, instance.parameters()[k].gradient));
    }
}

TEST_CASE("Groups of one value have no statistics, and no layer is made of them", "[group_norm]") {
  CHECK(error_of([] { ek::GroupNorm<float> layer(3, 3); }) ==
        "invalid_argument: GroupNorm: expected more than one value per group to take statistics of, got 1 from 3 "
        "channels x 1 positions in 3 groups; use fewer groups");
  CHECK(error_of([] { ek::GroupNorm<float> layer(3, 3, 2); }).empty());
  CHECK(error_of([] { ek::GroupNorm<float> layer(3, 6); }).empty());
}

TEST_CASE("GroupNorm tells its sizes and where it starts", "[group_norm]") {
  ek::GroupNorm<float> layer(2, 6, 5, {.epsilon = 0.25});
  CHECK(layer.groups() == 2);
  CHECK(layer.channels() == 6);
  CHECK(layer.positions() == 5);
  CHECK(layer.epsilon() == 0.25);
  CHECK(layer.input_features() == 30);
  CHECK(layer.output_features(30) == 30);
  CHECK(layer.parameters()[0].name == "weight");
  CHECK(layer.parameters()[0].value == ek::Matrix<float>::Ones(1, 6));
  CHECK(layer.parameters()[1].name == "bias");
  CHECK(layer.parameters()[1].value == ek::Matrix<float>::Zero(1, 6));
  CHECK(ek::GroupNorm<float>(2, 6, 5, {.affine = false}).parameters().empty());
}

TEST_CASE("A NaN or an infinity spoils its group alone", "[group_norm]") {
  for (const float spoiler : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ek::GroupNorm<float> layer(2, 4, 3);
    ek::Matrix<float> x = values::random<float>(3, 12, 1);
    x(1, 7) = spoiler;
    const auto& y = layer.forward(x, ek::Mode::train);
    CHECK(y.row(1).rightCols(6).array().isNaN().all());
    CHECK(y.row(1).leftCols(6).allFinite());
    CHECK(y.row(0).allFinite());
  }
}
