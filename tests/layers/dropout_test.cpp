#include "evenkeel/layers/dropout.hpp"

#include <algorithm>  // count
#include <bit>        // bit_cast, popcount
#include <cmath>      // abs, sqrt
#include <cstdint>    // uint32_t, uint64_t
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>  // as_const
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/network/sequential.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Row = ek::Matrix<float>;

/// '1' where an element is kept.
template <class M>
std::string pattern(const M& y) {
  std::string kept;
  for (Index i = 0; i < y.rows(); ++i)
    for (Index j = 0; j < y.cols(); ++j) kept += y(i, j) == 0 ? '0' : '1';
  return kept;
}

/// The next mask of a layer.
template <class Layer>
std::string next_mask(Layer& layer, Index rows, Index columns) {
  return pattern(layer.forward(ek::Matrix<float>::Ones(rows, columns), ek::Mode::train));
}

std::string error_for(double p) {
  return error_of([p] { ek::Dropout<float> layer(p); });
}

}  // namespace

TEST_CASE("DRP-5: a probability outside [0, 1] is an error that names it", "[dropout]") {
  CHECK(error_for(-0.1) == "invalid_argument: Dropout: expected p in [0, 1], got -0.1");
  CHECK(error_for(-1e-20) == "invalid_argument: Dropout: expected p in [0, 1], got -1e-20");
  CHECK(error_for(6) == "invalid_argument: Dropout: expected p in [0, 1], got 6");
  CHECK(error_for(std::numeric_limits<double>::quiet_NaN()) ==
        "invalid_argument: Dropout: expected p in [0, 1], got nan");
  CHECK(error_for(std::numeric_limits<double>::infinity()) ==
        "invalid_argument: Dropout: expected p in [0, 1], got inf");
  CHECK(error_for(-std::numeric_limits<double>::infinity()) ==
        "invalid_argument: Dropout: expected p in [0, 1], got -inf");
  CHECK(error_for(1.0000001) == "invalid_argument: Dropout: expected p in [0, 1], got 1.0000001");
}

TEST_CASE("DRP-5: minus zero is zero, and both ends are allowed", "[dropout]") {
  ek::Dropout<float> none(-0.0);
  CHECK(next_mask(none, 1, 100) == std::string(100, '1'));
  CHECK_NOTHROW(ek::Dropout<float>(0.0));
  CHECK_NOTHROW(ek::Dropout<float>(1.0));
}

TEST_CASE("Dropout tells its probability, its seed and how many masks it has drawn", "[dropout]") {
  ek::Dropout<float> layer(0.25, {.seed = 12});
  CHECK(layer.p() == 0.25);
  CHECK(layer.seed() == 12);
  CHECK(layer.calls() == 0);
  CHECK(layer.output_features(17) == 17);
  next_mask(layer, 2, 3);
  CHECK(layer.calls() == 1);
  CHECK(ek::Dropout<float>().p() == 0.5);
  CHECK(ek::Dropout<float>().seed() == 0);
}

// Two policies are usual: to reject p = 1, and to give zeros. evenkeel gives zeros.
TEST_CASE("DRP-1: p = 1 gives zeros forward and backward, whatever the input", "[dropout]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  ek::Dropout<float> layer(1);
  const Row x{{1, -2, infinity, nan, 0}};
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::train), Row::Zero(1, 5)));
  CHECK(compare::same_bits(layer.backward(Row::Ones(1, 5)), Row::Zero(1, 5)));
  CHECK(compare::same_bits(layer.backward(x), Row::Zero(1, 5)));
  CHECK(compare::same_bits(layer.infer(x), x));
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::eval), x));
  // Of 400000 random numbers of 16 bits, six are the largest.
  CHECK((layer.forward(Row::Ones(400, 1000), ek::Mode::train).array() == 0).all());
}

TEST_CASE("p = 0 is the identity, bit for bit", "[dropout]") {
  ek::Dropout<float> layer(0);
  const Row x{{1, -0.0f, std::bit_cast<float>(0x7FA12345), std::numeric_limits<float>::denorm_min()}};
  CHECK(compare::same_bits(layer.forward(x, ek::Mode::train), x));
  CHECK(compare::same_bits(layer.backward(x), x));
}

