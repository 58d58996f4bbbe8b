#include "evenkeel/training/recompute_statistics.hpp"

#include <Eigen/SparseCore>
#include <cmath>  // isnan
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "figures/figures.hpp"
#include "layers/reference.hpp"
#include "network/own_layers.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using ek::Index;
using ek::Mode;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

using Matrix = ek::Matrix<double>;
using Batches = std::vector<Matrix>;

/// Rows of x, so many at a time.
Batches divided(const Matrix& x, const std::vector<Index>& sizes) {
  Batches result;
  Index first = 0;
  for (const Index size : sizes) {
    result.push_back(x.middleRows(first, size));
    first += size;
  }
  return result;
}

/// Channels with means and deviations of their own.
Matrix data(Index rows, Index columns) {
  Matrix x = values::random<double>(rows, columns, 1);
  for (Index j = 0; j < columns; ++j) x.col(j).array() = x.col(j).array() * static_cast<double>(j + 1) + 10;
  return x;
}

auto network() {
  return ek::Sequential{ek::Linear<double>(3, 4, {.seed = 1}), ek::BatchNorm<double>(4), ek::Dropout<double>(0.5),
                        ek::sequential(ek::Linear<double>(4, 6, {.seed = 2}), ek::BatchNorm<double>(2, 3))};
}

}  // namespace

TEST_CASE("Recomputed statistics are those of all values together", "[recompute_statistics]") {
  ek::BatchNorm<double> layer(1);
  const Batches batches = divided(Matrix{{1}, {3}, {4}, {6}, {8}}, {2, 3});
  ek::recompute_statistics(layer, batches);
  CHECK(layer.running_mean()[0] == Catch::Approx(22.0 / 5).epsilon(1e-15));
  CHECK(layer.running_variance()[0] == Catch::Approx(29.2 / 4).epsilon(1e-15));  // averaged: (2 + 4) / 2
  CHECK(layer.batches_tracked() == 2);
}

TEMPLATE_TEST_CASE("Recomputed statistics do not depend on how the rows are divided", "[recompute_statistics]", double,
                   float) {
  const ek::Matrix<TestType> x = (data(60, 6).array() + 1000).matrix().template cast<TestType>();
  const auto expected = reference::channel_statistics(reference::exact(x), 3);
  for (const Index batch_size : {2, 7, 59, 60, 1000}) {
    INFO("batches of " << batch_size);
    ek::BatchNorm<TestType> layer(2, 3, {.momentum = 0.7});
    ek::recompute_statistics(layer, x, batch_size);
    CHECK(compare::difference(layer.running_mean(), expected.mean) <= compare::epsilon<TestType>);
    // The merges are in double, where means of 1000 are that much coarser.
    CHECK(compare::difference(layer.running_variance(), expected.unbiased) <=
          compare::epsilon<TestType> + 1000 * compare::epsilon<double>);
  }
}

TEST_CASE("In a network they are PyTorch's, pooled; update_bn averages them", "[recompute_statistics]") {
  const figures::Figures expected("recomputed_statistics");
  const auto net = [&](ek::BatchNormOptions options) {
    ek::Sequential result{ek::Linear<double>(3, 4), ek::BatchNorm<double>(4, options), ek::ReLU<double>(),
                          ek::Linear<double>(4, 6), ek::BatchNorm<double>(2, 3, options)};
    for (auto& parameter : result.parameters())
      if (expected.has(parameter.name)) parameter.value = expected[parameter.name];
    return result;
  };
  const Batches batches{expected["x0"], expected["x1"], expected["x2"]};
  auto pooled = net({});
  ek::recompute_statistics(pooled, batches);
  auto averaged = net({.momentum = std::nullopt});
  for (const Matrix& x : batches) averaged.forward(x, Mode::train);
  const auto check = [&](const auto& layer, const std::string& name) {
    CHECK(figures::difference(layer.running_mean(), expected[name + ".mean"]) <= 1e-14);
    CHECK(figures::difference(layer.running_variance(), expected[name + ".variance"]) <= 1e-14);
    CHECK(layer.batches_tracked() == 3);
  };
  check(pooled.layer<1>(), "0");
  check(pooled.layer<4>(), "1");
  check(averaged.layer<1>(), "0.update_bn");
  check(averaged.layer<4>(), "1.update_bn");
}

TEST_CASE("Recomputing draws no masks and leaves parameters and gradients", "[recompute_statistics]") {
  auto net = network();
  const Matrix x = data(12, 3);
  net.forward(x, Mode::train);
  net.backward(values::random<double>(12, 6, 2));
  auto before = net;
  ek::recompute_statistics(net, x, 4);
  CHECK(compare::same_values(net, before));
  CHECK(compare::same_gradients(net, before));
  CHECK(!compare::same_buffers(net, before));
  CHECK(compare::same_bits(net.forward(x, Mode::train), before.forward(x, Mode::train)));  // the same masks
}

