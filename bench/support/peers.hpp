#pragma once

// What the programs that measure a peer have in common. Such a program brings a class for each layer, made from a
// Batch<float>&, with
//
//     void forward(), void backward()       on the batch's x, dy and parameters; the second may be missing
//     const float *y(), *dx(), *dweight()   the results, for the errors of norms; the last two go with backward

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/support/batch.hpp"
#include "bench/support/layers.hpp"
#include "bench/support/pairs.hpp"
#include "bench/support/reference.hpp"

namespace bench {

/// Times `Peer` beside the layer, on all shapes.
template <class Kind, class Peer>
void add_times() {
  for (const Shape shape : shapes) {
    const auto add_time = [&](const char* what, const auto& call) {
      add(path(std::string(Kind::name) + what, shape), [=](benchmark::State& state) {
        Batch<float> batch(shape);
        Ours<Kind, Batch<float>> ours(batch);
        Peer peer(batch);
        compare(
            state, [&] { call(ours); }, [&] { call(peer); }, [&] { batch.yardstick.copy(); });
      });
    };
    add_time("_forward", [](auto& layer) { layer.forward(); });
    if constexpr (requires(Peer peer) { peer.backward(); })
      add_time("_backward", [](auto& layer) { layer.backward(); });
  }
}

/// Inputs on which statistics are easy or hard to take: x is made from numbers in [-1, 1), in groups of `size` numbers.
struct Case {
  const char* name;
  Index groups, size;
  float (*value)(float random, Index group);
};

inline const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"random", 256, 768, [](float random, Index) { return random; }},
      {"large_mean", 256, 768, [](float random, Index) { return 1e4f + 1e-2f * random; }},
      {"constant", 256, 768, [](float, Index group) { return 1234.567f + static_cast<float>(group); }},
      {"long", 8, 200000, [](float random, Index) { return 0.5f + random; }},
      {"huge", 256, 768, [](float random, Index) { return 1e25f * random; }}};
  return all;
}

/// The errors of `Peer` and of the layer, against long double.
template <class Kind, class Peer>
void add_errors(Group group, Norm norm) {
  for (const Case& input : cases()) {
    const bool by_row = group == Group::row;
    const Shape shape = by_row ? Shape{input.groups, input.size} : Shape{input.size, input.groups};
    const auto add_error = [&](const char* what, bool backward, const auto& our_result, const auto& peer_result,
                               const auto& expected) {
      add(
          "error/" + std::string(Kind::name) + what + "/" + input.name,
          [=](benchmark::State& state) {
            Arrays<float> arrays(shape.size());
            Batch<float> batch(shape, arrays);
            for (Index row = 0; row < shape.rows; ++row)
              for (Index column = 0; column < shape.columns; ++column)
                batch.x(row, column) = input.value(batch.x(row, column), by_row ? row : column);
            const Reference exact = reference(batch, group, norm);

            Ours<Kind, Batch<float>> ours(batch);
            if (backward) ours.backward();
            const Error our_error = error_of(our_result(ours, batch), expected(exact));

            Peer peer(batch);
            peer.forward();
            if constexpr (requires { peer.backward(); })
              if (backward) peer.backward();
            const Error peer_error = error_of(peer_result(peer), expected(exact));

            for (auto _ : state) state.SetIterationTime(1e-6);  // nothing is timed here
            state.counters["ours_error"] = our_error.largest;
            state.counters["peer_error"] = peer_error.largest;
            state.counters["ours_rms"] = our_error.root_mean_square;
            state.counters["peer_rms"] = peer_error.root_mean_square;
          },
          1);
    };
    add_error(
        "_forward", false, [](auto&, auto& batch) { return batch.y.data(); }, [](Peer& peer) { return peer.y(); },
        [](const Reference& exact) -> auto& { return exact.y; });
    if constexpr (requires(Peer peer) { peer.backward(); }) {
      add_error(
          "_backward", true, [](auto&, auto& batch) { return batch.dx.data(); }, [](Peer& peer) { return peer.dx(); },
          [](const Reference& exact) -> auto& { return exact.dx; });
      add_error(
          "_weight_gradient", true, [](auto& ours, auto&) { return ours.layer().parameters()[0].gradient.data(); },
          [](Peer& peer) { return peer.dweight(); }, [](const Reference& exact) -> auto& { return exact.dweight; });
    }
  }
}

}  // namespace bench
