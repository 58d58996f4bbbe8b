// Is every backward pass right?
//
//   build/release/examples/grad_check
//
// Compares the gradients of every layer, of whole networks with each norm, and of every loss with finite differences:
// how many elements, the largest relative error |numeric - analytic| / (|numeric| + |analytic|), how many elements are true
// zeros (a bias before BatchNorm, a dropped place) or sit at a kink (ReLU at 0), and the verdict. Takes no time.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <string>

#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/core/random.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/attention.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/residual.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/network/transformer.hpp"
#include "evenkeel/training/loss.hpp"
#include "examples/support/program.hpp"

namespace ek = evenkeel;
using Matrix = ek::Matrix<double>;

namespace {

/// Prints one row for each check.
class Table {
 public:
  explicit Table(std::uint64_t seed) : random_(seed, ek::stream_of("grad_check")) {
    fmt::print("{:<44} {:>8} {:>12} {:>6} {:>6}   {}\n", "", "elements", "error", "zeros", "kinks", "verdict");
  }

  Matrix normal(ek::Index rows, ek::Index columns) {
    Matrix x(rows, columns);
    for (ek::Index i = 0; i < x.size(); ++i) x.data()[i] = random_.normal();
    return x;
  }

  /// A layer by itself, on 6 examples, its parameters moved off their start.
  template <class Layer>
  void layer(const std::string& name, Layer layer, ek::Index features, ek::Mode mode = ek::Mode::train) {
    layer.forward(normal(16, features), ek::Mode::train);  // running statistics that are not 0 and 1
    if constexpr (requires { layer.parameters(); })
      for (auto& parameter : layer.parameters())
        for (ek::Index i = 0; i < parameter.size(); ++i) parameter.flat_value()[i] += 0.3 * random_.normal();
    row(name, ek::check_gradients(layer, normal(6, features), mode, {.tolerance = tolerance}));
  }

  /// ReLU with one input at its kink.
  void kink(const std::string& name) {
    Matrix x = normal(6, 6);
    x(2, 3) = 0;
    row(name, ek::check_gradients(ek::ReLU<double>(), x, ek::Mode::train, {.tolerance = tolerance}));
  }

  /// A 5-8-8-4 network under a softmax cross-entropy, on 6 examples.
  void network(const std::string& name, ek::MlpOptions options, ek::Mode mode = ek::Mode::train) {
    ek::Mlp<double> network({5, 8, 8, 4}, options);
    network.forward(normal(16, 5), ek::Mode::train);
    const std::array labels = {0, 1, 2, 3, 0, 1};
    row(name, ek::check_gradients(network, ek::SoftmaxCrossEntropy<double>(), normal(6, 5), labels, mode,
                                  {.tolerance = tolerance}));
  }

  /// A linear layer under the loss.
  template <class Loss, class Targets>
  void loss(const std::string& name, const Loss& loss, const Targets& targets) {
    row(name, ek::check_gradients(ek::Linear<double>(5, 3), loss, normal(6, 5), targets, ek::Mode::train,
                                  {.tolerance = tolerance}));
  }

  /// Exit code: 0 if every check passed.
  int finish() const {
    fmt::print(
        "\nerror: largest relative error of a derivative. zeros: derivatives that are truly 0. kinks: places without "
        "a\n"
        "derivative, where any value between the slopes of both sides passes.\n");
    if (failed_ > 0) fmt::print("{} of the checks did not pass\n", failed_);
    return failed_ > 0 ? 1 : 0;
  }

 private:
  static constexpr double tolerance = 1e-8;

  void row(const std::string& name, const ek::GradientReport& report) {
    fmt::print("{:<44} {:>8} {:>12.1e} {:>6} {:>6}   {}\n", name, report.elements(), report.largest_relative_error(),
               report.zeros(), report.kinks(), ek::to_string(report.verdict));
    if (!report) ++failed_;
  }

