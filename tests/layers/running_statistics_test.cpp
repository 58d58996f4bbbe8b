#include "evenkeel/layers/running_statistics.hpp"

#include <algorithm>  // max
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "network/own_layers.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using ek::Index;
using ek::Mode;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

using Matrix = ek::Matrix<double>;
using Layer = ek::BatchNorm<double>;

/// Whether the layers would go on alike.
template <class A>
bool same_statistics(const A& a, const A& b) {
  return compare::same_buffers(a, b) && a.non_finite_statistics() == b.non_finite_statistics();
}

/// Batches of three channels; the second has a NaN in the middle one.
std::vector<Matrix> batches() {
  std::vector<Matrix> result;
  for (std::uint32_t seed = 1; seed <= 3; ++seed) result.push_back(values::random<double>(5, 3, seed));
  result[1](2, 1) = not_a_number;
  return result;
}

const ek::BatchNormOptions options_to_try[] = {{},
                                               {.momentum = std::nullopt},
                                               {.momentum = 0.3, .non_finite = ek::NonFinite::accept},
                                               {.track_running_statistics = false}};

/// A user's layer with running statistics: the largest number it has seen.
struct Largest : own::AddOneInTraining<double> {
  double now = 0, next = 0;

  template <class X, class Y>
  void forward(const X& x, Y&& y, Mode mode) {
    own::AddOneInTraining<double>::forward(x, y, mode);
    if (mode.running_statistics() == ek::RunningStatistics::prepare) next = (std::max)(now, x.maxCoeff());
  }
  void commit_statistics() { now = next; }
  void discard_statistics() { next = now; }
};

/// A layer of one channel whose batch statistics are averages over examples.
struct Averaging : ek::RunningStatisticsBase<double> {
  Averaging() : RunningStatisticsBase("Averaging", 1, {true, 0.1, ek::NonFinite::keep_last_good, Pooling::averages}) {}

  void pool(double count, double mean, double variance) {
    update_statistics({ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::pool}, [=](Index) {
      return BatchStatistics{count, mean, variance};
    });
  }
};

}  // namespace

TEST_CASE("BNS-3: the momentum of Keras and Flax is the weight of the old value", "[running_statistics]") {
  CHECK(ek::momentum_from_keras(0.99) == 1 - 0.99);
  CHECK(ek::momentum_from_keras(0) == 1);
  CHECK(ek::momentum_from_flax(1) == 0);
  CHECK(error_of([] { ek::momentum_from_keras(1.5); }) ==
        "invalid_argument: momentum_from_keras: expected momentum in [0, 1], got 1.5");
  CHECK(error_of([] { ek::momentum_from_flax(not_a_number); }) ==
        "invalid_argument: momentum_from_flax: expected momentum in [0, 1], got nan");
  ek::BatchNorm<double> layer(1, {.momentum = ek::momentum_from_keras(0.75)});
  layer.set_running_statistics(Matrix::Constant(1, 1, 8), Matrix::Constant(1, 1, 4));
  layer.forward(Matrix{{-1}, {1}}, Mode::train);
  CHECK(layer.running_mean()[0] == 0.75 * 8);
  CHECK(layer.running_variance()[0] == 0.75 * 4 + 0.25 * 2);
}

TEST_CASE("A committed batch moves the statistics to the bits that an immediate one gives", "[running_statistics]") {
  for (const auto& options : options_to_try) {
    Layer layer(3, options), immediate(3, options);
    for (const Matrix& x : batches()) {
      const Layer before = layer;
      const Matrix y = layer.forward(x, Mode::train_prepared);
      CHECK(same_statistics(layer, before));
      CHECK(compare::same_bits(layer.infer(Matrix::Ones(2, 3)), before.infer(Matrix::Ones(2, 3))));
      layer.commit_statistics();
      CHECK(compare::same_bits(y, immediate.forward(x, Mode::train)));
      CHECK(same_statistics(layer, immediate));
    }
  }
}

