#pragma once

#include <algorithm>    // min
#include <cstddef>      // size_t
#include <cstdint>      // uint64_t
#include <type_traits>  // is_same_v

#include "evenkeel/core/parallel.hpp"       // parallel_for, RowChunks
#include "evenkeel/core/parameter.hpp"      // Accumulate
#include "evenkeel/core/types.hpp"          // Index, Wide
#include "evenkeel/core/view.hpp"           // View
#include "evenkeel/kernels/contiguous.hpp"  // PackedRows
#include "evenkeel/kernels/dropout.hpp"     // DrawnRows, KeptRows, mask_words
#include "evenkeel/kernels/row_norm.hpp"    // forward_rows, backward_rows, RowNorm

/// Where the output of a branch is added to a stream: dropout, addition and the norm behind them in one pass. Some rows at a time
/// are worked on while they are in cache: each input is read from memory once, each output written once. The masks are those of
/// dropout_forward; the values those of the three steps one by one.
namespace evenkeel::kernels {

/// Dropout on the output of a branch.
template <typename Scalar>
struct BranchDropout {
  MaskKey key{};
  Scalar scale = Scalar(1);
  std::uint64_t* mask = nullptr;  ///< mask_words(elements), from forward to backward; null: nothing is dropped.
};

namespace detail {

/// In place of DrawnRows and KeptRows, where nothing is dropped.
struct WholeRows {
  static constexpr Index most_columns = DrawnRows::most_columns;

