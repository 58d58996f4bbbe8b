#pragma once

#include <algorithm>  // max
#include <cmath>      // sqrt, abs
#include <limits>     // infinity
#include <utility>    // move

#include "evenkeel/core/check.hpp"                // is_finite
#include "evenkeel/core/error.hpp"                // EVENKEEL_THROW
#include "evenkeel/core/parameter.hpp"            // ParameterKind
#include "evenkeel/core/types.hpp"                // Real, Wide, Matrix
#include "evenkeel/layers/batch_norm.hpp"         // BatchNorm
#include "evenkeel/layers/layer_norm.hpp"         // LayerNorm
#include "evenkeel/layers/linear.hpp"             // Linear
#include "evenkeel/layers/rms_norm.hpp"           // RMSNorm
#include "evenkeel/layers/sparse_layer_base.hpp"  // InputOf

/// Folding: at inference a BatchNorm, and the gain and shift of any norm, are an affine map of each feature, which the Linear
/// layer beside it can do at no cost.
///
///     ek::Linear<float> one = ek::fold(linear, batch_norm);         // for x -> linear -> batch_norm
///     ek::Linear<float> one = ek::fold(batch_norm, linear);         // for x -> batch_norm -> linear
///     auto [norm, gained] = ek::fold(layer_norm, linear);           // the norm without weight and bias, and the Linear
///     auto [one, deviation] = ek::fold(linear, batch_norm, x);      // measured on the rows of x
///
/// New layers are returned, and those given stay as they are. Numbers are worked out in the wide type and rounded once.
namespace evenkeel {

/// What is left of a norm before a Linear layer: the norm without gain and shift, and the layer that has them.
template <class Norm_, class Linear_>
struct FoldedNorm {
  Norm_ norm;
  Linear_ linear;

  /// What the pair gives, in eval mode.
  template <class X>
  auto infer(const X& x) const {
    return linear.infer(norm.infer(x));
  }
};

/// What was folded, and how far its outputs are from those of the layers it stands for.
template <class Folded>
struct MeasuredFold {
  Folded folded;
  double
      deviation;  ///< The largest difference over the largest output, on the sample; infinite where one is not finite.
};

namespace detail {

/// An affine map of each feature: scale * (x - centre) + shift.
template <Real Scalar>
struct FeatureMap {
  using Row = Eigen::Array<Wide<Scalar>, 1, Eigen::Dynamic>;
  Row centre, scale, shift;

  explicit FeatureMap(Index features)
      : centre{Row::Zero(features)}, scale{Row::Ones(features)}, shift{Row::Zero(features)} {}

