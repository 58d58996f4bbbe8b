#include "evenkeel/io/tensor.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "io/bytes.hpp"

namespace ek = evenkeel;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

float read(ek::TensorType type, std::uint16_t word) {
  return static_cast<float>(ek::detail::floating_at(type, bytes::of({word}), 0));
}

/// The bits that a number is written as.
template <typename Bits, typename Scalar>
Bits written(ek::TensorType type, Scalar value, bool held = true) {
  std::vector<std::byte> raw;
  CHECK(ek::detail::append_floating(raw, type, value) == held);
  REQUIRE(raw.size() == sizeof(Bits));
  return ek::detail::number_at<Bits>(raw, 0);
}

}  // namespace

TEST_CASE("SFT-9: Every F16 is read exactly: subnormals, infinities, NaN and the sign of zero", "[tensor]") {
  const auto f16 = [](std::uint16_t word) { return read(ek::TensorType::f16, word); };
  CHECK(f16(0x0001) == 5.960464477539063e-08F);
  CHECK(f16(0x03FF) == 6.097555160522461e-05F);
  CHECK(f16(0x0400) == 6.103515625e-05F);
  CHECK(f16(0x3C00) == 1.0F);
  CHECK(f16(0x3555) == 0.333251953125F);
  CHECK(f16(0x7BFF) == 65504.0F);
  CHECK(f16(0x7C00) == static_cast<float>(infinity));
  CHECK(f16(0xFC00) == -static_cast<float>(infinity));
  CHECK(std::isnan(f16(0x7E00)));
  CHECK(compare::same_bits(f16(0x8000), -0.0F));
  CHECK(f16(0xC100) == -2.5F);
  CHECK(f16(0x8001) == -5.960464477539063e-08F);
}

TEST_CASE("SFT-10: Every BF16 is read exactly, and not as an F16", "[tensor]") {
  const auto bf16 = [](std::uint16_t word) { return read(ek::TensorType::bf16, word); };
  CHECK(bf16(0x3F80) == 1.0F);
  CHECK(bf16(0x4049) == 3.140625F);
  CHECK(bf16(0x7F80) == static_cast<float>(infinity));
  CHECK(std::isnan(bf16(0x7FC0)));
  CHECK(bf16(0x0001) == 9.183549615799121e-41F);
  CHECK(bf16(0xC000) == -2.0F);
  CHECK(bf16(0x7F7F) == 3.3895313892515355e38F);
  CHECK(bf16(0x3DCC) == 0.099609375F);
}

TEST_CASE("SFT-10: 16-bit numbers are rounded to nearest, ties to even, and NaN stays NaN", "[tensor]") {
  const auto bf16 = [](auto value) { return written<std::uint16_t>(ek::TensorType::bf16, value); };
  CHECK(bf16(0.2691408770292272F) == 0x3E8A);  // cut off it would be 3E89
  CHECK(bf16(0x1.01p0F) == 0x3F80);            // half way: to even, down
  CHECK(bf16(0x1.03p0F) == 0x3F82);            // up
  CHECK(std::isnan(read(ek::TensorType::bf16, bf16(std::bit_cast<float>(0x7F800001U)))));
  CHECK(bf16(-infinity) == 0xFF80);
  CHECK(bf16(-0.0) == 0x8000);

  const auto f16 = [](auto value) { return written<std::uint16_t>(ek::TensorType::f16, value); };
  CHECK(f16(0x1.002p0F) == 0x3C00);
  CHECK(f16(0x1.006p0F) == 0x3C02);
  CHECK(f16(65519.0F) == 0x7BFF);
  CHECK(f16(0x1p-25F) == 0x0000);  // half of the smallest
  CHECK(f16(0x1.8p-24F) == 0x0002);
  CHECK(std::isnan(read(ek::TensorType::f16, f16(std::bit_cast<float>(0x7F800001U)))));
}

