// After the first round of calls nothing allocates, by any allocator: layers, networks, losses, optimizers.

#include "allocation/counter.hpp"

#include <Eigen/SparseCore>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // pair
#include <vector>

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/contract_check.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/residual.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/network/transformer.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/clip.hpp"
#include "evenkeel/training/loss.hpp"
#include "evenkeel/training/sgd.hpp"

namespace ek = evenkeel;

namespace {

/// Which calls asked for memory, and how often.
class Report {
 public:
  template <class Code>
  void run(const char* call, const Code& code) {
    const long requests = allocation::count(code);
    if (counts_ && requests != 0) text_ += call + (": " + std::to_string(requests)) + "; ";
  }
  void count_from_now() { counts_ = true; }
  bool counts() const { return counts_; }
  const std::string& text() const { return text_; }

 private:
  bool counts_ = false;
  std::string text_;
};

/// The sizes of the first round, in which memory may be taken, of row-major data; and of the second, in which not.
constexpr std::array first_round = {16, 128, 5};
constexpr std::array second_round = {16, 5, 16, 128, 16};

/// A batch in both storage orders, with the gradient of the output.
template <typename Scalar>
struct Batch {
  ek::Matrix<Scalar> x, dy, y, dx;
  Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic> x_columns, dy_columns, y_columns, dx_columns;

  Batch(Eigen::Index rows, Eigen::Index in, Eigen::Index out)
      : x{values::random<Scalar>(rows, in, 1)},
        dy{values::random<Scalar>(rows, out, 2)},
        y{rows, out},
        dx{rows, in},
        x_columns{x},
        dy_columns{dy},
        y_columns{rows, out},
        dx_columns{rows, in} {}
};

/// All that can be called on a layer or network, in the order of a training step; as maps, so that both storage orders are
/// the same types.
template <class Layer, typename Scalar = typename Layer::Scalar>
void call_everything(Report& report, Layer& layer, ek::Workspace<Scalar>& workspace, ek::StridedMap<const Scalar> x,
                     ek::StridedMap<const Scalar> dy, ek::StridedMap<Scalar> y, ek::StridedMap<Scalar> dx) {
  for (const ek::Mode mode : {ek::Mode::train, ek::Mode::train_prepared, ek::Mode::eval}) {
    report.run("forward(x, y, mode)", [&] { layer.forward(x, y, mode); });
    report.run("infer(x, y, workspace)", [&] { layer.infer(x, y, workspace); });
    report.run("backward(x, dy, dx)", [&] { layer.backward(x, dy, dx); });
    report.run("backward_parameters(x, dy)", [&] { layer.backward_parameters(x, dy, ek::Accumulate::yes); });
    report.run("forward(x, mode)", [&] { layer.forward(x, mode); });
    report.run("backward(dy)", [&] { layer.backward(dy); });
    if constexpr (requires { layer.commit_statistics(); })
      report.run("commit_statistics()", [&] { layer.commit_statistics(); });
    if (x.cols() != y.cols()) continue;
    dx = x;
    report.run("in-place forward", [&] { layer.forward(dx, dx, mode); });
    y = dy;
    report.run("in-place backward", [&] { layer.backward(dx, y, y); });
    report.run("in-place infer", [&] { layer.infer(dx, dx, workspace); });
  }
}

template <typename Scalar>
using ConstMap = ek::StridedMap<const Scalar>;

template <typename Scalar, class M>
ConstMap<Scalar> read(const M& matrix) {
  return ek::as_map(ek::detail::view_of<const Scalar>(matrix.data(), matrix));
}
template <typename Scalar, class M>
ek::StridedMap<Scalar> write(M& matrix) {
  return ek::as_map(ek::detail::view_of<Scalar>(matrix.data(), matrix));
}

/// What a layer's calls ask for in the second round.
template <class Layer>
std::string requests_of(Layer layer, Eigen::Index in = 40, int rows_each = 1) {
  using Scalar = typename Layer::Scalar;
  const Eigen::Index out = layer.output_features(in);
  Report report;
  ek::Workspace<Scalar> workspace;
  const auto round = [&](const auto& sizes) {
    for (const int size : sizes) {
      Batch<Scalar> batch(size * rows_each, in, out);
      call_everything(report, layer, workspace, read<Scalar>(batch.x), read<Scalar>(batch.dy), write<Scalar>(batch.y),
                      write<Scalar>(batch.dx));
      if (!report.counts()) continue;
      call_everything(report, layer, workspace, read<Scalar>(batch.x_columns), read<Scalar>(batch.dy_columns),
                      write<Scalar>(batch.y_columns), write<Scalar>(batch.dx_columns));
    }
  };
  round(first_round);
  report.count_from_now();
  round(second_round);
  return report.text();
}

/// y = x, by a matrix of its own.
template <typename Scalar_>
struct CopiesItsInput {
  using Scalar = Scalar_;