  /// Takes gain and shift of a norm, each for so many features; what it has not stays one and zero.
  template <class Norm>
  void take_parameters(const Norm& norm, Index positions = 1) {
    for (const auto& parameter : norm.parameters()) {
      Row& row = parameter.kind == ParameterKind::norm_scale ? scale : shift;
      for (Index j = 0; j < row.size(); ++j) row[j] = static_cast<Wide<Scalar>>(parameter.value(0, j / positions));
    }
  }
};

template <Real Scalar, int Channels>
FeatureMap<Scalar> feature_map(const BatchNorm<Scalar, Channels>& norm) {
  if (norm.buffers().empty())
    EVENKEEL_THROW(UsageError, "fold: expected a BatchNorm with running statistics, got one that tracks none");
  FeatureMap<Scalar> map(norm.input_features());
  map.take_parameters(norm, norm.positions());
  for (Index j = 0; j < norm.input_features(); ++j) {
    const Index c = j / norm.positions();
    const Scalar mean = norm.running_mean()[c], variance = norm.running_variance()[c];
    if (!is_finite(mean) || !is_finite(variance) || !(variance >= 0))
      EVENKEEL_THROW(std::invalid_argument, "fold: expected a finite mean and a finite variance >= 0 in channel ", c,
                     " of BatchNorm, got ", mean, " and ", variance);
    map.centre[j] = static_cast<Wide<Scalar>>(mean);
    map.scale[j] /= std::sqrt(static_cast<Wide<Scalar>>(variance) + static_cast<Wide<Scalar>>(norm.epsilon()));
  }
  return map;
}

template <Real Scalar, int Features>
FeatureMap<Scalar> feature_map(const LayerNorm<Scalar, Features>& norm) {
  FeatureMap<Scalar> map(norm.features());
  map.take_parameters(norm);
  return map;
}

template <Real Scalar, int Features>
FeatureMap<Scalar> feature_map(const RMSNorm<Scalar, Features>& norm) {
  FeatureMap<Scalar> map(norm.features());
  map.take_parameters(norm);
  map.scale += static_cast<Wide<Scalar>>(norm.weight_offset());
  return map;
}

template <class Norm>
void check_gain(const Norm& norm, const char* expected) {
  if (norm.parameters().empty())
    EVENKEEL_THROW(std::invalid_argument, "fold: expected ", expected, ", got one without: there is nothing to fold");
}

template <class First, class Second>
void check_neighbours(const First& first, const Second& second) {
  const Index given = first.output_features(first.input_features());
  if (given != second.input_features())
    EVENKEEL_THROW(ShapeError, "fold: ", First::name, " gives ", given, " features, but ", Second::name, " expects ",
                   second.input_features());
}

template <Real Scalar, int In, int Out>
bool has_bias(const Linear<Scalar, In, Out>& linear) {
  return linear.parameters().size() == 2;
}

/// x -> map -> linear in one layer.
template <Real Scalar, int In, int Out>
Linear<Scalar, In, Out> map_then_linear(const FeatureMap<Scalar>& map, const Linear<Scalar, In, Out>& linear,
                                        bool bias) {
  const Index in = linear.input_features(), out = linear.output_features(in);
  Linear<Scalar, In, Out> result(in, out, {.bias = bias});
  const auto from = linear.parameters();
  auto to = result.parameters();
  for (Index o = 0; o < out; ++o) {
    Wide<Scalar> constant = has_bias(linear) ? static_cast<Wide<Scalar>>(from[1].value(0, o)) : 0;
    for (Index i = 0; i < in; ++i) {
      const auto weight = static_cast<Wide<Scalar>>(from[0].value(o, i));
      to[0].value(o, i) = static_cast<Scalar>(weight * map.scale[i]);
      constant += weight * (map.shift[i] - map.scale[i] * map.centre[i]);
    }
    if (bias) to[1].value(0, o) = static_cast<Scalar>(constant);
  }
  return result;
}

/// x -> linear -> map in one layer.
template <Real Scalar, int In, int Out>
Linear<Scalar, In, Out> linear_then_map(const Linear<Scalar, In, Out>& linear, const FeatureMap<Scalar>& map) {
  const Index in = linear.input_features(), out = linear.output_features(in);
  Linear<Scalar, In, Out> result(in, out);
  const auto from = linear.parameters();
  auto to = result.parameters();
  for (Index o = 0; o < out; ++o) {
    const Wide<Scalar> bias = has_bias(linear) ? static_cast<Wide<Scalar>>(from[1].value(0, o)) : 0;
    for (Index i = 0; i < in; ++i)
      to[0].value(o, i) = static_cast<Scalar>(map.scale[o] * static_cast<Wide<Scalar>>(from[0].value(o, i)));
    to[1].value(0, o) = static_cast<Scalar>(map.scale[o] * (bias - map.centre[o]) + map.shift[o]);
  }
  return result;
}

/// The largest |actual - expected| over the largest |expected|, or over one where all of these are zero.
template <typename Scalar>
double deviation(const Matrix<Scalar>& actual, const Matrix<Scalar>& expected) {
  double difference = 0, largest = 0;
  for (Index i = 0; i < expected.rows(); ++i)
    for (Index j = 0; j < expected.cols(); ++j) {
      const auto one = static_cast<double>(actual(i, j)), other = static_cast<double>(expected(i, j));
      if (!is_finite(one) || !is_finite(other)) return std::numeric_limits<double>::infinity();
      difference = (std::max)(difference, std::abs(one - other));
      largest = (std::max)(largest, std::abs(other));
    }
  return largest > 0 ? difference / largest : difference;
}

}  // namespace detail

/// One Linear for a Linear and the BatchNorm behind it, as they are in eval mode:
///
///     weight' = scale * weight     bias' = scale * (bias - running_mean) + shift     scale = gain / sqrt(running_var + epsilon)
///
/// It has a bias, whether or not the one before had. With positions, every feature takes its channel's numbers.
/// Throws ShapeError where they do not fit, UsageError where the BatchNorm tracks no statistics, std::invalid_argument
/// where these are not finite.
/// Source  torch.nn.utils.fusion.fuse_linear_bn_eval.
template <Real Scalar, int In, int Out, int Channels>
Linear<Scalar, In, Out> fold(const Linear<Scalar, In, Out>& linear, const BatchNorm<Scalar, Channels>& norm) {
  detail::check_neighbours(linear, norm);
  return detail::linear_then_map(linear, detail::feature_map(norm));
}

/// One Linear for a BatchNorm and the Linear behind it, as they are in eval mode:
///
///     weight' = weight * scale     bias' = bias + weight (shift - scale * running_mean)
///
/// It has a bias; the rest is as above. Where a channel's mean is many times its deviation, digits are lost: BatchNorm takes
/// the mean away before it multiplies, a Linear cannot. Measure it, with a sample.
template <Real Scalar, int In, int Out, int Channels>
Linear<Scalar, In, Out> fold(const BatchNorm<Scalar, Channels>& norm, const Linear<Scalar, In, Out>& linear) {
  detail::check_neighbours(norm, linear);
  return detail::map_then_linear(detail::feature_map(norm), linear, true);
}

/// A LayerNorm and the Linear behind it, with the norm's gain and shift in the Linear:
///
///     weight' = weight * gain      bias' = bias + weight shift
///
/// The Linear has a bias if it or the norm had one. The pair can be trained further, without a gain of its own to learn.
/// Throws ShapeError where they do not fit, std::invalid_argument for a norm with neither gain nor shift.
template <Real Scalar, int Features, int In, int Out>
FoldedNorm<LayerNorm<Scalar, Features>, Linear<Scalar, In, Out>> fold(const LayerNorm<Scalar, Features>& norm,
                                                                      const Linear<Scalar, In, Out>& linear) {
  detail::check_neighbours(norm, linear);
  detail::check_gain(norm, "a LayerNorm with weight or bias");
  bool bias = detail::has_bias(linear);
  for (const auto& parameter : norm.parameters()) bias = bias || parameter.kind == ParameterKind::norm_shift;
  return {LayerNorm<Scalar, Features>(norm.features(), {.epsilon = norm.epsilon(), .weight = false, .bias = false}),
          detail::map_then_linear(detail::feature_map(norm), linear, bias)};
}

/// The same for an RMSNorm, whose gain is its weight, or one plus it (unit_offset).
template <Real Scalar, int Features, int In, int Out>
FoldedNorm<RMSNorm<Scalar, Features>, Linear<Scalar, In, Out>> fold(const RMSNorm<Scalar, Features>& norm,
                                                                    const Linear<Scalar, In, Out>& linear) {
  detail::check_neighbours(norm, linear);
  detail::check_gain(norm, "an RMSNorm with weight");
  return {RMSNorm<Scalar, Features>(norm.features(), {.epsilon = norm.epsilon(), .weight = false}),
          detail::map_then_linear(detail::feature_map(norm), linear, detail::has_bias(linear))};
}

/// Any of these, measured: how far the folded layers' outputs are from those of the layers given, on the rows of x. In float
/// and on data as layers see them it is some 1e-7.
template <class First, class Second, InputOf<typename First::Scalar> X>
auto fold(const First& first, const Second& second, const X& x) {
  auto folded = fold(first, second);
  const double deviation = detail::deviation<typename First::Scalar>(folded.infer(x), second.infer(first.infer(x)));
  return MeasuredFold<decltype(folded)>{std::move(folded), deviation};
}

}  // namespace evenkeel