TEST_CASE("A double becomes a 16-bit number by one rounding, not by two", "[tensor]") {
  // Just beyond half way; as a float, exactly half way, and to even would be down.
  CHECK(written<std::uint16_t>(ek::TensorType::f16, 0x1.002p0 + 0x1p-40) == 0x3C01);
  CHECK(written<std::uint16_t>(ek::TensorType::f16, -0x1.002p0 - 0x1p-40) == 0xBC01);
  CHECK(written<std::uint16_t>(ek::TensorType::bf16, 0x1.01p0 + 0x1p-40) == 0x3F81);
  // Just before half way to the odd one below; as a float half way, and to even would be up.
  CHECK(written<std::uint16_t>(ek::TensorType::f16, 0x1.006p0 - 0x1p-40) == 0x3C01);
  CHECK(written<std::uint16_t>(ek::TensorType::bf16, static_cast<long double>(0x1.03p0) - 0x1p-40L) == 0x3F81);
}

TEST_CASE("Numbers of 32 and 64 bits are written and read as they are", "[tensor]") {
  CHECK(written<std::uint32_t>(ek::TensorType::f32, 0.1F) == std::bit_cast<std::uint32_t>(0.1F));
  CHECK(written<std::uint32_t>(ek::TensorType::f32, 0.1) == std::bit_cast<std::uint32_t>(0.1F));
  CHECK(written<std::uint64_t>(ek::TensorType::f64, 0.1) == std::bit_cast<std::uint64_t>(0.1));
  CHECK(ek::detail::floating_at(ek::TensorType::f64, bytes::of({1.0, 0.1}), 1) == 0.1);
  CHECK(ek::detail::floating_at(ek::TensorType::f32, bytes::of({1.0F, 0.1F}), 1) == static_cast<double>(0.1F));
}

TEST_CASE("A finite number that a type cannot hold is told, infinity is written", "[tensor]") {
  CHECK(written<std::uint16_t>(ek::TensorType::f16, 65520.0F, false) == 0x7C00);
  CHECK(written<std::uint16_t>(ek::TensorType::bf16, -3.4e38F, false) == 0xFF80);
  CHECK(written<std::uint32_t>(ek::TensorType::f32, 1e300, false) == 0x7F800000);
  CHECK(written<std::uint16_t>(ek::TensorType::f16, infinity) == 0x7C00);
}

TEST_CASE("The types have the format's names and sizes", "[tensor]") {
  CHECK(ek::to_string(ek::TensorType::boolean) == std::string("BOOL"));
  CHECK(ek::to_string(ek::TensorType::f32) == std::string("F32"));
  CHECK(ek::to_string(ek::TensorType::u64) == std::string("U64"));
  CHECK(ek::detail::bytes_of(ek::TensorType::bf16) == 2);
  CHECK(ek::detail::bytes_of(ek::TensorType::f64) == 8);
  CHECK(ek::detail::tensor_type_named("F8_E5M2") == ek::TensorType::f8_e5m2);
  CHECK(ek::detail::tensor_type_named("f32") == std::nullopt);
}

TEST_CASE("The bytes of a shape are counted without overflow", "[tensor]") {
  const auto bytes_in = [](ek::TensorShape shape) { return ek::detail::bytes_in(shape, ek::TensorType::f32); };
  CHECK(bytes_in({}) == 4);
  CHECK(bytes_in({3, 5}) == 60);
  CHECK(bytes_in({2, 0}) == 0);
  CHECK(bytes_in({std::uint64_t{1} << 62}) == std::nullopt);
  CHECK(bytes_in({std::uint64_t{1} << 31, std::uint64_t{1} << 31}) == std::nullopt);
}

TEST_CASE("Shapes and names in messages are short and read as in Python", "[tensor]") {
  CHECK(ek::detail::shape({}) == "()");
  CHECK(ek::detail::shape({4}) == "(4,)");
  CHECK(ek::detail::shape({4, 2}) == "(4, 2)");
  CHECK(ek::detail::shape(ek::TensorShape(9, 1)) == "(1, 1, 1, 1, 1, 1, 1, 1, ...)");
  CHECK(ek::detail::in_quotes("0.weight") == "\"0.weight\"");
  CHECK(ek::detail::in_quotes(std::string(101, 'a')) == '"' + std::string(100, 'a') + "...\"");
}
