// The laws that hold for every layer, over one table of them all.

#include <algorithm>  // max
#include <cmath>      // isnan
#include <cstdint>    // uint32_t
#include <limits>
#include <map>
#include <string>
#include <utility>  // pair, move
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/residual.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "layers/any_layer.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;

namespace laws {

using State = std::map<std::string, Numbers>;

namespace {

/// The layer with parameters in (1/2, 5/2), or, for weights and shifts, in (-2, 2).
template <typename Scalar, class Layer>
AnyLayer<Scalar> with_parameters(Layer layer) {
  if constexpr (requires { layer.parameters(); }) {
    std::uint32_t seed = 100;
    for (auto& parameter : layer.parameters()) {
      const auto [rows, columns] = std::pair(parameter.value.rows(), parameter.value.cols());
      if (parameter.kind == ek::ParameterKind::norm_scale)
        parameter.value = values::positive<Scalar>(rows, columns, ++seed);
      else
        parameter.value = values::random<Scalar>(rows, columns, ++seed);
    }
  }
  return AnyLayer<Scalar>(std::move(layer));
}

/// A parameter of the state, or what an absent one stands for.
Numbers get(const State& state, const std::string& name, Index columns, long double absent) {
  const auto found = state.find(name);
  return found == state.end() ? Numbers::Constant(1, columns, absent) : found->second;
}

template <typename Scalar>
Member<Scalar> dropout_member(const std::string& name, double p) {
  return {name,
          19,
          AnyLayer<Scalar>(ek::Dropout<Scalar>(p, {.seed = 11})),
          true,
          "",
          [p](const State&, const Numbers& x, ek::Mode mode) {
            return mode.draws_masks() ? reference::dropout(x, {.p = p, .seed = 11}) : x;
          }};
}

/// The input that layers of channels ask for.
std::string channel_input(Index channels, Index positions) {
  const std::string shape = "(batch, " + std::to_string(channels * positions) + ")";
  if (positions == 1) return shape;
  return shape + " for " + std::to_string(channels) + " channels x " + std::to_string(positions) + " positions";
}

template <typename Scalar>
Member<Scalar> alpha_dropout_member(const std::string& name, double p) {
  return {name,
          19,
          AnyLayer<Scalar>(ek::AlphaDropout<Scalar>(p, {.seed = 11})),
          true,
          "",
          [p](const State&, const Numbers& x, ek::Mode mode) {
            return mode.draws_masks() ? reference::alpha_dropout(x, {.p = p, .seed = 11}) : x;
          }};
}

template <typename Scalar>
Member<Scalar> spatial_dropout_member(const std::string& name, double p, Index channels, Index positions) {
  const std::string width = std::to_string(channels * positions);
  return {name,
          channels * positions,
          AnyLayer<Scalar>(ek::SpatialDropout<Scalar>(p, channels, positions, {.seed = 11})),
          true,
          "(batch, " + width + ") for " + std::to_string(channels) + " channels x " + std::to_string(positions) +
              " positions",
          [p, positions](const State&, const Numbers& x, ek::Mode mode) {
            return mode.draws_masks() ? reference::spatial_dropout(x, positions, {.p = p, .seed = 11}) : x;
          }};
}

template <typename Scalar>
Member<Scalar> batch_norm_member(const std::string& name, Index channels, Index positions,
                                 ek::BatchNormOptions options = {}) {
  ek::BatchNorm<Scalar> layer(channels, positions, options);
  if (options.track_running_statistics)
    layer.set_running_statistics(values::random<Scalar>(1, channels, 7), values::positive<Scalar>(1, channels, 8));
  return {name,
          channels * positions,
          with_parameters<Scalar>(layer),
          false,
          channel_input(channels, positions),
          [channels, positions, options](const State& state, const Numbers& x, ek::Mode mode) {
            const bool batch = mode.statistics() == ek::Statistics::batch || !options.track_running_statistics;
            const auto statistics = reference::channel_statistics(x, positions);
            return reference::batch_norm(x, positions, batch ? statistics.mean : state.at("running_mean"),
                                         batch ? statistics.biased : state.at("running_var"),
                                         get(state, "weight", channels, 1), get(state, "bias", channels, 0),
                                         static_cast<long double>(options.epsilon));
          }};
}

template <typename Scalar>
Member<Scalar> layer_norm_member(const std::string& name, ek::LayerNormOptions options = {}) {
  return {name,
          21,
          with_parameters<Scalar>(ek::LayerNorm<Scalar>(21, options)),
          true,
          "(batch, 21)",
          [options](const State& state, const Numbers& x, ek::Mode) {
            return reference::layer_norm(x, get(state, "weight", 21, 1), get(state, "bias", 21, 0),
                                         static_cast<long double>(options.epsilon));
          }};
}

template <typename Scalar>
Member<Scalar> rms_norm_member(const std::string& name, ek::RMSNormOptions options = {}) {
  return {name,
          21,
          with_parameters<Scalar>(ek::RMSNorm<Scalar>(21, options)),
          true,
          "(batch, 21)",
          [options](const State& state, const Numbers& x, ek::Mode) {
            Numbers gain = get(state, "weight", 21, 1);
            if (options.unit_offset) gain.array() += 1;
            return reference::rms_norm(x, gain, static_cast<long double>(options.epsilon));
          }};
}

template <typename Scalar>
Member<Scalar> group_norm_member(const std::string& name, Index groups, Index channels, Index positions,
                                 ek::GroupNormOptions options = {}) {
  return {name,
          channels * positions,
          with_parameters<Scalar>(ek::GroupNorm<Scalar>(groups, channels, positions, options)),
          true,
          channel_input(channels, positions),
          [=](const State& state, const Numbers& x, ek::Mode) {
            return reference::group_norm(x, groups, positions, get(state, "weight", channels, 1),
                                         get(state, "bias", channels, 0), static_cast<long double>(options.epsilon));
          }};
}

template <typename Scalar>
Member<Scalar> instance_norm_member(const std::string& name, Index channels, Index positions,
                                    ek::InstanceNormOptions options = {}) {
  ek::InstanceNorm<Scalar> layer(channels, positions, options);
  if (options.track_running_statistics)
    layer.set_running_statistics(values::random<Scalar>(1, channels, 7), values::positive<Scalar>(1, channels, 8));
  return {name,
          channels * positions,
          with_parameters<Scalar>(layer),
          true,
          channel_input(channels, positions),
          [=](const State& state, const Numbers& x, ek::Mode mode) {
            const Numbers weight = get(state, "weight", channels, 1), bias = get(state, "bias", channels, 0);
            const auto epsilon = static_cast<long double>(options.epsilon);
            if (options.track_running_statistics && mode.statistics() != ek::Statistics::batch)
              return reference::batch_norm(x, positions, state.at("running_mean"), state.at("running_var"), weight,
                                           bias, epsilon);
            return reference::group_norm(x, channels, positions, weight, bias, epsilon);
          }};
}

template <typename Scalar>
Member<Scalar> linear_member(const std::string& name, Index in, Index out, bool bias) {
  return {name,
          in,
          with_parameters<Scalar>(ek::Linear<Scalar>(in, out, {.bias = bias})),
          true,
          "(batch, " + std::to_string(in) + ")",
          [out](const State& state, const Numbers& x, ek::Mode) {
            return reference::linear(x, state.at("weight"), get(state, "bias", out, 0));
          }};
}

template <typename Scalar, class Layer, class Function>
Member<Scalar> activation_member(const std::string& name, Layer layer, Function function) {
  return {
      name, 9,  AnyLayer<Scalar>(layer),
      true, "", [function](const State&, const Numbers& x, ek::Mode) {
            return reference::elementwise(x, function); }};
}

/// Around tanh, with dropout: x + drop(tanh(norm(x))) or norm(x + drop(tanh(x))).
template <typename Scalar, class Norm, class Equation>
Member<Scalar> residual_member(const std::string& name, ek::NormPlace place, const Norm& norm, Equation norm_equation) {
  constexpr std::uint32_t stream = 0x2738A690;  // 32-bit FNV-1a of "dropout"
  return {name,
          21,
          with_parameters<Scalar>(
              ek::Residual<Norm, ek::Tanh<Scalar>>(norm, {}, {.norm = place, .dropout = 0.3, .seed = 11})),
          true,
          "(batch, 21)",
          [=](const State& state, const Numbers& x, ek::Mode mode) -> Numbers {
            const Numbers weight = state.at("norm.weight"), bias = get(state, "norm.bias", 21, 0);
            const bool before = place == ek::NormPlace::before;
            Numbers branch = reference::elementwise(before ? norm_equation(x, weight, bias) : x, reference::tanh);
            if (mode.draws_masks()) branch = reference::dropout(branch, {.p = 0.3, .seed = 11, .stream = stream});
            return before ? Numbers(x + branch) : norm_equation(x + branch, weight, bias);
          }};
}

}  // namespace

template <typename Scalar>
std::vector<Member<Scalar>> members() {
  const auto layer_norm = [](const Numbers& x, const Numbers& weight, const Numbers& bias) {
    return reference::layer_norm(x, weight, bias, static_cast<long double>(1e-5));
  };
  const auto rms_norm = [](const Numbers& x, const Numbers& weight, const Numbers&) {
    return reference::rms_norm(x, weight, static_cast<long double>(1e-5));
  };
  const auto leaky = [](long double x) { return reference::leaky_relu(x, static_cast<long double>(Scalar(0.2))); };
  return {
      dropout_member<Scalar>("Dropout(0.3)", 0.3),
      dropout_member<Scalar>("Dropout(0)", 0),
      alpha_dropout_member<Scalar>("AlphaDropout(0.3)", 0.3),
      spatial_dropout_member<Scalar>("SpatialDropout(0.3, 5, 3)", 0.3, 5, 3),
      batch_norm_member<Scalar>("BatchNorm(6)", 6, 1),
      batch_norm_member<Scalar>("BatchNorm(3, 4)", 3, 4),
      batch_norm_member<Scalar>("BatchNorm(6), epsilon 1/2", 6, 1, {.epsilon = 0.5}),
      batch_norm_member<Scalar>("BatchNorm(6), not affine", 6, 1, {.affine = false}),
      batch_norm_member<Scalar>("BatchNorm(6), not tracking", 6, 1, {.track_running_statistics = false}),
      batch_norm_member<Scalar>("BatchNorm(3, 4), not tracking", 3, 4, {.track_running_statistics = false}),
      layer_norm_member<Scalar>("LayerNorm"),
      layer_norm_member<Scalar>("LayerNorm, epsilon 1/2", {.epsilon = 0.5}),
      layer_norm_member<Scalar>("LayerNorm without bias", {.bias = false}),
      layer_norm_member<Scalar>("LayerNorm without weight", {.weight = false}),
      layer_norm_member<Scalar>("LayerNorm without both", {.weight = false, .bias = false}),
      rms_norm_member<Scalar>("RMSNorm"),
      rms_norm_member<Scalar>("RMSNorm, epsilon 1/2", {.epsilon = 0.5}),
      rms_norm_member<Scalar>("RMSNorm without weight", {.weight = false}),
      rms_norm_member<Scalar>("RMSNorm with unit offset", {.unit_offset = true}),
      group_norm_member<Scalar>("GroupNorm(3, 6)", 3, 6, 1),
      group_norm_member<Scalar>("GroupNorm(2, 4, 5)", 2, 4, 5),
      group_norm_member<Scalar>("GroupNorm(2, 4, 30), epsilon 1/2", 2, 4, 30, {.epsilon = 0.5}),
      group_norm_member<Scalar>("GroupNorm(1, 3, 2), not affine", 1, 3, 2, {.affine = false}),
      instance_norm_member<Scalar>("InstanceNorm(3, 5)", 3, 5),
      instance_norm_member<Scalar>("InstanceNorm(2, 30), affine", 2, 30, {.affine = true}),
      instance_norm_member<Scalar>("InstanceNorm(3, 4), tracking", 3, 4,
                                   {.affine = true, .track_running_statistics = true}),
      residual_member<Scalar>("Residual, LayerNorm before", ek::NormPlace::before, ek::LayerNorm<Scalar>(21),
                              layer_norm),
      residual_member<Scalar>("Residual, RMSNorm after", ek::NormPlace::after, ek::RMSNorm<Scalar>(21), rms_norm),
      linear_member<Scalar>("Linear(7, 4)", 7, 4, true),
      linear_member<Scalar>("Linear(4, 7) without bias", 4, 7, false),
      linear_member<Scalar>("Linear(5, 5)", 5, 5, true),
      activation_member<Scalar>("ReLU", ek::ReLU<Scalar>(), reference::relu),
      activation_member<Scalar>("LeakyReLU(0.2)", ek::LeakyReLU<Scalar>(0.2), leaky),
      activation_member<Scalar>("GELU", ek::GELU<Scalar>(), reference::gelu),
      activation_member<Scalar>("GELU(tanh)", ek::GELU<Scalar>(ek::GeluForm::tanh), reference::gelu_tanh),
      activation_member<Scalar>("SiLU", ek::SiLU<Scalar>(), reference::silu),
      activation_member<Scalar>("Tanh", ek::Tanh<Scalar>(), reference::tanh),
      activation_member<Scalar>("Sigmoid", ek::Sigmoid<Scalar>(), reference::sigmoid),
  };
}
template std::vector<Member<float>> members();
template std::vector<Member<double>> members();

namespace {

constexpr Index batch = 7;

/// What a forward and a backward give.
template <typename Scalar>
struct Results {
  ek::Matrix<Scalar> y, dx;
  std::vector<ek::Matrix<Scalar>> gradients;

