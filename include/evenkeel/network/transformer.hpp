#pragma once

#include <cstdint>  // uint64_t
#include <string>
#include <string_view>
#include <tuple>
#include <utility>  // move
#include <vector>

#include "evenkeel/core/check.hpp"            // at_least
#include "evenkeel/kernels/activation.hpp"    // Relu, Gelu
#include "evenkeel/layers/activation.hpp"     // Activation
#include "evenkeel/layers/attention.hpp"      // CausalSelfAttention
#include "evenkeel/layers/dropout.hpp"        // Dropout
#include "evenkeel/layers/layer_norm.hpp"     // LayerNorm
#include "evenkeel/layers/linear.hpp"         // Linear
#include "evenkeel/layers/residual_base.hpp"  // ResidualBase
#include "evenkeel/network/chain.hpp"         // Chain

namespace evenkeel {

/// Between the two linear layers of a Transformer's feed-forward network.
enum class TransformerActivation { relu, gelu };

namespace kernels {

/// One of two functions, chosen at run time.
struct ReluOrGelu {
  static constexpr const char* name = "ReLU or GELU";
  TransformerActivation which = TransformerActivation::relu;

  ReluOrGelu() = default;
  explicit ReluOrGelu(TransformerActivation activation) : which{activation} {}

  template <typename Scalar>
  Scalar value(Scalar x) const {
    return which == TransformerActivation::relu ? Relu().value(x) : Gelu().value(x);
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    return which == TransformerActivation::relu ? Relu().gradient(x, dy) : Gelu().gradient(x, dy);
  }
};

}  // namespace kernels

struct FeedForwardOptions {
  TransformerActivation activation = TransformerActivation::relu;
  double dropout = 0;      ///< Of the hidden activations, in [0, 1].
  std::uint64_t seed = 0;  ///< Of the start and of the masks.
  std::string path = {};   ///< Part of the names of the start's random streams.
};

/// The network that a Transformer applies to each token: linear2(drop(activation(linear1(x)))).
///
/// Shapes  input and output: (batch, features).
/// Names   of parameters: "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"; of the masks' stream: "dropout".
/// Start   That of Linear layers with the paths "linear1" and "linear2".
/// Source  Vaswani et al. 2017, equation 2; part of torch.nn.TransformerEncoderLayer.
template <Real Scalar_>
class FeedForward final : public Chain<FeedForward<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "FeedForward";

  /// Throws std::invalid_argument for a size < 1 or a dropout outside [0, 1].
  FeedForward(Index features, Index hidden, FeedForwardOptions options = {})
      : layers_(Linear<Scalar>(features, detail::at_least(1, hidden, name, "hidden"),
                               {.seed = options.seed, .path = detail::joined_path(options.path, "linear1")}),
                Activation<Scalar, kernels::ReluOrGelu>(options.activation),
                Dropout<Scalar>(options.dropout, {.seed = options.seed}),
                Linear<Scalar>(detail::at_least(1, hidden, name, "hidden"), features,
                               {.seed = options.seed, .path = detail::joined_path(options.path, "linear2")})) {
    this->join();
  }

