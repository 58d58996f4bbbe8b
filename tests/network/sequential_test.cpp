// Sequential: composition at compile time, names, nesting, copies, and what does not fit.

#include "evenkeel/network/sequential.hpp"

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/core/error.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "network/own_layers.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using compare::same_bits;

namespace {

template <class Views>
std::vector<std::string> names(const Views& views) {
  std::vector<std::string> result;
  for (const auto& view : views) result.push_back(view.name);
  return result;
}

auto small_net() {
  return ek::Sequential{ek::Linear<double>(4, 6, {.seed = 1}), ek::BatchNorm<double>(6), ek::Tanh<double>(),
                        ek::Dropout<double>(0.4, {.seed = 5}), ek::Linear<double>(6, 3, {.seed = 2})};
}
using SmallNet = decltype(small_net());

/// One training step of gradient descent.
template <class Network>
void train_one_step(Network& net, const ek::Matrix<double>& x, const ek::Matrix<double>& dy) {
  net.forward(x, ek::Mode::train);
  net.backward(dy);
  for (auto& parameter : net.parameters()) parameter.value -= 0.1 * parameter.gradient;
}

/// Takes any number of features and gives one.
struct ToOne : own::AddOneInTraining<float> {
  ek::Index output_features(ek::Index) const { return 1; }
};

const ek::Matrix<double> x = values::random<double>(7, 4, 1);
const ek::Matrix<double> dy = values::random<double>(7, 3, 2);

}  // namespace

TEST_CASE("Sequential gives access to its layers", "[sequential]") {
  auto net = small_net();
  CHECK(net.layer_count() == 5);
  CHECK(net.input_features() == 4);
  CHECK(net.output_features(4) == 3);
  CHECK(net.layer<0>().output_features(4) == 6);
  CHECK(std::as_const(net).layer<3>().p() == 0.4);
  net.layer<0>().parameters()[0].value.setZero();
  CHECK(net.parameters()[0].value == ek::Matrix<double>::Zero(6, 4));
}

TEST_CASE("Sequential names parameters and buffers as torch.nn.Sequential does", "[sequential]") {
  auto net = small_net();
  const std::vector<std::string> expected = {"0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"};
  CHECK(names(net.parameters()) == expected);
  CHECK(names(std::as_const(net).parameters()) == expected);
  CHECK(names(net.buffers()) == std::vector<std::string>{"1.running_mean", "1.running_var", "1.num_batches_tracked"});
  CHECK(net.buffers()[2].count != nullptr);
  CHECK(net.buffers()[0].value.size() == 6);
}

TEST_CASE("The names in a nested network are paths", "[sequential]") {
  auto net = ek::sequential(ek::ReLU<float>(), ek::Tanh<float>(),
                            ek::sequential(ek::ReLU<float>(), ek::Linear<float>(4, 4), ek::BatchNorm<float>(4)),
                            ek::sequential(ek::sequential(ek::Linear<float>(4, 2, {.bias = false}))));
  CHECK(names(net.parameters()) ==
        std::vector<std::string>{"2.1.weight", "2.1.bias", "2.2.weight", "2.2.bias", "3.0.0.weight"});
  CHECK(names(net.buffers()) ==
        std::vector<std::string>{"2.2.running_mean", "2.2.running_var", "2.2.num_batches_tracked"});
}

TEST_CASE("Sequential around one network is a copy of it, sequential() contains it", "[sequential]") {
  const auto inner = small_net();
  ek::Sequential copy{inner};
  auto nested = ek::sequential(inner);
  static_assert(std::is_same_v<decltype(copy), SmallNet>);
  static_assert(std::is_same_v<decltype(nested), ek::Sequential<SmallNet>>);
  CHECK(copy.parameters()[0].name == "0.weight");
  CHECK(nested.parameters()[0].name == "0.0.weight");
  CHECK(same_bits(copy.infer(x), nested.infer(x)));
}

TEST_CASE("A nested network computes what the same layers in a row do, apart from the masks", "[sequential]") {
  ek::Sequential flat{ek::Linear<double>(4, 6, {.seed = 1}), ek::BatchNorm<double>(6), ek::Tanh<double>(),
                      ek::Linear<double>(6, 3, {.seed = 2})};
  ek::Sequential nested{ek::Linear<double>(4, 6, {.seed = 1}),
                        ek::sequential(ek::BatchNorm<double>(6), ek::sequential(ek::Tanh<double>())),
                        ek::Linear<double>(6, 3, {.seed = 2})};
  CHECK(same_bits(flat.forward(x, ek::Mode::train), nested.forward(x, ek::Mode::train)));
  CHECK(same_bits(flat.backward(dy), nested.backward(dy)));
  CHECK(compare::same_gradients(flat, nested));
  CHECK(same_bits(flat.infer(x), nested.infer(x)));
}

