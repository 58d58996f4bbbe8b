#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>  // _mm_stream_si128, _mm_sfence
#endif

#include <Eigen/Core>  // Array

#include <algorithm>  // min
#include <array>
#include <cstddef>      // size_t
#include <cstdint>      // uintptr_t
#include <cstring>      // memcpy
#include <type_traits>  // integral_constant
#include <utility>      // index_sequence

#include "evenkeel/core/types.hpp"        // Index, Wide
#include "evenkeel/core/view.hpp"         // View
#include "evenkeel/kernels/register.hpp"  // Register

/// Loops over the rows of matrices at the speed of memory: numbers are taken a register at a time.
namespace evenkeel::kernels {

/// A stride that is one, known at compile time: what lets a row be read in vectors.
using UnitStride = std::integral_constant<Index, 1>;

/// Calls body with UnitStride where every stride is one, and with the run-time strides otherwise.
template <class Body, class... Strides>
decltype(auto) with_strides(const Body& body, Strides... strides) {
  if ((true && ... && (strides == 1))) return body(((void)strides, UnitStride{})...);
  return body(strides...);
}

/// Numbers worked on side by side. Sums over a row depend on how many, so their last bits differ between targets, as they do
/// with fused multiplication.
template <typename Scalar>
using Lanes = Register<Scalar>;
template <typename Scalar>
inline constexpr Index lane_count = register_count<Scalar>;

/// Whether the target has 32 registers, or only 16.
inline constexpr bool many_registers = register_bytes > 32;

/// The sum of Count numbers side by side in memory, in a tree of halves.
template <Index Count, typename Scalar>
EVENKEEL_INLINE inline Scalar sum_of(const Scalar* values) {
  if constexpr (Count == 1) {
    return values[0];
  } else {
    using Half = Register<Scalar, Count / 2 * static_cast<Index>(sizeof(Scalar))>;
    Scalar sums[static_cast<std::size_t>(Count / 2)];
    store<Half>(sums, load<Half>(values) + load<Half>(values + Count / 2));
    return sum_of<Count / 2>(sums);
  }
}
template <typename Scalar>
EVENKEEL_INLINE inline Scalar sum_of_lanes(const Lanes<Scalar>& lanes) {
  Scalar values[static_cast<std::size_t>(lane_count<Scalar>)];
  store<Lanes<Scalar>>(values, lanes);
  return sum_of<lane_count<Scalar>>(values);
}

/// Bytes that the caches keep together.
inline constexpr Index line_bytes = 64;

/// Asks for the line at this address before it is needed.
template <typename Scalar>
EVENKEEL_INLINE inline void prefetch([[maybe_unused]] const Scalar* from) {
#if defined(__GNUC__)
  __builtin_prefetch(from);
#endif
}

/// A place in a row where all lanes are there.
struct WholeLanes {
  bool starts_line = true;

  /// Asks for what is needed later, once a line.
  template <typename Scalar>
  EVENKEEL_INLINE void prefetch(const Scalar* from) const {
    constexpr Index line = line_bytes / static_cast<Index>(sizeof(Scalar));
    if (starts_line)
      for (Index j = 0; j < lane_count<Scalar>; j += line) kernels::prefetch(from + j);
  }
  template <typename Scalar>
  EVENKEEL_INLINE Lanes<Scalar> load(const Scalar* from, Scalar = Scalar(0)) const {
    return kernels::load<Lanes<Scalar>>(from);
  }
  template <typename Scalar>
  EVENKEEL_INLINE void store(Scalar* to, const Lanes<Scalar>& values) const {
    kernels::store<Lanes<Scalar>>(to, values);
  }
};

/// The first `count` lanes; the others are `fill`.
template <typename Scalar>
EVENKEEL_APART Lanes<Scalar> load_part(const Scalar* from, Index count, Scalar fill) {
  Lanes<Scalar> values = filled_with<Lanes<Scalar>>(fill);
  for (Index lane = 0; lane < count; ++lane) values[lane] = from[lane];
  return values;
}
template <typename Scalar>
EVENKEEL_APART void store_part(Scalar* to, Index count, const Lanes<Scalar>& values) {
  for (Index lane = 0; lane < count; ++lane) to[lane] = values[lane];
}

/// The end of a row, where only the first `count` lanes are there. The others are read as `fill` and not written.
struct PartOfLanes {
  Index count;

