#include "evenkeel/kernels/product.hpp"

#include <limits>

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

TEMPLATE_TEST_CASE("Products are right for every combination of storage orders", "[product]", double, float,
                   long double) {
  const auto a = values::random<TestType>(33, 131, 1), b = values::random<TestType>(131, 67, 2),
             c = values::random<TestType>(33, 67, 3);
  const Long expected = expected_of(a, b, c);
  for (const Order a_order : strided::orders)
    for (const Order b_order : strided::orders)
      for (const Order c_order : strided::orders) {
        INFO(static_cast<int>(a_order) << " " << static_cast<int>(b_order) << " " << static_cast<int>(c_order));
        Storage<TestType> left(a, a_order), right(b, b_order), result(c, c_order);
        kernels::multiply(left.fixed(), right.fixed(), result.view(), kernels::Product::add);
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
        kernels::multiply(left.fixed(), right.fixed(), result.view(), kernels::Product::add);
        CHECK(compare::difference(result.matrix(), expected_of(a, b, c)) <= tolerance<double>);
      }
}

TEMPLATE_TEST_CASE("Products are right for every rest of rows, columns and terms", "[product]", double, float,
                   long double) {
  for (const Index rows : {1, 2, 3, 5, 6, 7, 16, 47, 48, 49})
    for (const Index columns : {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 24, 31, 33, 130, 257})
      for (const Index depth : {1, 3, 4, 35, 131})
        for (const Order b_order : {Order::row_major, Order::column_major}) {
          if (rows * columns * depth > 300000) continue;  // more of the same
          INFO(rows << " x " << depth << " x " << columns << " " << static_cast<int>(b_order));
          const auto a = values::random<TestType>(rows, depth, 1), b = values::random<TestType>(depth, columns, 2),
                     c = values::random<TestType>(rows, columns, 3);
          Storage<TestType> left(a, Order::row_major), right(b, b_order), result(c, Order::gaps);
          kernels::multiply(left.fixed(), right.fixed(), result.view(), kernels::Product::add);
          CHECK(compare::difference(result.matrix(), expected_of(a, b, c)) <= tolerance<TestType>);
          CHECK(result.gaps_untouched());
        }
}

TEMPLATE_TEST_CASE("A product that is set does not read what was there", "[product]", double, float) {
  const TestType nan = std::numeric_limits<TestType>::quiet_NaN();
  for (const Index rows : {1, 33})
    for (const Index depth : {0, 5, 131})
      for (const Order b_order : strided::orders)
        for (const Order c_order : strided::orders) {
          INFO(rows << " " << depth << " " << static_cast<int>(b_order) << " " << static_cast<int>(c_order));
          const auto a = values::random<TestType>(rows, depth, 1), b = values::random<TestType>(depth, 67, 2);
          const ek::Matrix<TestType> zero = ek::Matrix<TestType>::Zero(rows, 67);
          Storage<TestType> left(a, Order::row_major), right(b, b_order),
              result(ek::Matrix<TestType>::Constant(rows, 67, nan), c_order);
          kernels::multiply(left.fixed(), right.fixed(), result.view(), kernels::Product::set);
          CHECK(compare::difference(result.matrix(), expected_of(a, b, zero)) <= tolerance<TestType>);
          CHECK(result.gaps_untouched());
        }
}

TEST_CASE("Every row of a product is summed in the same order", "[product]") {
  const auto row = values::random<float>(1, 300, 1), b = values::random<float>(300, 70, 2);
  const ek::Matrix<float> a = row.replicate(101, 1);
  ek::Matrix<float> c(101, 70);
  const auto view = [](const ek::Matrix<float>& m) {
    return ek::View<const float>{m.data(), m.rows(), m.cols(), m.cols(), 1};
  };
  kernels::multiply(view(a), view(b), ek::View<float>{c.data(), 101, 70, 70, 1}, kernels::Product::set);
  for (Index i = 1; i < 101; ++i) CHECK(compare::same_bits(c.row(i), c.row(0)));
}

TEST_CASE("Columns are summed in double", "[product]") {
  for (const Order order : strided::orders) {
    ek::Matrix<float> x(3, 2);
    x << 1e8f, 1, 3, 2, -1e8f, 4;
    Storage<float> stored(x, order);
    double sums[] = {-1, -1};
    kernels::column_sums(stored.fixed(), sums);
    CHECK(sums[0] == 3);
    CHECK(sums[1] == 7);
  }
}

TEST_CASE("A product over nothing adds nothing", "[product]") {
  const auto c = values::random<double>(3, 4, 1);
  Storage<double> left(ek::Matrix<double>(3, 0), Order::row_major), right(ek::Matrix<double>(0, 4), Order::row_major),
      result(c, Order::row_major);
  kernels::multiply(left.fixed(), right.fixed(), result.view(), kernels::Product::add);
  CHECK(compare::same_bits(result.matrix(), c));
}

TEST_CASE("Rows of zero stride are factors like any other", "[product]") {
  const auto row = values::random<double>(1, 40, 1), b = values::random<double>(40, 5, 2);
  const ek::Matrix<double> c = ek::Matrix<double>::Zero(35, 5);
  Storage<double> right(b, Order::gaps), result(c, Order::row_major);
  kernels::multiply(ek::View<const double>{row.data(), 35, 40, 0, 1}, right.fixed(), result.view(),
                    kernels::Product::add);
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
