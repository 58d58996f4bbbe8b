#include "evenkeel/kernels/dropout.hpp"

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using strided::Order;
using strided::Storage;

namespace {

constexpr reference::Mask mask{0.375, 0x123456789ABCDEF0, 7, 0xDEADBEEF};
constexpr kernels::MaskKey key{0x123456789ABCDEF0, 7, 0xDEADBEEF, 24576};
constexpr float scale = 1.6f;

ek::Matrix<float> expected_of(const ek::Matrix<float>& x) {
  ek::Matrix<float> y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) y(i, j) = mask.kept(i, j) ? x(i, j) * scale : 0.0f;
  return y;
}

}  // namespace

TEST_CASE("The mask is its definition's for every width, in every storage order", "[dropout]") {
  for (Index columns = 1; columns <= 70; ++columns) {
    const auto x = values::random<float>(5, columns, static_cast<std::uint32_t>(columns));
    const auto expected = expected_of(x);
    for (const Order in : strided::orders)
      for (const Order out : strided::orders) {
        INFO(columns << " columns");
        Storage<float> input(x, in), y(x, out);
        kernels::dropout(input.fixed(), key, scale, y.view());
        CHECK(compare::same_bits(y.matrix(), expected));
        CHECK(y.gaps_untouched());
      }
  }
}

TEST_CASE("The mask is its definition's in many rows, which are several chunks", "[dropout]") {
  const auto x = values::random<float>(5001, 21, 1);
  for (const Order order : strided::orders) {
    Storage<float> y(x, order);
    kernels::dropout(y.fixed(), key, scale, y.view());
    CHECK(compare::same_bits(y.matrix(), expected_of(x)));
  }
}

TEST_CASE("Halves are taken low before high from the words of a block", "[dropout]") {
  constexpr auto lanes = static_cast<std::size_t>(kernels::detail::mask_lanes);
  kernels::detail::MaskPlaces places;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    places.block[lane] = 3 * lane;
    places.row[lane] = 0xFFFFFFFF - lane;
  }
  kernels::detail::MaskWords words;
  kernels::detail::mask_words(key, places, words);
  std::uint16_t along_rows[lanes * 8], along_columns[8][lanes];
  kernels::detail::halves_along_rows(words, along_rows);
  kernels::detail::halves_along_columns(words, along_columns);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const auto block = ek::philox({static_cast<std::uint32_t>(places.block[lane]),
                                   static_cast<std::uint32_t>(places.row[lane]), key.call, key.stream},
                                  key.seed);
    for (std::size_t k = 0; k < 8; ++k) {
      const std::uint32_t half = k % 2 == 0 ? block[k / 2] % 65536 : block[k / 2] / 65536;
      CHECK(along_rows[8 * lane + k] == half);
      CHECK(along_columns[k][lane] == half);
    }
  }
}

TEST_CASE("A threshold of 0 keeps and one of 65536 drops everything", "[dropout]") {
  const auto x = values::random<float>(20, 30, 1);
  Storage<float> y(x, Order::row_major);
  kernels::dropout(y.fixed(), {1, 2, 3, 0}, 1.0f, y.view());
  CHECK(compare::same_bits(y.matrix(), x));
  kernels::dropout(y.fixed(), {1, 2, 3, 65536}, 1.0f, y.view());
  CHECK(compare::same_bits(y.matrix(), ek::Matrix<float>::Zero(20, 30)));
}
