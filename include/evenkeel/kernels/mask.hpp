#pragma once

#if defined(__SSE2__)
#include <immintrin.h>  // _mm_mul_epu32, _mm_packs_epi16, _mm_movemask_epi8 and their wider kin
#endif

#include <cstdint>  // int16_t, uint32_t, uint64_t
#include <cstring>  // memcpy

#include "evenkeel/core/random.hpp"    // Philox's constants
#include "evenkeel/core/types.hpp"     // Index
#include "evenkeel/kernels/lanes.hpp"  // unrolled

/// The bits of dropout's masks: drawn 64 at a time, written and read one behind another.
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

inline constexpr Index mask_columns = 8;  // elements served by one block
inline constexpr Index mask_blocks = 8;   // blocks drawn at a time: 64 bits
inline constexpr Index mask_bits = mask_columns * mask_blocks;

// Words: a 64-bit number for each of some blocks, side by side, of which only the low halves are multiplied.

#if defined(__SSE2__)
#if defined(__AVX512BW__)
inline constexpr Index mask_register_bytes = 64;
#elif defined(__AVX2__)
inline constexpr Index mask_register_bytes = 32;
#else
inline constexpr Index mask_register_bytes = 16;
#endif

typedef std::uint64_t Words __attribute__((vector_size(mask_register_bytes)));

EVENKEEL_INLINE inline Words all(std::uint64_t value) { return Words{} + value; }

EVENKEEL_INLINE inline Words multiply_low(Words a, Words b) {
#if defined(__AVX512BW__)  // with a mask: the plain form warns in g++ 12
  return reinterpret_cast<Words>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Words>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}
#else
struct Words {
  std::uint64_t word[4];
};

template <class F>
EVENKEEL_INLINE inline Words each(const F& f) {
  Words result;
  for (int l = 0; l < 4; ++l) result.word[l] = f(l);
  return result;
}
EVENKEEL_INLINE inline Words all(std::uint64_t value) {
  return each([&](int) { return value; });
}
EVENKEEL_INLINE inline Words operator^(const Words& a, const Words& b) {
  return each([&](int l) { return a.word[l] ^ b.word[l]; });
}
EVENKEEL_INLINE inline Words operator+(const Words& a, const Words& b) {
  return each([&](int l) { return a.word[l] + b.word[l]; });
}
EVENKEEL_INLINE inline Words operator>>(const Words& a, int count) {
  return each([&](int l) { return a.word[l] >> count; });
}
EVENKEEL_INLINE inline Words operator<<(const Words& a, int count) {
  return each([&](int l) { return a.word[l] << count; });
}
EVENKEEL_INLINE inline Words multiply_low(const Words& a, const Words& b) {
  return each([&](int l) { return (a.word[l] & 0xFFFFFFFF) * (b.word[l] & 0xFFFFFFFF); });
}
#endif

inline constexpr Index words_lanes = static_cast<Index>(sizeof(Words) / sizeof(std::uint64_t));
inline constexpr Index words_each = mask_blocks / words_lanes;          // for the blocks drawn at a time
inline constexpr Index words_a_step = words_each < 2 ? words_each : 2;  // so many fit the registers

