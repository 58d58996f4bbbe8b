#include "evenkeel/kernels/alpha_dropout.hpp"

#include <cmath>    // sqrt
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
using reference::Number;
using strided::Order;
using strided::Storage;

TEST_CASE("Alpha dropout's rule keeps mean 0 and variance 1 to the last digits, for every threshold",
          "[alpha_dropout]") {
  for (std::uint32_t threshold = 1; threshold < 65536; threshold += threshold < 100 || threshold > 65400 ? 1 : 97) {
    const auto rule = kernels::alpha_rule<long double>(threshold);
    const Number p = static_cast<Number>(threshold) / 65536, q = 1 - p;
    const Number mean = q * rule.shift + p * rule.dropped;  // of an input of mean 0
    const Number square = q * (rule.scale * rule.scale + rule.shift * rule.shift) + p * rule.dropped * rule.dropped;
    INFO("threshold " << threshold);
    CHECK(std::abs(mean) < 1e-16L);
    CHECK(std::abs(square - 1) < 1e-16L);
    // What was dropped is SELU's limit, moved like all else.
    CHECK(std::abs((rule.dropped - rule.shift) / rule.scale + 1.758099340847376860L) < 1e-15L);
  }
}

TEST_CASE("At p = 1, where scale is infinite, alpha dropout's rule gives zeros", "[alpha_dropout]") {
  const auto rule = kernels::alpha_rule<double>(65536);
  CHECK(rule.scale == 0);
  CHECK(rule.shift == 0);
  CHECK(rule.dropped == 0);
}

TEMPLATE_TEST_CASE("Each element becomes what its mask says, of any shape, in every storage order", "[alpha_dropout]",
                   float, long double) {
  constexpr reference::Mask mask{0.375, 0x123456789ABCDEF0, 7, 0xDEADBEEF};
  constexpr kernels::MaskKey key{0x123456789ABCDEF0, 7, 0xDEADBEEF, 24576};
  const auto rule = kernels::alpha_rule<TestType>(key.threshold);
  for (const auto& [rows, columns] : {std::pair<Index, Index>{5, 1}, {70, 5}, {9, 40}, {3, 64}, {67, 65}, {2, 4100}}) {
    const auto x = values::random<TestType>(rows, columns, 1), dy = values::random<TestType>(rows, columns, 2);
    const auto expected = reference::alpha_dropout(reference::exact(x), mask);
    for (const Order in : strided::orders)
      for (const Order out : strided::orders) {
        INFO(rows << " x " << columns);
        Storage<TestType> input(x, in), y(x, out), slope(dy, in), dx(dy, out);
        std::vector<std::uint64_t> bits(static_cast<std::size_t>(kernels::mask_words(x.size())));
        kernels::alpha_dropout_forward(input.fixed(), key, rule, y.view(), bits.data());
        const ek::Matrix<TestType> kept = y.matrix();
        CHECK(compare::difference(kept, expected) <= 4 * compare::epsilon<TestType>);
        CHECK(y.gaps_untouched());
        kernels::alpha_dropout_forward(input.fixed(), key, rule, y.view(), nullptr);  // the mask need not be kept
        CHECK(y.matrix() == kept);
        kernels::dropout_backward(slope.fixed(), bits.data(), rule.scale, dx.view());
        const ek::Matrix<TestType> gradient = dx.matrix();
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < columns; ++j)
            if (gradient(i, j) != (mask.kept(i, j) ? dy(i, j) * rule.scale : 0)) FAIL(i << ", " << j);
      }
  }
}