TEST_CASE("A discarded batch is as if it had never been", "[running_statistics]") {
  for (const auto& options : options_to_try) {
    Layer layer(3, options), without(3, options);
    for (const Matrix& x : batches()) {
      layer.forward(3 * x, Mode::train_prepared);
      layer.discard_statistics();
      layer.commit_statistics();
      CHECK(same_statistics(layer, without));
      layer.forward(x, Mode::train_prepared);
      layer.commit_statistics();
      without.forward(x, Mode::train);
      CHECK(same_statistics(layer, without));
    }
  }
}

TEST_CASE("Batches prepared one after another are committed, or discarded, together", "[running_statistics]") {
  for (const auto& options : options_to_try) {
    Layer layer(3, options), immediate(3, options);
    for (const Matrix& x : batches()) {
      layer.forward(x, Mode::train_prepared);
      immediate.forward(x, Mode::train);
    }
    Layer discarded = layer;
    layer.commit_statistics();
    CHECK(same_statistics(layer, immediate));
    layer.commit_statistics();
    CHECK(same_statistics(layer, immediate));
    discarded.discard_statistics();
    discarded.commit_statistics();
    CHECK(same_statistics(discarded, Layer(3, options)));
  }
}

TEST_CASE("Preparing changes neither output nor gradients", "[running_statistics]") {
  Layer layer(3), immediate(3);
  const auto x = values::random<double>(5, 3, 1), dy = values::random<double>(5, 3, 2);
  CHECK(compare::same_bits(layer.forward(x, Mode::train_prepared), immediate.forward(x, Mode::train)));
  layer.commit_statistics();  // between forward and backward
  CHECK(compare::same_bits(layer.backward(dy), immediate.backward(dy)));
  CHECK(compare::same_gradients(layer, immediate));
}

TEST_CASE("Statistics that are moved, set or reset at once discard what was prepared", "[running_statistics]") {
  const auto x = batches();
  Layer moved(3), expected(3);
  moved.forward(x[0], Mode::train_prepared);
  moved.forward(x[2], Mode::train);
  expected.forward(x[2], Mode::train);
  moved.commit_statistics();
  CHECK(same_statistics(moved, expected));

  Layer set(3);
  set.forward(x[0], Mode::train_prepared);
  set.set_running_statistics(Matrix::Constant(1, 3, 5), Matrix::Constant(1, 3, 6));
  set.commit_statistics();
  CHECK(compare::same_bits(set.running_mean(), Matrix::Constant(1, 3, 5)));
  CHECK(set.batches_tracked() == 0);

  Layer reset(3);
  reset.forward(x[0], Mode::train_prepared);
  reset.reset_running_statistics();
  reset.commit_statistics();
  CHECK(same_statistics(reset, Layer(3)));
}

TEST_CASE("An evaluation between does not touch what is prepared", "[running_statistics]") {
  const auto x = batches();
  Layer layer(3), immediate(3);
  layer.forward(x[0], Mode::train_prepared);
  layer.forward(x[2], Mode::eval);
  layer.forward(x[2], Mode::frozen_statistics);
  layer.forward(x[2], {ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::keep});
  layer.commit_statistics();
  immediate.forward(x[0], Mode::train);
  CHECK(same_statistics(layer, immediate));
}

TEST_CASE("With NonFinite::error a batch that cannot be prepared leaves those before it prepared",
          "[running_statistics]") {
  const auto x = batches();
  Layer layer(3, {.non_finite = ek::NonFinite::error}), immediate(3);
  layer.forward(x[0], Mode::train_prepared);
  CHECK(error_of([&] { layer.forward(x[1], Mode::train_prepared); }) ==
        "invalid_argument: BatchNorm::forward: expected finite statistics in every channel, got mean nan and variance "
        "nan in channel 1");
  layer.commit_statistics();
  immediate.forward(x[0], Mode::train);
  CHECK(same_statistics(layer, immediate));
}

TEST_CASE("Views of running statistics stay good when a batch is committed", "[running_statistics]") {
  Layer layer(3);
  const auto buffers = layer.buffers();
  for (const Matrix& x : batches()) {
    layer.forward(x, Mode::train_prepared);
    layer.commit_statistics();
  }
  CHECK(buffers[0].value.data() == layer.running_mean().data());
  CHECK(buffers[1].value.data() == layer.running_variance().data());
  CHECK(*buffers[2].count == 3);
}

