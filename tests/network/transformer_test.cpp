// Causal self-attention and the blocks of a Transformer.

#include "evenkeel/network/transformer.hpp"

#include <cmath>   // exp, sqrt
#include <limits>  // quiet_NaN, infinity
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/layers/attention.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/network/sequential.hpp"
#include "figures/layer_figures.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
using compare::same_bits;
using ek::Index;
using reference::Number;
using reference::Numbers;

namespace {

constexpr Index features = 8, heads = 2, hidden = 12, positions = 5, sequences = 3, batch = sequences * positions;

/// The equation by loops, with dropout on the weights where a mask is given.
Numbers attention(const ek::CausalSelfAttention<double>& layer, const Numbers& x, const reference::Mask* mask) {
  const auto parameters = layer.parameters();
  const auto get = [&](int i) { return reference::exact(parameters[static_cast<std::size_t>(i)].value); };
  const Numbers qkv = reference::linear(x, get(0), get(1));
  const Index size = features / heads;
  Numbers mixed = Numbers::Zero(x.rows(), features);
  for (Index token = 0; token < x.rows(); ++token)
    for (Index head = 0; head < heads; ++head) {
      const Index sequence = token / positions, query = token % positions;
      std::vector<Number> weights;
      Number sum = 0;
      for (Index key = 0; key <= query; ++key) {
        Number logit = 0;
        for (Index j = head * size; j < (head + 1) * size; ++j)
          logit += qkv(token, j) * qkv(sequence * positions + key, features + j);
        weights.push_back(std::exp(logit / std::sqrt(static_cast<Number>(size))));
        sum += weights.back();
      }
      for (Index key = 0; key <= query; ++key) {
        Number weight = weights[static_cast<std::size_t>(key)] / sum;
        if (mask != nullptr)
          weight *= mask->kept((sequence * heads + head) * positions + query, key) ? mask->scale() : 0;
        for (Index j = head * size; j < (head + 1) * size; ++j)
          mixed(token, j) += weight * qkv(sequence * positions + key, 2 * features + j);
      }
    }
  return reference::linear(mixed, get(2), get(3));
}

}  // namespace

TEMPLATE_TEST_CASE("TransformerBlock gives PyTorch's output and gradients", "[transformer]", double, float) {
  struct Case {
    const char* name;
    ek::NormPlace norm;
    ek::TransformerActivation activation;
  };
  const Case cases[] = {
      {"before_relu", ek::NormPlace::before, ek::TransformerActivation::relu},
      {"after_relu", ek::NormPlace::after, ek::TransformerActivation::relu},
      {"before_gelu", ek::NormPlace::before, ek::TransformerActivation::gelu},
  };
  for (const auto& [name, norm, activation] : cases) {
    INFO(name);
    ek::TransformerBlock<TestType> block(features, heads, hidden, positions, {.norm = norm, .activation = activation});
    // Some products one behind another.
    const double tolerance = 32 * compare::epsilon<TestType>;
    figures::check_layer(block, figures::Figures("transformer").part(name), tolerance, ek::Mode::eval);
  }
}

TEST_CASE("Attention is its equation, and its masks are those of its weights' rows and columns", "[transformer]") {
  ek::CausalSelfAttention<double> layer(features, heads, positions, {.dropout = 0.4, .seed = 9});
  std::uint32_t seed = 50;
  for (auto& parameter : layer.parameters())
    parameter.value = values::random<double>(parameter.value.rows(), parameter.value.cols(), ++seed);
  const auto x = values::random<double>(batch, features, 1);
  CHECK(compare::difference(layer.infer(x), attention(layer, reference::exact(x), nullptr)) <= 1e-14);
  for (const std::uint32_t call : {0u, 1u}) {
    const reference::Mask mask{.p = 0.4, .seed = 9, .call = call};
    CHECK(compare::difference(layer.forward(x, ek::Mode::train), attention(layer, reference::exact(x), &mask)) <=
          1e-14);
  }
  layer.replay(0);
  layer.set_stream("3.self_attn");
  const reference::Mask mask{.p = 0.4, .seed = 9, .stream = ek::stream_of("3.self_attn")};
  CHECK(compare::difference(layer.forward(x, ek::Mode::train), attention(layer, reference::exact(x), &mask)) <= 1e-14);
}

