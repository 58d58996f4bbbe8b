#pragma once

#include <algorithm>  // max
#include <array>
#include <concepts>  // same_as
#include <cstddef>   // size_t
#include <string>    // to_string
#include <vector>

#include "evenkeel/core/buffer.hpp"               // Buffer
#include "evenkeel/core/error.hpp"                // EVENKEEL_THROW
#include "evenkeel/core/sparse.hpp"               // SparseView
#include "evenkeel/layers/sparse_layer_base.hpp"  // SparseLayerBase
#include "evenkeel/network/composite.hpp"         // Composite
#include "evenkeel/network/layer.hpp"             // name_of, Accumulates

namespace evenkeel {

/// Layers one after another: what Sequential and Mlp share. A chain owns the activations between its layers, so that no
/// layer copies its input, and is a layer itself.
///
/// Derived supplies `Index layer_count() const` and `void visit(i, f)`, const and not, which calls f with layer i, and, where the
/// layers have names in place of their numbers, `static std::string layer_path(i)`.
template <class Derived, Storable Scalar_>
class Chain : public Composite<Derived, SparseLayerBase<Derived, Scalar_>> {
 public:
  using Scalar = Scalar_;

  Index output_features(Index features) const {
    each(self(), [&](const auto& layer, Index) { features = layer.output_features(features); });
    return features;
  }

  void check_input(Index rows, Index columns, Mode mode, const char* function) const {
    each(self(), [&](const auto& layer, Index i) {
      if constexpr (requires { layer.check_input(rows, columns, mode, function); })
        layer.check_input(rows, columns, mode, detail::CallInPart(function, part_is, path_of(i)).c_str());
      columns = layer.output_features(columns);
    });
  }

  /// Throws UsageError unless the first layer takes a sparse input.
  void check_sparse_input(const char* function) const {
    self().visit(0, [&]<class L>(const L& layer) {
      if constexpr (requires { layer.check_sparse_input(function); })
        layer.check_sparse_input(function);
      else if constexpr (!takes_sparse<std::remove_const_t<L>>)
        EVENKEEL_THROW(UsageError, Derived::name, "::", function, ": expected dense input, since layer 0 (",
                       name_of(layer), ") takes no other, got a sparse matrix");
    });
  }

 protected:
  Chain() = default;

  /// To be called at the end of the constructor. Throws ShapeError where two layers do not fit.
  void join() {
    Index features = -1;  // unknown until a layer fixes it
    each(self(), [&](auto& layer, Index i) {
      if constexpr (requires { layer.input_features(); }) {
        const Index expected = layer.input_features();
        if (features >= 0 && expected >= 0 && features != expected)
          EVENKEEL_THROW(ShapeError, Derived::name, ": layer ", i - 1, " (", layer_name(i - 1), ") gives ", features,
                         " features, but layer ", i, " (", layer_name(i), ") expects ", expected);
        if (expected >= 0) features = expected;
      }
      if (features >= 0) features = layer.output_features(features);
    });
    self().set_stream("");
  }

 private:
  friend LayerBase<Derived, Scalar>;
  friend SparseLayerBase<Derived, Scalar>;
  friend Composite<Derived, SparseLayerBase<Derived, Scalar>>;

  static constexpr const char* part_is = "layer ";

  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }
  Index count() const { return self().layer_count(); }

  /// What layer i is called in names of parameters and random streams.
  static std::string path_of(Index i) {
    if constexpr (requires { Derived::layer_path(i); })
      return Derived::layer_path(i);
    else
      return std::to_string(i);
  }

  /// Calls f(layer, i) for every layer from the first to the last.
  template <class Self, class F>
  static void each(Self& self, const F& f) {
    for (Index i = 0; i < self.layer_count(); ++i) self.visit(i, [&](auto& layer) { f(layer, i); });
  }
  template <class Self, class F>
  static void each_part(Self& self, const F& f) {
    each(self, [&](auto& layer, Index i) { f(layer, path_of(i)); });
  }

