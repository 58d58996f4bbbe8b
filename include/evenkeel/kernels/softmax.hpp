#pragma once

#include <cmath>  // exp, log

#include "evenkeel/core/types.hpp"  // Index, Wide

namespace evenkeel::kernels {

/// Of one row of logits: the largest, and the sum of exp(logit - largest) with its logarithm. A NaN anywhere makes the sum
/// NaN.
template <typename Scalar>
struct SoftmaxRow {
  Scalar largest;
  Wide<Scalar> sum;
  Wide<Scalar> log_sum;

  SoftmaxRow(const Scalar* logits, Index classes, Index stride) : largest{logits[0]}, sum{0}, log_sum{0} {
    for (Index j = 1; j < classes; ++j)
      if (logits[j * stride] > largest) largest = logits[j * stride];
    for (Index j = 0; j < classes; ++j) sum += static_cast<Wide<Scalar>>(std::exp(logits[j * stride] - largest));
    log_sum = std::log(sum);
  }

  /// log(softmax). The largest is taken off first: adding it to the log of the sum would round the log away.
  Wide<Scalar> log_probability(Scalar logit) const {
    return (static_cast<Wide<Scalar>>(logit) - static_cast<Wide<Scalar>>(largest)) - log_sum;
  }
  Scalar probability(Scalar logit) const {
    return static_cast<Scalar>(static_cast<Wide<Scalar>>(std::exp(logit - largest)) / sum);
  }
};

}  // namespace evenkeel::kernels
