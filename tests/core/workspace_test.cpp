#include "evenkeel/core/workspace.hpp"

#include <cstddef>  // max_align_t, byte
#include <cstdint>  // uintptr_t
#include <optional>
#include <span>
#include <utility>  // move
#include <vector>

#include "catch.hpp"

namespace ek = evenkeel;

namespace {

/// How far behind the beginning of some memory an address in it lies.
std::optional<std::uintptr_t> place_in(std::span<const std::byte> memory, const void* address) {
  const auto distance = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(memory.data());
  return distance < memory.size() ? std::optional(distance) : std::nullopt;
}

}  // namespace

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

// On memory of its owner.

TEST_CASE("A workspace on given memory takes arrays from it, each on cache lines of its own", "[workspace]") {
  alignas(64) std::byte memory[4 * 64];
  ek::Workspace<float> workspace(memory);
  ek::Workspace<float>::Frame frame(workspace);
  CHECK(ek::Workspace<float>::bytes<float>(17) == 128);
  CHECK(place_in(memory, frame.take(1, 17).data) == 0);
  CHECK(place_in(memory, frame.take_array<double>(8)) == 128);
  CHECK(place_in(memory, frame.take_array<char>(0)) == 192);
}

TEST_CASE("What does not fit in given memory comes from the heap, and what fits after it does not", "[workspace]") {
  alignas(64) std::byte memory[2 * 64];
  ek::Workspace<float> workspace(memory);
  const float* from_heap = nullptr;
  for (int call = 0; call < 3; ++call) {
    ek::Workspace<float>::Frame outer(workspace);
    CHECK(place_in(memory, outer.take(1, 16).data) == 0);
    ek::Workspace<float>::Frame inner(workspace);
    const auto large = inner.take(1, 17);
    ek::as_map(large).setConstant(1);
    CHECK_FALSE(place_in(memory, large.data).has_value());
    if (call > 0) CHECK(large.data == from_heap);
    from_heap = large.data;
    CHECK(place_in(memory, inner.take(1, 16).data) == 64);
    CHECK_FALSE(place_in(memory, inner.take(1, 1).data).has_value());
  }
}

TEST_CASE("Given memory that begins anywhere is used from its first whole cache line", "[workspace]") {
  alignas(64) std::byte memory[3 * 64];
  ek::Workspace<double> workspace(std::span<std::byte>(memory).subspan(1));
  {
    ek::Workspace<double>::Frame frame(workspace);
    CHECK(place_in(memory, frame.take(1, 8).data) == 64);
    CHECK(place_in(memory, frame.take(1, 8).data) == 128);
    CHECK_FALSE(place_in(memory, frame.take(1, 1).data).has_value());
  }
  ek::Workspace<double> too_small(std::span<std::byte>(memory).subspan(1, 70));
  ek::Workspace<double>::Frame frame(too_small);
  CHECK_FALSE(place_in(memory, frame.take(1, 1).data).has_value());
}

TEST_CASE("A copy of a workspace does not stand on its memory", "[workspace]") {
  alignas(64) std::byte memory[64];
  ek::Workspace<float> workspace(memory);
  ek::Workspace<float> copy(workspace), moved(std::move(workspace));
  ek::Workspace<float>::Frame of_copy(copy), of_moved(moved);
  CHECK_FALSE(place_in(memory, of_copy.take(1, 1).data).has_value());
  CHECK_FALSE(place_in(memory, of_moved.take(1, 1).data).has_value());
}

TEST_CASE("A fixed workspace stands on memory inside itself, and so does a copy of it", "[workspace]") {
  using Fixed = ek::FixedWorkspace<float, 128>;
  const auto inside = [](Fixed& workspace) {
    Fixed::Frame frame(workspace);
    const auto place = place_in(std::as_writable_bytes(std::span(&workspace, 1)), frame.take(2, 16).data);
    return place.has_value() && !place_in(std::as_writable_bytes(std::span(&workspace, 1)), frame.take(1, 1).data);
  };
  Fixed one, two(one), three;
  three = one;
  CHECK(inside(one));
  CHECK(inside(two));
  CHECK(inside(three));
  std::vector<Fixed> many(3);
  many.resize(20);
  for (Fixed& each : many) CHECK(inside(each));
  ek::FixedWorkspace<float, 0> none;
  ek::Workspace<float>::Frame frame(none);
  ek::as_map(frame.take(3, 3)).setConstant(1);
}
