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

/// The kernels that take long to compile: declared here for all tests and examples, instantiated for each scalar type in a
/// file of its own.
#define EVENKEEL_KERNEL(prefix, ...) prefix template decltype(__VA_ARGS__) __VA_ARGS__;
#define EVENKEEL_KERNELS(prefix, Scalar)                                               \
  namespace evenkeel::kernels {                                                        \
  EVENKEEL_KERNEL(prefix, row_norm_forward<ByMoments<Scalar>, Affine<Scalar>>)         \
  EVENKEEL_KERNEL(prefix, row_norm_backward<ByMoments<Scalar>, Affine<Scalar>>)        \
  EVENKEEL_KERNEL(prefix, row_norm_forward<ByMoments<Scalar>, ChannelAffine<Scalar>>)  \
  EVENKEEL_KERNEL(prefix, row_norm_backward<ByMoments<Scalar>, ChannelAffine<Scalar>>) \
  EVENKEEL_KERNEL(prefix, row_norm_forward<ByRms<Scalar>, Affine<Scalar>>)             \
  EVENKEEL_KERNEL(prefix, row_norm_backward<ByRms<Scalar>, Affine<Scalar>>)            \
  EVENKEEL_KERNEL(prefix, column_moments<Scalar>)                                      \
  EVENKEEL_KERNEL(prefix, channel_moments<Scalar>)                                     \
  EVENKEEL_KERNEL(prefix, column_gradient_sums<Scalar>)                                \
  EVENKEEL_KERNEL(prefix, channel_gradient_sums<Scalar>)                               \
  EVENKEEL_KERNEL(prefix, transform_channels<Scalar>)                                  \
  EVENKEEL_KERNEL(prefix, scale_channels<Scalar>)                                      \
  EVENKEEL_KERNEL(prefix, transform_channel_gradients<Scalar>)                         \
  EVENKEEL_KERNEL(prefix, dropout_forward<Scalar>)                                     \
  EVENKEEL_KERNEL(prefix, dropout_backward<Scalar>)                                    \
  EVENKEEL_KERNEL(prefix, alpha_dropout_forward<Scalar>)                               \
  EVENKEEL_KERNEL(prefix, spatial_dropout<Scalar>)                                     \
  EVENKEEL_KERNEL(prefix, residual_forward<Scalar>)                                    \
  EVENKEEL_KERNEL(prefix, residual_backward<Scalar>)                                   \
  EVENKEEL_KERNEL(prefix, residual_norm_forward<ByMoments<Scalar>>)                    \
  EVENKEEL_KERNEL(prefix, residual_norm_backward<ByMoments<Scalar>>)                   \
  EVENKEEL_KERNEL(prefix, residual_norm_forward<ByRms<Scalar>>)                        \
  EVENKEEL_KERNEL(prefix, residual_norm_backward<ByRms<Scalar>>)                       \
  EVENKEEL_KERNEL(prefix, multiply<Scalar>)                                            \
  }

EVENKEEL_KERNELS(extern, float)
EVENKEEL_KERNELS(extern, double)
EVENKEEL_KERNELS(extern, long double)
