#pragma once

#include <type_traits>  // conditional_t, remove_cvref_t

#include "evenkeel/core/types.hpp"      // FixedMatrix
#include "evenkeel/core/workspace.hpp"  // FixedWorkspace

/// Inference without memory from the heap, from the first call on, where all sizes are known at compile time: those of x by its
/// type, those of a network by its layers. infer(x) then returns a FixedMatrix and takes from the stack what it needs besides,
/// and infer(x, y, workspace) does with a WorkspaceFor. (A y that overlaps x without being it is written through the heap.)
///
/// A layer says what is known of it in static functions. LayerNorm, RMSNorm, BatchNorm, Linear, activations and those that drop
/// do, and Sequential from what its layers say.
///
///     constexpr int fixed_output_features(int features)             how many columns come out of so many; either may be
///                                                                   Eigen::Dynamic: not known
///     constexpr Index fixed_infer_bytes(int rows, int features)     what infer takes from its workspace for such an x that is
///                                                                   not y, counted in Workspace::bytes; else nothing
namespace evenkeel {
namespace detail {

/// Instead of a number of columns: what goes in does not fit.
inline constexpr int misfit = -2;
static_assert(misfit != Eigen::Dynamic);

/// How many columns go in, where the layer, or what is given to it, says so.
constexpr int fixed_features(int of_layer, int given) {
  if (of_layer == Eigen::Dynamic) return given;
  return given == Eigen::Dynamic || given == of_layer ? of_layer : misfit;
}

template <class L>
constexpr int fixed_output_features([[maybe_unused]] int features) {
  if (features == misfit) return misfit;
  if constexpr (requires { L::fixed_output_features(features); })
    return L::fixed_output_features(features);
  else
    return Eigen::Dynamic;
}

template <class L>
constexpr Index fixed_infer_bytes([[maybe_unused]] int rows, [[maybe_unused]] int features) {
  if (rows < 0 || features < 0) return 0;
  if constexpr (requires { L::fixed_infer_bytes(rows, features); })
    return L::fixed_infer_bytes(rows, features);
  else
    return 0;
}

/// The same where y may be x, and the layer may have to copy it.
template <class L>
constexpr Index infer_bytes_in_place(int rows, int features) {
  const Index bytes = fixed_infer_bytes<L>(rows, features);
  const bool may_be = rows >= 0 && features >= 0 && fixed_output_features<L>(features) == features;
  return may_be ? bytes + Workspace<typename L::Scalar>::template bytes<typename L::Scalar>(Index{rows} * features)
                : bytes;
}

/// Whether a layer takes an X, as far as is known.
template <class L, class X>
inline constexpr bool takes = fixed_output_features<L>(X::ColsAtCompileTime) != misfit;

/// What it makes of one.
template <class L, class X>
using InferOutput =
    FixedMatrix<typename X::Scalar, X::RowsAtCompileTime, fixed_output_features<L>(X::ColsAtCompileTime)>;

/// And the workspace for that: on the stack, unless it is too large.
template <class L, class X, Index Bytes = fixed_infer_bytes<L>(X::RowsAtCompileTime, X::ColsAtCompileTime)>
using InferWorkspace = std::conditional_t<(Bytes > 0 && fits_on_stack(Bytes)),
                                          FixedWorkspace<typename X::Scalar, Bytes>, Workspace<typename X::Scalar>>;

}  // namespace detail

/// The workspace that brings along what `infer` of a layer or network takes for an X of fixed size, be y x or not:
///
///     using Block = Eigen::Matrix<float, 4, 64, Eigen::RowMajor>;
///     ek::WorkspaceFor<decltype(net), Block> workspace;
///
/// For an X of bounded size (Eigen's MaxRows) it has what the largest one takes.
template <class L, class X>
using WorkspaceFor =
    FixedWorkspace<typename L::Scalar, detail::infer_bytes_in_place<L>(std::remove_cvref_t<X>::MaxRowsAtCompileTime,
                                                                       std::remove_cvref_t<X>::MaxColsAtCompileTime)>;

}  // namespace evenkeel