  Index layer_count() const { return 4; }
  Index input_features() const { return std::get<0>(layers_).input_features(); }
  static std::string layer_path(Index i) {
    constexpr const char* names[] = {"linear1", "activation", "dropout", "linear2"};
    return names[i];
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

  template <Real U>
  FeedForward<U> cast() const {
    FeedForward<U> result(1, 1);
    std::apply([&](const auto&... each) { result.layers_ = {each.template cast<U>()...}; }, layers_);
    result.set_stream(this->path());
    return result;
  }

 private:
  template <Real>
  friend class FeedForward;

  template <class Layers, class F>
  static void visit(Layers& layers, Index i, F& f) {
    if (i == 0) return f(std::get<0>(layers));
    if (i == 1) return f(std::get<1>(layers));
    if (i == 2) return f(std::get<2>(layers));
    f(std::get<3>(layers));
  }

  std::tuple<Linear<Scalar>, Activation<Scalar, kernels::ReluOrGelu>, Dropout<Scalar>, Linear<Scalar>> layers_;
};

struct TransformerBlockOptions {
  NormPlace norm = NormPlace::before;  ///< PyTorch's norm_first = True. (Its default is after.)
  TransformerActivation activation = TransformerActivation::relu;
  double dropout =
      0.1;  ///< Of attention weights, of hidden activations and of both branches' outputs. PyTorch's default.
  double epsilon = 1e-5;   ///< Of both norms.
  std::uint64_t seed = 0;  ///< Of the start and of the masks.
  std::string path = {};   ///< Part of the names of the start's random streams.
};

/// One block of a Transformer that reads from left to right: causal attention between the tokens of a sequence, then a network on
/// each token, both with residual connection, dropout and norm.
///
///     h = x + drop(attention(norm1(x)));   y = h + drop(feed_forward(norm2(h)))        NormPlace::before
///     h = norm1(x + drop(attention(x)));   y = norm2(h + drop(feed_forward(h)))        NormPlace::after
///
///     ek::Sequential net{ek::Linear<float>(40, 64), ek::TransformerBlock<float>(64, 4, 256, 32, {.seed = 1}),
///                        ek::TransformerBlock<float>(64, 4, 256, 32, {.seed = 2}), ek::LayerNorm<float>(64),
///                        ek::Linear<float>(64, 40)};
///
/// With the norms before, a norm behind the last block is needed, as here: the stream itself is never normalized.
///
/// Shapes  input, output and their gradients: (batch, features), a row being a token, `positions` consecutive rows a sequence.
/// Modes   those of dropout.
/// Masks   those of dropouts with the paths "self_attn", "dropout1", "dropout" (hidden) and "dropout2" in the block.
/// Names   PyTorch's: "self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight",
///         "norm1.weight", "norm2.weight" and their biases.
/// Source  Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762; Xiong et al. 2020, figure 1,
///         https://arxiv.org/abs/2002.04745; torch.nn.TransformerEncoderLayer(features, heads, hidden) with a causal mask.
template <Real Scalar_, class NormLayer = LayerNorm<Scalar_>>
class TransformerBlock final : public ResidualBase<TransformerBlock<Scalar_, NormLayer>, NormLayer> {
  using Base = ResidualBase<TransformerBlock, NormLayer>;

 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "TransformerBlock";

  /// Throws std::invalid_argument unless all sizes are >= 1, features is a multiple of heads, and dropout is in [0, 1].
  TransformerBlock(Index features, Index heads, Index hidden, Index positions, TransformerBlockOptions options = {})
      : Base(options.norm, std::vector<NormLayer>(2, NormLayer(features, {.epsilon = options.epsilon})), 2,
             options.dropout, options.seed),
        attention_(
            features, heads, positions,
            {.dropout = options.dropout, .seed = options.seed, .path = detail::joined_path(options.path, "self_attn")}),
        feed_forward_(
            features, detail::at_least(1, hidden, name, "hidden"),
            {.activation = options.activation, .dropout = options.dropout, .seed = options.seed, .path = options.path}),
        hidden_{hidden},
        options_{options} {
    this->join();
  }

  Index branch_count() const { return 2; }
  template <class F>
  void visit(Index i, F&& f) {
    i == 0 ? f(attention_) : f(feed_forward_);
  }
  template <class F>
  void visit(Index i, F&& f) const {
    i == 0 ? f(attention_) : f(feed_forward_);
  }
  static std::string branch_path(Index i) { return i == 0 ? "self_attn" : ""; }
  static std::string norm_path(Index i) { return i == 0 ? "norm1" : "norm2"; }
  static std::string dropout_path(Index i) { return i == 0 ? "dropout1" : "dropout2"; }

  template <Real U>
  auto cast() const {
    TransformerBlock<U, decltype(this->norm(0).template cast<U>())> result(
        attention_.input_features(), attention_.heads(), hidden_, attention_.positions(), options_);
    result.attention_ = attention_.template cast<U>();
    result.feed_forward_ = feed_forward_.template cast<U>();
    this->cast_into(result);
    return result;
  }

 private:
  template <Real, class>
  friend class TransformerBlock;

  CausalSelfAttention<Scalar> attention_;
  FeedForward<Scalar> feed_forward_;
  Index hidden_;
  TransformerBlockOptions options_;
};

}  // namespace evenkeel
