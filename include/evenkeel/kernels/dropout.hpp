#pragma once

#include <algorithm>  // min
#include <cstdint>    // uint16_t, uint32_t, uint64_t

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/random.hpp"      // Philox's constants
#include "evenkeel/core/types.hpp"       // Index
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/moments.hpp"  // with_strides

namespace evenkeel::kernels {

/// What a dropout mask is a function of. Element (row, column) takes the 16-bit half number `column mod 8`, the low half of
/// each word first, of the block philox({column div 8, row, call, stream}, seed), and is dropped where half < threshold.
struct MaskKey {
  std::uint64_t seed;
  std::uint32_t call;
  std::uint32_t stream;
  std::uint32_t threshold;  ///< 0 drops nothing, 65536 everything.
};

namespace detail {

inline constexpr Index mask_lanes = 32;   // blocks computed side by side, to fill the vector unit
inline constexpr Index mask_columns = 8;  // elements served by one block

/// The random halves of 32 blocks. Words are held in 64-bit lanes of which only the low halves are multiplied, which both
/// compilers turn into one vector multiplication a product.
inline void mask_halves(const MaskKey& key, const std::uint32_t (&block)[mask_lanes],
                        const std::uint32_t (&row)[mask_lanes], std::uint16_t (&halves)[mask_lanes][mask_columns]) {
  constexpr std::uint64_t low = 0xFFFFFFFF;
  std::uint64_t c0[mask_lanes], c1[mask_lanes], c2[mask_lanes], c3[mask_lanes];
  for (Index l = 0; l < mask_lanes; ++l) {
    c0[l] = block[l];
    c1[l] = row[l];
    c2[l] = key.call;
    c3[l] = key.stream;
  }
  std::uint64_t key_0 = key.seed & low;
  std::uint64_t key_1 = key.seed >> 32;
  for (int round = 0; round < evenkeel::detail::philox_rounds; ++round) {
    for (Index l = 0; l < mask_lanes; ++l) {
      const std::uint64_t product_0 = (c0[l] & low) * evenkeel::detail::philox_multiplier_0;
      const std::uint64_t product_1 = (c2[l] & low) * evenkeel::detail::philox_multiplier_1;
      c0[l] = (product_1 >> 32) ^ c1[l] ^ key_0;
      c1[l] = product_1 & low;
      c2[l] = (product_0 >> 32) ^ c3[l] ^ key_1;
      c3[l] = product_0 & low;
    }
    key_0 = (key_0 + evenkeel::detail::philox_weyl_0) & low;
    key_1 = (key_1 + evenkeel::detail::philox_weyl_1) & low;
  }
  for (Index l = 0; l < mask_lanes; ++l) {
    const std::uint64_t words[4] = {c0[l], c1[l], c2[l], c3[l]};
    for (int word = 0; word < 4; ++word) {
      halves[l][2 * word] = static_cast<std::uint16_t>(words[word] & 0xFFFF);
      halves[l][2 * word + 1] = static_cast<std::uint16_t>(words[word] >> 16);
    }
  }
}

}  // namespace detail

/// y = x * scale where kept, else exactly 0, whatever x is there: forward on the input, backward on the output gradient.
/// Srivastava et al. 2014, section 10 (inverted dropout). y may be x.
template <typename Scalar>
void dropout(View<const Scalar> x, const MaskKey& key, Scalar scale, View<Scalar> y) {
  const Index columns = x.columns;
  const Index row_blocks = (columns + detail::mask_columns - 1) / detail::mask_columns;
  const RowChunks chunks(x.rows, columns);

  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          const Index blocks = (chunks.end(chunk) - chunks.first(chunk)) * row_blocks;
          Index row = chunks.first(chunk);
          Index row_block = 0;
          for (Index done = 0; done < blocks; done += detail::mask_lanes) {
            const Index lanes = (std::min)(detail::mask_lanes, blocks - done);
            std::uint32_t lane_block[detail::mask_lanes] = {};
            std::uint32_t lane_row[detail::mask_lanes] = {};
            for (Index l = 0; l < lanes; ++l) {
              lane_block[l] = static_cast<std::uint32_t>(row_block);
              lane_row[l] = static_cast<std::uint32_t>(row);
              if (++row_block == row_blocks) {
                row_block = 0;
                ++row;
              }
            }
            std::uint16_t halves[detail::mask_lanes][detail::mask_columns];
            detail::mask_halves(key, lane_block, lane_row, halves);
            for (Index l = 0; l < lanes; ++l) {
              const Index first = static_cast<Index>(lane_block[l]) * detail::mask_columns;
              const Index width = (std::min)(detail::mask_columns, columns - first);
              const Scalar* input = x.row(static_cast<Index>(lane_row[l])) + first * x_stride;
              Scalar* output = y.row(static_cast<Index>(lane_row[l])) + first * y_stride;
              for (Index j = 0; j < width; ++j)
                output[j * y_stride] = halves[l][j] < key.threshold ? Scalar(0) : input[j * x_stride] * scale;
            }
          }
        },
        x.column_stride, y.column_stride);
  });
}

}  // namespace evenkeel::kernels