TEST_CASE("Two Dropouts with the default seed have different masks in a network", "[sequential]") {
  ek::Sequential net{ek::Dropout<float>(0.5), ek::Dropout<float>(0.5)};
  const ek::Matrix<float> ones = ek::Matrix<float>::Ones(64, 64);
  net.forward(ones, ek::Mode::train);
  ek::Dropout<float> first = net.layer<0>();
  ek::Dropout<float> second = net.layer<1>();
  first.replay(0);
  second.replay(0);
  const ek::Matrix<float> mask_1 = first.forward(ones, ek::Mode::train);
  const ek::Matrix<float> mask_2 = second.forward(ones, ek::Mode::train);
  const auto agreeing = (mask_1.array() == mask_2.array()).count();
  CHECK(std::abs(agreeing - 2048) < 6 * 32);  // 4096 coins: six deviations
}

TEST_CASE("A Dropout's masks are those of its path in the outermost network", "[sequential]") {
  const ek::Matrix<float> ones = ek::Matrix<float>::Ones(8, 32);
  const auto mask_of = [&](ek::Dropout<float> dropout, const char* path) {
    dropout.set_stream(path);
    return ek::Matrix<float>(dropout.forward(ones, ek::Mode::train));
  };
  const ek::Dropout<float> dropout(0.5, {.seed = 9});

  auto flat = ek::sequential(ek::ReLU<float>(), dropout);
  CHECK(same_bits(flat.forward(ones, ek::Mode::train), mask_of(dropout, "1")));
  auto nested = ek::sequential(ek::ReLU<float>(), ek::ReLU<float>(), ek::sequential(ek::ReLU<float>(), dropout));
  CHECK(same_bits(nested.forward(ones, ek::Mode::train), mask_of(dropout, "2.1")));
  nested.set_stream("head");
  nested.replay(0);
  CHECK(same_bits(nested.forward(ones, ek::Mode::train), mask_of(dropout, "head.2.1")));
}

TEST_CASE("A network that is told to reseed or to replay gives the masks again", "[sequential]") {
  auto net = ek::sequential(ek::Dropout<double>(0.5, {.seed = 3}), ek::sequential(ek::Dropout<double>(0.25)));
  const ek::Matrix<double> ones = ek::Matrix<double>::Ones(6, 40);
  std::vector<ek::Matrix<double>> masks;
  for (int call = 0; call < 3; ++call) masks.push_back(net.forward(ones, ek::Mode::train));
  CHECK_FALSE(same_bits(masks[0], masks[1]));
  CHECK_FALSE(same_bits(masks[1], masks[2]));

  net.replay(1);
  CHECK(same_bits(net.forward(ones, ek::Mode::train), masks[1]));
  CHECK(same_bits(net.forward(ones, ek::Mode::train), masks[2]));

  net.reseed(12);
  const ek::Matrix<double> reseeded = net.forward(ones, ek::Mode::train);
  CHECK_FALSE(same_bits(reseeded, masks[0]));
  net.forward(ones, ek::Mode::train);
  net.reseed(12);
  CHECK(same_bits(net.forward(ones, ek::Mode::train), reseeded));
  auto made_with_it =
      ek::sequential(ek::Dropout<double>(0.5, {.seed = 12}), ek::sequential(ek::Dropout<double>(0.25, {.seed = 12})));
  CHECK(same_bits(made_with_it.forward(ones, ek::Mode::train), reseeded));
}

TEST_CASE("Layers that do not fit are an error that names both", "[sequential]") {
  const auto make = [](const auto&... layers) { return ek::sequential(layers...); };
  const ek::Linear<float> linear(3, 5);
  CHECK_THROWS_AS(make(linear, ek::LayerNorm<float>(6)), ek::ShapeError);
  CHECK_THROWS_WITH(make(linear, ek::LayerNorm<float>(6)),
                    "Sequential: layer 0 (Linear) gives 5 features, but layer 1 (LayerNorm) expects 6");
  CHECK_THROWS_WITH(make(ek::Dropout<float>(), linear, ek::ReLU<float>(), ek::Linear<float>(4, 1)),
                    "Sequential: layer 2 (ReLU) gives 5 features, but layer 3 (Linear) expects 4");
  CHECK_THROWS_WITH(make(linear, own::AddOneInTraining<float>(), ek::BatchNorm<float>(2, 3)),
                    "Sequential: layer 1 (layer) gives 5 features, but layer 2 (BatchNorm) expects 6");
  CHECK_THROWS_WITH(make(linear, own::Twice<float>(), linear),
                    "Sequential: layer 1 (Twice) gives 10 features, but layer 2 (Linear) expects 3");
  CHECK_NOTHROW(make(linear, own::Twice<float>(), ek::Linear<float>(10, 1)));
}

