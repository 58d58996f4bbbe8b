#pragma once

#include <type_traits>  // remove_reference_t

#include "evenkeel/core/sparse.hpp"        // SparseOf
#include "evenkeel/layers/layer_base.hpp"  // LayerBase

namespace evenkeel {

/// What a layer with sparse input takes. (No sparse matrices of halves.)
template <class X, typename Scalar>
concept InputOf = DenseOf<X, Scalar> ||(Real<Scalar>&& SparseOf<X, Scalar>);

/// LayerBase for a layer that also takes a sparse input: the same calls for an Eigen::SparseMatrix, by rows or by columns, a
/// Map or a block of one. A layer supplies run_forward, run_backward and run_infer for a SparseView<Scalar> as well, and
///
///     void check_sparse_input(function) const                   optional: throws UsageError where it takes none after all
///
/// The input is never made dense. Gradients by it, where they are asked for, are dense.
template <class Derived, Storable Scalar_>
class SparseLayerBase : public LayerBase<Derived, Scalar_> {
  using Base = LayerBase<Derived, Scalar_>;

 public:
  using Scalar = Scalar_;
  static constexpr bool takes_sparse_input = Real<Scalar>;  // what a network asks of its first layer

  // Each is that of LayerBase, and what is dense goes there.

  template <InputOf<Scalar> X, WritableDenseOf<Scalar> Y>
  void forward(const X& x, Y&& y, Mode mode) {
    if constexpr (DenseOf<X, Scalar>)
      return Base::forward(x, y, mode);
    else
      forward_sparse(sparse_view<Scalar>(x), y, mode);
  }

  template <InputOf<Scalar> X, DenseOf<Scalar> DY, WritableDenseOf<Scalar> DX>
  void backward(const X& x, const DY& dy, DX&& dx, Accumulate accumulate = Accumulate::no) {
    if constexpr (DenseOf<X, Scalar>)
      return Base::backward(x, dy, dx, accumulate);
    else
      backward_sparse(sparse_view<Scalar>(x), dy, dx, accumulate);
  }

  template <InputOf<Scalar> X, DenseOf<Scalar> DY>
  void backward_parameters(const X& x, const DY& dy, Accumulate accumulate = Accumulate::no) {
    if constexpr (DenseOf<X, Scalar>) {
      Base::backward_parameters(x, dy, accumulate);
    } else {
      check_backward(x, dy, "backward_parameters");
      const auto delta = read<Scalar>(dy);
      self().run_backward(sparse_view<Scalar>(x), delta.view(), View<Scalar>{}, accumulate);
    }
  }

  /// Stands alone: copies x, a sparse one as a sparse one.
  template <InputOf<Scalar> X>
  const Matrix<Scalar>& forward(const X& x, Mode mode) {
    if constexpr (DenseOf<X, Scalar>) {
      return Base::forward(x, mode);
    } else {
      check_input(x, mode, "forward");
      sparse_input_.assign(sparse_view<Scalar>(x));
      Matrix<Scalar>& output = this->output_.get(x.rows(), self().output_features(x.cols()));
      forward_sparse(sparse_input_.view(), output, mode);
      this->pending_ = Pending::own_sparse_input;
      return output;
    }
  }

  template <DenseOf<Scalar> DY>
  const Matrix<Scalar>& backward(const DY& dy, Accumulate accumulate = Accumulate::no) {
    if constexpr (takes_sparse_input)
      if (this->pending_ == Pending::own_sparse_input) {
        Matrix<Scalar>& dx = this->input_gradient_.get(this->rows_, this->columns_);
        backward_sparse(sparse_input_.view(), dy, dx, accumulate);
        return dx;
      }
    return Base::backward(dy, accumulate);
  }

  template <InputOf<Scalar> X, WritableDenseOf<Scalar> Y>
  void infer(const X& x, Y&& y, Workspace<Scalar>& workspace) const {
    if constexpr (DenseOf<X, Scalar>) {
      Base::infer(x, y, workspace);
    } else {
      check_input(x, Mode::eval, "infer");
      detail::check_shape(Derived::name, "infer", "output", x.rows(), self().output_features(x.cols()), y);
      Output<Scalar, std::remove_reference_t<Y>> output(y);
      self().run_infer(sparse_view<Scalar>(x), output.view(), workspace);
      output.commit();
    }
  }

  template <InputOf<Scalar> X>
  auto infer(const X& x) const {
    if constexpr (DenseOf<X, Scalar>) {
      return Base::infer(x);
    } else {
      check_input(x, Mode::eval, "infer");
      Matrix<Scalar> y(x.rows(), self().output_features(x.cols()));
      Workspace<Scalar> workspace;
      infer(x, y, workspace);
      return y;
    }
  }

 protected:
  SparseLayerBase() = default;

 private:
  using Pending = typename Base::Pending;

  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }

  template <class Y>
  void forward_sparse(SparseView<Scalar> x, Y& y, Mode mode) {
    check_input(x, mode, "forward");
    detail::check_shape(Derived::name, "forward", "output", x.rows(), self().output_features(x.cols()), y);
    Output<Scalar, Y> output(y);
    this->rows_ = x.rows();
    this->columns_ = x.cols();
    this->pending_ = Pending::none;  // should run_forward throw, there is nothing to differentiate
    self().run_forward(x, output.view(), mode);
    this->pending_ = Pending::given_input;
    output.commit();
  }

  template <class DY, class DX>
  void backward_sparse(SparseView<Scalar> x, const DY& dy, DX& dx, Accumulate accumulate) {
    check_backward(x, dy, "backward");
    detail::check_shape(Derived::name, "backward", "input gradient", this->rows_, this->columns_, dx);
    const auto delta = read<Scalar>(dy);
    Output<Scalar, DX> output(dx, delta.view());
    self().run_backward(x, delta.view(), output.view(), accumulate);
    output.commit();
  }

  template <class X>
  void check_input(const X& x, Mode mode, const char* function) const {
    self().check_input(x.rows(), x.cols(), mode, function);
    if constexpr (requires(const Derived& derived) { derived.check_sparse_input(function); })
      self().check_sparse_input(function);
  }

  template <class X, class DY>
  void check_backward(const X& x, const DY& dy, const char* function) const {
    this->check_output_gradient(dy, function);
    detail::check_shape(Derived::name, function, "the forward's input", this->rows_, this->columns_, x);
  }

  detail::SparseRows<Scalar> sparse_input_;  // a copy of the last stand-alone forward's
};

}  // namespace evenkeel
