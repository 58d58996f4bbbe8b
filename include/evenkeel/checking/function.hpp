#pragma once

#include <concepts>  // copy_constructible, invocable
#include <cstdint>   // uint64_t
#include <optional>
#include <string>
#include <type_traits>  // invoke_result_t
#include <utility>      // as_const, move
#include <vector>

#include "evenkeel/checking/derivative.hpp"  // Values
#include "evenkeel/core/error.hpp"           // ShapeError
#include "evenkeel/core/mode.hpp"            // Mode
#include "evenkeel/core/random.hpp"          // RandomStream
#include "evenkeel/core/types.hpp"           // Matrix, Index
#include "evenkeel/core/view.hpp"            // View, DenseOf

/// What is differentiated: outputs as a function of tensors that can be written to. A layer, a network under a loss and a
/// callable each come as an object with
///
///     Scalar                           the type it evaluates in
///     std::vector<Tensor> tensors()    its own copies of the input and the parameters
///     void evaluate(outputs)           at their present values, starting from the same state every time
///     Values weights(seed, count)      that contract the outputs
namespace evenkeel::checking {

template <typename Scalar>
struct Tensor {
  std::string name;
  View<Scalar> value;
};

using Gradients = std::vector<Matrix<long double>>;  // one for each tensor

template <class L>
concept HasParameters = requires(L& layer) {
  layer.parameters();
};

/// Whether something in this type can be had in long double, and that is another type.
template <class T, class Scalar>
concept Widens = !std::same_as<Scalar, long double> && requires(const T& object) {
  object.template cast<long double>();
};

/// The least that a layer or network has to have.
template <class L>
concept Checkable = std::copy_constructible<L> &&
    requires(L& layer, const Matrix<typename L::Scalar>& x, Matrix<typename L::Scalar>& y, Mode mode) {
  layer.forward(x, y, mode);
  layer.backward(x, x, y);
  Index{layer.output_features(x.cols())};
};

/// The end of a layer that stands alone: all its outputs, contracted with random weights. (Not with ones: the sum of
/// normalized outputs is constant, and a backward that gives zeros would pass.)
template <typename Scalar>
struct EveryOutput {
  void operator()(const Matrix<Scalar>& y, Values& outputs) const {
    outputs =
        Eigen::Map<const Eigen::Array<Scalar, Eigen::Dynamic, 1>>(y.data(), y.size()).template cast<long double>();
  }
  Matrix<Scalar> gradient(const Matrix<Scalar>& y, const Values& weights) const {
    return Eigen::Map<const Matrix<long double>>(weights.data(), y.rows(), y.cols()).template cast<Scalar>();
  }
  /// From the uniform draws u of RandomStream(seed, stream_of("weights")), row by row: 0.5 + 2u for u < 1/2, else 0.5 - 2u.
  /// So of either sign, and between 0.5 and 1.5 in size. Rounded to float, to be the same number in every type.
  static Values weights(std::uint64_t seed, Index count) {
    RandomStream random(seed, stream_of("weights"));
    Values result(count);
    for (Index i = 0; i < count; ++i) {
      const double u = random.uniform();
      result[i] = static_cast<long double>(static_cast<float>(u < 0.5 ? 0.5 + 2 * u : 0.5 - 2 * u));
    }
    return result;
  }
};

/// The end of a network under a loss: one number.
template <typename Scalar, class Loss, class Labels>
struct UnderLoss {
  const Loss& loss;
  const Labels& labels;

  void operator()(const Matrix<Scalar>& y, Values& outputs) const {
    Loss copy(loss);
    outputs.resize(1);
    outputs[0] = static_cast<long double>(copy(y, labels).value);
  }
  Matrix<Scalar> gradient(const Matrix<Scalar>& y, const Values&) const {
    Loss copy(loss);
    return copy(y, labels).gradient;
  }
  static Values weights(std::uint64_t, Index count) { return Values::Ones(count); }
};

/// A layer or network and what stands at its end.
template <class L, class End>
class LayerFunction {
 public:
  using Scalar = typename L::Scalar;

  /// `layer` is a copy of what was given, or it in another type; input and parameters are changed in it.
  LayerFunction(L layer, Matrix<Scalar> x, Mode mode, End end)
      : layer_(std::move(layer)),
        x_(std::move(x)),
        y_(x_.rows(), layer_.output_features(x_.cols())),
        mode_{mode},
        end_(std::move(end)) {}

