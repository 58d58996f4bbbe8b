#pragma once

#include <algorithm>  // min
#include <cstddef>    // size_t
#include <cstdint>    // int64_t, uint64_t
#include <functional>
#include <optional>
#include <span>
#include <type_traits>  // conditional_t
#include <vector>

#include "evenkeel/core/buffer.hpp"       // MatrixCache
#include "evenkeel/core/error.hpp"        // ShapeError
#include "evenkeel/core/mode.hpp"         // Mode
#include "evenkeel/core/sparse.hpp"       // SparseOf
#include "evenkeel/core/types.hpp"        // Index, Matrix
#include "evenkeel/core/view.hpp"         // DenseOf
#include "evenkeel/network/layer.hpp"     // rows_per_example
#include "evenkeel/training/batches.hpp"  // Batches
#include "evenkeel/training/clip.hpp"     // clip_gradient_norm
#include "evenkeel/training/loss.hpp"     // Labels

namespace evenkeel {

struct FitOptions {
  Index steps = 1000;      ///< Updates of the parameters, >= 1, those before first_step counted.
  Index batch_size = 32;   ///< Examples a step, >= 1; the last batch of an epoch may be smaller.
  std::uint64_t seed = 0;  ///< Of the order of the examples; see Batches.
  bool drop_last =
      false;  ///< Leave out an epoch's last batch where it would be smaller: BatchNorm cannot take one of one.
  std::function<double(Index)> schedule = nullptr;  ///< Factor on the learning rate at update 0, 1, ...; none: 1.
  std::optional<double> clip_norm = std::nullopt;   ///< The largest norm of all gradients together; none: no clipping.
  Index first_step =
      0;  ///< In [0, steps]; of a run that goes on: the steps made before, optimizer.steps() of a checkpoint.
  /// Consecutive rows of x that are one example and stay together, as the tokens of a sequence do: a multiple of what the network
  /// takes together, which is the default (the positions of its attention; 1 without any).
  std::optional<Index> rows_per_example = std::nullopt;
};

/// What happened in one step of fit, given to its callback.
struct FitStep {
  Index step;            ///< first_step, first_step + 1, ...
  double loss;           ///< Of this batch, before the update.
  double gradient_norm;  ///< Before clipping; 0 without clipping, where it is not computed.
};

namespace detail {

/// The rows of some examples, each of so many.
class RowsOfExamples {
 public:
  RowsOfExamples(Index rows_per_example, Index most_examples) : rows_per_example_{rows_per_example} {
    if (rows_per_example > 1) rows_.reserve(static_cast<std::size_t>(rows_per_example * most_examples));
  }
  std::span<const Index> operator()(std::span<const Index> examples) {
    if (rows_per_example_ == 1) return examples;
    rows_.clear();
    for (const Index example : examples)
      for (Index i = 0; i < rows_per_example_; ++i) rows_.push_back(example * rows_per_example_ + i);
    return rows_;
  }

 private:
  Index rows_per_example_;
  std::vector<Index> rows_;
};

/// The targets of one batch: labels as integers, or rows of a matrix.
template <typename Scalar, class Targets>
class TargetBatch {
 public:
  static constexpr bool labels = Labels<Targets>;

  explicit TargetBatch(const Targets& targets) : targets_{targets} {
    if constexpr (labels) {
      all_.reserve(static_cast<std::size_t>(label_count(targets)));
      for_each_label(targets, [&](Index, auto label) { all_.push_back(static_cast<std::int64_t>(label)); });
    }
  }

  Index count() const {
    if constexpr (labels)
      return static_cast<Index>(all_.size());
    else
      return targets_.rows();
  }

  const auto& take(std::span<const Index> rows) {
    if constexpr (labels) {
      batch_.clear();
      for (const Index row : rows) batch_.push_back(all_[static_cast<std::size_t>(row)]);
      return batch_;
    } else {
      auto& batch = rows_.get(static_cast<Index>(rows.size()), targets_.cols());
      for (std::size_t i = 0; i < rows.size(); ++i) batch.row(static_cast<Index>(i)) = targets_.row(rows[i]);
      return batch;
    }
  }

 private:
  const Targets& targets_;
  std::vector<std::int64_t> all_;
  std::vector<std::int64_t> batch_;
  MatrixCache<Scalar> rows_;
};

/// The inputs of one batch: rows of a dense or of a sparse matrix.
template <typename Scalar, class X>
class InputBatch {
 public:
  InputBatch(const X& x, Index) : x_{x} {}
  const Matrix<Scalar>& take(std::span<const Index> rows) {
    auto& batch = rows_.get(static_cast<Index>(rows.size()), x_.cols());
    for (std::size_t i = 0; i < rows.size(); ++i) batch.row(static_cast<Index>(i)) = x_.row(rows[i]);
    return batch;
  }

