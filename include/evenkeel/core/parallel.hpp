#pragma once

#include <algorithm>  // min, max

#include "evenkeel/core/types.hpp"  // Index

#if defined(_OPENMP)
#include <omp.h>  // omp_in_parallel, omp_get_thread_num, omp_get_max_threads
#endif

namespace evenkeel {

/// Work below this many elements is not worth a team of threads.
inline constexpr Index parallel_threshold = 32768;

/// The largest number of threads that parallel_for may use.
inline Index most_workers() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

namespace detail {

template <class Body>
void call(const Body& body, Index i, [[maybe_unused]] Index worker) {
  if constexpr (requires { body(i, worker); })
    body(i, worker);
  else
    body(i);
}

}  // namespace detail

/// Calls body(i) or body(i, worker) for i in [0, count), on OpenMP's threads when the program is compiled with it; a worker
/// does one call after the other. `work` is the number of elements in all. Never a team inside a team. The calls must not
/// depend on each other and must not throw.
template <class Body>
void parallel_for(Index count, [[maybe_unused]] Index work, const Body& body) {
#if defined(_OPENMP)
  if (count > 1 && work >= parallel_threshold && omp_in_parallel() == 0) {
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count; ++i) detail::call(body, i, omp_get_thread_num());
    return;
  }
#endif
  for (Index i = 0; i < count; ++i) detail::call(body, i, 0);
}

/// Rows cut into consecutive chunks that depend on the shape alone, so that sums over chunks come out in the same order
/// for any number of threads.
struct RowChunks {
  static constexpr Index most = 16;  ///< Bounds the memory for one partial sum a chunk.

  Index rows = 0;
  Index rows_each = 1;
  Index count = 0;

  constexpr RowChunks(Index rows_, Index columns) : rows{rows_} {
    constexpr Index line = 16;  // of a matrix stored by columns, chunks that are not short share no cache line
    const Index worthwhile = (std::max)(Index{1}, rows * columns / parallel_threshold);
    const Index wanted = (std::min)(most, worthwhile);
    rows_each = (std::max)(Index{1}, (rows + wanted - 1) / wanted);
    if (rows_each > line) rows_each = (rows_each + line - 1) / line * line;
    count = (rows + rows_each - 1) / rows_each;
  }
  constexpr Index first(Index chunk) const { return chunk * rows_each; }
  constexpr Index end(Index chunk) const { return (std::min)(rows, (chunk + 1) * rows_each); }
};

}  // namespace evenkeel
