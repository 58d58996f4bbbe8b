#pragma once

#include <algorithm>  // min
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
};

/// What happened in one step of fit, given to its callback.
struct FitStep {
  Index step;            ///< first_step, first_step + 1, ...
  double loss;           ///< Of this batch, before the update.
  double gradient_norm;  ///< Before clipping; 0 without clipping, where it is not computed.
};

namespace detail {

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

  const auto& take(std::span<const Index> examples) {
    if constexpr (labels) {
      batch_.clear();
      for (const Index example : examples) batch_.push_back(all_[static_cast<std::size_t>(example)]);
      return batch_;
    } else {
      auto& batch = rows_.get(static_cast<Index>(examples.size()), targets_.cols());
      for (std::size_t i = 0; i < examples.size(); ++i) batch.row(static_cast<Index>(i)) = targets_.row(examples[i]);
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
  const Matrix<Scalar>& take(std::span<const Index> examples) {
    auto& batch = rows_.get(static_cast<Index>(examples.size()), x_.cols());
    for (std::size_t i = 0; i < examples.size(); ++i) batch.row(static_cast<Index>(i)) = x_.row(examples[i]);
    return batch;
  }

 private:
  const X& x_;
  MatrixCache<Scalar> rows_;
};

template <typename Scalar, SparseOf<Scalar> X>
class InputBatch<Scalar, X> {
 public:
  InputBatch(const X& x, Index batch_size) : x_{sparse_view<Scalar>(x)} {
    if (!x_.by_rows) {
      by_rows_.assign(x_);
      x_ = by_rows_.view();
    }
    batch_.reserve(x_, (std::min)(batch_size, x_.rows()));
  }
  SparseView<Scalar> take(std::span<const Index> examples) {
    batch_.gather(x_, examples);
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
///         copied once). targets: a label for each example, or a matrix with a row for each.
/// `callback`, given a FitStep after each step, may return false to stop. Returns the number of steps made. Throws
/// ShapeError unless there is one target an example; std::invalid_argument for options out of their bounds.
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
    EVENKEEL_THROW(ShapeError, "fit: expected one target for each of ", x.rows(), " examples, got ",
                   target_batch.count());
  if (options.first_step < 0 || options.first_step > options.steps)
    EVENKEEL_THROW(std::invalid_argument, "fit: expected first_step in [0, ", options.steps, "], got ",
                   options.first_step);
  Batches batches(x.rows(), options.batch_size, {.seed = options.seed, .drop_last = options.drop_last});
  batches.skip_to(options.first_step);
  auto parameters = network.parameters();
  if (options.clip_norm) clip_gradient_norm(Parameters<Scalar>{}, *options.clip_norm);  // checks the bound
  detail::InputBatch<Scalar, X> input_batch(x, options.batch_size);

  for (Index step = options.first_step; step < options.steps; ++step) {
    const std::span<const Index> examples = batches.next();
    const auto& input = input_batch.take(examples);
    const auto& result = loss(network.forward(input, Mode::train), target_batch.take(examples));
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
