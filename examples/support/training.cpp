#include "examples/support/training.hpp"

#include <Eigen/SparseCore>
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/loss.hpp"
#include "evenkeel/training/sgd.hpp"
#include "examples/support/work.hpp"  // give_up_if_interrupted

namespace examples {

void check_words(const Questions& questions, int splits, const std::string& path) {
  for (int i = 0; i < splits; ++i)
    if (Vocabulary(questions, split(questions, static_cast<std::uint64_t>(i)).train).size() == 0)
      throw std::runtime_error(path + ": expected words in the questions to train on, got none");
}

template <typename Scalar>
ek::Mlp<Scalar> train(const Problem<Scalar>& problem, const TrainingSettings& settings, const Callback& callback) {
  ek::Mlp<Scalar> network(problem.sizes(settings.hidden), {.norm = settings.norm,
                                                           .dropout = settings.dropout,
                                                           .input_dropout = settings.input_dropout,
                                                           .init = settings.init,
                                                           .seed = settings.seed});
  ek::SoftmaxCrossEntropy<Scalar> cross_entropy;
  const auto fit_on = [&](const auto& features, auto optimizer) {
    ek::fit(network, cross_entropy, optimizer, features, problem.train.labels,
            {.steps = settings.steps,
             .batch_size = (std::min)(settings.batch, problem.train.count()),
             .seed = settings.seed,
             .drop_last = settings.norm == ek::Norm::batch},  // a last batch of one has no statistics
            [&](const ek::FitStep& step) {
              if (step.step % 64 == 0) give_up_if_interrupted();
              return !callback || callback(step);
            });
  };
  const auto fit = [&](auto optimizer) {
    if (settings.input_dropout > 0) return fit_on(problem.train.features, std::move(optimizer));
    const Eigen::SparseMatrix<Scalar, Eigen::RowMajor> words = problem.train.features.sparseView();  // most are 0
    fit_on(words, std::move(optimizer));
  };
  if (settings.optimizer == Optimizer::sgd)
    fit(ek::SGD<Scalar>(network, {.learning_rate = settings.rate, .weight_decay = settings.decay}));
  else
    fit(ek::AdamW<Scalar>(network, {.learning_rate = settings.rate, .weight_decay = settings.decay}));
  return network;
}

Evaluation evaluate(const ek::Matrix<double>& logits, const std::vector<int>& labels) {
  const ek::Matrix<double> probabilities = ek::softmax(logits);
  ek::SoftmaxCrossEntropy<double> cross_entropy;
  Evaluation result;
  result.cross_entropy = cross_entropy(logits, labels).value;
  const auto count = static_cast<double>(labels.size());
  int right_count = 0;
  double wrong_probability = 0;
  for (ek::Index i = 0; i < logits.rows(); ++i) {
    ek::Index answer = 0;
    const double largest = logits.row(i).maxCoeff(&answer);
    double next = -std::numeric_limits<double>::infinity();
    for (ek::Index j = 0; j < logits.cols(); ++j)
      if (j != answer) next = (std::max)(next, logits(i, j));
    const double top = probabilities(i, answer);
    const bool right = answer == labels[static_cast<std::size_t>(i)];
    right_count += right ? 1 : 0;
    result.top_probability += top / count;
    result.logit_gap += (largest - next) / count;
    if (!right) wrong_probability += top;
    auto& bin = result.bins[(std::min)(std::size_t{9}, static_cast<std::size_t>(std::isnan(top) ? 0.0 : top * 10))];
    bin.count += 1;
    bin.confidence += top;
    bin.right += right ? 1 : 0;
  }
  result.accuracy = right_count / count;
  if (right_count < count) result.top_probability_wrong = wrong_probability / (count - right_count);
  return result;
}

template <typename Scalar>
Evaluation evaluate(const ek::Mlp<Scalar>& network, const Examples<Scalar>& examples) {
  return evaluate(ek::Matrix<double>(network.infer(examples.features).template cast<double>()), examples.labels);
}

template <typename Scalar>
double training_loss(ek::Mlp<Scalar>& network, const Problem<Scalar>& problem) {
  const ek::Mode mode(ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::keep);
  const ek::Matrix<double> logits = network.forward(problem.train.features, mode).template cast<double>();
  ek::SoftmaxCrossEntropy<double> cross_entropy;
  return cross_entropy(logits, problem.train.labels).value;
}

template ek::Mlp<float> train(const Problem<float>&, const TrainingSettings&, const Callback&);
template ek::Mlp<double> train(const Problem<double>&, const TrainingSettings&, const Callback&);
template Evaluation evaluate(const ek::Mlp<float>&, const Examples<float>&);
template Evaluation evaluate(const ek::Mlp<double>&, const Examples<double>&);
template double training_loss(ek::Mlp<float>&, const Problem<float>&);
template double training_loss(ek::Mlp<double>&, const Problem<double>&);

}  // namespace examples
