#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>  // _mm_stream_si128, _mm_sfence
#endif

#include <Eigen/Core>  // Array, Map

#include <algorithm>  // min
#include <array>
#include <cstddef>      // size_t
#include <cstdint>      // uintptr_t
#include <cstring>      // memcpy
#include <type_traits>  // integral_constant
#include <utility>      // index_sequence

#include "evenkeel/core/types.hpp"  // Index, Wide
#include "evenkeel/core/view.hpp"   // View

/// Loops over the rows of matrices at the speed of memory, in plain C++: numbers are taken in arrays of fixed size, for which
/// Eigen emits vector instructions whatever the compiler's flags, and which the compilers keep in registers.
namespace evenkeel::kernels {

/// Functions and lambdas inside the loops below, which must become part of them: what they hold would else live in memory. Written
/// behind the parameters of a lambda and before a function.
#if defined(__GNUC__)
#define EVENKEEL_INLINE __attribute__((always_inline))
#else
#define EVENKEEL_INLINE
#endif

/// A stride that is one, known at compile time: what lets a row be read in vectors.
using UnitStride = std::integral_constant<Index, 1>;

/// Calls body with UnitStride where every stride is one, and with the run-time strides otherwise.
template <class Body, class... Strides>
decltype(auto) with_strides(const Body& body, Strides... strides) {
  if ((true && ... && (strides == 1))) return body(((void)strides, UnitStride{})...);
  return body(strides...);
}

/// Numbers worked on side by side: two vector registers of the target. Sums over a row depend on it, so their last bits
/// differ between targets, as they do with fused multiplication.
template <typename Scalar>
inline constexpr Index lane_count = 2 * (EIGEN_MAX_STATIC_ALIGN_BYTES > 16 ? EIGEN_MAX_STATIC_ALIGN_BYTES : 16) /
                                    static_cast<Index>(sizeof(Scalar));

template <typename Scalar>
using Lanes = Eigen::Array<Scalar, static_cast<int>(lane_count<Scalar>), 1>;

/// The sum of the lanes, in a tree of halves.
template <typename Scalar, int Size>
EVENKEEL_INLINE inline Scalar sum_of(const Eigen::Array<Scalar, Size, 1>& values) {
  if constexpr (Size == 1)
    return values[0];
  else
    return sum_of<Scalar, Size / 2>(values.template head<Size / 2>() + values.template tail<Size / 2>());
}

/// A place in a row where all lanes are there.
struct WholeLanes {
  template <typename Scalar>
  static constexpr Index count_of() {
    return lane_count<Scalar>;
  }
  template <typename Scalar>
  EVENKEEL_INLINE auto load(const Scalar* from, UnitStride, Scalar = Scalar(0)) const {
    return Eigen::Map<const Lanes<Scalar>>(from);
  }
  template <typename Scalar>
  EVENKEEL_INLINE auto load(const Scalar* from, Index stride, Scalar = Scalar(0)) const {
    Lanes<Scalar> values;
    for (Index lane = 0; lane < lane_count<Scalar>; ++lane) values[lane] = from[lane * stride];
    return values;
  }
  template <typename Scalar, class Values>
  EVENKEEL_INLINE void store(Scalar* to, UnitStride, const Values& values) const {
    Eigen::Map<Lanes<Scalar>>{to} = values;
  }
  template <typename Scalar, class Values>
  EVENKEEL_INLINE void store(Scalar* to, Index stride, const Values& values) const {
    const Lanes<Scalar> evaluated = values;
    for (Index lane = 0; lane < lane_count<Scalar>; ++lane) to[lane * stride] = evaluated[lane];
  }
};

/// The end of a row, where only the first `count` lanes are there. The others are read as `fill` and not written.
struct PartOfLanes {
  Index count;

  template <typename Scalar>
  Index count_of() const {
    return count;
  }

