#pragma once

#include <concepts>     // invocable, convertible_to
#include <type_traits>  // remove_reference_t

#include "evenkeel/checking/compare.hpp"   // check
#include "evenkeel/checking/function.hpp"  // LayerFunction, CallableFunction
#include "evenkeel/checking/report.hpp"    // GradientReport, GradientCheckOptions
#include "evenkeel/core/mode.hpp"          // Mode
#include "evenkeel/core/view.hpp"          // DenseOf

/// Checks gradients against differences of the function itself. Stands alone: needs the library's core and no test
/// framework, and takes layers, losses and functions that know nothing of it.
///
///     const auto report = ek::check_gradients(norm, x, ek::Mode::train);
///     if (!report) std::cout << report;                                       // in a test: CHECK(report)
///     ek::check_gradients(net, ek::SoftmaxCrossEntropy<double>(), x, labels, ek::Mode::train);
///     ek::check_gradients([](const auto& v) { return v.squaredNorm(); }, point, 2 * point);
///
/// The numeric side is taken in long double where what is given can be had in long double (through `cast`, or because it
/// is a template), so that gradients far smaller than others can be checked too; how, says checking/derivative.hpp. How the
/// two sides are compared, says checking/verdict.hpp.
namespace evenkeel {

/// Checks a layer's backward: the gradient of the input and of every parameter.
///
/// Works on copies: the layer's masks, statistics, gradients and all else stay as they are, and every evaluation starts
/// from the state that the layer is in. Needs of the layer: Scalar, forward(x, y, mode), backward(x, dy, dx),
/// output_features(in), to be copyable. Where it has parameters() they are checked, and where it has cast<U>() it is used.
/// The outputs are contracted with random weights. Throws std::invalid_argument for options, and what the layer throws.
template <checking::Checkable L, DenseOf<typename L::Scalar> X>
GradientReport check_gradients(const L& layer, const X& x, Mode mode, const GradientCheckOptions& options = {}) {
  using Scalar = typename L::Scalar;
  using Long = long double;
  checking::check_options(options);
  const Matrix<Scalar> input = x;
  checking::LayerFunction own(L(layer), input, mode, checking::EveryOutput<Scalar>{});
  if constexpr (checking::Widens<L, Scalar>) {
    checking::LayerFunction twin(layer.template cast<Long>(), Matrix<Long>(input.template cast<Long>()), mode,
                                 checking::EveryOutput<Long>{});
    return checking::check(own, twin, options);
  } else {
    return checking::check(own, own, options);
  }
}

/// Checks a network under a loss: the gradient of the loss with respect to the input and every parameter.
///
/// loss(output, labels) gives something with `value` and `gradient`; each call is on a copy of the loss. The numeric side
/// is in long double where both network and loss have cast<U>(); labels that are a dense Eigen object of the network's
/// scalar type (targets) are cast with them. In all else like check_gradients(layer, x, mode).
template <checking::Checkable Network, class Loss, DenseOf<typename Network::Scalar> X, class Labels>
GradientReport check_gradients(const Network& network, const Loss& loss, const X& x, const Labels& labels, Mode mode,
                               const GradientCheckOptions& options = {}) {
  using Scalar = typename Network::Scalar;
  using Long = long double;
  checking::check_options(options);
  const Matrix<Scalar> input = x;
  checking::LayerFunction own(Network(network), input, mode, checking::UnderLoss<Scalar, Loss, Labels>{loss, labels});
  if constexpr (checking::Widens<Network, Scalar> && checking::Widens<Loss, Scalar>) {
    const auto twin_loss = loss.template cast<Long>();
    const auto& twin_labels = checking::labels_as<Long, Scalar>(labels);
    checking::LayerFunction twin(
        network.template cast<Long>(), Matrix<Long>(input.template cast<Long>()), mode,
        checking::UnderLoss<Long, std::remove_cvref_t<decltype(twin_loss)>, std::remove_cvref_t<decltype(twin_labels)>>{
            twin_loss, twin_labels});
    return checking::check(own, twin, options);
  } else {
    return checking::check(own, own, options);
  }
}

/// Checks the gradient of a function of a matrix, vector or array at a point. `gradient` is the gradient there, in the
/// point's shape, or a callable that gives it: gradient(point).
///
/// A function that is a template, e.g. [](const auto& x) { return x.squaredNorm(); }, is evaluated in long double. To know
/// that it is one, its return type for a long double point is looked up, so its body must compile for one; if it does not,
/// give the parameter its type: [](const Eigen::VectorXd& x) { ... } is evaluated in double. Throws ShapeError for the
/// gradient's shape, std::invalid_argument for options, and what the function throws; the point stays as it is.
template <class Function, class Point, class Gradient>
requires(DenseOf<Point, typename Point::Scalar> && !std::convertible_to<Gradient, Mode> &&
         std::invocable<Function&, const typename Point::PlainObject&>) GradientReport
    check_gradients(Function&& function, const Point& point, const Gradient& gradient,
                    const GradientCheckOptions& options = {}) {
  using Plain = typename Point::PlainObject;
  checking::check_options(options);
  checking::CallableFunction own(function, Plain(point), gradient);
  if constexpr (checking::ComputesInLongDouble<Function, Plain>) {
    using Twin = checking::PlainAs<long double, Plain>;
    checking::CallableFunction twin(function, Twin(point.template cast<long double>()), gradient);
    return checking::check(own, twin, options);
  } else {
    return checking::check(own, own, options);
  }
}

}  // namespace evenkeel
