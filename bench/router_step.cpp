// How long does a training step of the router's network take, and where does the time go?
//
//   build/native/bench/router_step
//
// The network 391-64-64-4 with dropout 0.5 on batches of 16 examples of ten words each, float, by AdamW with its exact
// values. `step` is the whole of it; the others are its parts, on the same data, dense and sparse input apart.

#include <benchmark/benchmark.h>

#include <Eigen/SparseCore>
#include <vector>

#include "bench/support/program.hpp"
#include "evenkeel/core/random.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/loss.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

constexpr Index batch = 16, words = 391, routes = 4, words_each = 10;

struct Router {
  ek::Mlp<float> network{{words, 64, 64, routes}, {.dropout = 0.5, .seed = 1}};
  ek::AdamW<float> optimizer{network, {.learning_rate = 1e-3, .weight_decay = 3.0}};
  ek::SoftmaxCrossEntropy<float> cross_entropy;
  ek::Matrix<float> x = ek::Matrix<float>::Zero(batch, words);
  Eigen::SparseMatrix<float, Eigen::RowMajor> sparse;
  std::vector<int> labels;
  ek::Matrix<float> logits{batch, routes};

  Router() {
    ek::RandomStream random(1, ek::stream_of("words"));
    for (Index i = 0; i < batch; ++i) {
      for (Index k = 0; k < words_each; ++k) x(i, random.below(words)) = 1;
      labels.push_back(static_cast<int>(i % routes));
    }
    sparse = x.sparseView();
  }
};

template <class Input>
void step(benchmark::State& state, const Input& (*input)(const Router&)) {
  Router router;
  const Input& x = input(router);
  for (auto _ : state) {
    router.network.forward(x, router.logits, ek::Mode::train);
    const auto& loss = router.cross_entropy(router.logits, router.labels);
    router.network.backward_parameters(x, loss.gradient);
    router.optimizer.step();
  }
}

const ek::Matrix<float>& dense(const Router& router) { return router.x; }
const Eigen::SparseMatrix<float, Eigen::RowMajor>& sparse(const Router& router) { return router.sparse; }

template <class Input>
void forward(benchmark::State& state, const Input& (*input)(const Router&)) {
  Router router;
  for (auto _ : state) router.network.forward(input(router), router.logits, ek::Mode::train);
}

template <class Input>
void backward(benchmark::State& state, const Input& (*input)(const Router&)) {
  Router router;
  router.network.forward(input(router), router.logits, ek::Mode::train);
  const ek::Matrix<float> gradient = router.cross_entropy(router.logits, router.labels).gradient;
  for (auto _ : state) router.network.backward_parameters(input(router), gradient);
}

void loss(benchmark::State& state) {
  Router router;
  router.network.forward(router.x, router.logits, ek::Mode::train);
  for (auto _ : state) benchmark::DoNotOptimize(router.cross_entropy(router.logits, router.labels).value);
}

void adamw(benchmark::State& state) {
  Router router;
  for (auto _ : state) router.optimizer.step();
}

}  // namespace

BENCHMARK_CAPTURE(step, sparse, sparse)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(step, dense, dense)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forward, sparse, sparse)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forward, dense, dense)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(backward, sparse, sparse)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(backward, dense, dense)->Unit(benchmark::kMicrosecond);
BENCHMARK(loss)->Unit(benchmark::kMicrosecond);
BENCHMARK(adamw)->Unit(benchmark::kMicrosecond);

int main(int argc, char** argv) { return bench::run_program(argc, argv); }
