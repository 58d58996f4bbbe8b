#pragma once

#include <algorithm>    // min
#include <cstdint>      // uint32_t, uint64_t
#include <cstring>      // memcpy
#include <type_traits>  // is_same_v, conditional_t

#include "evenkeel/core/parallel.hpp"       // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"          // Index, Arithmetic
#include "evenkeel/core/view.hpp"           // View
#include "evenkeel/kernels/contiguous.hpp"  // contiguous_rows
#include "evenkeel/kernels/convert.hpp"     // convert
#include "evenkeel/kernels/lanes.hpp"       // with_stores, for_each_lanes
#include "evenkeel/kernels/mask.hpp"        // MaskRounds, MaskWriter, MaskReader

namespace evenkeel::kernels {
namespace detail {

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

/// x * scale where kept, else 0.
template <typename Scalar>
struct Scaled {
  Scalar scale;

  EVENKEEL_INLINE Lanes<Scalar> operator()(std::uint64_t bits, const Lanes<Scalar>& x) const {
    return kept_only<Scalar>(bits, x * scale);
  }
};

/// y = rule(x, whether its bit is set), for `count` numbers, at most 64.
template <typename Scalar, class Rule, class Stores>
EVENKEEL_INLINE inline void drop(std::uint64_t bits, Index count, const Rule& rule, const Scalar* x, Scalar* y,
                                 Stores stores) {
  const auto lanes_at = [&](Index j, auto lanes)
                            EVENKEEL_INLINE { stores.store(lanes, y + j, rule(bits >> j, lanes.load(x + j))); };
  if constexpr (!std::is_same_v<Scalar, long double>) {
    if (count == mask_bits)
      return unrolled<static_cast<std::size_t>(mask_bits / lane_count<Scalar>)>(
          [&](Index i) EVENKEEL_INLINE { lanes_at(i * lane_count<Scalar>, WholeLanes{}); });
  }
  for_each_lanes<Scalar>(0, count, lanes_at);
}

/// In place of Stores, for rows that are not contiguous, or of halves.
struct Strided {
  Index x_stride = 1, y_stride = 1;

  void finish() const {}
};

/// The same at column j of a row.
template <typename Stored, class Rule, class Stores>
EVENKEEL_INLINE inline void drop_at(Index j, std::uint64_t bits, Index count, const Rule& rule, const Stored* x,
                                    Stored* y, Stores stores) {
  if constexpr (std::is_same_v<Stores, Strided>) {
    Arithmetic<Stored> piece[mask_bits];
    if (stores.x_stride == 1)
      convert(count, x + j, piece);
    else
      for (Index k = 0; k < count; ++k) convert(x[(j + k) * stores.x_stride], piece[k]);
    drop(bits, count, rule, piece, piece, CachedStores{});
    if (stores.y_stride == 1)
      convert(count, piece, y + j);
    else
      for (Index k = 0; k < count; ++k) convert(piece[k], y[(j + k) * stores.y_stride]);
  } else {
    prefetch_ahead(x + j);
    drop(bits, count, rule, x + j, y + j, stores);
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
template <class Masks, class Rule, typename Stored, class Stores>
void drop_rows(Masks&& masks, Index first, Index end, Rule rule, View<const Stored> x, View<Stored> y, Stores stores) {
  for (Index left = 0; left < x.columns; left += Masks::most_columns) {
    const Index right = (std::min)(left + Masks::most_columns, x.columns);
    masks.begin_columns(left, right - left);
    for (Index row = first; row < end; ++row) {
      masks.begin_row(row);
      for (Index j = left; j < right; j += mask_bits) {
        const Index count = (std::min)(mask_bits, right - j);
        drop_at(j, masks.next(j, count), count, rule, x.row(row), y.row(row), stores);
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
template <class Masks, class Rule, typename Stored>
void drop_columns(Masks&& masks, Index first, Index end, Rule rule, View<const Stored> x, View<Stored> y) {
  using Stores = std::conditional_t<Half<Stored>, Strided, CachedStores>;
  for (Index block = first; block < end; ++block) {
    const Index left = block * mask_columns;
    const Index columns = (std::min)(mask_columns, x.columns - left);
    masks.begin_block(block);
    for (Index row = 0; row < x.rows; row += mask_bits) {
      const Index count = (std::min)(mask_bits, x.rows - row);
      masks.begin_rows(row, count);
      for (Index k = 0; k < columns; ++k) {
        drop_at(0, masks.next(k, count), count, rule, &x(row, left + k), &y(row, left + k), Stores{});
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
template <typename Stored, class Body>
void with_access(View<const Stored> x, View<Stored> y, const Body& body) {
  if constexpr (Real<Stored>)
    if (contiguous_rows(x, y)) return with_stores(y, body);
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

namespace detail {

/// y = rule(x, whether kept). Keeps the mask in `mask`, unless that is null.
template <class Rule, typename Stored>
void drop_forward(View<const Stored> x, const MaskKey& key, Rule rule, View<Stored> y, std::uint64_t* mask) {
  const auto kept = [&](Index word) { return mask == nullptr ? nullptr : mask + word; };
  for_each_chunk(
      x.rows, x.columns, mask_along_columns(x, y),
      [&](Index first, Index end, Index word) { drop_columns(DrawnColumns(key, kept(word)), first, end, rule, x, y); },
      [&](Index first, Index end, Index word) {
        with_access(x, y, [&](auto stores) {
          if (mask != nullptr && join_rows(x, y) && DrawnRows::narrow(x.columns)) {
            draw_rows(DrawnRows(key, mask + word), first, end, x.columns);
            return drop_rows(KeptRows(mask + word), 0, 1, rule, joined(x, first, end), joined(y, first, end), stores);
          }
          drop_rows(DrawnRows(key, kept(word)), first, end, rule, x, y, stores);
        });
      });
}

}  // namespace detail

/// y = x * scale where kept, else exactly 0, whatever x is there. Srivastava et al. 2014, section 10 (inverted dropout). y may be
/// x. Keeps the mask in `mask`, unless that is null.
template <typename Stored>
void dropout_forward(View<const Stored> x, const MaskKey& key, Arithmetic<Stored> scale, View<Stored> y,
                     std::uint64_t* mask) {
  detail::drop_forward(x, key, detail::Scaled<Arithmetic<Stored>>{scale}, y, mask);
}

/// dx = dy * scale where kept, else exactly 0: `mask` was kept by a forward for which mask_along_columns said the same. dx may
/// be dy.
template <typename Stored>
void dropout_backward(View<const Stored> dy, const std::uint64_t* mask, Arithmetic<Stored> scale, View<Stored> dx) {
  using namespace detail;
  const Scaled<Arithmetic<Stored>> rule{scale};
  for_each_chunk(
      dy.rows, dy.columns, mask_along_columns(dy, dx),
      [&](Index first, Index end, Index word) { drop_columns(KeptColumns(mask + word), first, end, rule, dy, dx); },
      [&](Index first, Index end, Index word) {
        with_access(dy, dx, [&](auto stores) {
          if (join_rows(dy, dx))
            drop_rows(KeptRows(mask + word), 0, 1, rule, joined(dy, first, end), joined(dx, first, end), stores);
          else
            drop_rows(KeptRows(mask + word), first, end, rule, dy, dx, stores);
        });
      });
}

}  // namespace evenkeel::kernels