TEST_CASE("A copy has what is prepared; a layer cast to another scalar type has not", "[running_statistics]") {
  const auto x = batches();
  Layer layer(3), immediate(3);
  layer.forward(x[0], Mode::train_prepared);
  immediate.forward(x[0], Mode::train);
  Layer copy = layer;
  layer.discard_statistics();
  copy.commit_statistics();
  CHECK(same_statistics(copy, immediate));

  immediate.forward(x[2], Mode::train_prepared);
  auto cast = immediate.cast<float>();
  cast.commit_statistics();
  CHECK(cast.batches_tracked() == 1);
  CHECK(compare::same_bits(cast.running_mean(), immediate.running_mean().cast<float>()));
}

TEST_CASE("A network hands commit and discard on to every layer, those of inner networks and a user's too",
          "[running_statistics]") {
  ek::Sequential net{Layer(3), ek::sequential(ek::Linear<double>(3, 4, {.seed = 1}), Layer(4)), Largest{},
                     ek::Mlp<double>({4, 5, 2}, {.norm = ek::Norm::batch, .seed = 2})};
  auto expected = net;
  const auto x = values::random<double>(6, 3, 1);

  net.forward(10 * x, Mode::train_prepared);
  net.discard_statistics();
  net.commit_statistics();
  CHECK(compare::same_buffers(net, expected));
  CHECK(net.layer<2>().now == 0);

  net.forward(x, Mode::train_prepared);
  expected.forward(x, Mode::train);
  net.commit_statistics();
  CHECK(net.buffers().size() == 9);
  CHECK(compare::same_buffers(net, expected));
  CHECK(net.layer<2>().now > 0);
}

TEST_CASE("Statistics that are averages are pooled to averages, weighted by their counts", "[running_statistics]") {
  Averaging layer;
  layer.pool(1, 2, 4);
  layer.pool(1, not_a_number, 4);
  layer.pool(3, 6, 8);
  layer.commit_statistics();
  CHECK(layer.running_mean()[0] == 5);
  CHECK(layer.running_variance()[0] == 7);
  CHECK(layer.batches_tracked() == 3);
  CHECK(layer.non_finite_statistics() == 1);
}

TEST_CASE("A plain average is over one batch at least, whatever was written into the counter", "[running_statistics]") {
  for (const std::int64_t written : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-5}}) {
    ek::BatchNorm<double> layer(1, {.momentum = std::nullopt});
    for (int i = 0; i < 2; ++i) layer.forward(Matrix{{not_a_number}, {1}}, Mode::train);
    *layer.buffers()[2].count = written;
    layer.forward(Matrix{{2}, {4}}, Mode::train);
    INFO(written);
    CHECK(layer.running_mean()[0] == 3);
    CHECK(layer.running_variance()[0] == 2);
  }
}

TEST_CASE("Counters of batches stay where they are once they can count no further", "[running_statistics]") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  Layer layer(1);
  *layer.buffers()[2].count = most - 1;
  layer.training_state()[0].values[0] = static_cast<std::uint64_t>(most - 1);
  for (int i = 0; i < 3; ++i) layer.forward(Matrix{{not_a_number}, {1}}, Mode::train);
  CHECK(layer.batches_tracked() == most);
  CHECK(layer.non_finite_statistics() == most);
  layer.forward(Matrix{{2}, {4}}, Mode::train_prepared);
  layer.commit_statistics();
  CHECK(layer.batches_tracked() == most);
}

TEST_CASE("With NonFinite::error a network's first statistics have moved when a later layer throws, unless prepared",
          "[running_statistics]") {
  ek::Sequential net{ek::BatchNorm<double>(3), ek::BatchNorm<double>(3, {.non_finite = ek::NonFinite::error})};
  const auto before = net;
  const Matrix x = batches()[1];
  CHECK_FALSE(error_of([&] { net.forward(x, Mode::train_prepared); }).empty());
  net.discard_statistics();
  CHECK(compare::same_buffers(net, before));
  CHECK(net.layer<0>().non_finite_statistics() == 0);
  CHECK_FALSE(error_of([&] { net.forward(x, Mode::train); }).empty());
  CHECK(net.layer<0>().batches_tracked() == 1);
  CHECK(net.layer<1>().batches_tracked() == 0);
}
