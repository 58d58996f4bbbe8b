#include "evenkeel/core/workspace.hpp"

#include <cstddef>  // max_align_t
#include <cstdint>  // uintptr_t

#include "catch.hpp"

namespace ek = evenkeel;

TEST_CASE("A frame's matrices have the shape asked for and memory of their own", "[workspace]") {
  ek::Workspace<double> workspace;
  ek::Workspace<double>::Frame frame(workspace);
  const auto a = frame.take(3, 5), b = frame.take(3, 5);
  CHECK(a.rows == 3);
  CHECK(a.columns == 5);
  CHECK(a.row_stride == 5);
  CHECK(a.column_stride == 1);
  ek::as_map(a).setConstant(1);
  ek::as_map(b).setConstant(2);
  auto* numbers = frame.take_array<std::uint16_t>(7);
  for (int i = 0; i < 7; ++i) numbers[i] = 3;
  CHECK((ek::as_map(a).array() == 1).all());
  CHECK((ek::as_map(b).array() == 2).all());
}

TEST_CASE("What a frame has taken comes back at its end", "[workspace]") {
  ek::Workspace<double> workspace;
  const double* first = nullptr;
  const double* second = nullptr;
  {
    ek::Workspace<double>::Frame outer(workspace);
    first = outer.take(4, 4).data;
    {
      ek::Workspace<double>::Frame inner(workspace);
      second = inner.take(4, 4).data;
      CHECK(second != first);
    }
    {
      ek::Workspace<double>::Frame inner(workspace);
      CHECK(inner.take(2, 2).data == second);
    }
    CHECK(outer.take(4, 4).data == second);
  }
  ek::Workspace<double>::Frame next(workspace);
  CHECK(next.take(4, 4).data == first);
}

TEST_CASE("What an outer frame holds stays while inner ones take more and more", "[workspace]") {
  ek::Workspace<float> workspace;
  ek::Workspace<float>::Frame outer(workspace);
  const auto held = outer.take(2, 2);
  ek::as_map(held).setConstant(5);
  for (ek::Index size = 1; size < 200; size += 20) {
    ek::Workspace<float>::Frame inner(workspace);
    for (int i = 0; i < 20; ++i) ek::as_map(inner.take(size, size)).setConstant(1);
  }
  CHECK((ek::as_map(held).array() == 5).all());
}

TEST_CASE("Arrays of any type are aligned for it", "[workspace]") {
  ek::Workspace<float> workspace;
  ek::Workspace<float>::Frame frame(workspace);
  for (int i = 0; i < 5; ++i) {
    frame.take(1, 3);
    CHECK(reinterpret_cast<std::uintptr_t>(frame.take_array<std::max_align_t>(3)) % alignof(std::max_align_t) == 0);
  }
}
