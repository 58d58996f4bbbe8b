#include "evenkeel/core/view.hpp"

#include <algorithm>  // min, max
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<double>;

template <class X>
auto view_of(const X& x) {
  return ek::detail::view_of<const double>(x.data(), x);
}

template <class M>
ek::View<double> view_of(M& m, Index row, Index column, Index rows, Index columns) {
  return {&m(row, column), rows, columns, m.rowStride(), m.colStride()};
}

/// Reading x as a view gives its elements, without a copy where `in_place` says so.
template <class X>
void check_read(const X& x, bool in_place) {
  const auto input = ek::read<double>(x);
  const auto view = input.view();
  const Matrix expected = x;
  CHECK(view.rows == x.rows());
  CHECK(view.columns == x.cols());
  CHECK(compare::same_bits(Matrix(ek::as_map(view)), expected));
  for (Index i = 0; i < view.rows; ++i)
    for (Index j = 0; j < view.columns; ++j) CHECK(view(i, j) == expected(i, j));
  if constexpr (ek::detail::directly_accessible<X>) CHECK((view.data == x.data()) == in_place);
  CHECK(ek::detail::directly_accessible<X> == in_place);
}

}  // namespace

TEST_CASE("A view names its elements, rows, middle rows and transpose", "[view]") {
  Matrix m = values::random<double>(6, 8, 1);
  const auto view = view_of(m, 1, 2, 4, 5);
  CHECK(view.size() == 20);
  CHECK(&view(2, 3) == &m(3, 5));
  CHECK(view.row(2) == &m(3, 2));
  const auto middle = view.middle_rows(1, 2);
  CHECK(middle.rows == 2);
  CHECK(middle.columns == 5);
  CHECK(&middle(1, 4) == &m(3, 6));
  const auto transposed = view.transposed();
  CHECK(transposed.rows == 5);
  CHECK(transposed.columns == 4);
  CHECK(&transposed(3, 2) == &m(3, 5));
  const ek::View<const double> fixed = view;
  CHECK(&fixed(2, 3) == &m(3, 5));
}

TEST_CASE("A map of a view writes where the view points", "[view]") {
  Matrix m = Matrix::Zero(6, 8);
  ek::as_map(view_of(m, 1, 2, 4, 5).transposed())(3, 2) = 7;
  CHECK(m(3, 5) == 7);
  CHECK(m.sum() == 7);
  STATIC_REQUIRE(std::is_const_v<std::remove_reference_t<decltype(*ek::as_map(ek::View<const double>{}).data())>>);
}

TEST_CASE("What lies in memory is read where it lies, everything else is evaluated", "[view]") {
  const Matrix m = values::random<double>(12, 10, 1);
  const Eigen::MatrixXd c = m;
  check_read(m, true);
  check_read(c, true);
  check_read(m.transpose(), true);
  check_read(c.transpose(), true);
  check_read(m.block(1, 2, 5, 4), true);
  check_read(c.block(1, 2, 5, 4).transpose(), true);
  check_read(m.array(), true);
  check_read(m.row(3), true);
  check_read(m.col(3), true);
  check_read(c.row(3), true);
  check_read(c.col(3).transpose(), true);
  check_read(Eigen::Ref<const Eigen::MatrixXd>(c), true);
  check_read(Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::InnerStride<2>>(m.data(), 5, 6), true);
  check_read(Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>(m.data(), 5, 6, Eigen::OuterStride<>(17)),
             true);
  check_read(Eigen::Matrix<double, 2, 3>{{1, 2, 3}, {4, 5, 6}}, true);
  check_read(m + m, false);
  check_read(m * c.transpose(), false);
  check_read(m.reverse(), false);
  check_read(m.row(1).replicate(3, 1), false);
  check_read(Matrix::Ones(3, 4), false);
}

TEST_CASE("A single row or column of a matrix counts as contiguous the other way", "[view]") {
  const Matrix m = values::random<double>(4, 6, 1);
  const Eigen::MatrixXd c = m;
  CHECK(view_of(m.col(2)).column_stride == 1);
  CHECK(view_of(m.col(2)).row_stride == 6);
  CHECK(view_of(c.row(2)).column_stride == 4);
  CHECK(view_of(c.row(2)).row_stride == 6 * 4);
  CHECK(view_of(c.col(2)).column_stride == 1);
  CHECK(view_of(Eigen::RowVectorXd::Zero(5).eval()).column_stride == 1);
}

