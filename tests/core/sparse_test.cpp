#include "evenkeel/core/sparse.hpp"

#include <Eigen/SparseCore>
#include <array>
#include <string>
#include <vector>

#include "catch.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Dense = ek::Matrix<double>;
using ByRows = Eigen::SparseMatrix<double, Eigen::RowMajor>;
using ByColumns = Eigen::SparseMatrix<double>;

/// (3, 4) with an empty row, an empty column and a stored zero.
Dense example() {
  Dense x(3, 4);
  x << 1, 0, 2, 0,  //
      0, 0, 0, 0,   //
      3, 0, 0, 4;
  return x;
}

template <class Sparse>
Sparse sparse_example() {
  Sparse x = example().sparseView();
  x.insert(2, 2) = 0;
  x.makeCompressed();
  return x;
}

Dense dense(const ek::SparseView<double>& x) {
  Dense result = Dense::Zero(x.rows(), x.cols());
  x.for_each([&](Index row, Index column, double value) { result(row, column) += value; });
  return result;
}

}  // namespace

TEST_CASE("A view sees every kind of sparse matrix without a copy", "[sparse]") {
  const ByRows rows = sparse_example<ByRows>();
  const ByColumns columns = sparse_example<ByColumns>();
  CHECK(dense(ek::sparse_view<double>(rows)) == example());
  CHECK(dense(ek::sparse_view<double>(columns)) == example());
  CHECK(ek::sparse_view<double>(rows).values == rows.valuePtr());
  CHECK(dense(ek::sparse_view<double>(rows.middleRows(1, 2))) == example().middleRows(1, 2));
  CHECK(dense(ek::sparse_view<double>(columns.middleCols(1, 3))) == example().middleCols(1, 3));
  CHECK(dense(ek::sparse_view<double>(rows.transpose())) == example().transpose());
  const Eigen::Map<const ByRows> map(3, 4, rows.nonZeros(), rows.outerIndexPtr(), rows.innerIndexPtr(),
                                     rows.valuePtr());
  CHECK(dense(ek::sparse_view<double>(map)) == example());

  ByRows loose = rows;
  loose.reserve(std::vector<int>{5, 5, 5});
  loose.insert(1, 3) = 7;
  REQUIRE_FALSE(loose.isCompressed());
  Dense expected = example();
  expected(1, 3) = 7;
  CHECK(dense(ek::sparse_view<double>(loose)) == expected);
}

TEST_CASE("What is no sparse matrix of the scalar type is not taken for one", "[sparse]") {
  STATIC_REQUIRE(ek::SparseOf<ByRows, double>);
  STATIC_REQUIRE(ek::SparseOf<const ByColumns&, double>);
  STATIC_REQUIRE_FALSE(ek::SparseOf<ByRows, float>);
  STATIC_REQUIRE_FALSE(ek::SparseOf<Dense, double>);
  STATIC_REQUIRE_FALSE(ek::SparseOf<Eigen::SparseVector<double>, double>);
  STATIC_REQUIRE_FALSE(ek::SparseOf<Eigen::SparseMatrix<double, Eigen::RowMajor, long>, double>);
}

TEST_CASE("A copy by rows has each row's values in the order of columns, whatever the order of the original",
          "[sparse]") {
  ek::detail::SparseRows<double> from_rows, from_columns;
  from_rows.assign(ek::sparse_view<double>(sparse_example<ByRows>()));
  from_columns.assign(ek::sparse_view<double>(sparse_example<ByColumns>()));
  for (const auto& copy : {from_rows.view(), from_columns.view()}) {
    CHECK(copy.by_rows);
    CHECK(copy.rows() == 3);
    CHECK(copy.cols() == 4);
    CHECK(std::vector<int>(copy.begins, copy.begins + 4) == std::vector<int>{0, 2, 2, 5});
    CHECK(std::vector<int>(copy.places, copy.places + 5) == std::vector<int>{0, 2, 0, 2, 3});
    CHECK(std::vector<double>(copy.values, copy.values + 5) == std::vector<double>{1, 2, 3, 0, 4});
  }
  from_rows.assign(ek::sparse_view<double>(ByRows(2, 0)));  // smaller, into the same memory
  CHECK(dense(from_rows.view()) == Dense(2, 0));
}

TEST_CASE("Rows are gathered in any order, again and again", "[sparse]") {
  const ByRows x = sparse_example<ByRows>();
  ek::detail::SparseRows<double> batch;
  batch.reserve(ek::sparse_view<double>(x), 4);
  const std::array<Index, 4> rows = {2, 1, 2, 0};
  batch.gather(ek::sparse_view<double>(x), rows);
  Dense expected(4, 4);
  expected << example().row(2), example().row(1), example().row(2), example().row(0);
  CHECK(dense(batch.view()) == expected);
}
