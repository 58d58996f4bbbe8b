#pragma once

#include <array>
#include <cstddef>  // size_t
#include <cstdint>  // uint32_t, uint64_t
#include <numeric>  // lcm
#include <string>
#include <string_view>
#include <type_traits>  // remove_const_t
#include <utility>      // move

#include "evenkeel/core/error.hpp"      // EVENKEEL_THROW
#include "evenkeel/core/parameter.hpp"  // Parameters, Buffers, TrainingState
#include "evenkeel/core/types.hpp"      // Arithmetic, Index
#include "evenkeel/network/layer.hpp"   // Accumulates, name_of, rows_per_example

namespace evenkeel {
namespace detail {

/// The name of what has the name `name` in the part with the path `path`: one of both may be empty.
inline std::string joined_path(std::string_view path, std::string_view name) {
  return std::string(path) + (path.empty() || name.empty() ? "" : ".") + std::string(name);
}

/// What a part of a network calls its call in messages: "forward (layer 2)", in a part of a part "forward (layer 2.norm)".
/// Without memory from the heap, since it is made in every call.
class CallInPart {
 public:
  CallInPart(std::string_view call, std::string_view part_is, std::string_view path) {
    const bool in_another = call.ends_with(')');
    if (in_another) call.remove_suffix(1);
    for (const std::string_view piece : {call, in_another ? std::string_view(".") : std::string_view(" ("),
                                         in_another ? std::string_view() : part_is, path})
      for (const char c : piece)
        if (size_ + 2 < text_.size()) text_[size_++] = c;
    text_[size_++] = ')';
  }
  const char* c_str() const { return text_.data(); }

 private:
  std::array<char, 128> text_{};
  std::size_t size_ = 0;
};

}  // namespace detail

/// A layer made of layers: gathers what its parts have, and hands on to each what is asked of the whole. Base is LayerBase or
/// SparseLayerBase of Derived. Derived supplies
///
///     static void each_part(self, f)         self const or not: calls f(part, path) for every part, a path being a std::string
///     static constexpr const char* part_is   what stands before a path in messages: "layer ", or ""
template <class Derived, class Base>
class Composite : public Base {
 public:
  using Number = Arithmetic<typename Base::Scalar>;  ///< Of parameters and statistics.

  /// All parameters, named as PyTorch names them: "0.weight".
  Parameters<Number> parameters() { return parameters_of<Parameters<Number>>(self()); }
  Parameters<const Number> parameters() const { return parameters_of<Parameters<const Number>>(self()); }

  /// All running statistics and counters, named likewise.
  Buffers<Number> buffers() { return buffers_of<Buffers<Number>>(self()); }
  Buffers<const Number> buffers() const { return buffers_of<Buffers<const Number>>(self()); }

  /// What else the next training forward depends on, named likewise.
  TrainingState training_state() { return training_state_of<TrainingState>(self()); }
  ConstTrainingState training_state() const { return training_state_of<ConstTrainingState>(self()); }

  /// How many consecutive rows the parts take together.
  Index rows_per_example() const {
    Index rows = 1;
    Derived::each_part(
        self(), [&](const auto& part, const std::string&) { rows = std::lcm(rows, evenkeel::rows_per_example(part)); });
    return rows;
  }

  /// Tells each part its place: that with the path "0" has it in the outermost network, and "path.0" inside another.
  void set_stream(std::string_view path) {
    path_ = path;
    Derived::each_part(self(), [&](auto& part, const std::string& name) {
      if constexpr (requires { part.set_stream(path); }) part.set_stream(detail::joined_path(path, name));
    });
  }

  /// Starts a new sequence of masks in every part that draws any.
  void reseed(std::uint64_t seed) {
    Derived::each_part(self(), [&](auto& part, const std::string&) {
      if constexpr (requires { part.reseed(seed); }) part.reseed(seed);
    });
  }
  /// Makes the next mask of every part that of call number `call`, counted from 0.
  void replay(std::uint32_t call) {
    Derived::each_part(self(), [&](auto& part, const std::string&) {
      if constexpr (requires { part.replay(call); }) part.replay(call);
    });
  }

  /// Lets running statistics move by the batches that were prepared (Mode::train_prepared), in every part that has any.
  void commit_statistics() {
    Derived::each_part(self(), [](auto& part, const std::string&) {
      if constexpr (requires { part.commit_statistics(); }) part.commit_statistics();
    });
  }
  /// Forgets what was prepared, in every part.
  void discard_statistics() {
    Derived::each_part(self(), [](auto& part, const std::string&) {
      if constexpr (requires { part.discard_statistics(); }) part.discard_statistics();
    });
  }

  /// Throws UsageError where a part with parameters cannot add to their gradients.
  void check_accumulation() const {
    Derived::each_part(self(), []<class L>(const L& part, const std::string& path) {
      if constexpr (requires { part.check_accumulation(); })
        part.check_accumulation();
      else if constexpr (requires(L & each) { each.parameters(); } && !Accumulates<L>)
        EVENKEEL_THROW(UsageError, Derived::name, "::backward: expected ", Derived::part_is, path, " (", name_of(part),
                       ") to take Accumulate::yes, got one without backward(x, dy, dx, accumulate)");
    });
  }

 protected:
  Composite() = default;

  /// Its place in the outermost network, which a cast of it keeps.
  const std::string& path() const { return path_; }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }

  template <class Views>
  static void append(Views& all, Views views, const std::string& path) {
    for (auto& view : views) {
      view.name = detail::joined_path(path, view.name);
      all.push_back(std::move(view));
    }
  }
  template <class Views, class Self>
  static Views parameters_of(Self& self) {
    Views all;
    Derived::each_part(self, [&]<class L>(L& part, const std::string& path) {
      if constexpr (requires { part.parameters(); })
        append(all, part.parameters(), path);
      else
        static_assert(
            !requires(std::remove_const_t<L> & changeable) { changeable.parameters(); },
            "a layer with parameters() needs parameters() const too, for const networks and the summary");
    });
    return all;
  }
  template <class Views, class Self>
  static Views buffers_of(Self& self) {
    Views all;
    Derived::each_part(self, [&](auto& part, const std::string& path) {
      if constexpr (requires { part.buffers(); }) append(all, part.buffers(), path);
    });
    return all;
  }
  template <class Views, class Self>
  static Views training_state_of(Self& self) {
    Views all;
    Derived::each_part(self, [&](auto& part, const std::string& path) {
      if constexpr (requires { part.training_state(); }) append(all, part.training_state(), path);
    });
    return all;
  }

  std::string path_;
};

}  // namespace evenkeel
