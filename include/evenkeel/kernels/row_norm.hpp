#pragma once

#include <algorithm>  // fill
#include <array>
#include <cstddef>  // size_t

#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/parameter.hpp"   // Accumulate
#include "evenkeel/core/types.hpp"       // Index, Wide
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/lanes.hpp"    // Lanes, row_sums
#include "evenkeel/kernels/moments.hpp"  // row_moments, row_inverse_rms

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

    explicit Rows(const MomentsOfRows<Scalar, R>& of_rows)
        : moments{of_rows}, shift{-of_rows.mean_residual * of_rows.inverse_deviation} {}
    explicit Rows(const Kept* kept, Index rows = static_cast<Index>(R)) : Rows(gathered(kept, rows)) {}
    void keep(Kept* kept, Index rows = static_cast<Index>(R)) const {
      for (Index r = 0; r < rows; ++r) kept[r] = moments.get(static_cast<std::size_t>(r));
    }
    Scalar middle(Index r) const { return moments.mean[r]; }
    Scalar inverse(Index r) const { return moments.inverse_deviation[r]; }
    template <class Values>
    EVENKEEL_INLINE Lanes<Scalar> standardized(Index r, const Values& x) const {
      return (x - middle(r)) * inverse(r) + shift[r];
    }
    /// Of number j of all R rows, R being the number of lanes.
    template <class Values>
    EVENKEEL_INLINE Lanes<Scalar> standardized(const Values& x) const {
      return (x - moments.mean) * moments.inverse_deviation + shift;
    }
    const PerRow<Scalar, R>& inverses() const { return moments.inverse_deviation; }

   private:
    static MomentsOfRows<Scalar, R> gathered(const Kept* kept, Index rows) {
      MomentsOfRows<Scalar, R> moments;
      for (Index r = 0; r < static_cast<Index>(R); ++r)
        moments.set(static_cast<std::size_t>(r), r < rows ? kept[r] : Kept{});
      return moments;
    }
  };

  template <std::size_t R, class Stride>
  EVENKEEL_INLINE static Rows<R> measured(const std::array<const Scalar*, R>& x, Index columns, Stride stride,
                                          double epsilon) {
    return Rows<R>(row_moments(x, columns, stride, epsilon));
  }
  template <class AnyLanes>
  EVENKEEL_INLINE static auto measured_side_by_side(const Scalar* x, Index columns, Index stride, AnyLanes lanes,
                                                    double epsilon) {
    return Rows<static_cast<std::size_t>(lane_count<Scalar>)>(moments_side_by_side(x, columns, stride, lanes, epsilon));
  }
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

    explicit Rows(const PerRow<Scalar, R>& of_rows) : inverse_rms{of_rows} {}
    explicit Rows(const Kept* kept, Index rows = static_cast<Index>(R)) {
      for (Index r = 0; r < static_cast<Index>(R); ++r) inverse_rms[r] = r < rows ? kept[r] : Scalar(0);
    }
    void keep(Kept* kept, Index rows = static_cast<Index>(R)) const {
      for (Index r = 0; r < rows; ++r) kept[r] = inverse_rms[r];
    }
    Scalar middle(Index) const { return Scalar(0); }
    Scalar inverse(Index r) const { return inverse_rms[r]; }
    template <class Values>
    EVENKEEL_INLINE Lanes<Scalar> standardized(Index r, const Values& x) const {
      return x * inverse(r);
    }
    template <class Values>
    EVENKEEL_INLINE Lanes<Scalar> standardized(const Values& x) const {
      return x * inverse_rms;
    }
    const PerRow<Scalar, R>& inverses() const { return inverse_rms; }
  };

  template <std::size_t R, class Stride>
  EVENKEEL_INLINE static Rows<R> measured(const std::array<const Scalar*, R>& x, Index columns, Stride stride,
                                          double epsilon) {
    return Rows<R>(row_inverse_rms(x, columns, stride, epsilon));
  }
  template <class AnyLanes>
  EVENKEEL_INLINE static auto measured_side_by_side(const Scalar* x, Index columns, Index stride, AnyLanes lanes,
                                                    double epsilon) {
    return Rows<static_cast<std::size_t>(lane_count<Scalar>)>(
        inverse_rms_side_by_side(x, columns, stride, lanes, epsilon));
  }
};

/// The learned scale and shift of each feature. A norm that is centred has a shift and no offset, the other an offset and no shift.
template <typename Scalar>
struct Affine {
  const Scalar* weight;
  const Scalar* bias;
  Scalar offset = Scalar(0);  ///< Added to the weight.

  template <bool Centred, class AnyLanes>
  EVENKEEL_INLINE Lanes<Scalar> scale(Index j, AnyLanes lanes) const {
    if constexpr (Centred)
      return lanes.load(weight + j, UnitStride{});
    else
      return lanes.load(weight + j, UnitStride{}) + offset;
  }
};

