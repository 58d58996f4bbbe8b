#include "evenkeel/layers/spatial_dropout.hpp"

#include <cmath>    // abs
#include <cstdint>  // uint64_t
#include <limits>
#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/network/sequential.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<double>;

/// '1' where an element is kept.
template <class M>
std::string pattern(const M& y) {
  std::string kept;
  for (Index i = 0; i < y.rows(); ++i)
    for (Index j = 0; j < y.cols(); ++j) kept += y(i, j) == 0 ? '0' : '1';
  return kept;
}

}  // namespace

// The mask is that of Dropout's test of the same name, whose figures are those of core/philox_twin.py.
TEST_CASE("RNG-3: the mask has the channel in the place of Dropout's column", "[spatial_dropout]") {
  ek::SpatialDropout<double> layer(0.3, 20, 2, {.seed = 42});
  layer.set_stream("3");
  const Matrix y = layer.forward(Matrix::Ones(3, 40), ek::Mode::train);
  CHECK(pattern(y(Eigen::all, Eigen::seq(0, 39, 2))) ==
        "01100111110111111111"
        "11111101110010111101"
        "00111000010111010001");
  CHECK(compare::same_bits(y(Eigen::all, Eigen::seq(1, 39, 2)).eval(), y(Eigen::all, Eigen::seq(0, 39, 2)).eval()));
  CHECK(y.maxCoeff() == 65536.0 / (65536 - 19661));
}

TEST_CASE("A channel of a row is dropped as a whole or scaled as a whole, in train mode", "[spatial_dropout]") {
  ek::SpatialDropout<double> layer(0.5, 6, 7, {.seed = 2});
  const auto x = values::random<double>(50, 42, 1);
  const Matrix y = layer.forward(x, ek::Mode::train);
  Index dropped = 0;
  for (Index i = 0; i < 50; ++i)
    for (Index channel = 0; channel < 6; ++channel) {
      const Matrix piece = y.block(i, 7 * channel, 1, 7);
      const bool zero = piece.isZero(0);
      dropped += zero;
      if (!zero) CHECK(piece == 2 * x.block(i, 7 * channel, 1, 7));
    }
  CHECK(std::abs(static_cast<double>(dropped) - 150) < 5 * 8.7);  // 300 coins
}

TEST_CASE("With one position SpatialDropout is Dropout, bit for bit", "[spatial_dropout]") {
  ek::SpatialDropout<double> spatial(0.3, 40, 1, {.seed = 5});
  ek::Dropout<double> plain(0.3, {.seed = 5});
  const auto x = values::random<double>(9, 40, 1);
  for (int call = 0; call < 3; ++call) {
    CHECK(compare::same_bits(spatial.forward(x, ek::Mode::train), plain.forward(x, ek::Mode::train)));
    CHECK(compare::same_bits(spatial.backward(x), plain.backward(x)));
  }
}

TEST_CASE("DRP-2: p is the probability to drop a channel", "[spatial_dropout]") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    INFO("seed " << seed);
    const auto dropped = [seed](double p, Index rows) {
      ek::SpatialDropout<double> layer(p, 1000, 2, {.seed = seed});
      return (layer.forward(Matrix::Ones(rows, 2000), ek::Mode::train).array() == 0).count() / 2;
    };
    CHECK(dropped(0.001, 100) >= 60);
    CHECK(dropped(0.001, 100) <= 140);
    CHECK(dropped(0.9, 10) >= 8880);
    CHECK(dropped(0.9, 10) <= 9120);
  }
}

TEST_CASE("DRP-3, DRP-4: SpatialDropout's backward applies mask and scale, whatever the input", "[spatial_dropout]") {
  ek::SpatialDropout<double> layer(0.2, 10, 4);
  const auto dy = values::random<double>(50, 40, 2);
  const Matrix mask = layer.forward(Matrix::Ones(50, 40), ek::Mode::train);
  layer.replay(0);
  layer.forward(Matrix::Zero(50, 40), ek::Mode::train);
  CHECK(compare::same_bits(layer.backward(dy),
                           (mask.array() != 0).select(dy * (65536.0 / (65536 - 13107)), Matrix::Zero(50, 40)).eval()));
  CHECK(compare::same_bits(layer.backward(Matrix::Ones(50, 40)), mask));  // DRP-6
  const Eigen::MatrixXd ones = Eigen::MatrixXd::Ones(50, 40);
  Eigen::MatrixXd dx(50, 40);
  layer.backward(ones, ones, dx);
  CHECK(compare::same_bits(Matrix(dx), mask));
}

