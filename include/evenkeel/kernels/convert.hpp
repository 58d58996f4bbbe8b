#pragma once

#if defined(__F16C__)
#include <immintrin.h>  // _mm256_cvtph_ps, _mm512_cvtph_ps
#endif

#include <algorithm>    // copy_n
#include <bit>          // bit_cast
#include <concepts>     // same_as
#include <cstdint>      // uint16_t, uint32_t
#include <type_traits>  // conditional_t

#include "evenkeel/core/types.hpp"        // Half, Arithmetic
#include "evenkeel/kernels/register.hpp"  // Register

/// Halves to floats, exactly, and back: to the nearest, of two that are equally near to the even one, as IEEE 754 has it, and
/// beyond the largest to infinity. NaN stays NaN. Bit by bit, so that no compiler flag changes what comes out.
namespace evenkeel::kernels {
namespace detail {

/// The bits of a 16-bit number as floats hold them. Bits: std::uint32_t, or a register of them.
template <Half Type, class Bits>
EVENKEEL_INLINE inline Bits widened(const Bits& bits) {
  if constexpr (std::same_as<Type, Eigen::bfloat16>) {
    return bits << 16;
  } else {
    using Floats = std::conditional_t<std::same_as<Bits, std::uint32_t>, float, Register<float>>;
    const Bits sign = (bits & 0x8000u) << 16;
    const Bits magnitude = (bits & 0x7FFFu) << 13;
    constexpr std::uint32_t rebias = 112u << 23, smallest_normal = 113u << 23;
    const Bits normal = magnitude + rebias;
    const Bits infinite = (normal + rebias) | (magnitude > 0x0F800000u ? Bits{} + 0x400000u : Bits{});
    const Bits subnormal = std::bit_cast<Bits>(std::bit_cast<Floats>(Bits(magnitude + smallest_normal)) -
                                               std::bit_cast<float>(smallest_normal));
    return sign | (magnitude < 0x800000u ? subnormal : magnitude < 0x0F800000u ? normal : infinite);
  }
}

/// The bits of the nearest 16-bit number, from those of a float.
template <Half Type, class Bits>
EVENKEEL_INLINE inline Bits narrowed(const Bits& bits) {
  const Bits magnitude = bits & 0x7FFFFFFFu;
  constexpr std::uint32_t infinity = 0x7F800000u;
  if constexpr (std::same_as<Type, Eigen::bfloat16>) {
    const Bits rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return magnitude > infinity ? Bits((bits >> 16) | 0x40u) : rounded;
  } else {
    using Floats = std::conditional_t<std::same_as<Bits, std::uint32_t>, float, Register<float>>;
    constexpr std::uint32_t rebias = 112u << 23, smallest_normal = 113u << 23, half = 126u << 23;
    const Bits sign = (bits >> 16) & 0x8000u;
    const Bits normal = ((magnitude - rebias) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    // The last bit of 1/2 is that of the smallest subnormal: the addition rounds to it.
    const Bits subnormal = std::bit_cast<Bits>(std::bit_cast<Floats>(magnitude) + std::bit_cast<float>(half)) - half;
    const Bits quiet = ((magnitude >> 13) & 0x3FFu) | 0x7E00u;
    const Bits large = magnitude > infinity ? quiet : Bits{} + 0x7C00u;
    constexpr std::uint32_t too_large = 143u << 23;  // 65536
    return sign | (magnitude < smallest_normal ? subnormal : magnitude < too_large ? normal : large);
  }
}

#if defined(__GNUC__)
/// As many as fill a register as floats.
using HalfLanes = Register<std::uint16_t, register_bytes / 2>;

template <Half From>
EVENKEEL_INLINE inline void convert_lanes(const From* from, float* to) {
  const auto halves = load<HalfLanes>(reinterpret_cast<const std::uint16_t*>(from));
#if defined(__F16C__)
  if constexpr (std::same_as<From, Eigen::half>) {
#if defined(__AVX512F__)
    return store<Register<float>>(to, _mm512_cvtph_ps(std::bit_cast<__m256i>(halves)));
#else
    return store<Register<float>>(to, _mm256_cvtph_ps(std::bit_cast<__m128i>(halves)));
#endif
  }
#endif
  const auto bits = widened<From>(__builtin_convertvector(halves, Register<std::uint32_t>));
  store<Register<float>>(to, std::bit_cast<Register<float>>(bits));
}
template <Half To>
EVENKEEL_INLINE inline void convert_lanes(const float* from, To* to) {
  const auto floats = load<Register<float>>(from);
  auto* const halves = reinterpret_cast<std::uint16_t*>(to);
#if defined(__F16C__)
  if constexpr (std::same_as<To, Eigen::half>) {
#if defined(__AVX512F__)
    return store<HalfLanes>(halves, std::bit_cast<HalfLanes>(_mm512_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT)));
#else
    return store<HalfLanes>(halves, std::bit_cast<HalfLanes>(_mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT)));
#endif
  }
#endif
  const auto bits = narrowed<To>(std::bit_cast<Register<std::uint32_t>>(floats));
  store<HalfLanes>(halves, __builtin_convertvector(bits, HalfLanes));
}
#endif

}  // namespace detail

template <Half From>
float to_float(From from) {
  return std::bit_cast<float>(detail::widened<From>(std::uint32_t{std::bit_cast<std::uint16_t>(from)}));
}
template <Half To>
To to_half(float from) {
  return std::bit_cast<To>(static_cast<std::uint16_t>(detail::narrowed<To>(std::bit_cast<std::uint32_t>(from))));
}

/// to = from: the same type, or a half and a float.
template <typename From, typename To>
void convert(const From& from, To& to) {
  if constexpr (std::same_as<From, To>)
    to = from;
  else if constexpr (Half<From>)
    to = to_float(from);
  else
    to = to_half<To>(from);
}

/// The same for `count` numbers that lie together.
template <typename From, typename To>
void convert(Index count, const From* from, To* to) {
  if constexpr (std::same_as<From, To>) {
    std::copy_n(from, count, to);
  } else {
    Index whole = 0;
#if defined(__GNUC__)
    whole = count - count % register_count<float>;
    for (Index i = 0; i < whole; i += register_count<float>) detail::convert_lanes(from + i, to + i);
#endif
    for (Index i = whole; i < count; ++i) convert(from[i], to[i]);
  }
}

/// What is computed with.
template <typename Stored>
Arithmetic<Stored> as_number(const Stored& stored) {
  Arithmetic<Stored> number;
  convert(stored, number);
  return number;
}

}  // namespace evenkeel::kernels
