#include "evenkeel/layers/instance_norm.hpp"

#include <cmath>  // sqrt
#include <limits>
#include <optional>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"

namespace ek = evenkeel;
using ek::Index;
using Matrix = ek::Matrix<double>;

TEST_CASE("GRP-5: one position has no statistics, whatever the batch; tracked ones serve eval", "[instance_norm]") {
  for (const bool tracks : {false, true})
    for (const Index rows : {1, 2}) {
      ek::InstanceNorm<double> layer(3, 1, {.track_running_statistics = tracks});
      const Matrix x = values::random<double>(rows, 3, 1);
      CHECK(
          error_of([&] { layer.forward(x, ek::Mode::train); }) ==
          "ShapeError: InstanceNorm::forward: expected more than one position per channel to take statistics of, got 1 "
          "from input of shape (" +
              std::to_string(rows) + ", 3); use BatchNorm, or running statistics (Mode::eval)");
      if (tracks) {
        CHECK(layer.running_mean() == Matrix::Zero(1, 3));
        CHECK(layer.batches_tracked() == 0);
        CHECK(compare::difference(layer.forward(x, ek::Mode::eval), Matrix(x / std::sqrt(1 + 1e-5))) <= 1e-15);
      } else {
        CHECK(error_of([&] { layer.infer(x); }).find("ShapeError: InstanceNorm::infer: expected more than one") == 0);
      }
    }
}

TEST_CASE("MODE-3: without tracked statistics every mode takes the example's own", "[instance_norm]") {
  ek::InstanceNorm<double> layer(1, 2);
  const Matrix x{{0, 2}, {10, 14}};
  const Matrix expected{{-0.99999500, 0.99999500}, {-0.99999875, 0.99999875}};
  CHECK(compare::difference(layer.forward(x, ek::Mode::train), expected) <= 1e-8);
  CHECK(compare::difference(layer.forward(x, ek::Mode::eval), expected) <= 1e-8);
  CHECK(compare::difference(layer.infer(x), expected) <= 1e-8);
}

TEST_CASE("MODE-3: with tracked statistics eval takes these for every example", "[instance_norm]") {
  ek::InstanceNorm<double> layer(1, 2, {.track_running_statistics = true});
  const Matrix x{{0, 2}, {10, 14}};
  CHECK(compare::difference(layer.forward(x, ek::Mode::train),
                            Matrix{{-0.99999500, 0.99999500}, {-0.99999875, 0.99999875}}) <= 1e-8);
  CHECK(layer.running_mean()[0] == Catch::Approx(0.65).epsilon(1e-14));
  CHECK(layer.running_variance()[0] == Catch::Approx(1.4).epsilon(1e-14));
  const Matrix expected{{-0.5493483, 1.1409542}};
  CHECK(compare::difference(layer.forward(x.row(0), ek::Mode::eval), expected) <= 1e-7);
  CHECK(compare::difference(layer.infer(x).row(0), expected) <= 1e-7);
}

TEST_CASE("Running statistics move by the average over examples of their means and unbiased variances",
          "[instance_norm]") {
  ek::InstanceNorm<double> layer(2, 3, {.track_running_statistics = true});
  Matrix x(2, 6);
  x << 1, 2, 3, 0, 0, 6,  // means 2 and 2, unbiased variances 1 and 12
      4, 4, 4, 1, 3, 8;   // means 4 and 4, variances 0 and 13
  layer.forward(x, ek::Mode::train);
  Matrix mean(1, 2), variance(1, 2);
  mean << 0.1 * 3, 0.1 * 3;
  variance << 0.9 + 0.1 * 0.5, 0.9 + 0.1 * 12.5;
  CHECK(compare::difference(layer.running_mean(), mean) <= 1e-15);
  CHECK(compare::difference(layer.running_variance(), variance) <= 1e-15);
  CHECK(layer.batches_tracked() == 1);

  layer.forward(x, ek::Mode::eval);
  layer.infer(x);
  layer.forward(x, ek::Mode::frozen_statistics);
  CHECK(compare::difference(layer.running_mean(), mean) <= 1e-15);
  CHECK(layer.batches_tracked() == 1);

  layer.forward(x, ek::Mode::train_prepared);
  CHECK(layer.batches_tracked() == 1);
  layer.commit_statistics();
  CHECK(layer.batches_tracked() == 2);
  CHECK(compare::difference(layer.running_mean(), Matrix(mean * 1.9)) <= 1e-15);

  ek::InstanceNorm<double> average(2, 3, {.momentum = std::nullopt, .track_running_statistics = true});
  average.forward(x, ek::Mode::train);
  average.forward(3 * x, ek::Mode::train);
  CHECK(compare::difference(average.running_mean(), Matrix::Constant(1, 2, 6)) <= 1e-15);
}