  template <class X, class Y>
  void forward(const X& x, Y&& y, ek::Mode) {
    const ek::Matrix<Scalar> own = x;
    y = own;
  }
  template <class X, class DY, class DX>
  void backward(const X&, const DY& dy, DX&& dx) {
    dx = dy;
  }
  template <class X, class Y>
  void infer(const X& x, Y&& y, ek::Workspace<Scalar>&) const {
    y = x;
  }
  ek::Index output_features(ek::Index features) const { return features; }
};

}  // namespace

// The counter.

TEST_CASE("The counter sees every way to ask for memory", "[allocation]") {
  std::vector<int> vector;
  CHECK(allocation::count([&] { vector.resize(100); }) == 1);
  CHECK(allocation::count([&] { vector.clear(); }) == 0);
  Eigen::MatrixXd matrix;
  CHECK(allocation::count([&] { matrix.resize(10, 10); }) == 1);
  struct alignas(64) Wide {
    double numbers[8];
  };
  std::unique_ptr<Wide> wide;
  CHECK(allocation::count([&] { wide = std::make_unique<Wide>(); }) == 1);

  void* volatile memory = nullptr;  // volatile: else the compiler leaves the pairs out
  CHECK(allocation::count([&] { memory = std::malloc(10); }) == 1);
  CHECK(allocation::count([&] { memory = std::realloc(memory, 1000); }) == 1);
  CHECK(allocation::count([&] { std::free(memory); }) == 0);
  CHECK(allocation::count([&] { memory = std::calloc(10, 10); }) == 1);
  std::free(memory);
  CHECK(allocation::count([&] { memory = aligned_alloc(64, 128); }) == 1);
  std::free(memory);
  CHECK(allocation::count([&] { memory = memalign(64, 128); }) == 1);
  std::free(memory);
  void* aligned = nullptr;
  CHECK(allocation::count([&] { CHECK(posix_memalign(&aligned, 64, 128) == 0); }) >= 1);
  std::free(aligned);
}

TEST_CASE("The report names the calls that ask for memory in the second round", "[allocation]") {
  Report report;
  std::vector<int> vector;
  report.run("first", [&] { vector.resize(10); });
  report.count_from_now();
  report.run("none", [&] { vector.resize(5); });
  report.run("second", [&] { vector.resize(100); });
  CHECK(report.text() == "second: 1; ");
}

TEST_CASE("check_contract sees what the counter sees", "[allocation]") {
  const auto x = values::random<double>(6, 4, 1);
  const ek::ContractOptions options{.allocations = [] { return allocation::requests; }};
  CHECK(ek::check_contract(ek::Dropout<double>(0.5), x, options).lines[7].verdict == ek::ContractVerdict::pass);
  CHECK(ek::check_contract(CopiesItsInput<double>(), x, options).lines[7].detail ==
        "train, row-major, forward: expected 0 allocations, got 1");
}

// Layers.

TEMPLATE_TEST_CASE("Norms do not allocate after the first round", "[allocation]", float, double, long double) {
  CHECK(requests_of(ek::BatchNorm<TestType>(40)) == "");
  CHECK(requests_of(ek::BatchNorm<TestType>(8, 5)) == "");
  CHECK(requests_of(ek::LayerNorm<TestType>(40)) == "");
  CHECK(requests_of(ek::RMSNorm<TestType>(40)) == "");
}

