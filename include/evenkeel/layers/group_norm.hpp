#pragma once

#include <concepts>  // integral

#include "evenkeel/core/buffer.hpp"         // Buffer
#include "evenkeel/core/check.hpp"          // positive, at_least, positions_of
#include "evenkeel/core/parameter.hpp"      // Parameter
#include "evenkeel/kernels/group_norm.hpp"  // the arithmetic
#include "evenkeel/layers/layer_base.hpp"   // LayerBase

namespace evenkeel {

struct GroupNormOptions {
  double epsilon =
      1e-5;            ///< Added to the variance, under the root. Finite, > 0; unit: input squared. PyTorch's default.
  bool affine = true;  ///< Whether there are a gain and a shift for each channel to learn; else they are one and zero.
};

namespace detail {

/// Groups of more than one value each, which divide the channels. Throws std::invalid_argument for others.
inline kernels::Groups groups_of(Index groups, Index channels, Index positions, const char* layer) {
  at_least(1, groups, layer, "groups");
  at_least(1, channels, layer, "channels");
  if (channels % groups != 0)
    EVENKEEL_THROW(std::invalid_argument, layer, ": expected channels that ", groups, " groups divide evenly, got ",
                   channels);
  const kernels::Groups result{groups, channels, positions_of(channels, positions, layer)};
  if (result.width() < 2)
    EVENKEEL_THROW(std::invalid_argument, layer,
                   ": expected more than one value per group to take statistics of, got 1 from ", channels,
                   " channels x ", positions, " positions in ", groups, " groups; use fewer groups");
  return result;
}

}  // namespace detail

/// Normalizes each example over groups of channels and all their positions, then scales and shifts each channel.
///
///     y = weight * (x - mean) / sqrt(variance + epsilon) + bias      mean and biased variance of the group
///
/// With one group it is LayerNorm over the row, but for the affine part; with one channel a group it is InstanceNorm.
///
/// Shapes  (batch, channels x positions), a row being channel after channel (NCHW flattened); weight, bias: (1, channels),
///         starting at one and zero.
/// Modes   all compute the same.
/// Errors  A group of a single value has no statistics: std::invalid_argument in the constructor. (PyTorch refuses it in the
///         forward of a batch of one and returns the bias for larger ones.)
/// Source  Wu & He 2018, section 3, https://arxiv.org/abs/1803.08494; torch.nn.GroupNorm(groups, channels).
template <Storable Scalar_>
class GroupNorm final : public LayerBase<GroupNorm<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  using Number = Arithmetic<Scalar>;  ///< Of parameters and statistics.
  static constexpr const char* name = "GroupNorm";

  /// Throws std::invalid_argument if a size is < 1, channels x positions is beyond Index, groups do not divide
  /// channels, a group is of a single value, or epsilon is not a positive finite number.
  GroupNorm(Index groups, Index channels, GroupNormOptions options = {})
      : GroupNorm(groups, channels, Index{1}, options) {}
  template <std::integral Positions>  // not Index: {} is options, not positions
  GroupNorm(Index groups, Index channels, Positions positions, GroupNormOptions options = {})
      : groups_{detail::groups_of(groups, channels, static_cast<Index>(positions), name)},
        options_{options},
        weight_{"weight", ParameterKind::norm_scale, 1, channels, Number(1), options.affine},
        bias_{"bias", ParameterKind::norm_shift, 1, channels, Number(0), options.affine} {
    detail::positive(options.epsilon, name, "epsilon");
  }

  Index groups() const { return groups_.groups; }
  Index channels() const { return groups_.channels; }
  Index positions() const { return groups_.positions; }
  double epsilon() const { return options_.epsilon; }
  Index input_features() const { return groups_.channels * groups_.positions; }
  Index output_features(Index) const { return input_features(); }

  Parameters<Number> parameters() { return detail::parameter_views<Number>(weight_, bias_); }
  Parameters<const Number> parameters() const { return detail::parameter_views<const Number>(weight_, bias_); }

  template <Storable U>
  GroupNorm<U> cast() const {
    GroupNorm<U> result(groups(), channels(), positions(), options_);
    result.weight_ = weight_.template cast<Arithmetic<U>>();
    result.bias_ = bias_.template cast<Arithmetic<U>>();
    return result;
  }

  void check_input(Index rows, Index columns, Mode, const char* function) const {
    detail::check_channel_columns(name, function, channels(), positions(), rows, columns);
  }

 private:
  friend LayerBase<GroupNorm, Scalar>;
  template <Storable>
  friend class GroupNorm;

  static constexpr bool needs_input() { return true; }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode) {
    Wide<Scalar>* scratch = scratch_.resize(kernels::group_norm_forward_scratch<Scalar>(x, y, groups_));
    kernels::group_norm_forward(x, groups_, weight_.data(), bias_.data(), options_.epsilon, y,
                                moments_.resize(x.rows * groups()), scratch);
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    Wide<Scalar>* scratch = scratch_.resize(kernels::group_norm_backward_scratch<Scalar>(x, dy, dx, groups_));
    kernels::group_norm_backward(x, dy, groups_, weight_.data(), moments_.data(), dx, weight_.gradient().data,
                                 bias_.gradient().data, accumulate, scratch);
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    const Index needed = kernels::group_norm_forward_scratch<Scalar>(x, y, groups_);
    auto* scratch = needed > 0 ? frame.template take_array<Wide<Scalar>>(needed) : nullptr;
    kernels::group_norm_forward<Scalar>(x, groups_, weight_.data(), bias_.data(), options_.epsilon, y, nullptr,
                                        scratch);
  }

  kernels::Groups groups_;                               // checked
  GroupNormOptions options_;                             // checked
  detail::Parameter<Number> weight_;                     // (1, channels), starts at one
  detail::Parameter<Number> bias_;                       // (1, channels), starts at zero
  detail::Buffer<kernels::RowMoments<Number>> moments_;  // (groups, batch), of the last forward
  detail::Buffer<Wide<Scalar>> scratch_;                 // partial sums, packed rows
};

}  // namespace evenkeel
