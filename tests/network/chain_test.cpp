// What Sequential and Mlp share: the layers' calls in a row, the two pairs, infer, and failures that change nothing.

#include "evenkeel/network/chain.hpp"

#include <limits>
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
#include "evenkeel/layers/residual.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/network/sequential.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using compare::same_bits;

namespace {

/// 5 features in and out, so that it can work in place; each kind of layer is in it.
auto make_net() {
  return ek::Sequential{ek::Linear<double>(5, 6, {.seed = 1}),
                        ek::BatchNorm<double>(6),
                        ek::Tanh<double>(),
                        ek::Dropout<double>(0.4, {.seed = 7}),
                        ek::LayerNorm<double>(6),
                        ek::Linear<double>(6, 5, {.seed = 2}),
                        ek::RMSNorm<double>(5)};
}
using Net = decltype(make_net());

const ek::Matrix<double> x = values::random<double>(9, 5, 1);
const ek::Matrix<double> dy = values::random<double>(9, 5, 2);

}  // namespace

TEST_CASE("A network's forward and backward are those of its layers one by one, to the bit", "[chain]") {
  for (const ek::Mode mode : {ek::Mode::train, ek::Mode::eval, ek::Mode::frozen_statistics, ek::Mode::monte_carlo}) {
    Net net = make_net();
    net.forward(values::random<double>(9, 5, 3), ek::Mode::train);  // moves statistics and masks
    Net by_hand = net;

    std::vector<ek::Matrix<double>> activations = {x};
    for (ek::Index i = 0; i < by_hand.layer_count(); ++i)
      by_hand.visit(i, [&](auto& layer) {
        const ek::Matrix<double>& input = activations.back();
        ek::Matrix<double> output(input.rows(), layer.output_features(input.cols()));
        layer.forward(input, output, mode);
        activations.push_back(output);
      });
    ek::Matrix<double> gradient = dy;
    for (ek::Index i = by_hand.layer_count() - 1; i >= 0; --i)
      by_hand.visit(i, [&](auto& layer) {
        const ek::Matrix<double>& input = activations[static_cast<std::size_t>(i)];
        ek::Matrix<double> before(input.rows(), input.cols());
        layer.backward(input, gradient, before);
        gradient = before;
      });

    ek::Matrix<double> y(9, 5), dx(9, 5);
    net.forward(x, y, mode);
    net.backward(x, dy, dx);
    CHECK(same_bits(y, activations.back()));
    CHECK(same_bits(dx, gradient));
    CHECK(compare::same_gradients(net, by_hand));
    CHECK(compare::same_buffers(net, by_hand));
  }
}

TEST_CASE("A network of one layer is that layer", "[chain]") {
  ek::LayerNorm<double> alone(5);
  auto net = ek::sequential(alone);
  CHECK(same_bits(net.forward(x, ek::Mode::train), alone.forward(x, ek::Mode::train)));
  CHECK(same_bits(net.backward(dy), alone.backward(dy)));
  CHECK(compare::same_bits(net.parameters()[0].gradient, alone.parameters()[0].gradient));
  CHECK(same_bits(net.infer(x), alone.infer(x)));
  ek::Matrix<double> in_place = dy;
  net.backward(x, in_place, in_place);
  CHECK(same_bits(in_place, alone.backward(dy)));
}

TEST_CASE("The stand-alone pair of a network gives what the primitive pair does", "[chain]") {
  Net primitive = make_net();
  Net alone = make_net();
  ek::Matrix<double> y(9, 5), dx(9, 5);
  primitive.forward(x, y, ek::Mode::train);
  primitive.backward(x, dy, dx);
  {
    ek::Matrix<double> temporary = x;
    CHECK(same_bits(alone.forward(temporary, ek::Mode::train), y));
    temporary.setConstant(99);  // the network has its own copy
  }
  CHECK(same_bits(alone.backward(dy), dx));
  CHECK(compare::same_gradients(alone, primitive));
}