TEST_CASE("A forward without examples leaves the running statistics alone", "[instance_norm]") {
  ek::InstanceNorm<double> layer(2, 3, {.track_running_statistics = true});
  CHECK(layer.forward(Matrix(0, 6), ek::Mode::train).rows() == 0);
  CHECK(layer.backward(Matrix(0, 6)).rows() == 0);
  CHECK(layer.batches_tracked() == 0);
  CHECK(layer.running_variance() == Matrix::Ones(1, 2));
}

TEST_CASE("Statistics that are not finite are kept out of the running ones, are an error, or are accepted",
          "[instance_norm]") {
  Matrix x = values::random<double>(2, 6, 1);
  x(1, 4) = std::numeric_limits<double>::infinity();
  ek::InstanceNorm<double> keeps(2, 3, {.track_running_statistics = true});
  keeps.forward(x, ek::Mode::train);
  CHECK(keeps.running_mean()[1] == 0);
  CHECK(keeps.running_mean()[0] != 0);
  CHECK(keeps.non_finite_statistics() == 1);

  ek::InstanceNorm<double> refuses(2, 3, {.track_running_statistics = true, .non_finite = ek::NonFinite::error});
  const std::string error = error_of([&] { refuses.forward(x, ek::Mode::train); });
  CHECK(error.find("invalid_argument: InstanceNorm::forward: expected finite statistics in every channel, got mean ") ==
        0);
  CHECK(error.find("nan in channel 1") != std::string::npos);
  CHECK(refuses.running_mean() == Matrix::Zero(1, 2));

  ek::InstanceNorm<double> accepts(2, 3, {.track_running_statistics = true, .non_finite = ek::NonFinite::accept});
  accepts.forward(x, ek::Mode::train);
  CHECK_FALSE(accepts.running_mean().allFinite());
}

TEST_CASE("InstanceNorm tells its sizes, and has PyTorch's defaults: nothing to learn, nothing tracked",
          "[instance_norm]") {
  ek::InstanceNorm<float> layer(4, 5);
  CHECK(layer.channels() == 4);
  CHECK(layer.positions() == 5);
  CHECK(layer.epsilon() == 1e-5);
  CHECK(layer.input_features() == 20);
  CHECK(layer.output_features(20) == 20);
  CHECK(layer.parameters().empty());
  CHECK(layer.buffers().empty());
  CHECK(ek::InstanceNorm<float>(4, 5, {.affine = true}).parameters()[0].value == ek::Matrix<float>::Ones(1, 4));
  CHECK(error_of([] { ek::InstanceNorm<float> none(0, 5); }) ==
        "invalid_argument: InstanceNorm: expected channels >= 1, got 0");
  CHECK(error_of([] { ek::InstanceNorm<float> none(4, 0); }) ==
        "invalid_argument: InstanceNorm: expected positions >= 1, got 0");
  CHECK(error_of([] { ek::InstanceNorm<float> none(4, 5, {.epsilon = -1}); }) ==
        "invalid_argument: InstanceNorm: expected a finite epsilon > 0, got -1");
  CHECK(error_of([] { ek::InstanceNorm<float> none(4, Index{1} << 62); }) ==
        "invalid_argument: InstanceNorm: expected channels x positions of at most 9223372036854775807, got 4 x "
        "4611686018427387904");
}
