// fit: the mini-batch loop, what it returns, and what it refuses.

#include "evenkeel/training/fit.hpp"

#include <algorithm>  // sort
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/core/error.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/network/transformer.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/sgd.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;

namespace {

const ek::Matrix<double> x = values::random<double>(50, 3, 1);

/// Whether the point lies inside of an ellipsoid that holds about half of them.
std::vector<int> inside() {
  std::vector<int> labels;
  for (Eigen::Index i = 0; i < x.rows(); ++i) labels.push_back(x.row(i).squaredNorm() < 4 ? 1 : 0);
  return labels;
}

ek::Mlp<double> small_net(std::uint64_t seed = 1) {
  return ek::Mlp<double>({3, 16, 2}, {.norm = ek::Norm::layer, .dropout = 0.1, .seed = seed});
}

/// Fits a small network with AdamW and returns it.
template <class Callback>
ek::Mlp<double> fitted(const ek::FitOptions& options, Callback&& callback) {
  ek::Mlp<double> net = small_net();
  ek::SoftmaxCrossEntropy<double> loss;
  ek::AdamW<double> optimizer(net, {.learning_rate = 1e-2});
  ek::fit(net, loss, optimizer, x, inside(), options, callback);
  return net;
}
ek::Mlp<double> fitted(const ek::FitOptions& options) {
  return fitted(options, [](const ek::FitStep&) {});
}

/// Hands x on, and notes the first column of every batch; takes rows three at a time.
struct InThrees {
  using Scalar = double;
  std::vector<std::vector<double>>* batches;

  template <class X, class Y>
  void forward(const X& in, Y&& y, ek::Mode) {
    batches->emplace_back();
    for (ek::Index i = 0; i < in.rows(); ++i) batches->back().push_back(in(i, 0));
    y = in;
  }
  template <class X, class DY, class DX>
  void backward(const X&, const DY& dy, DX&& dx) {
    dx = dy;
  }
  template <class X, class Y>
  void infer(const X& in, Y&& y, ek::Workspace<double>&) const {
    y = in;
  }
  ek::Index output_features(ek::Index features) const { return features; }
  ek::Index rows_per_example() const { return 3; }
};

}  // namespace

TEST_CASE("Rows that a network takes together stay together", "[fit]") {
  std::vector<std::vector<double>> seen;
  ek::Sequential net{ek::Sequential{InThrees{&seen}}, ek::Linear<double>(1, 2)};
  ek::SoftmaxCrossEntropy<double> loss;
  ek::SGD optimizer(net);
  const ek::Index rows = GENERATE(30, 24);
  ek::Matrix<double> numbers(rows, 1);
  for (ek::Index i = 0; i < rows; ++i) numbers(i, 0) = static_cast<double>(i);
  std::vector<int> labels(static_cast<std::size_t>(rows), 1);
  const auto run = [&](const ek::FitOptions& options) { ek::fit(net, loss, optimizer, numbers, labels, options); };
  const ek::Index each = GENERATE(3, 6);
  run({.steps = 10, .batch_size = 2, .rows_per_example = each});
  REQUIRE(seen.size() == 10);
  std::vector<double> epoch;  // the first
  for (const auto& batch : seen) {
    REQUIRE(batch.size() % static_cast<std::size_t>(each) == 0);
    CHECK(batch.size() <= 2 * static_cast<std::size_t>(each));
    for (std::size_t i = 0; i < batch.size(); ++i)
      if (i % static_cast<std::size_t>(each) != 0)
        CHECK(batch[i] == batch[i - 1] + 1);
      else
        CHECK(std::fmod(batch[i], static_cast<double>(each)) == 0);
    if (epoch.size() < static_cast<std::size_t>(rows)) epoch.insert(epoch.end(), batch.begin(), batch.end());
  }
  std::sort(epoch.begin(), epoch.end());
  REQUIRE(epoch.size() == static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < epoch.size(); ++i) CHECK(epoch[i] == static_cast<double>(i));

  seen.clear();
  run({.steps = 1, .batch_size = 2});  // as the network says
  CHECK(seen[0].size() == 6);
  CHECK_THROWS_WITH(
      run({.rows_per_example = 4}),
      "fit: expected rows_per_example to be a multiple of the 3 rows that the network takes together, got 4");
  CHECK_THROWS_WITH(run({.rows_per_example = 21}),
                    Catch::Matchers::StartsWith("fit: expected x of whole examples of 21 rows, got "));
}

