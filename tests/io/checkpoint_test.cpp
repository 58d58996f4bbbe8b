#include "evenkeel/io/checkpoint.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/batches.hpp"
#include "evenkeel/training/loss.hpp"
#include "evenkeel/training/sgd.hpp"
#include "io/bytes.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;

namespace {

const ek::Matrix<float> examples = values::random<float>(22, 5, 1);

auto make_net() {
  return ek::Sequential{ek::Linear<float>(5, 8, {.seed = 1}), ek::BatchNorm<float>(8, {.momentum = std::nullopt}),
                        ek::ReLU<float>(), ek::Dropout<float>(0.4, {.seed = 7}), ek::Linear<float>(8, 2, {.seed = 2})};
}
using Net = decltype(make_net());

/// A network, its optimizer and the order of its examples.
template <class Optimizer>
struct Run {
  Net net = make_net();
  Optimizer optimizer;
  ek::Batches batches{examples.rows(), 4, {.seed = 3, .drop_last = true}};
  ek::SoftmaxCrossEntropy<float> loss;

  explicit Run(const typename Optimizer::Options& options = {}) : optimizer(net, options) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto numbers = batches.next();
      ek::Matrix<float> x(static_cast<ek::Index>(numbers.size()), examples.cols());
      std::vector<int> labels;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        x.row(static_cast<ek::Index>(i)) = examples.row(numbers[i]);
        labels.push_back(examples(numbers[i], 0) > 0 ? 1 : 0);
      }
      if (optimizer.steps() == 1) x(0, 0) = std::numeric_limits<float>::quiet_NaN();  // which BatchNorm leaves out
      net.backward_parameters(x, loss(net.forward(x, ek::Mode::train), labels).gradient);
      if (optimizer.steps() == 1)
        for (auto& parameter : net.parameters()) parameter.gradient.setConstant(0.5F);
      optimizer.step();
    }
  }
};

template <class Optimizer>
bool same_state(const Optimizer& a, const Optimizer& b) {
  const auto of_a = a.state();
  const auto of_b = b.state();
  bool same = of_a.steps == of_b.steps && of_a.moments.size() == of_b.moments.size();
  for (std::size_t i = 0; same && i < of_a.moments.size(); ++i)
    same = of_a.moments[i].name == of_b.moments[i].name &&
           compare::same_bits(of_a.moments[i].value, of_b.moments[i].value);
  return same;
}

template <class Optimizer>
bool same_run(const Run<Optimizer>& a, const Run<Optimizer>& b) {
  const auto& state = [](const Run<Optimizer>& run) {
    std::vector<std::uint64_t> numbers;
    for (const auto& each : run.net.training_state())
      numbers.insert(numbers.end(), each.values.begin(), each.values.end());
    return numbers;
  };
  return compare::same_values(a.net, b.net) && compare::same_buffers(a.net, b.net) && state(a) == state(b) &&
         same_state(a.optimizer, b.optimizer) && a.batches.taken() == b.batches.taken();
}

/// Whether 13 steps in a row end with the bits of 7, a stop and 6.
template <class Optimizer>
void check_resumed(const typename Optimizer::Options& options) {
  const bytes::Folder folder;
  Run<Optimizer> straight(options);
  straight.train(13);

  Run<Optimizer> stopped(options);
  stopped.train(7);
  ek::save_checkpoint(folder / "run", stopped.net, stopped.optimizer, stopped.batches);
  Run<Optimizer> resumed(options);
  resumed.net.reseed(99);
  resumed.train(3);  // whatever it was before
  ek::load_checkpoint(folder / "run", resumed.net, resumed.optimizer, resumed.batches);
  CHECK(same_run(resumed, stopped));
  resumed.train(6);
  CHECK(resumed.net.template layer<1>().non_finite_statistics() > 0);
  CHECK(same_run(resumed, straight));
}

}  // namespace

TEST_CASE("A run that is stopped and resumed gives the bits of one that ran through", "[checkpoint]") {
  check_resumed<ek::AdamW<float>>({.learning_rate = 1e-2, .weight_decay = 0.1, .amsgrad = true});
  check_resumed<ek::Adam<float>>({.learning_rate = 1e-2});
  check_resumed<ek::SGD<float>>({.learning_rate = 1e-2, .momentum = 0.9, .nesterov = true});
  check_resumed<ek::SGD<float>>({.learning_rate = 1e-2});
}

TEST_CASE("A checkpoint's names are the documented ones, its shapes PyTorch's", "[checkpoint]") {
  const bytes::Folder folder;
  Run<ek::AdamW<float>> run;
  run.train(7);
  ek::save_checkpoint(folder / "run", run.net, run.optimizer, run.batches);
  const ek::SafetensorsFile file(folder / "run");
  CHECK(file.tensors().size() == 9 + 3 + 1 + 2 * 6 + 1);
  CHECK(file.at("model.0.weight").shape == ek::TensorShape{8, 5});
  CHECK(file.at("optimizer.0.weight.exp_avg").shape == ek::TensorShape{8, 5});
  CHECK(file.at("optimizer.1.weight.exp_avg_sq").shape == ek::TensorShape{8});
  CHECK(file.at("training.1.non_finite").shape == ek::TensorShape{8});
  const auto number = [&](const char* name) { return ek::detail::number_at<std::int64_t>(file.at(name).bytes, 0); };
  CHECK(number("optimizer.step") == 7);
  CHECK(number("batches.taken") == 7);
  CHECK(number("training.3.seed") == 7);
  CHECK(number("training.3.call") == 7);
}

