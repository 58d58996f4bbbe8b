#pragma once

#include "evenkeel/kernels/alpha_dropout.hpp"
#include "evenkeel/kernels/batch_norm.hpp"
#include "evenkeel/kernels/channel_moments.hpp"
#include "evenkeel/kernels/column_moments.hpp"
#include "evenkeel/kernels/dropout.hpp"
#include "evenkeel/kernels/product.hpp"
#include "evenkeel/kernels/residual_norm.hpp"
#include "evenkeel/kernels/row_norm.hpp"
#include "evenkeel/kernels/spatial_dropout.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/attention.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"

/// What takes long to compile, kernels and the layers around them: declared here for all tests and examples, instantiated for
/// each scalar type in a file of its own.
#define EVENKEEL_KERNEL(prefix, ...) prefix template decltype(__VA_ARGS__) __VA_ARGS__;
#define EVENKEEL_KERNELS(prefix, Scalar)                                                                \
  namespace evenkeel::kernels {                                                                         \
  EVENKEEL_KERNEL(prefix, row_norm_forward<ByMoments<Scalar>, Affine<Scalar>>)                          \
  EVENKEEL_KERNEL(prefix, row_norm_backward<ByMoments<Scalar>, Affine<Scalar>>)                         \
  EVENKEEL_KERNEL(prefix, row_norm_forward<ByMoments<Scalar>, ChannelAffine<Scalar>>)                   \
  EVENKEEL_KERNEL(prefix, row_norm_backward<ByMoments<Scalar>, ChannelAffine<Scalar>>)                  \
  EVENKEEL_KERNEL(prefix, row_norm_forward<ByRms<Scalar>, Affine<Scalar>>)                              \
  EVENKEEL_KERNEL(prefix, row_norm_backward<ByRms<Scalar>, Affine<Scalar>>)                             \
  EVENKEEL_KERNEL(prefix, column_moments<Scalar>)                                                       \
  EVENKEEL_KERNEL(prefix, channel_moments<Scalar>)                                                      \
  EVENKEEL_KERNEL(prefix, column_gradient_sums<Scalar>)                                                 \
  EVENKEEL_KERNEL(prefix, channel_gradient_sums<Scalar>)                                                \
  EVENKEEL_KERNEL(prefix, transform_channels<Scalar>)                                                   \
  EVENKEEL_KERNEL(prefix, scale_channels<Scalar>)                                                       \
  EVENKEEL_KERNEL(prefix, transform_channel_gradients<Scalar>)                                          \
  EVENKEEL_KERNEL(prefix, dropout_forward<Scalar>)                                                      \
  EVENKEEL_KERNEL(prefix, dropout_backward<Scalar>)                                                     \
  EVENKEEL_KERNEL(prefix, alpha_dropout_forward<Scalar>)                                                \
  EVENKEEL_KERNEL(prefix, spatial_dropout<Scalar>)                                                      \
  EVENKEEL_KERNEL(prefix, residual_forward<Scalar>)                                                     \
  EVENKEEL_KERNEL(prefix, residual_backward<Scalar>)                                                    \
  EVENKEEL_KERNEL(prefix, residual_norm_forward<ByMoments<Scalar>>)                                     \
  EVENKEEL_KERNEL(prefix, residual_norm_backward<ByMoments<Scalar>>)                                    \
  EVENKEEL_KERNEL(prefix, residual_norm_forward<ByRms<Scalar>>)                                         \
  EVENKEEL_KERNEL(prefix, residual_norm_backward<ByRms<Scalar>>)                                        \
  prefix template void multiply<Scalar>(View<const Scalar>, View<const Scalar>, View<Scalar>, Product); \
  }

#define EVENKEEL_LAYERS(prefix, Scalar)                    \
  namespace evenkeel {                                     \
  prefix template class BatchNorm<Scalar>;                 \
  prefix template class LayerNorm<Scalar>;                 \
  prefix template class RMSNorm<Scalar>;                   \
  prefix template class GroupNorm<Scalar>;                 \
  prefix template class InstanceNorm<Scalar>;              \
  prefix template class Dropout<Scalar>;                   \
  prefix template class AlphaDropout<Scalar>;              \
  prefix template class SpatialDropout<Scalar>;            \
  prefix template class Linear<Scalar>;                    \
  prefix template class Activation<Scalar, kernels::Relu>; \
  prefix template class Activation<Scalar, kernels::Gelu>; \
  prefix template class Activation<Scalar, kernels::Silu>; \
  }
#define EVENKEEL_ALL(prefix, Scalar)                 \
  EVENKEEL_KERNELS(prefix, Scalar)                   \
  EVENKEEL_LAYERS(prefix, Scalar)                    \
  namespace evenkeel {                               \
  prefix template class CausalSelfAttention<Scalar>; \
  }

EVENKEEL_ALL(extern, float)
EVENKEEL_ALL(extern, double)
EVENKEEL_ALL(extern, long double)
EVENKEEL_LAYERS(extern, Eigen::half)
EVENKEEL_LAYERS(extern, Eigen::bfloat16)
