#include "evenkeel/layers/alpha_dropout.hpp"

#include <cmath>    // abs, sqrt
#include <cstdint>  // uint64_t
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/core/random.hpp"
#include "evenkeel/layers/dropout.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<double>;

/// Standard normal numbers.
Matrix normal(Index rows, Index columns, std::uint64_t seed) {
  ek::RandomStream random(seed, ek::stream_of("test"));
  Matrix x(rows, columns);
  for (Index k = 0; k < x.size(); ++k) x.data()[k] = random.normal();
  return x;
}

/// The different outputs that a constant input gives: what a dropped and what a kept element becomes, in order of size.
std::vector<double> outputs_of(double p, double x) {
  ek::AlphaDropout<double> layer(p, {.seed = 5});
  const Matrix y = layer.forward(Matrix::Constant(20, 50, x), ek::Mode::train);
  const std::set<double> values(y.data(), y.data() + y.size());
  return {values.begin(), values.end()};
}

void check_outputs(double p, double x, const std::vector<double>& expected) {
  INFO("p = " << p << ", x = " << x);
  const auto outputs = outputs_of(p, x);
  REQUIRE(outputs.size() == expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k)
    CHECK(std::abs(outputs[k] - expected[k]) <= 4 * compare::epsilon<double> * std::abs(expected[k]));
}

}  // namespace

// Made by torch.unique(torch.nn.functional.alpha_dropout(torch.full((2000,), x, dtype=torch.float64), p, True)) of PyTorch
// 1.13; these p are multiples of 2^-16.
TEST_CASE("Kept and dropped elements become what PyTorch makes of them", "[alpha_dropout]") {
  check_outputs(0.25, 0, {-1.1435441882094726, 0.38118139606982421});
  check_outputs(0.25, 1, {-1.1435441882094726, 1.2484393199277575});
  check_outputs(0.25, -3, {-2.2205923755039754, -1.1435441882094726});
  check_outputs(0.5, 0, {-0.77919393051803154, 0.77919393051803154});
  check_outputs(0.5, 1, {-0.77919393051803154, 1.6655988251839635});
  check_outputs(0.5, -3, {-1.8800207534797642, -0.77919393051803154});
  check_outputs(0.75, 0, {-0.48257311127431213, 1.4477193338229362});
  check_outputs(0.75, 1, {-0.48257311127431213, 2.5456620952182494});
  check_outputs(0.75, -3, {-1.846108950363003, -0.48257311127431213});
}

TEST_CASE("p is rounded to a multiple of 2^-16: beside PyTorch's outputs that is less than 1e-4", "[alpha_dropout]") {
  const auto outputs = outputs_of(0.1, 1);
  REQUIRE(outputs.size() == 2);
  CHECK(std::abs(outputs[0] - -1.457738730518132) < 1e-4);
  CHECK(std::abs(outputs[1] - 1.0832554862072818) < 1e-4);
}

TEST_CASE("Alpha dropout keeps mean and variance of standard normal inputs", "[alpha_dropout]") {
  for (const double p : {0.05, 0.1, 0.5, 0.9}) {
    INFO("p = " << p);
    ek::AlphaDropout<double> layer(p, {.seed = 8});
    const Matrix y = layer.forward(normal(500, 400, 3), ek::Mode::train);
    const auto n = static_cast<double>(y.size());
    const double mean = y.mean();
    const double variance = (y.array() - mean).square().sum() / (n - 1);
    const double fourth = (y.array() - mean).pow(4).mean();
    // Five standard deviations of a mean and of a variance of 200000 numbers.
    CHECK(std::abs(mean) < 5 / std::sqrt(n));
    CHECK(std::abs(variance - 1) < 5 * std::sqrt((fourth - 1) / n));
  }
}

TEST_CASE("DRP-2: p is alpha dropout's probability to drop", "[alpha_dropout]") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    INFO("seed " << seed);
    const auto dropped = [seed](double p, Index rows) {
      ek::AlphaDropout<double> layer(p, {.seed = seed});
      const Matrix& y = layer.forward(Matrix::Constant(rows, 1000, 5), ek::Mode::train);
      return (y.array() < 0).count();  // 5 is kept as a positive number
    };
    CHECK(dropped(0.001, 100) >= 60);
    CHECK(dropped(0.001, 100) <= 140);
    CHECK(dropped(0.9, 10) >= 8880);
    CHECK(dropped(0.9, 10) <= 9120);
  }
}

TEST_CASE("AlphaDropout has the masks of a Dropout with its p, seed and place", "[alpha_dropout]") {
  ek::AlphaDropout<double> alpha(0.3, {.seed = 12});
  ek::Dropout<double> plain(0.3, {.seed = 12});
  for (const char* path : {"", "2.1"})
    for (const std::uint32_t call : {0u, 1u, 77u}) {
      alpha.set_stream(path);
      plain.set_stream(path);
      alpha.replay(call);
      plain.replay(call);
      const Matrix ones = Matrix::Ones(9, 40);
      const Matrix y = alpha.forward(ones, ek::Mode::train);
      CHECK(((plain.forward(ones, ek::Mode::train).array() != 0) == (y.array() > 0)).all());
    }
}

