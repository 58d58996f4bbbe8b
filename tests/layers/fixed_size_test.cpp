#include "evenkeel/layers/fixed_size.hpp"

#include <Eigen/Core>
#include <array>
#include <concepts>     // same_as
#include <cstddef>      // size_t
#include <type_traits>  // type_identity
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/network/sequential.hpp"
#include "network/own_layers.hpp"

namespace ek = evenkeel;
using Eigen::Dynamic;

namespace {

template <int Rows, int Columns>
using Batch = Eigen::Matrix<float, Rows, Columns, Eigen::RowMajor>;

/// A layer of one's own that gives three features, whatever it is given.
struct GivesThree {
  static constexpr int fixed_output_features(int) { return 3; }
};

template <class M>
ek::Matrix<float> plain(const M& matrix) {
  return matrix;
}

/// Whether two layers start equal, go through one training step alike, and infer alike, to the bit.
template <class One, class Other>
bool same_layer(One one, Other other, Eigen::Index in) {
  const auto x = values::random<float>(6, in, 1);
  const auto dy = values::random<float>(6, one.output_features(in), 2);
  const auto same = [](const auto& a, const auto& b) { return compare::same_bits(a, b); };
  bool all = same(one.infer(x), other.infer(x)) &&
             same(one.forward(x, ek::Mode::train), other.forward(x, ek::Mode::train)) &&
             same(one.backward(dy), other.backward(dy));
  if constexpr (requires { one.parameters(); }) {
    const auto parameters = one.parameters(), others = other.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      all = all && same(parameters[i].value, others[i].value) && same(parameters[i].gradient, others[i].gradient);
  }
  return all && same(one.infer(x), other.infer(x));
}

/// Whether a layer computes in an array, a growing vector, and by value, and copies share nothing.
template <class Layer>
bool lives_anywhere(Layer layer) {
  const auto x = values::random<float>(4, 4, 1);
  const ek::Matrix<float> expected = layer.infer(x);
  std::vector<Layer> many(1, layer);
  for (int i = 0; i < 9; ++i) many.push_back(many.front());
  std::array<Layer, 3> few{layer, layer, layer};
  layer.forward(x, ek::Mode::train);  // running statistics move
  for (auto& parameter : layer.parameters()) parameter.value.setConstant(3);
  bool all = !compare::same_bits(layer.infer(x), expected);
  for (const Layer& each : many) all = all && compare::same_bits(each.infer(x), expected);
  for (const Layer& each : few) all = all && compare::same_bits(each.infer(x), expected);
  return all;
}

}  // namespace

TEST_CASE("A layer of fixed size is the same as one of run-time size, to the bit", "[fixed_size]") {
  CHECK(same_layer(ek::LayerNorm<float, 20>(), ek::LayerNorm<float>(20), 20));
  CHECK(same_layer(ek::RMSNorm<float, 20>(), ek::RMSNorm<float>(20), 20));
  CHECK(same_layer(ek::BatchNorm<float, 20>(), ek::BatchNorm<float>(20), 20));
  CHECK(same_layer(ek::Linear<float, 20, 7>(), ek::Linear<float>(20, 7), 20));
  CHECK(same_layer(ek::Sequential{ek::Linear<float, 20, 8>(), ek::BatchNorm<float, 8>(), ek::ReLU<float>()},
                   ek::Sequential{ek::Linear<float>(20, 8), ek::BatchNorm<float>(8), ek::ReLU<float>()}, 20));
}

TEST_CASE("Layers of fixed size live in arrays, in vectors and by value, and copies share nothing", "[fixed_size]") {
  CHECK(lives_anywhere(ek::LayerNorm<float, 4>()));
  CHECK(lives_anywhere(ek::RMSNorm<float, 4>()));
  CHECK(lives_anywhere(ek::BatchNorm<float, 4>()));
  CHECK(lives_anywhere(ek::Linear<float, 4, 4>()));
  CHECK(lives_anywhere(ek::Sequential{ek::Linear<float, 4, 8>(), ek::LayerNorm<float, 8>()}));
}

TEST_CASE("A cast keeps the sizes", "[fixed_size]") {
  const auto is = []<class T>(const T&, std::type_identity<T>) { return true; };
  CHECK(is(ek::LayerNorm<float, 4>().cast<double>(), std::type_identity<ek::LayerNorm<double, 4>>()));
  CHECK(is(ek::RMSNorm<float, 4>().cast<double>(), std::type_identity<ek::RMSNorm<double, 4>>()));
  CHECK(is(ek::BatchNorm<float, 4>().cast<double>(), std::type_identity<ek::BatchNorm<double, 4>>()));
  CHECK(is(ek::Linear<float, 4, 3>().cast<double>(), std::type_identity<ek::Linear<double, 4, 3>>()));
  const auto net = ek::Sequential{ek::Linear<float, 4, 3>(), ek::RMSNorm<float, 3>()}.cast<double>();
  CHECK(is(net, std::type_identity<ek::Sequential<ek::Linear<double, 4, 3>, ek::RMSNorm<double, 3>>>()));
}

// What infer(x) returns.

TEST_CASE("Where all sizes are known at compile time infer returns a matrix of fixed size", "[fixed_size]") {
  const ek::Linear<float, 4, 3> linear;
  const ek::Linear<float, 4, 1> to_one;
  const ek::ReLU<float> relu;
  const Batch<5, 4> x = values::random<float>(5, 4, 1);
  STATIC_REQUIRE(std::same_as<decltype(linear.infer(x)), Batch<5, 3>>);
  STATIC_REQUIRE(std::same_as<decltype(linear.infer(2 * x.topRows<2>())), Batch<2, 3>>);
  STATIC_REQUIRE(std::same_as<decltype(to_one.infer(x)), Eigen::Matrix<float, 5, 1>>);  // Eigen has no other
  STATIC_REQUIRE(std::same_as<decltype(to_one.infer(x.row(0))), Batch<1, 1>>);
  STATIC_REQUIRE(std::same_as<decltype(relu.infer(x.transpose())), Batch<4, 5>>);
  CHECK(compare::same_bits(plain(to_one.infer(x)), to_one.infer(plain(x))));
  CHECK(compare::same_bits(plain(relu.infer(x.transpose())), relu.infer(plain(x.transpose()))));
}