TEST_CASE("backward_parameters sets the parameters' gradients that backward sets", "[chain]") {
  Net whole = make_net();
  Net parameters_only = make_net();
  ek::Matrix<double> y(9, 5), dx(9, 5);
  whole.forward(x, y, ek::Mode::train);
  whole.backward(x, dy, dx);
  parameters_only.forward(x, y, ek::Mode::train);
  parameters_only.backward_parameters(x, dy);
  CHECK(compare::same_gradients(parameters_only, whole));

  whole.backward(x, dy, dx, ek::Accumulate::yes);
  parameters_only.backward_parameters(x, dy, ek::Accumulate::yes);
  CHECK(compare::same_gradients(parameters_only, whole));
}

TEST_CASE("Gradients of two micro-batches add up, and are overwritten otherwise", "[chain]") {
  Net net = make_net();
  net.forward(x, ek::Mode::eval);
  net.backward(dy);
  Net once = net;
  net.backward(dy);  // overwrites: repeated, it gives the same
  CHECK(compare::same_gradients(net, once));
  net.backward(dy, ek::Accumulate::yes);
  const auto parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters[i].name);
    // Sums may be rounded before or after they are added.
    CHECK(parameters[i].gradient.isApprox(2 * once.parameters()[i].gradient, 1e-14));
  }
}

TEST_CASE("A network works in place", "[chain]") {
  Net apart = make_net();
  Net in_place = make_net();
  ek::Matrix<double> y(9, 5), dx(9, 5);
  apart.forward(x, y, ek::Mode::train);
  apart.backward(x, dy, dx);

  ek::Matrix<double> data = x;
  in_place.forward(data, data, ek::Mode::train);
  CHECK(same_bits(data, y));
  ek::Matrix<double> gradient = dy;
  in_place.backward(data, gradient, gradient);
  CHECK(same_bits(gradient, dx));
  CHECK(compare::same_gradients(in_place, apart));

  data = x;
  ek::Workspace<double> workspace;
  const ek::Matrix<double> expected = std::as_const(apart).infer(x);
  in_place.infer(data, data, workspace);
  CHECK(same_bits(data, expected));
}

TEST_CASE("The input gradient may be written over the input", "[chain]") {
  Net net = make_net();
  Net over_input = make_net();
  ek::Matrix<double> y(9, 5), dx(9, 5), data = x;
  net.forward(x, y, ek::Mode::train);
  net.backward(x, dy, dx);
  over_input.forward(data, y, ek::Mode::train);
  over_input.backward(data, dy, data);
  CHECK(same_bits(data, dx));
  CHECK(compare::same_gradients(over_input, net));
}

TEST_CASE("A network takes blocks, transposes and expressions and writes to temporary blocks", "[chain]") {
  Net net = make_net();
  Net other = make_net();
  ek::Matrix<double> y(9, 5), dx(9, 5);
  net.forward(x, y, ek::Mode::train);
  net.backward(x, dy, dx);

  const Eigen::MatrixXd features_by_batch = x.transpose();
  Eigen::MatrixXd wide = Eigen::MatrixXd::Constant(11, 8, 77);
  other.forward(features_by_batch.transpose(), wide.block(1, 2, 9, 5), ek::Mode::train);
  // Eigen may sum products of column-major and row-major blocks in another order: a few roundings of numbers near one.
  CHECK((wide.block(1, 2, 9, 5) - y).cwiseAbs().maxCoeff() < 1e-13);
  CHECK((wide.row(0).array() == 77).all());
  CHECK((wide.col(7).array() == 77).all());
  Eigen::MatrixXd dx_transposed(5, 9);
  other.backward(features_by_batch.transpose(), 1.0 * dy, dx_transposed.transpose());
  CHECK((dx_transposed.transpose() - dx).cwiseAbs().maxCoeff() < 1e-13);

  ek::Workspace<double> workspace;
  net.infer(0.5 * (x + x), wide.block(0, 0, 9, 5), workspace);
  CHECK(same_bits(wide.block(0, 0, 9, 5), net.infer(x)));
}