  void begin_columns(Index, Index) {}
  void begin_row(Index) {}
  EVENKEEL_INLINE std::uint64_t next(Index, Index) { return ~std::uint64_t{0}; }
  void finish() {}
};

/// Calls body with the masks of a chunk: Masks(arguments...), or WholeRows where nothing is dropped.
template <class Masks, class Body, class... Arguments>
void with_masks(bool dropped, Index columns, const Body& body, Arguments... arguments) {
  const auto run = [&](auto&& masks) {
    masks.begin_columns(0, (std::min)(columns, Masks::most_columns));
    body(masks);
    masks.finish();
  };
  if (dropped)
    run(Masks(arguments...));
  else
    run(WholeRows());
}

/// Where the mask of a chunk begins.
inline std::uint64_t* mask_of_chunk(std::uint64_t* mask, const RowChunks& chunks, Index chunk, Index columns) {
  return mask == nullptr ? nullptr : mask + chunks.first(chunk) * columns / mask_bits + chunk;
}

/// Calls body(i, j, lanes, bits) for all lanes of `count` rows; `bits` says which of them are kept. Row i is row first + i of the
/// mask.
template <typename Scalar, class Masks, class Body>
EVENKEEL_INLINE inline void for_each_masked(Masks& masks, Index first, Index count, Index columns, const Body& body) {
  for (Index i = 0; i < count; ++i)
    for (Index left = 0; left < columns; left += Masks::most_columns) {
      const Index right = (std::min)(left + Masks::most_columns, columns);
      if (columns > Masks::most_columns) masks.begin_columns(left, right - left);
      masks.begin_row(first + i);
      for (Index j = left; j < right; j += mask_bits) {
        const Index together = (std::min)(mask_bits, right - j);
        const std::uint64_t bits = masks.next(j, together);
        const auto lanes_at = [&](Index k, auto lanes) EVENKEEL_INLINE { body(i, j + k, lanes, bits >> k); };
        if constexpr (!std::is_same_v<Scalar, long double>) {
          if (together == mask_bits) {
            constexpr Index bytes = lane_count<Scalar> * static_cast<Index>(sizeof(Scalar));
            unrolled<static_cast<std::size_t>(mask_bits / lane_count<Scalar>)>([&](Index k) EVENKEEL_INLINE {
              lanes_at(k * lane_count<Scalar>, WholeLanes{k * bytes % line_bytes == 0});
            });
            continue;
          }
        }
        for_each_lanes<Scalar>(0, together, lanes_at);
      }
    }
}

/// sum = x + drop(branch) for some contiguous rows, of which the first is row `first` of the mask. sum may be either.
template <typename Scalar, class Masks>
void add_rows(Masks& masks, Index first, View<const Scalar> x, View<const Scalar> branch, Scalar scale,
              View<Scalar> sum) {
  constexpr Index ahead = 1024;  // numbers, as in dropout
  for_each_masked<Scalar>(masks, first, x.rows, x.columns,
                          [&](Index i, Index j, auto lanes, std::uint64_t bits) EVENKEEL_INLINE {
                            const Scalar* const at = x.row(i) + j;
                            const Scalar* const added = branch.row(i) + j;
                            lanes.prefetch(at + ahead);
                            lanes.prefetch(added + ahead);
                            const Lanes<Scalar> scaled = lanes.load(added) * scale;
                            lanes.store(sum.row(i) + j, lanes.load(at) + kept_only<Scalar>(bits, scaled));
                          });
}

/// gradient = g + other, dbranch = drop(gradient) likewise. What is without data is not there.
template <typename Scalar, class Masks>
void drop_gradient_rows(Masks& masks, Index first, View<const Scalar> g, View<const Scalar> other, Scalar scale,
                        View<Scalar> gradient, View<Scalar> dbranch) {
  for_each_masked<Scalar>(masks, first, g.rows, g.columns,
                          [&](Index i, Index j, auto lanes, std::uint64_t bits) EVENKEEL_INLINE {
                            Lanes<Scalar> sum = lanes.load(g.row(i) + j);
                            if (other.data != nullptr) sum = sum + lanes.load(other.row(i) + j);
                            if (gradient.data != nullptr) lanes.store(gradient.row(i) + j, sum);
                            if (dbranch.data == nullptr) return;
                            const Lanes<Scalar> scaled = sum * scale;
                            lanes.store(dbranch.row(i) + j, kept_only<Scalar>(bits, scaled));
                          });
}

/// Rows worked on at a time where none are packed: few enough to stay in cache, and a part of GradientSums::most_rows.
inline Index rows_in_cache(const Packing& packing, Index columns) {
  constexpr Index least = 4;
  Index rows = packing.rows;
  while (rows > least && rows * columns > packed_on_stack) rows /= 2;
  return rows;
}

/// Some rows of a matrix for a kernel to read: themselves where they are contiguous, else packed.
template <typename Scalar>
View<const Scalar> rows_to_read(View<const Scalar> matrix, Index first, Index count, const PackedRows<Scalar>& packed) {
  const View<const Scalar> rows = matrix.middle_rows(first, count);
  if (contiguous_rows(rows)) return rows;
  return packed(rows);
}
/// And to write: to be brought back by put_back.
template <typename Scalar>
View<Scalar> rows_to_write(View<Scalar> matrix, Index first, Index count, const PackedRows<Scalar>& packed) {
  if (matrix.data == nullptr) return matrix;
  const View<Scalar> rows = matrix.middle_rows(first, count);
  return contiguous_rows(rows) ? rows : packed.like(rows);
}
template <typename Scalar>
void put_back(View<const Scalar> rows, View<Scalar> matrix, Index first) {
  if (matrix.data != nullptr && !contiguous_rows(matrix)) copy(rows, matrix.middle_rows(first, rows.rows));
}

/// sum = x + drop(branch), and body(first row, rows of sum, a place for packed rows) while they are in cache.
template <typename Scalar, class Body>
void add_branch(View<const Scalar> x, View<const Scalar> branch, const BranchDropout<Scalar>& dropout, View<Scalar> sum,
                bool contiguous, Wide<Scalar>* scratch, const Body& body) {
  const RowChunks chunks(x.rows, x.columns);
  const Packing packing(x.columns);
  const Index rows = contiguous ? rows_in_cache(packing, x.columns) : packing.rows;
  parallel_for(chunks.count, x.size(), [&](Index chunk, Index worker) {
    const PackedRows<Scalar> one(packing, scratch, 2 * worker), two(packing, scratch, 2 * worker + 1);
    with_masks<DrawnRows>(
        dropout.mask != nullptr, x.columns,
        [&](auto& masks) {
          for_each_block(chunks, chunk, rows, [&](Index first, Index count) {
            const View<const Scalar> left = rows_to_read(x, first, count, one);
            const View<const Scalar> right = rows_to_read(branch, first, count, two);
            const View<Scalar> added = rows_to_write(sum, first, count, two);
            add_rows(masks, first, left, right, dropout.scale, added);
            put_back<Scalar>(added, sum, first);
            body(first, View<const Scalar>(added), one);
          });
        },
        dropout.key, mask_of_chunk(dropout.mask, chunks, chunk, x.columns));
  });
}

}  // namespace detail

/// Numbers of scratch that residual_forward and residual_norm_forward need: none where rows are contiguous.
template <typename Scalar>
Index residual_forward_scratch(View<const Scalar> x, View<const Scalar> branch, View<const Scalar> sum,
                               View<const Scalar> y) {
  return contiguous_rows(x, branch, sum, y) ? 0 : Packing(x.columns).room<Scalar>(2);
}

/// sum = x + drop(branch). Keeps the mask. sum may be x or branch.
template <typename Scalar>
void residual_forward(View<const Scalar> x, View<const Scalar> branch, const BranchDropout<Scalar>& dropout,
                      View<Scalar> sum, Wide<Scalar>* scratch) {
  detail::add_branch(x, branch, dropout, sum, contiguous_rows(x, branch, sum), scratch,
                     [](Index, View<const Scalar>, const PackedRows<Scalar>&) {});
}

/// sum = x + drop(branch), y = norm(sum). Keeps the mask, and what the norm keeps of each row. sum may be x, branch or, where
/// nobody wants it, y; y may be x.
template <class Norm, typename Scalar = typename Norm::Scalar>
void residual_norm_forward(View<const Scalar> x, View<const Scalar> branch, const BranchDropout<Scalar>& dropout,
                           const RowNorm<Norm>& norm, View<Scalar> sum, View<Scalar> y, Wide<Scalar>* scratch) {
  const bool contiguous = contiguous_rows(x, branch, sum, y);
  detail::add_branch(x, branch, dropout, sum, contiguous, scratch,
                     [&](Index first, View<const Scalar> rows, const PackedRows<Scalar>& packed) {
                       const View<Scalar> out = detail::rows_to_write(y, first, rows.rows, packed);
                       const auto normalize = [&](auto stores) {
                         detail::forward_rows<Norm>(stores, !contiguous || is_near(x), rows, norm.affine, norm.epsilon,
                                                    out, norm.kept == nullptr ? nullptr : norm.kept + first);
                       };
                       if (contiguous)
                         with_stores(y, normalize);
                       else
                         normalize(CachedStores{});
                       detail::put_back<Scalar>(out, y, first);
                     });
}

/// Numbers of scratch that residual_norm_backward and residual_backward need for such a batch.
template <typename Scalar>
Index residual_backward_scratch(Index rows, Index columns) {
  return RowChunks(rows, columns).count * detail::GradientSums<Scalar>::numbers(columns) +
         Packing(columns).room<Scalar>(2);
}

/// The derivative of residual_forward where the gradient on sum is dsum: dbranch = drop(dsum), by the mask that was kept. dbranch
/// may be dsum.
template <typename Scalar>
void residual_backward(View<const Scalar> dsum, const BranchDropout<Scalar>& dropout, View<Scalar> dbranch,
                       Wide<Scalar>* scratch) {
  using namespace detail;
  const Index columns = dsum.columns;
  const RowChunks chunks(dsum.rows, columns);
  const Packing packing(columns);
  parallel_for(chunks.count, dsum.size(), [&](Index chunk, Index worker) {
    const PackedRows<Scalar> one(packing, scratch, 2 * worker), two(packing, scratch, 2 * worker + 1);
    with_masks<KeptRows>(
        dropout.mask != nullptr, columns,
        [&](auto& masks) {
          for_each_block(chunks, chunk, packing.rows, [&](Index first, Index count) {
            const View<Scalar> out = rows_to_write(dbranch, first, count, two);
            drop_gradient_rows(masks, first, rows_to_read(dsum, first, count, one), {}, dropout.scale, {}, out);
            put_back<Scalar>(out, dbranch, first);
          });
        },
        mask_of_chunk(dropout.mask, chunks, chunk, columns));
  });
}

/// The derivative of residual_norm_forward, given the gradient dy on y and `other`, what comes to sum by another way:
///
///     dx = other + (what row_norm_backward makes of dy)        dbranch = drop(dx)
///
/// `other` and dbranch may be without data; the norm's gradients may be null. dx may be sum, dy or other.
template <class Norm, typename Scalar = typename Norm::Scalar>
void residual_norm_backward(View<const Scalar> sum, View<const Scalar> dy, View<const Scalar> other,
                            const BranchDropout<Scalar>& dropout, const RowNorm<Norm>& norm, View<Scalar> dx,
                            View<Scalar> dbranch, Accumulate accumulate, Wide<Scalar>* scratch) {
  using namespace detail;
  using Sums = GradientSums<Scalar>;
  const Index columns = sum.columns;
  const RowChunks chunks(sum.rows, columns);
  const Packing packing(columns);
  Wide<Scalar>* const room = scratch + chunks.count * Sums::numbers(columns);
  const bool contiguous = contiguous_rows(sum, dy, other, dx, dbranch);
  const Index rows = contiguous ? rows_in_cache(packing, columns) : packing.rows;
  parallel_for(chunks.count, sum.size(), [&](Index chunk, Index worker) {
    const Sums sums(scratch, chunk, columns);
    const PackedRows<Scalar> one(packing, room, 2 * worker), two(packing, room, 2 * worker + 1);
    with_masks<KeptRows>(
        dropout.mask != nullptr && dbranch.data != nullptr, columns,
        [&](auto& masks) {
          for_each_block(chunks, chunk, rows, [&](Index first, Index count) {
            const View<const Scalar> input = rows_to_read(sum, first, count, one);
            const View<Scalar> gradient = one.like(input);  // in cache, apart from what dx may be
            backward_rows<Norm>(CachedStores{}, is_near(sum), input, rows_to_read(dy, first, count, two), norm.affine,
                                norm.kept + first, gradient, sums.weight(), sums.bias());
            const View<const Scalar> more =
                other.data == nullptr ? other : rows_to_read(other, first, count, two);  // dy is done with
            const View<Scalar> to_dx = rows_to_write(dx, first, count, one);
            const View<Scalar> to_branch = rows_to_write(dbranch, first, count, two);
            drop_gradient_rows<Scalar>(masks, first, gradient, more, dropout.scale, to_dx, to_branch);
            put_back<Scalar>(to_dx, dx, first);
            put_back<Scalar>(to_branch, dbranch, first);
            if ((first + count - chunks.first(chunk)) % Sums::most_rows == 0) sums.add_up();
          });
          sums.add_up();
        },
        mask_of_chunk(dropout.mask, chunks, chunk, columns));
  });
  Sums::finish(scratch, chunks.count, columns, accumulate, norm.dweight, norm.dbias);
}

}  // namespace evenkeel::kernels
