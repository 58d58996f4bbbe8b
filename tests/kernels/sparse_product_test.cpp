#include "evenkeel/kernels/sparse_product.hpp"

#include <Eigen/SparseCore>
#include <limits>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using kernels::Product;
using strided::Order;
using strided::Storage;

namespace {

/// A third of the numbers of a matrix, in every row but the second.
template <typename Scalar>
ek::Matrix<Scalar> thinned(Index rows, Index columns) {
  ek::Matrix<Scalar> x = values::random<Scalar>(rows, columns, 1);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      if ((i * columns + j) % 3 != 0 || i == 1) x(i, j) = 0;
  return x;
}

template <typename Scalar>
constexpr double tolerance = 50 * compare::epsilon<Scalar>;  // sums of a dozen terms of size up to 4

}  // namespace

TEMPLATE_TEST_CASE("Sparse products are those of the dense matrix, for any width and order", "[sparse_product]", float,
                   double, long double) {
  using Long = ek::Matrix<long double>;
  const ek::Matrix<TestType> dense = thinned<TestType>(9, 31);
  const Eigen::SparseMatrix<TestType, Eigen::RowMajor> by_rows = dense.sparseView();
  const Eigen::SparseMatrix<TestType, Eigen::ColMajor> by_columns = dense.sparseView();
  const auto rows = ek::sparse_view<TestType>(by_rows), columns = ek::sparse_view<TestType>(by_columns);
  for (const Index width : {1, 3, 4, 7, 8, 16, 31, 63, 64, 65, 127, 128, 130, 150})
    for (const Order b_order : strided::orders)
      for (const Order c_order : strided::orders)
        for (const Product product : {Product::set, Product::add}) {
          INFO(width << " " << static_cast<int>(b_order) << " " << static_cast<int>(c_order));
          const auto check = [&](Index inner, Index outer, const Long& left, const auto& multiply) {
            const auto b = values::random<TestType>(inner, width, 2), c = values::random<TestType>(outer, width, 3);
            Long expected = left * b.template cast<long double>();
            if (product == Product::add) expected += c.template cast<long double>();
            Storage<TestType> right(b, b_order);
            Storage<TestType> result(c, c_order), same(c, c_order);
            multiply(rows, right.fixed(), result.view());
            multiply(columns, right.fixed(), same.view());
            CHECK(compare::difference(result.matrix(), expected) <= tolerance<TestType>);
            CHECK(result.gaps_untouched());
            CHECK((result.matrix().array() == same.matrix().array()).all());
          };
          const Long left = dense.template cast<long double>();
          check(31, 9, left, [&](const auto& a, const auto& b, const auto& c) { kernels::multiply(a, b, c, product); });
          check(9, 31, left.transpose(),
                [&](const auto& a, const auto& b, const auto& c) { kernels::multiply_transposed(a, b, c, product); });
        }
}