TEST_CASE("infer gives the eval forward to the bit, for any batch size with one workspace", "[chain]") {
  Net net = make_net();
  for (int i = 0; i < 3; ++i) net.forward(values::random<double>(9, 5, 4), ek::Mode::train);
  const Net fixed = net;
  ek::Workspace<double> workspace;
  for (const ek::Index batch : {9, 1, 20, 3, 9, 0}) {
    const auto input = values::random<double>(batch, 5, 5);
    ek::Matrix<double> y(batch, 5);
    fixed.infer(input, y, workspace);
    CHECK(same_bits(y, net.forward(input, ek::Mode::eval)));
    CHECK(same_bits(fixed.infer(input), y));
  }
}

TEST_CASE("infer of networks in networks shares one workspace", "[chain]") {
  const auto inner = ek::sequential(ek::Linear<double>(5, 8, {.seed = 3}), ek::BatchNorm<double>(8),
                                    ek::Linear<double>(8, 5, {.seed = 4}), ek::Sigmoid<double>());
  const auto net = ek::sequential(ek::sequential(ek::RMSNorm<double>(5), inner), inner, ek::sequential(inner));
  auto copy = net;
  ek::Workspace<double> workspace;
  for (int i = 0; i < 2; ++i) {
    ek::Matrix<double> y(9, 5);
    net.infer(x, y, workspace);
    CHECK(same_bits(y, copy.forward(x, ek::Mode::eval)));
  }
}

TEST_CASE("infer does not disturb a pending backward", "[chain]") {
  Net net = make_net();
  Net left_alone = make_net();
  ek::Workspace<double> workspace;
  const auto infer_other_sizes = [&] {
    for (const ek::Index batch : {9, 2, 30}) {
      const auto input = values::random<double>(batch, 5, 6);
      ek::Matrix<double> y(batch, 5);
      net.infer(input, y, workspace);
      net.infer(input);
    }
  };
  SECTION("standing alone") {
    const ek::Matrix<double>& y = net.forward(x, ek::Mode::train);
    const ek::Matrix<double> y_before = y;
    left_alone.forward(x, ek::Mode::train);
    infer_other_sizes();
    CHECK(same_bits(y, y_before));
    CHECK(same_bits(net.backward(dy), left_alone.backward(dy)));
  }
  SECTION("with the caller's x") {
    ek::Matrix<double> y(9, 5), dx(9, 5), expected(9, 5);
    net.forward(x, y, ek::Mode::train);
    left_alone.forward(x, y, ek::Mode::train);
    infer_other_sizes();
    net.backward(x, dy, dx);
    left_alone.backward(x, dy, expected);
    CHECK(same_bits(dx, expected));
  }
  CHECK(compare::same_gradients(net, left_alone));
  CHECK(compare::same_buffers(net, left_alone));
}

TEST_CASE("The batch size may change from call to call", "[chain]") {
  Net net = make_net();
  for (const ek::Index batch : {16, 5, 16, 40, 2, 16}) {
    const auto input = values::random<double>(batch, 5, 7);
    const auto gradient = values::random<double>(batch, 5, 8);
    Net fresh = make_net();
    net.replay(0);
    CHECK(same_bits(net.forward(input, ek::Mode::train), fresh.forward(input, ek::Mode::train)));
    CHECK(same_bits(net.backward(gradient), fresh.backward(gradient)));
    CHECK(compare::same_gradients(net, fresh));
  }
}

TEST_CASE("The results of one network may be the input of the next, or of itself", "[chain]") {
  Net net = make_net();
  const ek::Matrix<double> once = net.infer(x);
  const ek::Matrix<double> twice = net.infer(once);
  CHECK(same_bits(net.forward(net.forward(x, ek::Mode::eval), ek::Mode::eval), twice));
  const ek::Matrix<double> first_gradient = net.backward(dy);
  const ek::Matrix<double> expected = net.backward(first_gradient);
  CHECK(same_bits(net.backward(net.backward(dy)), expected));
}