  friend bool operator==(const Results& a, const Results& b) {
    if (a.gradients.size() != b.gradients.size()) return false;
    for (std::size_t i = 0; i < a.gradients.size(); ++i)
      if (!compare::same_bits(a.gradients[i], b.gradients[i])) return false;
    return compare::same_bits(a.y, b.y) && compare::same_bits(a.dx, b.dx);
  }
};

/// One member, an input and an output gradient that fit it.
template <typename Scalar>
struct Trial {
  AnyLayer<Scalar> layer;
  ek::Matrix<Scalar> x, dy;

  explicit Trial(const Member<Scalar>& member, Index rows = batch, std::uint32_t seed = 1)
      : layer{member.layer},
        x{values::random<Scalar>(rows, member.features, seed)},
        dy{values::random<Scalar>(rows, layer.output_features(member.features), seed + 1000)} {}

  ek::Matrix<Scalar> output() const { return ek::Matrix<Scalar>::Constant(dy.rows(), dy.cols(), Scalar(99)); }
  ek::Matrix<Scalar> input_gradient() const { return ek::Matrix<Scalar>::Constant(x.rows(), x.cols(), Scalar(99)); }

  /// By the primitive pair.
  Results<Scalar> run(ek::Mode mode = ek::Mode::train) {
    Results<Scalar> results{output(), input_gradient(), {}};
    layer.forward(x, results.y, mode);
    layer.backward(x, dy, results.dx);
    results.gradients = layer.gradients();
    return results;
  }
};

struct NamedMode {
  const char* name;
  ek::Mode mode;
};

/// Whether it is one of the layers that drop at random.
template <typename Scalar>
bool drops(const AnyLayer<Scalar>& layer) {
  return layer.name().find("Dropout") != std::string::npos;
}

/// The modes that a member can run in.
template <typename Scalar>
std::vector<NamedMode> modes_of(const Member<Scalar>& member) {
  std::vector<NamedMode> modes = {{"train", ek::Mode::train},
                                  {"train_prepared", ek::Mode::train_prepared},
                                  {"eval", ek::Mode::eval},
                                  {"monte_carlo", ek::Mode::monte_carlo}};
  if (member.name.find("not tracking") == std::string::npos)
    modes.push_back({"frozen_statistics", ek::Mode::frozen_statistics});
  return modes;
}

}  // namespace

TEMPLATE_TEST_CASE("Every layer's output is its equation's, in every mode", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>())
    for (const NamedMode& named : modes_of(member)) {
      const ek::Mode mode = named.mode;
      INFO(member.name << " in mode " << named.name);
      Trial<TestType> trial(member);
      const Numbers expected = member.equation(trial.layer.state(), reference::exact(trial.x), mode);
      // A few roundings an element, also of the numbers that a row or column is normalized with.
      CHECK(compare::difference(trial.layer.forward(trial.x, mode), expected) <= 8 * compare::epsilon<TestType>);
    }
}

