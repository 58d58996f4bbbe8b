#pragma once

#include <algorithm>  // fill
#include <array>
#include <cstddef>      // size_t
#include <type_traits>  // integral_constant, conditional_t

#include "evenkeel/core/parallel.hpp"       // parallel_for, RowChunks
#include "evenkeel/core/parameter.hpp"      // Accumulate
#include "evenkeel/core/types.hpp"          // Index, Wide
#include "evenkeel/core/view.hpp"           // View
#include "evenkeel/kernels/affine.hpp"      // Affine
#include "evenkeel/kernels/contiguous.hpp"  // PackedRows
#include "evenkeel/kernels/lanes.hpp"       // Lanes, for_each_rows
#include "evenkeel/kernels/moments.hpp"     // row_moments, row_inverse_rms

/// What LayerNorm and RMSNorm share. Each row is standardized to x^, then scaled and shifted feature by feature. Some rows at a
/// time are worked on while they are in cache: read from memory once, written once.
namespace evenkeel::kernels {

/// LayerNorm's way of standardizing a row: x^ = (x - mean) / sqrt(variance + epsilon).
template <typename Scalar_>
struct ByMoments {
  using Scalar = Scalar_;
  using Kept = RowMoments<Scalar>;  ///< Of each row, from forward to backward.
  static constexpr bool centred = true;

  /// The same for R rows.
  template <std::size_t R>
  struct Rows {
    MomentsOfRows<Scalar, R> moments;
    PerRow<Scalar, R> shift;

    EVENKEEL_INLINE explicit Rows(const MomentsOfRows<Scalar, R>& of_rows)
        : moments{of_rows}, shift{-of_rows.mean_residual * of_rows.inverse_deviation} {}
    EVENKEEL_INLINE Rows(const std::array<const Scalar*, R>& x, Index columns, double epsilon)
        : Rows(row_moments(x, columns, epsilon)) {}
    EVENKEEL_INLINE explicit Rows(const Kept* kept) : Rows(gathered(kept)) {}
    EVENKEEL_INLINE void keep(Kept* kept) const {
      unrolled<R>([&](Index r) EVENKEEL_INLINE { kept[r] = moments.get(static_cast<std::size_t>(r)); });
    }
    EVENKEEL_INLINE Scalar middle(Index r) const { return moments.mean[r]; }
    EVENKEEL_INLINE Scalar inverse(Index r) const { return moments.inverse_deviation[r]; }
    EVENKEEL_INLINE Lanes<Scalar> standardized(Index r, const Lanes<Scalar>& x) const {
      return (x - middle(r)) * inverse(r) + shift[r];
    }

   private:
    EVENKEEL_INLINE static MomentsOfRows<Scalar, R> gathered(const Kept* kept) {
      MomentsOfRows<Scalar, R> moments;
      unrolled<R>([&](Index r) EVENKEEL_INLINE { moments.set(static_cast<std::size_t>(r), kept[r]); });
      return moments;
    }
  };
};

/// RMSNorm's way: x^ = x / sqrt(mean(x^2) + epsilon).
template <typename Scalar_>
struct ByRms {
  using Scalar = Scalar_;
  using Kept = Scalar;  ///< One over the root.
  static constexpr bool centred = false;

  template <std::size_t R>
  struct Rows {
    PerRow<Scalar, R> inverse_rms;

    EVENKEEL_INLINE Rows(const std::array<const Scalar*, R>& x, Index columns, double epsilon)
        : inverse_rms{row_inverse_rms(x, columns, epsilon)} {}
    EVENKEEL_INLINE explicit Rows(const Kept* kept) {
      unrolled<R>([&](Index r) EVENKEEL_INLINE { inverse_rms[r] = kept[r]; });
    }
    EVENKEEL_INLINE void keep(Kept* kept) const {
      unrolled<R>([&](Index r) EVENKEEL_INLINE { kept[r] = inverse_rms[r]; });
    }
    EVENKEEL_INLINE Scalar middle(Index) const { return Scalar(0); }
    EVENKEEL_INLINE Scalar inverse(Index r) const { return inverse_rms[r]; }
    EVENKEEL_INLINE Lanes<Scalar> standardized(Index r, const Lanes<Scalar>& x) const { return x * inverse(r); }
  };
};

/// What a layer's norm computes with, for kernels that do its work together with that of its neighbours.
template <class Norm>
struct RowNorm {
  using Scalar = typename Norm::Scalar;
  Affine<Scalar> affine;
  double epsilon;
  typename Norm::Kept* kept = nullptr;  ///< Of each row, from forward to backward; null: nothing is kept.
  Scalar* dweight = nullptr;            ///< The gradients; may be null.
  Scalar* dbias = nullptr;
};

namespace detail {

/// Rows of an array of rows.
template <std::size_t R>
using RowCount = std::integral_constant<std::size_t, R>;

/// The scale of the lanes at column j of a run.
template <class Norm, class Numbers, class AnyAffine, class AnyLanes, typename Scalar = typename Norm::Scalar>
EVENKEEL_INLINE inline Lanes<Scalar> scale_of(const Numbers& numbers, const AnyAffine& affine, Index j,
                                              AnyLanes lanes) {
  if constexpr (Norm::centred)
    return numbers.load(0, j, lanes);
  else
    return numbers.load(0, j, lanes) + affine.offset;
}

/// The sums over some rows that belong to the lanes of a run: one for each of its columns, in Scalar, or one for all of them.
template <typename Scalar, bool ForEach>
struct RunSums {
  using Number = std::conditional_t<ForEach, Scalar, Wide<Scalar>>;
  Number* to;
  Lanes<Scalar> held = zeros<Lanes<Scalar>>();

