#pragma once

#include <algorithm>  // min
#include <bit>        // endian
#include <cstdint>    // uint16_t, uint32_t, uint64_t
#include <cstring>    // memcpy

#include "evenkeel/core/parallel.hpp"  // parallel_for, RowChunks
#include "evenkeel/core/random.hpp"    // Philox's constants
#include "evenkeel/core/types.hpp"     // Index
#include "evenkeel/core/view.hpp"      // View
#include "evenkeel/kernels/lanes.hpp"  // with_row_access

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
inline constexpr std::uint64_t low_half = 0xFFFFFFFF;

/// 32 places, of 8 elements in a row each, by the first two words of their counters.
struct MaskPlaces {
  std::uint64_t block[mask_lanes];
  std::uint64_t row[mask_lanes];
};

/// The four random words of 32 blocks, in the low halves.
struct MaskWords {
  std::uint64_t word[4][mask_lanes];
};

#if defined(__GNUC__)
#define EVENKEEL_APART __attribute__((noinline))
#else
#define EVENKEEL_APART
#endif

/// The words are held in 64-bit lanes of which only the low halves are multiplied: both compilers turn that into one vector
/// multiplication a product, as long as these loops over local arrays stand in a function of their own.
EVENKEEL_APART inline void mask_words(const MaskKey& key, const MaskPlaces& places, MaskWords& words) {
  std::uint64_t c0[mask_lanes], c1[mask_lanes], c2[mask_lanes], c3[mask_lanes];
  for (Index l = 0; l < mask_lanes; ++l) {
    c0[l] = places.block[l];
    c1[l] = places.row[l];
    c2[l] = key.call;
    c3[l] = key.stream;
  }
  std::uint64_t key_0 = key.seed & low_half;
  std::uint64_t key_1 = key.seed >> 32;
  for (int round = 0; round < evenkeel::detail::philox_rounds; ++round) {
    for (Index l = 0; l < mask_lanes; ++l) {
      const std::uint64_t product_0 = (c0[l] & low_half) * evenkeel::detail::philox_multiplier_0;
      const std::uint64_t product_1 = (c2[l] & low_half) * evenkeel::detail::philox_multiplier_1;
      c0[l] = (product_1 >> 32) ^ c1[l] ^ key_0;
      c1[l] = product_1;
      c2[l] = (product_0 >> 32) ^ c3[l] ^ key_1;
      c3[l] = product_0;
    }
    key_0 = (key_0 + evenkeel::detail::philox_weyl_0) & low_half;
    key_1 = (key_1 + evenkeel::detail::philox_weyl_1) & low_half;
  }
  for (Index l = 0; l < mask_lanes; ++l) {
    words.word[0][l] = c0[l];
    words.word[1][l] = c1[l];
    words.word[2][l] = c2[l];
    words.word[3][l] = c3[l];
  }
}

/// The halves of each block in the order of its columns, one block after another.
EVENKEEL_APART inline void halves_along_rows(const MaskWords& words,
                                             std::uint16_t (&halves)[mask_lanes * mask_columns]) {
  if constexpr (std::endian::native == std::endian::little) {
    std::uint64_t pairs[2 * mask_lanes];
    for (Index l = 0; l < mask_lanes; ++l) {
      pairs[2 * l] = (words.word[0][l] & low_half) | (words.word[1][l] << 32);
      pairs[2 * l + 1] = (words.word[2][l] & low_half) | (words.word[3][l] << 32);
    }
    std::memcpy(halves, pairs, sizeof halves);
  } else {
    for (Index l = 0; l < mask_lanes; ++l)
      for (Index k = 0; k < mask_columns; ++k)
        halves[l * mask_columns + k] = static_cast<std::uint16_t>(words.word[k / 2][l] >> (16 * (k % 2)));
  }
}

/// The halves of each of the 8 columns, for 32 blocks one below the other.
EVENKEEL_APART inline void halves_along_columns(const MaskWords& words,
                                                std::uint16_t (&halves)[mask_columns][mask_lanes]) {
  for (Index k = 0; k < mask_columns; ++k) {
    const int shift = k % 2 == 0 ? 0 : 16;
    for (Index l = 0; l < mask_lanes; ++l) halves[k][l] = static_cast<std::uint16_t>(words.word[k / 2][l] >> shift);
  }
}

/// The next 32 places in rows of so many blocks.
EVENKEEL_APART inline void advance(MaskPlaces& places, std::uint64_t row_blocks) {
  const std::uint64_t rows = mask_lanes / row_blocks, blocks = mask_lanes % row_blocks;
  for (Index l = 0; l < mask_lanes; ++l) {
    const std::uint64_t block = places.block[l] + blocks;
    const std::uint64_t over = block >= row_blocks ? 1 : 0;
    places.block[l] = block - over * row_blocks;
    places.row[l] += rows + over;
  }
}