TEST_CASE("What throws while statistics are recomputed leaves them as they were", "[recompute_statistics]") {
  auto net = network();
  const Matrix x = data(12, 3);
  net.forward(x, Mode::train);
  auto before = net;
  const auto check = [&](const std::string& expected, const auto& recompute) {
    CHECK(error_of(recompute) == expected);
    CHECK(compare::same_buffers(net, before));
    net.commit_statistics();
    CHECK(compare::same_buffers(net, before));
  };
  check("ShapeError: Linear::forward (layer 0): expected input of shape (batch, 3), got (4, 2)", [&] {
    ek::recompute_statistics(net, Batches{x, x, x.topLeftCorner(4, 2)});
  });
  check("invalid_argument: recompute_statistics: expected batches >= 1, got 0",
        [&] { ek::recompute_statistics(net, Batches{}); });
  check("invalid_argument: recompute_statistics: expected batch_size >= 1, got 0",
        [&] { ek::recompute_statistics(net, x, 0); });
  check("invalid_argument: recompute_statistics: expected rows >= 1, got 0",
        [&] { ek::recompute_statistics(net, x.topRows(0), 4); });
}

TEST_CASE("With NonFinite::error no batch may be without finite statistics", "[recompute_statistics]") {
  ek::BatchNorm<double> layer(3, {.non_finite = ek::NonFinite::error});
  const auto before = layer;
  Matrix x = data(8, 3);
  x(7, 2) = not_a_number;
  CHECK(error_of([&] { ek::recompute_statistics(layer, x, 4); }) ==
        "invalid_argument: BatchNorm::forward: expected finite statistics in every channel, got mean nan and variance "
        "nan in channel 2");
  layer.commit_statistics();
  CHECK(compare::same_buffers(layer, before));
}

TEST_CASE("A channel leaves out batches that are not finite, and keeps what it had where none are left",
          "[recompute_statistics]") {
  Matrix x = data(12, 3);
  x(5, 1) = not_a_number;
  for (const Index row : {0, 6, 11}) x(row, 2) = -std::numeric_limits<double>::infinity();
  ek::BatchNorm<double> layer(3, {.momentum = std::nullopt});
  layer.set_running_statistics(Matrix::Constant(1, 3, 5), Matrix::Constant(1, 3, 6));
  for (int time = 0; time < 2; ++time) ek::recompute_statistics(layer, x, 4);  // each counts anew

  Matrix left(8, 1);
  left << x.col(1).head(4), x.col(1).tail(4);
  const auto first = reference::channel_statistics(reference::exact(x.col(0)), 1);
  const auto second = reference::channel_statistics(reference::exact(left), 1);
  CHECK(compare::difference(layer.running_mean(), Matrix{{static_cast<double>(first.mean(0, 0)),
                                                          static_cast<double>(second.mean(0, 0)), 5}}) < 1e-15);
  CHECK(compare::difference(layer.running_variance(), Matrix{{static_cast<double>(first.unbiased(0, 0)),
                                                              static_cast<double>(second.unbiased(0, 0)), 6}}) < 1e-15);
  CHECK(layer.batches_tracked() == 3);
  CHECK(layer.non_finite_statistics() == 4);

  // In the plain average each channel goes on from as many batches as it has taken: 3, 2 and none.
  const Matrix mean = layer.running_mean();
  layer.forward(Matrix{{0, 0, 0}, {2, 2, 2}}, Mode::train);
  CHECK(compare::difference(layer.running_mean(), Matrix{{(3 * mean(0, 0) + 1) / 4, (2 * mean(0, 1) + 1) / 3, 1}}) <
        1e-15);

  ek::BatchNorm<double> accepting(3, {.non_finite = ek::NonFinite::accept});
  ek::recompute_statistics(accepting, x, 4);
  CHECK(std::isnan(accepting.running_mean()[1]));
  CHECK(std::isnan(accepting.running_variance()[2]));
  CHECK(accepting.non_finite_statistics() == 5);  // the NaN stays in channel 1
}

TEST_CASE("Means too far apart for float's variance are left out, though each batch is finite",
          "[recompute_statistics]") {
  ek::BatchNorm<float> layer(1), strict(1, {.non_finite = ek::NonFinite::error});
  const std::vector<ek::Matrix<float>> batches{ek::Matrix<float>{{0}, {2}}, ek::Matrix<float>{{1e30f}, {1e30f}}};
  ek::recompute_statistics(layer, batches);
  CHECK(layer.running_mean()[0] == 1);
  CHECK(layer.running_variance()[0] == 2);
  CHECK(layer.non_finite_statistics() == 1);
  CHECK(error_of([&] { ek::recompute_statistics(strict, batches); }) ==
        "invalid_argument: BatchNorm::forward: expected finite statistics in every channel, got mean 5.00000008e+29 "
        "and variance 3.33333343e+59 in channel 0");
  CHECK(strict.batches_tracked() == 0);
}