  ek::RandomStream random_;
  int failed_ = 0;
};

int run(std::uint64_t seed) {
  Table table(seed);
  table.network("network, no norm", {.seed = seed});
  table.network("network, layer norm", {.norm = ek::Norm::layer, .seed = seed});
  table.network("network, rms norm", {.norm = ek::Norm::rms, .seed = seed});
  table.network("network, group norm", {.norm = ek::Norm::group, .groups = 2, .seed = seed});
  table.network("network, batch norm in training", {.norm = ek::Norm::batch, .seed = seed});
  table.network("network, batch norm frozen", {.norm = ek::Norm::batch, .seed = seed}, ek::Mode::frozen_statistics);
  table.network("network, dropout 0.5", {.dropout = 0.5, .seed = seed});
  table.network("network, batch norm and dropout on all",
                {.norm = ek::Norm::batch, .dropout = 0.3, .input_dropout = 0.1, .seed = seed});

  table.layer("BatchNorm in training", ek::BatchNorm<double>(6), 6);
  table.layer("BatchNorm frozen", ek::BatchNorm<double>(6), 6, ek::Mode::frozen_statistics);
  table.layer("BatchNorm, 3 channels x 4 positions", ek::BatchNorm<double>(3, 4), 12);
  table.layer("LayerNorm", ek::LayerNorm<double>(6), 6);
  table.layer("RMSNorm", ek::RMSNorm<double>(6), 6);
  table.layer("RMSNorm, unit offset", ek::RMSNorm<double>(6, {.unit_offset = true}), 6);
  table.layer("GroupNorm, 2 groups of 3 features", ek::GroupNorm<double>(2, 6), 6);
  table.layer("GroupNorm, 2 groups of 2 channels x 3", ek::GroupNorm<double>(2, 4, 3), 12);
  table.layer("InstanceNorm, 3 channels x 4 positions", ek::InstanceNorm<double>(3, 4, {.affine = true}), 12);
  table.layer("InstanceNorm frozen", ek::InstanceNorm<double>(3, 4, {.affine = true, .track_running_statistics = true}),
              12, ek::Mode::frozen_statistics);
  table.layer("Linear", ek::Linear<double>(6, 4), 6);
  table.layer("Dropout 0.3", ek::Dropout<double>(0.3), 6);
  table.layer("AlphaDropout 0.3", ek::AlphaDropout<double>(0.3), 6);
  table.layer("SpatialDropout 0.3, 3 channels x 2 positions", ek::SpatialDropout<double>(0.3, 3, 2), 6);
  const ek::Sequential branch{ek::Linear<double>(6, 5, {.seed = 1}), ek::Tanh<double>(),
                              ek::Linear<double>(5, 6, {.seed = 2})};
  table.layer("Residual, LayerNorm before, dropout 0.3",
              ek::Residual(ek::LayerNorm<double>(6), branch, {.dropout = 0.3}), 6);
  table.layer("Residual, RMSNorm after, dropout 0.3",
              ek::Residual(ek::RMSNorm<double>(6), branch, {.norm = ek::NormPlace::after, .dropout = 0.3}), 6);
  table.layer("PreNormStack of two, dropout 0.3",
              ek::PreNormStack(ek::LayerNorm<double>(6), {.dropout = 0.3}, branch, ek::GELU<double>()), 6);
  table.layer("Causal attention, dropout 0.3", ek::CausalSelfAttention<double>(6, 2, 2, {.dropout = 0.3}), 6);
  table.layer("TransformerBlock, norms before", ek::TransformerBlock<double>(6, 2, 8, 2), 6);
  table.layer("TransformerBlock, norms after", ek::TransformerBlock<double>(6, 2, 8, 2, {.norm = ek::NormPlace::after}),
              6);
  table.layer("ReLU", ek::ReLU<double>(), 6);
  table.kink("ReLU, one input at 0");
  table.layer("LeakyReLU", ek::LeakyReLU<double>(), 6);
  table.layer("GELU, exact", ek::GELU<double>(), 6);
  table.layer("GELU, tanh", ek::GELU<double>(ek::GeluForm::tanh), 6);
  table.layer("SiLU", ek::SiLU<double>(), 6);
  table.layer("Tanh", ek::Tanh<double>(), 6);
  table.layer("Sigmoid", ek::Sigmoid<double>(), 6);

  const std::array labels = {0, 1, 2, 2, 1, 0};
  table.loss("SoftmaxCrossEntropy", ek::SoftmaxCrossEntropy<double>(), labels);
  table.loss("SoftmaxCrossEntropy, smoothing 0.1", ek::SoftmaxCrossEntropy<double>({.label_smoothing = 0.1}), labels);
  table.loss("MeanSquaredError", ek::MeanSquaredError<double>(), table.normal(6, 3));
  table.loss("BinaryCrossEntropy", ek::BinaryCrossEntropy<double>(),
             Matrix((table.normal(6, 3).array() > 0).cast<double>()));
  return table.finish();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 0;
  CLI::App app{"Compares every backward pass with finite differences.", "grad_check"};
  examples::add_seed(app, seed, "Of inputs, parameters and masks");
  return examples::run_program(app, argc, argv, [&] { return run(seed); });
}
