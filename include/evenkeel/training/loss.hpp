#pragma once

#include <cmath>     // exp, log1p, abs
#include <concepts>  // integral
#include <cstddef>   // size_t
#include <cstdint>   // int64_t
#include <optional>
#include <ranges>   // contiguous_range
#include <utility>  // cmp_less, cmp_equal

#include "evenkeel/core/buffer.hpp"        // Buffer, MatrixCache
#include "evenkeel/core/check.hpp"         // fraction
#include "evenkeel/core/error.hpp"         // ShapeError
#include "evenkeel/core/types.hpp"         // Real, Matrix, Wide
#include "evenkeel/core/view.hpp"          // read
#include "evenkeel/kernels/softmax.hpp"    // SoftmaxRow
#include "evenkeel/layers/layer_base.hpp"  // check_shape

/// Losses: objects that are called with the network's output and what it should have been, and own the gradient.
///
///     ek::SoftmaxCrossEntropy<float> cross_entropy;
///     const auto& loss = cross_entropy(net.forward(x, ek::Mode::train), labels);   // loss.value, loss.gradient
namespace evenkeel {

/// What a loss gives back.
template <typename Scalar>
struct LossResult {
  Wide<Scalar> value;
  const Matrix<Scalar>& gradient;  ///< d value / d output. Owned by the loss object, valid until its next call.
};

/// How the losses of the examples become one number.
enum class Reduction { mean, sum };

namespace detail {

template <class L>
concept DenseLabels = requires(const L& labels) {
  takes_dense(labels);
  requires std::integral<typename L::Scalar>;
};

}  // namespace detail

/// Labels: any contiguous range of integers (std::vector<int>, std::span<const Index>, an array), or an Eigen vector of them.
template <class L>
concept Labels = detail::DenseLabels<L> ||
    (std::ranges::contiguous_range<const L>&& std::integral<std::ranges::range_value_t<const L>>);

namespace detail {

/// Calls body(row, label) for every label, promoted as + does (char and bool are no numbers to compare). Eigen vectors may
/// have any stride.
template <Labels L, class Body>
void for_each_label(const L& labels, const Body& body) {
  if constexpr (DenseLabels<L>) {
    const bool is_row = labels.rows() == 1;
    for (Index i = 0; i < labels.size(); ++i) body(i, +(is_row ? labels.coeff(0, i) : labels.coeff(i, 0)));
  } else {
    Index i = 0;
    for (const auto label : labels) body(i++, +label);
  }
}

template <Labels L>
Index label_count(const L& labels) {
  if constexpr (DenseLabels<L>) {
    if (labels.rows() != 1 && labels.cols() != 1 && labels.size() > 0)
      EVENKEEL_THROW(ShapeError, "labels: expected a vector, got a matrix of shape ",
                     shape(labels.rows(), labels.cols()));
    return labels.size();
  } else {
    return static_cast<Index>(std::ranges::size(labels));
  }
}

}  // namespace detail

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;  ///< The mean is over the examples that are not ignored.
  double label_smoothing = 0;             ///< In [0, 1]: this share of the target is spread evenly over all classes.
  /// Examples with this label count for nothing. PyTorch's default is -100.
  std::optional<std::int64_t> ignored_label = std::nullopt;
};

/// The cross-entropy of a softmax over logits.
///
///     loss = -log softmax(logits)[label],      d loss / d logits = softmax(logits) - one_hot(label)
///     smoothed by s:  (1 - s) times that, plus s times the mean of -log softmax over all classes
///
/// Shapes  logits, gradient: (batch, classes); labels: one in [0, classes) for each row.
/// Range   Any finite logits. A label whose logit is -infinity has the loss +infinity, as in PyTorch; NaN in a row makes the
///         loss and that row of the gradient NaN.
/// Source  torch.nn.CrossEntropyLoss. Without any example that counts the value is 0 (PyTorch: NaN) and so is the gradient.
template <Real Scalar_>
class SoftmaxCrossEntropy {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "SoftmaxCrossEntropy";

  /// Throws std::invalid_argument unless the smoothing is in [0, 1].
  explicit SoftmaxCrossEntropy(CrossEntropyOptions options = {}) : options_{options} {
    detail::fraction(options.label_smoothing, name, "label_smoothing");
  }

