#include "evenkeel/kernels/convert.hpp"

#include <bit>      // bit_cast
#include <cmath>    // ldexp, isnan, nextafter, signbit
#include <cstdint>  // uint16_t, uint32_t
#include <limits>
#include <vector>

#include "catch.hpp"

namespace kernels = evenkeel::kernels;
using Eigen::bfloat16;
using Eigen::half;
using evenkeel::Index;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// IEEE 754's interchange formats: bits of the exponent and of the fraction.
template <typename Type>
struct Format;
template <>
struct Format<half> {
  static constexpr int exponent = 5, fraction = 10;
};
template <>
struct Format<bfloat16> {
  static constexpr int exponent = 8, fraction = 7;
};

/// The value that these bits stand for, NaN apart.
template <typename Type>
long double value_of(std::uint16_t bits) {
  constexpr int fraction_bits = Format<Type>::fraction, most = (1 << Format<Type>::exponent) - 1;
  constexpr int bias = most / 2;
  const int exponent = (bits >> fraction_bits) & most, fraction = bits & ((1 << fraction_bits) - 1);
  long double magnitude = std::numeric_limits<long double>::infinity();
  if (exponent < most)
    magnitude = exponent == 0 ? std::ldexp(static_cast<long double>(fraction), 1 - bias - fraction_bits)
                              : std::ldexp(static_cast<long double>(fraction + (1 << fraction_bits)),
                                           exponent - bias - fraction_bits);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

template <typename Type>
bool is_nan(std::uint16_t bits) {
  constexpr int infinite = ((1 << Format<Type>::exponent) - 1) << Format<Type>::fraction;
  return (bits & 0x7FFF) > infinite;
}

/// Both ways to convert: a number alone, and among others that fill registers and leave some over.
template <typename From, typename To>
std::vector<To> converted(const std::vector<From>& numbers) {
  std::vector<To> alone(numbers.size()), together(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) kernels::convert(numbers[i], alone[i]);
  kernels::convert(static_cast<Index>(numbers.size()), numbers.data(), together.data());
  using Bits = std::conditional_t<sizeof(To) == 2, std::uint16_t, std::uint32_t>;
  std::size_t different = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    different += std::bit_cast<Bits>(alone[i]) != std::bit_cast<Bits>(together[i]);
  CHECK(different == 0);
  return together;
}

template <typename Type>
std::uint16_t bits_of(Type number) {
  return std::bit_cast<std::uint16_t>(number);
}

}  // namespace

TEMPLATE_TEST_CASE("Every half becomes the float of its value, and comes back as it was", "[convert]", half, bfloat16) {
  std::vector<TestType> halves;
  for (std::uint32_t bits = 0; bits < 65535; ++bits)  // all but one, so that some are left over
    halves.push_back(std::bit_cast<TestType>(static_cast<std::uint16_t>(bits)));
  const std::vector<float> floats = converted<TestType, float>(halves);
  const std::vector<TestType> back = converted<float, TestType>(floats);
  std::size_t wrong = 0, not_back = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    if (is_nan<TestType>(bits)) {
      wrong += !std::isnan(floats[i]) || std::signbit(floats[i]) != (bits >> 15 != 0);
      not_back += !is_nan<TestType>(bits_of(back[i]));
    } else {
      const long double value = value_of<TestType>(bits);
      wrong += static_cast<long double>(floats[i]) != value || std::signbit(floats[i]) != std::signbit(value);
      not_back += bits_of(back[i]) != bits;
    }
  }
  CHECK(wrong == 0);
  CHECK(not_back == 0);
}

TEMPLATE_TEST_CASE("Floats become the nearest half, of two equally near the even one", "[convert]", half, bfloat16) {
  constexpr int infinite = ((1 << Format<TestType>::exponent) - 1) << Format<TestType>::fraction;
  std::vector<float> floats;
  std::vector<std::uint16_t> nearest;
  for (int bits = 0; bits < infinite; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    // Where the next is infinity, it stands for the number that would follow.
    const long double next =
        bits + 1 < infinite ? value_of<TestType>(high) : 2 * value_of<TestType>(low) - value_of<TestType>(low - 1);
    const auto middle = static_cast<float>((value_of<TestType>(low) + next) / 2);  // exact
    for (const int sign : {0, 0x8000}) {
      const auto expect = [&](float number, std::uint16_t to) {
        floats.push_back(sign == 0 ? number : -number);
        nearest.push_back(static_cast<std::uint16_t>(to | sign));
      };
      expect(std::nextafter(middle, 0.0f), low);
      expect(middle, bits % 2 == 0 ? low : high);
      expect(std::nextafter(middle, infinity), high);
    }
  }
  for (const float large : {(std::numeric_limits<float>::max)(), infinity}) {
    floats.push_back(large);
    nearest.push_back(static_cast<std::uint16_t>(infinite));
    floats.push_back(-large);
    nearest.push_back(static_cast<std::uint16_t>(infinite | 0x8000));
  }
  for (const float tiny : {0.0f, std::numeric_limits<float>::denorm_min()}) {
    floats.push_back(-tiny);
    nearest.push_back(0x8000);
  }
  const std::vector<TestType> halves = converted<float, TestType>(floats);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) wrong += bits_of(halves[i]) != nearest[i];
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("NaN of every kind stays NaN", "[convert]", half, bfloat16) {
  std::vector<float> floats;
  for (const std::uint32_t fraction : {1u, 0x1000u, 0x8000u, 0x200000u, 0x400000u, 0x7FFFFFu, 0x7FFFFEu, 0x7F8000u})
    for (const std::uint32_t sign : {0u, 0x80000000u})
      floats.push_back(std::bit_cast<float>(sign | 0x7F800000u | fraction));
  const std::vector<TestType> halves = converted<float, TestType>(floats);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    CHECK(is_nan<TestType>(bits_of(halves[i])));
    CHECK((bits_of(halves[i]) >> 15 != 0) == std::signbit(floats[i]));
  }
}