TEST_CASE("fit trains a Transformer, sequence by sequence", "[fit]") {
  constexpr ek::Index positions = 5, tokens = 4, sequences = 60;
  ek::Matrix<float> one_hot = ek::Matrix<float>::Zero(sequences * positions, tokens);
  std::vector<int> previous;  // of a token in its sequence, that before it
  ek::RandomStream random(1, ek::stream_of("tokens"));
  for (ek::Index i = 0; i < one_hot.rows(); ++i) {
    const auto token = static_cast<ek::Index>(random.uniform() * tokens);
    one_hot(i, token) = 1;
    ek::Index before = token;
    if (i % positions != 0) one_hot.row(i - 1).maxCoeff(&before);
    previous.push_back(static_cast<int>(before));
  }
  ek::Matrix<float> inputs(one_hot.rows(), tokens + positions);  // and the place in the sequence
  inputs << one_hot, ek::Matrix<float>::Identity(positions, positions).replicate(sequences, 1);
  ek::Sequential net{ek::Linear<float>(tokens + positions, 16, {.seed = 1}),
                     ek::TransformerBlock<float>(16, 2, 16, positions, {.seed = 2}), ek::Linear<float>(16, tokens)};
  ek::AdamW optimizer(net, {.learning_rate = 3e-3});
  ek::SoftmaxCrossEntropy<float> loss;
  ek::fit(net, loss, optimizer, inputs, previous, {.steps = 400, .batch_size = 12});
  CHECK(loss(net.infer(inputs), previous).value < 0.1);  // a guess costs 1.39
}

TEST_CASE("fit makes a network fit", "[fit]") {
  ek::SoftmaxCrossEntropy<double> loss;
  const double before = loss(small_net().infer(x), inside()).value;
  const ek::Mlp<double> net = fitted({.steps = 1000, .batch_size = 10, .seed = 3});
  const ek::Matrix<double> logits = net.infer(x);
  CHECK(before > 0.5);
  CHECK(loss(logits, inside()).value < 0.1);
  const auto labels = inside();
  int right = 0;
  for (Eigen::Index i = 0; i < x.rows(); ++i)
    right += (logits(i, 1) > logits(i, 0) ? 1 : 0) == labels[static_cast<std::size_t>(i)] ? 1 : 0;
  CHECK(right >= 48);
}

TEST_CASE("fit is forward, loss, backward, clip and step over the batches", "[fit]") {
  std::vector<double> losses, norms;
  ek::Mlp<double> net = small_net();
  ek::SoftmaxCrossEntropy<double> loss;
  ek::AdamW<double> optimizer(net, {.learning_rate = 1e-2});
  const ek::FitOptions options{.steps = 13,
                               .batch_size = 8,
                               .seed = 5,
                               .schedule = [](ek::Index step) { return 1.0 / static_cast<double>(1 + step); },
                               .clip_norm = 0.7};
  const auto labels = inside();
  ek::fit(net, loss, optimizer, x, labels, options, [&](const ek::FitStep& step) {
    CHECK(step.step == static_cast<Eigen::Index>(losses.size()));
    losses.push_back(step.loss);
    norms.push_back(step.gradient_norm);
  });

  ek::Mlp<double> by_hand = small_net();
  ek::AdamW<double> other(by_hand, {.learning_rate = 1e-2});
  ek::Batches batches(50, 8, {.seed = 5});
  REQUIRE(losses.size() == 13);
  for (std::size_t step = 0; step < 13; ++step) {
    const auto examples = batches.next();
    ek::Matrix<double> input(static_cast<Eigen::Index>(examples.size()), 3);
    std::vector<int> targets;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      input.row(static_cast<Eigen::Index>(i)) = x.row(examples[i]);
      targets.push_back(labels[static_cast<std::size_t>(examples[i])]);
    }
    const auto result = loss(by_hand.forward(input, ek::Mode::train), targets);
    by_hand.backward(result.gradient);
    CHECK(result.value == losses[step]);
    CHECK(ek::clip_gradient_norm(by_hand, 0.7) == norms[step]);
    other.step(1.0 / static_cast<double>(1 + step));
  }
  CHECK(compare::same_values(net, by_hand));
}

TEST_CASE("fit with the same seed gives the same network to the bit", "[fit]") {
  ek::Mlp<double> first = fitted({.steps = 20, .batch_size = 8, .seed = 5});
  ek::Mlp<double> again = fitted({.steps = 20, .batch_size = 8, .seed = 5});
  ek::Mlp<double> other = fitted({.steps = 20, .batch_size = 8, .seed = 6});
  CHECK(compare::same_values(first, again));
  CHECK_FALSE(compare::same_values(first, other));
}