TEST_CASE("DRP-4: alpha dropout's backward applies mask and scale, without the shift", "[alpha_dropout]") {
  ek::AlphaDropout<double> layer(0.5);
  const auto dy = values::random<double>(50, 40, 2);
  const Matrix y = layer.forward(Matrix::Ones(50, 40), ek::Mode::train);
  const Matrix dx = layer.backward(dy);
  const double scale = 1 / std::sqrt(0.5 + 1.7580993408473766 * 1.7580993408473766 * 0.25);
  for (Index k = 0; k < y.size(); ++k)
    CHECK(dx.data()[k] == Catch::Approx(y.data()[k] > 0 ? dy.data()[k] * scale : 0).epsilon(1e-14));
  const Eigen::MatrixXd dy_columns = dy;
  Eigen::MatrixXd dx_columns(50, 40);
  layer.backward(Matrix::Ones(50, 40), dy_columns, dx_columns);  // in the other storage order the same
  CHECK(compare::same_bits(Matrix(dx_columns), dx));
}

TEST_CASE("NaN and infinity at a place that alpha dropout drops are dropped", "[alpha_dropout]") {
  ek::AlphaDropout<double> layer(0.5, {.seed = 4});
  const Matrix expected = layer.forward(Matrix::Constant(4, 30, 5), ek::Mode::train);
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    layer.replay(0);
    const Matrix& y = layer.forward(Matrix::Constant(4, 30, poison), ek::Mode::train);
    for (Index k = 0; k < y.size(); ++k)
      if (expected.data()[k] > 0)
        CHECK(compare::same_bits(std::abs(y.data()[k]), poison));
      else
        CHECK(y.data()[k] == expected.data()[k]);
  }
}

TEST_CASE("DRP-1: at p = 1 alpha dropout gives zeros forward and backward, as PyTorch does", "[alpha_dropout]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  ek::AlphaDropout<double> layer(1);
  const Matrix x{{1, -2, infinity, nan, 0}};
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::train), Matrix::Zero(1, 5)));
  CHECK(compare::same_bits(layer.backward(x), Matrix::Zero(1, 5)));
  CHECK(compare::same_bits(layer.infer(x), x));
}

TEST_CASE("At p = 0 and in eval alpha dropout is the identity, bit for bit", "[alpha_dropout]") {
  const Matrix x{{1, -0.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::denorm_min()}};
  ek::AlphaDropout<double> none(0), eval(0.5);
  CHECK(compare::same_bits(none.forward(x, ek::Mode::train), x));
  CHECK(compare::same_bits(none.backward(x), x));
  CHECK(compare::same_bits(eval.forward(x, ek::Mode::eval), x));
  CHECK(compare::same_bits(eval.backward(x), x));
  CHECK(eval.calls() == 0);
  CHECK(none.calls() == 1);
}

TEST_CASE("DRP-5: AlphaDropout names a probability outside [0, 1]", "[alpha_dropout]") {
  const auto error_for = [](double p) { return error_of([p] { ek::AlphaDropout<float> layer(p); }); };
  CHECK(error_for(-1e-20) == "invalid_argument: AlphaDropout: expected p in [0, 1], got -1e-20");
  CHECK(error_for(1.0000001) == "invalid_argument: AlphaDropout: expected p in [0, 1], got 1.0000001");
  CHECK(error_for(std::numeric_limits<double>::quiet_NaN()) ==
        "invalid_argument: AlphaDropout: expected p in [0, 1], got nan");
  ek::AlphaDropout<float> layer(0.5);
  CHECK(error_of([&] { layer.replay(0xFFFFFFFF); }) ==
        "invalid_argument: AlphaDropout::replay: expected call <= 4294967294, got 4294967295");
}

TEST_CASE("Copy, cast, reseed and replay of AlphaDropout go on with the masks that they should", "[alpha_dropout]") {
  ek::AlphaDropout<double> layer(0.5, {.seed = 1});
  layer.set_stream("7");
  const Matrix ones = Matrix::Ones(3, 40);
  const Matrix first = layer.forward(ones, ek::Mode::train);
  ek::AlphaDropout<double> copy = layer;
  auto cast = layer.cast<float>();
  const Matrix second = layer.forward(ones, ek::Mode::train);
  CHECK_FALSE(compare::same_bits(second, first));  // RNG-1
  CHECK(compare::same_bits(copy.forward(ones, ek::Mode::train), second));
  CHECK(((cast.forward(ones.cast<float>(), ek::Mode::train).array() > 0) == (second.array() > 0)).all());
  layer.replay(0);
  CHECK(compare::same_bits(layer.forward(ones, ek::Mode::train), first));
  layer.reseed(1);
  CHECK(layer.calls() == 0);
  CHECK(compare::same_bits(layer.forward(ones, ek::Mode::train), first));
  layer.reseed(2);
  CHECK_FALSE(compare::same_bits(layer.forward(ones, ek::Mode::train), first));
}