TEST_CASE("Attention and Transformer blocks pass the gradient check with masks on", "[transformer]") {
  constexpr Index tokens = 3, size = 4, inner = 5;
  const auto passes = [](const auto& layer) {
    const auto report =
        ek::check_gradients(layer, values::random<double>(2 * tokens, size, 7), ek::Mode::train, {.tolerance = 1e-8});
    INFO(report);
    CHECK(report);
  };
  passes(ek::CausalSelfAttention<double>(size, heads, tokens, {.dropout = 0.3, .seed = 1}));
  passes(ek::TransformerBlock<double>(size, heads, inner, tokens,
                                      {.activation = ek::TransformerActivation::gelu, .dropout = 0.3, .seed = 1}));
  passes(ek::TransformerBlock<double, ek::RMSNorm<double>>(size, heads, inner, tokens,
                                                           {.norm = ek::NormPlace::after, .dropout = 0.3, .seed = 1}));
}

TEST_CASE("A token sees neither later ones nor other sequences, to the bit", "[transformer]") {
  const auto norm = GENERATE(ek::NormPlace::before, ek::NormPlace::after);
  const ek::TransformerBlock<float> block(features, heads, hidden, positions, {.norm = norm, .seed = 3});
  const auto x = values::random<float>(batch, features, 1);
  const auto y = block.infer(x);
  const Index token = 7;  // the third of the second sequence
  auto changed = x;
  changed(token, 3) += 1;
  const auto other = block.infer(changed);
  for (Index row = 0; row < batch; ++row)
    CHECK(same_bits(y.row(row), other.row(row)) == !(row >= token && row < 2 * positions));
}

TEST_CASE("What is not a number reaches no token that does not see it", "[transformer]") {
  ek::CausalSelfAttention<double> layer(features, heads, positions, {.seed = 3});
  const auto x = values::random<double>(batch, features, 1), dy = values::random<double>(batch, features, 2);
  const Index token = 7, end = 2 * positions;  // the third of the second sequence
  const auto finite = [](const auto& row) { return row.allFinite(); };
  const ek::Matrix<double> y = layer.forward(x, ek::Mode::train), dx = layer.backward(dy);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto changed = x;
    changed.row(token).setConstant(bad);
    const auto other = layer.infer(changed);
    for (Index row = 0; row < batch; ++row) {
      if (row >= token && row < end)
        CHECK_FALSE(finite(other.row(row)));
      else
        CHECK(compare::difference(other.row(row), y.row(row)) <= 1e-14);
    }
    // Back, a token's gradient goes to those that it sees.
    auto slope = dy;
    slope.row(token).setConstant(bad);
    const ek::Matrix<double> back = layer.backward(slope);
    for (Index row = 0; row < batch; ++row) {
      if (row >= positions && row <= token)
        CHECK_FALSE(finite(back.row(row)));
      else
        CHECK(compare::difference(back.row(row), dx.row(row)) <= 1e-14);
    }
  }
}

TEST_CASE("Transformer blocks say what they cannot be made of", "[transformer]") {
  CHECK(error_of([] { ek::TransformerBlock<float>(6, 2, 0, 4); }) ==
        "invalid_argument: TransformerBlock: expected hidden >= 1, got 0");
  CHECK(error_of([] { ek::FeedForward<float>(6, 0); }) == "invalid_argument: FeedForward: expected hidden >= 1, got 0");
}

TEST_CASE("Large logits do not overflow", "[transformer]") {
  ek::CausalSelfAttention<float> layer(features, heads, positions);
  const ek::Matrix<float> x = values::random<float>(positions, features, 1) * 1e6f;
  CHECK(layer.forward(x, ek::Mode::train).allFinite());
  CHECK(layer.backward(x).allFinite());
}

