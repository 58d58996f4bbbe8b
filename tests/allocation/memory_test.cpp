// What layers and networks hold between calls, in bytes: a few numbers a row or a feature, and never a copy of an input that
// somebody else keeps.

#include "allocation/counter.hpp"

#include <algorithm>  // max, min
#include <cstddef>    // size_t
#include <cstdlib>    // malloc, realloc, free
#include <initializer_list>
#include <vector>

#include "catch.hpp"
#include "core/values.hpp"
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

namespace ek = evenkeel;

namespace {

constexpr long rows = 1024;
constexpr long features = 64;

/// Each of some buffers may be rounded up.
constexpr long slack = 1024;

template <typename Number>
constexpr long bytes_of(long count) {
  return count * static_cast<long>(sizeof(Number));
}

/// How many sums over parts of a batch are held side by side: parts of 32768 elements, at most 16 of them.
constexpr long parts(long batch, long columns) { return (std::min)(16L, (std::max)(1L, batch * columns / 32768)); }

/// What a layer holds beyond its parameters.
struct Figures {
  long forward;   // after a training forward
  long backward;  // after the backward that follows
};

/// What the layer takes with the pair that keeps no copies.
template <class Layer>
Figures measured(Layer layer) {
  using Scalar = typename Layer::Scalar;
  const ek::Matrix<Scalar> x = values::random<Scalar>(rows, features, 1);
  const ek::Matrix<Scalar> dy = values::random<Scalar>(rows, layer.output_features(features), 2);
  ek::Matrix<Scalar> y(dy.rows(), dy.cols()), dx(x.rows(), x.cols());
  const allocation::Bytes forward = allocation::bytes([&] { layer.forward(x, y, ek::Mode::train); });
  const allocation::Bytes backward = allocation::bytes([&] { layer.backward(x, dy, dx); });
  CHECK(forward.most == forward.after);  // nothing is held for the length of a call
  CHECK(backward.most == backward.after);
  const allocation::Bytes again = allocation::bytes([&] {
    layer.forward(x, y, ek::Mode::train);
    layer.backward(x, dy, dx);
  });
  CHECK(again.most == 0);
  return {forward.after, forward.after + backward.after};
}

template <class Layer>
void check_figures(const Layer& layer, Figures documented) {
  INFO(Layer::name);
  const Figures figures = measured(layer);
  CHECK(figures.forward <= documented.forward + slack);
  CHECK(figures.backward <= documented.backward + slack);
}

/// What a network holds beyond its layers and what they hold: the outputs of all layers but the last, and two
/// gradients as wide as the widest of them.
template <typename Scalar>
long between_layers(long batch, std::initializer_list<long> widths) {
  long sum = 0, widest = 0;
  for (const long width : widths) {
    sum += width;
    widest = (std::max)(widest, width);
  }
  return bytes_of<Scalar>(batch * (sum + 2 * widest));
}

/// The most that training steps take, of each of the two pairs.
struct Peaks {
  long primitive, stand_alone;
};

template <class Network>
Peaks peaks_of(const Network& prototype, long batch, long in, long out) {
  using Scalar = typename Network::Scalar;
  const ek::Matrix<Scalar> x = values::random<Scalar>(batch, in, 1);
  const ek::Matrix<Scalar> dy = values::random<Scalar>(batch, out, 2);
  ek::Matrix<Scalar> y(batch, out), dx(batch, in);
  Peaks peaks{};
  {
    Network network = prototype;
    const auto step = [&] {
      network.forward(x, y, ek::Mode::train);
      network.backward(x, dy, dx);
      network.backward_parameters(x, dy);
    };
    peaks.primitive = allocation::bytes(step).most;
    CHECK(allocation::bytes(step).most == 0);
  }
  Network network = prototype;
  peaks.stand_alone = allocation::bytes([&] {
                        network.forward(x, ek::Mode::train);
                        network.backward(dy);
                      }).most;
  return peaks;
}

}  // namespace

// The counter.

