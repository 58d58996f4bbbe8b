#pragma once

#include <cmath>    // sqrt
#include <cstdint>  // uint32_t, uint64_t

#include "evenkeel/core/types.hpp"       // Wide, Arithmetic
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/dropout.hpp"  // drop_forward
#include "evenkeel/kernels/lanes.hpp"    // Lanes, filled_with
#include "evenkeel/kernels/mask.hpp"     // MaskKey

namespace evenkeel::kernels {

/// What alpha dropout makes of an element: scale x + shift where kept, else `dropped`.
template <typename Scalar>
struct AlphaRule {
  Scalar scale, shift, dropped;

  EVENKEEL_INLINE Lanes<Scalar> operator()(std::uint64_t bits, const Lanes<Scalar>& x) const {
    const Lanes<Scalar> kept = x * scale + shift;
    return detail::kept_only<Scalar>(bits, kept) +
           detail::kept_only<Scalar>(~bits, filled_with<Lanes<Scalar>>(dropped));
  }
};

/// The rule that keeps mean 0 and variance 1, p being threshold / 65536. With q = 1 - p and alpha' = -1.7580993408473766,
/// SELU's limit for large negative inputs:
///
///     a = (q + alpha'^2 q p)^(-1/2),   b = -a p alpha'       kept: a x + b, dropped: a alpha' + b
///
/// Klambauer et al. 2017. Zeros where p is 1.
template <typename Scalar>
AlphaRule<Scalar> alpha_rule(std::uint32_t threshold) {
  using Number = Wide<Scalar>;
  if (threshold > 65535) return {0, 0, 0};
  constexpr auto limit = static_cast<Number>(-1.7580993408473768599402175208123L);  // -scale * alpha of SELU
  const Number p = static_cast<Number>(threshold) / 65536;
  const Number q = 1 - p;
  const Number a = 1 / std::sqrt(q + limit * limit * q * p);
  return {static_cast<Scalar>(a), static_cast<Scalar>(-a * p * limit), static_cast<Scalar>(a * q * limit)};
}

/// y = rule(x), whatever x is where it is dropped. y may be x. Keeps the mask in `mask`, unless that is null. Its backward is
/// dropout_backward with the rule's scale.
template <typename Stored>
void alpha_dropout_forward(View<const Stored> x, const MaskKey& key, AlphaRule<Arithmetic<Stored>> rule, View<Stored> y,
                           std::uint64_t* mask) {
  detail::drop_forward(x, key, rule, y, mask);
}

}  // namespace evenkeel::kernels
