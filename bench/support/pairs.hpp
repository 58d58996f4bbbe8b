#pragma once

// Times that mean something on a shared machine: ratios to a copy of the same bytes, taken alternately in one process.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;

/// Keeps the compiler from leaving the work out.
inline void escape(const void* memory) { benchmark::DoNotOptimize(memory); }

/// Seconds for one call, of `repeats` in a row.
template <class Work>
double seconds(const Work& work, int repeats) {
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) {
    work();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Calls in a row that take about 50 microseconds, so that the clock's own time does not count.
template <class Work>
int repeats_of(const Work& work) {
  work();
  const double once = seconds(work, 1);
  return (std::max)(1, static_cast<int>(5e-5 / (std::max)(once, 1e-8)));
}

/// Times `work` in turn with `copy` and with `limit`, and reports the medians of the ratios as the counters x_copy and
/// x_limit.
template <class Work, class Copy, class Limit>
void run(benchmark::State& state, const Work& work, const Copy& copy, const Limit& limit) {
  const int repeats = repeats_of(work), copy_repeats = repeats_of(copy), limit_repeats = repeats_of(limit);
  std::vector<double> to_copy, to_limit;
  for (auto _ : state) {
    const double copy_time = seconds(copy, copy_repeats);
    const double work_time = seconds(work, repeats);
    to_copy.push_back(work_time / copy_time);
    to_limit.push_back(work_time / seconds(limit, limit_repeats));
    state.SetIterationTime(work_time);
  }
  state.counters["x_copy"] = median(to_copy);
  state.counters["x_limit"] = median(to_limit);
}

/// What memory itself can do with arrays of the working set's size.
struct Yardstick {
  std::size_t count;  // of numbers
  const void *one, *other;
  void* target;

  template <typename Scalar>
  void copy() const {
    std::memcpy(target, one, count * sizeof(Scalar));
    escape(target);
  }
  /// z = x + y
  template <typename Scalar>
  void read_two_write_one() const {
    const auto* x = static_cast<const Scalar*>(one);
    const auto* y = static_cast<const Scalar*>(other);
    auto* z = static_cast<Scalar*>(target);
    for (std::size_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
    escape(z);
  }
  /// The sum of both, in lanes that compilers vectorize.
  template <typename Scalar>
  void read(int arrays) const {
    constexpr std::size_t lanes = 64;
    Scalar sums[lanes] = {};
    for (const void* array : {one, other}) {
      if (arrays-- == 0) break;
      const auto* x = static_cast<const Scalar*>(array);
      for (std::size_t i = 0; i + lanes <= count; i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += x[i + lane];
    }
    escape(sums);
  }
};

}  // namespace bench
