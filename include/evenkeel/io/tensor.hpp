#pragma once

#include <Eigen/Core>  // half, bfloat16

#include <algorithm>  // min
#include <array>
#include <bit>      // endian, bit_cast
#include <cmath>    // abs
#include <cstddef>  // byte, size_t
#include <cstdint>  // uint16_t, uint64_t
#include <cstring>  // memcpy
#include <limits>   // the most a uint64_t holds
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/core/check.hpp"  // is_finite
#include "evenkeel/core/error.hpp"  // text
#include "evenkeel/core/types.hpp"  // Real

namespace evenkeel {

static_assert(std::endian::native == std::endian::little,
              "evenkeel/io reads and writes on little-endian machines only");

/// What the elements of a tensor in a file are, in the order in which safetensors' own writer puts tensors, last first.
enum class TensorType {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

/// Sizes as PyTorch gives them: {} for a single number, {n} for a vector, {out, in} for Linear's weight.
using TensorShape = std::vector<std::uint64_t>;

/// A tensor in a file. The bytes belong to somebody else: to the file that was read, or to who writes one.
struct Tensor {
  std::string name;
  TensorType type;
  TensorShape shape;
  std::span<const std::byte> bytes;  ///< Row-major and little-endian, at any address: need not be aligned.
};

namespace detail {

struct TensorTypeTraits {
  const char* name;     // in files
  std::uint64_t bytes;  // of an element
};
inline constexpr std::array<TensorTypeTraits, 17> tensor_types = {{{"BOOL", 1},
                                                                   {"U8", 1},
                                                                   {"I8", 1},
                                                                   {"F8_E5M2", 1},
                                                                   {"F8_E4M3", 1},
                                                                   {"F8_E8M0", 1},
                                                                   {"I16", 2},
                                                                   {"U16", 2},
                                                                   {"F16", 2},
                                                                   {"BF16", 2},
                                                                   {"I32", 4},
                                                                   {"U32", 4},
                                                                   {"F32", 4},
                                                                   {"C64", 8},
                                                                   {"F64", 8},
                                                                   {"I64", 8},
                                                                   {"U64", 8}}};

constexpr std::uint64_t bytes_of(TensorType type) { return tensor_types[static_cast<std::size_t>(type)].bytes; }

}  // namespace detail

/// The format's name: "F32".
constexpr const char* to_string(TensorType type) { return detail::tensor_types[static_cast<std::size_t>(type)].name; }

namespace detail {

inline std::optional<TensorType> tensor_type_named(std::string_view name) {
  for (std::size_t i = 0; i < tensor_types.size(); ++i)
    if (name == tensor_types[i].name) return static_cast<TensorType>(i);
  return std::nullopt;
}

/// As Python writes it: (4, 2), (4,) or ().
inline std::string shape(const TensorShape& sizes) {
  constexpr std::size_t most = 8;  // a file may say anything
  std::string result = "(";
  for (std::size_t i = 0; i < (std::min)(sizes.size(), most); ++i) result += text(i > 0 ? ", " : "", sizes[i]);
  return result + (sizes.size() > most ? ", ...)" : sizes.size() == 1 ? ",)" : ")");
}

/// A name from a file, for a message.
inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t most = 100;
  return text('"', name.substr(0, most), name.size() > most ? "..." : "", '"');
}

/// The bytes that the elements take, none if that is more than a uint64_t holds.
inline std::optional<std::uint64_t> bytes_in(const TensorShape& sizes, TensorType type) {
  std::uint64_t bytes = bytes_of(type);
  for (const std::uint64_t size : sizes) {
    if (size != 0 && bytes > (std::numeric_limits<std::uint64_t>::max)() / size) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

/// Number i of bytes that need not be aligned.
template <typename Number>
Number number_at(std::span<const std::byte> bytes, std::size_t i) {
  Number number;
  std::memcpy(&number, bytes.data() + i * sizeof(Number), sizeof(Number));
  return number;
}

template <typename Number>
void append_number(std::vector<std::byte>& bytes, Number number) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(Number)>>(number);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

/// The types whose elements can become a layer's numbers.
constexpr bool is_floating(TensorType type) {
  return type == TensorType::f16 || type == TensorType::bf16 || type == TensorType::f32 || type == TensorType::f64;
}

/// Element i, exactly: a double holds every number of every floating type.
inline double floating_at(TensorType type, std::span<const std::byte> bytes, std::size_t i) {
  switch (type) {
    case TensorType::f16:
      return static_cast<double>(Eigen::numext::bit_cast<Eigen::half>(number_at<std::uint16_t>(bytes, i)));
    case TensorType::bf16:
      return static_cast<double>(Eigen::numext::bit_cast<Eigen::bfloat16>(number_at<std::uint16_t>(bytes, i)));
    case TensorType::f32:
      return static_cast<double>(number_at<float>(bytes, i));
    default:
      return number_at<double>(bytes, i);
  }
}

/// As a float with its last bit set where digits were lost: rounding that to 16 bits gives what a single rounding would,
/// as at least two more bits are kept. Round to odd: Boldo & Melquiond 2008, https://doi.org/10.1109/TC.2007.70819.
template <Real Scalar>
float rounded_to_odd(Scalar value) {
  const auto nearest = static_cast<float>(value);
  if (!is_finite(value) || static_cast<Scalar>(nearest) == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<Scalar>(nearest)) > std::abs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

/// Appends a number, rounded to nearest, ties to even; NaN stays NaN. False if it is finite and the type cannot hold it.
template <Real Scalar>
bool append_floating(std::vector<std::byte>& bytes, TensorType type, Scalar value) {
  bool held = false;
  const auto append = [&](auto number, double as_read) {
    append_number(bytes, number);
    held = is_finite(as_read) || !is_finite(value);
  };
  switch (type) {
    case TensorType::f16: {
      const Eigen::half number(rounded_to_odd(value));
      append(Eigen::numext::bit_cast<std::uint16_t>(number), static_cast<double>(number));
      break;
    }
    case TensorType::bf16: {
      const Eigen::bfloat16 number(rounded_to_odd(value));
      append(Eigen::numext::bit_cast<std::uint16_t>(number), static_cast<double>(number));
      break;
    }
    case TensorType::f32:
      append(static_cast<float>(value), static_cast<double>(static_cast<float>(value)));
      break;
    default:
      append(static_cast<double>(value), static_cast<double>(value));
  }
  return held;
}

}  // namespace detail
}  // namespace evenkeel
