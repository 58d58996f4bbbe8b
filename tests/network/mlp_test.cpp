// Mlp: which layers it is made of, how it starts, its options, and its gradients as a whole.

#include "evenkeel/network/mlp.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/core/error.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using compare::same_bits;

namespace {

std::vector<std::string> layer_names(const ek::Mlp<float>& net) {
  std::vector<std::string> names;
  for (ek::Index i = 0; i < net.layer_count(); ++i)
    net.visit(i, [&](const auto& layer) { names.emplace_back(ek::name_of(layer)); });
  return names;
}

template <class Views>
std::vector<std::string> names(const Views& views) {
  std::vector<std::string> result;
  for (const auto& view : views) result.push_back(view.name);
  return result;
}

/// The weights of the linear layers, the first first.
template <typename Scalar>
std::vector<ek::Matrix<Scalar>> linear_weights(const ek::Mlp<Scalar>& net) {
  std::vector<ek::Matrix<Scalar>> weights;
  for (const auto& parameter : net.parameters())
    if (parameter.kind == ek::ParameterKind::weight) weights.emplace_back(parameter.value);
  return weights;
}

}  // namespace

TEST_CASE("Mlp is linear, norm, ReLU, dropout, and linear at the end", "[mlp]") {
  using Names = std::vector<std::string>;
  CHECK(layer_names(ek::Mlp<float>({3, 2})) == Names{"Linear"});
  CHECK(layer_names(ek::Mlp<float>({3, 4, 2})) == Names{"Linear", "ReLU", "Linear"});
  CHECK(layer_names(ek::Mlp<float>({3, 4, 5, 2}, {.norm = ek::Norm::rms})) ==
        Names{"Linear", "RMSNorm", "ReLU", "Linear", "RMSNorm", "ReLU", "Linear"});
  CHECK(layer_names(ek::Mlp<float>({3, 4, 2}, {.norm = ek::Norm::layer, .dropout = 0.5})) ==
        Names{"Linear", "LayerNorm", "ReLU", "Dropout", "Linear"});
  CHECK(layer_names(ek::Mlp<float>({3, 4, 2}, {.norm = ek::Norm::batch, .input_dropout = 0.1})) ==
        Names{"Dropout", "Linear", "BatchNorm", "ReLU", "Linear"});
  CHECK(layer_names(ek::Mlp<float>({3, 6, 2}, {.norm = ek::Norm::group, .groups = 3})) ==
        Names{"Linear", "GroupNorm", "ReLU", "Linear"});
  CHECK(layer_names(ek::Mlp<float>({3, 2}, {.norm = ek::Norm::batch, .dropout = 0.5, .input_dropout = 0.1})) ==
        Names{"Dropout", "Linear"});
}

TEST_CASE("Mlp's groups must divide every hidden size into more than one feature each", "[mlp]") {
  CHECK(error_of([] {
          ek::Mlp<float> net({3, 16, 12, 2}, {.norm = ek::Norm::group});
        }) == "invalid_argument: GroupNorm: expected channels that 8 groups divide evenly, got 12");
  CHECK(error_of([] {
          ek::Mlp<float> net({3, 16, 8, 2}, {.norm = ek::Norm::group});
        }) ==
        "invalid_argument: GroupNorm: expected more than one value per group to take statistics of, got 1 from 8 "
        "channels x 1 positions in 8 groups; use fewer groups");
  const ek::Mlp<double> net({3, 16, 2}, {.norm = ek::Norm::group, .groups = 4, .seed = 1});
  net.visit(1, [](const auto& layer) {
    if constexpr (requires { layer.groups(); }) CHECK(layer.groups() == 4);
  });
  const ek::Mlp<float> same = net.cast<float>();
  const auto x = values::random<double>(5, 3, 1);
  CHECK(compare::difference(same.infer(x.cast<float>()), net.infer(x)) <= 1e-5);
}

TEST_CASE("Mlp's names are those of the layers that are there", "[mlp]") {
  using Names = std::vector<std::string>;
  const auto parameters_of = [](const ek::MlpOptions& options) {
    const ek::Mlp<float> net({3, 4, 2}, options);
    return names(net.parameters());
  };
  CHECK(parameters_of({}) == Names{"0.weight", "0.bias", "2.weight", "2.bias"});
  CHECK(parameters_of({.dropout = 0.5}) == Names{"0.weight", "0.bias", "3.weight", "3.bias"});
  CHECK(parameters_of({.norm = ek::Norm::layer}) ==
        Names{"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"});
  CHECK(parameters_of({.norm = ek::Norm::rms, .dropout = 0.5}) ==
        Names{"0.weight", "0.bias", "1.weight", "4.weight", "4.bias"});
  CHECK(parameters_of({.norm = ek::Norm::batch, .dropout = 0.5, .input_dropout = 0.5}) ==
        Names{"1.weight", "1.bias", "2.weight", "2.bias", "5.weight", "5.bias"});

  ek::Mlp<float> net({3, 4, 2}, {.norm = ek::Norm::batch, .input_dropout = 0.5});
  CHECK(names(net.buffers()) == Names{"2.running_mean", "2.running_var", "2.num_batches_tracked"});
}

