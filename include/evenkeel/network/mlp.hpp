#pragma once

#include <cstddef>  // size_t
#include <cstdint>  // uint64_t
#include <string>   // to_string
#include <type_traits>
#include <utility>  // move
#include <variant>
#include <vector>

#include "evenkeel/core/check.hpp"         // at_least, fraction
#include "evenkeel/core/error.hpp"         // EVENKEEL_THROW
#include "evenkeel/layers/activation.hpp"  // ReLU
#include "evenkeel/layers/batch_norm.hpp"  // BatchNorm
#include "evenkeel/layers/dropout.hpp"     // Dropout
#include "evenkeel/layers/group_norm.hpp"  // GroupNorm
#include "evenkeel/layers/layer_norm.hpp"  // LayerNorm
#include "evenkeel/layers/linear.hpp"      // Linear
#include "evenkeel/layers/rms_norm.hpp"    // RMSNorm
#include "evenkeel/network/chain.hpp"      // Chain
#include "evenkeel/network/layer.hpp"      // name_of

namespace evenkeel {

/// Which norm stands behind each hidden linear layer. (Not InstanceNorm: a hidden feature has one position.)
enum class Norm { none, batch, layer, rms, group };

struct MlpOptions {
  Norm norm = Norm::none;
  Index groups = 8;          ///< Of Norm::group; must divide every hidden size into groups of two or more.
  double dropout = 0;        ///< Of each hidden activation, in [0, 1].
  double input_dropout = 0;  ///< Of the network's input, in [0, 1].
  Init init = Init::he;      ///< Of every linear layer.
  std::uint64_t seed = 0;    ///< Of the start and of the masks.
};

/// A multilayer perceptron of any depth: (dropout,) linear, norm, ReLU, dropout, ..., linear.
///
///     ek::Mlp<float> net({391, 64, 64, 4}, {.norm = ek::Norm::layer, .dropout = 0.5, .seed = 3});
///
/// Shapes  input: (batch, first size); output: (batch, last size).
/// Modes   handed to every layer.
/// Names   those of the torch.nn.Sequential of the layers that are there: a norm is not with Norm::none, a dropout is only
///         with p > 0.
/// Start   Linear layer k (0, 1, ...) has the path "linear.k" in its random streams: networks that differ only in norm and
///         dropout start from the same weights.
template <Storable Scalar_>
class Mlp final : public Chain<Mlp<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "Mlp";

  /// Throws std::invalid_argument for fewer than two sizes, a size < 1, a probability outside [0, 1], or groups that do not
  /// divide a hidden size or are of a single feature.
  explicit Mlp(const std::vector<Index>& sizes, MlpOptions options = {}) {
    if (sizes.size() < 2)
      EVENKEEL_THROW(std::invalid_argument, name, ": expected at least two sizes, input and output, got ",
                     sizes.size());
    for (const Index size : sizes) detail::at_least(1, size, name, "every size");
    detail::fraction(options.dropout, name, "dropout");
    detail::fraction(options.input_dropout, name, "input_dropout");

    const auto add_dropout = [&](double p) {
      if (p > 0) layers_.emplace_back(Dropout<Scalar>(p, {.seed = options.seed}));
    };
    add_dropout(options.input_dropout);
    for (std::size_t k = 0; k + 1 < sizes.size(); ++k) {
      const Index out = sizes[k + 1];
      const LinearOptions linear{.init = options.init, .seed = options.seed, .path = "linear." + std::to_string(k)};
      layers_.emplace_back(Linear<Scalar>(sizes[k], out, linear));
      if (k + 2 == sizes.size()) break;
      switch (options.norm) {
        case Norm::none:
          break;
        case Norm::batch:
          layers_.emplace_back(BatchNorm<Scalar>(out));
          break;
        case Norm::layer:
          layers_.emplace_back(LayerNorm<Scalar>(out));
          break;
        case Norm::rms:
          layers_.emplace_back(RMSNorm<Scalar>(out));
          break;
        case Norm::group:
          layers_.emplace_back(GroupNorm<Scalar>(options.groups, out));
          break;
      }
      layers_.emplace_back(ReLU<Scalar>());
      add_dropout(options.dropout);
    }
    input_features_ = sizes.front();
    this->join();
  }

  Index layer_count() const { return static_cast<Index>(layers_.size()); }
  Index input_features() const { return input_features_; }

  /// Layer i, which is an L: `net.layer<ek::Linear<float>>(0)`. Throws std::invalid_argument where it is not.
  template <class L>
  L& layer(Index i) {
    return as<L>(layers_, i);
  }
  template <class L>
  const L& layer(Index i) const {
    return as<L>(layers_, i);
  }

  /// Calls f with layer i.
  template <class F>
  void visit(Index i, F&& f) {
    visit(layers_, i, f);
  }
  template <class F>
  void visit(Index i, F&& f) const {
    visit(layers_, i, f);
  }

  template <Storable U>
  Mlp<U> cast() const {
    Mlp<U> result({1, 1});
    result.layers_.clear();
    for (Index i = 0; i < layer_count(); ++i)
      visit(i, [&](const auto& layer) { result.layers_.emplace_back(layer.template cast<U>()); });
    result.input_features_ = input_features_;
    result.set_stream(this->path());
    return result;
  }

 private:
  template <Storable>
  friend class Mlp;
  using AnyLayer = std::variant<Linear<Scalar>, BatchNorm<Scalar>, LayerNorm<Scalar>, RMSNorm<Scalar>,
                                GroupNorm<Scalar>, ReLU<Scalar>, Dropout<Scalar>>;

  /// One get_if after another: nothing that could throw, as std::visit does.
  template <class Layers, class F>
  static void visit(Layers& layers, Index i, F& f) {
    auto& any = layers[static_cast<std::size_t>(i)];
    const auto visit_if = [&](auto* layer) {
      if (layer != nullptr) f(*layer);
      return layer != nullptr;
    };
    (void)(visit_if(std::get_if<Linear<Scalar>>(&any)) || visit_if(std::get_if<BatchNorm<Scalar>>(&any)) ||
           visit_if(std::get_if<LayerNorm<Scalar>>(&any)) || visit_if(std::get_if<RMSNorm<Scalar>>(&any)) ||
           visit_if(std::get_if<GroupNorm<Scalar>>(&any)) || visit_if(std::get_if<ReLU<Scalar>>(&any)) ||
           visit_if(std::get_if<Dropout<Scalar>>(&any)));
  }

  template <class L, class Layers>
  static auto& as(Layers& layers, Index i) {
    const auto count = static_cast<Index>(layers.size());
    if (i < 0 || i >= count)
      EVENKEEL_THROW(std::invalid_argument, "Mlp::layer: expected a number in [0, ", count, "), got ", i);
    auto* layer = std::get_if<L>(&layers[static_cast<std::size_t>(i)]);
    if (layer == nullptr) {
      const auto stop = [&](const auto& other) {
        EVENKEEL_THROW(std::invalid_argument, "Mlp::layer: expected layer ", i, " to be a ", L::name, ", got a ",
                       name_of(other));
      };
      visit(layers, i, stop);
    }
    return *layer;
  }

  std::vector<AnyLayer> layers_;  // at least one
  Index input_features_ = 0;      // the first size
};

}  // namespace evenkeel
