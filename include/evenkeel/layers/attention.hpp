#pragma once

#include <cmath>    // sqrt
#include <cstdint>  // uint64_t
#include <string>

#include "evenkeel/core/buffer.hpp"         // Buffer
#include "evenkeel/core/check.hpp"          // at_least
#include "evenkeel/core/random.hpp"         // RandomStream
#include "evenkeel/kernels/attention.hpp"   // the arithmetic
#include "evenkeel/kernels/dropout.hpp"     // dropout_forward
#include "evenkeel/layers/layer_base.hpp"   // LayerBase
#include "evenkeel/layers/linear.hpp"       // Linear
#include "evenkeel/layers/mask_source.hpp"  // MaskSource

namespace evenkeel {

struct CausalSelfAttentionOptions {
  double dropout = 0;      ///< Of the attention weights, in [0, 1].
  bool bias = true;        ///< Whether both projections have a bias to learn.
  std::uint64_t seed = 0;  ///< Of the start and of the masks.
  std::string path = {};   ///< Part of the names of the start's random streams.
};

/// Multi-head self-attention in which each token sees itself and those before it in its sequence.
///
///     [Q K V] = x in_proj_weight^T + in_proj_bias
///     y = concat over heads(drop(softmax(Q K^T / sqrt(features / heads))) V) out_proj.weight^T + out_proj.bias
///
/// Shapes  input, output and their gradients: (batch, features), a row being a token and `positions` consecutive rows a
///         sequence, so batch is a multiple of positions; in_proj_weight: (3 features, features); in_proj_bias: (1, 3 features);
///         out_proj.weight: (features, features); out_proj.bias: (1, features).
/// Modes   those of dropout.
/// Masks   those of a Dropout on the weights as a matrix: a row for each (sequence, head, query), in this order, a column for each
///         key of the sequence; see kernels::MaskKey.
/// Start   PyTorch's: in_proj_weight uniform in +-sqrt(6 / (4 features)), out_proj.weight in +-1/sqrt(features), row by row from
///         RandomStream(seed, stream_of("in_proj_weight")) and stream_of("out_proj.weight"), with a path "path.in_proj_weight"
///         ...; biases zero.
/// Source  Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762; torch.nn.MultiheadAttention(features, heads,
///         dropout, bias) with a causal mask on x, x, x.
template <Real Scalar_>
class CausalSelfAttention final : public LayerBase<CausalSelfAttention<Scalar_>, Scalar_>, public detail::MaskSource {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "CausalSelfAttention";

  /// Throws std::invalid_argument unless all sizes are >= 1, features is a multiple of heads, and dropout is in [0, 1].
  CausalSelfAttention(Index features, Index heads, Index positions, CausalSelfAttentionOptions options = {})
      : detail::MaskSource(options.dropout, options.seed, name, "dropout"),
        shape_{detail::at_least(1, heads, name, "heads"), detail::at_least(1, positions, name, "positions"),
               detail::at_least(1, features, name, "features")},
        in_proj_(features, 3 * features, {.bias = options.bias, .init = Init::normal(0)}),
        out_proj_(features, features, {.bias = options.bias, .init = Init::normal(0)}) {
    if (features % heads != 0)
      EVENKEEL_THROW(std::invalid_argument, name, ": expected features to be a multiple of the ", heads, " heads, got ",
                     features);
    const auto start = [&](Linear<Scalar>& linear, const std::string& parameter, double bound) {
      const std::string path = options.path.empty() ? parameter : options.path + "." + parameter;
      RandomStream random(options.seed, stream_of(path));
      auto weight = linear.parameters().front().value;
      for (Index i = 0; i < weight.rows(); ++i)
        for (Index j = 0; j < weight.cols(); ++j)
          weight(i, j) = static_cast<Scalar>(bound * (2 * random.uniform() - 1));
    };
    const auto n = static_cast<double>(features);
    start(in_proj_, "in_proj_weight", std::sqrt(6 / (4 * n)));
    start(out_proj_, "out_proj.weight", 1 / std::sqrt(n));
  }

  Index heads() const { return shape_.heads; }
  Index positions() const { return shape_.positions; }
  Index rows_per_example() const { return shape_.positions; }
  double dropout() const { return probability(); }
  Index input_features() const { return shape_.features; }
  Index output_features(Index) const { return shape_.features; }

  Parameters<Scalar> parameters() { return named(in_proj_.parameters(), out_proj_.parameters()); }
  Parameters<const Scalar> parameters() const { return named(in_proj_.parameters(), out_proj_.parameters()); }

  template <Real U>
  CausalSelfAttention<U> cast() const {
    CausalSelfAttention<U> result(shape_.features, shape_.heads, shape_.positions);
    static_cast<detail::MaskSource&>(result) = *this;
    result.in_proj_ = in_proj_.template cast<U>();
    result.out_proj_ = out_proj_.template cast<U>();
    return result;
  }