TEST_CASE("A network differentiates the forward that was run, whatever its Dropout is told since", "[chain]") {
  Net net = make_net();
  net.forward(x, ek::Mode::train);
  const ek::Matrix<double> expected = net.backward(dy);
  net.replay(5);
  CHECK(same_bits(net.backward(dy), expected));
  net.reseed(99);
  CHECK(same_bits(net.backward(dy), expected));
  net.set_stream("elsewhere");
  CHECK(same_bits(net.backward(dy), expected));
}

TEST_CASE("A network's messages say what was expected and what came", "[chain]") {
  Net net = make_net();
  ek::Workspace<double> workspace;
  const auto matrix = [](ek::Index rows, ek::Index columns) { return ek::Matrix<double>::Ones(rows, columns).eval(); };
  ek::Matrix<double> y = matrix(9, 5);
  CHECK_THROWS_AS(net.backward(dy), ek::UsageError);
  CHECK_THROWS_WITH(net.backward(dy), "Sequential::backward: expected a forward call before it, got none");
  CHECK_THROWS_WITH(net.backward_parameters(x, dy),
                    "Sequential::backward_parameters: expected a forward call before it, got none");
  CHECK_THROWS_AS(net.forward(matrix(2, 3), ek::Mode::eval), ek::ShapeError);
  CHECK_THROWS_WITH(net.forward(matrix(2, 3), ek::Mode::eval),
                    "Linear::forward (layer 0): expected input of shape (batch, 5), got (2, 3)");
  CHECK_THROWS_WITH(net.infer(matrix(2, 3)), "Linear::infer (layer 0): expected input of shape (batch, 5), got (2, 3)");
  CHECK_THROWS_WITH(net.forward(x, matrix(9, 4).leftCols(4), ek::Mode::train),
                    "Sequential::forward: expected output of shape (9, 5), got (9, 4)");
  CHECK_THROWS_WITH(net.infer(x, matrix(8, 5).leftCols(5), workspace),
                    "Sequential::infer: expected output of shape (9, 5), got (8, 5)");
  CHECK_THROWS_WITH(net.backward(dy), "Sequential::backward: expected a forward call before it, got none");

  net.forward(x, y, ek::Mode::train);
  CHECK_THROWS_WITH(net.backward(x, matrix(8, 5), y),
                    "Sequential::backward: expected output gradient of shape (9, 5), got (8, 5)");
  CHECK_THROWS_WITH(net.backward(matrix(9, 4), dy, y),
                    "Sequential::backward: expected the forward's input of shape (9, 5), got (9, 4)");
  CHECK_THROWS_WITH(net.backward(x, dy, matrix(9, 6).leftCols(6)),
                    "Sequential::backward: expected input gradient of shape (9, 5), got (9, 6)");
  CHECK_THROWS_WITH(net.backward(dy),
                    "Sequential::backward: expected backward(x, dy, dx) after forward(x, y, mode), which keeps no copy "
                    "of its input, got backward(dy)");
  CHECK_NOTHROW(net.backward(x, dy, y));
}

TEST_CASE("A network that cannot take a batch stays as it was, pending backward and masks included", "[chain]") {
  ek::Sequential net{ek::Linear<double>(5, 6, {.seed = 1}), ek::Dropout<double>(0.5), ek::BatchNorm<double>(6),
                     ek::sequential(ek::Dropout<double>(0.5), ek::BatchNorm<double>(2, 3))};
  const auto gradient = values::random<double>(9, 6, 2);
  net.forward(x, ek::Mode::train);
  auto untouched = net;

  const auto one_row = values::random<double>(1, 5, 3);
  ek::Matrix<double> y = ek::Matrix<double>::Constant(1, 6, 77);
  CHECK_THROWS_AS(net.forward(one_row, ek::Mode::train), ek::ShapeError);
  CHECK_THROWS_WITH(
      net.forward(one_row, y, ek::Mode::train),
      "BatchNorm::forward (layer 2): expected more than one value per channel to take statistics of, got 1 from "
      "input of shape (1, 6); use a larger batch (drop an incomplete last one), running statistics "
      "(Mode::eval, Mode::frozen_statistics), or LayerNorm");
  CHECK((y.array() == 77).all());
  CHECK(compare::same_buffers(net, untouched));
  CHECK(net.layer<1>().calls() == 1);
  CHECK(net.layer<3>().layer<0>().calls() == 1);

  CHECK(same_bits(net.backward(gradient), untouched.backward(gradient)));
  CHECK(compare::same_gradients(net, untouched));
  CHECK(same_bits(net.forward(x, ek::Mode::train), untouched.forward(x, ek::Mode::train)));
  CHECK_NOTHROW(net.forward(one_row, ek::Mode::eval));
}

