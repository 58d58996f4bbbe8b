#pragma once

#include <cmath>    // cos
#include <cstdint>  // int64_t

#include "evenkeel/core/check.hpp"  // not_negative
#include "evenkeel/core/error.hpp"  // EVENKEEL_THROW

/// Learning rate schedules: pure functions of the zero-based number of the update, each giving a factor for step(), which
/// multiplies the rate of every group by it. The first update of a warm-up has the factor 1 / warmup, not 0, which would
/// waste it. Each throws std::invalid_argument if a number is out of its bounds.
namespace evenkeel {

namespace detail {

inline void check_update(std::int64_t t, const char* place) {
  if (t < 0) EVENKEEL_THROW(std::invalid_argument, place, ": expected t >= 0, got ", t);
}
inline void check_warmup(std::int64_t warmup, const char* place) {
  if (warmup < 0) EVENKEEL_THROW(std::invalid_argument, place, ": expected warmup >= 0, got ", warmup);
}
inline void check_schedule(std::int64_t t, std::int64_t warmup, std::int64_t total, double final_factor,
                           const char* place) {
  check_update(t, place);
  check_warmup(warmup, place);
  if (total < 1) EVENKEEL_THROW(std::invalid_argument, place, ": expected total >= 1, got ", total);
  if (total < warmup)
    EVENKEEL_THROW(std::invalid_argument, place, ": expected total >= warmup = ", warmup, ", got ", total);
  not_negative(final_factor, place, "final_factor");
}

inline double ratio(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace detail

/// 1. t >= 0.
inline double constant(std::int64_t t) {
  detail::check_update(t, "constant");
  return 1;
}

/// (t + 1) / warmup in the first `warmup` updates, then 1; a warmup of 0 or 1 is none. Both >= 0.
inline double warmup(std::int64_t t, std::int64_t warmup) {
  detail::check_update(t, "warmup");
  detail::check_warmup(warmup, "warmup");
  return t < warmup ? detail::ratio(t + 1, warmup) : 1;
}

/// Warm-up, then half a cosine from 1 at t = warmup to final_factor at t = total and after.
/// t, warmup >= 0; total >= 1, >= warmup; final_factor finite, >= 0.
///
/// Source  Loshchilov & Hutter 2017, equation 5, https://arxiv.org/abs/1608.03983, one period of it.
inline double warmup_cosine(std::int64_t t, std::int64_t warmup, std::int64_t total, double final_factor = 0) {
  detail::check_schedule(t, warmup, total, final_factor, "warmup_cosine");
  if (t < warmup) return detail::ratio(t + 1, warmup);
  if (t >= total) return final_factor;
  const double angle = 3.14159265358979323846 * detail::ratio(t - warmup, total - warmup);
  return final_factor + (1 - final_factor) * 0.5 * (1 + std::cos(angle));
}

/// Warm-up, then a straight line from 1 at t = warmup to final_factor at t = total and after.
/// t, warmup >= 0; total >= 1, >= warmup; final_factor finite, >= 0.
inline double warmup_linear(std::int64_t t, std::int64_t warmup, std::int64_t total, double final_factor = 0) {
  detail::check_schedule(t, warmup, total, final_factor, "warmup_linear");
  if (t < warmup) return detail::ratio(t + 1, warmup);
  if (t >= total) return final_factor;
  return final_factor + (1 - final_factor) * detail::ratio(total - t, total - warmup);
}

}  // namespace evenkeel