  template <typename Scalar, class Stride>
  EVENKEEL_INLINE Lanes<Scalar> load(const Scalar* from, Stride stride, Scalar fill = Scalar(0)) const {
    Lanes<Scalar> values = Lanes<Scalar>::Constant(fill);
    for (Index lane = 0; lane < count; ++lane) values[lane] = from[lane * stride];
    return values;
  }
  template <typename Scalar, class Stride, class Values>
  EVENKEEL_INLINE void store(Scalar* to, Stride stride, const Values& values) const {
    const Lanes<Scalar> evaluated = values;
    for (Index lane = 0; lane < count; ++lane) to[lane * stride] = evaluated[lane];
  }
};

/// Calls body(j, lanes) for j = first, first + lane_count, ... below end; `lanes` loads and stores at j.
template <typename Scalar, class Body>
EVENKEEL_INLINE inline void for_each_lanes(Index first, Index end, const Body& body) {
  Index j = first;
  for (; j + lane_count<Scalar> <= end; j += lane_count<Scalar>) body(j, WholeLanes{});
  if (j < end) body(j, PartOfLanes{end - j});
}

/// Calls body(i) for i = 0 ... Count - 1: a loop that is unrolled whatever the compiler's flags, so that arrays indexed by i
/// are held in registers.
template <std::size_t Count, class Body>
EVENKEEL_INLINE inline void unrolled(const Body& body) {
  [&]<std::size_t... I>(std::index_sequence<I...>) EVENKEEL_INLINE { (body(static_cast<Index>(I)), ...); }
  (std::make_index_sequence<Count>{});
}

/// Partial sums in the type of the data run over so many lanes in turn before they are added up in the wide type: few
/// enough that their error is that of some roundings.
inline constexpr Index lanes_a_piece = 16;

/// One number for each of R rows.
template <typename Number, std::size_t R>
using PerRow = Eigen::Array<Number, static_cast<int>(R), 1>;

/// K sums over each of R rows of `columns` numbers. add(r, j, lanes, sums) adds what the lanes at j of row r bring to
/// sums[0] ... sums[K - 1]. The same bits for every R and every stride.
template <typename Scalar, std::size_t K, std::size_t R, class Add>
EVENKEEL_INLINE inline std::array<PerRow<Wide<Scalar>, R>, K> row_sums(Index columns, const Add& add) {
  constexpr Index piece = lanes_a_piece * lane_count<Scalar>;
  std::array<PerRow<Wide<Scalar>, R>, K> totals;
  for (auto& total : totals) total.setZero();
  for (Index first = 0; first < columns; first += piece) {
    Lanes<Scalar> sums[R][K];
    unrolled<R>([&](Index r) EVENKEEL_INLINE { unrolled<K>([&](Index k) EVENKEEL_INLINE { sums[r][k].setZero(); }); });
    for_each_lanes<Scalar>(first, (std::min)(columns, first + piece), [&](Index j, auto lanes) EVENKEEL_INLINE {
      unrolled<R>([&](Index r) EVENKEEL_INLINE { add(r, j, lanes, sums[r]); });
    });
    unrolled<R>([&](Index r) EVENKEEL_INLINE {
      unrolled<K>([&](Index k) EVENKEEL_INLINE {
        totals[static_cast<std::size_t>(k)][r] += static_cast<Wide<Scalar>>(sum_of(sums[r][k]));
      });
    });
  }
  return totals;
}

/// The same K sums for rows that lie side by side in memory, as many as there are lanes: add(j, sums) adds what the numbers j of
/// all these rows bring, in the order of row_sums.
template <typename Scalar, std::size_t K, class Add>
EVENKEEL_INLINE inline std::array<Eigen::Array<Wide<Scalar>, static_cast<int>(lane_count<Scalar>), 1>, K>
sums_side_by_side(Index columns, const Add& add) {
  constexpr Index width = lane_count<Scalar>, piece = lanes_a_piece * width;
  std::array<Eigen::Array<Wide<Scalar>, static_cast<int>(width), 1>, K> totals;
  for (auto& total : totals) total.setZero();
  for (Index first = 0; first < columns; first += piece) {
    const Index end = (std::min)(columns, first + piece);
    Lanes<Scalar> partial[K][static_cast<std::size_t>(width)];
    for (Index lane = 0; lane < width; ++lane) {
      Lanes<Scalar> sums[K];
      unrolled<K>([&](Index k) EVENKEEL_INLINE { sums[k].setZero(); });
      for (Index j = first + lane; j < end; j += width) add(j, sums);
      unrolled<K>([&](Index k) EVENKEEL_INLINE { partial[k][lane] = sums[k]; });
    }
    unrolled<K>([&](Index k) EVENKEEL_INLINE {
      for (Index half = width / 2; half > 0; half /= 2)
        for (Index lane = 0; lane < half; ++lane) partial[k][lane] += partial[k][lane + half];
      totals[static_cast<std::size_t>(k)] += partial[k][0].template cast<Wide<Scalar>>();
    });
  }
  return totals;
}

/// Asks for the lanes at this address before they are needed.
template <typename Scalar>
EVENKEEL_INLINE inline void prefetch([[maybe_unused]] const Scalar* from, UnitStride) {
#if defined(__GNUC__)
  constexpr Index line = 64 / static_cast<Index>(sizeof(Scalar));
  for (Index i = 0; i<lane_count<Scalar>; i += line> 0 ? line : 1) __builtin_prefetch(from + i);
#endif
}
template <typename Scalar>
EVENKEEL_INLINE inline void prefetch(const Scalar*, Index) {}

/// How results are written: into the caches, where the next layer finds them.
struct CachedStores {
  template <class Lanes, typename Scalar, class Stride, class Values>
  EVENKEEL_INLINE void store(Lanes lanes, Scalar* to, Stride stride, const Values& values) const {
    lanes.store(to, stride, values);
  }
  void finish() const {}
};

/// Past the caches, for results that would not stay there: memory is not read before it is overwritten.
struct StreamedStores {
  template <typename Scalar, class Values>
  EVENKEEL_INLINE void store(WholeLanes, Scalar* to, UnitStride, const Values& values) const {
    const Lanes<Scalar> evaluated = values;
#if defined(__SSE2__)
    constexpr auto each = static_cast<Index>(sizeof(__m128i) / sizeof(Scalar));
    for (Index lane = 0; lane < lane_count<Scalar>; lane += each) {
      __m128i bits;
      std::memcpy(&bits, evaluated.data() + lane, sizeof bits);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + lane), bits);
    }
#else
    Eigen::Map<Lanes<Scalar>>{to} = evaluated;
#endif
  }
  template <class AnyLanes, typename Scalar, class Stride, class Values>
  EVENKEEL_INLINE void store(AnyLanes lanes, Scalar* to, Stride stride, const Values& values) const {
    lanes.store(to, stride, values);
  }
  /// To be called before others may read what was written.
  void finish() const {
#if defined(__SSE2__)
    _mm_sfence();
#endif
  }
};