TEST_CASE("NaN and infinity in a dropped channel are dropped", "[spatial_dropout]") {
  ek::SpatialDropout<double> layer(0.5, 10, 3, {.seed = 4});
  const std::string kept = pattern(layer.forward(Matrix::Ones(4, 30), ek::Mode::train));
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    layer.replay(0);
    const Matrix& y = layer.forward(Matrix::Constant(4, 30, poison), ek::Mode::train);
    for (Index k = 0; k < y.size(); ++k)
      CHECK(compare::same_bits(y.data()[k], kept[static_cast<std::size_t>(k)] == '1' ? poison : 0.0));
  }
}

TEST_CASE("DRP-1: p = 1 drops every channel, p = 0 and eval are the identity, bit for bit", "[spatial_dropout]") {
  const Matrix x{{1, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}};
  ek::SpatialDropout<double> all(1, 2, 2), none(0, 2, 2), eval(0.5, 2, 2);
  CHECK(compare::same_bits(all.forward(x, ek::Mode::train), Matrix::Zero(1, 4)));
  CHECK(compare::same_bits(all.backward(x), Matrix::Zero(1, 4)));
  CHECK(compare::same_bits(all.infer(x), x));
  CHECK(compare::same_bits(none.forward(x, ek::Mode::train), x));
  CHECK(compare::same_bits(none.backward(x), x));
  CHECK(compare::same_bits(eval.forward(x, ek::Mode::eval), x));
  CHECK(compare::same_bits(eval.backward(x), x));
  CHECK(eval.calls() == 0);
}

TEST_CASE("SpatialDropout names what it cannot be made of", "[spatial_dropout]") {
  const auto error_for = [](double p, Index channels, Index positions) {
    return error_of([=] { ek::SpatialDropout<float> layer(p, channels, positions); });
  };
  CHECK(error_for(1.5, 2, 3) == "invalid_argument: SpatialDropout: expected p in [0, 1], got 1.5");
  CHECK(error_for(std::numeric_limits<double>::quiet_NaN(), 2, 3) ==
        "invalid_argument: SpatialDropout: expected p in [0, 1], got nan");
  CHECK(error_for(0.5, 0, 3) == "invalid_argument: SpatialDropout: expected channels >= 1, got 0");
  CHECK(error_for(0.5, 2, 0) == "invalid_argument: SpatialDropout: expected positions >= 1, got 0");
  CHECK(error_for(0.5, 4, ek::Index{1} << 62) ==
        "invalid_argument: SpatialDropout: expected channels x positions of at most 9223372036854775807, got 4 x "
        "4611686018427387904");
}

TEST_CASE("Copy, cast, reseed and replay of SpatialDropout go on with the masks that they should",
          "[spatial_dropout]") {
  ek::SpatialDropout<double> layer(0.5, 20, 2, {.seed = 1});
  layer.set_stream("7");
  const Matrix ones = Matrix::Ones(3, 40);
  const Matrix first = layer.forward(ones, ek::Mode::train);
  ek::SpatialDropout<double> copy = layer;
  auto cast = layer.cast<float>();
  CHECK(cast.channels() == 20);
  CHECK(cast.positions() == 2);
  const Matrix second = layer.forward(ones, ek::Mode::train);
  CHECK_FALSE(compare::same_bits(second, first));  // RNG-1
  CHECK(compare::same_bits(copy.backward(ones), first));
  CHECK(compare::same_bits(copy.forward(ones, ek::Mode::train), second));
  CHECK(pattern(cast.forward(ones.cast<float>(), ek::Mode::train)) == pattern(second));
  layer.reseed(1);
  CHECK(compare::same_bits(layer.forward(ones, ek::Mode::train), first));
}

TEST_CASE("A SpatialDropout in a network is checked against its neighbours, and told its place", "[spatial_dropout]") {
  CHECK(error_of([] { ek::sequential(ek::SpatialDropout<float>(0.5, 2, 3), ek::SpatialDropout<float>(0.5, 3, 3)); }) ==
        "ShapeError: Sequential: layer 0 (SpatialDropout) gives 6 features, but layer 1 (SpatialDropout) expects 9");
  ek::Sequential net{ek::SpatialDropout<double>(0.5, 50, 2), ek::SpatialDropout<double>(0.5, 50, 2)};
  const Matrix ones = Matrix::Ones(1, 100);
  CHECK(pattern(net.layer<0>().forward(ones, ek::Mode::train)) !=
        pattern(net.layer<1>().forward(ones, ek::Mode::train)));  // RNG-2
}