TEST_CASE("A forward that fails between two layers leaves no backward behind", "[chain]") {
  ek::Sequential net{ek::Linear<double>(5, 6, {.seed = 1}), ek::Dropout<double>(0.5),
                     ek::BatchNorm<double>(6, {.non_finite = ek::NonFinite::error})};
  net.forward(x, ek::Mode::train);
  auto untouched = net;
  ek::Matrix<double> spoilt = x;
  spoilt(4, 2) = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(net.forward(spoilt, ek::Mode::train), std::invalid_argument);
  CHECK(compare::same_buffers(net, untouched));
  // The activations of the forward before are gone: no gradients rather than wrong ones.
  const auto gradient = values::random<double>(9, 6, 2);
  CHECK_THROWS_AS(net.backward(gradient), ek::UsageError);

  net.replay(1);
  CHECK(same_bits(net.forward(x, ek::Mode::train), untouched.forward(x, ek::Mode::train)));
  CHECK(same_bits(net.backward(gradient), untouched.backward(gradient)));
}

TEST_CASE("NaN in one example stays in it through a network in eval mode", "[chain]") {
  Net net = make_net();
  net.forward(x, ek::Mode::train);
  const ek::Matrix<double> clean = net.infer(x);
  ek::Matrix<double> spoilt = x;
  spoilt(4, 2) = std::numeric_limits<double>::quiet_NaN();
  const ek::Matrix<double> y = net.infer(spoilt);
  CHECK(y.row(4).array().isNaN().all());
  CHECK(same_bits(y.topRows(4), clean.topRows(4)));
  CHECK(same_bits(y.bottomRows(4), clean.bottomRows(4)));
}

TEST_CASE("A network's training state is that of its layers, named by their places", "[chain]") {
  auto net = ek::sequential(make_net());
  net.forward(x, ek::Mode::train);
  const ek::ConstTrainingState state = std::as_const(net).training_state();
  REQUIRE(state.size() == 3);
  CHECK(state[0].name == "0.1.non_finite");
  CHECK(state[0].values.size() == 6);
  CHECK(state[1].name == "0.3.seed");
  CHECK(state[1].values[0] == 7);
  CHECK(state[2].name == "0.3.call");
  CHECK(state[2].values[0] == 1);
  net.training_state()[2].values[0] = 5;
  CHECK(net.layer<0>().layer<3>().calls() == 5);
}

TEST_CASE("An error of a layer says where the layer is", "[chain]") {
  const auto one_row = values::random<double>(1, 4, 1);
  ek::Sequential net{ek::ReLU<double>(), ek::Residual(ek::LayerNorm<double>(4),
                                                      ek::Sequential{ek::Tanh<double>(), ek::BatchNorm<double>(4)})};
  CHECK_THROWS_WITH(net.forward(one_row, ek::Mode::train),
                    Catch::Matchers::StartsWith("BatchNorm::forward (layer 1.branch.1): expected more than one value"));
  CHECK_THROWS_WITH(net.layer<1>().forward(one_row, ek::Mode::train),
                    Catch::Matchers::StartsWith("BatchNorm::forward (branch.1): expected more than one value"));
  const auto deep = ek::sequential(ek::sequential(ek::sequential(ek::sequential(ek::sequential(
      ek::sequential(ek::sequential(ek::sequential(ek::sequential(ek::sequential(ek::Linear<double>(3, 1)))))))))));
  CHECK_THROWS_WITH(deep.infer(one_row),
                    "Linear::infer (layer 0.0.0.0.0.0.0.0.0.0): expected input of shape (batch, 3), got (1, 4)");
}
