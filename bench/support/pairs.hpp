#pragma once

// Times that mean something on a shared machine: ratios of what is done in turn in one process, never times alone.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;

inline constexpr int pairs = 15;  ///< Of times taken in turn, of which the median counts.

/// Registers a benchmark that gives its own time for each of its samples.
template <class Body>
void add(const std::string& name, Body body, int samples = pairs) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->UseManualTime()
      ->Iterations(samples)
      ->Unit(benchmark::kMicrosecond);
}

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
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A piece of work, called often enough in a row that the clock's own time does not count. Making one calls it, so that its
/// memory has been touched.
template <class Work>
class Timed {
 public:
  explicit Timed(const Work& work) : work_{work} {
    work();
    repeats_ = std::clamp(static_cast<int>(enough / (std::max)(seconds(work, 1), 1e-9)), 1, 1 << 16);
  }
  /// Seconds for one call. A short one is first called once for nothing, to have its data in the cache.
  double operator()() const {
    if (repeats_ > 1) work_();
    return seconds(work_, repeats_);
  }

 private:
  static constexpr double enough = 1e-4;  // seconds

  const Work& work_;
  int repeats_ = 1;
};

/// Takes the samples of a benchmark: take() measures once and returns seconds of the work that it is named for. After some
/// seconds `at_least` samples are enough; the counter `pairs` says how many were taken.
template <class Take>
void take_samples(benchmark::State& state, const Take& take, int at_least = 5) {
  constexpr std::chrono::seconds enough(6);
  const auto start = Clock::now();
  double time = 0;
  int taken = 0;
  for (auto _ : state) {
    if (taken < at_least || Clock::now() - start < enough) {
      time = take();
      ++taken;
    }
    state.SetIterationTime(time);
  }
  state.counters["pairs"] = taken;
}

/// Seconds of two pieces of work, taken in turn: each goes first every other time.
template <class A, class B>
std::pair<double, double> in_turn(const Timed<A>& a, const Timed<B>& b, bool a_first) {
  if (a_first) {
    const double a_time = a();
    return {a_time, b()};
  }
  const double b_time = b();
  return {a(), b_time};
}

/// Reports how often the time of `base` goes into that of `work`, as the counter `ratio`. Returns seconds for one `work`. All
/// are medians.
template <class Work, class Base>
double run(benchmark::State& state, const char* ratio, const Work& work, const Base& base) {
  const Timed<Work> work_time(work);
  const Timed<Base> base_time(base);
  std::vector<double> times, ratios;
  take_samples(state, [&] {
    const auto [own, other] = in_turn(work_time, base_time, ratios.size() % 2 == 0);
    times.push_back(own);
    ratios.push_back(own / other);
    return own;
  });
  state.counters[ratio] = median(ratios);
  return median(times);
}

/// Reports our time and a peer's (ours_us, peer_us), the median of their ratios (ratio: below one, we are faster), and ours
/// against a copy (x_copy).
template <class Ours, class Theirs, class Copy>
void compare(benchmark::State& state, const Ours& ours, const Theirs& theirs, const Copy& copy) {
  const Timed<Ours> our_time(ours);
  const Timed<Theirs> their_time(theirs);
  const Timed<Copy> copy_time(copy);
  std::vector<double> our_times, their_times, ratios, to_copy;
  take_samples(
      state,
      [&] {
        const double copied = copy_time();
        const auto [own, other] = in_turn(our_time, their_time, ratios.size() % 2 == 0);
        our_times.push_back(own * 1e6);
        their_times.push_back(other * 1e6);
        ratios.push_back(own / other);
        to_copy.push_back(own / copied);
        return own;
      },
      pairs);
  state.counters["ours_us"] = median(our_times);
  state.counters["peer_us"] = median(their_times);
  state.counters["ratio"] = median(ratios);
  state.counters["x_copy"] = median(to_copy);
}

/// The place of the fastest of several ways of doing the same, by the best of three times each.
template <class Way, class Call>
std::size_t fastest(std::vector<Way>& ways, const Call& call) {
  std::vector<double> best(ways.size());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const auto work = [&] { call(ways[i]); };
    const Timed time(work);
    best[i] = (std::min)({time(), time(), time()});
  }
  return static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin());
}

/// What work must move at least, in arrays. (memcpy writes large arrays past the caches, which spares a read of the target;
/// the plain loop with two reads does not.)
enum class Limit { copy, read_and_copy, read_two_write_one, read_two_and_read_two_write_one };

/// What memory itself can do with arrays of the working set's size.
template <typename Scalar>
struct Yardstick {
  std::size_t count;  // of numbers
  const Scalar *one, *other;
  Scalar* target;

  void copy() const {
    std::memcpy(target, one, count * sizeof(Scalar));
    escape(target);
  }

  void move(Limit limit) const {
    switch (limit) {
      case Limit::copy:
        return copy();
      case Limit::read_and_copy:
        read(one);
        return copy();
      case Limit::read_two_write_one:
        return add();
      case Limit::read_two_and_read_two_write_one:
        read(one);
        read(other);
        return add();
    }
  }

 private:
  void add() const {
    for (std::size_t i = 0; i < count; ++i) target[i] = one[i] + other[i];
    escape(target);
  }
  /// The sum, in lanes that compilers vectorize.
  void read(const Scalar* array) const {
    constexpr std::size_t lanes = 64;
    Scalar sums[lanes] = {};
    for (std::size_t i = 0; i + lanes <= count; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += array[i + lane];
    escape(sums);
  }
};

/// Reports `work` against a copy of the same bytes (x_copy) and against the least that it must move (x_limit).
template <class Work, typename Scalar>
void run(benchmark::State& state, const Work& work, const Yardstick<Scalar>& yardstick, Limit limit) {
  const auto copy = [&] { yardstick.copy(); };
  const auto least = [&] { yardstick.move(limit); };
  const Timed work_time(work);
  const Timed copy_time(copy);
  const Timed least_time(least);
  std::vector<double> to_copy, to_limit;
  take_samples(state, [&] {
    const auto [own, copied] = in_turn(work_time, copy_time, to_copy.size() % 2 == 0);
    to_copy.push_back(own / copied);
    to_limit.push_back(own / (limit == Limit::copy ? copied : least_time()));
    return own;
  });
  state.counters["x_copy"] = median(to_copy);
  state.counters["x_limit"] = median(to_limit);
}

}  // namespace bench
