#include "evenkeel/core/buffer.hpp"

#include <set>

#include "catch.hpp"

namespace ek = evenkeel;

TEST_CASE("A buffer keeps its memory for anything that fits", "[buffer]") {
  ek::detail::Buffer<double> buffer;
  double* data = buffer.resize(100);
  data[99] = 1;
  CHECK(buffer.resize(10) == data);
  CHECK(buffer.resize(100) == data);
  CHECK(buffer.data() == data);
  buffer.resize(1000)[999] = 1;
  const auto view = buffer.matrix(20, 30);
  CHECK(view.data == buffer.data());
  CHECK(view.rows == 20);
  CHECK(view.columns == 30);
  CHECK(view.row_stride == 30);
  CHECK(view.column_stride == 1);
}

TEST_CASE("Room for nothing is somewhere too", "[buffer]") {
  ek::detail::Buffer<double> buffer;
  CHECK(buffer.resize(0) != nullptr);
}

TEST_CASE("A copy of a buffer has memory of its own", "[buffer]") {
  ek::detail::Buffer<int> buffer;
  buffer.resize(3)[1] = 7;
  auto copy = buffer;
  copy.data()[1] = 8;
  CHECK(buffer.data()[1] == 7);
  CHECK(copy.data() != buffer.data());
}

TEST_CASE("A matrix cache hands out one matrix for each of the last four shapes", "[buffer]") {
  ek::detail::MatrixCache<double> cache;
  const auto data = [&](ek::Index rows) {
    const auto& matrix = cache.get(rows, 5);
    CHECK(matrix.rows() == rows);
    CHECK(matrix.cols() == 5);
    CHECK(&cache.latest() == &matrix);
    return matrix.data();
  };
  const double* places[4];
  for (ek::Index rows = 1; rows <= 4; ++rows) places[rows - 1] = data(10 * rows);
  CHECK(std::set<const double*>(places, places + 4).size() == 4);
  for (int time = 0; time < 3; ++time)
    for (const ek::Index rows : {1, 3, 2, 4}) CHECK(data(10 * rows) == places[rows - 1]);
}

TEST_CASE("A fifth shape takes the place of the one that was not asked for longest", "[buffer]") {
  ek::detail::MatrixCache<double> cache;
  for (const ek::Index rows : {10, 20, 30, 40}) cache.get(rows, 1).setConstant(static_cast<double>(rows));
  cache.get(10, 1);
  cache.get(50, 1).setConstant(50);  // in the place of 20
  for (const ek::Index rows : {10, 30, 40, 50}) {
    const auto& matrix = cache.get(rows, 1);
    CHECK((matrix.array() == static_cast<double>(rows)).all());
  }
}

TEST_CASE("Shapes of the same size, or of as many rows, are not the same", "[buffer]") {
  ek::detail::MatrixCache<double> cache;
  const auto* wide = cache.get(2, 3).data();
  cache.get(2, 3).setConstant(7);
  cache.get(2, 5).setConstant(8);
  CHECK((cache.get(2, 3).array() == 7).all());
  CHECK((cache.get(2, 5).array() == 8).all());
  CHECK(cache.get(3, 2).data() != wide);
  CHECK(cache.get(2, 3).data() == wide);
  CHECK(cache.latest().rows() == 2);
}
