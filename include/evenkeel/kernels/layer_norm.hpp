#pragma once

#include "evenkeel/core/parameter.hpp"    // Accumulate
#include "evenkeel/core/types.hpp"        // Arithmetic, Wide
#include "evenkeel/core/view.hpp"         // View
#include "evenkeel/kernels/moments.hpp"   // RowMoments
#include "evenkeel/kernels/row_norm.hpp"  // the arithmetic

namespace evenkeel::kernels {

/// y = weight * (x - mean) / sqrt(variance + epsilon) + bias, with mean and biased variance of each row.
/// Ba, Kiros & Hinton 2016, equations 3 and 4, plus epsilon. Keeps the moments of each row where `kept` is given. y may be x.
/// scratch: as row_norm_forward_scratch says.
template <typename Stored>
void layer_norm_forward(View<const Stored> x, const Arithmetic<Stored>* weight, const Arithmetic<Stored>* bias,
                        double epsilon, View<Stored> y, RowMoments<Arithmetic<Stored>>* kept = nullptr,
                        Wide<Stored>* scratch = nullptr) {
  using Scalar = Arithmetic<Stored>;
  row_norm_forward<ByMoments<Scalar>>(x, Affine<Scalar>{weight, bias}, epsilon, y, kept, scratch);
}

/// The derivative of layer_norm_forward. With g = dy * weight and x^ = (x - mean) / sqrt(variance + epsilon),
///
///     dx      = (g - mean(g) - x^ mean(g x^)) / sqrt(variance + epsilon)      means over the row
///     dweight = sum(dy x^)        dbias = sum(dy)                             sums over the batch
///
/// dx without data is not computed; dweight and dbias may be null. dx may be x or dy.
/// scratch: as row_norm_backward_scratch says.
template <typename Stored>
void layer_norm_backward(View<const Stored> x, View<const Stored> dy, const Arithmetic<Stored>* weight,
                         const RowMoments<Arithmetic<Stored>>* kept, View<Stored> dx, Arithmetic<Stored>* dweight,
                         Arithmetic<Stored>* dbias, Accumulate accumulate, Wide<Stored>* scratch) {
  using Scalar = Arithmetic<Stored>;
  row_norm_backward<ByMoments<Scalar>>(x, dy, Affine<Scalar>{weight, nullptr}, kept, dx, dweight, dbias, accumulate,
                                       scratch);
}

}  // namespace evenkeel::kernels