TEMPLATE_TEST_CASE("Linear layers do not allocate after the first round", "[allocation]", float, double, long double) {
  CHECK(requests_of(ek::Linear<TestType>(40, 40)) == "");
  CHECK(requests_of(ek::Linear<TestType>(40, 66)) == "");
  CHECK(requests_of(ek::Linear<TestType>(140, 3), 140) == "");  // deeper than a block of the product
}

TEMPLATE_TEST_CASE("Dropout and activations do not allocate after the first round", "[allocation]", float, double,
                   long double) {
  CHECK(requests_of(ek::Dropout<TestType>(0.5)) == "");
  CHECK(requests_of(ek::AlphaDropout<TestType>(0.5)) == "");
  CHECK(requests_of(ek::SpatialDropout<TestType>(0.5, 8, 5)) == "");
  CHECK(requests_of(ek::ReLU<TestType>()) == "");
  CHECK(requests_of(ek::LeakyReLU<TestType>()) == "");
  CHECK(requests_of(ek::GELU<TestType>()) == "");
  CHECK(requests_of(ek::SiLU<TestType>()) == "");
  CHECK(requests_of(ek::Tanh<TestType>()) == "");
  CHECK(requests_of(ek::Sigmoid<TestType>()) == "");
}

TEST_CASE("Residual connections do not allocate after the first round", "[allocation]") {
  const auto branch = ek::sequential(ek::Linear<float>(40, 50), ek::ReLU<float>(), ek::Linear<float>(50, 40));
  for (const auto place : {ek::NormPlace::before, ek::NormPlace::after})
    CHECK(requests_of(ek::Residual(ek::LayerNorm<float>(40), branch, {.norm = place, .dropout = 0.1})) == "");
  CHECK(requests_of(ek::PreNormStack(ek::RMSNorm<float>(40), {.dropout = 0.1}, branch, ek::ReLU<float>())) == "");
}

TEST_CASE("A Transformer block does not allocate after the first round", "[allocation]") {
  for (const auto place : {ek::NormPlace::before, ek::NormPlace::after})
    CHECK(requests_of(ek::TransformerBlock<float>(40, 4, 50, 3, {.norm = place}), 40, 3) == "");
}

TEST_CASE("Dropout keeps no more than one bit an element, but for a few words", "[allocation]") {
  for (const auto& [rows, columns] : {std::pair(1, 1), std::pair(64, 1), std::pair(1000, 7), std::pair(300, 391)}) {
    const ek::Matrix<float> x = values::random<float>(rows, columns, 1);
    ek::Matrix<float> y(rows, columns), dx(rows, columns);
    ek::Dropout<float> layer(0.5), none(0), eval(0.5);
    const auto bytes = allocation::bytes([&] {
      layer.forward(x, y, ek::Mode::train);
      layer.backward(x, y, dx);
    });
    CHECK(bytes.most <= x.size() / 8 + 256);
    CHECK(allocation::bytes([&] { none.forward(x, y, ek::Mode::train); }).most == 0);
    CHECK(allocation::bytes([&] { eval.forward(x, y, ek::Mode::eval); }).most == 0);
  }
}

TEST_CASE("Sparse input does not allocate after the first round", "[allocation]") {
  const auto sparse = [](Eigen::Index rows, std::uint32_t seed) {
    ek::Matrix<float> x = values::random<float>(rows, 40, seed);
    for (Eigen::Index i = 0; i < rows; ++i) x.row(i).tail(30 + i % 5).setZero();
    return Eigen::SparseMatrix<float, Eigen::RowMajor>(x.sparseView());
  };
  ek::Mlp<float> network({40, 16, 4}, {.norm = ek::Norm::layer, .dropout = 0.5});
  ek::Workspace<float> workspace;
  Report report;
  const auto round = [&](const auto& sizes) {
    for (const int rows : sizes) {
      const auto x = sparse(rows, 1);
      const ek::Matrix<float> dy = values::random<float>(rows, 4, 2);
      ek::Matrix<float> y(rows, 4), dx(rows, 40);
      report.run("forward(x, y, mode)", [&] { network.forward(x, y, ek::Mode::train); });
      report.run("infer(x, y, workspace)", [&] { network.infer(x, y, workspace); });
      report.run("backward(x, dy, dx)", [&] { network.backward(x, dy, dx); });
      report.run("backward_parameters(x, dy)", [&] { network.backward_parameters(x, dy); });
      report.run("forward(x, mode)", [&] { network.forward(x, ek::Mode::train); });
      report.run("backward(dy)", [&] { network.backward(dy); });
    }
  };
  round(first_round);
  report.count_from_now();
  round(second_round);
  CHECK(report.text() == "");
}