  template <class AnyLanes>
  EVENKEEL_INLINE Lanes<Scalar> get([[maybe_unused]] Index j, [[maybe_unused]] AnyLanes lanes) const {
    if constexpr (ForEach)
      return lanes.load(to + j);
    else
      return held;
  }
  template <class AnyLanes>
  EVENKEEL_INLINE void set([[maybe_unused]] Index j, [[maybe_unused]] AnyLanes lanes, const Lanes<Scalar>& sum) {
    if constexpr (ForEach)
      lanes.store(to + j, sum);
    else
      held = sum;
  }
  EVENKEEL_INLINE void finish() const {
    if constexpr (!ForEach) *to += static_cast<Number>(sum_of_lanes<Scalar>(held));
  }
};

/// row_norm_forward for rows that are contiguous. `near` says that they are in cache; else the next ones are asked for ahead.
template <class Norm, class Stores, class AnyAffine, typename Scalar = typename Norm::Scalar>
void forward_rows(Stores stores, bool near, View<const Scalar> x, const AnyAffine& affine, double epsilon,
                  View<Scalar> y, typename Norm::Kept* kept) {
  const Index row_bytes = x.columns * static_cast<Index>(sizeof(Scalar));
  for_each_rows<most_rows<Scalar>>(
      0, x.rows, row_bytes, rows_collide(near, x), [&]<std::size_t R>(Index first, RowCount<R>) EVENKEEL_INLINE {
        const auto input = rows_from<R>(x, first);
        const auto output = rows_from<R>(y, first);
        const typename Norm::template Rows<R> measured(input, x.columns, epsilon);
        const Index ahead = near ? 0 : static_cast<Index>(R) * x.row_stride;

        constexpr std::size_t pair = many_registers || R == 1 ? R : 2;  // rows whose numbers the registers hold
        unrolled<R / pair>([&](Index p) EVENKEEL_INLINE {
          affine.for_each_run(x.columns, [&](Index j0, Index width, const auto& numbers, Index) EVENKEEL_INLINE {
            for_each_lanes<Scalar>(0, width, [&](Index j, auto lanes) EVENKEEL_INLINE {
              const Lanes<Scalar> weight = scale_of<Norm>(numbers, affine, j, lanes);
              Lanes<Scalar> bias;
              if constexpr (Norm::centred) bias = numbers.load(1, j, lanes);
              unrolled<pair>([&](Index q) EVENKEEL_INLINE {
                const Index r = p * static_cast<Index>(pair) + q;
                const Scalar* from = input[static_cast<std::size_t>(r)] + j0 + j;
                lanes.prefetch(from + ahead);
                const Lanes<Scalar> standard = measured.standardized(r, lanes.load(from));
                Scalar* to = output[static_cast<std::size_t>(r)] + j0 + j;
                if constexpr (Norm::centred)
                  stores.store(lanes, to, standard * weight + bias);
                else
                  stores.store(lanes, to, standard * weight);
              });
            });
          });
        });
        if (kept != nullptr) measured.keep(kept + first);
      });
}

/// row_norm_backward likewise, for few enough rows for sums in Scalar. Adds to weight_sum and bias_sum, one number for each
/// column of weights.
template <class Norm, class Stores, class AnyAffine, typename Number, typename Scalar = typename Norm::Scalar>
void backward_rows(Stores stores, bool near, View<const Scalar> x, View<const Scalar> dy, const AnyAffine& affine,
                   const typename Norm::Kept* kept, View<Scalar> dx, Number* weight_sum, Number* bias_sum) {
  using Sum = Wide<Scalar>;
  using Sums = RunSums<Scalar, AnyAffine::of_each_feature>;
  const Index columns = x.columns;
  const Index row_bytes = 2 * columns * static_cast<Index>(sizeof(Scalar));
  for_each_rows<(std::min)(most_rows<Scalar>, std::size_t{many_registers ? 4 : 2})>(
      0, x.rows, row_bytes, rows_collide(near, x), [&]<std::size_t R>(Index first, RowCount<R>) EVENKEEL_INLINE {
        const auto input = rows_from<R>(x, first);
        const auto delta = rows_from<R>(dy, first);
        const typename Norm::template Rows<R> measured(kept + first);

        constexpr Index piece = lanes_a_piece * lane_count<Scalar>;
        PerRow<Sum, R> sum_g = PerRow<Sum, R>::Zero(), sum_gx = sum_g;
        affine.for_each_run(columns, [&](Index start, Index width, const auto& numbers, Index number) EVENKEEL_INLINE {
          for (Index j0 = 0; j0 < width; j0 += piece) {
            Lanes<Scalar> g_sum[R], gx_sum[R];
            unrolled<R>([&](Index r) EVENKEEL_INLINE {
              g_sum[r] = zeros<Lanes<Scalar>>();
              gx_sum[r] = zeros<Lanes<Scalar>>();
            });
            Sums of_weight{weight_sum + number}, of_bias{bias_sum + number};
            for_each_lanes<Scalar>(j0, (std::min)(width, j0 + piece), [&](Index j, auto lanes) EVENKEEL_INLINE {
              const Lanes<Scalar> weight = scale_of<Norm>(numbers, affine, j, lanes);
              Lanes<Scalar> to_weight = of_weight.get(j, lanes), to_bias;
              if constexpr (Norm::centred) to_bias = of_bias.get(j, lanes);
              unrolled<R>([&](Index r) EVENKEEL_INLINE {
                const auto k = static_cast<std::size_t>(r);
                const Lanes<Scalar> d = lanes.load(delta[k] + start + j);
                const Lanes<Scalar> dx_standard =
                    d * measured.standardized(r, lanes.load(input[k] + start + j, measured.middle(r)));
                to_weight += dx_standard;
                gx_sum[r] += dx_standard * weight;
                if constexpr (Norm::centred) {
                  to_bias += d;
                  g_sum[r] += d * weight;
                }
              });
              of_weight.set(j, lanes, to_weight);
              if constexpr (Norm::centred) of_bias.set(j, lanes, to_bias);
            });
            of_weight.finish();
            if constexpr (Norm::centred) of_bias.finish();
            unrolled<R>([&](Index r) EVENKEEL_INLINE {
              if constexpr (Norm::centred) sum_g[r] += static_cast<Sum>(sum_of_lanes<Scalar>(g_sum[r]));
              sum_gx[r] += static_cast<Sum>(sum_of_lanes<Scalar>(gx_sum[r]));
            });
          }
        });
        if (dx.data == nullptr) return;

        const Index x_ahead = near ? 0 : static_cast<Index>(R) * x.row_stride;
        const Index dy_ahead = near ? 0 : static_cast<Index>(R) * dy.row_stride;
        const auto output = rows_from<R>(dx, first);
        std::array<Scalar, R> scaled_mean_g, scaled_mean_gx;
        unrolled<R>([&](Index r) EVENKEEL_INLINE {
          const auto k = static_cast<std::size_t>(r);
          const Sum each = static_cast<Sum>(measured.inverse(r)) / static_cast<Sum>(columns);
          scaled_mean_g[k] = static_cast<Scalar>(sum_g[r] * each);
          scaled_mean_gx[k] = static_cast<Scalar>(sum_gx[r] * each);
        });
        affine.for_each_run(columns, [&](Index start, Index width, const auto& numbers, Index) EVENKEEL_INLINE {
          for_each_lanes<Scalar>(0, width, [&](Index j, auto lanes) EVENKEEL_INLINE {
            const Lanes<Scalar> weight = scale_of<Norm>(numbers, affine, j, lanes);
            unrolled<R>([&](Index r) EVENKEEL_INLINE {
              const auto k = static_cast<std::size_t>(r);
              const Scalar *from = input[k] + start + j, *change = delta[k] + start + j;
              lanes.prefetch(from + x_ahead);
              lanes.prefetch(change + dy_ahead);
              const Lanes<Scalar> standard = measured.standardized(r, lanes.load(from));
              const Lanes<Scalar> g = lanes.load(change) * weight;
              if constexpr (Norm::centred)
                stores.store(lanes, output[k] + start + j,
                             g * measured.inverse(r) - scaled_mean_g[k] - standard * scaled_mean_gx[k]);
              else
                stores.store(lanes, output[k] + start + j, g * measured.inverse(r) - standard * scaled_mean_gx[k]);
            });
          });
        });
      });
}

/// Calls body with some consecutive rows of a chunk at a time: (first row, number of rows).
template <class Body>
void for_each_block(const RowChunks& chunks, Index chunk, Index rows, const Body& body) {
  for (Index first = chunks.first(chunk); first < chunks.end(chunk); first += rows)
    body(first, (std::min)(rows, chunks.end(chunk) - first));
}

/// The sums of dweight and dbias over the rows of a chunk: of each feature over some rows in Scalar, then in the wide type; of each
/// channel in the wide type.
template <typename Scalar>
class GradientSums {
 public:
  using Sum = Wide<Scalar>;
  static constexpr Index most_rows = 64;  ///< To be summed in Scalar, before add_up.
  static constexpr Index numbers(Index scales) { return 4 * scales; }

