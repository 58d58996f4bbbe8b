#pragma once

#include <algorithm>  // max
#include <cstddef>    // size_t
#include <tuple>
#include <type_traits>  // is_same, type_identity
#include <utility>      // index_sequence, move

#include "evenkeel/network/chain.hpp"  // Chain
#include "evenkeel/network/layer.hpp"  // Layer

namespace evenkeel {

/// Layers one after another, composed at compile time: torch.nn.Sequential.
///
///     ek::Sequential net{ek::Linear<float>(64, 32), ek::ReLU<float>(), ek::Linear<float>(32, 4)};
///
/// Shapes  input: that of the first layer; output: that of the last. Throws ShapeError where two neighbours do not fit.
/// Modes   handed to every layer.
/// Copies of the layers are taken; Linear layers of equal size want seeds of their own. `Sequential{inner}` is C++'s copy; a network around one network: sequential(inner).
template <Layer... Layers>
class Sequential final
    : public Chain<Sequential<Layers...>, typename std::tuple_element_t<0, std::tuple<Layers...>>::Scalar> {
 public:
  using Scalar = typename std::tuple_element_t<0, std::tuple<Layers...>>::Scalar;
  static constexpr const char* name = "Sequential";
  static_assert((std::is_same_v<Scalar, typename Layers::Scalar> && ...), "all layers must have the same Scalar");

  /// What is known of it when it is compiled; see layers/fixed_size.hpp.
  static constexpr int fixed_output_features(int features) {
    ((features = detail::fixed_output_features<Layers>(features)), ...);
    return features;
  }
  static constexpr Index fixed_infer_bytes(int rows, int features) {
    Index of_layers = 0;  // one at a time
    int widest = 0;       // of what is between them
    std::size_t left = sizeof...(Layers);
    const auto go_through = [&]<class L>(std::type_identity<L>) {
      of_layers = (std::max)(of_layers, detail::fixed_infer_bytes<L>(rows, features));
      features = detail::fixed_output_features<L>(features);
      if (--left > 0) widest = (std::max)(widest, features);
    };
    (go_through(std::type_identity<Layers>()), ...);
    return 2 * Workspace<Scalar>::template bytes<Scalar>(Index{rows} * widest) + of_layers;
  }

  explicit Sequential(Layers... layers) : layers_(std::move(layers)...) {
    static_assert(fixed_output_features(Eigen::Dynamic) != detail::misfit,
                  "a layer takes another number of features than the layer before it gives");
    this->join();
  }

  template <std::size_t I>
  auto& layer() {
    return std::get<I>(layers_);
  }
  template <std::size_t I>
  const auto& layer() const {
    return std::get<I>(layers_);
  }

  Index layer_count() const { return static_cast<Index>(sizeof...(Layers)); }

  /// What the first layer with a fixed number of input features takes, if the layers before it pass any number on; else -1.
  Index input_features() const {
    Index expected = -1;
    bool passed_on = true;  // by the layers so far
    for (Index i = 0; i < layer_count() && expected < 0; ++i)
      visit(i, [&](const auto& layer) {
        if constexpr (requires { layer.input_features(); }) expected = layer.input_features();
        if (expected < 0) passed_on = passed_on && layer.output_features(1) == 1 && layer.output_features(2) == 2;
      });
    return passed_on ? expected : -1;
  }

  /// Calls f with layer i.
  template <class F>
  void visit(Index i, F&& f) {
    visit(layers_, i, f, std::index_sequence_for<Layers...>());
  }
  template <class F>
  void visit(Index i, F&& f) const {
    visit(layers_, i, f, std::index_sequence_for<Layers...>());
  }

  template <Storable U>
  auto cast() const requires requires(const Layers&... each) {
    std::tuple{each.template cast<U>()...};
  }
  {
    return std::apply(
        [&](const auto&... each) {
          Sequential<std::remove_cvref_t<decltype(each.template cast<U>())>...> result(each.template cast<U>()...);
          result.set_stream(this->path());
          return result;
        },
        layers_);
  }

 private:
  template <class Tuple, class F, std::size_t... I>
  static void visit(Tuple& layers, Index i, F& f, std::index_sequence<I...>) {
    ((static_cast<Index>(I) == i ? f(std::get<I>(layers)) : void()), ...);
  }

  std::tuple<Layers...> layers_;
};

template <Layer... Layers>
Sequential(Layers...) -> Sequential<Layers...>;

/// The network of these layers; of one network, a network that contains it.
template <Layer... Layers>
Sequential<Layers...> sequential(Layers... layers) {
  return Sequential<Layers...>(std::move(layers)...);
}

}  // namespace evenkeel