TEST_CASE("Mlp's parameters say what decays: the linear weights alone", "[mlp]") {
  const ek::Norm norm = GENERATE(ek::Norm::batch, ek::Norm::layer, ek::Norm::rms);
  const ek::Mlp<float> net({3, 4, 1}, {.norm = norm});
  for (const auto& parameter : net.parameters()) {
    INFO(parameter.name);
    const bool of_norm = parameter.name[0] == '1';
    const bool bias = parameter.name.ends_with("bias");
    CHECK(parameter.kind == (of_norm ? bias ? ek::ParameterKind::norm_shift : ek::ParameterKind::norm_scale
                             : bias  ? ek::ParameterKind::bias
                                     : ek::ParameterKind::weight));
  }
}

TEST_CASE("Mlp checks its sizes and options", "[mlp]") {
  const auto make = [](const std::vector<ek::Index>& sizes, const ek::MlpOptions& options = {}) {
    return ek::Mlp<float>(sizes, options);
  };
  CHECK_THROWS_WITH(make({}), "Mlp: expected at least two sizes, input and output, got 0");
  CHECK_THROWS_WITH(make({5}), "Mlp: expected at least two sizes, input and output, got 1");
  CHECK_THROWS_WITH(make({5, 0, 2}), "Mlp: expected every size >= 1, got 0");
  CHECK_THROWS_WITH(make({-3, 2}), "Mlp: expected every size >= 1, got -3");
  CHECK_THROWS_WITH(make({5, 2}, {.dropout = 1.5}), "Mlp: expected dropout in [0, 1], got 1.5");
  CHECK_THROWS_WITH(make({5, 2}, {.dropout = std::nan("")}), "Mlp: expected dropout in [0, 1], got nan");
  CHECK_THROWS_WITH(make({5, 2}, {.input_dropout = -0.5}), "Mlp: expected input_dropout in [0, 1], got -0.5");
  CHECK_THROWS_AS(make({5}), std::invalid_argument);
  CHECK_NOTHROW(make({5, 4, 2}, {.dropout = 1, .input_dropout = 1}));
}

TEST_CASE("Mlp with all dropped gives the last bias", "[mlp]") {
  ek::Mlp<double> net({5, 4, 2}, {.dropout = 1, .seed = 1});
  auto parameters = net.parameters();
  parameters.back().value << 3, -4;
  const auto& y = net.forward(values::random<double>(3, 5, 1), ek::Mode::train);
  CHECK(y == Eigen::RowVector2d(3, -4).replicate(3, 1));
  CHECK(net.backward(values::random<double>(3, 2, 2)) == ek::Matrix<double>::Zero(3, 5));
}

TEST_CASE("Mlp starts as He et al. say, with biases of zero", "[mlp]") {
  const ek::Mlp<double> net({400, 300, 200, 2}, {.seed = 4});
  const auto weights = linear_weights(net);
  for (std::size_t k = 0; k < 2; ++k) {
    const auto& weight = weights[k];
    const auto n = static_cast<double>(weight.size());
    const double expected = std::sqrt(2.0 / static_cast<double>(weight.cols()));
    // Five deviations: of the mean expected / sqrt(n), of the deviation expected / sqrt(2 n).
    CHECK(std::abs(weight.mean()) < 5 * expected / std::sqrt(n));
    const double deviation = std::sqrt(weight.squaredNorm() / n);
    CHECK(std::abs(deviation - expected) < 5 * expected / std::sqrt(2 * n));
  }
  for (const auto& parameter : net.parameters())
    if (parameter.kind == ek::ParameterKind::bias) CHECK(parameter.value.isZero(0));
}

TEST_CASE("Mlp's layers start from different weights", "[mlp]") {
  const auto weights = linear_weights(ek::Mlp<float>({6, 6, 6, 6}));
  REQUIRE(weights.size() == 3);
  CHECK((weights[0].array() != weights[1].array()).all());
  CHECK((weights[1].array() != weights[2].array()).all());
  CHECK((weights[0].array() != weights[2].array()).all());
}