TEST_CASE("What is dropped is exactly zero, even NaN and infinity", "[dropout]") {
  ek::Dropout<double> layer(0.5, {.seed = 4});
  const std::string kept = pattern(layer.forward(ek::Matrix<double>::Ones(4, 30), ek::Mode::train));
  for (const double poison :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity(), -1.0}) {
    layer.replay(0);
    const auto& y = layer.forward(ek::Matrix<double>::Constant(4, 30, poison), ek::Mode::train);
    for (Index k = 0; k < y.size(); ++k) {
      const double expected = kept[static_cast<std::size_t>(k)] == '1' ? 2 * poison : 0.0;
      CHECK(compare::same_bits(y.data()[k], expected));
    }
  }
}

// p is rounded to a multiple of 2^-16, so that the mean is exact: survivors are multiplied by 65536 / (65536 - T), not by
// 1 / (1 - p).
TEST_CASE("DRP-2: p is the probability to drop, and survivors are scaled to keep the mean", "[dropout]") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    INFO("seed " << seed);
    ek::Dropout<double> rarely(0.001, {.seed = seed});
    const ek::Matrix<double> many = rarely.forward(ek::Matrix<double>::Ones(100, 1000), ek::Mode::train);
    const Index dropped = (many.array() == 0).count();
    CHECK(dropped >= 60);
    CHECK(dropped <= 140);
    CHECK(many.maxCoeff() == 65536.0 / (65536 - 66));
    CHECK((many.array() == many.maxCoeff()).count() + dropped == many.size());

    ek::Dropout<double> mostly(0.9, {.seed = seed});
    const ek::Matrix<double> few = mostly.forward(ek::Matrix<double>::Ones(10, 1000), ek::Mode::train);
    const Index kept = (few.array() != 0).count();
    CHECK(kept >= 880);
    CHECK(kept <= 1120);
    CHECK(few.maxCoeff() == 65536.0 / 6554);
  }
}

TEST_CASE("The smallest p still drops, and the largest below one still keeps", "[dropout]") {
  ek::Dropout<double> least(1e-20);
  const auto scale_of = [](auto& layer) {
    return layer.forward(ek::Matrix<double>::Ones(400, 1000), ek::Mode::train).maxCoeff();
  };
  CHECK(scale_of(least) == 65536.0 / 65535);
  ek::Dropout<double> most(1 - 1e-9);
  CHECK(scale_of(most) == 65536.0);
  // 400000 draws of 2^-16: 6.1 expected, none with probability 0.002.
  least.replay(0);
  CHECK((least.forward(ek::Matrix<double>::Ones(400, 1000), ek::Mode::train).array() == 0).count() > 0);
}

TEST_CASE("Dropout in train mode keeps the mean", "[dropout]") {
  for (const double p : {0.1, 0.5, 0.8}) {
    INFO("p = " << p);
    ek::Dropout<double> layer(p, {.seed = 8});
    const double mean = layer.forward(ek::Matrix<double>::Ones(200, 500), ek::Mode::train).mean();
    // Five standard deviations of the mean of 100000 elements.
    CHECK(std::abs(mean - 1) < 5 * std::sqrt(p / (1 - p) / 100000));
  }
}

TEST_CASE("DRP-3: the gradient does not depend on the input, zeros included", "[dropout]") {
  ek::Dropout<double> layer(0.5, {.seed = 21});
  using Matrix = ek::Matrix<double>;
  const Matrix mask = layer.forward(Matrix::Ones(1, 1000), ek::Mode::train);
  layer.reseed(21);
  layer.forward(Matrix::Zero(1, 1000), ek::Mode::train);
  CHECK(compare::same_bits(layer.backward(Matrix::Ones(1, 1000)), mask));
  CHECK((mask.array() == 2).count() > 400);
  CHECK((mask.array() == 0).count() > 400);
}

TEST_CASE("DRP-4: backward applies the mask and the scale", "[dropout]") {
  ek::Dropout<double> layer(0.2);
  const auto x = values::random<double>(50, 40, 1);
  const auto dy = values::random<double>(50, 40, 2);
  const ek::Matrix<double> y = layer.forward(x, ek::Mode::train);
  const ek::Matrix<double> dx = layer.backward(dy);
  const double scale = 65536.0 / (65536 - 13107);
  for (Index i = 0; i < 50; ++i)
    for (Index j = 0; j < 40; ++j) CHECK(dx(i, j) == (y(i, j) != 0 ? dy(i, j) * scale : 0));
  CHECK(dx.cwiseProduct(x).sum() == Catch::Approx(dy.cwiseProduct(y).sum()).epsilon(1e-12));
}