TEST_CASE("fit returns the number of its steps, and stops where the callback says false", "[fit]") {
  ek::Mlp<double> net = small_net();
  ek::SoftmaxCrossEntropy<double> loss;
  ek::SGD<double> optimizer(net);
  CHECK(ek::fit(net, loss, optimizer, x, inside(), {.steps = 7}) == 7);
  CHECK(optimizer.steps() == 7);
  const auto stop_after_5 = [](const ek::FitStep& step) { return step.step < 4; };
  CHECK(ek::fit(net, loss, optimizer, x, inside(), {.steps = 100}, stop_after_5) == 5);
  CHECK(optimizer.steps() == 12);
  CHECK(ek::fit(net, loss, optimizer, x, inside(), {.steps = 3}, [](const ek::FitStep&) { return true; }) == 3);
  int calls = 0;
  CHECK(ek::fit(net, loss, optimizer, x, inside(), {.steps = 4}, [&](const ek::FitStep&) { ++calls; }) == 4);
  CHECK(calls == 4);
}

TEST_CASE("fit asks the schedule once a step, from zero", "[fit]") {
  std::vector<ek::Index> asked;
  const ek::FitOptions options{.steps = 5, .schedule = [&](ek::Index step) {
                                 asked.push_back(step);
                                 return 0.0;
                               }};
  ek::Mlp<double> net = fitted(options);
  ek::Mlp<double> start = small_net();
  CHECK(asked == std::vector<ek::Index>{0, 1, 2, 3, 4});
  CHECK(compare::same_values(net, start));
}

TEST_CASE("fit clips the gradients that the optimizer sees, and reports the norm before", "[fit]") {
  ek::Mlp<double> net = small_net();
  ek::Mlp<double> start = net;
  ek::SoftmaxCrossEntropy<double> loss;
  ek::SGD<double> optimizer(net, {.learning_rate = 1});
  double norm = 0;
  ek::fit(net, loss, optimizer, x, inside(), {.steps = 1, .clip_norm = 1e-3},
          [&](const ek::FitStep& step) { norm = step.gradient_norm; });
  CHECK(norm > 0.01);
  double moved = 0;
  for (std::size_t i = 0; i < net.parameters().size(); ++i)
    moved += (net.parameters()[i].value - start.parameters()[i].value).squaredNorm();
  CHECK(std::sqrt(moved) == Catch::Approx(1e-3).epsilon(1e-3));  // the clip adds 1e-6 to the norm it divides by

  ek::fit(net, loss, optimizer, x, inside(), {.steps = 1}, [&](const ek::FitStep& step) { norm = step.gradient_norm; });
  CHECK(norm == 0);
}

TEST_CASE("fit checks its options and its data before the first step", "[fit]") {
  ek::Mlp<double> net = small_net();
  ek::Mlp<double> start = net;
  ek::SoftmaxCrossEntropy<double> loss;
  ek::SGD<double> optimizer(net, {.learning_rate = 1});
  const auto run = [&](const ek::FitOptions& options) { ek::fit(net, loss, optimizer, x, inside(), options); };
  CHECK_THROWS_AS(run({.steps = 0}), std::invalid_argument);
  CHECK_THROWS_WITH(run({.steps = 0}), "fit: expected steps >= 1, got 0");
  CHECK_THROWS_WITH(run({.steps = -4}), "fit: expected steps >= 1, got -4");
  CHECK_THROWS_WITH(run({.batch_size = 0}), "Batches: expected batch_size >= 1, got 0");
  CHECK_THROWS_WITH(run({.batch_size = 51, .drop_last = true}),
                    "Batches: expected batch_size <= count = 50 with drop_last, got 51");
  CHECK_THROWS_WITH(run({.clip_norm = -1}), "clip_gradient_norm: expected max_norm >= 0, got -1");
  CHECK_THROWS_WITH(run({.clip_norm = std::nan("")}), "clip_gradient_norm: expected max_norm >= 0, got nan");

  const auto with = [&](const ek::Matrix<double>& inputs, const std::vector<int>& labels) {
    ek::fit(net, loss, optimizer, inputs, labels);
  };
  CHECK_THROWS_AS(with(x, {0, 1}), ek::ShapeError);
  CHECK_THROWS_WITH(with(x, {0, 1}), "fit: expected one target for each of 50 rows, got 2");
  CHECK_THROWS_WITH(with(ek::Matrix<double>(0, 3), {}), "Batches: expected count >= 1, got 0");
  CHECK_THROWS_WITH(with(ek::Matrix<double>::Ones(2, 4), {0, 1}),
                    "Linear::forward (layer 0): expected input of shape (batch, 3), got (2, 4)");
  CHECK_THROWS_WITH(with(ek::Matrix<double>::Ones(2, 3), {0, 2}),
                    Catch::Matchers::ContainsSubstring("SoftmaxCrossEntropy: expected labels in [0, 2), got 2 in row"));
  CHECK(optimizer.steps() == 0);
  CHECK(compare::same_values(net, start));
  CHECK(compare::same_gradients(net, start));
}

