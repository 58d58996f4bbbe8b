#pragma once

// The questions as a learning problem, a network trained on it, and what can be measured of its answers.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/network/mlp.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/fit.hpp"
#include "evenkeel/training/loss.hpp"
#include "examples/support/questions.hpp"
#include "examples/support/statistics.hpp"  // nan
#include "examples/support/work.hpp"        // give_up_if_interrupted

namespace examples {

/// The names of the norms, for CLI::IsMember and norm_named.
inline const std::map<std::string, ek::Norm>& norms_by_name() {
  static const std::map<std::string, ek::Norm> norms = {
      {"none", ek::Norm::none}, {"batch", ek::Norm::batch}, {"layer", ek::Norm::layer}, {"rms", ek::Norm::rms}};
  return norms;
}
inline std::vector<std::string> norm_names() { return {"none", "batch", "layer", "rms"}; }

/// Word-presence features with their routes.
template <typename Scalar>
struct Examples {
  ek::Matrix<Scalar> features;  // (questions, words)
  std::vector<int> labels;

  ek::Index count() const { return features.rows(); }

  /// Copies these questions, as Batches numbers them.
  void take(std::span<const ek::Index> places, ek::Matrix<Scalar>& x, std::vector<int>& routes) const {
    x.resize(static_cast<ek::Index>(places.size()), features.cols());
    routes.clear();
    for (std::size_t i = 0; i < places.size(); ++i) {
      x.row(static_cast<ek::Index>(i)) = features.row(places[i]);
      routes.push_back(labels[static_cast<std::size_t>(places[i])]);
    }
  }
};

/// One split of the questions, in numbers.
template <typename Scalar>
struct Problem {
  Vocabulary vocabulary;
  Examples<Scalar> train, validation, test;
  ek::Index routes;

  Problem(const Questions& questions, std::uint64_t seed) : Problem(questions, split(questions, seed)) {}
  Problem(const Questions& questions, const Split& parts)
      : vocabulary(questions, parts.train),
        train(part(questions, parts.train)),
        validation(part(questions, parts.validation)),
        test(part(questions, parts.test)),
        routes{static_cast<ek::Index>(questions.routes.size())} {}

  ek::Index words() const { return vocabulary.size(); }

  /// The sizes of a network from words over these hidden sizes to routes.
  std::vector<ek::Index> sizes(const std::vector<ek::Index>& hidden) const {
    std::vector<ek::Index> all = {words()};
    all.insert(all.end(), hidden.begin(), hidden.end());
    all.push_back(routes);
    return all;
  }

 private:
  Examples<Scalar> part(const Questions& questions, const std::vector<std::size_t>& places) const {
    return {vocabulary.features<Scalar>(questions, places), examples::labels(questions, places)};
  }
};

struct TrainingSettings {
  std::vector<ek::Index> hidden = {64, 64};
  ek::Norm norm = ek::Norm::none;
  double dropout = 0;
  double decay = 0;  // AdamW's, on weights only
  double rate = 1e-3;
  ek::Index batch = 16;
  ek::Index steps = 3000;
  std::uint64_t seed = 0;  // of start, masks and order
};

/// A network from He's start after so many steps of AdamW on mini-batches; `callback` gets each step.
template <typename Scalar, class Callback>
ek::Mlp<Scalar> train(const Problem<Scalar>& problem, const TrainingSettings& settings, Callback&& callback) {
  ek::Mlp<Scalar> network(problem.sizes(settings.hidden),
                          {.norm = settings.norm, .dropout = settings.dropout, .seed = settings.seed});
  ek::AdamW<Scalar> optimizer(network, {.learning_rate = settings.rate, .weight_decay = settings.decay});
  ek::SoftmaxCrossEntropy<Scalar> cross_entropy;
  ek::fit(network, cross_entropy, optimizer, problem.train.features, problem.train.labels,
          {.steps = settings.steps,
           .batch_size = (std::min)(settings.batch, problem.train.count()),
           .seed = settings.seed,
           .drop_last = settings.norm == ek::Norm::batch},  // a last batch of one has no statistics
          callback);
  return network;
}

template <typename Scalar>
ek::Mlp<Scalar> train(const Problem<Scalar>& problem, const TrainingSettings& settings) {
  return train(problem, settings, [](const ek::FitStep& step) {
    if (step.step % 64 == 0) give_up_if_interrupted();
  });
}

/// What a network's logits say about some questions, all in double.
struct Evaluation {
  /// Questions by their top probability, in tenths: the points of a reliability diagram.
  struct Bin {
    double count = 0, confidence = 0, right = 0;  // sums
  };

  double cross_entropy = 0;
  double accuracy = 0;
  double top_probability = 0;          // mean of the largest
  double logit_gap = 0;                // mean of the largest logit minus the next
  double top_probability_wrong = nan;  // mean of the largest where the answer is wrong; NaN where none is
  std::array<Bin, 10> bins{};
};

template <class Logits>
Evaluation evaluate(const Logits& any_logits, const std::vector<int>& labels) {
  const ek::Matrix<double> logits = any_logits.template cast<double>();
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
  return evaluate(network.infer(examples.features), examples.labels);
}

}  // namespace examples