  std::vector<Tensor<Scalar>> tensors() {
    std::vector<Tensor<Scalar>> list{{"input", detail::view_of<Scalar>(x_.data(), x_)}};
    if constexpr (HasParameters<L>) {
      auto&& parameters = layer_.parameters();
      for (auto&& parameter : parameters)
        list.push_back({parameter.name, detail::view_of<Scalar>(parameter.value.data(), parameter.value)});
    }
    return list;
  }

  /// Every call runs on a copy of the layer: masks, statistics and whatever else forward moves start the same.
  void evaluate(Values& outputs) {
    run();
    end_(y_, outputs);
  }

  Values weights(std::uint64_t seed, Index count) const { return End::weights(seed, count); }

  /// What backward says, d (contracted outputs) / d each tensor.
  Gradients gradients(const Values& weights) {
    run();
    const Matrix<Scalar> dy = end_.gradient(y_, weights);
    Matrix<Scalar> dx(x_.rows(), x_.cols());
    run_->backward(std::as_const(x_), dy, dx);
    Gradients list{dx.template cast<long double>()};
    if constexpr (HasParameters<L>) {
      auto&& parameters = run_->parameters();
      for (auto&& parameter : parameters) list.push_back(parameter.gradient.template cast<long double>());
    }
    return list;
  }

 private:
  void run() {
    if constexpr (std::is_copy_assignable_v<L>) {
      if (run_)
        *run_ = layer_;  // into the memory that is there
      else
        run_.emplace(std::as_const(layer_));
    } else {
      run_.emplace(std::as_const(layer_));
    }
    run_->forward(std::as_const(x_), y_, mode_);
  }

  L layer_;               // in the state that was given, but for the element that is moved
  std::optional<L> run_;  // the copy of it that the last forward ran on
  Matrix<Scalar> x_;      // (batch, in), but for the element that is moved
  Matrix<Scalar> y_;      // (batch, out), of the last forward
  Mode mode_;             //
  End end_;               // makes outputs of y
};

template <class X>
concept DenseObject = DenseOf<X, typename X::Scalar>;

/// A callable, its argument, and what is said to be its gradient: an Eigen object or a callable that gives one.
template <class F, class Point, class Gradient>
class CallableFunction {
 public:
  using Scalar = typename Point::Scalar;

  CallableFunction(F& function, Point point, Gradient& gradient)
      : function_{function}, point_(std::move(point)), gradient_{gradient} {}

  std::vector<Tensor<Scalar>> tensors() { return {{"input", detail::view_of<Scalar>(point_.data(), point_)}}; }
  void evaluate(Values& outputs) {
    outputs.resize(1);
    outputs[0] = static_cast<long double>(function_(std::as_const(point_)));
  }
  Values weights(std::uint64_t, Index count) const { return Values::Ones(count); }

  /// Throws ShapeError unless the gradient has the point's shape.
  Gradients gradients(const Values&) {
    if constexpr (DenseObject<Gradient>)  // asked first: an Eigen vector can be called too, with a range of indices
      return widened(gradient_);
    else
      return widened(gradient_(std::as_const(point_)));
  }

 private:
  template <class G>
  Gradients widened(const G& gradient) const {
    if (gradient.rows() != point_.rows() || gradient.cols() != point_.cols())
      EVENKEEL_THROW(ShapeError, "check_gradients: expected gradient of shape ",
                     detail::shape(point_.rows(), point_.cols()), ", got ",
                     detail::shape(gradient.rows(), gradient.cols()));
    return {Matrix<long double>(gradient.template cast<long double>())};
  }

  F& function_;
  Point point_;         // a copy: what was given stays as it is, also when the function throws
  Gradient& gradient_;  //
};

/// The matrix, vector or array that holds what an expression gives, in another type.
template <typename To, class X>
using PlainAs = typename std::remove_cvref_t<
    decltype(std::declval<const typename X::PlainObject&>().template cast<To>())>::PlainObject;

/// Targets in another type; labels of any other kind as they are.
template <typename To, typename From, class Labels>
decltype(auto) labels_as(const Labels& labels) {
  if constexpr (DenseOf<Labels, From>)
    return PlainAs<To, Labels>(labels.template cast<To>());
  else
    return (labels);
}

template <class F, class Point>
using ResultOf = std::remove_cvref_t<std::invoke_result_t<F&, const Point&>>;

using LongDouble = long double;

/// Whether a callable is a template that computes in the type it is given: for a long double point it gives long double,
/// and for its own it does not.
template <class F, class Point>
concept ComputesInLongDouble =
    std::same_as<ResultOf<F, PlainAs<LongDouble, Point>>, LongDouble> && !std::same_as<ResultOf<F, Point>, LongDouble>;

}  // namespace evenkeel::checking
