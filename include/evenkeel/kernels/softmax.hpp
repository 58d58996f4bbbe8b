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

  /// Puts exp(logit - largest) side by side into `exponentials`, where that is given.
  SoftmaxRow(const Scalar* logits, Index classes, Index stride, Scalar* exponentials = nullptr)
      : largest{logits[0]}, sum{0}, log_sum{0} {
    for (Index j = 1; j < classes; ++j)
      if (logits[j * stride] > largest) largest = logits[j * stride];
    for (Index j = 0; j < classes; ++j) {
      const Scalar exponential = std::exp(logits[j * stride] - largest);
      if (exponentials != nullptr) exponentials[j] = exponential;
      sum += static_cast<Wide<Scalar>>(exponential);
    }
    log_sum = std::log(sum);
  }

  /// log(softmax). The largest is taken off first: adding it to the log of the sum would round the log away.
  Wide<Scalar> log_probability(Scalar logit) const {
    return (static_cast<Wide<Scalar>>(logit) - static_cast<Wide<Scalar>>(largest)) - log_sum;
  }
  Scalar probability(Scalar logit) const { return probability_of(std::exp(logit - largest)); }
  /// From exp(logit - largest).
  Scalar probability_of(Scalar exponential) const {
    return static_cast<Scalar>(static_cast<Wide<Scalar>>(exponential) / sum);
  }
};

}  // namespace evenkeel::kernels
