#pragma once

#include <concepts>  // constructible_from
#include <utility>   // forward

#include "evenkeel/kernels/activation.hpp"  // the functions
#include "evenkeel/layers/layer_base.hpp"   // LayerBase

namespace evenkeel {

/// Applies a function to each element: y = f(x). The functions and their sources stand in kernels/activation.hpp.
///
/// Shapes  input, output and their gradients: (batch, features), any number of features.
/// Modes   all compute the same.
template <Storable Scalar_, class Function>
class Activation final : public LayerBase<Activation<Scalar_, Function>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = Function::name;

  Activation() = default;
  /// With the function's argument: LeakyReLU<float>(0.2), GELU<float>(GeluForm::tanh).
  template <class Argument>
  requires(std::constructible_from<Function, Argument> &&
           !std::same_as<std::remove_cvref_t<Argument>, Activation>) explicit Activation(Argument&& argument)
      : function_(std::forward<Argument>(argument)) {}

  Index output_features(Index input_features) const { return input_features; }
  static constexpr int fixed_output_features(int features) { return features; }

  template <Storable U>
  Activation<U, Function> cast() const {
    return Activation<U, Function>(function_);
  }

  void check_input(Index, Index, Mode, const char*) const {}

 private:
  friend LayerBase<Activation, Scalar>;

  static constexpr bool needs_input() { return true; }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode) { kernels::activation_forward(x, function_, y); }
  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate) {
    if (dx.data != nullptr) kernels::activation_backward(x, dy, function_, dx);
  }
  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>&) const {
    kernels::activation_forward(x, function_, y);
  }

  Function function_;
};

template <Storable Scalar>
using ReLU = Activation<Scalar, kernels::Relu>;  ///< torch.nn.ReLU()
template <Storable Scalar>
using LeakyReLU = Activation<Scalar, kernels::LeakyRelu>;  ///< torch.nn.LeakyReLU(negative_slope = 0.01)
template <Storable Scalar>
using GELU = Activation<Scalar, kernels::Gelu>;  ///< torch.nn.GELU(approximate = "none" or "tanh")
template <Storable Scalar>
using SiLU = Activation<Scalar, kernels::Silu>;  ///< torch.nn.SiLU()
template <Storable Scalar>
using Tanh = Activation<Scalar, kernels::Tanh>;  ///< torch.nn.Tanh()
template <Storable Scalar>
using Sigmoid = Activation<Scalar, kernels::Sigmoid>;  ///< torch.nn.Sigmoid()

using kernels::GeluForm;

}  // namespace evenkeel