TEST_CASE("The counter sees what is held after a piece of code and at most within it", "[memory]") {
  void* volatile kept = nullptr;  // volatile: else the compiler leaves the pairs out
  const allocation::Bytes bytes = allocation::bytes([&] {
    kept = std::malloc(10000);
    void* volatile passing = std::malloc(80000);
    std::free(passing);
  });
  CHECK(bytes.after >= 10000);
  CHECK(bytes.after < 10000 + slack);
  CHECK(bytes.most >= 90000);
  CHECK(allocation::bytes([&] { std::free(kept); }).after == -bytes.after);

  void* volatile memory = nullptr;
  CHECK(allocation::bytes([&] { memory = std::malloc(1000); }).after >= 1000);
  CHECK(allocation::bytes([&] { memory = std::realloc(memory, 5000); }).after >= 4000 - slack);
  CHECK(allocation::bytes([&] { std::free(memory); }).after <= -5000);
  CHECK(allocation::bytes([&] { memory = std::calloc(100, 50); }).after >= 5000);
  std::free(memory);
  CHECK(allocation::bytes([&] { memory = aligned_alloc(64, 6400); }).after >= 6400);
  std::free(memory);
}

// Layers.

TEMPLATE_TEST_CASE("Norms of rows hold some numbers a row, and after backward sums a feature", "[memory]", float,
                   double, long double) {
  using Scalar = TestType;
  const long sums = bytes_of<ek::Wide<Scalar>>(parts(rows, features) * 4 * features);
  const long mean_residual_and_deviation = bytes_of<Scalar>(3 * rows), root = bytes_of<Scalar>(rows);
  check_figures(ek::LayerNorm<Scalar>(features), {mean_residual_and_deviation, mean_residual_and_deviation + sums});
  check_figures(ek::RMSNorm<Scalar>(features), {root, root + sums});
}

TEMPLATE_TEST_CASE("BatchNorm holds some numbers a channel and nothing a row", "[memory]", float, double, long double) {
  using Scalar = TestType;
  const auto figures = [](long channels) {
    const long numbers = bytes_of<Scalar>(6 * channels);
    const long sums_a_part = (parts(rows, features) + 1) * features;
    const long moments = bytes_of<ek::Wide<Scalar>>(3 * sums_a_part);
    return Figures{numbers + moments, numbers + moments + bytes_of<ek::Wide<Scalar>>(2 * sums_a_part)};
  };
  check_figures(ek::BatchNorm<Scalar>(features), figures(features));
  check_figures(ek::BatchNorm<Scalar>(features / 4, 4), figures(features / 4));
}

TEMPLATE_TEST_CASE("Linear holds nothing, and after backward one sum an output", "[memory]", float, double,
                   long double) {
  using Scalar = TestType;
  check_figures(ek::Linear<Scalar>(features, 2 * features), {0, bytes_of<ek::Wide<Scalar>>(2 * features)});
}

TEMPLATE_TEST_CASE("Dropout holds at most one bit an element", "[memory]", float, double, long double) {
  constexpr long bits = rows * features / 8 + 4096;
  check_figures(ek::Dropout<TestType>(0.5), {bits, bits});
  check_figures(ek::AlphaDropout<TestType>(0.5), {bits, bits});
}

TEMPLATE_TEST_CASE("SpatialDropout holds one number a channel of each row", "[memory]", float, double, long double) {
  const long factors = bytes_of<TestType>(rows * features / 8) + 4096;
  check_figures(ek::SpatialDropout<TestType>(0.5, features / 8, 8), {factors, factors});
}

TEMPLATE_TEST_CASE("Activations hold nothing", "[memory]", float, double, long double) {
  const auto check = [](const auto& layer) {
    const Figures figures = measured(layer);
    CHECK(figures.forward == 0);
    CHECK(figures.backward == 0);
  };
  check(ek::ReLU<TestType>());
  check(ek::LeakyReLU<TestType>());
  check(ek::GELU<TestType>());
  check(ek::SiLU<TestType>());
  check(ek::Tanh<TestType>());
  check(ek::Sigmoid<TestType>());
}