TEST_CASE("DRP-6: backward neither uses up nor changes the mask, which is that of the last forward", "[dropout]") {
  ek::Dropout<double> layer(0.5, {.seed = 6});
  using Matrix = ek::Matrix<double>;
  const Matrix ones = Matrix::Ones(3, 50);
  layer.forward(ones, ek::Mode::train);
  const Matrix first = layer.backward(ones);
  CHECK(compare::same_bits(layer.backward(ones), first));
  const Matrix y = layer.forward(ones, ek::Mode::train);
  CHECK_FALSE(compare::same_bits(y, first));
  CHECK(compare::same_bits(layer.backward(ones), y));
  CHECK(layer.calls() == 2);
}

TEST_CASE("MODE-2: a backward goes with the forward before it, not with an older mask", "[dropout]") {
  ek::Dropout<double> layer(0.5);
  const ek::Matrix<double> ones = ek::Matrix<double>::Ones(1, 8);
  layer.forward(ones, ek::Mode::train);
  layer.forward(ones, ek::Mode::eval);
  CHECK(compare::same_bits(layer.backward(ones), ones));
  CHECK(compare::same_bits(layer.backward(ones), ones));
}

TEMPLATE_TEST_CASE("MODE-4: eval is the identity, bit for bit, and uses up no random numbers", "[dropout]", double,
                   float) {
  using Matrix = ek::Matrix<TestType>;
  using Bits = std::conditional_t<std::is_same_v<TestType, float>, std::uint32_t, std::uint64_t>;
  Matrix x = values::random<TestType>(100, 100, 5);
  x(0, 0) = -TestType(0);
  x(1, 1) = std::numeric_limits<TestType>::denorm_min();
  // A NaN with a payload and a sign, quiet.
  x(2, 2) = std::bit_cast<TestType>(
      static_cast<Bits>(std::bit_cast<Bits>(-std::numeric_limits<TestType>::quiet_NaN()) | Bits{0x1234}));
  x(3, 3) = std::numeric_limits<TestType>::infinity();

  ek::Dropout<TestType> layer(0.5, {.seed = 9});
  ek::Dropout<TestType> other(0.5, {.seed = 9});
  ek::Workspace<TestType> workspace;
  Matrix y(100, 100);
  for (int time = 0; time < 10; ++time) {
    CHECK(compare::same_bits(layer.forward(x, ek::Mode::eval), x));
    CHECK(compare::same_bits(layer.backward(x), x));
    CHECK(compare::same_bits(layer.infer(x), x));
    layer.forward(x, y, ek::Mode::eval);
    CHECK(compare::same_bits(y, x));
    layer.infer(x, y, workspace);
    CHECK(compare::same_bits(y, x));
  }
  CHECK(layer.calls() == 0);
  const Matrix ones = Matrix::Ones(100, 100);
  CHECK(compare::same_bits(layer.forward(ones, ek::Mode::train), other.forward(ones, ek::Mode::train)));
}

TEST_CASE("Masks are drawn in train, frozen_statistics and monte_carlo, and whenever a mode says so", "[dropout]") {
  const Row ones = Row::Ones(4, 50);
  const auto draws = [&](ek::Mode mode) {
    ek::Dropout<float> layer(0.5);
    const bool dropped = (layer.forward(ones, mode).array() == 0).any();
    CHECK(layer.calls() == (dropped ? 1 : 0));
    return dropped;
  };
  CHECK(draws(ek::Mode::train));
  CHECK(draws(ek::Mode::frozen_statistics));
  CHECK(draws(ek::Mode::monte_carlo));
  CHECK_FALSE(draws(ek::Mode::eval));
  CHECK_FALSE(draws({ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::update}));
  CHECK(draws({ek::Masks::on, ek::Statistics::running, ek::RunningStatistics::update}));
}

TEST_CASE("RNG-1: every call draws another mask, and no element is always kept or always dropped", "[dropout]") {
  ek::Dropout<float> layer(0.5, {.seed = 3});
  std::vector<std::string> masks;
  std::vector<int> kept(1000, 0);
  for (int call = 0; call < 20; ++call) {
    masks.push_back(next_mask(layer, 1, 1000));
    for (std::size_t k = 0; k < kept.size(); ++k) kept[k] += masks.back()[k] == '1';
  }
  for (std::size_t a = 0; a < masks.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) CHECK(masks[a] != masks[b]);
  CHECK(std::count(kept.begin(), kept.end(), 0) + std::count(kept.begin(), kept.end(), 20) <= 1);
}

