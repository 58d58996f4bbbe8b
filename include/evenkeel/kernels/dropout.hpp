#pragma once

#if defined(__SSE2__)
#include <immintrin.h>  // _mm_mul_epu32, _mm_packs_epi16, _mm_movemask_epi8 and their wider kin
#endif

#include <algorithm>    // min
#include <cstdint>      // int16_t, uint32_t, uint64_t
#include <cstring>      // memcpy
#include <type_traits>  // is_same_v

#include "evenkeel/core/parallel.hpp"       // parallel_for, RowChunks
#include "evenkeel/core/random.hpp"         // Philox's constants
#include "evenkeel/core/types.hpp"          // Index
#include "evenkeel/core/view.hpp"           // View
#include "evenkeel/kernels/contiguous.hpp"  // contiguous_rows
#include "evenkeel/kernels/lanes.hpp"       // with_stores, for_each_lanes

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

/// The bit of each lane, in each of the 32-bit parts of a number.
template <typename Scalar>
struct LaneBits {
  static constexpr Index parts = static_cast<Index>(sizeof(Scalar) / sizeof(std::uint32_t));
  alignas(64) std::uint32_t bit[lane_count<Scalar> * parts];
  constexpr LaneBits() : bit{} {
    for (Index lane = 0; lane < lane_count<Scalar> * parts; ++lane) bit[lane] = std::uint32_t{1} << (lane / parts);
  }
};
template <typename Scalar>
inline constexpr LaneBits<Scalar> lane_bits;

/// The values whose bit is set, zero in place of the others.
template <typename Scalar>
EVENKEEL_INLINE inline Lanes<Scalar> kept_only(std::uint64_t bits, const Lanes<Scalar>& values) {
  Lanes<Scalar> result;
#if defined(__SSE2__)
  if constexpr (!std::is_same_v<Scalar, long double>) {
    constexpr Index bytes = (std::min)(mask_register_bytes, register_bytes);
    typedef std::uint32_t Bits __attribute__((vector_size(bytes)));
    constexpr Index each = bytes / static_cast<Index>(sizeof(Scalar));
    const Bits all_bits = Bits{} + static_cast<std::uint32_t>(bits);
    unrolled<static_cast<std::size_t>(lane_count<Scalar> / each)>([&](Index i) EVENKEEL_INLINE {
      Bits own, value;
      std::memcpy(&own, lane_bits<Scalar>.bit + i * each * LaneBits<Scalar>::parts, sizeof own);
      std::memcpy(&value, reinterpret_cast<const Scalar*>(&values) + i * each, sizeof value);
      value &= reinterpret_cast<Bits>((all_bits & own) == own);
      std::memcpy(reinterpret_cast<Scalar*>(&result) + i * each, &value, sizeof value);
    });
    return result;
  }
#endif
  for (Index lane = 0; lane < lane_count<Scalar>; ++lane)
    result[lane] = (bits >> lane & 1) != 0 ? values[lane] : Scalar(0);
  return result;
}

/// Asks for what will be needed some batches later.
template <typename Scalar>
EVENKEEL_INLINE inline void prefetch_ahead(const Scalar* from) {
  constexpr Index ahead = 1024, line = line_bytes / static_cast<Index>(sizeof(Scalar));
  unrolled<static_cast<std::size_t>(mask_bits / line)>([&](Index i)
                                                           EVENKEEL_INLINE { prefetch(from + ahead + i * line); });
}

/// y = x * scale where the bit is set, else 0, for `count` numbers, at most 64.
template <typename Scalar, class Stores>
EVENKEEL_INLINE inline void drop(std::uint64_t bits, Index count, Scalar scale, const Scalar* x, Scalar* y,
                                 Stores stores) {
  const auto lanes_at = [&](Index j, auto lanes) EVENKEEL_INLINE {
    const Lanes<Scalar> scaled = lanes.load(x + j) * scale;
    stores.store(lanes, y + j, kept_only<Scalar>(bits >> j, scaled));
  };
  if constexpr (!std::is_same_v<Scalar, long double>) {
    if (count == mask_bits)
      return unrolled<static_cast<std::size_t>(mask_bits / lane_count<Scalar>)>(
          [&](Index i) EVENKEEL_INLINE { lanes_at(i * lane_count<Scalar>, WholeLanes{}); });
  }
  for_each_lanes<Scalar>(0, count, lanes_at);
}

/// In place of Stores, for rows that are not contiguous.
struct Strided {
  Index x_stride, y_stride;

