// One const network in many threads, and many networks in one thread each.

#include <bit>
#include <cstdint>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"

namespace ek = evenkeel;

namespace {

/// Runs body(t) for t in [0, count), each in a thread of its own.
template <class Body>
void in_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&body, t] { body(t); });
  for (auto& thread : threads) thread.join();
}

/// The batches that thread t infers: the sizes differ, so that workspaces grow at different times.
ek::Matrix<float> batch_of(int t, int call) {
  const Eigen::Index rows = 1 + (7 * t + 5 * call) % 40;
  return values::random<float>(rows, 12, static_cast<std::uint32_t>(100 * t + call));
}

/// Whether 8 threads that share a network, with a workspace each, compute what one thread does.
template <class Network>
bool threads_agree(const Network& net) {
  constexpr int threads = 8, calls = 25;
  std::vector<int> right(threads, 0);
  std::vector<std::vector<ek::Matrix<float>>> expected(threads);
  for (int t = 0; t < threads; ++t)
    for (int call = 0; call < calls; ++call)
      expected[static_cast<std::size_t>(t)].push_back(net.infer(batch_of(t, call)));

  in_threads(threads, [&](int t) {
    ek::Workspace<float> workspace;
    for (int call = 0; call < calls; ++call) {
      const ek::Matrix<float> x = batch_of(t, call);
      ek::Matrix<float> y(x.rows(), net.output_features(x.cols()));
      net.infer(x, y, workspace);
      const auto& wanted = expected[static_cast<std::size_t>(t)][static_cast<std::size_t>(call)];
      if (compare::same_bits(y, wanted) && compare::same_bits(net.infer(x), wanted))
        ++right[static_cast<std::size_t>(t)];
    }
  });
  return right == std::vector<int>(threads, calls);
}

/// A hash of all the bits of a sequence of matrices: FNV-1a, a word at a time.
class Digest {
 public:
  void add(const ek::Matrix<float>& matrix) {
    for (const float number : matrix.reshaped())
      hash_ = (hash_ ^ std::bit_cast<std::uint32_t>(number)) * 1099511628211u;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 14695981039346656037u;
};

std::uint64_t masks_of_a_dropout(std::uint64_t seed, int calls) {
  ek::Dropout<float> dropout(0.5, {.seed = seed});
  const ek::Matrix<float> ones = ek::Matrix<float>::Ones(3, 40);
  Digest digest;
  for (int call = 0; call < calls; ++call) digest.add(dropout.forward(ones, ek::Mode::train));
  return digest.value();
}

std::uint64_t training_of_an_mlp(std::uint64_t seed, int calls) {
  ek::Mlp<float> net({6, 8, 3}, {.norm = ek::Norm::batch, .dropout = 0.5, .seed = seed});
  const auto x = values::random<float>(5, 6, 1);
  const auto dy = values::random<float>(5, 3, 2);
  Digest digest;
  for (int call = 0; call < calls; ++call) {
    digest.add(net.forward(x, ek::Mode::train));
    digest.add(net.backward(dy));
  }
  return digest.value();
}

}  // namespace

TEST_CASE("Threads with a workspace each share one const Mlp", "[infer]") {
  ek::Mlp<float> net({12, 16, 16, 4}, {.norm = ek::Norm::batch, .dropout = 0.5, .seed = 3});
  net.forward(values::random<float>(30, 12, 1), ek::Mode::train);  // running statistics of its own
  CHECK(threads_agree(net));
}

TEST_CASE("Threads with a workspace each share one const Sequential", "[infer]") {
  ek::Sequential net{ek::Dropout<float>(0.5),
                     ek::Linear<float>(12, 9, {.seed = 1}),
                     ek::BatchNorm<float>(3, 3),
                     ek::GELU<float>(),
                     ek::sequential(ek::RMSNorm<float>(9), ek::Dropout<float>(0.2)),
                     ek::LayerNorm<float>(9)};
  net.forward(values::random<float>(30, 12, 1), ek::Mode::train);
  CHECK(threads_agree(net));
}

TEST_CASE("Layers and networks of a thread's own draw what they draw alone", "[infer]") {
  // Nothing is shared behind their backs: no global engine that the threads would race for.
  constexpr int calls = 2000;
  std::uint64_t masks[2] = {}, trainings[2] = {};
  in_threads(2, [&](int t) {
    masks[t] = masks_of_a_dropout(5, calls);
    trainings[t] = training_of_an_mlp(5, calls);
  });
  CHECK(masks[0] == masks_of_a_dropout(5, calls));
  CHECK(masks[1] == masks[0]);
  CHECK(trainings[0] == training_of_an_mlp(5, calls));
  CHECK(trainings[1] == trainings[0]);
}
