#pragma once

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"       // Index, Arithmetic
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/convert.hpp"  // convert, as_number
#include "evenkeel/kernels/dropout.hpp"  // dropout_forward
#include "evenkeel/kernels/lanes.hpp"    // with_strides

namespace evenkeel::kernels {

/// The factor of each channel of each row: `scale` where it is kept, else 0. The mask is dropout's, with the channel in the
/// place of the column.
template <typename Scalar>
void draw_channel_factors(const MaskKey& key, Scalar scale, View<Scalar> factors) {
  as_map(factors).setOnes();
  dropout_forward(View<const Scalar>(factors), key, scale, factors, nullptr);
}

/// y = factor x, and exactly 0 where the factor is 0, whatever x is there. A channel is `positions` neighbouring columns;
/// factors: (rows, channels), row by row. y may be x. Backward is the same with dy and dx.
template <typename Stored>
void spatial_dropout(View<const Stored> x, View<const Arithmetic<Stored>> factors, Index positions, View<Stored> y) {
  using Scalar = Arithmetic<Stored>;
  const auto drop_or_scale = [](Scalar factor, const Stored& input, Stored& output) {
    convert(factor == 0 ? Scalar(0) : factor * as_number(input), output);
  };
  const bool along_columns = x.row_stride == 1 && x.column_stride != 1;
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    const Index first = chunks.first(chunk), end = chunks.end(chunk);
    if (along_columns) {
      with_strides(
          [&](auto x_stride, auto y_stride) {
            for (Index j = 0; j < x.columns; ++j) {
              const Scalar* factor = &factors(0, j / positions);
              const Stored* input = &x(0, j);
              Stored* output = &y(0, j);
              for (Index i = first; i < end; ++i)
                drop_or_scale(factor[i * factors.row_stride], input[i * x_stride], output[i * y_stride]);
            }
          },
          x.row_stride, y.row_stride);
    } else {
      with_strides(
          [&](auto x_stride, auto y_stride) {
            for (Index i = first; i < end; ++i)
              for (Index channel = 0; channel < factors.columns; ++channel) {
                const Scalar factor = factors(i, channel);
                const Stored* input = &x(i, channel * positions);
                Stored* output = &y(i, channel * positions);
                for (Index j = 0; j < positions; ++j) drop_or_scale(factor, input[j * x_stride], output[j * y_stride]);
              }
          },
          x.column_stride, y.column_stride);
    }
  });
}

}  // namespace evenkeel::kernels