TEST_CASE("Mlp's start depends on the seed", "[mlp]") {
  const auto first = linear_weights(ek::Mlp<float>({6, 4, 2}, {.seed = 1}));
  const auto again = linear_weights(ek::Mlp<float>({6, 4, 2}, {.seed = 1}));
  const auto other = linear_weights(ek::Mlp<float>({6, 4, 2}, {.seed = 2}));
  CHECK(same_bits(first[0], again[0]));
  CHECK(same_bits(first[1], again[1]));
  CHECK((first[0].array() != other[0].array()).all());
}

TEST_CASE("Mlps that differ only in norm and dropout start from the same weights", "[mlp]") {
  const auto plain = linear_weights(ek::Mlp<float>({6, 5, 4, 2}, {.seed = 8}));
  for (const ek::Norm norm : {ek::Norm::none, ek::Norm::batch, ek::Norm::layer, ek::Norm::rms})
    for (const double p : {0.0, 0.5}) {
      const auto weights =
          linear_weights(ek::Mlp<float>({6, 5, 4, 2}, {.norm = norm, .dropout = p, .input_dropout = p / 2, .seed = 8}));
      REQUIRE(weights.size() == plain.size());
      for (std::size_t k = 0; k < plain.size(); ++k) CHECK(same_bits(weights[k], plain[k]));
    }
}

TEST_CASE("Linear layer k of an Mlp starts as one with the path linear.k", "[mlp]") {
  const ek::Mlp<float> net({6, 5, 2}, {.norm = ek::Norm::rms, .init = ek::Init::uniform, .seed = 8});
  const ek::Linear<float> alone(5, 2, {.init = ek::Init::uniform, .seed = 8, .path = "linear.1"});
  const auto parameters = net.parameters();
  REQUIRE(parameters.size() == 5);
  CHECK(same_bits(parameters[3].value, alone.parameters()[0].value));
  CHECK(same_bits(parameters[4].value, alone.parameters()[1].value));
}

TEST_CASE("Mlp's Dropouts differ in their masks and follow its seed", "[mlp]") {
  const auto dropouts = [](std::uint64_t seed) {
    ek::Mlp<float> net({32, 32, 32, 2}, {.dropout = 0.5, .seed = seed});
    std::vector<ek::Matrix<float>> masks;
    for (ek::Index i = 0; i < net.layer_count(); ++i)
      net.visit(i, [&](auto& layer) {
        if (ek::name_of(layer) == "Dropout")
          masks.emplace_back(layer.forward(ek::Matrix<float>::Ones(32, 32), ek::Mode::train));
      });
    return masks;
  };
  const auto masks = dropouts(0);
  const auto other = dropouts(1);
  REQUIRE(masks.size() == 2);
  const auto agreeing = [](const auto& a, const auto& b) { return (a.array() == b.array()).count(); };
  CHECK(std::abs(agreeing(masks[0], masks[1]) - 512) < 6 * 16);  // 1024 coins: six deviations
  CHECK(std::abs(agreeing(masks[0], other[0]) - 512) < 6 * 16);
  CHECK(agreeing(masks[0], dropouts(0)[0]) == 1024);
}

TEST_CASE("Mlp equals the layers it is made of, run by hand", "[mlp]") {
  ek::Mlp<double> net({5, 6, 3}, {.norm = ek::Norm::batch, .dropout = 0.3, .input_dropout = 0.2, .seed = 3});
  const auto x = values::random<double>(8, 5, 1);
  const auto dy = values::random<double>(8, 3, 2);
  ek::Mlp<double> by_hand = net;

  ek::Matrix<double> activation = x;
  for (ek::Index i = 0; i < by_hand.layer_count(); ++i)
    by_hand.visit(i, [&](auto& layer) { activation = layer.forward(activation, ek::Mode::train); });
  ek::Matrix<double> gradient = dy;
  for (ek::Index i = by_hand.layer_count() - 1; i >= 0; --i)
    by_hand.visit(i, [&](auto& layer) { gradient = layer.backward(gradient); });

  CHECK(same_bits(net.forward(x, ek::Mode::train), activation));
  CHECK(same_bits(net.backward(dy), gradient));
  CHECK(compare::same_gradients(net, by_hand));
  CHECK(compare::same_buffers(net, by_hand));
}