TEST_CASE("Blocks of one matrix overlap if they share an element", "[view]") {
  struct Place {
    Index row, column, rows, columns;
  };
  std::vector<Place> places;
  for (const Index row : {0, 1, 3})
    for (const Index column : {0, 2, 3})
      for (const Index rows : {0, 1, 2})
        for (const Index columns : {0, 1, 2, 3}) places.push_back({row, column, rows, columns});
  Matrix m = Matrix::Zero(6, 8);
  Eigen::MatrixXd c = m;
  int wrong = 0;
  for (const Place& a : places)
    for (const Place& b : places) {
      const auto meet = [](Index a_first, Index a_size, Index b_first, Index b_size) {
        return std::max(a_first, b_first) < std::min(a_first + a_size, b_first + b_size);
      };
      const bool shared = meet(a.row, a.rows, b.row, b.rows) && meet(a.column, a.columns, b.column, b.columns);
      const auto in = [](auto& matrix, const Place& place) {
        return view_of(matrix, place.row, place.column, place.rows, place.columns);
      };
      wrong += ek::overlap(in(m, a), in(m, b)) != shared;
      wrong += ek::overlap(in(c, a), in(c, b)) != shared;
      wrong += ek::overlap(in(m, a).transposed(), in(m, b).transposed()) != shared;
    }
  CHECK(wrong == 0);
}

TEST_CASE("Views of other strides overlap if one begins before the other ends", "[view]") {
  Matrix m = Matrix::Zero(6, 8);
  const auto overlap = [](ek::View<double> a, ek::View<double> b) {
    CHECK(ek::overlap(a, b) == ek::overlap(b, a));
    return ek::overlap(a, b);
  };
  const auto top = view_of(m, 0, 0, 3, 8);
  CHECK(overlap(top, view_of(m, 0, 0, 3, 3).transposed()));
  const ek::View<double> even{m.data(), 3, 4, 8, 2}, odd{m.data() + 1, 3, 4, 8, 2};
  CHECK(overlap(even, odd));  // interleaved: may share
  CHECK(overlap(even, top));
  CHECK_FALSE(overlap(even, view_of(m, 3, 0, 3, 8)));
  CHECK(overlap(even, view_of(m, 2, 6, 1, 1)));  // its last element
  CHECK_FALSE(overlap(even, view_of(m, 2, 7, 1, 1)));
  // Upside down, the first row in memory is the last.
  const ek::View<double> reversed{&m(2, 0), 3, 8, -8, 1};
  CHECK(overlap(reversed, top));
  CHECK(overlap(reversed, view_of(m, 0, 0, 1, 1)));
  CHECK(overlap(reversed, view_of(m, 2, 7, 1, 1)));
  CHECK_FALSE(overlap(reversed, view_of(m, 3, 0, 1, 1)));
  // A row that is repeated.
  const ek::View<double> repeated{&m(1, 0), 5, 8, 0, 1};
  CHECK(overlap(repeated, view_of(m, 1, 7, 1, 1)));
  CHECK_FALSE(overlap(repeated, view_of(m, 2, 0, 1, 1)));
  CHECK(overlap(repeated, ek::View<double>{&m(1, 4), 5, 8, 0, 1}));
  CHECK(overlap(reversed, ek::View<double>{&m(2, 4), 2, 4, -8, 1}));
}

TEST_CASE("Views coincide if they are the same elements in the same places", "[view]") {
  Matrix m = Matrix::Zero(6, 6), other = m;
  const auto view = view_of(m, 0, 0, 6, 6);
  CHECK(ek::coincide(view, ek::View<const double>(view)));
  CHECK_FALSE(ek::coincide(view, view.transposed()));
  CHECK_FALSE(ek::coincide(view, view_of(other, 0, 0, 6, 6)));
  CHECK_FALSE(ek::coincide(view, view_of(m, 0, 0, 5, 6)));
  CHECK_FALSE(ek::coincide(view, view_of(m, 0, 0, 6, 5)));
  CHECK_FALSE(ek::coincide(view, view_of(m, 0, 1, 6, 5)));
  CHECK_FALSE(ek::coincide(view_of(m, 0, 0, 2, 2), ek::View<double>{m.data(), 2, 2, 6, 2}));
  CHECK_FALSE(ek::coincide(view_of(m, 0, 0, 2, 2), ek::View<double>{m.data(), 2, 2, 7, 1}));
}