TEMPLATE_TEST_CASE("Every layer's gradients are its equation's slopes, in every mode", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>())
    for (const NamedMode& named : modes_of(member)) {
      const ek::Mode mode = named.mode;
      Trial<TestType> trial(member);
      auto state = trial.layer.state();
      Numbers x = reference::exact(trial.x);
      const Numbers dy = reference::exact(trial.dy);
      // The slope of sum(dy y) at one number by a central difference. In long double a step of 2^-20 leaves an error of
      // 1e-12.
      const auto slope = [&](long double& number) {
        constexpr long double step = 0x1p-20L;
        const long double middle = number;
        number = middle + step;
        const long double above = member.equation(state, x, mode).cwiseProduct(dy).sum();
        number = middle - step;
        const long double below = member.equation(state, x, mode).cwiseProduct(dy).sum();
        number = middle;
        return (above - below) / (2 * step);
      };
      const auto slopes = [&](Numbers& numbers) {
        Numbers result(numbers.rows(), numbers.cols());
        for (Index i = 0; i < numbers.rows(); ++i)
          for (Index j = 0; j < numbers.cols(); ++j) result(i, j) = slope(numbers(i, j));
        return result;
      };
      const double tolerance = std::max(64 * compare::epsilon<TestType>, 1e-10);

      INFO(member.name << " in mode " << named.name);
      const auto results = trial.run(mode);
      CHECK(compare::difference(results.dx, slopes(x)) <= tolerance);
      for (const auto& parameter : trial.layer.parameters()) {
        INFO("gradient of " << parameter.name);
        CHECK(compare::difference(parameter.gradient, slopes(state[parameter.name])) <= tolerance);
      }
    }
}