namespace detail {

/// Whether rows lie side by side in all views: matrices stored by columns.
template <class... Views>
bool side_by_side(const Views&... views) {
  return ((views.row_stride == 1) && ...) && ((views.column_stride != 1) || ...);
}

/// Asks for rows side by side, all their numbers.
template <typename Scalar>
void prefetch_side_by_side(const Scalar* x, Index columns, Index stride) {
  for (Index j = 0; j < columns; ++j) prefetch(x + j * stride, UnitStride{});
}

/// As many rows side by side as there are lanes, added up in the same order as row by row. (The same bits, but where the
/// compiler fuses multiplications with additions.)
template <class Norm, class AnyLanes, typename Scalar = typename Norm::Scalar>
void forward_side_by_side(AnyLanes lanes, View<const Scalar> x, Affine<Scalar> affine, double epsilon, View<Scalar> y,
                          typename Norm::Kept* kept) {
  prefetch_side_by_side(x.data, x.columns, x.column_stride);
  const auto measured = Norm::measured_side_by_side(x.data, x.columns, x.column_stride, lanes, epsilon);
  for (Index j = 0; j < x.columns; ++j) {
    const Scalar weight = Norm::centred ? affine.weight[j] : affine.weight[j] + affine.offset;
    const Lanes<Scalar> standard = measured.standardized(lanes.load(x.data + j * x.column_stride, UnitStride{}));
    Scalar* to = y.data + j * y.column_stride;
    if constexpr (Norm::centred)
      lanes.store(to, UnitStride{}, standard * weight + affine.bias[j]);
    else
      lanes.store(to, UnitStride{}, standard * weight);
  }
  if (kept != nullptr) measured.keep(kept, lanes.template count_of<Scalar>());
}

/// The derivative of the same rows. Adds to `to_weight` and `to_bias`.
template <class Norm, class AnyLanes, typename Scalar = typename Norm::Scalar>
void backward_side_by_side(AnyLanes lanes, View<const Scalar> x, View<const Scalar> dy, Affine<Scalar> affine,
                           const typename Norm::Kept* kept, View<Scalar> dx, Wide<Scalar>* to_weight,
                           Wide<Scalar>* to_bias) {
  using Sum = Wide<Scalar>;
  constexpr auto rows = static_cast<std::size_t>(lane_count<Scalar>);
  prefetch_side_by_side(x.data, x.columns, x.column_stride);
  prefetch_side_by_side(dy.data, dy.columns, dy.column_stride);
  const typename Norm::template Rows<rows> measured(kept, lanes.template count_of<Scalar>());
  const auto weight_of = [&](Index j) { return Norm::centred ? affine.weight[j] : affine.weight[j] + affine.offset; };
  const auto standard_at = [&](Index j) EVENKEEL_INLINE {
    return measured.standardized(lanes.load(x.data + j * x.column_stride, UnitStride{}));
  };
  const auto delta_at = [&](Index j)
                            EVENKEEL_INLINE { return lanes.load(dy.data + j * dy.column_stride, UnitStride{}); };
  const auto [sum_g, sum_gx] = sums_side_by_side<Scalar, 2>(x.columns, [&](Index j, auto& sums) EVENKEEL_INLINE {
    const Lanes<Scalar> d = delta_at(j);
    const Lanes<Scalar> dx_standard = d * standard_at(j);
    to_weight[j] += static_cast<Sum>(sum_of(dx_standard));
    sums[1] += dx_standard * weight_of(j);
    if constexpr (Norm::centred) {
      to_bias[j] += static_cast<Sum>(sum_of(d));
      sums[0] += d * weight_of(j);
    }
  });
  if (dx.data == nullptr) return;
  const PerRow<Sum, rows> each = measured.inverses().template cast<Sum>() / static_cast<Sum>(x.columns);
  const Lanes<Scalar> scaled_mean_g = (sum_g * each).template cast<Scalar>();
  const Lanes<Scalar> scaled_mean_gx = (sum_gx * each).template cast<Scalar>();
  for (Index j = 0; j < x.columns; ++j) {
    const Lanes<Scalar> standard = standard_at(j);
    const Lanes<Scalar> g = delta_at(j) * weight_of(j);
    Scalar* to = dx.data + j * dx.column_stride;
    if constexpr (Norm::centred)
      lanes.store(to, UnitStride{}, g * measured.inverses() - scaled_mean_g - standard * scaled_mean_gx);
    else
      lanes.store(to, UnitStride{}, g * measured.inverses() - standard * scaled_mean_gx);
  }
}

}  // namespace detail

