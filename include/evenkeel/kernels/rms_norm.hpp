#pragma once

#include "evenkeel/core/parameter.hpp"    // Accumulate
#include "evenkeel/core/types.hpp"        // Arithmetic, Wide
#include "evenkeel/core/view.hpp"         // View
#include "evenkeel/kernels/row_norm.hpp"  // the arithmetic

namespace evenkeel::kernels {

/// y = (offset + weight) * x / sqrt(mean(x^2) + epsilon), the mean being that of the row.
/// Zhang & Sennrich 2019, equation 4, plus epsilon. Keeps 1 / sqrt(...) of each row where `kept` is given. y may be x.
/// scratch: as row_norm_forward_scratch says.
template <typename Stored>
void rms_norm_forward(View<const Stored> x, const Arithmetic<Stored>* weight, Arithmetic<Stored> offset, double epsilon,
                      View<Stored> y, Arithmetic<Stored>* kept = nullptr, Wide<Stored>* scratch = nullptr) {
  using Scalar = Arithmetic<Stored>;
  row_norm_forward<ByRms<Scalar>>(x, Affine<Scalar>{weight, nullptr, offset}, epsilon, y, kept, scratch);
}

/// The derivative of rms_norm_forward. With g = dy * (offset + weight) and x^ = x / sqrt(mean(x^2) + epsilon),
///
///     dx      = (g - x^ mean(g x^)) / sqrt(mean(x^2) + epsilon)      means over the row
///     dweight = sum(dy x^)                                           sum over the batch
///
/// dx without data is not computed; dweight may be null. dx may be x or dy.
/// scratch: as row_norm_backward_scratch says.
template <typename Stored>
void rms_norm_backward(View<const Stored> x, View<const Stored> dy, const Arithmetic<Stored>* weight,
                       Arithmetic<Stored> offset, const Arithmetic<Stored>* kept, View<Stored> dx,
                       Arithmetic<Stored>* dweight, Accumulate accumulate, Wide<Stored>* scratch) {
  using Scalar = Arithmetic<Stored>;
  row_norm_backward<ByRms<Scalar>>(x, dy, Affine<Scalar>{weight, nullptr, offset}, kept, dx, dweight,
                                   static_cast<Scalar*>(nullptr), accumulate, scratch);
}

}  // namespace evenkeel::kernels