/// Calls body(first row, R), R being a std::integral_constant, until the rows from `first` to `end` are done: four at a time,
/// so that the sums of one row need not wait for each other, or two where four rows would fill the innermost cache. One at a
/// time where the type or the stride allows no vectors.
template <typename Scalar, class Stores, class Stride, class Body>
void for_each_rows(Stores, Stride, Index first, Index end, Index columns, const Body& body) {
  if constexpr (std::is_same_v<Stride, UnitStride> && !std::is_same_v<Scalar, long double>) {
    if constexpr (std::is_same_v<Stores, CachedStores>) {  // a result that is written past the caches is large
      constexpr Index most_bytes = 16384;
      const bool short_rows = 4 * columns * static_cast<Index>(sizeof(Scalar)) <= most_bytes;
      if (short_rows)
        for (; first + 4 <= end; first += 4) body(first, std::integral_constant<std::size_t, 4>{});
    }
    for (; first + 2 <= end; first += 2) body(first, std::integral_constant<std::size_t, 2>{});
  }
  for (; first < end; ++first) body(first, std::integral_constant<std::size_t, 1>{});
}

/// A result of more bytes than this leaves the caches before anybody reads it.
inline constexpr std::size_t streamed_bytes = std::size_t{16} << 20;

/// Calls body with the way to write y and with the column strides of y and of other views: UnitStride where all are one.
template <typename Scalar, class Body, class... Inputs>
void with_row_access(View<Scalar> y, const Body& body, const Inputs&... inputs) {
  if (y.column_stride != 1 || ((inputs.column_stride != 1) || ...))
    return body(CachedStores{}, y.column_stride, inputs.column_stride...);
  const auto misaligned = [](std::uintptr_t bytes) { return bytes % 16 != 0; };
  const bool large = static_cast<std::size_t>(y.size()) * sizeof(Scalar) >= streamed_bytes;
  if (large && !misaligned(reinterpret_cast<std::uintptr_t>(y.data)) &&
      !misaligned(static_cast<std::uintptr_t>(y.row_stride) * sizeof(Scalar)))
    return body(StreamedStores{}, UnitStride{}, ((void)inputs, UnitStride{})...);
  return body(CachedStores{}, UnitStride{}, ((void)inputs, UnitStride{})...);
}

}  // namespace evenkeel::kernels