  void check_input(Index rows, Index columns, Mode, const char* function) const {
    detail::check_columns(name, function, shape_.features, rows, columns);
    if (rows % shape_.positions != 0)
      EVENKEEL_THROW(ShapeError, name, "::", function, ": expected input of shape (batch, ", shape_.features,
                     "), batch being a multiple of the ", shape_.positions, " positions of a sequence, got ",
                     detail::shape(rows, columns));
  }

 private:
  friend LayerBase<CausalSelfAttention, Scalar>;
  template <Real>
  friend class CausalSelfAttention;

  static constexpr bool needs_input() { return true; }

  template <class Views>
  static Views named(Views in_proj, Views out_proj) {
    for (auto& view : in_proj) view.name = "in_proj_" + view.name;
    for (auto& view : out_proj) {
      view.name = "out_proj." + view.name;
      in_proj.push_back(view);
    }
    return in_proj;
  }

  View<Scalar> qkv(Index rows) { return qkv_.matrix(rows, 3 * shape_.features); }
  View<Scalar> mixed(Index rows) { return mixed_.matrix(rows, shape_.features); }
  View<Scalar> weights(Index rows) { return weights_.matrix(shape_.weight_rows(rows), shape_.positions); }
  View<Scalar> changed_weights(Index rows) {
    return changed_weights_.matrix(shape_.weight_rows(rows), shape_.positions);
  }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    const Index rows = x.rows;
    in_proj_.forward(as_map(x), as_map(qkv(rows)), mode);
    kernels::attention_weights<Scalar>(qkv(rows), shape_, weights(rows));
    begin_call(mode);
    View<const Scalar> used = weights(rows);
    if (masked()) {
      kernels::dropout_forward(used, key(), scale<Scalar>(), changed_weights(rows),
                               mask_.resize(kernels::mask_words(used.size())));
      used = changed_weights(rows);
    }
    kernels::attention_mix<Scalar>(used, qkv(rows), shape_, mixed(rows));
    out_proj_.forward(as_map(View<const Scalar>(mixed(rows))), as_map(y), mode);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    const Index rows = x.rows;
    const View<Scalar> dmixed = mixed_gradient_.matrix(rows, shape_.features);
    const View<Scalar> dqkv = qkv_gradient_.matrix(rows, 3 * shape_.features);
    const View<Scalar> dweights = changed_weights(rows);
    out_proj_.backward(as_map(View<const Scalar>(mixed(rows))), as_map(dy), as_map(dmixed), accumulate);
    View<const Scalar> used = weights(rows);
    if (masked()) {  // as forward used them
      kernels::dropout_backward(used, mask_.data(), scale<Scalar>(), dweights);
      used = dweights;
    }
    kernels::attention_mix_backward<Scalar>(used, qkv(rows), shape_, dmixed, dweights, dqkv);
    if (masked()) kernels::dropout_backward<Scalar>(dweights, mask_.data(), scale<Scalar>(), dweights);
    kernels::attention_weights_backward<Scalar>(weights(rows), qkv(rows), shape_, dweights, dqkv);
    if (dx.data != nullptr)
      in_proj_.backward(as_map(x), as_map(View<const Scalar>(dqkv)), as_map(dx), accumulate);
    else
      in_proj_.backward_parameters(as_map(x), as_map(View<const Scalar>(dqkv)), accumulate);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    const View<Scalar> qkv = frame.take(x.rows, 3 * shape_.features), mixed = frame.take(x.rows, shape_.features);
    const View<Scalar> weights = frame.take(shape_.weight_rows(x.rows), shape_.positions);
    in_proj_.infer(as_map(x), as_map(qkv), workspace);
    kernels::attention_weights<Scalar>(qkv, shape_, weights);
    kernels::attention_mix<Scalar>(weights, qkv, shape_, mixed);
    out_proj_.infer(as_map(View<const Scalar>(mixed)), as_map(y), workspace);
  }

  kernels::AttentionShape shape_;           // checked
  Linear<Scalar> in_proj_, out_proj_;       // to queries, keys and values; from what the heads have mixed
  detail::Buffer<Scalar> qkv_, mixed_;      // (batch, 3 features), (batch, features), of the last forward
  detail::Buffer<Scalar> weights_;          // (sequences x heads x positions, positions), of the last forward
  detail::Buffer<Scalar> changed_weights_;  // dropped, or their gradients
  detail::Buffer<std::uint64_t> mask_;      // of the last forward
  detail::Buffer<Scalar> qkv_gradient_, mixed_gradient_;
};

}  // namespace evenkeel