TEMPLATE_TEST_CASE("backward overwrites gradients, repeated gives the same, and Accumulate::yes doubles them",
                   "[every_layer]", double, float) {
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    Trial<TestType> trial(member);
    for (auto& parameter : trial.layer.parameters()) parameter.gradient.setConstant(TestType(123));
    const auto once = trial.run();

    auto dx = trial.input_gradient();
    trial.layer.backward(trial.x, trial.dy, dx);
    CHECK((Results<TestType>{once.y, dx, trial.layer.gradients()} == once));

    trial.layer.backward(trial.x, trial.dy, dx, ek::Accumulate::yes);
    auto twice = once.gradients;
    for (auto& gradient : twice) gradient *= 2;
    CHECK((Results<TestType>{once.y, dx, trial.layer.gradients()} == Results<TestType>{once.y, once.dx, twice}));

    trial.layer.backward_parameters(trial.x, trial.dy);
    CHECK((Results<TestType>{once.y, dx, trial.layer.gradients()} == once));
    trial.layer.backward_parameters(trial.x, trial.dy, ek::Accumulate::yes);
    CHECK((Results<TestType>{once.y, dx, trial.layer.gradients()} == Results<TestType>{once.y, once.dx, twice}));
  }
}

TEMPLATE_TEST_CASE("Every layer's stand-alone pair gives what the primitive pair gives", "[every_layer]", double,
                   float) {
  for (const auto& member : members<TestType>())
    for (const NamedMode& named : modes_of(member)) {
      const ek::Mode mode = named.mode;
      INFO(member.name << " in mode " << named.name);
      Trial<TestType> trial(member);
      const auto primitive = trial.run(mode);

      auto layer = member.layer;
      auto x = trial.x;
      const auto y = layer.forward(x, mode);
      x.setConstant(TestType(99));  // the layer has a copy
      const auto dx = layer.backward(trial.dy);
      CHECK((Results<TestType>{y, dx, layer.gradients()} == primitive));

      const auto repeated = layer.backward(trial.dy, ek::Accumulate::yes);
      CHECK(compare::same_bits(repeated, primitive.dx));
      for (std::size_t i = 0; i < primitive.gradients.size(); ++i)
        CHECK(compare::same_bits(layer.gradients()[i], primitive.gradients[i] * TestType(2)));
    }
}

