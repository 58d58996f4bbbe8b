// Does the cost grow with the rows, with the columns, and no faster? And what do two threads gain?
//
//   build/native/bench/scaling
//   build/native/bench/scaling --benchmark_filter=threads/layer_norm
//
// float. rows/* and columns/*: one thread, ns_element is the time for one element: where cost is linear it stays, but
// for the steps from cache to cache that x_copy, the time over that of a copy, leaves out. threads/*: one thread and
// two in turn, `speedup` is the median of their ratios; a benchmark whose results are not the same bits for both fails.
// All is compiled with OpenMP; where there is none, there is no threads part.

#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/support/batch.hpp"
#include "bench/support/layers.hpp"
#include "bench/support/pairs.hpp"
#include "bench/support/program.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace {

using bench::Index;
using bench::Shape;
using Batch = bench::Batch<float>;
template <class Kind>
using Ours = bench::Ours<Kind, Batch>;

void use_threads([[maybe_unused]] int threads) {
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
}

constexpr Index fixed = 768;  // of the side that does not grow
constexpr Index sizes[] = {64, 256, 1024, 4096, 16384};

template <class Kind, class Call>
void add_growth(const std::string& name, Shape shape, Call call) {
  bench::add(bench::path(name, shape), [=](benchmark::State& state) {
    use_threads(1);
    Batch batch(shape);
    Ours<Kind> ours(batch);
    const double time = bench::run(
        state, "x_copy", [&] { call(ours); }, [&] { batch.yardstick.copy(); });
    state.counters["ns_element"] = 1e9 * time / static_cast<double>(shape.size());
  });
}

#if defined(_OPENMP)

/// What a call has computed: all of what forward or backward writes for others to read.
template <class Kind, class Call>
std::vector<float> results(Ours<Kind>& ours, const Batch& batch, int threads, const Call& call) {
  use_threads(threads);
  if constexpr (requires { ours.layer().replay(0); }) ours.layer().replay(0);  // the same mask again
  ours.forward();
  call(ours);
  std::vector<float> all(batch.y.data(), batch.y.data() + batch.y.size());
  all.insert(all.end(), batch.dx.data(), batch.dx.data() + batch.dx.size());
  if constexpr (requires { ours.layer().parameters(); })
    for (const auto& parameter : ours.layer().parameters())
      all.insert(all.end(), parameter.flat_gradient().begin(), parameter.flat_gradient().end());
  return all;
}

template <class Kind, class Call>
void add_threads(const std::string& name, Shape shape, Call call) {
  bench::add(bench::path(name, shape), [=](benchmark::State& state) {
    Batch batch(shape);
    Ours<Kind> ours(batch);
    const std::vector<float> alone = results<Kind>(ours, batch, 1, call);
    const std::vector<float> together = results<Kind>(ours, batch, 2, call);
    if (std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) != 0)
      return state.SkipWithError("results depend on the number of threads");
    const auto with = [&](int threads) {
      return [&, threads] {
        use_threads(threads);
        call(ours);
      };
    };
    bench::run(state, "speedup", with(1), with(2));
  });
}

#endif

template <class Kind>
void add_layer(const std::string& section) {
  const auto add_shape = [&](Shape shape) {
    const auto add_call = [&](const char* what, const auto& call) {
      const std::string name = section + "/" + Kind::name + what;
#if defined(_OPENMP)
      if (section == "threads") return add_threads<Kind>(name, shape, call);
#endif
      add_growth<Kind>(name, shape, call);
    };
    add_call("_forward", [](auto& layer) { layer.forward(); });
    if constexpr (bench::has_backward<Kind>) add_call("_backward", [](auto& layer) { layer.backward(); });
  };
  if (section == "rows")
    for (const Index size : sizes) add_shape({size, fixed});
  else if (section == "columns")
    for (const Index size : sizes) add_shape({fixed, size});
  else
    for (const Shape shape : bench::shapes) add_shape(shape);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> sections = {"rows", "columns"};
#if defined(_OPENMP)
  sections.push_back("threads");
#endif
  for (const std::string& section : sections)
    bench::for_each_layer([&]<class Kind>(Kind) { add_layer<Kind>(section); });
  return bench::run_program(argc, argv);
}
