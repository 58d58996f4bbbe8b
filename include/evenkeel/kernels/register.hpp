#pragma once

#if defined(__GNUC__) && defined(__AVX__)
#include <immintrin.h>  // _mm256_sqrt_ps, _mm512_sqrt_ps
#elif defined(__GNUC__) && defined(__SSE2__)
#include <emmintrin.h>  // _mm_sqrt_ps
#endif

#include <Eigen/Core>  // Array, Map

#include <cmath>     // sqrt
#include <concepts>  // same_as
#include <cstddef>   // size_t

#include "evenkeel/core/types.hpp"  // Index

/// Numbers in one vector register of the target. Where a formula is written in one statement of these, both compilers fuse
/// its multiplications and additions, which they do not do for Eigen's arrays; and they are as fast without optimization flags
/// beyond -O2.
namespace evenkeel::kernels {

/// Functions and lambdas inside of loops, which must become part of them: what they hold would else live in memory. Written
/// behind the parameters of a lambda and before a function.
#if defined(__GNUC__)
#define EVENKEEL_INLINE __attribute__((always_inline))
#else
#define EVENKEEL_INLINE
#endif

/// Functions that must not become part of loops: what is rare.
#if defined(__GNUC__)
#define EVENKEEL_APART __attribute__((noinline))
#else
#define EVENKEEL_APART
#endif

/// Before a loop whose numbers fill the registers: clang would unroll it, and have too few.
#if defined(__clang__)
#define EVENKEEL_AS_WRITTEN _Pragma("clang loop unroll(disable)")
#else
#define EVENKEEL_AS_WRITTEN
#endif

#if defined(__AVX512F__)
inline constexpr Index register_bytes = 64;
#elif defined(__AVX__)
inline constexpr Index register_bytes = 32;
#else
inline constexpr Index register_bytes = 16;
#endif

namespace detail {

/// Type: the numbers in a register. InMemory: the same anywhere among numbers in memory.
template <typename Scalar, Index Count>
struct RegisterOf {
#if defined(__GNUC__)
  static constexpr std::size_t bytes = static_cast<std::size_t>(Count) * sizeof(Scalar);
  typedef Scalar Type __attribute__((vector_size(bytes)));
  typedef Scalar InMemory __attribute__((vector_size(bytes), aligned(sizeof(Scalar)), may_alias));
#else
  using Type = Eigen::Array<Scalar, static_cast<int>(Count), 1>;
#endif
};
template <Index Count>
struct RegisterOf<long double, Count> {
  using Type = Eigen::Array<long double, static_cast<int>(Count), 1>;
};

}  // namespace detail

/// So many bytes of numbers: a power of two, at most register_bytes. Has + - * / with its like and with a number.
template <typename Scalar, Index Bytes = register_bytes>
using Register = typename detail::RegisterOf<Scalar, Bytes / static_cast<Index>(sizeof(Scalar))>::Type;

/// How many fit in a whole register.
template <typename Scalar>
inline constexpr Index register_count = register_bytes / static_cast<Index>(sizeof(Scalar));

template <class R, typename Scalar>
EVENKEEL_INLINE inline R load(const Scalar* from) {
  constexpr auto count = static_cast<Index>(sizeof(R) / sizeof(Scalar));
  if constexpr (requires { R::Zero(); })
    return Eigen::Map<const R>(from);
  else
    return *reinterpret_cast<const typename detail::RegisterOf<Scalar, count>::InMemory*>(from);
}
template <class R, typename Scalar>
EVENKEEL_INLINE inline void store(Scalar* to, const R& values) {
  constexpr auto count = static_cast<Index>(sizeof(R) / sizeof(Scalar));
  if constexpr (requires { R::Zero(); })
    Eigen::Map<R>{to} = values;
  else
    *reinterpret_cast<typename detail::RegisterOf<Scalar, count>::InMemory*>(to) = values;
}

template <class R>
EVENKEEL_INLINE inline R zeros() {
  if constexpr (requires { R::Zero(); })
    return R::Zero();
  else
    return R{};
}
template <class R, typename Scalar>
EVENKEEL_INLINE inline R filled_with(Scalar value) {
  if constexpr (requires { R::Zero(); })
    return R::Constant(value);
  else
    return value - R{};  // also where the value is -0
}

/// The larger of each pair; the second where either is NaN.
template <class R>
EVENKEEL_INLINE inline R larger(const R& a, const R& b) {
  if constexpr (requires { a.matrix(); })
    return (a > b).select(a, b);
  else
    return a > b ? a : b;
}

/// Rounded correctly. Written with vector instructions, where there are any, because std::sqrt, which has to set errno, is not
/// vectorized by either compiler, and Eigen's is off by some bits in float.
template <typename Scalar>
EVENKEEL_INLINE inline Register<Scalar> square_root(const Register<Scalar>& x) {
#if defined(__GNUC__) && defined(__AVX512F__)
  if constexpr (std::same_as<Scalar, float>) return _mm512_sqrt_ps(x);
  if constexpr (std::same_as<Scalar, double>) return _mm512_sqrt_pd(x);
#elif defined(__GNUC__) && defined(__AVX__)
  if constexpr (std::same_as<Scalar, float>) return _mm256_sqrt_ps(x);
  if constexpr (std::same_as<Scalar, double>) return _mm256_sqrt_pd(x);
#elif defined(__GNUC__) && defined(__SSE2__)
  if constexpr (std::same_as<Scalar, float>) return _mm_sqrt_ps(x);
  if constexpr (std::same_as<Scalar, double>) return _mm_sqrt_pd(x);
#endif
  Register<Scalar> roots;
  for (Index i = 0; i < register_count<Scalar>; ++i) roots[i] = std::sqrt(x[i]);
  return roots;
}

}  // namespace evenkeel::kernels