  /// Throws ShapeError unless there is a class and one label a row, each in range; nothing is written then.
  template <DenseOf<Scalar> X, Labels L>
  LossResult<Scalar> operator()(const X& logits, const L& labels) {
    const Index classes = logits.cols();
    const Index counted = check(logits.rows(), classes, labels);
    const auto input = read<Scalar>(logits);
    const View<const Scalar> x = input.view();
    Matrix<Scalar>& gradient = gradient_.get(x.rows, classes);
    Scalar* exponentials = exponentials_.resize(classes);
    const bool mean = options_.reduction == Reduction::mean;
    const Scalar weight = mean && counted > 0 ? Scalar(1) / static_cast<Scalar>(counted) : Scalar(1);
    const auto smoothing = static_cast<Wide<Scalar>>(options_.label_smoothing);
    const auto share = static_cast<Scalar>(smoothing / static_cast<Wide<Scalar>>(classes));
    Wide<Scalar> total = 0;
    detail::for_each_label(labels, [&](Index i, auto label) {
      if (ignores(label)) {
        gradient.row(i).setZero();
        return;
      }
      const Scalar* row = x.row(i);
      const kernels::SoftmaxRow<Scalar> softmax(row, classes, x.column_stride, exponentials);
      const auto target = static_cast<Index>(label);
      total -= (1 - smoothing) * softmax.log_probability(row[target * x.column_stride]);
      if (smoothing > 0)
        for (Index j = 0; j < classes; ++j)
          total -= smoothing / static_cast<Wide<Scalar>>(classes) * softmax.log_probability(row[j * x.column_stride]);
      for (Index j = 0; j < classes; ++j) gradient(i, j) = (softmax.probability_of(exponentials[j]) - share) * weight;
      gradient(i, target) -= static_cast<Scalar>(1 - smoothing) * weight;
    });
    if (mean && counted > 0) total /= static_cast<Wide<Scalar>>(counted);
    return {total, gradient};
  }

  template <Real U>
  SoftmaxCrossEntropy<U> cast() const {
    return SoftmaxCrossEntropy<U>(options_);
  }

 private:
  template <class Label>
  bool ignores(Label label) const {
    return options_.ignored_label && std::cmp_equal(label, *options_.ignored_label);
  }

  /// The number of examples that count.
  template <Labels L>
  Index check(Index rows, Index classes, const L& labels) const {
    if (classes < 1)
      EVENKEEL_THROW(ShapeError, name, ": expected logits of shape (batch, classes), classes >= 1, got ",
                     detail::shape(rows, classes));
    if (detail::label_count(labels) != rows)
      EVENKEEL_THROW(ShapeError, name, ": expected one label for each of ", rows, " rows, got ",
                     detail::label_count(labels));
    Index counted = 0;
    detail::for_each_label(labels, [&](Index i, auto label) {
      if (ignores(label)) return;
      ++counted;
      if (std::cmp_less(label, 0) || !std::cmp_less(label, classes))
        EVENKEEL_THROW(ShapeError, name, ": expected labels in [0, ", classes, "), got ", label, " in row ", i);
    });
    return counted;
  }

  CrossEntropyOptions options_;           // checked
  detail::MatrixCache<Scalar> gradient_;  // (batch, classes), of the last call
  detail::Buffer<Scalar> exponentials_;   // (classes), of one row
};

struct LossOptions {
  Reduction reduction = Reduction::mean;  ///< The mean is over all elements, as in PyTorch.
};

/// What losses of one output and one target at a time have in common. Derived gives its name and the loss of an element
/// with its slope: of(output, target).
template <class Derived, Real Scalar_>
class ElementwiseLoss {
 public:
  using Scalar = Scalar_;

  /// Throws ShapeError unless output and target have the same shape.
  template <DenseOf<Scalar> X, DenseOf<Scalar> T>
  LossResult<Scalar> operator()(const X& output, const T& target) {
    detail::check_shape(Derived::name, "operator()", "target", output.rows(), output.cols(), target);
    const auto input = read<Scalar>(output);
    const auto wanted = read<Scalar>(target);
    const bool mean = options_.reduction == Reduction::mean && output.size() > 0;
    const Scalar weight = mean ? Scalar(1) / static_cast<Scalar>(output.size()) : Scalar(1);
    Matrix<Scalar>& gradient = gradient_.get(output.rows(), output.cols());
    Wide<Scalar> total = 0;
    for (Index i = 0; i < gradient.rows(); ++i)
      for (Index j = 0; j < gradient.cols(); ++j) {
        const Element element = Derived::of(input.view()(i, j), wanted.view()(i, j));
        total += element.loss;
        gradient(i, j) = element.slope * weight;
      }
    if (mean) total /= static_cast<Wide<Scalar>>(output.size());
    return {total, gradient};
  }