TEST_CASE("Nested networks that do not fit are an error that names both", "[sequential]") {
  const auto make = [](const auto&... layers) { return ek::sequential(layers...); };
  const ek::Linear<float> linear(3, 5);
  CHECK_THROWS_WITH(make(linear, make(linear, ek::ReLU<float>())),
                    "Sequential: layer 0 (Linear) gives 5 features, but layer 1 (Sequential) expects 3");
  CHECK_THROWS_WITH(make(make(linear, ek::ReLU<float>()), linear),
                    "Sequential: layer 0 (Sequential) gives 5 features, but layer 1 (Linear) expects 3");
  // A network that takes any number of features passes the number on.
  CHECK_THROWS_WITH(make(linear, make(ek::ReLU<float>()), linear),
                    "Sequential: layer 1 (Sequential) gives 5 features, but layer 2 (Linear) expects 3");
  // One whose first layers do expects what the first layer with a fixed number does.
  CHECK(make(ek::Dropout<float>(), linear).input_features() == 3);
  CHECK(make(own::Twice<float>(), linear).input_features() == -1);
  CHECK(make(ToOne(), ek::Linear<float>(1, 2)).input_features() == -1);
  CHECK(make(ek::ReLU<float>()).input_features() == -1);
  CHECK_THROWS_WITH(make(linear, make(ek::ReLU<float>(), linear)),
                    "Sequential: layer 0 (Linear) gives 5 features, but layer 1 (Sequential) expects 3");
}

TEST_CASE("A copied network shares nothing with the one it came from", "[sequential]") {
  auto net = small_net();
  train_one_step(net, x, dy);
  auto copy = net;
  CHECK(compare::same_values(net, copy));
  CHECK(compare::same_gradients(net, copy));
  CHECK(compare::same_buffers(net, copy));

  auto kept = net;
  train_one_step(copy, x, dy);
  CHECK(compare::same_values(net, kept));
  CHECK(compare::same_gradients(net, kept));
  CHECK(compare::same_buffers(net, kept));
  CHECK_FALSE(compare::same_values(net, copy));
  CHECK_FALSE(compare::same_buffers(net, copy));

  // The same step on the other one, masks included, leads to the same place.
  train_one_step(net, x, dy);
  CHECK(compare::same_values(net, copy));
  CHECK(compare::same_buffers(net, copy));
}

TEST_CASE("A network copied between forward and backward gives the same gradients", "[sequential]") {
  auto net = small_net();
  SECTION("standing alone") {
    net.forward(x, ek::Mode::train);
    auto copy = net;
    const ek::Matrix<double> dx = net.backward(dy);
    CHECK(same_bits(copy.backward(dy), dx));
    CHECK(compare::same_gradients(copy, net));
  }
  SECTION("with the caller's x") {
    ek::Matrix<double> y(7, 3), dx(7, 4), dx_of_copy(7, 4);
    net.forward(x, y, ek::Mode::train);
    SmallNet copy = small_net();
    copy = net;
    net.forward(values::random<double>(9, 4, 3), ek::Mode::train);  // writes over what the copy must not share
    copy.backward(x, dy, dx_of_copy);
    net = copy;
    net.backward(x, dy, dx);
    CHECK(same_bits(dx, dx_of_copy));
    CHECK(compare::same_gradients(copy, net));
  }
}

TEST_CASE("A moved network goes on where it was", "[sequential]") {
  auto net = small_net();
  train_one_step(net, x, dy);
  auto copy = net;
  net.forward(x, ek::Mode::train);
  copy.forward(x, ek::Mode::train);

  auto moved = std::move(net);
  CHECK(same_bits(moved.backward(dy), copy.backward(dy)));
  CHECK(compare::same_gradients(moved, copy));
  train_one_step(moved, x, dy);
  train_one_step(copy, x, dy);
  CHECK(compare::same_values(moved, copy));

  std::vector<SmallNet> nets;
  for (int i = 0; i < 5; ++i) nets.push_back(moved);  // moves those before, too
  train_one_step(nets[0], x, dy);
  train_one_step(copy, x, dy);
  CHECK(compare::same_values(nets[0], copy));
}

TEST_CASE("A network cast to another scalar type keeps its state", "[sequential]") {
  auto net = ek::sequential(small_net());
  train_one_step(net, x, dy);
  auto narrow = net.cast<float>();
  auto wide = narrow.cast<double>();

  const auto parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters[i].name);
    CHECK(narrow.parameters()[i].name == parameters[i].name);
    CHECK(narrow.parameters()[i].value == parameters[i].value.cast<float>());
    CHECK(wide.parameters()[i].value == narrow.parameters()[i].value.cast<double>());
  }
  CHECK(narrow.buffers()[0].value == net.buffers()[0].value.cast<float>());
  CHECK(narrow.buffers()[1].value == net.buffers()[1].value.cast<float>());
  CHECK(*narrow.buffers()[2].count == 1);

  // The next masks are the same: outputs agree to float's rounding, through two products and a norm of values near one.
  const ek::Matrix<double> y = net.forward(x, ek::Mode::train);
  const ek::Matrix<float> y_narrow = narrow.forward(x.cast<float>(), ek::Mode::train);
  CHECK((y_narrow.cast<double>() - y).cwiseAbs().maxCoeff() < 1e-5);
}

namespace {

template <class Network>
concept CastsToFloat = requires(const Network& net) {
  net.template cast<float>();
};
static_assert(CastsToFloat<ek::Sequential<ek::Linear<double>, own::Twice<double>>>);
static_assert(!CastsToFloat<ek::Sequential<ek::Linear<double>, own::AddOneInTraining<double>>>);

}  // namespace
