// The Layer concept: who meets it, who does not, and that meeting it is enough to stand in a network.

#include "evenkeel/network/layer.hpp"

#include <cmath>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/core/error.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "network/own_layers.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using compare::same_bits;

static_assert(ek::Layer<ek::Dropout<float>> && ek::Layer<ek::Dropout<double>> && ek::Layer<ek::Dropout<long double>>);
static_assert(ek::Layer<ek::AlphaDropout<float>> && ek::Layer<ek::SpatialDropout<double>>);
static_assert(ek::Layer<ek::BatchNorm<float>> && ek::Layer<ek::BatchNorm<double, 5>>);
static_assert(ek::Layer<ek::LayerNorm<float>> && ek::Layer<ek::LayerNorm<double, 5>>);
static_assert(ek::Layer<ek::RMSNorm<float>> && ek::Layer<ek::RMSNorm<double, 5>>);
static_assert(ek::Layer<ek::Linear<float>> && ek::Layer<ek::Linear<double, 5, 3>>);
static_assert(ek::Layer<ek::ReLU<float>> && ek::Layer<ek::LeakyReLU<float>> && ek::Layer<ek::GELU<float>>);
static_assert(ek::Layer<ek::SiLU<float>> && ek::Layer<ek::Tanh<float>> && ek::Layer<ek::Sigmoid<float>>);
static_assert(ek::Layer<ek::Mlp<float>> && ek::Layer<ek::Sequential<ek::ReLU<float>, ek::Dropout<float>>>);
static_assert(ek::Layer<own::AddOneInTraining<float>> && ek::Layer<own::Twice<double>>);
static_assert(ek::Layer<ek::Sequential<own::Twice<double>, own::AddOneInTraining<double>>>);

static_assert(!ek::Layer<int> && !ek::Layer<ek::Matrix<float>>);

namespace {

/// Meets the concept; those below lack one thing each.
struct Complete {
  using Scalar = float;
  template <class X, class Y>
  void forward(const X&, Y&&, ek::Mode) {}
  template <class X, class DY, class DX>
  void backward(const X&, const DY&, DX&&) {}
  template <class X, class Y>
  void infer(const X&, Y&&, ek::Workspace<float>&) const {}
  ek::Index output_features(ek::Index features) const { return features; }
};
struct NoScalar {
  template <class X, class Y>
  void forward(const X&, Y&&, ek::Mode) {}
  template <class X, class DY, class DX>
  void backward(const X&, const DY&, DX&&) {}
  template <class X, class Y>
  void infer(const X&, Y&&, ek::Workspace<float>&) const {}
  ek::Index output_features(ek::Index features) const { return features; }
};
struct NoInfer {
  using Scalar = float;
  template <class X, class Y>
  void forward(const X&, Y&&, ek::Mode) {}
  template <class X, class DY, class DX>
  void backward(const X&, const DY&, DX&&) {}
  ek::Index output_features(ek::Index features) const { return features; }
};
struct NoBackward {
  using Scalar = float;
  template <class X, class Y>
  void forward(const X&, Y&&, ek::Mode) {}
  template <class X, class Y>
  void infer(const X&, Y&&, ek::Workspace<float>&) const {}
  ek::Index output_features(ek::Index features) const { return features; }
};
struct NoOutputFeatures : Complete {
  ek::Index output_features(ek::Index) const = delete;
};
struct InferThatChangesTheLayer : Complete {
  template <class X, class Y>
  void infer(const X&, Y&&, ek::Workspace<float>&) {}
};
struct ForwardWithoutMode : Complete {
  template <class X, class Y>
  void forward(const X&, Y&&) {}
};
struct NotCopyable : Complete {
  NotCopyable() = default;
  NotCopyable(const NotCopyable&) = delete;
  NotCopyable& operator=(const NotCopyable&) = delete;
};

static_assert(ek::Layer<Complete>);
static_assert(!ek::Layer<NoScalar>);
static_assert(!ek::Layer<NoInfer>);
static_assert(!ek::Layer<NoBackward>);
static_assert(!ek::Layer<NoOutputFeatures>);
static_assert(!ek::Layer<InferThatChangesTheLayer>);
static_assert(!ek::Layer<ForwardWithoutMode>);
static_assert(!ek::Layer<NotCopyable>);

}  // namespace

TEST_CASE("A layer of the user's own, deriving from nothing, works in a network", "[layer]") {
  ek::Sequential net{own::AddOneInTraining<double>(), own::Twice<double>()};
  const ek::Matrix<double> x = (ek::Matrix<double>(2, 2) << 1, 2, 3, 4).finished();

  CHECK(net.forward(x, ek::Mode::eval) == (ek::Matrix<double>(2, 4) << 0.5, 1, -2, -4, 1.5, 2, -6, -8).finished());
  CHECK(net.infer(x) == net.forward(x, ek::Mode::eval));
  CHECK(net.forward(x, ek::Mode::train) == (ek::Matrix<double>(2, 4) << 1, 1.5, -4, -6, 2, 2.5, -8, -10).finished());

  const ek::Matrix<double> dy = (ek::Matrix<double>(2, 4) << 1, 0, 0, 1, 2, 0, 0, 0).finished();
  CHECK(net.backward(dy) == (ek::Matrix<double>(2, 2) << 0.5, -2, 1, 0).finished());
  // The second layer was given x + 1: 2 * 1 + 4 * 2 and 3 * 1.
  CHECK(net.layer<1>().gradients == Eigen::RowVector2d(10, 3));
}

