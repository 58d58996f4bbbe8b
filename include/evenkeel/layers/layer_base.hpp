#pragma once

#include <type_traits>  // remove_reference_t

#include "evenkeel/core/buffer.hpp"        // MatrixCache
#include "evenkeel/core/error.hpp"         // ShapeError, UsageError
#include "evenkeel/core/mode.hpp"          // Mode
#include "evenkeel/core/parameter.hpp"     // Accumulate
#include "evenkeel/core/types.hpp"         // Storable, Matrix
#include "evenkeel/core/view.hpp"          // read, Output
#include "evenkeel/core/workspace.hpp"     // Workspace
#include "evenkeel/layers/fixed_size.hpp"  // InferOutput, InferWorkspace

namespace evenkeel {
namespace detail {

inline void check_columns(const char* layer, const char* function, Index expected, Index rows, Index columns) {
  if (columns != expected)
    EVENKEEL_THROW(ShapeError, layer, "::", function, ": expected input of shape (batch, ", expected, "), got ",
                   shape(rows, columns));
}

inline void check_channel_columns(const char* layer, const char* function, Index channels, Index positions, Index rows,
                                  Index columns) {
  if (columns != channels * positions && positions > 1)
    EVENKEEL_THROW(ShapeError, layer, "::", function, ": expected input of shape (batch, ", channels * positions,
                   ") for ", channels, " channels x ", positions, " positions, got ", shape(rows, columns));
  check_columns(layer, function, channels * positions, rows, columns);
}

template <class M>
void check_shape(const char* layer, const char* function, const char* what, Index rows, Index columns,
                 const M& matrix) {
  if (matrix.rows() != rows || matrix.cols() != columns)
    EVENKEEL_THROW(ShapeError, layer, "::", function, ": expected ", what, " of shape ", shape(rows, columns), ", got ",
                   shape(matrix.rows(), matrix.cols()));
}

}  // namespace detail

/// Everything a layer does the same way as every other: the two pairs of forward and backward, `infer`, their checks, and
/// the copy of the input where one must be kept. A layer derives from it (LayerBase<Derived, Scalar>), is final, and supplies
///
///     static constexpr const char* name
///     Index output_features(Index input_features) const
///     void check_input(rows, columns, mode, function) const     throws ShapeError for an input it cannot take
///     void run_forward(x, y, mode)                              arithmetic on views that have been checked
///     void run_backward(x, dy, dx, accumulate)                  the same; dx may be without data: then it is not wanted
///     void run_infer(x, y, workspace) const
///     bool needs_input() const                                  whether run_backward reads x
///     void check_values(x, mode)                                optional: throws for values it cannot take
///     fixed_output_features, fixed_infer_bytes                  optional: see layers/fixed_size.hpp
///
/// Shapes  input: (batch, features); output and gradients accordingly. Any dense Eigen expression in, any writable Eigen
///         object of the right shape out, in either storage order.
/// Halves  Eigen::half and Eigen::bfloat16 as Scalar store what goes in and out: it is one type for input, output and their
///         gradients. Parameters, statistics and all arithmetic are of float (sums over rows and batches of double), so that
///         each result is rounded once, after gain and shift. Rows are converted some at a time.
/// Errors  ShapeError for shapes, UsageError for backward before forward; a call that throws leaves the layer as it was.
///         (One that an inner layer of a network throws for values, not shapes, leaves nothing to differentiate.)
template <class Derived, Storable Scalar_>
class LayerBase {
 public:
  using Scalar = Scalar_;

  /// Writes the output into y and keeps the little that backward needs besides x. y may be x: then x is saved where
  /// backward needs it.
  template <DenseOf<Scalar> X, WritableDenseOf<Scalar> Y>
  void forward(const X& x, Y&& y, Mode mode) {
    static_assert(detail::takes<Derived, X>, "this layer takes another number of features than x has columns");
    self().check_input(x.rows(), x.cols(), mode, "forward");
    detail::check_shape(Derived::name, "forward", "output", x.rows(), self().output_features(x.cols()), y);
    const auto input = read<Scalar>(x);
    Output<Scalar, std::remove_reference_t<Y>> output(y, input.view());
    check_values_of(x, mode);
    rows_ = x.rows();
    columns_ = x.cols();
    pending_ = Pending::none;  // should run_forward throw, there is nothing to differentiate
    if (output.overwrites_input() && self().needs_input()) {
      Matrix<Scalar>& saved = input_.get(x.rows(), x.cols());
      saved = as_map(input.view());
      self().run_forward(detail::view_of<const Scalar>(saved.data(), saved), output.view(), mode);
    } else {
      self().run_forward(input.view(), output.view(), mode);
    }
    pending_ = output.overwrites_input() ? Pending::in_place : Pending::given_input;
    output.commit();
  }

  /// Writes d loss / d input into dx and sets (or adds to) the gradients of the parameters. x is what forward was given;
  /// dy is d loss / d output. dx may be dy. Differentiates the forward that was run; repeated, gives the same again.
  template <DenseOf<Scalar> X, DenseOf<Scalar> DY, WritableDenseOf<Scalar> DX>
  void backward(const X& x, const DY& dy, DX&& dx, Accumulate accumulate = Accumulate::no) {
    check_output_gradient(dy, "backward");
    detail::check_shape(Derived::name, "backward", "the forward's input", rows_, columns_, x);
    detail::check_shape(Derived::name, "backward", "input gradient", rows_, columns_, dx);
    const auto input = read<Scalar>(x);
    const auto delta = read<Scalar>(dy);
    Output<Scalar, std::remove_reference_t<DX>> output(dx, delta.view(), input.view());
    self().run_backward(forward_input(input.view()), delta.view(), output.view(), accumulate);
    output.commit();
  }

