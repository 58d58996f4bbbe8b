#pragma once

#include <concepts>  // copyable, convertible_to
#include <string_view>

#include "evenkeel/core/mode.hpp"       // Mode
#include "evenkeel/core/parameter.hpp"  // Parameters, Accumulate
#include "evenkeel/core/types.hpp"      // Index
#include "evenkeel/core/view.hpp"       // StridedMap
#include "evenkeel/core/workspace.hpp"  // Workspace

namespace evenkeel {

/// What a type must offer to stand in a network. Nothing needs to be derived from; evenkeel's own layers meet it.
///
///     using Scalar                              float, double, long double, or Eigen::half, Eigen::bfloat16
///     forward(x, y, mode)                       writes the output into y
///     backward(x, dy, dx)                       x as given to forward; writes d loss / d input into dx
///     infer(x, y, workspace) const              forward of Mode::eval, touching nothing but its arguments
///     output_features(input_features) const     how many columns come out
///     copyable                                  a copy shares nothing
///
/// x, y, dy, dx are Eigen maps of run-time strides (StridedMap). They do not overlap, except in a network of one layer, which
/// hands on what it is given: there y may be x in infer, and dx may be dy. Optional, used where present:
///
///     backward(x, dy, dx, accumulate)           required of a layer with parameters for Accumulate::yes
///     backward_parameters(x, dy, accumulate)    for a first layer, whose input gradient nobody wants
///     parameters(), parameters() const          a vector of ParameterView<Scalar>, of ParameterView<const Scalar>; see
///                                               parameter_view. Of float, where Scalar is a half
///     buffers(), buffers() const                the same of BufferView
///     commit_statistics(), discard_statistics()   let move, or forget, what Mode::train_prepared has prepared
///     training_state(), training_state() const  a TrainingState, a ConstTrainingState: numbers that a checkpoint keeps
///     set_stream(path)                          told its place in the outermost network, for random numbers
///     check_input(rows, columns, mode, function) const   throws what forward would throw, before any layer has run
///     input_features() const                    checked against the layer before when a network is made
///     rows_per_example() const                  how many consecutive rows it takes together, as the tokens of a sequence;
///                                               without it: 1
///     takes_sparse_input                        a static bool, true: as a first layer its calls also take x as a SparseView
///     name                                      a static string for messages and the summary
///     cast<U>() const                           the same layer in another scalar type, state included
///     fixed_output_features, fixed_infer_bytes  static: what is known at compile time; see layers/fixed_size.hpp
///
/// Whether a layer keeps all this, check_contract and check_gradients tell (checking/).
template <class L>
concept Layer = std::copyable<L> && requires {
  typename L::Scalar;
} && requires(L& layer, const L& fixed, const StridedMap<const typename L::Scalar>& x, StridedMap<typename L::Scalar> y,
              Workspace<typename L::Scalar>& workspace, Mode mode) {
  layer.forward(x, y, mode);
  layer.backward(x, x, y);
  fixed.infer(x, y, workspace);
  { fixed.output_features(Index{}) } -> std::convertible_to<Index>;
};

/// A layer whose backward can add to the gradients of its parameters.
template <class L>
concept Accumulates = requires(L& layer, const StridedMap<const typename L::Scalar>& x,
                               StridedMap<typename L::Scalar> y) {
  layer.backward(x, x, y, Accumulate::yes);
};

/// How many consecutive rows a layer takes together: 1 unless it says otherwise.
template <class L>
Index rows_per_example(const L& layer) {
  if constexpr (requires { layer.rows_per_example(); })
    return layer.rows_per_example();
  else
    return 1;
}

/// The name a layer gives itself, or "layer".
template <class L>
constexpr std::string_view name_of(const L&) {
  if constexpr (requires { std::string_view(L::name); })
    return L::name;
  else
    return "layer";
}

}  // namespace evenkeel