TEMPLATE_TEST_CASE("Every layer can be fed what it returned", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>()) {
    Trial<TestType> trial(member);
    if (trial.layer.output_features(member.features) != member.features) continue;
    INFO(member.name);
    auto other = member.layer;
    ek::Matrix<TestType> y = other.forward(trial.x, ek::Mode::train);
    y = other.forward(y, ek::Mode::train);
    ek::Matrix<TestType> dx = other.backward(trial.dy);
    dx = other.backward(dx);

    CHECK(compare::same_bits(trial.layer.forward(trial.layer.forward(trial.x, ek::Mode::train), ek::Mode::train), y));
    CHECK(compare::same_bits(trial.layer.backward(trial.layer.backward(trial.dy)), dx));
  }
}

TEMPLATE_TEST_CASE("Every layer works in place: y may be x, and dx may be dy or x", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>())
    for (const NamedMode& named : modes_of(member)) {
      const ek::Mode mode = named.mode;
      INFO(member.name << " in mode " << named.name);
      Trial<TestType> trial(member);
      const auto apart = trial.run(mode);

      auto layer = member.layer;
      auto dx = trial.x;
      auto y = apart.y;
      layer.forward(dx, y, mode);
      layer.backward(dx, trial.dy, dx);  // dx is x
      CHECK((Results<TestType>{y, dx, layer.gradients()} == apart));

      if (trial.layer.output_features(member.features) != member.features) continue;
      layer = member.layer;
      layer.forward(trial.x, y, mode);
      dx = trial.dy;
      layer.backward(trial.x, dx, dx);  // dx is dy
      CHECK((Results<TestType>{y, dx, layer.gradients()} == apart));

      layer = member.layer;
      y = trial.x;
      layer.forward(y, y, mode);  // y is x
      dx = trial.dy;
      layer.backward(y, dx, dx);
      CHECK((Results<TestType>{y, dx, layer.gradients()} == apart));

      for (auto& parameter : layer.parameters()) parameter.gradient.setConstant(TestType(9));
      layer.backward_parameters(y, trial.dy);
      CHECK((Results<TestType>{y, dx, layer.gradients()} == apart));

      dx = layer.backward(trial.dy);  // forward in place has kept what a stand-alone backward needs
      CHECK((Results<TestType>{y, dx, layer.gradients()} == apart));

      y = trial.x;
      ek::Workspace<TestType> workspace;
      layer.infer(y, y, workspace);
      CHECK(compare::same_bits(y, layer.infer(trial.x)));
    }
}

TEMPLATE_TEST_CASE("infer gives what forward gives in eval, and a pending backward does not notice it", "[every_layer]",
                   double, float) {
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    Trial<TestType> trial(member);
    auto other = member.layer;
    const auto expected = other.forward(trial.x, ek::Mode::eval);
    CHECK(compare::same_bits(trial.layer.infer(trial.x), expected));
    auto y = trial.output();
    ek::Workspace<TestType> workspace;
    trial.layer.infer(trial.x, y, workspace);
    CHECK(compare::same_bits(y, expected));

    other = member.layer;
    const auto undisturbed = trial.run();
    y = other.forward(trial.x, ek::Mode::train);
    const auto state = other.state();
    const Trial<TestType> another(member, batch + 4, 50);
    auto more = another.output();
    other.infer(another.x, more, workspace);
    other.infer(another.x);
    CHECK(other.state() == state);
    const auto dx = other.backward(trial.dy);
    CHECK((Results<TestType>{y, dx, other.gradients()} == undisturbed));
  }
}

TEMPLATE_TEST_CASE("A copy of a layer shares nothing with it", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    Trial<TestType> trial(member);
    const auto expected = trial.run();
    const auto expected_infer = trial.layer.infer(trial.x);

    auto layer = member.layer;
    const auto y = layer.forward(trial.x, ek::Mode::train);
    auto copy = layer;
    CHECK(compare::same_bits(copy.backward(trial.dy), expected.dx));  // a copy can go on where the first one stood
    const Trial<TestType> another(member, batch, 60);
    for (auto& parameter : copy.parameters()) parameter.value.array() += TestType(1);
    copy.forward(another.x, ek::Mode::train);
    copy.backward(another.dy);

    const auto dx = layer.backward(trial.dy);
    CHECK((Results<TestType>{y, dx, layer.gradients()} == expected));
    CHECK(compare::same_bits(layer.infer(trial.x), expected_infer));
    if (!layer.parameters().empty()) CHECK_FALSE(compare::same_bits(copy.infer(trial.x), expected_infer));
  }
}

TEMPLATE_TEST_CASE("backward before any forward is an error in every layer", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    Trial<TestType> trial(member);
    auto& [layer, x, dy] = trial;
    auto dx = trial.input_gradient();
    layer.infer(x);  // is no forward to go back from
    const std::string place = "UsageError: " + layer.name() + "::";
    const std::string text = ": expected a forward call before it, got none";
    const auto run = [&](auto call) { return error_of([&] { call(trial); }); };
    CHECK(run([&](auto& t) { t.layer.backward(t.x, t.dy, dx); }) == place + "backward" + text);
    CHECK(run([](auto& t) { t.layer.backward(t.dy); }) == place + "backward" + text);
    CHECK(run([](auto& t) { t.layer.backward_parameters(t.x, t.dy); }) == place + "backward_parameters" + text);
    CHECK(compare::same_bits(dx, trial.input_gradient()));
  }
}

