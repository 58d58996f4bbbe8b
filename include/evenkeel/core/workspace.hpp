#pragma once

#include <algorithm>  // max
#include <cstddef>    // size_t, byte
#include <memory>     // align
#include <span>
#include <type_traits>
#include <vector>

#include "evenkeel/core/buffer.hpp"  // Buffer
#include "evenkeel/core/view.hpp"    // View

namespace evenkeel {
namespace detail {

/// Memory that somebody else owns, taken from its front in whole cache lines. A copy has none of it.
class GivenMemory {
 public:
  static constexpr std::size_t line = 64;

  /// What an array of so many T takes.
  template <class T>
  static constexpr Index bytes(Index count) {
    static_assert(alignof(T) <= line);
    const auto wanted = static_cast<std::size_t>((std::max)(count, Index{1})) * sizeof(T);
    return static_cast<Index>((wanted + line - 1) / line * line);
  }

  GivenMemory() = default;
  explicit GivenMemory(std::span<std::byte> memory) {
    void* first = memory.data();
    std::size_t size = memory.size();
    if (std::align(line, line, first, size) != nullptr) memory_ = {static_cast<std::byte*>(first), size};
  }
  GivenMemory(const GivenMemory&) noexcept {}
  GivenMemory& operator=(const GivenMemory&) noexcept { return *this; }

  /// Null where not that much is left.
  std::byte* take(std::size_t bytes) {
    if (bytes > memory_.size() - taken_) return nullptr;
    taken_ += bytes;
    return memory_.data() + taken_ - bytes;
  }
  std::size_t taken() const { return taken_; }
  void give_back_to(std::size_t taken) { taken_ = taken; }

 private:
  std::span<std::byte> memory_;
  std::size_t taken_ = 0;
};

}  // namespace detail

/// Memory for `infer`: one for each thread, used again from call to call. Any number of threads may share one const
/// network with one workspace each.
template <typename Scalar>
class Workspace {
 public:
  /// Takes from the heap what is needed, when it is needed first.
  Workspace() = default;
  /// Stands on memory of its owner, who keeps it as long; what does not fit in comes from the heap. A copy of the workspace
  /// does not stand on it.
  explicit Workspace(std::span<std::byte> memory) : given_{memory} {}

  /// How many bytes of such memory, from a multiple of 64 on, an array of so many T takes; those of several add up.
  template <class T>
  static constexpr Index bytes(Index count) {
    return detail::GivenMemory::bytes<T>(count);
  }

  /// Gives back, at its end, everything that was taken from the workspace during its life.
  class Frame {
   public:
    explicit Frame(Workspace& workspace)
        : workspace_{workspace}, taken_before_{workspace.taken_}, given_before_{workspace.given_.taken()} {}
    ~Frame() {
      workspace_.taken_ = taken_before_;
      workspace_.given_.give_back_to(given_before_);
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// A matrix of unspecified values, valid during the frame.
    View<Scalar> take(Index rows, Index columns) {
      return {take_array<Scalar>(rows * columns), rows, columns, columns, 1};
    }
    /// An array of unspecified values of any plain type, valid during the frame.
    template <class T>
    T* take_array(Index count) {
      static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
      if (std::byte* given = workspace_.given_.take(static_cast<std::size_t>(bytes<T>(count))))
        return reinterpret_cast<T*>(given);
      if (workspace_.taken_ == workspace_.buffers_.size()) workspace_.buffers_.emplace_back();
      auto& buffer = workspace_.buffers_[workspace_.taken_++];
      return reinterpret_cast<T*>(buffer.resize(count * static_cast<Index>(sizeof(T))));
    }

   private:
    Workspace& workspace_;
    std::size_t taken_before_, given_before_;
  };

 private:
  using Bytes = detail::Buffer<unsigned char>;
  static_assert(std::is_nothrow_move_constructible_v<Bytes>, "memory that was taken stays where it is as buffers move");

  detail::GivenMemory given_;
  std::vector<Bytes> buffers_;  // for what did not fit in there
  std::size_t taken_ = 0;       // so many of them
};

/// A workspace that brings so many bytes along, wherever it stands itself: on the stack, in an object of one's own. What does
/// not fit in comes from the heap. See WorkspaceFor, which counts the bytes.
template <typename Scalar, Index Bytes>
class FixedWorkspace : public Workspace<Scalar> {
 public:
  FixedWorkspace() : Workspace<Scalar>(memory_) {}
  FixedWorkspace(const FixedWorkspace&) : FixedWorkspace() {}
  FixedWorkspace& operator=(const FixedWorkspace&) { return *this; }

 private:
  alignas(detail::GivenMemory::line) std::byte memory_[static_cast<std::size_t>((std::max)(Bytes, Index{1}))];
};

}  // namespace evenkeel