TEST_CASE("A user's layer between others is given input and output that lie apart", "[layer]") {
  // Twice cannot work in place: it writes the left half before it has read x for the right one.
  ek::Sequential net{ek::Linear<double>(5, 3, {.seed = 1}), own::Twice<double>(), own::Twice<double>(),
                     own::Twice<double>(), ek::Linear<double>(24, 2, {.seed = 2})};
  const auto x = values::random<double>(6, 5, 1);
  ek::Matrix<double> activation = net.layer<0>().infer(x);
  for (int i = 0; i < 3; ++i) {
    ek::Matrix<double> twice(6, 2 * activation.cols());
    twice << 0.5 * activation, -2 * activation;
    activation = twice;
  }
  const ek::Matrix<double> expected = net.layer<4>().infer(activation);
  CHECK(same_bits(net.infer(x), expected));
  CHECK(same_bits(net.forward(x, ek::Mode::train), expected));
}

TEST_CASE("The parameters of a layer of the user's own are the network's", "[layer]") {
  ek::Sequential net{own::AddOneInTraining<float>(), own::Twice<float>(), ek::Linear<float>(4, 1)};
  auto parameters = net.parameters();
  REQUIRE(parameters.size() == 3);
  CHECK(parameters[0].name == "1.factors");
  CHECK(parameters[1].name == "2.weight");
  parameters[0].value(0, 1) = 7;
  CHECK(net.layer<1>().factors(1) == 7);
  CHECK(std::as_const(net).parameters()[0].value(0, 1) == 7);
}

TEST_CASE("The gradients of a user's layer add up where the network is told to accumulate", "[layer]") {
  ek::Sequential net{own::Twice<double>(), ek::Linear<double>(6, 2, {.seed = 1})};
  const auto x = values::random<double>(4, 3, 1);
  const auto dy = values::random<double>(4, 2, 2);
  net.forward(x, ek::Mode::train);
  net.backward(dy);
  const Eigen::RowVector2d once = net.layer<0>().gradients;
  const ek::Matrix<double> weight_once = net.layer<1>().parameters()[0].gradient;
  net.backward(dy, ek::Accumulate::yes);
  CHECK(net.layer<0>().gradients == 2 * once);
  CHECK(net.layer<1>().parameters()[0].gradient == 2 * weight_once);
  net.backward(dy);
  CHECK(net.layer<0>().gradients == once);
}

namespace {

/// Has a parameter, but a backward that knows no accumulation.
struct OverwritesOnly : own::Twice<double> {
  static constexpr const char* name = "OverwritesOnly";
  template <class X, class DY, class DX>
  void backward(const X& x, const DY& dy, DX&& dx) {
    own::Twice<double>::backward(x, dy, dx);
  }
};

}  // namespace

TEST_CASE("A user's layer that cannot accumulate its gradients is named when it should", "[layer]") {
  ek::Sequential net{OverwritesOnly(), ek::Linear<double>(6, 2, {.seed = 1})};
  const auto x = values::random<double>(4, 3, 1);
  const auto dy = values::random<double>(4, 2, 2);
  net.forward(x, ek::Mode::train);
  net.backward(dy);
  auto before = net;
  CHECK_THROWS_AS(net.backward(dy, ek::Accumulate::yes), ek::UsageError);
  CHECK_THROWS_WITH(net.backward(dy, ek::Accumulate::yes),
                    "Sequential::backward: expected layer 0 (OverwritesOnly) to take Accumulate::yes, got one without "
                    "backward(x, dy, dx, accumulate)");
  CHECK(compare::same_gradients(net, before));
}

TEST_CASE("Nothing is written where a layer within a network within the network cannot accumulate", "[layer]") {
  auto net = ek::sequential(ek::sequential(OverwritesOnly(), ek::Linear<double>(6, 2)), ek::Linear<double>(2, 2));
  const auto x = values::random<double>(4, 3, 1);
  const auto dy = values::random<double>(4, 2, 2);
  net.forward(x, ek::Mode::train);
  net.backward(dy);
  auto before = net;
  CHECK_THROWS_AS(net.backward(dy, ek::Accumulate::yes), ek::UsageError);
  CHECK(compare::same_gradients(net, before));
}

TEST_CASE("A layer without parameters need not know about accumulation", "[layer]") {
  ek::Sequential net{ek::Linear<double>(3, 2, {.seed = 1}), own::AddOneInTraining<double>()};
  const auto x = values::random<double>(4, 3, 1);
  const auto dy = values::random<double>(4, 2, 2);
  net.forward(x, ek::Mode::train);
  net.backward(dy);
  const ek::Matrix<double> once = net.parameters()[0].gradient;
  net.backward(dy, ek::Accumulate::yes);
  CHECK(net.parameters()[0].gradient == 2 * once);
}

TEST_CASE("A user's layer is told its place in the outermost network", "[layer]") {
  std::string path;
  const auto inner = ek::sequential(ek::ReLU<float>(), own::NotesPath<float>(path));
  CHECK(path == "1");
  const auto outer = ek::sequential(ek::ReLU<float>(), ek::ReLU<float>(), inner);
  CHECK(path == "2.1");
}

TEST_CASE("A layer without a name is called layer in messages", "[layer]") {
  CHECK(ek::name_of(own::AddOneInTraining<float>()) == "layer");
  CHECK(ek::name_of(own::Twice<float>()) == "Twice");
  CHECK(ek::name_of(ek::RMSNorm<float>(2)) == "RMSNorm");
  CHECK(ek::name_of(ek::GELU<float>()) == "GELU");
}