TEMPLATE_TEST_CASE("backward(dy) after forward(x, y, mode) is an error where the input is needed", "[every_layer]",
                   double, float) {
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    Trial<TestType> trial(member);
    const auto expected = trial.run();
    if (drops(trial.layer)) {
      CHECK(compare::same_bits(trial.layer.backward(trial.dy), expected.dx));
    } else {
      CHECK(error_of([&] { trial.layer.backward(trial.dy); }) ==
            "UsageError: " + trial.layer.name() +
                "::backward: expected backward(x, dy, dx) after forward(x, y, mode), which keeps no copy of its input, "
                "got backward(dy)");
      auto dx = trial.input_gradient();
      trial.layer.backward(trial.x, trial.dy, dx);
      CHECK((Results<TestType>{expected.y, dx, trial.layer.gradients()} == expected));
    }
  }
}

TEMPLATE_TEST_CASE("A wrong shape is an error that names it and leaves the layer as it was", "[every_layer]", double,
                   float) {
  using Matrix = ek::Matrix<TestType>;
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    Trial<TestType> trial(member);
    const auto expected = trial.run();
    auto layer = member.layer;
    auto y = trial.output();
    layer.forward(trial.x, y, ek::Mode::train);
    const auto state = layer.state();

    const auto in = trial.x.cols();
    const auto out = trial.dy.cols();
    const auto shape = [](Index rows, Index columns) {
      return "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")";
    };
    const Matrix wide = Matrix::Zero(batch, in + 1);
    Matrix tall_y(batch + 1, out), wide_y(batch, out + 1), tall_dx(batch + 1, in), wide_dx(batch, in + 1);
    Matrix dx = trial.input_gradient();
    ek::Workspace<TestType> workspace;
    const std::string place = "ShapeError: " + layer.name() + "::";

    if (!member.input.empty()) {
      const std::string text = ": expected input of shape " + member.input + ", got " + shape(batch, in + 1);
      CHECK(error_of([&] { layer.forward(wide, ek::Mode::train); }) == place + "forward" + text);
      CHECK(error_of([&] { layer.forward(wide, y, ek::Mode::eval); }) == place + "forward" + text);
      CHECK(error_of([&] { layer.infer(wide); }) == place + "infer" + text);
      CHECK(error_of([&] { layer.infer(wide, y, workspace); }) == place + "infer" + text);
    }
    const auto check = [&](const std::string& function, const std::string& what, Index rows, Index columns,
                           const Matrix& wrong, auto call) {
      CHECK(error_of(call) == place + function + ": expected " + what + " of shape " + shape(rows, columns) + ", got " +
                                  shape(wrong.rows(), wrong.cols()));
    };
    const Matrix& x = trial.x;
    const Matrix& dy = trial.dy;
    const Matrix tall_x = Matrix::Zero(batch + 1, in);
    const Matrix tall_dy = Matrix::Zero(batch + 1, out);
    const Matrix wide_dy = Matrix::Zero(batch, out + 1);
    check("forward", "output", batch, out, tall_y, [&] { layer.forward(x, tall_y, ek::Mode::train); });
    check("forward", "output", batch, out, wide_y, [&] { layer.forward(x, wide_y, ek::Mode::train); });
    check("infer", "output", batch, out, tall_y, [&] { layer.infer(x, tall_y, workspace); });
    check("infer", "output", batch, out, wide_y, [&] { layer.infer(x, wide_y, workspace); });
    check("backward", "the forward's input", batch, in, tall_x, [&] { layer.backward(tall_x, dy, dx); });
    check("backward", "the forward's input", batch, in, wide, [&] { layer.backward(wide, dy, dx); });
    check("backward", "output gradient", batch, out, tall_dy, [&] { layer.backward(x, tall_dy, dx); });
    check("backward", "output gradient", batch, out, wide_dy, [&] { layer.backward(x, wide_dy, dx); });
    check("backward", "output gradient", batch, out, wide_dy, [&] { layer.backward(wide_dy); });
    check("backward", "input gradient", batch, in, tall_dx, [&] { layer.backward(x, dy, tall_dx); });
    check("backward", "input gradient", batch, in, wide_dx, [&] { layer.backward(x, dy, wide_dx); });
    check("backward_parameters", "the forward's input", batch, in, tall_x,
          [&] { layer.backward_parameters(tall_x, dy); });
    check("backward_parameters", "output gradient", batch, out, wide_dy,
          [&] { layer.backward_parameters(x, wide_dy); });

    CHECK(layer.state() == state);
    layer.backward(x, dy, dx);
    CHECK((Results<TestType>{y, dx, layer.gradients()} == expected));

    // The same where the layer has the copy of the input that the next backward needs.
    layer = member.layer;
    layer.forward(x, ek::Mode::train);
    (void)error_of([&] { layer.forward(wide, ek::Mode::train); });
    if (!member.input.empty()) CHECK((Results<TestType>{y, layer.backward(dy), layer.gradients()} == expected));
  }
}

