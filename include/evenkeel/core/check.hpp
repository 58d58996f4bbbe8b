#pragma once

#include <bit>      // bit_cast
#include <cmath>    // isfinite, for long double
#include <cstdint>  // uint64_t
#include <limits>   // the most an Index can be

#include "evenkeel/core/error.hpp"  // EVENKEEL_THROW
#include "evenkeel/core/types.hpp"  // Index

/// Checks of options. Each returns the value it was given, so that it can stand in a member initializer. Places are
/// "Class" for a constructor or "Class::function".
namespace evenkeel::detail {

/// Looks at the bits: a comparison may be optimized away under -ffast-math.
inline bool is_finite(double value) {
  constexpr std::uint64_t exponent = 0x7ff0000000000000;
  return (std::bit_cast<std::uint64_t>(value) & exponent) != exponent;
}
inline bool is_finite(float value) { return is_finite(static_cast<double>(value)); }
inline bool is_finite(long double value) { return std::isfinite(value); }

inline Index at_least(Index least, Index value, const char* place, const char* what) {
  if (value < least) EVENKEEL_THROW(std::invalid_argument, place, ": expected ", what, " >= ", least, ", got ", value);
  return value;
}

/// The positions >= 1 of each of so many channels, itself >= 1, where Index can count them all.
inline Index positions_of(Index channels, Index positions, const char* place) {
  constexpr Index most = (std::numeric_limits<Index>::max)();
  at_least(1, positions, place, "positions");
  if (positions > most / channels)
    EVENKEEL_THROW(std::invalid_argument, place, ": expected channels x positions of at most ", most, ", got ",
                   channels, " x ", positions);
  return positions;
}

/// Finite and greater than zero.
inline double positive(double value, const char* place, const char* what) {
  if (!is_finite(value) || !(value > 0))
    EVENKEEL_THROW(std::invalid_argument, place, ": expected a finite ", what, " > 0, got ", value);
  return value;
}

/// Finite and not below zero.
inline double not_negative(double value, const char* place, const char* what) {
  if (!is_finite(value) || !(value >= 0))
    EVENKEEL_THROW(std::invalid_argument, place, ": expected a finite ", what, " >= 0, got ", value);
  return value;
}

/// In [0, 1], ends included.
inline double fraction(double value, const char* place, const char* what) {
  if (!is_finite(value) || !(value >= 0) || !(value <= 1))
    EVENKEEL_THROW(std::invalid_argument, place, ": expected ", what, " in [0, 1], got ", value);
  return value;
}

/// In [0, 1), the end excluded.
inline double fraction_below_one(double value, const char* place, const char* what) {
  if (!is_finite(value) || !(value >= 0) || !(value < 1))
    EVENKEEL_THROW(std::invalid_argument, place, ": expected ", what, " in [0, 1), got ", value);
  return value;
}

/// A size of a layer whose template argument may fix it already.
template <int Fixed>
Index size_of(Index size, const char* place, const char* what = "features") {
  if (Fixed != Eigen::Dynamic && size != Fixed)
    EVENKEEL_THROW(std::invalid_argument, place, ": expected ", what, " = ", Fixed,
                   ", fixed by the template argument, got ", size);
  return at_least(1, size, place, what);
}

}  // namespace evenkeel::detail