TEST_CASE("RNG-2: neighbouring seeds give masks that have nothing in common", "[dropout]") {
  constexpr std::size_t words = 64;  // of 64 elements
  std::vector<std::vector<std::uint64_t>> masks;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    ek::Dropout<float> layer(0.5, {.seed = seed});
    const Row y = layer.forward(Row::Ones(1, 64 * words), ek::Mode::train);
    std::vector<std::uint64_t> mask(words, 0);
    for (std::size_t k = 0; k < 64 * words; ++k)
      mask[k / 64] |= static_cast<std::uint64_t>(y(0, static_cast<Index>(k)) != 0) << k % 64;
    masks.push_back(mask);
  }
  const auto agreement = [&](std::size_t a, std::size_t b, std::size_t lag) {
    int same = 0;
    for (std::size_t w = 0; w < words; ++w) {
      std::uint64_t other = masks[b][w];
      if (lag > 0) other = other >> lag | masks[b][(w + 1) % words] << (64 - lag);
      same += std::popcount(~(masks[a][w] ^ other));
    }
    return same;
  };
  // 4096 coins agree 2048 times, with a deviation of 32.
  for (std::size_t a = 0; a < masks.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) CHECK(std::abs(agreement(a, b, 0) - 2048) <= 192);
  for (std::size_t a = 0; a + 1 < masks.size(); ++a)
    for (std::size_t lag = 1; lag <= 16; ++lag) {
      CHECK(std::abs(agreement(a, a + 1, lag) - 2048) <= 192);
      CHECK(std::abs(agreement(a + 1, a, lag) - 2048) <= 192);
    }
}

TEST_CASE("RNG-2: two Dropouts of one network have different masks, though their seeds are the same", "[dropout]") {
  ek::Sequential net{ek::Dropout<float>(0.5), ek::Dropout<float>(0.5)};
  const Row ones = Row::Ones(1, 200);
  const std::string first = pattern(net.layer<0>().forward(ones, ek::Mode::train));
  const std::string second = pattern(net.layer<1>().forward(ones, ek::Mode::train));
  CHECK(first != second);
  std::string both;
  for (std::size_t k = 0; k < first.size(); ++k) both += first[k] == '1' && second[k] == '1' ? '1' : '0';
  CHECK(next_mask(net, 1, 200) != both);
  net.reseed(0);
  CHECK(next_mask(net, 1, 200) == both);
}

// The figures are those of core/philox_twin.py.
TEST_CASE("RNG-3: masks are the same on every platform", "[dropout]") {
  ek::Dropout<double> layer(0.3, {.seed = 42});
  layer.set_stream("3");
  const ek::Matrix<double> ones = ek::Matrix<double>::Ones(3, 20);
  CHECK(pattern(layer.forward(ones, ek::Mode::train)) ==
        "01100111110111111111"
        "11111101110010111101"
        "00111000010111010001");
  layer.replay(5);
  const std::string call_5 =
      "01110111111111110101"
      "11011111111011011100"
      "10010101111111111001";
  CHECK(pattern(layer.forward(ones, ek::Mode::train)) == call_5);
  CHECK(layer.calls() == 6);
  CHECK(layer.forward(ones, ek::Mode::train).maxCoeff() == 65536.0 / (65536 - 19661));

  // Neither storage order nor the type of the numbers matters.
  ek::Dropout<float> of_float(0.3, {.seed = 42});
  of_float.set_stream("3");
  of_float.replay(5);
  Eigen::MatrixXf y(3, 20);
  of_float.forward(Eigen::MatrixXf::Ones(3, 20), y, ek::Mode::train);
  CHECK(pattern(y) == call_5);
  // A batch of one row is the first row of any other batch.
  of_float.replay(5);
  CHECK(next_mask(of_float, 1, 20) == call_5.substr(0, 20));
}

TEST_CASE("RNG-4: layers in threads of their own give the masks that they give alone", "[dropout]") {
  const auto masks_of = [](std::uint64_t seed) {
    ek::Dropout<float> layer(0.5, {.seed = seed});
    std::string all;
    for (int call = 0; call < 200; ++call) all += next_mask(layer, 2, 20);
    return all;
  };
  std::string first, second;
  std::thread other([&] { first = masks_of(1); });
  second = masks_of(2);
  other.join();
  CHECK(first == masks_of(1));
  CHECK(second == masks_of(2));
  CHECK(first != second);
}