TEST_CASE("A checkpoint's weights can be read alone", "[checkpoint]") {
  const bytes::Folder folder;
  Run<ek::AdamW<float>> run;
  run.train(3);
  ek::save_checkpoint(folder / "run", run.net, run.optimizer);
  Net net = make_net();
  ek::load_safetensors(folder / "run", net, {.prefix = "model."});
  CHECK(compare::same_values(net, run.net));
  CHECK(compare::same_buffers(net, run.net));
}

TEST_CASE("A checkpoint of a network alone keeps its random numbers", "[checkpoint]") {
  const bytes::Folder folder;
  Net net = make_net();
  net.forward(examples, ek::Mode::train);
  ek::save_checkpoint(folder / "net", net);
  Net other = make_net();
  ek::load_checkpoint(folder / "net", other);
  CHECK(compare::same_bits(other.forward(examples, ek::Mode::train), net.forward(examples, ek::Mode::train)));
}

TEMPLATE_TEST_CASE("A run of halves goes on from a checkpoint with the same bits", "[checkpoint]", Eigen::half,
                   Eigen::bfloat16) {
  const bytes::Folder folder;
  const auto make = [] {
    return ek::Sequential{ek::Linear<TestType>(5, 8, {.seed = 1}), ek::BatchNorm<TestType>(8), ek::ReLU<TestType>(),
                          ek::Dropout<TestType>(0.4, {.seed = 7}), ek::Linear<TestType>(8, 2, {.seed = 2})};
  };
  const ek::Matrix<TestType> x = examples.cast<TestType>();
  const ek::Matrix<TestType> dy = values::random<float>(x.rows(), 2, 2).template cast<TestType>();
  const auto train = [&](auto& net, auto& optimizer) {
    for (int step = 0; step < 3; ++step) {
      net.forward(x, ek::Mode::train);
      net.backward(dy);
      optimizer.step();
    }
  };
  auto net = make(), other = make();
  ek::AdamW<float> optimizer(net), other_optimizer(other);
  train(net, optimizer);
  ek::save_checkpoint(folder / "run", net, optimizer);
  ek::load_checkpoint(folder / "run", other, other_optimizer);
  CHECK(compare::same_values(other, net));
  train(net, optimizer);
  train(other, other_optimizer);
  CHECK(compare::same_values(other, net));
  CHECK(compare::same_buffers(other, net));
  CHECK(same_state(other_optimizer, optimizer));
}

TEST_CASE("A layer that accepts statistics that are not finite goes on from a checkpoint that has them",
          "[checkpoint]") {
  const bytes::Folder folder;
  for (const float spoiler : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ek::Sequential net{ek::BatchNorm<float>(5, {.non_finite = ek::NonFinite::accept}), ek::ReLU<float>()};
    auto other = net;
    ek::Matrix<float> x = examples;
    x(0, 0) = spoiler;
    net.forward(x, ek::Mode::train);
    ek::save_checkpoint(folder / "net", net);
    ek::load_checkpoint(folder / "net", other);
    CHECK(compare::same_buffers(other, net));
    CHECK(other.layer<0>().non_finite_statistics() == 1);
    ek::Sequential keeps{ek::BatchNorm<float>(5), ek::ReLU<float>()};
    CHECK(error_of([&] { ek::load_checkpoint(folder / "net", keeps); }).find(": expected finite ") !=
          std::string::npos);
  }
}

TEST_CASE("A checkpoint that does not fit changes nothing anywhere", "[checkpoint]") {
  const bytes::Folder folder;
  Run<ek::AdamW<float>> run;
  run.train(3);
  ek::save_checkpoint(folder / "run", run.net, run.optimizer, run.batches);
  const ek::SafetensorsFile file(folder / "run");

  Run<ek::AdamW<float>> fresh, other;
  const auto check_refused = [&](const ek::SafetensorsFile& wrong, const std::string& message) {
    CHECK(error_of([&] { ek::load_checkpoint(wrong, other.net, other.optimizer, other.batches); }) ==
          "FormatError: " + message);
    CHECK(same_run(other, fresh));
  };
  /// The file with a tensor of other content.
  const auto with = [&](const std::string& name, auto number) {
    const bytes::Bytes content = bytes::of({number});
    std::vector<ek::Tensor> tensors = file.tensors();
    for (ek::Tensor& tensor : tensors)
      if (tensor.name == name) tensor.bytes = content;
    return ek::SafetensorsFile(ek::safetensors_bytes(tensors), "f");
  };
  check_refused(with("optimizer.step", std::int64_t{-1}),
                "f: tensor \"optimizer.step\": expected whole numbers from 0 to 9223372036854775807, got -1");
  check_refused(with("training.3.call", std::uint64_t{0xFFFFFFFF}),
                "f: tensor \"training.3.call\": expected whole numbers from 0 to 4294967294, got 4294967295");
  check_refused(with("batches.taken", std::int64_t{5} << 32),
                "f: tensor \"batches.taken\": expected whole numbers from 0 to 21474836479, got 21474836480");
  check_refused(with("batches.taken", std::int64_t{-2}),
                "f: tensor \"batches.taken\": expected whole numbers from 0 to 21474836479, got -2");

  std::vector<ek::Tensor> fewer = file.tensors();
  std::erase_if(fewer, [](const ek::Tensor& tensor) { return tensor.name == "optimizer.4.bias.exp_avg"; });
  check_refused(ek::SafetensorsFile(ek::safetensors_bytes(fewer), "f"),
                "f: expected the 26 tensors that are to be loaded; missing: \"optimizer.4.bias.exp_avg\"; unexpected: "
                "none");

  Run<ek::SGD<float>> sgd({.momentum = 0.9});
  CHECK_THROWS_AS(ek::load_checkpoint(file, sgd.net, sgd.optimizer, sgd.batches), ek::FormatError);
}
