#include "evenkeel/kernels/dropout.hpp"

#include <cstddef>  // size_t
#include <cstdint>  // uint32_t, uint64_t
#include <vector>

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
        kernels::dropout_forward(input.fixed(), key, scale, y.view(), nullptr);
        CHECK(compare::same_bits(y.matrix(), expected));
        CHECK(y.gaps_untouched());
      }
  }
}

TEST_CASE("The mask is its definition's in many rows, which are several chunks", "[dropout]") {
  const auto x = values::random<float>(5001, 21, 1);
  for (const Order order : strided::orders) {
    Storage<float> y(x, order);
    kernels::dropout_forward(y.fixed(), key, scale, y.view(), nullptr);
    CHECK(compare::same_bits(y.matrix(), expected_of(x)));
  }
}

// The widths: parts of the 64 elements that are drawn at a time, rows that are drawn together with others, several of the
// pieces that wide rows are cut into. The numbers of rows likewise, for matrices stored by columns.
TEMPLATE_TEST_CASE("Backward applies the mask of forward, of any shape, in every storage order", "[dropout]", float,
                   double, long double) {
  const auto number = static_cast<TestType>(scale);
  for (const Index rows : {1, 3, 8, 63, 64, 70, 129})
    for (const Index columns : {1, 2, 7, 8, 9, 16, 24, 25, 32, 33, 40, 63, 64, 65, 100, 391, 2048, 4160, 5001}) {
      if (rows * columns > 20000) continue;  // more of the same
      const auto x = values::random<TestType>(rows, columns, 1), dy = values::random<TestType>(rows, columns, 2);
      ek::Matrix<TestType> expected_y(rows, columns), expected_dx(rows, columns);
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j) {
          const bool kept = mask.kept(i, j);
          expected_y(i, j) = kept ? x(i, j) * number : 0;
          expected_dx(i, j) = kept ? dy(i, j) * number : 0;
        }
      for (const Order in : strided::orders)
        for (const Order out : strided::orders) {
          INFO(rows << " x " << columns);
          Storage<TestType> input(x, in), y(x, out), slope(dy, in), dx(dy, out);
          const std::uint64_t untouched = 0x5555AAAA77771111;
          const auto words = static_cast<std::size_t>(kernels::mask_words(rows * columns));
          std::vector<std::uint64_t> bits(words + 1, untouched);
          kernels::dropout_forward(input.fixed(), key, number, y.view(), bits.data());
          CHECK(y.matrix() == expected_y);
          CHECK(y.gaps_untouched());
          CHECK(bits.back() == untouched);
          kernels::dropout_backward(slope.fixed(), bits.data(), number, dx.view());
          CHECK(dx.matrix() == expected_dx);
          CHECK(dx.gaps_untouched());
          if (in != out) continue;
          Storage<TestType> both(x, in);
          kernels::dropout_forward(both.fixed(), key, number, both.view(), nullptr);
          CHECK(both.matrix() == expected_y);
          Storage<TestType> gradient(dy, in);
          kernels::dropout_backward(gradient.fixed(), bits.data(), number, gradient.view());
          CHECK(gradient.matrix() == expected_dx);
        }
    }
}

TEST_CASE("Backward applies the mask of forward in many rows, which are several chunks", "[dropout]") {
  for (const Index columns : {21, 70}) {
    const auto x = values::random<float>(5001, columns, 1);
    for (const Order order : strided::orders) {
      INFO(columns << " columns");
      Storage<float> y(x, order), dx(x, order);
      std::vector<std::uint64_t> bits(static_cast<std::size_t>(kernels::mask_words(x.size())));
      kernels::dropout_forward(y.fixed(), key, scale, y.view(), bits.data());
      kernels::dropout_backward(dx.fixed(), bits.data(), scale, dx.view());
      CHECK(compare::same_bits(y.matrix(), expected_of(x)));
      CHECK(compare::same_bits(dx.matrix(), expected_of(x)));
    }
  }
}

TEST_CASE("A result that is written past the caches is the same", "[dropout]") {
  const auto x = values::random<float>(1030, 4100, 1);
  ek::Matrix<float> y(x.rows(), x.cols()), dx(x.rows(), x.cols());
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(kernels::mask_words(x.size())));
  using Input = ek::View<const float>;
  const Input input{x.data(), x.rows(), x.cols(), x.cols(), 1};
  kernels::dropout_forward(input, key, scale, {y.data(), x.rows(), x.cols(), x.cols(), 1}, bits.data());
  kernels::dropout_backward(input, bits.data(), scale, {dx.data(), x.rows(), x.cols(), x.cols(), 1});
  const auto expected = expected_of(x);
  CHECK(compare::same_bits(y, expected));
  CHECK(compare::same_bits(dx, expected));
}

TEST_CASE("A mask is kept in one bit an element, but for a few words", "[dropout]") {
  for (const Index elements : {0, 1, 64, 1000, 1000000}) CHECK(kernels::mask_words(elements) <= elements / 64 + 17);
}

TEST_CASE("Thresholds are exact at both ends of their range and at its middle", "[dropout]") {
  const auto x = values::random<float>(40, 1000, 1);
  for (const std::uint32_t threshold : {1u, 2u, 255u, 32767u, 32768u, 32769u, 65534u, 65535u}) {
    INFO("threshold " << threshold);
    const reference::Mask exact{threshold / 65536.0, key.seed, key.call, key.stream};
    ek::Matrix<float> expected(x.rows(), x.cols());
    for (Index i = 0; i < x.rows(); ++i)
      for (Index j = 0; j < x.cols(); ++j) expected(i, j) = exact.kept(i, j) ? x(i, j) : 0.0f;
    for (const Order order : strided::orders) {
      Storage<float> y(x, order);
      kernels::dropout_forward(y.fixed(), {key.seed, key.call, key.stream, threshold}, 1.0f, y.view(), nullptr);
      CHECK(compare::same_bits(y.matrix(), expected));
    }
  }
}

TEST_CASE("Every word of seed, call and stream counts, and counters wrap at 32 bits as Philox has it", "[dropout]") {
  for (const std::uint64_t seed :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{0xFFFFFFFF}})
    for (const std::uint32_t call : {0u, 1u, 0xFFFFFFFEu})
      for (const std::uint32_t stream : {0u, 0xFFFFFFFFu}) {
        const reference::Mask exact{0.375, seed, call, stream};
        Storage<float> y(ek::Matrix<float>::Ones(9, 130), Order::row_major);
        kernels::dropout_forward(y.fixed(), {seed, call, stream, 24576}, 1.0f, y.view(), nullptr);
        const auto kept = y.matrix();
        Index wrong = 0;
        for (Index i = 0; i < 9; ++i)
          for (Index j = 0; j < 130; ++j) wrong += (kept(i, j) == 1) != exact.kept(i, j);
        CHECK(wrong == 0);
      }
}

TEST_CASE("A threshold of 0 keeps and one of 65536 drops everything", "[dropout]") {
  const auto x = values::random<float>(20, 30, 1);
  Storage<float> y(x, Order::row_major);
  kernels::dropout_forward(y.fixed(), {1, 2, 3, 0}, 1.0f, y.view(), nullptr);
  CHECK(compare::same_bits(y.matrix(), x));
  kernels::dropout_forward(y.fixed(), {1, 2, 3, 65536}, 1.0f, y.view(), nullptr);
  CHECK(compare::same_bits(y.matrix(), ek::Matrix<float>::Zero(20, 30)));
}