TEST_CASE("Blocks stand in a network, by PyTorch's names", "[transformer]") {
  const ek::TransformerBlockOptions options{.dropout = 0.2, .seed = 1};
  const ek::TransformerBlock<float> block(features, heads, hidden, positions, options);
  std::string names;
  for (const auto& parameter : block.parameters()) names += parameter.name + " ";
  CHECK(names ==
        "self_attn.in_proj_weight self_attn.in_proj_bias self_attn.out_proj.weight self_attn.out_proj.bias "
        "linear1.weight linear1.bias linear2.weight linear2.bias norm1.weight norm1.bias norm2.weight norm2.bias ");
  CHECK(block.parameters()[0].value.rows() == 3 * features);

  ek::Sequential net{ek::Linear<float>(3, features), block, ek::LayerNorm<float>(features)};
  CHECK(net.parameters()[2].name == "1.self_attn.in_proj_weight");
  const auto x = values::random<float>(batch, 3, 1), dy = values::random<float>(batch, features, 2);
  const ek::Matrix<float> y = net.forward(x, ek::Mode::train);
  net.backward(dy);
  std::vector<ek::Matrix<float>> once;
  for (const auto& parameter : net.parameters()) once.emplace_back(parameter.gradient);
  net.backward(dy, ek::Accumulate::yes);
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(same_bits(net.parameters()[i].gradient, once[i] * 2.0f));

  CHECK_FALSE(same_bits(net.forward(x, ek::Mode::train), y));  // other masks
  net.replay(0);
  CHECK(same_bits(net.forward(x, ek::Mode::train), y));
  CHECK(same_bits(net.infer(x), net.forward(x, ek::Mode::eval)));
  const auto wide = net.cast<double>();
  CHECK(compare::difference(net.infer(x), wide.infer(x.cast<double>())) <= 64 * compare::epsilon<float>);
}

TEST_CASE("A block starts as PyTorch does, each part from a stream of its own", "[transformer]") {
  const ek::CausalSelfAttention<double> layer(64, 4, 2, {.seed = 1});
  const auto parameters = layer.parameters();
  const auto largest = [&](std::size_t i) { return parameters[i].value.cwiseAbs().maxCoeff(); };
  CHECK(largest(0) <= std::sqrt(6.0 / 256));
  CHECK(largest(0) > 0.99 * std::sqrt(6.0 / 256));
  CHECK(largest(2) <= 0.125);
  CHECK(largest(2) > 0.99 * 0.125);
  CHECK(largest(1) == 0);
  CHECK(largest(3) == 0);
  ek::RandomStream random(1, ek::stream_of("in_proj_weight"));
  CHECK(parameters[0].value(0, 0) == std::sqrt(6.0 / 256) * (2 * random.uniform() - 1));
  const ek::CausalSelfAttention<double> other(64, 4, 2, {.bias = false, .seed = 1, .path = "a"});
  CHECK(other.parameters().size() == 2);
  CHECK_FALSE(same_bits(other.parameters()[0].value, parameters[0].value));
}

TEST_CASE("Attention says what does not fit", "[transformer]") {
  using Layer = ek::CausalSelfAttention<float>;
  CHECK(error_of([] { Layer(8, 3, 5); }) ==
        "invalid_argument: CausalSelfAttention: expected features to be a multiple of the 3 heads, got 8");
  CHECK(error_of([] { Layer(8, 0, 5); }) == "invalid_argument: CausalSelfAttention: expected heads >= 1, got 0");
  CHECK(error_of([] { Layer(8, 2, 0); }) == "invalid_argument: CausalSelfAttention: expected positions >= 1, got 0");
  CHECK(error_of([] { Layer(0, 1, 1); }) == "invalid_argument: CausalSelfAttention: expected features >= 1, got 0");
  CHECK(error_of([] { Layer(8, 2, 5, {.dropout = -1}); }) ==
        "invalid_argument: CausalSelfAttention: expected dropout in [0, 1], got -1");
  const auto forward = [](Index rows, Index columns) {
    return error_of([&] { Layer(8, 2, 5).forward(ek::Matrix<float>::Zero(rows, columns), ek::Mode::train); });
  };
  CHECK(forward(10, 7) == "ShapeError: CausalSelfAttention::forward: expected input of shape (batch, 8), got (10, 7)");
  CHECK(forward(12, 8) ==
        "ShapeError: CausalSelfAttention::forward: expected input of shape (batch, 8), batch being a multiple of the 5 "
        "positions of a sequence, got (12, 8)");
  CHECK(forward(0, 8) == "");
  ek::Sequential net{ek::ReLU<float>(), ek::TransformerBlock<float>(8, 2, 4, 5)};
  CHECK(error_of([&] {
          net.infer(ek::Matrix<float>::Zero(4, 8));
        }).find("ShapeError: CausalSelfAttention::infer (layer 1.self_attn): ") == 0);
}