TEST_CASE("An output that lies in memory and disturbs no input is written where it lies", "[view]") {
  Matrix m = Matrix::Zero(6, 8), apart = m;
  auto block = m.block(1, 2, 3, 4);
  const auto input = view_of(apart, 0, 0, 3, 4);
  ek::Output<double, decltype(block)> output(block, ek::View<const double>(input));
  CHECK(output.view().data == &m(1, 2));
  output.view()(2, 3) = 5;
  CHECK(m(3, 5) == 5);
  output.commit();
  CHECK(m.sum() == 5);

  const ek::View<const double> itself = view_of(m, 1, 2, 3, 4);
  CHECK_FALSE(output.overwrites_input());
  ek::Output<double, decltype(block)> in_place(block, itself);
  CHECK(in_place.view().data == &m(1, 2));
  CHECK(in_place.overwrites_input());
}

TEST_CASE("An output that overlaps any of the inputs is written at the commit", "[view]") {
  Matrix m = Matrix::Zero(6, 8), apart = m;
  auto block = m.block(1, 2, 3, 4);
  const ek::View<const double> shifted = view_of(m, 2, 2, 3, 4), other = view_of(apart, 0, 0, 3, 4);
  const auto check = [&](const auto&... inputs) {
    m.setZero();
    ek::Output<double, decltype(block)> output(block, inputs...);
    ek::as_map(output.view()).setConstant(3);
    CHECK((m.array() == 0).all());
    output.commit();
    CHECK((block.array() == 3).all());
    CHECK(m.sum() == 36);
    CHECK(output.overwrites_input());
  };
  check(shifted);
  check(other, shifted);
  check(shifted, other);
}

TEST_CASE("An output that does not lie in memory is written at the commit", "[view]") {
  Matrix m = Matrix::Zero(2, 3);
  auto reversed = m.colwise().reverse();
  ek::Output<double, decltype(reversed)> output(reversed);
  CHECK(output.overwrites_input());  // nobody can tell
  output.view()(0, 1) = 4;
  ek::as_map(output.view()) = Matrix{{1, 2, 3}, {4, 5, 6}};
  output.commit();
  CHECK(compare::same_bits(m, Matrix{{4, 5, 6}, {1, 2, 3}}));
}

TEST_CASE("An array that overlaps an input is written at the commit too", "[view]") {
  Eigen::ArrayXXd a = Eigen::ArrayXXd::Zero(4, 4);
  const ek::View<const double> shifted{&a(1, 0), 3, 4, 1, 4};
  auto block = a.block(0, 0, 3, 4);
  ek::Output<double, decltype(block)> output(block, shifted);
  ek::as_map(output.view()).setConstant(2);
  CHECK(a.sum() == 0);
  output.commit();
  CHECK(a.sum() == 24);
}

TEST_CASE("Dense and writable are what Eigen says they are", "[view]") {
  using Block = Eigen::Block<Matrix>;
  using Product = Eigen::Product<Matrix, Matrix>;
  STATIC_REQUIRE(ek::DenseOf<Matrix, double>);
  STATIC_REQUIRE(ek::DenseOf<const Matrix&, double>);
  STATIC_REQUIRE(ek::DenseOf<Product, double>);
  STATIC_REQUIRE(ek::DenseOf<Eigen::ArrayXXd, double>);
  STATIC_REQUIRE_FALSE(ek::DenseOf<Matrix, float>);
  STATIC_REQUIRE_FALSE(ek::DenseOf<double, double>);
  STATIC_REQUIRE(ek::WritableDenseOf<Matrix&, double>);
  STATIC_REQUIRE(ek::WritableDenseOf<Block, double>);
  STATIC_REQUIRE_FALSE(ek::WritableDenseOf<const Matrix&, double>);
  STATIC_REQUIRE_FALSE(ek::WritableDenseOf<Product, double>);
  STATIC_REQUIRE_FALSE(ek::WritableDenseOf<Matrix&, float>);
}

TEST_CASE("Segments of vectors and indexed views are dense expressions like others", "[view]") {
  // Eigen derives a segment from the DenseBase of another type, and gives an indexed view the flag of direct access alone.
  Eigen::RowVectorXd v(6);
  v << 1, 2, 3, 4, 5, 6;
  const auto head = v.head(3);
  const auto input = ek::read<double>(head);
  CHECK(ek::as_map(input.view()) == ek::Matrix<double>(v.leftCols(3)));

  const auto odd = v(0, Eigen::seq(0, 5, 2));
  const auto indexed = ek::read<double>(odd);
  ek::Matrix<double> expected(1, 3);
  expected << 1, 3, 5;
  CHECK(ek::as_map(indexed.view()) == expected);
}