  void finish() const {}
};

/// The same at column j of a row.
template <typename Scalar, class Stores>
EVENKEEL_INLINE inline void drop_at(Index j, std::uint64_t bits, Index count, Scalar scale, const Scalar* x, Scalar* y,
                                    Stores stores) {
  if constexpr (std::is_same_v<Stores, Strided>) {
    Scalar piece[mask_bits];
    for (Index k = 0; k < count; ++k) piece[k] = x[(j + k) * stores.x_stride];
    drop(bits, count, scale, piece, piece, CachedStores{});
    for (Index k = 0; k < count; ++k) y[(j + k) * stores.y_stride] = piece[k];
  } else {
    prefetch_ahead(x + j);
    drop(bits, count, scale, x + j, y + j, stores);
  }
}

/// Masks along rows, drawn and kept.
class DrawnRows {
 public:
  static constexpr Index most_columns = 4096;  // bounds the table

  /// Whether several rows are drawn at a time.
  static bool narrow(Index columns) { return 2 * columns <= mask_bits; }

  DrawnRows(const MaskKey& key, std::uint64_t* kept) : rounds_{key}, writer_{kept} {}

  void begin_columns(Index first, Index count) {
    first_ = first;
    const Index blocks = (count + mask_columns - 1) / mask_columns;
    narrow_blocks_ = narrow(count) ? blocks : 0;
    rows_left_ = 0;
    const Index period = narrow_blocks_ == 0 ? mask_blocks : blocks;
    for (Index i = 0; i * mask_blocks < blocks; ++i) {
      std::uint64_t numbers[mask_blocks];
      for (Index l = 0; l < mask_blocks; ++l)
        numbers[l] = static_cast<std::uint64_t>(first / mask_columns + i * mask_blocks + l % period);
      columns_[i] = rounds_.of_columns(numbers);
    }
  }
  EVENKEEL_INLINE void begin_row(Index row) {
    if (narrow_blocks_ == 0)
      row_ = rounds_.of_rows(all(static_cast<std::uint64_t>(row)));
    else if (rows_left_ == 0)
      draw_rows(row);
  }
  EVENKEEL_INLINE std::uint64_t next(Index column, Index count) {
    std::uint64_t bits;
    if (narrow_blocks_ == 0) {
      bits = rounds_.kept([&](Index) EVENKEEL_INLINE -> const RowWords& { return row_; },
                          columns_[(column - first_) / mask_bits]);
    } else {
      bits = narrow_bits_;
      narrow_bits_ >>= narrow_blocks_ * mask_columns;
      --rows_left_;
    }
    writer_.append(bits, count);
    return bits;
  }
  void finish() { writer_.finish(); }

 private:
  /// The next rows, as many as 8 blocks hold.
  void draw_rows(Index row) {
    rows_left_ = mask_blocks / narrow_blocks_;
    std::uint64_t rows[mask_blocks];
    for (Index l = 0; l < mask_blocks; ++l) rows[l] = static_cast<std::uint64_t>(row + l / narrow_blocks_);
    narrow_bits_ = rounds_.kept(
        [&](Index i) EVENKEEL_INLINE { return rounds_.of_rows(load_words(rows + i * words_lanes)); }, columns_[0]);
  }

  MaskRounds rounds_;
  MaskWriter writer_;
  RowWords row_;
  Index first_ = 0;
  Index narrow_blocks_ = 0;  // of a row, where several rows are drawn at a time, else 0
  Index rows_left_ = 0;
  std::uint64_t narrow_bits_ = 0;
  ColumnWords columns_[most_columns / mask_bits];
};

/// The same, as they were kept.
class KeptRows {
 public:
  static constexpr Index most_columns = DrawnRows::most_columns;

  explicit KeptRows(const std::uint64_t* kept) : reader_{kept} {}
  void begin_columns(Index, Index) {}
  void begin_row(Index) {}
  EVENKEEL_INLINE std::uint64_t next(Index, Index count) { return reader_.next(count); }
  void finish() {}

 private:
  MaskReader reader_;
};