// Networks and training.

TEST_CASE("A Sequential, with a network in it, does not allocate after the first round", "[allocation]") {
  CHECK(requests_of(ek::Sequential{
            ek::Dropout<float>(0.2), ek::Linear<float>(40, 30), ek::BatchNorm<float>(10, 3),
            ek::sequential(ek::GELU<float>(), ek::Linear<float>(30, 50), ek::LayerNorm<float>(50), ek::SiLU<float>()),
            ek::Dropout<float>(0.5), ek::Linear<float>(50, 40)}) == "");
}

TEMPLATE_TEST_CASE("A training step of an Mlp does not allocate after the first", "[allocation]", float, double) {
  using Scalar = TestType;
  const ek::Norm norm = GENERATE(ek::Norm::none, ek::Norm::batch, ek::Norm::layer, ek::Norm::rms);
  ek::Mlp<Scalar> net({391, 64, 64, 4}, {.norm = norm, .dropout = 0.5, .seed = 3});
  ek::SoftmaxCrossEntropy<Scalar> cross_entropy({.label_smoothing = 0.1});
  ek::MeanSquaredError<Scalar> squares;
  ek::BinaryCrossEntropy<Scalar> binary;
  ek::SGD<Scalar> sgd(net, {.momentum = 0.9});
  ek::Adam<Scalar> adam(net, {.weight_decay = 0.1, .amsgrad = true});
  ek::AdamW<Scalar> adamw(net);
  const auto parameters = net.parameters();
  ek::Workspace<Scalar> workspace;
  Report report;

  const auto steps = [&](const auto& x, Batch<Scalar>& batch, const std::vector<int>& labels) {
    const ek::Matrix<Scalar>* logits = nullptr;
    const ek::Matrix<Scalar>* gradient = nullptr;
    report.run("forward(x, mode)", [&] { logits = &net.forward(x, ek::Mode::train); });
    report.run("MeanSquaredError", [&] { squares(*logits, batch.dy); });
    report.run("BinaryCrossEntropy", [&] { binary(*logits, batch.dy); });
    report.run("SoftmaxCrossEntropy", [&] { gradient = &cross_entropy(*logits, labels).gradient; });
    report.run("backward_parameters", [&] { net.backward_parameters(x, *gradient); });
    report.run("backward(dy)", [&] { net.backward(*gradient); });
    report.run("clip_gradient_norm", [&] { ek::clip_gradient_norm(parameters, 0.1); });
    report.run("SGD", [&] { sgd.step(0.5); });
    report.run("Adam", [&] { adam.step(); });
    report.run("AdamW", [&] { adamw.step(); });
    report.run("forward(x, y, mode)", [&] { net.forward(x, batch.y, ek::Mode::train); });
    report.run("backward(x, dy, dx)", [&] { net.backward(x, batch.dy, batch.dx); });
    report.run("infer(x, y, workspace)", [&] { net.infer(x, batch.y, workspace); });
    report.run("reseed", [&] { net.reseed(1); });
  };
  const auto round = [&](const auto& sizes) {
    for (const int rows : sizes) {
      Batch<Scalar> batch(rows, 391, 4);
      std::vector<int> labels;
      for (int i = 0; i < rows; ++i) labels.push_back(i % 4);
      steps(batch.x, batch, labels);
      if (report.counts() && rows != 5) steps(batch.x_columns, batch, labels);
    }
  };
  round(first_round);
  report.count_from_now();
  round(second_round);
  CHECK(report.text() == "");
}