TEST_CASE("MODE-2: a backward goes with the last forward, whatever the mode of that before it", "[every_layer]") {
  for (const auto& member : members<float>())
    for (const NamedMode& before : modes_of(member))
      for (const NamedMode& named : modes_of(member)) {
        INFO(member.name << " in mode " << named.name << " after " << before.name);
        Trial<float> trial(member, batch, 70);
        trial.layer.forward(Trial<float>(member, batch, 80).x, before.mode);
        trial.layer.backward(trial.dy);

        // By way of another type a layer takes its next mask along; one that has run nothing has no mask to forget.
        auto fresh = named.mode.draws_masks() ? trial.layer.cast().cast() : member.layer;
        auto state = trial.layer.state();
        for (auto& buffer : fresh.buffers())
          if (!buffer.count) buffer.value = state[buffer.name].template cast<float>();
        const ek::Matrix<float> y = fresh.forward(trial.x, named.mode), dx = fresh.backward(trial.dy);
        CHECK((trial.run(named.mode) == Results<float>{y, dx, fresh.gradients()}));
      }
}

TEMPLATE_TEST_CASE("Only train moves a layer's state, and no mode moves parameters", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>())
    for (const NamedMode& named : modes_of(member)) {
      const ek::Mode mode = named.mode;
      INFO(member.name << " in mode " << named.name);
      Trial<TestType> trial(member);
      const auto before = trial.layer.state();
      trial.run(mode);
      auto after = trial.layer.state();

      const bool tracks = before.count("running_mean") != 0 && mode.updates_running_statistics();
      if (tracks) {
        CHECK(after["num_batches_tracked"](0, 0) == 1);
        CHECK((after["running_mean"].array() != before.at("running_mean").array()).all());
        CHECK((after["running_var"].array() != before.at("running_var").array()).all());
        for (const char* moved : {"num_batches_tracked", "running_mean", "running_var"})
          after[moved] = before.at(moved);
      }
      if (drops(trial.layer) && mode.draws_masks()) {
        CHECK(after["calls"](0, 0) == 1);
        after["calls"] = before.at("calls");
      }
      CHECK(after == before);
    }
}

TEMPLATE_TEST_CASE("A row alone gives the bits that it gives in a batch", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>()) {
    if (member.name.find("not tracking") != std::string::npos) continue;  // its eval is the batch's affair
    INFO(member.name);
    const Trial<TestType> trial(member, 40);
    const auto together = trial.layer.infer(trial.x);
    for (Index row = 0; row < trial.x.rows(); ++row) {
      const ek::Matrix<TestType> alone = trial.layer.infer(trial.x.row(row));
      if (trial.layer.name() == "Linear")  // its sums may run in another order
        CHECK(compare::difference(alone, together.row(row)) <= 8 * compare::epsilon<TestType>);
      else
        CHECK(compare::same_bits(alone, together.row(row)));
    }
  }
}

TEMPLATE_TEST_CASE("An empty batch gives an empty output and zero gradients", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>())
    for (const NamedMode& named : modes_of(member)) {
      const ek::Mode mode = named.mode;
      INFO(member.name << " in mode " << named.name);
      Trial<TestType> trial(member, 0);
      for (auto& parameter : trial.layer.parameters()) parameter.gradient.setConstant(TestType(9));
      const bool needs_values =
          trial.layer.name() == "BatchNorm" &&
          (mode.statistics() == ek::Statistics::batch || member.name.find("not tracking") != std::string::npos);
      if (needs_values) {
        CHECK(error_of([&] { trial.run(mode); }) ==
              "ShapeError: BatchNorm::forward: expected more than one value per channel to take statistics of, got 0 "
              "from input of shape (0, " +
                  std::to_string(member.features) +
                  "); use a larger batch (drop an incomplete last one), running statistics (Mode::eval, "
                  "Mode::frozen_statistics), or LayerNorm");
        continue;
      }
      const auto results = trial.run(mode);
      CHECK(results.y.rows() == 0);
      for (const auto& gradient : results.gradients) CHECK((gradient.array() == 0).all());
      CHECK(trial.layer.infer(trial.x).rows() == 0);
      CHECK(trial.layer.forward(trial.x, mode).rows() == 0);
      CHECK(trial.layer.backward(trial.dy).rows() == 0);
    }
}

TEMPLATE_TEST_CASE("A change of the batch size and back changes nothing else", "[every_layer]", double, float) {
  for (const auto& member : members<TestType>()) {
    INFO(member.name);
    auto layer = member.layer;
    std::uint32_t call = 0;
    for (const Index size : {16, 5, 16, 7, 1000, 5, 16}) {
      const Trial<TestType> trial(member, size, 300 + call);
      auto fresh = member.layer;  // sees this size only, from the state that `layer` is in
      auto state = layer.state();
      for (auto& buffer : fresh.buffers())
        if (!buffer.count) buffer.value = state[buffer.name].template cast<TestType>();
      for (std::uint32_t i = 0; i < call; ++i) fresh.forward(trial.x, ek::Mode::monte_carlo);
      ++call;

      const auto expected_y = fresh.forward(trial.x, ek::Mode::train);
      const auto expected_dx = fresh.backward(trial.dy);
      CHECK(compare::same_bits(layer.forward(trial.x, ek::Mode::train), expected_y));
      CHECK(compare::same_bits(layer.backward(trial.dy), expected_dx));
      for (std::size_t i = 0; i < layer.gradients().size(); ++i)
        CHECK(compare::same_bits(layer.gradients()[i], fresh.gradients()[i]));
    }
  }
}