  template <typename Scalar>
  EVENKEEL_INLINE void prefetch(const Scalar*) const {}
  template <typename Scalar>
  EVENKEEL_INLINE Lanes<Scalar> load(const Scalar* from, Scalar fill = Scalar(0)) const {
    return load_part(from, count, fill);
  }
  template <typename Scalar>
  EVENKEEL_INLINE void store(Scalar* to, const Lanes<Scalar>& values) const {
    store_part<Scalar>(to, count, values);
  }
};

/// Calls body(i) for i = 0 ... Count - 1: a loop that is unrolled whatever the compiler's flags, so that arrays indexed by i
/// are held in registers.
template <std::size_t Count, class Body>
EVENKEEL_INLINE inline void unrolled(const Body& body) {
  [&]<std::size_t... I>(std::index_sequence<I...>) EVENKEEL_INLINE { (body(static_cast<Index>(I)), ...); }
  (std::make_index_sequence<Count>{});
}

/// Calls body(j, lanes) for j = first, first + lane_count, ... below end; `lanes` loads and stores at j.
template <typename Scalar, class Body>
EVENKEEL_INLINE inline void for_each_lanes(Index first, Index end, const Body& body) {
  constexpr Index lanes = lane_count<Scalar>;
  constexpr Index together = lanes * static_cast<Index>(sizeof(Scalar)) < line_bytes ? 2 : 1;
  Index j = first;
  for (; j + together * lanes <= end; j += together * lanes)
    unrolled<together>([&](Index k) EVENKEEL_INLINE { body(j + k * lanes, WholeLanes{k == 0}); });
  for (; j < end; j += lanes) body(j, PartOfLanes{(std::min)(lanes, end - j)});
}

/// Partial sums in the type of the data run over so many lanes in turn before they are added up in the wide type: few
/// enough that their error is that of some roundings.
inline constexpr Index lanes_a_piece = 32;

/// One number for each of R rows.
template <typename Number, std::size_t R>
using PerRow = Eigen::Array<Number, static_cast<int>(R), 1>;

/// K sums over each of R rows of `columns` numbers. add(r, j, lanes, sums) adds what the lanes at j of row r bring to
/// sums[0] ... sums[K - 1]. The same bits for every R.
template <typename Scalar, std::size_t K, std::size_t R, class Add>
EVENKEEL_INLINE inline std::array<PerRow<Wide<Scalar>, R>, K> row_sums(Index columns, const Add& add) {
  constexpr Index piece = lanes_a_piece * lane_count<Scalar>;
  std::array<PerRow<Wide<Scalar>, R>, K> totals;
  for (auto& total : totals) total.setZero();
  for (Index first = 0; first < columns; first += piece) {
    Lanes<Scalar> sums[R][K];
    unrolled<R>([&](Index r) EVENKEEL_INLINE {
      unrolled<K>([&](Index k) EVENKEEL_INLINE { sums[r][k] = zeros<Lanes<Scalar>>(); });
    });
    for_each_lanes<Scalar>(first, (std::min)(columns, first + piece), [&](Index j, auto lanes) EVENKEEL_INLINE {
      unrolled<R>([&](Index r) EVENKEEL_INLINE { add(r, j, lanes, sums[r]); });
    });
    unrolled<R>([&](Index r) EVENKEEL_INLINE {
      unrolled<K>([&](Index k) EVENKEEL_INLINE {
        totals[static_cast<std::size_t>(k)][r] += static_cast<Wide<Scalar>>(sum_of_lanes<Scalar>(sums[r][k]));
      });
    });
  }
  return totals;
}

/// How results are written: into the caches, where the next layer finds them.
struct CachedStores {
  template <class AnyLanes, typename Scalar>
  EVENKEEL_INLINE void store(AnyLanes lanes, Scalar* to, const Lanes<Scalar>& values) const {
    lanes.store(to, values);
  }
  void finish() const {}
};

/// Past the caches, for results that would not stay there: memory is not read before it is overwritten.
struct StreamedStores {
  template <typename Scalar>
  EVENKEEL_INLINE void store(WholeLanes lanes, Scalar* to, const Lanes<Scalar>& values) const {
#if defined(__SSE2__)
    constexpr auto each = static_cast<Index>(sizeof(__m128i) / sizeof(Scalar));
    for (Index lane = 0; lane < lane_count<Scalar>; lane += each) {
      __m128i bits;
      std::memcpy(&bits, reinterpret_cast<const Scalar*>(&values) + lane, sizeof bits);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + lane), bits);
    }
    (void)lanes;
#else
    lanes.store(to, values);
#endif
  }
  template <typename Scalar>
  EVENKEEL_INLINE void store(PartOfLanes lanes, Scalar* to, const Lanes<Scalar>& values) const {
    lanes.store(to, values);
  }
  /// To be called before others may read what was written.
  void finish() const {
#if defined(__SSE2__)
    _mm_sfence();
#endif
  }
};

