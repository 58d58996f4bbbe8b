#pragma once

#include <algorithm>    // min, fill_n
#include <cstddef>      // size_t
#include <type_traits>  // integral_constant

#include "evenkeel/core/parallel.hpp"     // parallel_for
#include "evenkeel/core/types.hpp"        // Index, Wide
#include "evenkeel/core/view.hpp"         // View
#include "evenkeel/kernels/lanes.hpp"     // unrolled, with_strides
#include "evenkeel/kernels/register.hpp"  // Register

/// Matrix products on views of any strides. c is worked on in tiles of some rows and one strip of columns, whose sums stay
/// in registers while rows of b stream by. Each element is the sum, in order, of sums of 128 terms in order, wherever it
/// stands and on whatever thread. What must be copied is copied to the stack: nothing allocates.
namespace evenkeel::kernels {

/// What a product does to c.
enum class Product { set, add };

namespace detail {

inline constexpr Index product_rows = 48;    // of c, for one thread at a time
inline constexpr Index product_depth = 128;  // of a strip of b, which then stays in the first cache
inline constexpr Index tile_registers = 12;  // sums that hide the time of each multiplication

/// The columns of a tile: `Count` registers of so many bytes.
template <typename Scalar, Index Bytes, Index Count>
struct Strip {
  using Part = Register<Scalar, Bytes>;
  static constexpr Index count = Count;
  static constexpr Index part = Bytes / static_cast<Index>(sizeof(Scalar));
  static constexpr Index width = Count * part;
  static constexpr Index rows = (std::min)(Index{8}, tile_registers / Count);
};

template <typename Scalar>
using WideStrip = Strip<Scalar, register_bytes, 2>;

/// Calls body(first, columns, strip) for strips of `columns` columns from `first` on. The last may be wider than its columns.
template <typename Scalar, class Body>
void for_each_strip(Index rows, Index columns, const Body& body) {
  using Widest = Strip<Scalar, register_bytes, 8>;
  using Wide = WideStrip<Scalar>;
  using Half = Strip<Scalar, register_bytes, 1>;
  using Narrow = Strip<Scalar, 16, 1>;
  Index j = 0;
  if (rows == 1)
    for (; j + Widest::width <= columns; j += Widest::width) body(j, Widest::width, Widest{});
  for (; j + Wide::width <= columns; j += Wide::width) body(j, Wide::width, Wide{});
  const Index rest = columns - j;
  if (rest == 0) return;
  if (rest > Half::width) return body(j, rest, Wide{});
  if (rest > Narrow::width) return body(j, rest, Half{});
  body(j, rest, Narrow{});
}

/// c = a b or c += a b for one tile. Rows of a and c are a_row and c_row apart, and so on.
template <Index Rows, class Strip, typename Scalar>
void multiply_tile(Index depth, const Scalar* a, Index a_row, Index a_column, const Scalar* b, Index b_row, Scalar* c,
                   Index c_row, Product product) {
  using Part = typename Strip::Part;
  constexpr auto rows = static_cast<std::size_t>(Rows), count = static_cast<std::size_t>(Strip::count);
  const auto each = [](const auto& body) EVENKEEL_INLINE {
    unrolled<rows>([&](Index i) EVENKEEL_INLINE { unrolled<count>([&](Index n) EVENKEEL_INLINE { body(i, n); }); });
  };
  Part sums[rows][count];
  each([&](Index i, Index n) EVENKEEL_INLINE { sums[i][n] = zeros<Part>(); });
  EVENKEEL_AS_WRITTEN for (Index k = 0; k < depth; ++k) {
    Part strip[count];
    unrolled<count>([&](Index n) EVENKEEL_INLINE { strip[n] = load<Part>(b + k * b_row + n * Strip::part); });
    each([&](Index i, Index n) EVENKEEL_INLINE { sums[i][n] = sums[i][n] + a[i * a_row + k * a_column] * strip[n]; });
  }
  if (product == Product::add)
    each([&](Index i, Index n)
             EVENKEEL_INLINE { sums[i][n] = sums[i][n] + load<Part>(c + i * c_row + n * Strip::part); });
  each([&](Index i, Index n) EVENKEEL_INLINE { store<Part>(c + i * c_row + n * Strip::part, sums[i][n]); });
}

/// The same for all rows of a block, as many at a time as fill the registers, and the rest by halves. Rows of b are b_row
/// apart and as wide as the strip.
template <class Strip, typename Scalar>
void multiply_strip(View<const Scalar> a, const Scalar* b, Index b_row, View<Scalar> c, Product product) {
  const bool direct = c.columns == Strip::width && c.column_stride == 1;
  Index i = 0;
  const auto tiles_of = [&](auto rows) {
    for (; i + rows <= c.rows; i += rows) {
      if (direct) {
        multiply_tile<rows, Strip>(a.columns, a.row(i), a.row_stride, a.column_stride, b, b_row, c.row(i), c.row_stride,
                                   product);
        continue;
      }
      Scalar room[static_cast<std::size_t>(rows * Strip::width)];
      multiply_tile<rows, Strip>(a.columns, a.row(i), a.row_stride, a.column_stride, b, b_row, room, Strip::width,
                                 Product::set);
      for (Index r = 0; r < rows; ++r)
        for (Index j = 0; j < c.columns; ++j) {
          const Scalar sum = room[r * Strip::width + j];
          c(i + r, j) = product == Product::add ? sum + c(i + r, j) : sum;
        }
    }
  };
  if constexpr (Strip::rows > 1) {
    tiles_of(std::integral_constant<Index, Strip::rows>{});
    tiles_of(std::integral_constant<Index, 4>{});
    tiles_of(std::integral_constant<Index, 2>{});
  }
  tiles_of(std::integral_constant<Index, 1>{});
}

/// Whether a square of 16 bytes a side can be transposed in registers.
template <typename Scalar>
inline constexpr bool transposes_squares =
#if defined(__GNUC__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define EVENKEEL_SHUFFLES
    sizeof(Scalar) == 4 || sizeof(Scalar) == 8;
#else
    false;
#endif
#else
    false;
#endif

/// to(j, i) = from(i, j) for such a square.
template <typename Scalar>
EVENKEEL_INLINE inline void transpose_square([[maybe_unused]] const Scalar* from, [[maybe_unused]] Index from_row,
                                             [[maybe_unused]] Scalar* to, [[maybe_unused]] Index to_row) {
#if defined(EVENKEEL_SHUFFLES)
  using R = Register<Scalar, 16>;
  const auto row = [&](Index i) EVENKEEL_INLINE { return load<R>(from + i * from_row); };
  if constexpr (sizeof(Scalar) == 8) {
    const R a = row(0), b = row(1);
    store<R>(to, __builtin_shufflevector(a, b, 0, 2));
    store<R>(to + to_row, __builtin_shufflevector(a, b, 1, 3));
  }
  if constexpr (sizeof(Scalar) == 4) {
    const R a = row(0), b = row(1), c = row(2), d = row(3);
    const R ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const R cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store<R>(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store<R>(to + to_row, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store<R>(to + 2 * to_row, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store<R>(to + 3 * to_row, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
#endif
}

/// Copies `count` numbers that lie together.
template <typename Scalar>
EVENKEEL_INLINE inline void copy_row(Index count, const Scalar* from, Scalar* to) {
  using R = Register<Scalar>;
  const Index whole = count - count % register_count<Scalar>;
  for (Index j = 0; j < whole; j += register_count<Scalar>) store<R>(to + j, load<R>(from + j));
  for (Index j = whole; j < count; ++j) to[j] = from[j];
}

/// Copies a strip of b to rows of `width` numbers, with zeros behind its own columns.
template <typename Scalar>
void pack_strip(View<const Scalar> b, Index width, Scalar* to) {
  if (b.column_stride == 1) {
    for (Index k = 0; k < b.rows; ++k) copy_row(b.columns, b.row(k), to + k * width);
  } else {
    constexpr Index side = 16 / static_cast<Index>(sizeof(Scalar));
    const bool squares = transposes_squares<Scalar> && b.row_stride == 1;
    const Index columns = squares ? b.columns - b.columns % side : 0;
    const Index rows = squares ? b.rows - b.rows % side : 0;
    for (Index j = 0; j < columns; j += side)
      for (Index k = 0; k < rows; k += side) transpose_square(&b(k, j), b.column_stride, to + k * width + j, width);
    const auto copy = [&](Index k, Index first) {
      for (Index j = first; j < b.columns; ++j) to[k * width + j] = b(k, j);
    };
    for (Index k = 0; k < rows && columns < b.columns; ++k) copy(k, columns);
    for (Index k = rows; k < b.rows; ++k) copy(k, 0);
  }
  for (Index k = 0; k < b.rows && b.columns < width; ++k)
    std::fill_n(to + k * width + b.columns, width - b.columns, Scalar(0));
}

/// c = a b or c += a b for some rows of a and c.
template <typename Scalar>
void multiply_rows(View<const Scalar> a, View<const Scalar> b, View<Scalar> c, Product product) {
  constexpr auto size = [](Index rows, Index columns) { return static_cast<std::size_t>(rows * columns); };
  alignas(64) Scalar a_room[size(product_depth, product_rows)];
  alignas(64) Scalar b_room[size(product_depth, Strip<Scalar, register_bytes, 8>::width)];
  const bool packs_a = a.column_stride != 1 && c.columns > 4 * WideStrip<Scalar>::width;
  for (Index k = 0; k < a.columns; k += product_depth) {
    const Index depth = (std::min)(product_depth, a.columns - k);
    View<const Scalar> left = a.middle_columns(k, depth);
    if (packs_a) {
      pack_strip(left.transposed(), c.rows, a_room);
      left = {a_room, c.rows, depth, 1, c.rows};
    }
    for_each_strip<Scalar>(c.rows, c.columns, [&]<class Strip>(Index j, Index columns, Strip) {
      const View<const Scalar> strip = b.middle_rows(k, depth).middle_columns(j, columns);
      const bool as_it_is = columns == Strip::width && strip.column_stride == 1 && c.rows <= 16;
      if (!as_it_is) pack_strip(strip, Strip::width, b_room);
      multiply_strip<Strip>(left, as_it_is ? strip.data : b_room, as_it_is ? strip.row_stride : Strip::width,
                            c.middle_columns(j, columns), k == 0 ? product : Product::add);
    });
  }
}

/// The sums of one row of c, where the terms of each lie together: in the lanes of a register.
template <typename Scalar>
void multiply_row(View<const Scalar> a, View<const Scalar> b, View<Scalar> c, Product product) {
  using R = Register<Scalar>;
  constexpr Index width = register_count<Scalar>;
  constexpr std::size_t together = 4;
  const Index depth = a.columns;
  const auto columns_of = [&]<std::size_t Count>(std::integral_constant<std::size_t, Count>, Index j) {
    R sums[Count];
    unrolled<Count>([&](Index n) EVENKEEL_INLINE { sums[n] = zeros<R>(); });
    Index k = 0;
    for (; k + width <= depth; k += width) {
      const R left = load<R>(a.data + k);
      unrolled<Count>([&](Index n) EVENKEEL_INLINE {
        const R right = load<R>(&b(k, j + n));
        sums[n] = sums[n] + left * right;
      });
    }
    for (Index n = 0; n < static_cast<Index>(Count); ++n) {
      Scalar sum = sum_of_lanes<Scalar>(sums[n]);
      for (Index rest = k; rest < depth; ++rest) sum += a.data[rest] * b(rest, j + n);
      c(0, j + n) = product == Product::add ? sum + c(0, j + n) : sum;
    }
  };
  Index j = 0;
  for (; j + static_cast<Index>(together) <= c.columns; j += static_cast<Index>(together))
    columns_of(std::integral_constant<std::size_t, together>{}, j);
  for (; j < c.columns; ++j) columns_of(std::integral_constant<std::size_t, 1>{}, j);
}

}  // namespace detail

/// Sets every element to zero, in the order of memory.
template <typename Scalar>
void set_zero(View<Scalar> y) {
  if (y.column_stride != 1 && y.row_stride == 1) y = y.transposed();
  if (y.column_stride == 1 && y.row_stride == y.columns) {
    std::fill_n(y.data, y.size(), Scalar(0));
    return;
  }
  with_strides(
      [&](auto stride) {
        for (Index i = 0; i < y.rows; ++i)
          for (Index j = 0; j < y.columns; ++j) y.row(i)[j * stride] = Scalar(0);
      },
      y.column_stride);
}

/// c = a b or c += a b. c must not overlap a or b.
template <typename Scalar>
void multiply(View<const Scalar> a, View<const Scalar> b, View<Scalar> c, Product product) {
  if (c.column_stride != 1 && c.row_stride == 1)
    return multiply(b.transposed(), a.transposed(), c.transposed(), product);
  if (a.columns == 0 && product == Product::set) return set_zero(c);
  if (c.rows == 1 && a.column_stride == 1 && b.row_stride == 1 && b.column_stride != 1)
    return detail::multiply_row(a, b, c, product);
  const Index blocks = (c.rows + detail::product_rows - 1) / detail::product_rows;
  parallel_for(blocks, c.size() * a.columns, [&](Index block) {
    const Index i = block * detail::product_rows;
    const Index rows = (std::min)(detail::product_rows, c.rows - i);
    detail::multiply_rows(a.middle_rows(i, rows), b, c.middle_rows(i, rows), product);
  });
}

/// c = a^T b or c += a^T b. c must not overlap a or b.
template <typename Scalar>
void multiply_transposed(View<const Scalar> a, View<const Scalar> b, View<Scalar> c, Product product) {
  multiply(a.transposed(), b, c, product);
}

/// Sets every row to the bias.
template <typename Scalar>
void fill_rows(View<Scalar> y, const Scalar* bias) {
  with_strides(
      [&](auto stride) {
        for (Index i = 0; i < y.rows; ++i)
          for (Index j = 0; j < y.columns; ++j) y.row(i)[j * stride] = bias[j];
      },
      y.column_stride);
}

/// sums[j] += the sum of column j.
template <typename Scalar>
void add_column_sums(View<const Scalar> x, Wide<Scalar>* sums) {
  with_strides(
      [&](auto stride) {
        for (Index i = 0; i < x.rows; ++i)
          for (Index j = 0; j < x.columns; ++j) sums[j] += static_cast<Wide<Scalar>>(x.row(i)[j * stride]);
      },
      x.column_stride);
}

/// sums[j] = the sum of column j.
template <typename Scalar>
void column_sums(View<const Scalar> x, Wide<Scalar>* sums) {
  std::fill_n(sums, x.columns, Wide<Scalar>(0));
  add_column_sums(x, sums);
}

}  // namespace evenkeel::kernels