  /// The same without the gradient of the input: for the first layer of a network.
  template <DenseOf<Scalar> X, DenseOf<Scalar> DY>
  void backward_parameters(const X& x, const DY& dy, Accumulate accumulate = Accumulate::no) {
    check_output_gradient(dy, "backward_parameters");
    detail::check_shape(Derived::name, "backward_parameters", "the forward's input", rows_, columns_, x);
    const auto input = read<Scalar>(x);
    const auto delta = read<Scalar>(dy);
    self().run_backward(forward_input(input.view()), delta.view(), View<Scalar>{}, accumulate);
  }

  /// Stands alone: copies x, and returns the output in a matrix that the layer owns, valid until its next call.
  template <DenseOf<Scalar> X>
  const Matrix<Scalar>& forward(const X& x, Mode mode) {
    static_assert(detail::takes<Derived, X>, "this layer takes another number of features than x has columns");
    self().check_input(x.rows(), x.cols(), mode, "forward");
    check_values_of(x, mode);
    Matrix<Scalar>& input = input_.get(x.rows(), x.cols());
    input = x;
    Matrix<Scalar>& output = output_.get(x.rows(), self().output_features(x.cols()));
    forward(input, output, mode);
    pending_ = Pending::own_input;
    return output;
  }

  /// Stands alone: d loss / d input in a matrix that the layer owns, valid until its next call.
  template <DenseOf<Scalar> DY>
  const Matrix<Scalar>& backward(const DY& dy, Accumulate accumulate = Accumulate::no) {
    check_output_gradient(dy, "backward");
    if (self().needs_input() && pending_ == Pending::given_input)
      EVENKEEL_THROW(
          UsageError, Derived::name,
          "::backward: expected backward(x, dy, dx) after forward(x, y, mode), which keeps no copy of its input, "
          "got backward(dy)");
    const auto delta = read<Scalar>(dy);  // may be the matrix that this call returns
    View<const Scalar> input{nullptr, rows_, columns_, columns_, 1};
    if (self().needs_input()) input = kept_input();
    Matrix<Scalar>& dx = input_gradient_.get(rows_, columns_);
    Output<Scalar, Matrix<Scalar>> output(dx, delta.view());
    self().run_backward(input, delta.view(), output.view(), accumulate);
    output.commit();
    return dx;
  }

  /// The forward of Mode::eval. Touches nothing but y and the workspace: safe from any number of threads with a workspace
  /// each, and without effect on a pending backward. y may be x.
  template <DenseOf<Scalar> X, WritableDenseOf<Scalar> Y>
  void infer(const X& x, Y&& y, Workspace<Scalar>& workspace) const {
    static_assert(detail::takes<Derived, X>, "this layer takes another number of features than x has columns");
    self().check_input(x.rows(), x.cols(), Mode::eval, "infer");
    detail::check_shape(Derived::name, "infer", "output", x.rows(), self().output_features(x.cols()), y);
    const auto input = read<Scalar>(x);
    Output<Scalar, std::remove_reference_t<Y>> output(y, input.view());
    self().run_infer(input.view(), output.view(), workspace);
    output.commit();
  }

  /// The same into a matrix of its own: a Matrix, or, where its sizes are known at compile time, a FixedMatrix.
  template <DenseOf<Scalar> X>
  detail::InferOutput<Derived, X> infer(const X& x) const {
    self().check_input(x.rows(), x.cols(), Mode::eval, "infer");
    detail::InferOutput<Derived, X> y;
    y.resize(x.rows(), self().output_features(x.cols()));
    detail::InferWorkspace<Derived, X> workspace;
    infer(x, y, workspace);
    return y;
  }

 protected:
  LayerBase() = default;

  enum class Pending { none, given_input, in_place, own_input, own_sparse_input };

  template <class DY>
  void check_output_gradient(const DY& dy, const char* function) const {
    if (pending_ == Pending::none)
      EVENKEEL_THROW(UsageError, Derived::name, "::", function, ": expected a forward call before it, got none");
    detail::check_shape(Derived::name, function, "output gradient", rows_, self().output_features(columns_), dy);
  }

  Pending pending_ = Pending::none;             // who has the input of the last forward
  Index rows_ = 0, columns_ = 0;                // its shape
  detail::MatrixCache<Scalar> output_;          // what the stand-alone forward returns
  detail::MatrixCache<Scalar> input_gradient_;  // what the stand-alone backward returns

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }

  template <class X>
  void check_values_of([[maybe_unused]] const X& x, [[maybe_unused]] Mode mode) {
    if constexpr (requires(Derived & derived, View<const Scalar> view) { derived.check_values(view, mode); })
      self().check_values(read<Scalar>(x).view(), mode);
  }

  View<const Scalar> kept_input() const {
    const Matrix<Scalar>& input = input_.latest();
    return detail::view_of<const Scalar>(input.data(), input);
  }

  /// What forward read: the caller's x, unless it was overwritten by the output.
  View<const Scalar> forward_input(View<const Scalar> given) const {
    return pending_ == Pending::in_place && self().needs_input() ? kept_input() : given;
  }

  detail::MatrixCache<Scalar> input_;  // a copy of the last forward's input, where nobody else keeps it
};

}  // namespace evenkeel