/// Rows from `first` to `end`.
template <class Masks, typename Scalar, class Stores>
void drop_rows(Masks&& masks, Index first, Index end, Scalar scale, View<const Scalar> x, View<Scalar> y,
               Stores stores) {
  for (Index left = 0; left < x.columns; left += Masks::most_columns) {
    const Index right = (std::min)(left + Masks::most_columns, x.columns);
    masks.begin_columns(left, right - left);
    for (Index row = first; row < end; ++row) {
      masks.begin_row(row);
      for (Index j = left; j < right; j += mask_bits) {
        const Index count = (std::min)(mask_bits, right - j);
        drop_at(j, masks.next(j, count), count, scale, x.row(row), y.row(row), stores);
      }
    }
  }
  masks.finish();
}

/// 64 rows of 8 bits, 8 rows a word, turned into 8 columns of 64 bits.
inline void transpose(std::uint64_t (&words)[mask_columns]) {
  const auto exchange = [](std::uint64_t& a, std::uint64_t& b, int shift, std::uint64_t mask) {
    const std::uint64_t moved = ((a >> shift) ^ b) & mask;
    b ^= moved;
    a ^= moved << shift;
  };
  const auto exchange_within = [](std::uint64_t& a, int shift, std::uint64_t mask) {
    const std::uint64_t moved = ((a >> shift) ^ a) & mask;
    a ^= moved ^ (moved << shift);
  };
  for (auto& word : words) {
    exchange_within(word, 7, 0x00AA00AA00AA00AA);
    exchange_within(word, 14, 0x0000CCCC0000CCCC);
    exchange_within(word, 28, 0x00000000F0F0F0F0);
  }
  for (int i = 0; i < 4; ++i) exchange(words[i], words[i + 4], 32, 0x00000000FFFFFFFF);
  for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1) exchange(words[i], words[i + 2], 16, 0x0000FFFF0000FFFF);
  for (int i = 0; i < 8; i += 2) exchange(words[i], words[i + 1], 8, 0x00FF00FF00FF00FF);
}

/// Masks along the 8 columns of a block, drawn and kept.
class DrawnColumns {
 public:
  DrawnColumns(const MaskKey& key, std::uint64_t* kept) : rounds_{key}, writer_{kept} {}

  void begin_block(Index block) {
    std::uint64_t numbers[mask_blocks];
    for (auto& number : numbers) number = static_cast<std::uint64_t>(block);
    columns_ = rounds_.of_columns(numbers);
  }
  void begin_rows(Index first, Index count) {
    for (Index g = 0; g * mask_blocks < count; ++g) {
      std::uint64_t rows[mask_blocks];
      for (Index l = 0; l < mask_blocks; ++l) rows[l] = static_cast<std::uint64_t>(first + g * mask_blocks + l);
      bits_[g] = rounds_.kept(
          [&](Index i) EVENKEEL_INLINE { return rounds_.of_rows(load_words(rows + i * words_lanes)); }, columns_);
    }
    transpose(bits_);
  }
  EVENKEEL_INLINE std::uint64_t next(Index column, Index count) {
    writer_.append(bits_[column], count);
    return bits_[column];
  }
  void finish() { writer_.finish(); }

 private:
  MaskRounds rounds_;
  MaskWriter writer_;
  ColumnWords columns_;
  std::uint64_t bits_[mask_columns] = {};
};

/// The same, as they were kept.
class KeptColumns {
 public:
  explicit KeptColumns(const std::uint64_t* kept) : reader_{kept} {}
  void begin_block(Index) {}
  void begin_rows(Index, Index) {}
  EVENKEEL_INLINE std::uint64_t next(Index, Index count) { return reader_.next(count); }
  void finish() {}

 private:
  MaskReader reader_;
};

/// Blocks of 8 columns from `first` to `end`, in matrices stored by columns.
template <class Masks, typename Scalar>
void drop_columns(Masks&& masks, Index first, Index end, Scalar scale, View<const Scalar> x, View<Scalar> y) {
  for (Index block = first; block < end; ++block) {
    const Index left = block * mask_columns;
    const Index columns = (std::min)(mask_columns, x.columns - left);
    masks.begin_block(block);
    for (Index row = 0; row < x.rows; row += mask_bits) {
      const Index count = (std::min)(mask_bits, x.rows - row);
      masks.begin_rows(row, count);
      for (Index k = 0; k < columns; ++k) {
        drop_at(0, masks.next(k, count), count, scale, &x(row, left + k), &y(row, left + k), CachedStores{});
      }
    }
  }
  masks.finish();
}

/// Rows that lie one behind another in memory, as one row.
template <typename Scalar>
View<Scalar> joined(View<Scalar> view, Index first, Index end) {
  const Index count = (end - first) * view.columns;
  return {view.row(first), 1, count, count, 1};
}

