#pragma once

#include <algorithm>  // min, max

#include "evenkeel/core/types.hpp"  // Index

#if defined(_OPENMP)
#include <omp.h>  // omp_in_parallel
#endif

namespace evenkeel {

/// Work below this many elements is not worth a team of threads.
inline constexpr Index parallel_threshold = 32768;

/// Calls body(i) for i in [0, count), on OpenMP's threads when the program is compiled with it. `work` is the number of
/// elements in all. Never a team inside a team. The calls must not depend on each other and must not throw.
template <class Body>
void parallel_for(Index count, [[maybe_unused]] Index work, const Body& body) {
#if defined(_OPENMP)
  if (count > 1 && work >= parallel_threshold && omp_in_parallel() == 0) {
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count; ++i) body(i);
    return;
  }
#endif
  for (Index i = 0; i < count; ++i) body(i);
}

/// Rows cut into consecutive chunks that depend on the shape alone, so that sums over chunks come out in the same order
/// for any number of threads.
struct RowChunks {
  static constexpr Index most = 16;  ///< Bounds the memory for one partial sum a chunk.

  Index rows = 0;
  Index rows_each = 1;
  Index count = 0;

  /// The rows of each chunk but the last are a multiple of `unit`.
  RowChunks(Index rows_, Index columns, Index unit = 1) : rows{rows_} {
    const Index worthwhile = (std::max)(Index{1}, rows * columns / parallel_threshold);
    const Index wanted = (std::min)(most, worthwhile);
    rows_each = (std::max)(unit, ((rows + wanted - 1) / wanted + unit - 1) / unit * unit);
    count = (rows + rows_each - 1) / rows_each;
  }
  Index first(Index chunk) const { return chunk * rows_each; }
  Index end(Index chunk) const { return (std::min)(rows, (chunk + 1) * rows_each); }
};

}  // namespace evenkeel
