#include "evenkeel/kernels/contiguous.hpp"

#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using strided::Storage;

TEMPLATE_TEST_CASE("copy moves each number from every storage order to every other, and nothing else", "[contiguous]",
                   float, double, long double) {
  for (const Index rows : {0, 1, 7, 16, 37})
    for (const Index columns : {0, 1, 5, 16, 50}) {
      const auto x = values::random<TestType>(rows, columns, 1);
      for (const auto from : strided::orders)
        for (const auto to : strided::orders) {
          Storage<TestType> input(x, from), output(ek::Matrix<TestType>::Zero(rows, columns), to);
          kernels::copy(input.fixed(), output.view());
          INFO(rows << " x " << columns);
          CHECK(output.matrix() == x);
          CHECK(output.gaps_untouched());
        }
    }
}

TEST_CASE("Rows are packed on the stack, or in scratch where they are many numbers", "[contiguous]") {
  const kernels::Packing few(100), many(5000);
  CHECK(few.room<float>(2) == 0);
  CHECK(many.room<float>(2) >= 2 * many.rows * 5000 / 2);  // two floats in a double
  CHECK(many.room<double>(2) >= 2 * many.rows * 5000);
  CHECK(few.rows * 100 <= kernels::packed_on_stack);

  std::vector<double> scratch(static_cast<std::size_t>(many.room<float>(2)));
  const kernels::PackedRows<float> first(many, scratch.data(), 0), second(many, scratch.data(), 1);
  const auto x = values::random<float>(many.rows, 5000, 1), y = values::random<float>(many.rows, 5000, 2);
  Storage<float> x_by_columns(x, strided::Order::column_major), y_by_columns(y, strided::Order::column_major);
  const auto x_packed = first(x_by_columns.fixed()), y_packed = second(y_by_columns.fixed());
  CHECK(kernels::contiguous_rows(x_packed, y_packed));
  CHECK(ek::as_map(x_packed) == x);
  CHECK(ek::as_map(y_packed) == y);
  CHECK(static_cast<void*>(&y_packed(many.rows - 1, 4999)) < static_cast<void*>(scratch.data() + scratch.size()));
}
