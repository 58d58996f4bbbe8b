#pragma once

#include <array>
#include <bit>      // bit_cast
#include <cmath>    // abs, sqrt
#include <cstdint>  // uint64_t

#include "evenkeel/core/check.hpp"          // is_finite
#include "evenkeel/core/error.hpp"          // EVENKEEL_THROW
#include "evenkeel/core/parameter.hpp"      // Parameters
#include "evenkeel/core/types.hpp"          // Wide
#include "evenkeel/kernels/moments.hpp"     // sums
#include "evenkeel/training/optimizer.hpp"  // HasParameters

namespace evenkeel {

/// Which norm of all gradients, taken as one vector.
enum class NormOrder {
  l1,       ///< The sum of the magnitudes.
  l2,       ///< The root of the sum of the squares.
  infinity  ///< The largest magnitude.
};

namespace detail {

/// The sum of term(element) over all gradients.
template <typename Scalar, class Term>
Wide<Scalar> sum_over_gradients(const Parameters<Scalar>& parameters, const Term& term) {
  Wide<Scalar> sum = 0;
  for (const auto& parameter : parameters) {
    const Scalar* gradient = parameter.gradient.data();
    sum += kernels::sums<Wide<Scalar>, 1>(
        parameter.size(), [&](Index i) { return std::array{term(static_cast<Wide<Scalar>>(gradient[i]))}; })[0];
  }
  return sum;
}

/// The largest magnitude; the sum of all that is not finite, if anything is: an infinity or NaN.
template <typename Scalar>
Wide<Scalar> largest_gradient(const Parameters<Scalar>& parameters) {
  Wide<Scalar> largest = 0;
  Wide<Scalar> not_finite = 0;
  bool found = false;
  for (const auto& parameter : parameters)
    for (Index i = 0; i < parameter.size(); ++i) {
      const Wide<Scalar> magnitude = std::abs(static_cast<Wide<Scalar>>(parameter.gradient.data()[i]));
      if (!is_finite(magnitude)) {
        not_finite += magnitude;
        found = true;
      } else if (magnitude > largest) {
        largest = magnitude;
      }
    }
  return found ? not_finite : largest;
}

template <typename Scalar>
Wide<Scalar> l2_norm(const Parameters<Scalar>& parameters) {
  using Sum = Wide<Scalar>;
  const Sum squares = sum_over_gradients(parameters, [](Sum g) { return g * g; });
  // Squares below the normal range are lost: they must not matter. For float they never are.
  if (is_finite(squares) && squares > Sum(0x1p-900)) return std::sqrt(squares);
  const Sum largest = largest_gradient(parameters);
  if (!is_finite(largest) || largest == 0) return largest;
  return largest *
         std::sqrt(sum_over_gradients(parameters, [largest](Sum g) { return (g / largest) * (g / largest); }));
}

template <typename Scalar>
Wide<Scalar> gradient_norm(const Parameters<Scalar>& parameters, NormOrder order) {
  using Sum = Wide<Scalar>;
  switch (order) {
    case NormOrder::l1:
      return sum_over_gradients(parameters, [](Sum g) { return std::abs(g); });
    case NormOrder::l2:
      return l2_norm(parameters);
    case NormOrder::infinity:
      return largest_gradient(parameters);
  }
  EVENKEEL_THROW(std::invalid_argument, "clip_gradient_norm: expected l1, l2 or infinity, got another norm");
}

}  // namespace detail

/// Scales all gradients by one number, so that their norm is at most `max_norm`, and returns the norm they had.
///
///     g = g max_norm / (norm + 1e-6)      if that factor is below 1
///
/// A norm that is not finite (of an infinite or NaN gradient, or one beyond double) is returned as it is and the gradients
/// are left alone: look at the result and skip the step. max_norm = infinity only measures; 0 clears. No intermediate
/// result overflows or underflows. Throws std::invalid_argument if max_norm is negative or NaN.
///
/// Source  torch.nn.utils.clip_grad_norm_, which however spreads a NaN to all gradients; Pascanu, Mikolov & Bengio 2013,
///         Algorithm 1, https://arxiv.org/abs/1211.5063.
///
/// For a loop that does not allocate take the list, network.parameters(), once.
template <Real Scalar>
double clip_gradient_norm(const Parameters<Scalar>& parameters, double max_norm, NormOrder order = NormOrder::l2) {
  const bool unbounded = std::bit_cast<std::uint64_t>(max_norm) == 0x7ff0000000000000;
  if (!unbounded && (!detail::is_finite(max_norm) || !(max_norm >= 0)))
    EVENKEEL_THROW(std::invalid_argument, "clip_gradient_norm: expected max_norm >= 0, got ", max_norm);
  const auto norm = static_cast<double>(detail::gradient_norm(parameters, order));
  if (unbounded || !detail::is_finite(norm)) return norm;
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor < 1)) return norm;
  for (const auto& parameter : parameters) {
    Scalar* gradient = parameter.flat_gradient().data();
    for (Index i = 0; i < parameter.size(); ++i)
      gradient[i] = static_cast<Scalar>(static_cast<Wide<Scalar>>(gradient[i]) * Wide<Scalar>(factor));
  }
  return norm;
}

template <class Network>
requires requires(Network& network) { network.parameters(); }
double clip_gradient_norm(Network& network, double max_norm, NormOrder order = NormOrder::l2) {
  return clip_gradient_norm(network.parameters(), max_norm, order);
}

}  // namespace evenkeel
