#pragma once

#include <cstddef>  // size_t
#include <numeric>  // iota
#include <ranges>   // input_range
#include <span>
#include <vector>

#include "evenkeel/core/buffer.hpp"               // MatrixCache
#include "evenkeel/core/check.hpp"                // at_least
#include "evenkeel/core/mode.hpp"                 // Mode
#include "evenkeel/core/types.hpp"                // Index
#include "evenkeel/core/view.hpp"                 // read
#include "evenkeel/layers/sparse_layer_base.hpp"  // InputOf
#include "evenkeel/network/layer.hpp"             // Layer
#include "evenkeel/training/fit.hpp"              // InputBatch

namespace evenkeel {
namespace detail {

/// Runs forward over batches in which statistics are pooled. What was not committed at the end is discarded.
template <class Network>
class StatisticsPool {
 public:
  using Scalar = typename Network::Scalar;

  explicit StatisticsPool(Network& network) : network_{network} { discard(); }
  ~StatisticsPool() { discard(); }
  StatisticsPool(const StatisticsPool&) = delete;
  StatisticsPool& operator=(const StatisticsPool&) = delete;

  template <class X>
  void take(const X& x) {
    constexpr Mode mode(Masks::off, Statistics::batch, RunningStatistics::pool);
    if constexpr (requires { network_.check_input(x.rows(), x.cols(), mode, "forward"); })
      network_.check_input(x.rows(), x.cols(), mode, "forward");
    auto& y = output_.get(x.rows(), network_.output_features(x.cols()));
    const View<Scalar> output = view_of<Scalar>(y.data(), y);
    if constexpr (DenseOf<X, Scalar>) {
      const auto input = read<Scalar>(x);
      network_.forward(as_map(input.view()), as_map(output), mode);
    } else {
      network_.forward(sparse_view<Scalar>(x), as_map(output), mode);
    }
  }

  void commit() {
    if constexpr (requires { network_.commit_statistics(); }) network_.commit_statistics();
  }

 private:
  void discard() {
    if constexpr (requires { network_.discard_statistics(); }) network_.discard_statistics();
  }

  Network& network_;
  MatrixCache<Scalar> output_;  // that nobody reads
};

}  // namespace detail

/// Sets the running statistics of every BatchNorm in a network, or of one alone, to those of a whole data set under the
/// weights as they are: after training, after averaging or changing weights, or for data of another kind.
///
///     mean     = the mean of all values of a channel, in all batches
///     variance = the sum of their squared deviations from it, divided by their number less one
///
/// The moments of the batches are merged exactly (Chan, Golub & LeVeque 1983): for the first BatchNorm of a network the
/// result does not depend on how the data are divided into batches. Those further on see what the ones before make of each
/// batch, which they normalize with its own statistics, as in training: batches should be as large as in training or
/// larger, and in an order without meaning. An InstanceNorm that tracks statistics gets the averages of those of all
/// examples. Momentum plays no part, no masks are drawn, and batches_tracked() and
/// non_finite_statistics() count anew. Batches that were prepared are discarded, and as after any forward a backward that
/// was pending is gone.
///
/// `batches` is a range of inputs, dense or, where the first layer takes that, sparse. Throws std::invalid_argument for no
/// batch, and what a forward throws; then all running statistics are as they were.
///
/// NonFinite  keep_last_good: a channel leaves out, and counts, the batches whose statistics are not finite, and keeps what
///            it had where none are left. error: such a batch throws. accept: it enters.
/// Source  PreciseBN in Wu & Johnson 2021, https://arxiv.org/abs/2105.07576; fvcore pools too, by E[x^2] - E[x]^2. The
///         update_bn of torch.optim.swa_utils takes the plain average of the batches' variances instead, which leaves out
///         how far apart their means are, and gives a smaller last batch the weight of the others.
template <Layer Network, std::ranges::input_range Batches>
void recompute_statistics(Network& network, Batches&& batches) {
  detail::StatisticsPool<Network> pool(network);
  Index count = 0;
  for (const auto& x : batches) {
    pool.take(x);
    ++count;
  }
  detail::at_least(1, count, "recompute_statistics", "batches");
  pool.commit();
}

/// The same over the rows of x, dense or sparse, in their order, batch_size at a time; a last row that would be alone joins
/// the batch before it. Throws std::invalid_argument if batch_size < 1 or x has no rows.
template <Layer Network, InputOf<typename Network::Scalar> X>
void recompute_statistics(Network& network, const X& x, Index batch_size) {
  detail::at_least(1, batch_size, "recompute_statistics", "batch_size");
  detail::at_least(1, x.rows(), "recompute_statistics", "rows");
  std::vector<Index> rows(static_cast<std::size_t>(x.rows()));
  std::iota(rows.begin(), rows.end(), Index{0});
  detail::InputBatch<typename Network::Scalar, X> batch(x, batch_size + 1);
  detail::StatisticsPool<Network> pool(network);
  for (std::span<const Index> rest(rows); !rest.empty();) {
    const auto size = static_cast<std::size_t>(batch_size);
    const std::size_t taken = rest.size() <= size + 1 ? rest.size() : size;
    pool.take(batch.take(rest.first(taken)));
    rest = rest.subspan(taken);
  }
  pool.commit();
}

}  // namespace evenkeel