/// y = x^ (offset + weight) + bias. Keeps what the backward pass needs of each row where `kept` is given. y may be x.
template <class Norm, typename Scalar = typename Norm::Scalar>
void row_norm_forward(View<const Scalar> x, Affine<Scalar> affine, double epsilon, View<Scalar> y,
                      typename Norm::Kept* kept) {
  const bool side_by_side = detail::side_by_side(x, y);
  const RowChunks chunks(x.rows, x.columns, side_by_side ? lane_count<Scalar> : 1);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    if (side_by_side)
      return for_each_lanes<Scalar>(chunks.first(chunk), chunks.end(chunk), [&](Index first, auto lanes) {
        const Index count = lanes.template count_of<Scalar>();
        detail::forward_side_by_side<Norm>(lanes, x.middle_rows(first, count), affine, epsilon,
                                           y.middle_rows(first, count), kept == nullptr ? nullptr : kept + first);
      });
    with_row_access(
        y,
        [&](auto stores, auto y_stride, auto x_stride) {
          for_each_rows<Scalar>(
              stores, x_stride, chunks.first(chunk), chunks.end(chunk), x.columns, [&](Index first, auto count) {
                constexpr std::size_t rows = decltype(count)::value;
                const auto input = rows_from<rows>(x, first);
                const auto output = rows_from<rows>(y, first);
                const auto measured = Norm::measured(input, x.columns, x_stride, epsilon);
                const Index ahead = static_cast<Index>(rows) * x.row_stride;

                for_each_lanes<Scalar>(0, x.columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
                  const Lanes<Scalar> weight = affine.template scale<Norm::centred>(j, lanes);
                  Lanes<Scalar> bias;
                  if constexpr (Norm::centred) bias = lanes.load(affine.bias + j, UnitStride{});
                  unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                    const Scalar* from = input[static_cast<std::size_t>(r)] + j * x_stride;
                    Scalar* to = output[static_cast<std::size_t>(r)] + j * y_stride;
                    prefetch(from + ahead, x_stride);
                    const Lanes<Scalar> standard = measured.standardized(r, lanes.load(from, x_stride));
                    if constexpr (Norm::centred)
                      stores.store(lanes, to, y_stride, standard * weight + bias);
                    else
                      stores.store(lanes, to, y_stride, standard * weight);
                  });
                });
                if (kept != nullptr) measured.keep(kept + first);
              });
          stores.finish();
        },
        x);
  });
}

/// Numbers of scratch that row_norm_backward needs.
inline Index row_norm_scratch(Index rows, Index columns) { return RowChunks(rows, columns).count * 4 * columns; }