/// Matrices of more bytes than this are not in the caches next to the processor: what they hold is asked for ahead.
inline constexpr std::size_t near_bytes = std::size_t{256} << 10;

template <typename Scalar>
bool is_near(View<Scalar> x) {
  return static_cast<std::size_t>(x.size()) * sizeof(Scalar) <= near_bytes;
}

/// Whether rows that are not near fall on the same places of the caches, where they would drive each other out.
template <typename Scalar>
bool rows_collide(bool near, View<Scalar> x) {
  constexpr Index page = 4096;
  return !near && x.row_stride * static_cast<Index>(sizeof(Scalar)) % page == 0;
}

/// A result of more bytes than this leaves the caches before anybody reads it.
inline constexpr std::size_t streamed_bytes = std::size_t{16} << 20;

/// Calls body with the way to write to y, whose rows are contiguous.
template <typename Scalar, class Body>
void with_stores(View<Scalar> y, const Body& body) {
  const auto aligned = [](std::uintptr_t bytes) { return bytes % 16 == 0; };
  const bool large = static_cast<std::size_t>(y.size()) * sizeof(Scalar) >= streamed_bytes;
  if (large && aligned(reinterpret_cast<std::uintptr_t>(y.data)) &&
      aligned(static_cast<std::uintptr_t>(y.row_stride) * sizeof(Scalar))) {
    body(StreamedStores{});
    StreamedStores{}.finish();
  } else {
    body(CachedStores{});
  }
}

/// Rows worked on at a time, at most. (No vectors of long double.)
template <typename Scalar>
inline constexpr std::size_t most_rows = std::is_same_v<Scalar, long double> ? 1 : 4;

/// Calls body(first row, R), R being a std::integral_constant, until the rows from `first` to `end` are done: `Most` at a
/// time, so that the sums of one row need not wait for each other, or two where so many rows of `row_bytes` would fill the
/// innermost cache, or one where they collide in it.
template <std::size_t Most, class Body>
EVENKEEL_INLINE inline void for_each_rows(Index first, Index end, Index row_bytes, bool collide, const Body& body) {
  constexpr Index most_bytes = 16384;
  const auto by = [&]<std::size_t R>(std::integral_constant<std::size_t, R> rows) EVENKEEL_INLINE {
    for (; first + static_cast<Index>(R) <= end; first += static_cast<Index>(R)) body(first, rows);
  };
  if constexpr (Most > 2)
    if (!collide && static_cast<Index>(Most) * row_bytes <= most_bytes) by(std::integral_constant<std::size_t, Most>{});
  if constexpr (Most > 1)
    if (!collide) by(std::integral_constant<std::size_t, 2>{});
  by(std::integral_constant<std::size_t, 1>{});
}

}  // namespace evenkeel::kernels