/// y = x * scale where half >= threshold, else 0, for `count` numbers.
template <typename Scalar, class XStride, class YStride>
EVENKEEL_APART void drop(const std::uint16_t* halves, std::uint32_t threshold, Scalar scale, Index count,
                         const Scalar* x, XStride x_stride, Scalar* y, YStride y_stride) {
  for (Index j = 0; j < count; ++j) {
    const Scalar scaled = x[j * x_stride] * scale;
    y[j * y_stride] = halves[j] < threshold ? Scalar(0) : scaled;
  }
}

/// Asks for what will be needed some batches later: the words in between take long enough.
template <typename Scalar, class Stride>
void prefetch_batch(const Scalar* from, Stride stride) {
  constexpr Index batch = mask_lanes * mask_columns;
  for (Index j = 0; j < batch; j += lane_count<Scalar>) prefetch(from + 4 * batch + j, stride);
}

/// Whether it serves to go through two views column by column.
template <typename Scalar>
bool columns_contiguous(View<const Scalar> x, View<Scalar> y) {
  return x.row_stride == 1 && y.row_stride == 1 && (x.column_stride != 1 || y.column_stride != 1);
}

/// Rows from `first` to `end`.
template <typename Scalar, class XStride, class YStride>
void drop_rows(Index first, Index end, const MaskKey& key, Scalar scale, View<const Scalar> x, XStride x_stride,
               View<Scalar> y, YStride y_stride) {
  const Index row_blocks = (x.columns + mask_columns - 1) / mask_columns;
  MaskPlaces places;
  for (Index l = 0; l < mask_lanes; ++l) {
    places.row[l] = static_cast<std::uint64_t>(first + l / row_blocks);
    places.block[l] = static_cast<std::uint64_t>(l % row_blocks);
  }
  Index row = first, block = 0;
  MaskWords words;
  std::uint16_t halves[mask_lanes * mask_columns];
  while (row < end) {
    mask_words(key, places, words);
    halves_along_rows(words, halves);
    for (Index lane = 0; lane < mask_lanes && row < end;) {
      const Index blocks = (std::min)(row_blocks - block, mask_lanes - lane);
      const Index column = block * mask_columns;
      const Index count = (std::min)(blocks * mask_columns, x.columns - column);
      prefetch_batch(x.row(row) + column * x_stride, x_stride);
      drop(halves + lane * mask_columns, key.threshold, scale, count, x.row(row) + column * x_stride, x_stride,
           y.row(row) + column * y_stride, y_stride);
      lane += blocks;
      block += blocks;
      if (block == row_blocks) {
        block = 0;
        ++row;
      }
    }
    advance(places, static_cast<std::uint64_t>(row_blocks));
  }
}

/// The 8 columns of one block, in matrices stored by columns.
template <typename Scalar>
void drop_columns(Index block, const MaskKey& key, Scalar scale, View<const Scalar> x, View<Scalar> y) {
  const Index column = block * mask_columns;
  const Index columns = (std::min)(mask_columns, x.columns - column);
  MaskPlaces places;
  MaskWords words;
  std::uint16_t halves[mask_columns][mask_lanes];
  for (Index row = 0; row < x.rows; row += mask_lanes) {
    for (Index l = 0; l < mask_lanes; ++l) {
      places.block[l] = static_cast<std::uint64_t>(block);
      places.row[l] = static_cast<std::uint64_t>(row + l);
    }
    mask_words(key, places, words);
    halves_along_columns(words, halves);
    const Index count = (std::min)(mask_lanes, x.rows - row);
    for (Index k = 0; k < columns; ++k) {
      for (Index l = 0; l < mask_lanes; l += lane_count<Scalar>)
        prefetch(&x(row + 4 * mask_lanes + l, column + k), UnitStride{});
      drop(halves[k], key.threshold, scale, count, &x(row, column + k), UnitStride{}, &y(row, column + k),
           UnitStride{});
    }
  }
}

}  // namespace detail

/// y = x * scale where kept, else exactly 0, whatever x is there: forward on the input, backward on the output gradient.
/// Srivastava et al. 2014, section 10 (inverted dropout). y may be x.
template <typename Scalar>
void dropout(View<const Scalar> x, const MaskKey& key, Scalar scale, View<Scalar> y) {
  if (detail::columns_contiguous(x, y)) {
    const Index blocks = (x.columns + detail::mask_columns - 1) / detail::mask_columns;
    return parallel_for(blocks, x.size(), [&](Index block) { detail::drop_columns(block, key, scale, x, y); });
  }
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          detail::drop_rows(chunks.first(chunk), chunks.end(chunk), key, scale, x, x_stride, y, y_stride);
        },
        x.column_stride, y.column_stride);
  });
}

}  // namespace evenkeel::kernels