 protected:
  struct Element {
    Wide<Scalar> loss;
    Scalar slope;  // d loss / d output
  };

  explicit ElementwiseLoss(LossOptions options) : options_{options} {}

  LossOptions options_;

 private:
  detail::MatrixCache<Scalar> gradient_;  // (batch, outputs), of the last call
};

/// The squared distance of predictions and targets.
///
///     loss = mean((prediction - target)^2),      d loss / d prediction = 2 (prediction - target) / elements
///
/// Shapes  prediction, target, gradient: (batch, outputs).
/// Source  torch.nn.MSELoss. Without any element the value is 0 (PyTorch: NaN).
template <Real Scalar_>
class MeanSquaredError final : public ElementwiseLoss<MeanSquaredError<Scalar_>, Scalar_> {
  using Base = ElementwiseLoss<MeanSquaredError, Scalar_>;

 public:
  static constexpr const char* name = "MeanSquaredError";

  explicit MeanSquaredError(LossOptions options = {}) : Base(options) {}

  template <Real U>
  MeanSquaredError<U> cast() const {
    return MeanSquaredError<U>(this->options_);
  }

 private:
  friend Base;

  static typename Base::Element of(Scalar_ prediction, Scalar_ target) {
    const Scalar_ difference = prediction - target;
    const auto wide = static_cast<Wide<Scalar_>>(difference);
    return {wide * wide, 2 * difference};
  }
};

/// The cross-entropy of a sigmoid over logits, for yes/no targets.
///
///     loss = mean(max(x, 0) - x t + log(1 + exp(-|x|))),      d loss / d x = (sigmoid(x) - t) / elements
///
/// Shapes  logits, targets, gradient: (batch, outputs). Targets are probabilities, in [0, 1]; they are not checked.
/// Range   Any finite logits.
/// Source  torch.nn.BCEWithLogitsLoss. Without any element the value is 0 (PyTorch: NaN).
template <Real Scalar_>
class BinaryCrossEntropy final : public ElementwiseLoss<BinaryCrossEntropy<Scalar_>, Scalar_> {
  using Base = ElementwiseLoss<BinaryCrossEntropy, Scalar_>;

 public:
  static constexpr const char* name = "BinaryCrossEntropy";

  explicit BinaryCrossEntropy(LossOptions options = {}) : Base(options) {}

  template <Real U>
  BinaryCrossEntropy<U> cast() const {
    return BinaryCrossEntropy<U>(this->options_);
  }

 private:
  friend Base;

  static typename Base::Element of(Scalar_ x, Scalar_ t) {
    const Scalar_ tail = std::exp(-std::abs(x));
    const Scalar_ positive_part = x < 0 ? Scalar_(0) : x;
    const Scalar_ sigmoid = x < 0 ? tail / (1 + tail) : 1 / (1 + tail);
    return {static_cast<Wide<Scalar_>>(positive_part - x * t) + static_cast<Wide<Scalar_>>(std::log1p(tail)),
            sigmoid - t};
  }
};

/// softmax(logits)[i][j] = exp(logits[i][j]) / sum over k of exp(logits[i][k]), for any finite logits.
template <class X>
requires Real<typename X::Scalar> Matrix<typename X::Scalar> softmax(const Eigen::DenseBase<X>& logits) {
  using Scalar = typename X::Scalar;
  Matrix<Scalar> y = logits.derived();
  for (Index i = 0; i < y.rows() && y.cols() > 0; ++i) {
    const kernels::SoftmaxRow<Scalar> row(&y(i, 0), y.cols(), 1);
    for (Index j = 0; j < y.cols(); ++j) y(i, j) = row.probability(y(i, j));
  }
  return y;
}

/// The logarithm of softmax, without rounding a small logarithm away.
template <class X>
requires Real<typename X::Scalar> Matrix<typename X::Scalar> log_softmax(const Eigen::DenseBase<X>& logits) {
  using Scalar = typename X::Scalar;
  Matrix<Scalar> y = logits.derived();
  for (Index i = 0; i < y.rows() && y.cols() > 0; ++i) {
    const kernels::SoftmaxRow<Scalar> row(&y(i, 0), y.cols(), 1);
    for (Index j = 0; j < y.cols(); ++j) y(i, j) = static_cast<Scalar>(row.log_probability(y(i, j)));
  }
  return y;
}

}  // namespace evenkeel
