#include "evenkeel/kernels/spatial_dropout.hpp"

#include <limits>

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

TEST_CASE("The factor of a channel is dropout's mask times its scale", "[spatial_dropout]") {
  constexpr reference::Mask mask{0.375, 5, 7, 9};
  ek::Matrix<float> factors(70, 21);
  kernels::draw_channel_factors<float>({5, 7, 9, 24576}, 1.6f, {factors.data(), 70, 21, 21, 1});
  for (Index i = 0; i < 70; ++i)
    for (Index c = 0; c < 21; ++c)
      if (factors(i, c) != (mask.kept(i, c) ? 1.6f : 0.0f)) FAIL(i << ", " << c);
}

TEST_CASE("Every position of a channel is multiplied by the channel's factor, in every storage order",
          "[spatial_dropout]") {
  for (const Index positions : {1, 2, 7, 64})
    for (const Index channels : {1, 3}) {
      ek::Matrix<float> factors = values::random<float>(6, channels, 3);
      factors(2, channels - 1) = 0;
      factors(4, 0) = 0;
      ek::Matrix<float> x = values::random<float>(6, channels * positions, 1);
      x(2, channels * positions - 1) = std::numeric_limits<float>::quiet_NaN();
      ek::Matrix<float> expected(x.rows(), x.cols());
      for (Index i = 0; i < x.rows(); ++i)
        for (Index j = 0; j < x.cols(); ++j)
          expected(i, j) = factors(i, j / positions) == 0 ? 0.0f : factors(i, j / positions) * x(i, j);
      for (const Order in : strided::orders)
        for (const Order out : strided::orders) {
          INFO(channels << " channels x " << positions << " positions");
          Storage<float> input(x, in), y(x, out);
          const ek::View<const float> fixed{factors.data(), 6, channels, channels, 1};
          kernels::spatial_dropout<float>(input.fixed(), fixed, positions, y.view());
          CHECK(compare::same_bits(y.matrix(), expected));
          CHECK(y.gaps_untouched());
          kernels::spatial_dropout<float>(input.fixed(), fixed, positions, input.view());
          CHECK(compare::same_bits(input.matrix(), expected));
        }
    }
}