 private:
  const X& x_;
  MatrixCache<Scalar> rows_;
};

template <typename Scalar, SparseOf<Scalar> X>
class InputBatch<Scalar, X> {
 public:
  InputBatch(const X& x, Index most_rows) : x_{sparse_view<Scalar>(x)} {
    if (!x_.by_rows) {
      by_rows_.assign(x_);
      x_ = by_rows_.view();
    }
    batch_.reserve(x_, (std::min)(most_rows, x_.rows()));
  }
  SparseView<Scalar> take(std::span<const Index> rows) {
    batch_.gather(x_, rows);
    return batch_.view();
  }

 private:
  SparseView<Scalar> x_;
  SparseRows<Scalar> by_rows_;  // all of x, where it lies by columns
  SparseRows<Scalar> batch_;
};

}  // namespace detail

/// Trains a network on examples in shuffled mini-batches: the loop forward (Mode::train), loss, backward, clip, step.
///
///     ek::fit(net, cross_entropy, optimizer, x, labels, {.steps = 3000, .batch_size = 16, .seed = 1});
///
/// A run that stopped after `first_step` steps, and goes on with the network's and optimizer's state of then, gives the same
/// bits as one without a stop.
///
/// Shapes  x: (examples, features), dense, or sparse where the network's first layer takes that (stored by columns it is
///         copied once). targets: a label for each row of x, or a matrix with a row for each. An example is a row, or
///         rows_per_example of them: what batch_size counts.
/// Values  It does not look whether losses are finite. A step with gradients that are not spoils the weights: look in the callback,
///         or write the loop, with Mode::train_prepared where there are running statistics.
/// `callback`, given a FitStep after each step, may return false to stop. Returns the number of steps made. Throws
/// ShapeError unless there is one target a row and x is of whole examples; std::invalid_argument for options out of their bounds.
template <class Network, class Loss, class Optimizer, class X, class Targets, class Callback>
Index fit(Network& network, Loss& loss, Optimizer& optimizer, const X& x, const Targets& targets,
          const FitOptions& options, Callback&& callback) {
  using Scalar = typename Network::Scalar;
  static_assert(DenseOf<X, Scalar> || SparseOf<X, Scalar>,
                "x must be a dense or sparse Eigen matrix with the network's Scalar");
  static_assert(Labels<Targets> || DenseOf<Targets, Scalar>,
                "targets must be a range of integers, or a dense Eigen object with the network's Scalar");
  detail::at_least(1, options.steps, "fit", "steps");
  detail::TargetBatch<Scalar, Targets> target_batch(targets);
  if (target_batch.count() != x.rows())
    EVENKEEL_THROW(ShapeError, "fit: expected one target for each of ", x.rows(), " rows, got ", target_batch.count());
  if (options.first_step < 0 || options.first_step > options.steps)
    EVENKEEL_THROW(std::invalid_argument, "fit: expected first_step in [0, ", options.steps, "], got ",
                   options.first_step);
  const Index together = rows_per_example(network), rows_each = options.rows_per_example.value_or(together);
  if (rows_each < 1 || rows_each % together != 0)
    EVENKEEL_THROW(std::invalid_argument, "fit: expected rows_per_example to be a multiple of the ", together,
                   " rows that the network takes together, got ", rows_each);
  if (x.rows() % rows_each != 0)
    EVENKEEL_THROW(ShapeError, "fit: expected x of whole examples of ", rows_each, " rows, got ", x.rows(), " rows");
  Batches batches(x.rows() / rows_each, options.batch_size, {.seed = options.seed, .drop_last = options.drop_last});
  batches.skip_to(options.first_step);
  auto parameters = network.parameters();
  if (options.clip_norm) clip_gradient_norm(Parameters<Scalar>{}, *options.clip_norm);  // checks the bound
  const Index most_examples = (std::min)(options.batch_size, batches.count());
  detail::RowsOfExamples rows_of(rows_each, most_examples);
  detail::InputBatch<Scalar, X> input_batch(x, most_examples * rows_each);

  for (Index step = options.first_step; step < options.steps; ++step) {
    const std::span<const Index> rows = rows_of(batches.next());
    const auto& input = input_batch.take(rows);
    const auto& result = loss(network.forward(input, Mode::train), target_batch.take(rows));
    network.backward_parameters(input, result.gradient);
    FitStep report{step, static_cast<double>(result.value), 0.0};
    if (options.clip_norm) report.gradient_norm = clip_gradient_norm(parameters, *options.clip_norm);
    optimizer.step(options.schedule ? options.schedule(step) : 1.0);
    if constexpr (std::is_void_v<decltype(callback(report))>) {
      callback(report);
    } else {
      if (!static_cast<bool>(callback(report))) return step + 1 - options.first_step;
    }
  }
  return options.steps - options.first_step;
}

template <class Network, class Loss, class Optimizer, class X, class Targets>
Index fit(Network& network, Loss& loss, Optimizer& optimizer, const X& x, const Targets& targets,
          const FitOptions& options = {}) {
  return fit(network, loss, optimizer, x, targets, options, [](const FitStep&) {});
}

}  // namespace evenkeel