TEST_CASE("cast gives the same layer in another scalar type, state included", "[every_layer]") {
  for (const auto& member : members<float>()) {
    INFO(member.name);
    Trial<float> trial(member);
    trial.run();
    auto cast = trial.layer.cast();
    CHECK(cast.state() == trial.layer.state());
    const Numbers x = reference::exact(trial.x);
    CHECK(compare::difference(cast.infer(trial.x.cast<double>()), trial.layer.infer(trial.x).cast<double>()) <=
          8 * compare::epsilon<float>);
    CHECK(cast.cast().state() == trial.layer.state());

    // The next mask is the same too.
    const ek::Matrix<float> y = trial.layer.forward(trial.x, ek::Mode::train);
    CHECK(compare::difference(cast.forward(trial.x.cast<double>(), ek::Mode::train), y) <= 8 * compare::epsilon<float>);
  }
}

TEST_CASE("NAN-2: a NaN reaches what depends on it and nothing else, for every width and place", "[every_layer]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (Index size = 1; size <= 33; ++size) {
    const std::vector<std::pair<std::string, AnyLayer<float>>> row_layers = {
        {"row", AnyLayer<float>(ek::LayerNorm<float>(size))},
        {"row", AnyLayer<float>(ek::RMSNorm<float>(size))},
        {"row", AnyLayer<float>(ek::Linear<float>(size, 3, {.seed = 5}))},
        {"column", AnyLayer<float>(ek::BatchNorm<float>(size))},
        {"element", AnyLayer<float>(ek::Dropout<float>(0.0))},
        {"element", AnyLayer<float>(ek::AlphaDropout<float>(0.0))},
        {"element", AnyLayer<float>(ek::SpatialDropout<float>(0.0, size, 1))},
        {"element", AnyLayer<float>(ek::ReLU<float>())},
        {"element", AnyLayer<float>(ek::LeakyReLU<float>())},
        {"element", AnyLayer<float>(ek::GELU<float>())},
        {"element", AnyLayer<float>(ek::GELU<float>(ek::GeluForm::tanh))},
        {"element", AnyLayer<float>(ek::SiLU<float>())},
        {"element", AnyLayer<float>(ek::Tanh<float>())},
        {"element", AnyLayer<float>(ek::Sigmoid<float>())},
    };
    for (const auto& [spoilt, prototype] : row_layers) {
      bool as_expected = true;
      for (Index place = 0; place < size; ++place) {
        auto layer = prototype;
        ek::Matrix<float> x = values::random<float>(3, size, static_cast<std::uint32_t>(size));
        x(1, place) = nan;
        const ek::Matrix<float> y = layer.forward(x, ek::Mode::train);
        for (Index i = 0; i < y.rows(); ++i)
          for (Index j = 0; j < y.cols(); ++j) {
            const bool reached = spoilt == "row" ? i == 1 : spoilt == "column" ? j == place : i == 1 && j == place;
            if (std::isnan(y(i, j)) != reached) as_expected = false;
          }
      }
      INFO(prototype.name() << " of " << size);
      CHECK(as_expected);
    }
  }
}

TEST_CASE("NAN-2: a NaN reaches its group or channel and nothing else, for every number of positions and place",
          "[every_layer]") {
  struct Case {
    AnyLayer<float> layer;
    Index together;  // columns whose statistics are one
    bool of_batch;   // for all rows
  };
  for (Index positions = 1; positions <= 33; ++positions) {
    std::vector<Case> cases = {{AnyLayer<float>(ek::GroupNorm<float>(2, 4, positions)), 2 * positions, false},
                               {AnyLayer<float>(ek::BatchNorm<float>(4, positions)), positions, true}};
    if (positions > 1) cases.push_back({AnyLayer<float>(ek::InstanceNorm<float>(4, positions)), positions, false});
    for (const auto& [prototype, together, of_batch] : cases) {
      bool as_expected = true;
      for (Index place = 0; place < 4 * positions; ++place) {
        auto layer = prototype;
        ek::Matrix<float> x = values::random<float>(3, 4 * positions, static_cast<std::uint32_t>(positions));
        x(1, place) = std::numeric_limits<float>::quiet_NaN();
        const ek::Matrix<float>& y = layer.forward(x, ek::Mode::train);
        for (Index i = 0; i < y.rows(); ++i)
          for (Index j = 0; j < y.cols(); ++j)
            if (std::isnan(y(i, j)) != ((of_batch || i == 1) && j / together == place / together)) as_expected = false;
      }
      INFO(prototype.name() << " of " << positions << " positions");
      CHECK(as_expected);
    }
  }
}

TEST_CASE("NAN-2: a NaN in a long column reaches that column only, for every batch size", "[every_layer]") {
  for (Index rows = 2; rows <= 33; ++rows) {
    bool as_expected = true;
    for (Index place = 0; place < rows; ++place) {
      ek::BatchNorm<float> layer(3);
      ek::Matrix<float> x = values::random<float>(rows, 3, static_cast<std::uint32_t>(rows));
      x(place, 1) = std::numeric_limits<float>::quiet_NaN();
      const ek::Matrix<float>& y = layer.forward(x, ek::Mode::train);
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < 3; ++j)
          if (std::isnan(y(i, j)) != (j == 1)) as_expected = false;
    }
    INFO(rows << " rows");
    CHECK(as_expected);
  }
}

}  // namespace laws