  std::string layer_name(Index i) const {
    std::string name;
    self().visit(i, [&](const auto& layer) { name = name_of(layer); });
    return name;
  }

  static constexpr bool needs_input() { return true; }

  template <class L>
  static constexpr bool takes_sparse = requires {
    requires L::takes_sparse_input;
  };

  /// Calls body with what layer i takes as its input: a map of `between`, or the network's own input x.
  template <class L, class X, class Body>
  static void with_input(Index i, [[maybe_unused]] X x, View<const Scalar> between, const Body& body) {
    if constexpr (std::same_as<X, View<const Scalar>>) {
      body(as_map(i > 0 ? between : x));
    } else {
      if (i > 0) return body(as_map(between));
      if constexpr (takes_sparse<std::remove_const_t<L>>) body(x);  // else check_sparse_input has thrown
    }
  }

  // In all three X is View<const Scalar> or SparseView<Scalar>.

  template <class X>
  void run_forward(X x, View<Scalar> y, Mode mode) {
    const Index rows = y.rows;
    Index features = input_columns(x);
    View<const Scalar> between;  // the output of the layer before
    activations_.resize(static_cast<std::size_t>(count()));
    each(self(), [&]<class L>(L& layer, Index i) {
      Activation& activation = activations_[static_cast<std::size_t>(i)];
      activation.features = features = layer.output_features(features);
      const View<Scalar> output = i + 1 == count() ? y : activation.values.matrix(rows, features);
      with_input<L>(i, x, between, [&](const auto& input) { layer.forward(input, as_map(output), mode); });
      between = output;
    });
  }

  template <class X>
  void run_backward(X x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    if (accumulate == Accumulate::yes) this->check_accumulation();
    View<const Scalar> delta = dy;
    for (Index i = count() - 1; i >= 0; --i)
      self().visit(i, [&]<class L>(L& layer) {
        View<const Scalar> between;
        if (i > 0) {
          Activation& before = activations_[static_cast<std::size_t>(i - 1)];
          between = before.values.matrix(dy.rows, before.features);
        }
        with_input<L>(i, x, between, [&](const auto& input) {
          const bool wanted = i > 0 || dx.data != nullptr;
          if constexpr (requires { layer.backward_parameters(input, as_map(delta), accumulate); })
            if (!wanted) return layer.backward_parameters(input, as_map(delta), accumulate);
          View<Scalar> target = dx;
          if (i > 0 || !wanted) target = gradients_[static_cast<std::size_t>(i % 2)].matrix(input.rows(), input.cols());
          if constexpr (Accumulates<L>)
            layer.backward(input, as_map(delta), as_map(target), accumulate);
          else
            layer.backward(input, as_map(delta), as_map(target));
          delta = target;
        });
      });
  }

  template <class X>
  void run_infer(X x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    Index widest = 0;  // of what is between layers
    Index features = input_columns(x);
    each(self(), [&](const auto& layer, Index i) {
      features = layer.output_features(features);
      if (i + 1 < count()) widest = (std::max)(widest, features);
    });
    const std::array<View<Scalar>, 2> room = {frame.take(y.rows, widest), frame.take(y.rows, widest)};
    features = input_columns(x);
    View<const Scalar> between;
    each(self(), [&]<class L>(const L& layer, Index i) {
      features = layer.output_features(features);
      View<Scalar> output = y;
      if (i + 1 < count()) output = {room[static_cast<std::size_t>(i % 2)].data, y.rows, features, features, 1};
      with_input<L>(i, x, between, [&](const auto& input) { layer.infer(input, as_map(output), workspace); });
      between = output;
    });
  }

  static Index input_columns(const View<const Scalar>& x) { return x.columns; }
  static Index input_columns(const SparseView<Scalar>& x) { return x.cols(); }

  struct Activation {
    detail::Buffer<Scalar> values;
    Index features = 0;
  };

  std::vector<Activation> activations_;              // the output of each layer but the last, of the last forward
  std::array<detail::Buffer<Scalar>, 2> gradients_;  // on the way back, used in turn
};

}  // namespace evenkeel