EVENKEEL_INLINE inline Words load_words(const std::uint64_t* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

EVENKEEL_INLINE inline void store_words(std::uint64_t* to, Words words) { std::memcpy(to, &words, sizeof words); }

/// What the first three rounds make of a row alone.
struct RowWords {
  Words high, product;
};

/// What they make of 8 blocks of columns alone.
struct ColumnWords {
  alignas(64) std::uint64_t word[4][mask_blocks];
};

/// Philox in words of 64 bits, of which the high halves do not matter. In the first rounds most of it depends on the row or
/// on the column alone. In the others every second exchange of keys is left out: what is added to a whole product is the key
/// of its high half, needed in this round, and that of its low half, needed in the next.
class MaskRounds {
 public:
  explicit MaskRounds(const MaskKey& key) : key_{key}, everything_{key.threshold > 65535 ? ~std::uint64_t{0} : 0} {
    for (int r = 4; r <= rounds; ++r) {
      const bool second = r % 2 != 0;
      const std::uint64_t now = second ? key_1(r) : key_0(r);
      const std::uint64_t next = r == rounds ? 0 : second ? key_1(r + 1) : key_0(r + 1);
      keys_[r - 4] = all(now << 32 | next);
    }
    limit_ = all(std::uint64_t{key.threshold ^ 0x8000} * 0x0001000100010001);
    row_ = all(((evenkeel::detail::philox_multiplier_1 * std::uint64_t{key.call}) >> 32) ^ key_0(1));
  }

  RowWords of_rows(Words row) const {
    const Words product = multiply_low(row ^ row_, all(evenkeel::detail::philox_multiplier_0));
    return {product >> 32, product};
  }

  /// For the blocks whose numbers these are.
  ColumnWords of_columns(const std::uint64_t (&blocks)[mask_blocks]) const {
    const Words multiplier_0 = all(evenkeel::detail::philox_multiplier_0);
    const Words multiplier_1 = all(evenkeel::detail::philox_multiplier_1);
    const Words of_stream = all(key_.stream ^ key_1(1));
    const Words of_call = all((evenkeel::detail::philox_multiplier_1 * std::uint64_t{key_.call}) ^ key_0(2));
    ColumnWords columns;
    for (Index l = 0; l < mask_blocks; l += words_lanes) {
      const Words one = multiply_low(load_words(blocks + l), multiplier_0);
      const Words two = multiply_low((one >> 32) ^ of_stream, multiplier_1);
      const Words three = multiply_low((two >> 32) ^ of_call, multiplier_0);
      store_words(columns.word[0] + l, one ^ all(key_1(2)));
      store_words(columns.word[1] + l, two ^ all(key_0(3)));
      store_words(columns.word[2] + l, (three >> 32) ^ all(key_1(3)));
      store_words(columns.word[3] + l, three ^ all(key_1(4)));
    }
    return columns;
  }

  /// Bit 8 b + k says whether column k of block b is kept. row(i) are the rows of the blocks in the i-th of their words.
  template <class Row>
  EVENKEEL_INLINE std::uint64_t kept(const Row& row, const ColumnWords& columns) const {
    std::uint64_t bits = 0;
    unrolled<words_each / words_a_step>([&](Index step) EVENKEEL_INLINE {
      bits |= dropped(row, columns, step * words_a_step) << (step * words_a_step * words_lanes * mask_columns % 64);
    });
    return ~(bits | everything_);
  }

 private:
  static constexpr int rounds = evenkeel::detail::philox_rounds;

  std::uint64_t key_0(int round) const {
    return static_cast<std::uint32_t>(key_.seed +
                                      static_cast<std::uint64_t>(round - 1) * evenkeel::detail::philox_weyl_0);
  }
  std::uint64_t key_1(int round) const {
    return static_cast<std::uint32_t>((key_.seed >> 32) +
                                      static_cast<std::uint64_t>(round - 1) * evenkeel::detail::philox_weyl_1);
  }

  template <class Row>
  EVENKEEL_INLINE std::uint64_t dropped(const Row& row, const ColumnWords& columns, Index first) const {
    constexpr auto size = static_cast<std::size_t>(words_a_step);
    const Words multiplier_0 = all(evenkeel::detail::philox_multiplier_0);
    const Words multiplier_1 = all(evenkeel::detail::philox_multiplier_1);
    Words c0[size], c1[size], c2[size], c3[size];
    unrolled<size>([&](Index i) EVENKEEL_INLINE {
      const auto column = [&](int k)
                              EVENKEEL_INLINE { return load_words(columns.word[k] + (first + i) * words_lanes); };
      const RowWords& r = row(first + i);
      const Words product = multiply_low(r.high ^ column(0), multiplier_1);
      c0[i] = (product >> 32) ^ column(1);
      c1[i] = product;
      c2[i] = r.product ^ column(2);
      c3[i] = column(3);
    });
    unrolled<rounds - 4>([&](Index r) EVENKEEL_INLINE {
      unrolled<size>([&](Index i) EVENKEEL_INLINE {
        Words product_0 = multiply_low(c0[i], multiplier_0);
        Words product_1 = multiply_low(c2[i], multiplier_1);
        if (r % 2 == 0)
          product_1 = product_1 ^ keys_[r];
        else
          product_0 = product_0 ^ keys_[r];
        c0[i] = (product_1 >> 32) ^ c1[i];
        c1[i] = product_1;
        c2[i] = (product_0 >> 32) ^ c3[i];
        c3[i] = product_0;
      });
    });
    std::uint64_t bits = 0;
    unrolled<size>([&](Index i) EVENKEEL_INLINE {
      const Words product_0 = multiply_low(c0[i], multiplier_0);
      const Words product_1 = multiply_low(c2[i], multiplier_1) ^ keys_[rounds - 4];
      bits |= compare(product_1 ^ (c1[i] << 32), product_0 ^ (c3[i] << 32)) << (i * words_lanes * mask_columns % 64);
    });
    return bits;
  }

  /// 8 bits for each block, set where the half is below the threshold. The halves come in the order 2 3 0 1 and 6 7 4 5.
  EVENKEEL_INLINE std::uint64_t compare(Words first, Words second) const {
#if defined(__SSE2__)
    typedef std::int16_t Halves __attribute__((vector_size(mask_register_bytes)));
    const Words sign = all(0x8000800080008000);
    const auto limit = reinterpret_cast<Halves>(limit_);
    const auto a = limit > reinterpret_cast<Halves>(first ^ sign);
    const auto b = limit > reinterpret_cast<Halves>(second ^ sign);
#if defined(__AVX512BW__)
    const __m512i order =
        _mm512_maskz_broadcast_i32x4(0xFFFF, _mm_setr_epi8(2, 3, 0, 1, 10, 11, 8, 9, 6, 7, 4, 5, 14, 15, 12, 13));
    const __m512i bytes = _mm512_packs_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
    return _mm512_movepi8_mask(_mm512_shuffle_epi8(bytes, order));
#elif defined(__AVX2__)
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 3, 0, 1, 10, 11, 8, 9, 6, 7, 4, 5, 14, 15, 12, 13));
    const __m256i bytes = _mm256_packs_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_shuffle_epi8(bytes, order)));