/// The derivative of row_norm_forward. With g = dy (offset + weight),
///
///     dx      = (g - mean(g) - x^ mean(g x^)) * inverse      means over the row; without mean(g) where x^ is not centred
///     dweight = sum(dy x^)        dbias = sum(dy)            sums over the batch
///
/// dx without data is not computed; dweight and dbias may be null. dx may be x or dy.
template <class Norm, typename Scalar = typename Norm::Scalar>
void row_norm_backward(View<const Scalar> x, View<const Scalar> dy, Affine<Scalar> affine,
                       const typename Norm::Kept* kept, View<Scalar> dx, Scalar* dweight, Scalar* dbias,
                       Accumulate accumulate, Wide<Scalar>* scratch) {
  using Sum = Wide<Scalar>;
  constexpr Index rows_a_sum = 64;  // in Scalar, before they are added up in the wide type
  const Index columns = x.columns;
  const bool side_by_side = detail::side_by_side(x, dy) && (dx.data == nullptr || detail::side_by_side(x, dx));
  const RowChunks chunks(x.rows, columns, side_by_side ? lane_count<Scalar> : 1);

  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    Sum* total = scratch + chunk * 4 * columns;                        // dweight and dbias of the chunk
    Scalar* partial = reinterpret_cast<Scalar*>(total + 2 * columns);  // of some rows
    std::fill(total, total + 2 * columns, Sum(0));
    std::fill(partial, partial + 2 * columns, Scalar(0));
    Scalar *const weight_sum = partial, *const bias_sum = partial + columns;
    if (side_by_side)
      return for_each_lanes<Scalar>(chunks.first(chunk), chunks.end(chunk), [&](Index first, auto lanes) {
        const Index count = lanes.template count_of<Scalar>();
        detail::backward_side_by_side<Norm>(
            lanes, x.middle_rows(first, count), dy.middle_rows(first, count), affine, kept + first,
            dx.data == nullptr ? View<Scalar>{} : dx.middle_rows(first, count), total, total + columns);
      });

    with_row_access(
        dx.data == nullptr ? View<Scalar>{nullptr, x.rows, columns, columns, 1} : dx,
        [&](auto stores, auto dx_stride, auto x_stride, auto dy_stride) {
          for (Index part = chunks.first(chunk); part < chunks.end(chunk); part += rows_a_sum) {
            const Index part_end = (std::min)(part + rows_a_sum, chunks.end(chunk));
            for_each_rows<Scalar>(stores, x_stride, part, part_end, 2 * columns, [&](Index first, auto count) {
              constexpr std::size_t rows = decltype(count)::value;
              const auto input = rows_from<rows>(x, first);
              const auto delta = rows_from<rows>(dy, first);
              const typename Norm::template Rows<rows> measured(kept + first);
              const Index x_ahead = static_cast<Index>(rows) * x.row_stride;
              const Index dy_ahead = static_cast<Index>(rows) * dy.row_stride;

              constexpr Index piece = lanes_a_piece * lane_count<Scalar>;
              PerRow<Sum, rows> sum_g = PerRow<Sum, rows>::Zero(), sum_gx = sum_g;
              for (Index j0 = 0; j0 < columns; j0 += piece) {
                Lanes<Scalar> g_sum[rows], gx_sum[rows];
                unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                  g_sum[r].setZero();
                  gx_sum[r].setZero();
                });
                for_each_lanes<Scalar>(j0, (std::min)(columns, j0 + piece), [&](Index j, auto lanes) EVENKEEL_INLINE {
                  const Lanes<Scalar> weight = affine.template scale<Norm::centred>(j, lanes);
                  Lanes<Scalar> to_weight = lanes.load(weight_sum + j, UnitStride{}), to_bias;
                  if constexpr (Norm::centred) to_bias = lanes.load(bias_sum + j, UnitStride{});
                  unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                    const auto k = static_cast<std::size_t>(r);
                    const Scalar* from = input[k] + j * x_stride;
                    const Lanes<Scalar> d = lanes.load(delta[k] + j * dy_stride, dy_stride);
                    const Lanes<Scalar> dx_standard =
                        d * measured.standardized(r, lanes.load(from, x_stride, measured.middle(r)));
                    to_weight += dx_standard;
                    gx_sum[r] += dx_standard * weight;
                    if constexpr (Norm::centred) {
                      to_bias += d;
                      g_sum[r] += d * weight;
                    }
                  });
                  lanes.store(weight_sum + j, UnitStride{}, to_weight);
                  if constexpr (Norm::centred) lanes.store(bias_sum + j, UnitStride{}, to_bias);
                });
                unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                  if constexpr (Norm::centred) sum_g[r] += static_cast<Sum>(sum_of(g_sum[r]));
                  sum_gx[r] += static_cast<Sum>(sum_of(gx_sum[r]));
                });
              }
              if (dx.data == nullptr) return;

              const auto output = rows_from<rows>(dx, first);
              std::array<Scalar, rows> scaled_mean_g, scaled_mean_gx;
              unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                const auto k = static_cast<std::size_t>(r);
                const Sum each = static_cast<Sum>(measured.inverse(r)) / static_cast<Sum>(columns);
                scaled_mean_g[k] = static_cast<Scalar>(sum_g[r] * each);
                scaled_mean_gx[k] = static_cast<Scalar>(sum_gx[r] * each);
              });
              for_each_lanes<Scalar>(0, columns, [&](Index j, auto lanes) EVENKEEL_INLINE {
                const Lanes<Scalar> weight = affine.template scale<Norm::centred>(j, lanes);
                unrolled<rows>([&](Index r) EVENKEEL_INLINE {
                  const auto k = static_cast<std::size_t>(r);
                  const Scalar* from = input[k] + j * x_stride;
                  const Scalar* delta_from = delta[k] + j * dy_stride;
                  prefetch(from + x_ahead, x_stride);
                  prefetch(delta_from + dy_ahead, dy_stride);
                  const Lanes<Scalar> standard = measured.standardized(r, lanes.load(from, x_stride));
                  const Lanes<Scalar> g = lanes.load(delta_from, dy_stride) * weight;
                  Scalar* to = output[k] + j * dx_stride;
                  if constexpr (Norm::centred)
                    stores.store(lanes, to, dx_stride,
                                 g * measured.inverse(r) - scaled_mean_g[k] - standard * scaled_mean_gx[k]);
                  else
                    stores.store(lanes, to, dx_stride, g * measured.inverse(r) - standard * scaled_mean_gx[k]);
                });
              });
            });
            for (Index j = 0; j < 2 * columns; ++j) {
              total[j] += static_cast<Sum>(partial[j]);
              partial[j] = Scalar(0);
            }
          }
          stores.finish();
        },
        x, dy);
  });

  add_partial_sums(scratch, chunks.count, 4 * columns, columns, accumulate, dweight);
  add_partial_sums(scratch + columns, chunks.count, 4 * columns, columns, accumulate, dbias);
}

}  // namespace evenkeel::kernels