TEST_CASE("Where one is not known infer returns a Matrix", "[fixed_size]") {
  const ek::Linear<float, 4, 3> linear;
  const ek::Linear<float> of_any_size(4, 3);
  const Batch<5, 4> x = values::random<float>(5, 4, 1);
  STATIC_REQUIRE(std::same_as<decltype(linear.infer(plain(x))), ek::Matrix<float>>);
  STATIC_REQUIRE(std::same_as<decltype(linear.infer(x.topRows(2))), ek::Matrix<float>>);
  STATIC_REQUIRE(std::same_as<decltype(of_any_size.infer(x)), ek::Matrix<float>>);
  CHECK(compare::same_bits(of_any_size.infer(x), plain(linear.infer(x))));
}

TEST_CASE("Layers of fixed and of run-time size stand in one network", "[fixed_size]") {
  const ek::Linear<float> first(4, 6);
  const ek::Linear<float, 6, 3> second;
  const Batch<5, 4> x = values::random<float>(5, 4, 1);
  const ek::Matrix<float> expected = second.infer(first.infer(plain(x)));

  const ek::Sequential known_at_its_end{first, second};
  STATIC_REQUIRE(std::same_as<decltype(known_at_its_end.infer(x)), Batch<5, 3>>);
  CHECK(compare::same_bits(plain(known_at_its_end.infer(x)), expected));
  const ek::Sequential not_known{ek::Linear<float, 4, 6>(), ek::Linear<float>(6, 3)};
  STATIC_REQUIRE(std::same_as<decltype(not_known.infer(x)), ek::Matrix<float>>);
  CHECK(compare::same_bits(not_known.infer(x), expected));
}

TEST_CASE("A layer of one's own that says nothing of its sizes stands among those of fixed size", "[fixed_size]") {
  const ek::Linear<float, 4, 6> first;
  const ek::Linear<float, 6, 3> second;
  const ek::Sequential net{first, own::AddOneInTraining<float>(), second};
  STATIC_REQUIRE(ek::Layer<own::AddOneInTraining<float>>);
  const Batch<5, 4> x = values::random<float>(5, 4, 1);
  STATIC_REQUIRE(std::same_as<decltype(net.infer(x)), Batch<5, 3>>);
  CHECK(compare::same_bits(plain(net.infer(x)), second.infer(first.infer(plain(x)))));
}

// What does not fit.

TEST_CASE("What can be seen at run time only is an error with both shapes", "[fixed_size]") {
  const ek::LayerNorm<float, 4> norm;
  const auto x = values::random<float>(2, 5, 1);
  CHECK(error_of([&] { norm.infer(x); }) ==
        "ShapeError: LayerNorm::infer: expected input of shape (batch, 4), got (2, 5)");
  const Batch<2, 5> fixed = x;
  CHECK(error_of([&] { ek::LayerNorm<float>(4).infer(fixed); }) ==
        "ShapeError: LayerNorm::infer: expected input of shape (batch, 4), got (2, 5)");
  CHECK(error_of([&] { ek::BatchNorm<float, 4>(4, 2).infer(fixed); }) ==
        "ShapeError: BatchNorm::infer: expected input of shape (batch, 8) for 4 channels x 2 positions, got (2, 5)");
  CHECK(error_of([] {
          ek::Sequential{ek::Linear<float>(4, 6), ek::LayerNorm<float, 5>()};
        }) == "ShapeError: Sequential: layer 0 (Linear) gives 6 features, but layer 1 (LayerNorm) expects 5");
}

TEST_CASE("What is seen at compile time is a misfit, from the first layer on where it is", "[fixed_size]") {
  using ek::detail::misfit;
  using ek::detail::takes;
  using Fits = ek::Sequential<ek::Dropout<float>, ek::Linear<float, 4, 6>, ek::ReLU<float>, ek::Linear<float, 6, 5>>;
  using Wrong = ek::Sequential<ek::Linear<float, 4, 6>, ek::ReLU<float>, ek::Linear<float, 7, 5>>;
  STATIC_REQUIRE(Fits::fixed_output_features(4) == 5);
  STATIC_REQUIRE(Fits::fixed_output_features(Dynamic) == 5);
  STATIC_REQUIRE(Fits::fixed_output_features(5) == misfit);
  STATIC_REQUIRE(Wrong::fixed_output_features(Dynamic) == misfit);
  STATIC_REQUIRE(ek::detail::fixed_output_features<GivesThree>(4) == 3);
  STATIC_REQUIRE(ek::detail::fixed_output_features<GivesThree>(misfit) == misfit);
  STATIC_REQUIRE(takes<ek::LayerNorm<float, 4>, Batch<2, 4>>);
  STATIC_REQUIRE(takes<ek::LayerNorm<float, 4>, ek::Matrix<float>>);
  STATIC_REQUIRE(takes<ek::LayerNorm<float>, Batch<2, 5>>);
  STATIC_REQUIRE_FALSE(takes<ek::LayerNorm<float, 4>, Batch<2, 5>>);
  STATIC_REQUIRE_FALSE(takes<ek::RMSNorm<float, 4>, Batch<2, 5>>);
  STATIC_REQUIRE_FALSE(takes<ek::Linear<float, 4, 3>, Batch<2, 5>>);
}
