#include "evenkeel/core/parallel.hpp"

#include <vector>

#include "catch.hpp"

namespace ek = evenkeel;
using ek::Index;

TEST_CASE("parallel_for calls its body once for every index", "[parallel]") {
  for (const Index work : {Index{0}, ek::parallel_threshold, 100 * ek::parallel_threshold})
    for (const Index count : {0, 1, 2, 7, 100}) {
      std::vector<int> calls(static_cast<std::size_t>(count), 0);
      ek::parallel_for(count, work, [&](Index i) { ++calls[static_cast<std::size_t>(i)]; });
      CHECK(calls == std::vector<int>(static_cast<std::size_t>(count), 1));
    }
}

TEST_CASE("Chunks of rows follow one another and cover every row once", "[parallel]") {
  for (const Index columns : {0, 1, 7, 64, 1000, 100000})
    for (const Index rows : {0, 1, 2, 15, 16, 17, 31, 33, 127, 1000, 32768, 65537, 1000003}) {
      const ek::RowChunks chunks(rows, columns);
      INFO(rows << " x " << columns);
      CHECK(chunks.rows == rows);
      CHECK(chunks.count <= ek::RowChunks::most);
      CHECK((chunks.count == 0) == (rows == 0));
      Index next = 0;
      bool as_expected = true;
      for (Index chunk = 0; chunk < chunks.count; ++chunk) {
        as_expected = as_expected && chunks.first(chunk) == next && chunks.end(chunk) > next;
        next = chunks.end(chunk);
      }
      CHECK(as_expected);
      CHECK(next == rows);
    }
}

TEST_CASE("Small matrices are one chunk, large ones sixteen", "[parallel]") {
  CHECK(ek::RowChunks(1000, 32).count == 1);
  CHECK(ek::RowChunks(2048, 32).count == 2);
  CHECK(ek::RowChunks(100000, 100).count == ek::RowChunks::most);
  CHECK(ek::RowChunks(3, 1000000).count == 3);
}