#else
    __m128i bytes = _mm_packs_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b));
    bytes = _mm_shufflehi_epi16(_mm_shufflelo_epi16(bytes, 0xB1), 0xB1);
    return static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_shuffle_epi32(bytes, 0xD8)));
#endif
#else
    std::uint64_t bits = 0;
    for (Index l = 0; l < words_lanes; ++l)
      for (Index k = 0; k < mask_columns; ++k) {
        const std::uint64_t word = k < 4 ? first.word[l] : second.word[l];
        const std::uint64_t half = (word >> (16 * ((k + 2) % 4))) & 0xFFFF;
        bits |= static_cast<std::uint64_t>(half < key_.threshold) << (l * mask_columns + k);
      }
    return bits;
#endif
  }

  MaskKey key_;
  Words keys_[rounds - 3];
  Words row_, limit_;
  std::uint64_t everything_;  // all bits, where everything is dropped
};

/// The bits of a mask one behind another in memory, `count` at a time, at most 64.
class MaskWriter {
 public:
  explicit MaskWriter(std::uint64_t* to) : to_{to} {}

  EVENKEEL_INLINE void append(std::uint64_t bits, Index count) {
    if (to_ == nullptr) return;
    if (count < mask_bits) bits &= (std::uint64_t{1} << count) - 1;
    pending_ |= bits << used_;
    if (used_ + static_cast<unsigned>(count) >= 64) {
      *to_++ = pending_;
      pending_ = used_ > 0 ? bits >> (64 - used_) : 0;
    }
    used_ = (used_ + static_cast<unsigned>(count)) % 64;
  }
  void finish() {
    if (used_ > 0) *to_ = pending_;
  }

 private:
  std::uint64_t* to_;  // may be null: nothing is kept then
  std::uint64_t pending_ = 0;
  unsigned used_ = 0;
};

/// The same bits again; those above `count` are undefined.
class MaskReader {
 public:
  explicit MaskReader(const std::uint64_t* from) : from_{from} {}

  EVENKEEL_INLINE std::uint64_t next(Index count) {
    std::uint64_t bits = *from_ >> used_;
    const unsigned end = used_ + static_cast<unsigned>(count);
    if (end > 64) bits |= from_[1] << (64 - used_);
    from_ += end / 64;
    used_ = end % 64;
    return bits;
  }

 private:
  const std::uint64_t* from_;
  unsigned used_ = 0;
};

}  // namespace detail
}  // namespace evenkeel::kernels
