#pragma once

#include "evenkeel/core/check.hpp"     // at_least
#include "evenkeel/core/mode.hpp"      // Mode::monte_carlo
#include "evenkeel/core/types.hpp"     // Matrix, Wide, Arithmetic
#include "evenkeel/core/view.hpp"      // DenseOf, read, as_map
#include "evenkeel/network/layer.hpp"  // Layer

namespace evenkeel {

/// What a network's outputs are over masks of its dropout; in float, where these are halves.
template <typename Scalar>
struct MonteCarloResult {
  Matrix<Scalar> mean;      ///< The prediction.
  Matrix<Scalar> variance;  ///< Of one sample, not of the mean; its sum of squares divided by samples - 1.
  Index samples = 0;
};

/// Monte-Carlo dropout: mean and variance of of(output) over `samples` masks, each element by itself.
///
///     const auto spread = ek::monte_carlo(net, x, 100);
///     const auto route = ek::monte_carlo(net, x, 100, [](const auto& logits) { return ek::softmax(logits); });
///
/// Sample k is the k-th next forward of Mode::monte_carlo: BatchNorm normalizes with its running statistics. It runs on a copy
/// of the network, which itself stays as it is, masks, statistics and a pending backward included: the same call gives
/// the same answer until the network is trained further, and net.replay(n) before it gives those of masks n, n + 1, ...
/// x is dense, or sparse for a network that takes such. Throws std::invalid_argument if samples < 2, and what the network
/// throws.
///
/// Source  Gal & Ghahramani 2016, https://arxiv.org/abs/1506.02142: the first two moments of the predictive distribution. Their
///         variance divides by samples, and adds the noise of the data, 1 / tau, which the network does not know. Sums by
///         Welford 1962, in the wide type.
template <Layer L, class X, class Of>
MonteCarloResult<Arithmetic<typename L::Scalar>> monte_carlo(const L& network, const X& x, Index samples,
                                                             const Of& of) {
  using Scalar = typename L::Scalar;
  using Sums = Matrix<Wide<Scalar>>;
  detail::at_least(2, samples, "monte_carlo", "samples");
  L copy(network);
  Matrix<Scalar> y(x.rows(), copy.output_features(x.cols()));
  const auto draw = [&](const auto& input) -> Sums {
    copy.forward(input, as_map(detail::view_of<Scalar>(y.data(), y)), Mode::monte_carlo);
    return of(y).template cast<Wide<Scalar>>();
  };
  const auto over = [&](const auto& input) {
    Sums mean = draw(input);
    Sums squares = Sums::Zero(mean.rows(), mean.cols());
    for (Index k = 2; k <= samples; ++k) {
      const Sums sample = draw(input);
      const Sums distance = sample - mean;
      mean += distance / static_cast<Wide<Scalar>>(k);
      squares += distance.cwiseProduct(sample - mean);
    }
    using Number = Arithmetic<Scalar>;
    return MonteCarloResult<Number>{mean.template cast<Number>(),
                                    (squares / static_cast<Wide<Scalar>>(samples - 1)).template cast<Number>(),
                                    samples};
  };
  if constexpr (DenseOf<X, Scalar>) {
    const auto input = read<Scalar>(x);
    return over(as_map(input.view()));
  } else {
    return over(x);
  }
}

/// Of the outputs themselves.
template <Layer L, class X>
MonteCarloResult<Arithmetic<typename L::Scalar>> monte_carlo(const L& network, const X& x, Index samples) {
  return monte_carlo(
      network, x, samples, [](const auto& output) -> const auto& { return output; });
}

}  // namespace evenkeel
