#pragma once

#include "evenkeel/core/buffer.hpp"         // Buffer
#include "evenkeel/core/check.hpp"          // positive, size_of
#include "evenkeel/core/parameter.hpp"      // Parameter
#include "evenkeel/core/types.hpp"          // Storable, Arithmetic
#include "evenkeel/kernels/layer_norm.hpp"  // the arithmetic
#include "evenkeel/layers/layer_base.hpp"   // LayerBase

namespace evenkeel {

struct LayerNormOptions {
  double epsilon =
      1e-5;            ///< Added to the variance, under the root. Finite, > 0; unit: input squared. PyTorch's default.
  bool weight = true;  ///< Whether there is a gain for each feature to learn; else it is one.
  bool bias = true;    ///< Whether there is a shift for each feature to learn; else it is zero.
};

/// Normalizes each example over its features, then scales and shifts each feature.
///
///     y = weight * (x - mean) / sqrt(variance + epsilon) + bias      mean and biased variance of the row
///
/// Shapes  input, output and their gradients: (batch, features); weight, bias: (1, features), starting at one and zero.
/// Modes   all compute the same.
/// Source  Ba, Kiros & Hinton 2016, equations 3 and 4, https://arxiv.org/abs/1607.06450; torch.nn.LayerNorm(features).
template <Storable Scalar_, int Features = Eigen::Dynamic>
class LayerNorm final : public LayerBase<LayerNorm<Scalar_, Features>, Scalar_> {
 public:
  using Scalar = Scalar_;
  using Number = Arithmetic<Scalar>;  ///< Of parameters and statistics.
  static constexpr const char* name = "LayerNorm";

  /// Throws std::invalid_argument if features < 1 or epsilon is not a positive finite number.
  explicit LayerNorm(Index features, LayerNormOptions options = {})
      : features_{detail::size_of<Features>(features, name)},
        options_{options},
        weight_{"weight", ParameterKind::norm_scale, 1, features_, Number(1), options.weight},
        bias_{"bias", ParameterKind::norm_shift, 1, features_, Number(0), options.bias} {
    detail::positive(options.epsilon, name, "epsilon");
  }
  explicit LayerNorm(LayerNormOptions options = {}) requires(Features != Eigen::Dynamic)
      : LayerNorm(Features, options) {}

  Index features() const { return features_; }
  double epsilon() const { return options_.epsilon; }
  Index input_features() const { return features_; }
  Index output_features(Index) const { return features_; }
  static constexpr int fixed_output_features(int features) { return detail::fixed_features(Features, features); }
  static constexpr Index fixed_infer_bytes(int rows, int features) {
    const Index needed = kernels::packed_row_norm_forward_scratch<Scalar>(rows, features, 1);
    return needed > 0 ? Workspace<Scalar>::template bytes<Wide<Scalar>>(needed) : 0;
  }

  Parameters<Number> parameters() { return detail::parameter_views<Number>(weight_, bias_); }
  Parameters<const Number> parameters() const { return detail::parameter_views<const Number>(weight_, bias_); }

  template <Storable U>
  LayerNorm<U, Features> cast() const {
    LayerNorm<U, Features> result(features_, options_);
    result.weight_ = weight_.template cast<Arithmetic<U>>();
    result.bias_ = bias_.template cast<Arithmetic<U>>();
    return result;
  }

  /// What this layer computes with, for kernels that do its work together with that of its neighbours; it keeps what they
  /// keep of so many rows. The const one keeps nothing.
  kernels::RowNorm<kernels::ByMoments<Number>> row_norm(Index rows) {
    return {{weight_.data(), bias_.data()},
            options_.epsilon,
            moments_.resize(rows),
            weight_.gradient().data,
            bias_.gradient().data};
  }
  kernels::RowNorm<kernels::ByMoments<Number>> row_norm() const {
    return {{weight_.data(), bias_.data()}, options_.epsilon};
  }

  void check_input(Index rows, Index columns, Mode, const char* function) const {
    detail::check_columns(name, function, features_, rows, columns);
  }

 private:
  friend LayerBase<LayerNorm, Scalar>;
  template <Storable, int>
  friend class LayerNorm;

  static constexpr bool needs_input() { return true; }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode) {
    Wide<Scalar>* scratch = scratch_.resize(kernels::row_norm_forward_scratch<Scalar>(x, y));
    kernels::layer_norm_forward(x, weight_.data(), bias_.data(), options_.epsilon, y, moments_.resize(x.rows), scratch);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    Wide<Scalar>* scratch = scratch_.resize(kernels::row_norm_backward_scratch<Scalar>(x, dy, dx));
    kernels::layer_norm_backward(x, dy, weight_.data(), moments_.data(), dx, weight_.gradient().data,
                                 bias_.gradient().data, accumulate, scratch);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    const Index needed = kernels::row_norm_forward_scratch<Scalar>(x, y);
    auto* scratch = needed > 0 ? frame.template take_array<Wide<Scalar>>(needed) : nullptr;
    kernels::layer_norm_forward<Scalar>(x, weight_.data(), bias_.data(), options_.epsilon, y, nullptr, scratch);
  }

  Index features_;                                       // >= 1
  LayerNormOptions options_;                             // checked
  detail::Parameter<Number> weight_;                     // (1, features), starts at one
  detail::Parameter<Number> bias_;                       // (1, features), starts at zero
  detail::Buffer<kernels::RowMoments<Number>> moments_;  // (batch), of the last forward
  detail::Buffer<Wide<Scalar>> scratch_;                 // partial sums, packed rows
};

}  // namespace evenkeel
