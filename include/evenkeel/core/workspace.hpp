#pragma once

#include <cstddef>  // size_t
#include <deque>    // buffers keep their addresses while others are added
#include <type_traits>

#include "evenkeel/core/buffer.hpp"  // Buffer
#include "evenkeel/core/view.hpp"    // View

namespace evenkeel {

/// Memory for `infer`: one for each thread, used again from call to call. Any number of threads may share one const
/// network with one workspace each.
template <typename Scalar>
class Workspace {
 public:
  /// Gives back, at its end, everything that was taken from the workspace during its life.
  class Frame {
   public:
    explicit Frame(Workspace& workspace) : workspace_{workspace}, taken_before_{workspace.taken_} {}
    ~Frame() { workspace_.taken_ = taken_before_; }
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
      if (workspace_.taken_ == workspace_.buffers_.size()) workspace_.buffers_.emplace_back();
      auto& bytes = workspace_.buffers_[workspace_.taken_++];
      return reinterpret_cast<T*>(bytes.resize(count * static_cast<Index>(sizeof(T))));
    }

   private:
    Workspace& workspace_;
    std::size_t taken_before_;
  };

 private:
  std::deque<detail::Buffer<unsigned char>> buffers_;
  std::size_t taken_ = 0;
};

}  // namespace evenkeel
