#include "evenkeel/core/random.hpp"

#include <array>
#include <cmath>  // abs, sqrt
#include <cstdint>
#include <numeric>  // iota
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"

namespace ek = evenkeel;

namespace {

using Block = ek::PhiloxBlock;

ek::RandomStream twin_stream(std::uint32_t episode = 0) {
  return {0x123456789ABCDEF0, ek::stream_of("weight"), episode};
}

}  // namespace

// From Random123's tests/kat_vectors, the lines "philox4x32 10".
TEST_CASE("Philox4x32-10 gives Random123's known answers", "[random]") {
  constexpr std::uint32_t ones = 0xFFFFFFFF;
  STATIC_REQUIRE(ek::philox({0, 0, 0, 0}, 0) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  STATIC_REQUIRE(ek::philox({ones, ones, ones, ones}, 0xFFFFFFFFFFFFFFFF) ==
                 Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // The digits of pi; the key's words are a4093822 and 299f31d0.
  STATIC_REQUIRE(ek::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
                 Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// C++26, [rand.predef]. The engine's seed is the key's low word, its counter starts at zero and counts blocks of four.
TEST_CASE("The 10000th number of a default std::philox4x32 is 1955073260", "[random]") {
  CHECK(ek::philox({9999 / 4, 0, 0, 0}, 20111115)[9999 % 4] == 1955073260);
}

// From the FNV reference's test suite.
TEST_CASE("A path's stream is its 32-bit FNV-1a hash, the empty path's is 0", "[random]") {
  STATIC_REQUIRE(ek::stream_of("a") == 0xe40c292c);
  STATIC_REQUIRE(ek::stream_of("foo") == 0xa9f37ed7);
  STATIC_REQUIRE(ek::stream_of("foobar") == 0xbf9cf968);
  STATIC_REQUIRE(ek::stream_of("") == 0);
  CHECK(ek::stream_of("\xff") == (0x811c9dc5u ^ 0xffu) * 16777619u);  // bytes, not signed characters
}

TEST_CASE("The first thousand places of networks have streams of their own", "[random]") {
  std::set<std::uint32_t> streams;
  for (int i = 0; i < 100; ++i) {
    streams.insert(ek::stream_of(std::to_string(i)));
    for (int j = 0; j < 10; ++j) streams.insert(ek::stream_of(std::to_string(i) + "." + std::to_string(j)));
  }
  CHECK(streams.size() == 1100);
  CHECK(streams.count(0) == 0);
}

// The figures of this and the next tests are those of philox_twin.py.
TEST_CASE("The numbers of RandomStream are the same on every platform", "[random]") {
  CHECK(ek::stream_of("3") == 906799682u);
  CHECK(ek::stream_of("2.0") == 673058499u);
  CHECK(ek::stream_of("weight") == 1352703673u);
  CHECK(ek::stream_of("linear.0.weight") == 444220160u);

  auto words = twin_stream();
  for (const std::uint32_t expected : {0x88412DC7u, 0x2C744B2Cu, 0x7C55C914u, 0xBEFEB72Cu, 0x8BA99038u, 0x23AAD5D4u,
                                       0xA9112065u, 0xDEBDDD78u, 0x43087C3Cu})
    CHECK(words.word() == expected);
  auto seventh = twin_stream(7);
  for (const std::uint32_t expected : {0x05E83DB1u, 0x92F30E7Bu, 0xA1D19110u, 0x5765864Au, 0x8579F2DFu})
    CHECK(seventh.word() == expected);
}

TEST_CASE("uniform takes the upper 53 bits of two words, the second one high", "[random]") {
  auto random = twin_stream();
  CHECK(random.uniform() == 0x1.63a2596442094p-3);
  CHECK(random.uniform() == 0x1.7dfd6e58f8ab9p-1);
  CHECK(random.uniform() == 0x1.1d56aea45d4c8p-3);
}

TEST_CASE("normal is Box and Muller's, first with cos and then with sin", "[random]") {
  auto random = twin_stream();
  // Mathematical libraries may differ in the last place.
  for (const double expected : {-0.01523354962211106, -0.61744672824165192, 0.37520272461607601, -0.39912489332941925,
                                0.77156459083367712, -1.1888034649017465})
    CHECK(std::abs(random.normal() - expected) < 1e-15);
}

TEST_CASE("shuffle exchanges from the last place to the second", "[random]") {
  auto random = twin_stream();
  std::vector<int> items(10);
  std::iota(items.begin(), items.end(), 0);
  ek::shuffle(items, random);
  CHECK(items == std::vector<int>{8, 4, 6, 2, 0, 7, 9, 3, 1, 5});
}

TEST_CASE("shuffle leaves ranges of none and of one alone and draws nothing", "[random]") {
  auto random = twin_stream();
  std::vector<int> none, one{5};
  ek::shuffle(none, random);
  ek::shuffle(one, random);
  CHECK(one.front() == 5);
  CHECK(random.word() == 0x88412DC7);
}

TEST_CASE("shuffle gives every order equally often", "[random]") {
  ek::RandomStream random(1, 2);
  std::array<int, 27> counts{};
  for (int time = 0; time < 6000; ++time) {
    std::array<std::size_t, 3> items{0, 1, 2};
    ek::shuffle(items, random);
    ++counts[9 * items[0] + 3 * items[1] + items[2]];
  }
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    CHECK(std::abs(count - 1000) < 5 * 29);  // 29: the deviation of Binomial(6000, 1/6)
  }
  CHECK(orders == 6);
}

TEST_CASE("Uniform numbers lie in [0, 1) and have its moments", "[random]") {
  ek::RandomStream random(3, 4);
  constexpr int count = 100000;
  double sum = 0, squares = 0, products = 0, before = 0.5;
  for (int i = 0; i < count; ++i) {
    const double u = random.uniform();
    if (!(u >= 0 && u < 1)) FAIL("outside [0, 1): " << u);
    sum += u;
    squares += (u - 0.5) * (u - 0.5);
    products += (u - 0.5) * (before - 0.5);
    before = u;
  }
  // Five standard deviations of each.
  const double root = std::sqrt(static_cast<double>(count));
  CHECK(std::abs(sum / count - 0.5) < 5 * std::sqrt(1 / 12.0) / root);
  CHECK(std::abs(squares / count - 1 / 12.0) < 5 * std::sqrt(1 / 180.0) / root);
  CHECK(std::abs(products / count) < 5 / 12.0 / root);
}

TEST_CASE("Normal numbers have their moments, and pairs are not correlated", "[random]") {
  ek::RandomStream random(5, 6);
  constexpr int count = 100000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, products = 0;
  for (int i = 0; i < count / 2; ++i) {
    const double pair[2] = {random.normal(), random.normal()};
    for (const double z : pair) {
      sum += z;
      squares += z * z;
      cubes += z * z * z;
      fourths += z * z * z * z;
    }
    products += pair[0] * pair[1];
  }
  // Five standard deviations of each.
  const double root = std::sqrt(static_cast<double>(count));
  CHECK(std::abs(sum / count) < 5 / root);
  CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(cubes / count) < 5 * std::sqrt(15.0) / root);
  CHECK(std::abs(fourths / count - 3) < 5 * std::sqrt(96.0) / root);
  CHECK(std::abs(products / (count / 2)) < 5 * std::sqrt(2.0) / root);
}

TEST_CASE("below gives each number under its count equally often", "[random]") {
  ek::RandomStream random(7, 8);
  std::array<int, 7> counts{};
  for (int i = 0; i < 7000; ++i) ++counts.at(random.below(7));
  for (const int count : counts) CHECK(std::abs(count - 1000) < 5 * 30);
  CHECK(random.below(1) == 0);
}

TEST_CASE("Seed, stream and episode each give another sequence", "[random]") {
  const auto first = [](std::uint64_t seed, std::uint32_t stream, std::uint32_t episode) {
    return ek::RandomStream(seed, stream, episode).word();
  };
  const std::set<std::uint32_t> words = {first(1, 1, 1), first(2, 1, 1), first(1, 2, 1), first(1, 1, 2),
                                         first(1ull << 32 | 1, 1, 1)};
  CHECK(words.size() == 5);
}

TEST_CASE("A copy of a stream goes on as the original does", "[random]") {
  auto random = twin_stream();
  random.normal();  // its pair is kept for the next
  random.word();
  auto copy = random;
  CHECK(copy.normal() == random.normal());
  CHECK(copy.word() == random.word());
}