TEMPLATE_TEST_CASE("RNG-5: a small p drops as often as it says, and p = 0 nothing", "[dropout]", float, Eigen::half,
                   Eigen::bfloat16) {
  const ek::Matrix<TestType> ones = ek::Matrix<TestType>::Ones(1000, 1000);
  const auto dropped_with = [&](double p) {
    ek::Dropout<TestType> layer(p, {.seed = 5});
    const auto& y = layer.forward(ones, ek::Mode::train);
    return std::count(y.data(), y.data() + y.size(), TestType(0));
  };
  // A million times 66 / 65536, with a deviation of 32.
  CHECK(std::abs(static_cast<double>(dropped_with(0.001)) - 1007) < 4 * 32);
  CHECK(dropped_with(0) == 0);
}

TEST_CASE("STR-3: strided inputs keep their elements in their places", "[dropout]") {
  Row wide(6, 20);
  for (Index k = 0; k < wide.size(); ++k) wide.data()[k] = static_cast<float>(k + 1);
  ek::Dropout<float> layer(0.5);
  const auto check = [&](const auto& x) {
    const Row& y = layer.forward(x, ek::Mode::train);
    REQUIRE(y.rows() == x.rows());
    REQUIRE(y.cols() == x.cols());
    Index kept = 0;
    for (Index i = 0; i < y.rows(); ++i)
      for (Index j = 0; j < y.cols(); ++j) {
        CHECK((y(i, j) == 0 || y(i, j) == 2 * x(i, j)));
        kept += y(i, j) != 0;
      }
    CHECK(kept > 0);
    CHECK(kept < y.size());
  };
  check(Eigen::Map<const Row, Eigen::Unaligned, Eigen::Stride<20, 2>>(wide.data(), 6, 10));
  check(wide.topLeftCorner(6, 9).transpose());
  check(wide.colwise().reverse());
}

TEST_CASE("reseed starts the sequence of masks of another seed, and replay repeats a call", "[dropout]") {
  ek::Dropout<float> layer(0.5, {.seed = 1});
  ek::Dropout<float> other(0.5, {.seed = 2});
  const std::string first = next_mask(layer, 2, 40), second = next_mask(layer, 2, 40);
  layer.replay(0);
  CHECK(next_mask(layer, 2, 40) == first);
  CHECK(next_mask(layer, 2, 40) == second);
  layer.reseed(2);
  CHECK(layer.seed() == 2);
  CHECK(layer.calls() == 0);
  CHECK(next_mask(layer, 2, 40) == next_mask(other, 2, 40));
  CHECK(next_mask(layer, 2, 40) == next_mask(other, 2, 40));
}

TEST_CASE("reseed and replay leave a pending backward alone", "[dropout]") {
  ek::Dropout<float> layer(0.5, {.seed = 1});
  const Row ones = Row::Ones(2, 40);
  const Row y = layer.forward(ones, ek::Mode::train);
  layer.replay(7);
  CHECK(compare::same_bits(layer.backward(ones), y));
  layer.reseed(2);
  CHECK(compare::same_bits(layer.backward(ones), y));
  layer.set_stream("5");
  CHECK(compare::same_bits(layer.backward(ones), y));
}

TEST_CASE("Backward applies the mask of forward, whatever the storage orders of both", "[dropout]") {
  using Columns = Eigen::MatrixXf;
  for (const Index columns : {5, 40, 100}) {
    const Row ones = Row::Ones(70, columns);
    const Columns ones_by_column = ones;
    const auto check = [&](const auto& x, auto y) {
      ek::Dropout<float> layer(0.5, {.seed = 1});
      layer.forward(x, y, ek::Mode::train);
      const auto same = [&](const auto& dy, auto dx) {
        layer.backward(x, dy, dx);
        return compare::same_bits(Row(dx), Row(y));
      };
      CHECK(same(ones, Row(70, columns)));
      CHECK(same(ones, Columns(70, columns)));
      CHECK(same(ones_by_column, Row(70, columns)));
      CHECK(same(ones_by_column, Columns(70, columns)));
      CHECK(same(Row(ones_by_column), Row(70, columns)));
    };
    check(ones, Row(70, columns));
    check(ones, Columns(70, columns));
    check(ones_by_column, Row(70, columns));
    check(ones_by_column, Columns(70, columns));
  }
}