TEST_CASE("Stand-alone calls hold the input, the output and the input's gradient beside", "[memory]") {
  ek::LayerNorm<float> layer(features);
  const ek::Matrix<float> x = values::random<float>(rows, features, 1);
  const long matrix = bytes_of<float>(rows * features);
  const long sums = bytes_of<double>(parts(rows, features) * 4 * features);
  const allocation::Bytes forward = allocation::bytes([&] { layer.forward(x, ek::Mode::train); });
  CHECK(forward.most <= 2 * matrix + bytes_of<float>(3 * rows) + slack);
  const allocation::Bytes backward = allocation::bytes([&] { layer.backward(x); });
  CHECK(backward.most <= matrix + sums + slack);
}

TEST_CASE("infer holds nothing but what its workspace keeps", "[memory]") {
  const ek::Mlp<float> network({64, 64, 64, 4}, {.norm = ek::Norm::layer, .dropout = 0.5});
  const ek::Matrix<float> x = values::random<float>(rows, 64, 1);
  ek::Matrix<float> y(rows, 4);
  ek::Workspace<float> workspace;
  const long two_matrices = bytes_of<float>(2 * rows * 64);
  CHECK(allocation::bytes([&] { network.infer(x, y, workspace); }).after <= two_matrices + slack);
  CHECK(allocation::bytes([&] { network.infer(x, y, workspace); }).most == 0);
}

// Networks.

TEMPLATE_TEST_CASE("A training step of an Mlp takes the activations between its layers and two gradients", "[memory]",
                   float, double) {
  using Scalar = TestType;
  constexpr long batch = 256, in = 100, hidden = 48, narrow = 16, out = 4;
  const ek::Norm norm = GENERATE(ek::Norm::none, ek::Norm::batch, ek::Norm::layer, ek::Norm::rms);
  const ek::Mlp<Scalar> network({in, hidden, narrow, out}, {.norm = norm, .dropout = 0.5});

  const bool normed = norm != ek::Norm::none;
  const long between =
      normed ? between_layers<Scalar>(batch, {hidden, hidden, hidden, hidden, narrow, narrow, narrow, narrow})
             : between_layers<Scalar>(batch, {hidden, hidden, hidden, narrow, narrow, narrow});
  long inside = 2 * (batch * (hidden + narrow) / 8);  // bits of masks
  for (const long width : {hidden, narrow}) {
    const long parts_and_result = parts(batch, width) + 1;
    if (norm == ek::Norm::batch) inside += bytes_of<double>(5 * parts_and_result * width) + bytes_of<Scalar>(6 * width);
    if (norm == ek::Norm::layer || norm == ek::Norm::rms)
      inside += bytes_of<double>(4 * parts_and_result * width) + bytes_of<Scalar>(3 * batch);
  }
  const long few = bytes_of<double>(hidden + narrow + out) + 2 * slack;

  const Peaks peaks = peaks_of(network, batch, in, out);
  CHECK(peaks.primitive <= between + inside + few);
  CHECK(peaks.stand_alone <= between + inside + few + bytes_of<Scalar>(batch * (2 * in + out)));
}

TEST_CASE("A network in a network takes its own activations and gradients, and no copy of its input", "[memory]") {
  constexpr long batch = 256;
  const ek::Sequential network{
      ek::Linear<float>(40, 60),
      ek::sequential(ek::GELU<float>(), ek::Linear<float>(60, 50), ek::LayerNorm<float>(50), ek::SiLU<float>()),
      ek::RMSNorm<float>(50), ek::Linear<float>(50, 40)};
  const long between = between_layers<float>(batch, {60, 50, 50}) + between_layers<float>(batch, {60, 50, 50});
  const long inside = bytes_of<float>((3 + 1) * batch) + bytes_of<double>(2 * 4 * parts(batch, 50) * 50);
  const long few = bytes_of<double>(60 + 50 + 40) + 2 * slack;
  CHECK(peaks_of(network, batch, 40, 40).primitive <= between + inside + few);
}
