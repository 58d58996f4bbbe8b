#pragma once

#include "evenkeel/core/buffer.hpp"        // Buffer
#include "evenkeel/core/check.hpp"         // positive, size_of
#include "evenkeel/core/parameter.hpp"     // Parameter
#include "evenkeel/core/types.hpp"         // Storable, Arithmetic
#include "evenkeel/kernels/rms_norm.hpp"   // the arithmetic
#include "evenkeel/layers/layer_base.hpp"  // LayerBase

namespace evenkeel {

struct RMSNormOptions {
  double epsilon = 1e-5;     ///< Added to the mean square, under the root. Finite, > 0; unit: input squared.
  bool weight = true;        ///< Whether there is a gain for each feature to learn; else it is one.
  bool unit_offset = false;  ///< Scale by 1 + weight, the weight starting at zero, so that decay pulls the gain to one.
};

/// Divides each example by its root mean square, then scales each feature.
///
///     y = weight * x / sqrt(mean(x^2) + epsilon)      the mean being that of the row
///
/// Shapes  input, output and their gradients: (batch, features); weight: (1, features), starting at one.
/// Modes   all compute the same.
/// Source  Zhang & Sennrich 2019, equation 4, https://arxiv.org/abs/1910.07467, plus epsilon where torch.nn.RMSNorm has it.
///         PyTorch's default for epsilon is the type's machine epsilon; here it is 1e-5, as in every other norm.
template <Storable Scalar_, int Features = Eigen::Dynamic>
class RMSNorm final : public LayerBase<RMSNorm<Scalar_, Features>, Scalar_> {
 public:
  using Scalar = Scalar_;
  using Number = Arithmetic<Scalar>;  ///< Of parameters and statistics.
  static constexpr const char* name = "RMSNorm";

  /// Throws std::invalid_argument if features < 1 or epsilon is not a positive finite number.
  explicit RMSNorm(Index features, RMSNormOptions options = {})
      : features_{detail::size_of<Features>(features, name)},
        options_{options},
        weight_{"weight",
                ParameterKind::norm_scale,
                1,
                features_,
                options.unit_offset && options.weight ? Number(0) : Number(1),
                options.weight} {
    detail::positive(options.epsilon, name, "epsilon");
  }
  explicit RMSNorm(RMSNormOptions options = {}) requires(Features != Eigen::Dynamic) : RMSNorm(Features, options) {}

  Index features() const { return features_; }
  double epsilon() const { return options_.epsilon; }
  /// The gain is this plus the weight: one with unit_offset, else zero.
  Number weight_offset() const { return options_.unit_offset && options_.weight ? Number(1) : Number(0); }
  Index input_features() const { return features_; }
  Index output_features(Index) const { return features_; }
  static constexpr int fixed_output_features(int features) { return detail::fixed_features(Features, features); }
  static constexpr Index fixed_infer_bytes(int rows, int features) {
    const Index needed = kernels::packed_row_norm_forward_scratch<Scalar>(rows, features, 1);
    return needed > 0 ? Workspace<Scalar>::template bytes<Wide<Scalar>>(needed) : 0;
  }

  Parameters<Number> parameters() { return detail::parameter_views<Number>(weight_); }
  Parameters<const Number> parameters() const { return detail::parameter_views<const Number>(weight_); }

  template <Storable U>
  RMSNorm<U, Features> cast() const {
    RMSNorm<U, Features> result(features_, options_);
    result.weight_ = weight_.template cast<Arithmetic<U>>();
    return result;
  }

  /// What this layer computes with, for kernels that do its work together with that of its neighbours; it keeps what they
  /// keep of so many rows. The const one keeps nothing.
  kernels::RowNorm<kernels::ByRms<Number>> row_norm(Index rows) {
    return {{weight_.data(), nullptr, weight_offset()},
            options_.epsilon,
            inverse_rms_.resize(rows),
            weight_.gradient().data};
  }
  kernels::RowNorm<kernels::ByRms<Number>> row_norm() const {
    return {{weight_.data(), nullptr, weight_offset()}, options_.epsilon};
  }

  void check_input(Index rows, Index columns, Mode, const char* function) const {
    detail::check_columns(name, function, features_, rows, columns);
  }

 private:
  friend LayerBase<RMSNorm, Scalar>;
  template <Storable, int>
  friend class RMSNorm;

  static constexpr bool needs_input() { return true; }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode) {
    Wide<Scalar>* scratch = scratch_.resize(kernels::row_norm_forward_scratch<Scalar>(x, y));
    kernels::rms_norm_forward(x, weight_.data(), weight_offset(), options_.epsilon, y, inverse_rms_.resize(x.rows),
                              scratch);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    Wide<Scalar>* scratch = scratch_.resize(kernels::row_norm_backward_scratch<Scalar>(x, dy, dx));
    kernels::rms_norm_backward(x, dy, weight_.data(), weight_offset(), inverse_rms_.data(), dx, weight_.gradient().data,
                               accumulate, scratch);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    const Index needed = kernels::row_norm_forward_scratch<Scalar>(x, y);
    auto* scratch = needed > 0 ? frame.template take_array<Wide<Scalar>>(needed) : nullptr;
    kernels::rms_norm_forward<Scalar>(x, weight_.data(), weight_offset(), options_.epsilon, y, nullptr, scratch);
  }

  Index features_;                        // >= 1
  RMSNormOptions options_;                // checked
  detail::Parameter<Number> weight_;      // (1, features); the gain is weight_offset() + weight
  detail::Buffer<Number> inverse_rms_;    // (batch), of the last forward
  detail::Buffer<Wide<Scalar>> scratch_;  // partial sums, packed rows
};

}  // namespace evenkeel