TEST_CASE("fit takes a matrix of targets for a loss of matrices", "[fit]") {
  const ek::Matrix<double> weight = values::random<double>(2, 3, 2);
  const Eigen::MatrixXd targets = x * weight.transpose();  // column-major
  ek::Mlp<double> net({3, 2}, {.seed = 2});
  ek::MeanSquaredError<double> loss;
  ek::SGD<double> optimizer(net, {.learning_rate = 0.1, .momentum = 0.5});
  ek::fit(net, loss, optimizer, x, targets, {.steps = 500, .batch_size = 16, .seed = 1});
  // Without noise the minimum is exact, and 500 steps with a rate of 0.1 / (1 - 0.5) reach it to double's rounding.
  CHECK((net.parameters()[0].value - weight).cwiseAbs().maxCoeff() < 1e-12);

  net = ek::Mlp<double>({3, 2});
  CHECK_THROWS_WITH(ek::fit(net, loss, optimizer, x, targets.topRows(49)),
                    "fit: expected one target for each of 50 rows, got 49");
}

TEST_CASE("fit takes labels and inputs of any kind", "[fit]") {
  const auto labels = inside();
  const auto run = [&](const auto& inputs, const auto& targets) {
    ek::Mlp<double> net = small_net();
    ek::SoftmaxCrossEntropy<double> loss;
    ek::SGD<double> optimizer(net, {.learning_rate = 0.1});
    ek::fit(net, loss, optimizer, inputs, targets, {.steps = 4, .seed = 9});
    return net;
  };
  ek::Mlp<double> expected = run(x, labels);
  const auto check = [&](ek::Mlp<double> net) { CHECK(compare::same_values(net, expected)); };
  check(run(x, std::vector<std::uint8_t>(labels.begin(), labels.end())));
  const Eigen::VectorXi column = Eigen::Map<const Eigen::VectorXi>(labels.data(), 50);
  check(run(x, column.transpose()));
  check(run(Eigen::MatrixXd(x), column));
  const Eigen::MatrixXd features_by_batch = x.transpose();
  check(run(features_by_batch.transpose(), column.head(50)));
  Eigen::MatrixXd wide(60, 5);
  wide.block(3, 1, 50, 3) = x;
  check(run(wide.block(3, 1, 50, 3), labels));
}

TEST_CASE("fit with BatchNorm needs drop_last where the last batch has one example", "[fit]") {
  const ek::Matrix<double> nine = x.topRows(9);
  const std::vector<int> labels = {0, 1, 0, 1, 0, 1, 0, 1, 0};
  ek::Mlp<double> net({3, 8, 2}, {.norm = ek::Norm::batch});
  ek::SoftmaxCrossEntropy<double> loss;
  ek::SGD<double> optimizer(net);
  CHECK_THROWS_WITH(ek::fit(net, loss, optimizer, nine, labels, {.steps = 9, .batch_size = 4}),
                    Catch::Matchers::ContainsSubstring("drop an incomplete last one"));
  CHECK(ek::fit(net, loss, optimizer, nine, labels, {.steps = 9, .batch_size = 4, .drop_last = true}) == 9);
  for (const auto& buffer : net.buffers()) CHECK(buffer.value.allFinite());
}

TEST_CASE("fit goes on after a stop to the same bits", "[fit]") {
  ek::FitOptions options{.steps = 20, .batch_size = 8, .seed = 5, .schedule = [](ek::Index step) {
                           return 1.0 / static_cast<double>(1 + step);
                         }};
  const ek::Mlp<double> straight = fitted(options);

  ek::Mlp<double> net = small_net();
  ek::SoftmaxCrossEntropy<double> loss;
  ek::AdamW<double> optimizer(net, {.learning_rate = 1e-2});
  const auto labels = inside();
  const auto stop = [](const ek::FitStep& step) { return step.step < 8; };
  CHECK(ek::fit(net, loss, optimizer, x, labels, options, stop) == 9);  // in the middle of an epoch
  options.first_step = optimizer.steps();
  std::vector<ek::Index> steps;
  CHECK(ek::fit(net, loss, optimizer, x, labels, options,
                [&](const ek::FitStep& step) { steps.push_back(step.step); }) == 11);
  CHECK(steps.front() == 9);
  CHECK(steps.back() == 19);
  CHECK(compare::same_values(net, straight));

  options.first_step = 20;
  CHECK(ek::fit(net, loss, optimizer, x, labels, options) == 0);
  for (const ek::Index wrong : {-1, 21}) {
    options.first_step = wrong;
    CHECK_THROWS_WITH(ek::fit(net, loss, optimizer, x, labels, options),
                      "fit: expected first_step in [0, 20], got " + std::to_string(wrong));
  }
}