  GradientSums(Sum* scratch, Index chunk, Index scales)
      : scales_{scales},
        total_{scratch + chunk * numbers(scales)},
        partial_{reinterpret_cast<Scalar*>(total_ + 2 * scales)} {
    std::fill(total_, total_ + 2 * scales, Sum(0));
    std::fill(partial_, partial_ + 2 * scales, Scalar(0));
  }
  Scalar* weight() const { return partial_; }
  Scalar* bias() const { return partial_ + scales_; }
  Sum* weight_total() const { return total_; }
  Sum* bias_total() const { return total_ + scales_; }
  void add_up() const {
    for (Index j = 0; j < 2 * scales_; ++j) {
      total_[j] += static_cast<Sum>(partial_[j]);
      partial_[j] = Scalar(0);
    }
  }
  /// Adds up what the chunks have.
  static void finish(const Sum* scratch, Index chunks, Index scales, Accumulate accumulate, Scalar* dweight,
                     Scalar* dbias) {
    add_partial_sums(scratch, chunks, numbers(scales), scales, accumulate, dweight);
    add_partial_sums(scratch + scales, chunks, numbers(scales), scales, accumulate, dbias);
  }

 private:
  Index scales_;
  Sum* total_;
  Scalar* partial_;
};

}  // namespace detail

/// Numbers of scratch that row_norm_forward needs on so many threads: none where rows are contiguous, or few.
template <typename Stored>
constexpr Index packed_row_norm_forward_scratch(Index rows, Index columns, Index workers,
                                                RowLayout layout = RowLayout::apart) {
  const Index working = RowChunks(rows, columns).count > 1 ? workers : 1;
  return Packing(columns, rows, layout).room<Arithmetic<Stored>>(1, working);
}
template <typename Stored>
Index row_norm_forward_scratch(View<const Stored> x, View<const Stored> y, Index workers = most_workers()) {
  if (contiguous_rows(x, y)) return 0;
  return packed_row_norm_forward_scratch<Stored>(x.rows, x.columns, workers, row_layout(x, y));
}

/// y = x^ (offset + weight) + bias. Keeps what the backward pass needs of each row where `kept` is given. y may be x.
/// Stored: Norm::Scalar, or halves.
template <class Norm, class AnyAffine, typename Stored = typename Norm::Scalar>
void row_norm_forward(View<const Stored> x, AnyAffine affine, double epsilon, View<Stored> y, typename Norm::Kept* kept,
                      Wide<Stored>* scratch) {
  using Scalar = typename Norm::Scalar;
  const RowChunks chunks(x.rows, x.columns);
  const auto kept_from = [&](Index row) { return kept == nullptr ? nullptr : kept + row; };
  if constexpr (Real<Stored>)
    if (contiguous_rows(x, y))
      return parallel_for(chunks.count, x.size(), [&](Index chunk) {
        with_stores(y, [&](auto stores) {
          const Index first = chunks.first(chunk), count = chunks.end(chunk) - first;
          detail::forward_rows<Norm>(stores, is_near(x), x.middle_rows(first, count), affine, epsilon,
                                     y.middle_rows(first, count), kept_from(first));
        });
      });
  const Packing packing(x.columns, x.rows, row_layout(x, y));
  parallel_for(chunks.count, x.size(), [&](Index chunk, Index worker) {
    const PackedRows<Scalar> packed(packing, scratch, worker);
    detail::for_each_block(chunks, chunk, packing.rows, [&](Index first, Index count) {
      const View<Scalar> rows = packed(x.middle_rows(first, count));
      detail::forward_rows<Norm>(CachedStores{}, true, View<const Scalar>(rows), affine, epsilon, rows,
                                 kept_from(first));
      copy<Scalar, Stored>(rows, y.middle_rows(first, count));
    });
  });
}

/// Numbers of scratch that row_norm_backward needs, with so many scales to learn. (dx may be without data.)
template <typename Stored>
Index row_norm_backward_scratch(View<const Stored> x, View<const Stored> dy, View<const Stored> dx, Index scales,
                                Index workers = most_workers()) {
  const Index of_sums = RowChunks(x.rows, x.columns).count * detail::GradientSums<Arithmetic<Stored>>::numbers(scales);
  const RowLayout layout = dx.data == nullptr ? row_layout(x, dy) : row_layout(x, dy, dx);
  if (Real<Stored> && layout == RowLayout::together) return of_sums;
  return of_sums + Packing(x.columns, 64, layout).room<Arithmetic<Stored>>(2, workers);
}
template <typename Stored>
Index row_norm_backward_scratch(View<const Stored> x, View<const Stored> dy, View<const Stored> dx) {
  return row_norm_backward_scratch(x, dy, dx, x.columns);
}

/// The derivative of row_norm_forward. With g = dy (offset + weight),
///
///     dx      = (g - mean(g) - x^ mean(g x^)) * inverse      means over the row; without mean(g) where x^ is not centred
///     dweight = sum(dy x^)        dbias = sum(dy)            sums over the batch
///
/// dx without data is not computed; dweight and dbias may be null. dx may be x or dy. Stored: Norm::Scalar, or halves.
template <class Norm, class AnyAffine, typename Stored = typename Norm::Scalar>
void row_norm_backward(View<const Stored> x, View<const Stored> dy, AnyAffine affine, const typename Norm::Kept* kept,
                       View<Stored> dx, typename Norm::Scalar* dweight, typename Norm::Scalar* dbias,
                       Accumulate accumulate, Wide<Stored>* scratch) {
  using Scalar = typename Norm::Scalar;
  using Sums = detail::GradientSums<Scalar>;
  const Index scales = affine.size(x.columns);
  const RowChunks chunks(x.rows, x.columns);
  Wide<Scalar>* const room = scratch + chunks.count * Sums::numbers(scales);
  const View<Stored> result = dx.data == nullptr ? View<Stored>{nullptr, x.rows, x.columns, x.columns, 1} : dx;
  const Packing packing(x.columns, 64, row_layout(x, dy, result));
  const auto dx_rows = [&](Index first, Index count) { return dx.data == nullptr ? dx : dx.middle_rows(first, count); };

  parallel_for(chunks.count, x.size(), [&](Index chunk, Index worker) {
    const Sums sums(scratch, chunk, scales);
    const auto rows_backward = [&](auto stores, bool near, View<const Scalar> input, View<const Scalar> delta,
                                   Index first, View<Scalar> output) {
      if constexpr (AnyAffine::of_each_feature)
        detail::backward_rows<Norm>(stores, near, input, delta, affine, kept + first, output, sums.weight(),
                                    sums.bias());
      else
        detail::backward_rows<Norm>(stores, near, input, delta, affine, kept + first, output, sums.weight_total(),
                                    sums.bias_total());
    };
    if constexpr (Real<Stored>)
      if (contiguous_rows(x, dy, result))
        return with_stores(result, [&](auto stores) {
          detail::for_each_block(chunks, chunk, Sums::most_rows, [&](Index first, Index count) {
            rows_backward(stores, is_near(x), x.middle_rows(first, count), dy.middle_rows(first, count), first,
                          dx_rows(first, count));
            sums.add_up();
          });
        });
    const PackedRows<Scalar> input(packing, room, 2 * worker), delta(packing, room, 2 * worker + 1);
    detail::for_each_block(chunks, chunk, packing.rows, [&](Index first, Index count) {
      const View<Scalar> rows = input(x.middle_rows(first, count)), changes = delta(dy.middle_rows(first, count));
      rows_backward(CachedStores{}, true, rows, changes, first, dx.data == nullptr ? View<Scalar>{} : rows);
      if (dx.data != nullptr) copy<Scalar, Stored>(rows, dx.middle_rows(first, count));
      if ((first + count - chunks.first(chunk)) % Sums::most_rows == 0) sums.add_up();
    });
    sums.add_up();
  });

  Sums::finish(scratch, chunks.count, scales, accumulate, dweight, dbias);
}

}  // namespace evenkeel::kernels