TEST_CASE("An InstanceNorm gets the averages of the statistics of all examples", "[recompute_statistics]") {
  const Matrix x = data(9, 6);
  ek::Sequential net{ek::InstanceNorm<double>(2, 3, {.track_running_statistics = true})};
  ek::recompute_statistics(net, x, 4);
  reference::Numbers mean = reference::Numbers::Zero(1, 2), variance = mean;
  for (Index i = 0; i < 9; ++i) {
    const auto of_example = reference::channel_statistics(reference::exact(x.row(i)), 3);
    mean += of_example.mean / 9;
    variance += of_example.unbiased / 9;
  }
  CHECK(compare::difference(net.layer<0>().running_mean(), mean) <= 4 * compare::epsilon<double>);
  CHECK(compare::difference(net.layer<0>().running_variance(), variance) <= 4 * compare::epsilon<double>);
  CHECK(net.layer<0>().batches_tracked() == 2);
}

TEST_CASE("An InstanceNorm passes over a batch without examples, whatever it does with numbers that are not finite",
          "[recompute_statistics]") {
  for (const ek::NonFinite non_finite : {ek::NonFinite::keep_last_good, ek::NonFinite::error, ek::NonFinite::accept}) {
    ek::Sequential net{ek::InstanceNorm<double>(2, 3, {.track_running_statistics = true, .non_finite = non_finite})};
    auto other = net;
    ek::recompute_statistics(net, std::vector<Matrix>{Matrix(0, 6), data(4, 6), Matrix(0, 6)});
    ek::recompute_statistics(other, std::vector<Matrix>{data(4, 6)});
    CHECK(compare::same_buffers(net, other));
  }
}

TEST_CASE("A last row that would be alone joins the batch before it", "[recompute_statistics]") {
  auto net = network();
  ek::recompute_statistics(net, data(9, 3), 4);
  CHECK(net.layer<1>().batches_tracked() == 2);
  ek::recompute_statistics(net, data(10, 3), 4);
  CHECK(net.layer<1>().batches_tracked() == 3);
  CHECK(error_of([&] { ek::recompute_statistics(net, data(9, 3), 1); }).substr(0, 104) ==
        "ShapeError: BatchNorm::forward (layer 1): expected more than one value per channel to take statistics of");
}

TEST_CASE("Recomputing discards what was prepared, and leaves nothing to commit", "[recompute_statistics]") {
  auto net = network(), other = network();
  const Matrix x = data(12, 3);
  net.forward(3 * x, Mode::train_prepared);
  ek::recompute_statistics(net, x, 4);
  ek::recompute_statistics(other, x, 4);
  CHECK(compare::same_buffers(net, other));
  net.forward(3 * x, {ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::pool});
  ek::recompute_statistics(net, x, 4);
  ek::recompute_statistics(other, x, 4);
  CHECK(compare::same_buffers(net, other));
  net.commit_statistics();
  CHECK(compare::same_buffers(net, other));
}

TEST_CASE("Statistics are recomputed in an Mlp, beside a user's layer, from sparse input, and where there are none",
          "[recompute_statistics]") {
  Matrix x = data(12, 3);
  for (Index i = 0; i < 12; ++i) x(i, i % 3) = 0;
  const ek::Mlp<double> mlp({3, 5, 2}, {.norm = ek::Norm::batch, .dropout = 0.5, .seed = 1});
  auto dense = mlp, sparse = mlp;
  ek::recompute_statistics(dense, x, 5);
  ek::recompute_statistics(sparse, Eigen::SparseMatrix<double>(x.sparseView()), 5);
  REQUIRE(dense.buffers().size() == 3);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(compare::difference(sparse.buffers()[i].value, dense.buffers()[i].value) < 1e-14);
  const std::vector<Eigen::SparseMatrix<double, Eigen::RowMajor>> all{x.sparseView()};
  ek::recompute_statistics(sparse, all);
  CHECK(*sparse.buffers()[2].count == 1);

  ek::Sequential net{own::AddOneInTraining<double>(), ek::BatchNorm<double>(3)};
  ek::recompute_statistics(net, x, 5);
  CHECK(compare::difference(net.layer<1>().running_mean(), x.colwise().mean()) < 1e-15);

  own::AddOneInTraining<double> none;
  CHECK_NOTHROW(ek::recompute_statistics(none, x, 5));
}
