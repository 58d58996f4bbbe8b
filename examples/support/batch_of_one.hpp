#pragma once

// What BatchNorm's arithmetic makes of a batch of one.

#include <cmath>
#include <cstddef>
#include <vector>

#include "evenkeel/kernels/batch_norm.hpp"

namespace examples {

/// BatchNorm's output for one example by its own statistics, gain one and shift zero, through the kernel: the layer refuses
/// a batch of one in training.
template <typename Scalar>
evenkeel::Matrix<Scalar> normalized_alone(const evenkeel::Matrix<Scalar>& x) {
  const evenkeel::View<const Scalar> input{x.data(), 1, x.cols(), x.cols(), 1};
  std::vector<evenkeel::kernels::ColumnMoments<evenkeel::Wide<Scalar>>> moments(
      static_cast<std::size_t>(evenkeel::kernels::column_moments_room(1, x.cols())));
  evenkeel::kernels::column_moments(input, moments.data());
  evenkeel::Matrix<Scalar> mean(1, x.cols()), scale(1, x.cols());
  const evenkeel::Matrix<Scalar> zero = evenkeel::Matrix<Scalar>::Zero(1, x.cols());
  for (evenkeel::Index j = 0; j < x.cols(); ++j) {
    const auto& column = moments[static_cast<std::size_t>(j)];
    mean(j) = static_cast<Scalar>(column.mean);
    scale(j) = static_cast<Scalar>(1 / std::sqrt(column.squares / column.count + 1e-5));
  }
  evenkeel::Matrix<Scalar> y(1, x.cols());
  evenkeel::kernels::transform_channels(input, 1, {mean.data(), zero.data(), scale.data(), zero.data()},
                                        evenkeel::View<Scalar>{y.data(), 1, y.cols(), y.cols(), 1});
  return y;
}

}  // namespace examples