/// Whether the rows of two views can be joined, so that the bits of the mask stay in their order.
template <typename Scalar>
bool join_rows(View<const Scalar> x, View<Scalar> y) {
  const auto dense = [](auto view) { return view.column_stride == 1 && view.row_stride == view.columns; };
  return dense(x) && dense(y) && x.columns <= DrawnRows::most_columns;
}

/// Draws the bits of rows of few columns, and keeps them.
inline void draw_rows(DrawnRows&& masks, Index first, Index end, Index columns) {
  masks.begin_columns(0, columns);
  for (Index row = first; row < end; ++row) {
    masks.begin_row(row);
    masks.next(0, columns);
  }
  masks.finish();
}

/// Calls body with the way to write to y.
template <typename Scalar, class Body>
void with_access(View<const Scalar> x, View<Scalar> y, const Body& body) {
  if (contiguous_rows(x, y))
    with_stores(y, body);
  else
    body(Strided{x.column_stride, y.column_stride});
}

/// Calls by_columns or by_rows(first, end, word) for chunks of blocks of 8 columns or of rows; `word` is where the bits of a
/// chunk begin.
template <class ByColumns, class ByRows>
void for_each_chunk(Index rows, Index columns, bool along_columns, const ByColumns& by_columns, const ByRows& by_rows) {
  const Index unit = along_columns ? mask_columns * rows : columns;  // elements of what is cut
  const RowChunks chunks(along_columns ? (columns + mask_columns - 1) / mask_columns : rows, unit);
  parallel_for(chunks.count, rows * columns, [&](Index chunk) {
    const Index first = chunks.first(chunk), end = chunks.end(chunk), word = first * unit / mask_bits + chunk;
    if (along_columns)
      by_columns(first, end, word);
    else
      by_rows(first, end, word);
  });
}

}  // namespace detail

/// Whether the mask of such matrices is drawn, and kept, column by column.
template <typename Scalar>
bool mask_along_columns(View<const Scalar> x, View<Scalar> y) {
  return x.row_stride == 1 && y.row_stride == 1 && (x.column_stride != 1 || y.column_stride != 1);
}

/// So many words keep a mask: one bit an element, and some words more.
inline constexpr Index mask_words(Index elements) { return elements / detail::mask_bits + RowChunks::most + 1; }

/// y = x * scale where kept, else exactly 0, whatever x is there. Srivastava et al. 2014, section 10 (inverted dropout). y may be
/// x. Keeps the mask in `mask`, unless that is null.
template <typename Scalar>
void dropout_forward(View<const Scalar> x, const MaskKey& key, Scalar scale, View<Scalar> y, std::uint64_t* mask) {
  using namespace detail;
  const auto kept = [&](Index word) { return mask == nullptr ? nullptr : mask + word; };
  for_each_chunk(
      x.rows, x.columns, mask_along_columns(x, y),
      [&](Index first, Index end, Index word) { drop_columns(DrawnColumns(key, kept(word)), first, end, scale, x, y); },
      [&](Index first, Index end, Index word) {
        with_access(x, y, [&](auto stores) {
          if (mask != nullptr && join_rows(x, y) && DrawnRows::narrow(x.columns)) {
            draw_rows(DrawnRows(key, mask + word), first, end, x.columns);
            return drop_rows(KeptRows(mask + word), 0, 1, scale, joined(x, first, end), joined(y, first, end), stores);
          }
          drop_rows(DrawnRows(key, kept(word)), first, end, scale, x, y, stores);
        });
      });
}

/// dx = dy * scale where kept, else exactly 0: `mask` was kept by a forward for which mask_along_columns said the same. dx may
/// be dy.
template <typename Scalar>
void dropout_backward(View<const Scalar> dy, const std::uint64_t* mask, Scalar scale, View<Scalar> dx) {
  using namespace detail;
  for_each_chunk(
      dy.rows, dy.columns, mask_along_columns(dy, dx),
      [&](Index first, Index end, Index word) { drop_columns(KeptColumns(mask + word), first, end, scale, dy, dx); },
      [&](Index first, Index end, Index word) {
        with_access(dy, dx, [&](auto stores) {
          if (join_rows(dy, dx))
            drop_rows(KeptRows(mask + word), 0, 1, scale, joined(dy, first, end), joined(dx, first, end), stores);
          else
            drop_rows(KeptRows(mask + word), first, end, scale, dy, dx, stores);
        });
      });
}

}  // namespace evenkeel::kernels