TEST_CASE("Copies, moved networks and casts of an Mlp go on from the same state", "[mlp]") {
  ek::Mlp<double> net({5, 6, 3}, {.norm = ek::Norm::batch, .dropout = 0.3, .seed = 3});
  const auto x = values::random<double>(8, 5, 1);
  const auto dy = values::random<double>(8, 3, 2);
  const auto step = [&](ek::Mlp<double>& mlp) {
    mlp.forward(x, ek::Mode::train);
    mlp.backward(dy);
    for (auto& parameter : mlp.parameters()) parameter.value -= 0.1 * parameter.gradient;
  };
  step(net);
  ek::Mlp<double> copy = net;
  ek::Mlp<double> source = net;
  ek::Mlp<double> moved = std::move(source);
  ek::Mlp<float> narrow = net.cast<float>();
  CHECK(narrow.input_features() == 5);
  CHECK(narrow.layer_count() == net.layer_count());

  const ek::Matrix<float> y_narrow = narrow.forward(x.cast<float>(), ek::Mode::train);
  step(net);
  // Float's rounding through two products and a norm of values near one; another mask would change whole elements.
  CHECK((y_narrow.cast<double>() - moved.forward(x, ek::Mode::train)).cwiseAbs().maxCoeff() < 1e-5);
  CHECK_FALSE(compare::same_values(net, copy));
  step(copy);
  CHECK(compare::same_values(net, copy));
  CHECK(compare::same_buffers(net, copy));
}

TEST_CASE("The gradients of a whole Mlp are the slopes of its output", "[mlp]") {
  const ek::Norm norm = GENERATE(ek::Norm::none, ek::Norm::batch, ek::Norm::layer, ek::Norm::rms);
  const double input_dropout = GENERATE(0.0, 0.2);
  ek::Mlp<double> net({4, 7, 6, 3}, {.norm = norm, .dropout = 0.3, .input_dropout = input_dropout, .seed = 6});
  for (auto& parameter : net.parameters())  // away from where they start: zero shifts put ReLUs on their kink
    parameter.value += 0.2 * values::random<double>(parameter.value.rows(), parameter.value.cols(), 3);
  ek::Matrix<double> x = values::random<double>(6, 4, 11);
  const auto dy = values::random<double>(6, 3, 2);

  net.forward(x, ek::Mode::train);
  const ek::Matrix<double> dx = net.backward(dy);
  std::vector<ek::Matrix<double>> gradients;
  for (const auto& parameter : net.parameters()) gradients.emplace_back(parameter.gradient);

  // Central differences of sum(dy * y) under the same masks. With h = 1e-5 their truncation and rounding are both
  // below 1e-9 for terms of size one; a kink within h of an activation would show as an error of size one.
  const auto objective = [&] {
    net.replay(0);
    return net.forward(x, ek::Mode::train).cwiseProduct(dy).sum();
  };
  const auto slope = [&](double& number) {
    const double h = 1e-5;
    const double kept = number;
    number = kept + h;
    const double above = objective();
    number = kept - h;
    const double below = objective();
    number = kept;
    return (above - below) / (2 * h);
  };
  double largest = 0;
  for (ek::Index i = 0; i < x.rows(); ++i)
    for (ek::Index j = 0; j < x.cols(); ++j) largest = std::max(largest, std::abs(slope(x(i, j)) - dx(i, j)));
  CHECK(largest < 1e-7);
  auto parameters = net.parameters();
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    INFO(parameters[k].name);
    largest = 0;
    for (ek::Index i = 0; i < parameters[k].value.rows(); ++i)
      for (ek::Index j = 0; j < parameters[k].value.cols(); ++j)
        largest = std::max(largest, std::abs(slope(parameters[k].value(i, j)) - gradients[k](i, j)));
    CHECK(largest < 1e-7);
  }
}

TEST_CASE("A layer of an Mlp is had by its number and type", "[mlp]") {
  ek::Mlp<float> net({3, 8, 2}, {.norm = ek::Norm::batch});
  net.layer<ek::Linear<float>>(0).parameters()[0].value.setConstant(7);
  const ek::Mlp<float>& same = net;
  CHECK(same.layer<ek::Linear<float>>(0).parameters()[0].value(0, 0) == 7);
  CHECK(same.layer<ek::BatchNorm<float>>(1).output_features(8) == 8);
  CHECK_THROWS_WITH(net.layer<ek::Linear<float>>(1), "Mlp::layer: expected layer 1 to be a Linear, got a BatchNorm");
  CHECK_THROWS_WITH(net.layer<ek::Linear<float>>(4), "Mlp::layer: expected a number in [0, 4), got 4");
  CHECK_THROWS_WITH(net.layer<ek::Linear<float>>(-1), "Mlp::layer: expected a number in [0, 4), got -1");
}
