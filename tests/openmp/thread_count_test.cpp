// Results do not depend on the number of threads.

#if !defined(_OPENMP)
#error "to be compiled with OpenMP"
#endif
#include <omp.h>

#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/core/parallel.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/transformer.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<float>;

void use_threads(int count) { omp_set_num_threads(count); }

/// Everything that a layer computes, one matrix after another.
template <class Layer>
std::vector<Matrix> results_of(Layer layer, const Matrix& x, int threads) {
  use_threads(threads);
  std::vector<Matrix> all;
  all.push_back(layer.infer(x));
  all.push_back(layer.forward(x, ek::Mode::train));
  all.push_back(layer.backward(all.back().array().cos().matrix()));
  if constexpr (requires { layer.parameters(); })
    for (const auto& parameter : layer.parameters()) all.emplace_back(parameter.gradient);
  if constexpr (requires { layer.buffers(); })
    for (const auto& buffer : layer.buffers()) all.emplace_back(buffer.value);
  use_threads(1);
  return all;
}

}  // namespace

TEST_CASE("Every layer gives the same bits for any number of threads", "[thread_count]") {
  const auto check = [](const auto& layer, Index rows, Index columns) {
    INFO(layer.name << " of " << rows << " x " << columns);
    const auto x = values::random<float>(rows, columns, 1);
    const auto alone = results_of(layer, x, 1);
    for (const int threads : {2, 3, 7}) {
      const auto together = results_of(layer, x, threads);
      REQUIRE(together.size() == alone.size());
      for (std::size_t k = 0; k < alone.size(); ++k) CHECK(compare::same_bits(together[k], alone[k]));
    }
  };
  for (const Index rows : {1001, 20000}) {  // 2 and 16 chunks
    constexpr Index columns = 70;
    check(ek::Dropout<float>(0.4), rows, columns);
    check(ek::AlphaDropout<float>(0.4), rows, columns);
    check(ek::SpatialDropout<float>(0.4, 7, 10), rows, columns);
    check(ek::BatchNorm<float>(columns), rows, columns);
    check(ek::BatchNorm<float>(7, 10), rows, columns);
    check(ek::LayerNorm<float>(columns), rows, columns);
    check(ek::RMSNorm<float>(columns), rows, columns);
    check(ek::GroupNorm<float>(7, 14, 5), rows, columns);
    check(ek::InstanceNorm<float>(7, 10, {.track_running_statistics = true}), rows, columns);
    check(ek::SiLU<float>(), rows, columns);
  }
  check(ek::Linear<float>(130, 33), 500, 130);
  check(ek::Linear<float>(500, 70), 33, 500);
  check(ek::TransformerBlock<float>(16, 2, 24, 10, {.dropout = 0.3, .seed = 1}), 5000, 16);
}

#if defined(_OPENMP)

TEST_CASE("A large loop runs on a team, a small one does not", "[thread_count]") {
  const auto team_size = [](Index work) {
    int size = 0;
    ek::parallel_for(2, work, [&](Index i) {
      if (i == 0) size = omp_get_num_threads();
    });
    return size;
  };
  use_threads(2);
  CHECK(team_size(ek::parallel_threshold) == 2);
  CHECK(team_size(ek::parallel_threshold - 1) == 1);
  use_threads(1);
}

TEST_CASE("A loop inside a team starts no other", "[thread_count]") {
  use_threads(2);
  int levels[2] = {0, 0};
#pragma omp parallel num_threads(2)
  {
    const int me = omp_get_thread_num();
    ek::parallel_for(2, 100 * ek::parallel_threshold, [&](Index) { levels[me] = omp_get_level(); });
  }
  CHECK(levels[0] == 1);
  CHECK(levels[1] == 1);
  use_threads(1);
}

#endif