TEST_CASE("A copy of a layer has the mask of the last forward", "[dropout]") {
  ek::Dropout<float> layer(0.5, {.seed = 1});
  const Row ones = Row::Ones(3, 40);
  const Row y = layer.forward(ones, ek::Mode::train);
  ek::Dropout<float> copy = layer;
  const Row next = layer.forward(ones, ek::Mode::train);
  CHECK(compare::same_bits(copy.backward(ones), y));
  CHECK(compare::same_bits(layer.backward(ones), next));
  CHECK_FALSE(compare::same_bits(next, y));
  copy = layer;
  CHECK(compare::same_bits(copy.backward(ones), next));
}

TEST_CASE("Backward has the mask of a forward that was smaller, or larger, than the one before", "[dropout]") {
  ek::Dropout<float> layer(0.5);
  for (const Index rows : {10, 3, 200, 50}) {
    const Row ones = Row::Ones(rows, 70);
    const Row y = layer.forward(ones, ek::Mode::train);
    CHECK(compare::same_bits(layer.backward(ones), y));
  }
}

TEST_CASE("The stream changes the masks, and the empty path is a layer outside of any network", "[dropout]") {
  ek::Dropout<float> layer(0.5);
  const std::string outside = next_mask(layer, 2, 40);
  layer.set_stream("0");
  layer.replay(0);
  CHECK(next_mask(layer, 2, 40) != outside);
  layer.set_stream("");
  layer.replay(0);
  CHECK(next_mask(layer, 2, 40) == outside);
}

TEST_CASE("A layer in another scalar type has the same stream, seed and next mask", "[dropout]") {
  ek::Dropout<double> layer(0.5, {.seed = 3});
  layer.set_stream("7");
  layer.forward(ek::Matrix<double>::Ones(2, 40), ek::Mode::train);
  auto cast = layer.cast<float>();
  CHECK(next_mask(cast, 2, 40) == pattern(layer.forward(ek::Matrix<double>::Ones(2, 40), ek::Mode::train)));
}

TEST_CASE("After 2^32 - 1 masks the numbers of calls begin again", "[dropout]") {
  ek::Dropout<float> layer(0.5);
  const std::string first = next_mask(layer, 2, 40);
  layer.replay(0xFFFFFFFE);  // the last: 0xFFFFFFFF is RandomStream's
  CHECK(next_mask(layer, 2, 40) != first);
  CHECK(layer.calls() == 0);
  CHECK(next_mask(layer, 2, 40) == first);
}

TEST_CASE("The number that RandomStream uses cannot be replayed", "[dropout]") {
  ek::Dropout<float> layer(0.5);
  next_mask(layer, 2, 40);
  CHECK(error_of([&] { layer.replay(0xFFFFFFFF); }) ==
        "invalid_argument: Dropout::replay: expected call <= 4294967294, got 4294967295");
  CHECK(layer.calls() == 1);
}

TEST_CASE("The whole 64-bit seed counts", "[dropout]") {
  ek::Dropout<float> layer(0.5, {.seed = 1});
  const std::string low = next_mask(layer, 2, 40);
  layer.reseed(std::uint64_t{1} << 32 | 1);
  CHECK(next_mask(layer, 2, 40) != low);
}

TEST_CASE("Dropout's training state is where its masks are, and takes another layer there", "[dropout]") {
  ek::Dropout<float> layer(0.5, {.seed = ~std::uint64_t{0}});
  next_mask(layer, 2, 40);
  next_mask(layer, 2, 40);
  ek::Dropout<float> other(0.5);
  const ek::ConstTrainingState from = std::as_const(layer).training_state();
  const ek::TrainingState to = other.training_state();
  REQUIRE(from.size() == 2);
  CHECK(from[0].name == "seed");
  CHECK(from[0].values[0] == ~std::uint64_t{0});
  CHECK(from[1].name == "call");
  CHECK(from[1].values[0] == 2);
  CHECK(from[1].most == 0xFFFFFFFE);
  for (std::size_t i = 0; i < 2; ++i) to[i].values[0] = from[i].values[0];
  CHECK(next_mask(other, 2, 40) == next_mask(layer, 2, 40));
}
