#include "evenkeel/kernels/product.hpp"

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using strided::Order;
using strided::Storage;

namespace {

using Long = ek::Matrix<long double>;

/// c + a b by plain loops.
template <typename Scalar>
Long expected_of(const ek::Matrix<Scalar>& a, const ek::Matrix<Scalar>& b, const ek::Matrix<Scalar>& c) {
  Long result = c.template cast<long double>();
  for (Index i = 0; i < c.rows(); ++i)
    for (Index j = 0; j < c.cols(); ++j)
      for (Index k = 0; k < a.cols(); ++k)
        result(i, j) += static_cast<long double>(a(i, k)) * static_cast<long double>(b(k, j));
  return result;
}

// Sums of at most 260 terms of size up to 4, each with its rounding.
template <typename Scalar>
constexpr double tolerance = 200 * compare::epsilon<Scalar>;

}  // namespace

TEMPLATE_TEST_CASE("Products are right for every combination of storage orders", "[product]", double, float) {
  const auto a = values::random<TestType>(33, 131, 1), b = values::random<TestType>(131, 67, 2),
             c = values::random<TestType>(33, 67, 3);
  const Long expected = expected_of(a, b, c);
  for (const Order a_order : strided::orders)
    for (const Order b_order : strided::orders)
      for (const Order c_order : strided::orders) {
        INFO(static_cast<int>(a_order) << " " << static_cast<int>(b_order) << " " << static_cast<int>(c_order));
        Storage<TestType> left(a, a_order), right(b, b_order), result(c, c_order);
        kernels::add_product(left.fixed(), right.fixed(), result.view());
        CHECK(compare::difference(result.matrix(), expected) <= tolerance<TestType>);
        CHECK(result.gaps_untouched());
      }
}

TEST_CASE("Products are right for sizes below, at and above those of the blocks", "[product]") {
  for (const Index rows : {1, 31, 32, 33, 65})
    for (const Index columns : {1, 63, 64, 65})
      for (const Index depth : {1, 127, 128, 129, 257}) {
        INFO(rows << " x " << depth << " x " << columns);
        const auto a = values::random<double>(rows, depth, 1), b = values::random<double>(depth, columns, 2),
                   c = values::random<double>(rows, columns, 3);
        Storage<double> left(a, Order::row_major), right(b, Order::column_major), result(c, Order::row_major);
        kernels::add_product(left.fixed(), right.fixed(), result.view());
        CHECK(compare::difference(result.matrix(), expected_of(a, b, c)) <= tolerance<double>);
      }
}

TEST_CASE("A product over nothing adds nothing", "[product]") {
  const auto c = values::random<double>(3, 4, 1);
  Storage<double> left(ek::Matrix<double>(3, 0), Order::row_major), right(ek::Matrix<double>(0, 4), Order::row_major),
      result(c, Order::row_major);
  kernels::add_product(left.fixed(), right.fixed(), result.view());
  CHECK(compare::same_bits(result.matrix(), c));
}

TEST_CASE("Rows of zero stride are factors like any other", "[product]") {
  const auto row = values::random<double>(1, 40, 1), b = values::random<double>(40, 5, 2);
  const ek::Matrix<double> c = ek::Matrix<double>::Zero(35, 5);
  Storage<double> right(b, Order::gaps), result(c, Order::row_major);
  kernels::add_product(ek::View<const double>{row.data(), 35, 40, 0, 1}, right.fixed(), result.view());
  CHECK(compare::difference(result.matrix(), expected_of<double>(row.replicate(35, 1), b, c)) <= tolerance<double>);
}

TEST_CASE("fill_rows sets every row to the bias, set_zero every element to zero", "[product]") {
  const double bias[] = {1, 2, 3};
  for (const Order order : strided::orders) {
    Storage<double> y(values::random<double>(4, 3, 1), order);
    kernels::fill_rows(y.view(), bias);
    CHECK(compare::same_bits(y.matrix(), ek::Matrix<double>(Eigen::RowVector3d(1, 2, 3).replicate(4, 1))));
    kernels::set_zero(y.view());
    CHECK((y.matrix().array() == 0).all());
    CHECK(y.gaps_untouched());
  }
}
