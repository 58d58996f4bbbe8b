// What do BatchNorm and dropout do differently in training and at inference, and what goes wrong when it is mixed up?
//
//   build/release/examples/train_eval
//
// Shows BatchNorm's columns and LayerNorm's rows, dropout in both modes, then trains a 20-64-2 network (BatchNorm, ReLU,
// dropout 0.3; AdamW) to tell whether x0 + x1 > 0, and lets it predict in eval mode, in train mode, and with the statistics
// of a single example. Takes about a second.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/loss.hpp"
#include "examples/support/batch_of_one.hpp"
#include "examples/support/program.hpp"

namespace ek = evenkeel;
using Matrix = ek::Matrix<float>;

namespace {

Matrix normal(ek::Index rows, ek::Index columns, ek::RandomStream& random) {
  Matrix x(rows, columns);
  for (ek::Index i = 0; i < rows; ++i)
    for (ek::Index j = 0; j < columns; ++j) x(i, j) = static_cast<float>(random.normal());
  return x;
}

template <class Values>
void print_row(const char* title, const Values& values) {
  fmt::print("  {:<32}", title);
  for (ek::Index i = 0; i < values.size(); ++i) {
    const double rounded = std::round(static_cast<double>(values(i)) * 1000) / 1000 + 0.0;  // + 0.0: no "-0.000"
    fmt::print(" {:6.3f}", rounded);
  }
  fmt::print("\n");
}

void show_what_is_normalized(ek::RandomStream& random) {
  const Matrix x = (normal(8, 4, random).array() * 5 + 3).matrix();
  ek::BatchNorm<float> batch_norm(4);
  ek::LayerNorm<float> layer_norm(4);
  const Matrix b = batch_norm.forward(x, ek::Mode::train);
  const Matrix l = layer_norm.forward(x, ek::Mode::train);
  const auto deviation = [](const auto& values) { return std::sqrt((values.array() - values.mean()).square().mean()); };
  fmt::print("8 examples of 4 features, mean about 3, deviation about 5\n");
  print_row("mean of each column", x.colwise().mean());
  print_row("BatchNorm: mean of each column", b.colwise().mean());
  Eigen::RowVectorXf deviations(4);
  for (ek::Index j = 0; j < 4; ++j) deviations[j] = deviation(b.col(j));
  print_row("           deviation of each", deviations);
  print_row("mean of each row", x.rowwise().mean());
  print_row("LayerNorm: mean of each row", l.rowwise().mean());
  Eigen::RowVectorXf row_deviations(8);
  for (ek::Index i = 0; i < 8; ++i) row_deviations[i] = deviation(l.row(i));
  print_row("           deviation of each", row_deviations);
}

void show_dropout() {
  ek::Dropout<float> dropout(0.5, {.seed = 1});
  const Matrix ones = Matrix::Ones(1, 10);
  fmt::print("\nDropout(0.5) of ten ones\n");
  print_row("train: 0, or 1 / (1 - 0.5)", dropout.forward(ones, ek::Mode::train).row(0));
  print_row("train again: another mask", dropout.forward(ones, ek::Mode::train).row(0));
  print_row("eval: the identity", dropout.forward(ones, ek::Mode::eval).row(0));
}

struct Examples {
  Matrix x;
  std::vector<int> labels;

  Examples(ek::Index count, ek::RandomStream& random) : x{normal(count, 20, random)} {
    for (ek::Index i = 0; i < count; ++i) labels.push_back(x(i, 0) + x(i, 1) > 0 ? 1 : 0);
  }
};

double accuracy(const Matrix& logits, const std::vector<int>& labels) {
  int right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = static_cast<ek::Index>(i);
    right += (logits(row, 1) > logits(row, 0) ? 1 : 0) == labels[i];
  }
  return right / static_cast<double>(labels.size());
}

void run(std::uint64_t seed, int steps) {
  ek::RandomStream random(seed, ek::stream_of("train_eval"));
  show_what_is_normalized(random);
  show_dropout();

  const Examples train(512, random);
  const Examples test(512, random);
  ek::Sequential net{ek::Linear<float>(20, 64, {.seed = seed}), ek::BatchNorm<float>(64), ek::ReLU<float>(),
                     ek::Dropout<float>(0.3, {.seed = seed}), ek::Linear<float>(64, 2, {.seed = seed + 1})};
  ek::AdamW<float> optimizer(net, {.learning_rate = 1e-2, .weight_decay = 0.01, .decay = ek::Decay::everything});
  ek::SoftmaxCrossEntropy<float> cross_entropy;
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const auto& result = cross_entropy(net.forward(train.x, ek::Mode::train), train.labels);
    net.backward_parameters(train.x, result.gradient);
    optimizer.step();
    loss = result.value;
  }
  fmt::print("\n20-64-2 network on 512 examples after {} steps: loss {:.3f}\n", steps, loss);
  const auto line = [](const char* title, double value) { fmt::print("  {:<50} {:.3f}\n", title, value); };
  line("accuracy on its examples, eval", accuracy(net.infer(train.x), train.labels));
  line("accuracy on 512 new ones, eval", accuracy(net.infer(test.x), test.labels));
  const Matrix first = net.forward(test.x, ek::Mode::train);
  line("the same 512 in train mode", accuracy(first, test.labels));
  const Matrix second = net.forward(test.x, ek::Mode::train);
  line("again in train mode (other masks)", accuracy(second, test.labels));

  const Matrix few = test.x.topRows(16);
  const Matrix eval = ek::softmax(net.infer(few));
  ek::Index unsure = 0;
  (eval.col(1).array() - 0.5f).abs().minCoeff(&unsure);
  const auto probability = [&](const Matrix& logits, ek::Index row) {
    return static_cast<double>(ek::softmax(logits)(row, 1));
  };
  fmt::print("\nProbability of class 1 for one new example of class {}, near the border\n",
             test.labels[static_cast<std::size_t>(unsure)]);
  line("eval, alone", probability(net.infer(few.middleRows(unsure, 1)), 0));
  line("eval, among the 512", probability(net.infer(test.x), unsure));
  line("train mode, among 16", probability(net.forward(few, ek::Mode::train), unsure));
  line("train mode, among 16, again", probability(net.forward(few, ek::Mode::train), unsure));
  line("train mode, among the 512", probability(net.forward(test.x, ek::Mode::train), unsure));

  fmt::print("\nStatistics of one example alone: every feature is its own mean\n");
  const Matrix normalized = examples::normalized_alone<float>(net.layer<0>().infer(test.x.topRows(1)));
  fmt::print("  largest |output| of the BatchNorm kernel: {:.1f}, the example is erased\n",
             static_cast<double>(normalized.cwiseAbs().maxCoeff()));
  try {
    net.forward(test.x.topRows(1), ek::Mode::train);
  } catch (const ek::ShapeError& error) {
    fmt::print("  so the layer refuses: {}\n", error.what());
  }
  fmt::print(
      "\nIn train mode one example gets another answer with other masks and other examples beside it; in eval it does "
      "not.\n"
      "For inference call infer, or forward with Mode::eval.\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 0;
  int steps = 200;
  CLI::App app{"Shows what BatchNorm, LayerNorm and dropout do in training and at inference, on a small network.",
               "train_eval"};
  examples::add_seed(app, seed, "Of the data, the start and the masks");
  app.add_option("--steps", steps, "Training steps, each on all 512 examples")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  return examples::run_program(app, argc, argv, [&] { run(seed, steps); });
}
