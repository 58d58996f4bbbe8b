#pragma once

// The questions as a learning problem, a network trained on it, and what can be measured of its answers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/network/mlp.hpp"
#include "evenkeel/training/fit.hpp"  // FitStep
#include "examples/support/questions.hpp"
#include "examples/support/statistics.hpp"  // not_a_number

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

/// Throws std::runtime_error unless the training part of each of these splits has a word, without which there is nothing to
/// learn from. `path` is the file that is named.
void check_words(const Questions& questions, int splits, const std::string& path);

enum class Optimizer { adamw, sgd };

struct TrainingSettings {
  std::vector<ek::Index> hidden = {64, 64};
  ek::Norm norm = ek::Norm::none;
  double dropout = 0;        // of hidden activations
  double input_dropout = 0;  // of words
  ek::Init init = ek::Init::he;
  Optimizer optimizer = Optimizer::adamw;
  double decay = 0;  // AdamW's, or SGD's, on weights only
  double rate = 1e-3;
  ek::Index batch = 16;
  ek::Index steps = 3000;
  std::uint64_t seed = 0;  // of start, masks and order
};

/// Told of each step; false ends the training.
using Callback = std::function<bool(const ek::FitStep&)>;

/// A network after so many steps on mini-batches. Gives up on an interrupt. For float and double.
template <typename Scalar>
ek::Mlp<Scalar> train(const Problem<Scalar>& problem, const TrainingSettings& settings, const Callback& callback = {});

/// What a network's logits say about some questions, all in double.
struct Evaluation {
  /// Questions by their top probability, in tenths: the points of a reliability diagram.
  struct Bin {
    double count = 0, confidence = 0, right = 0;  // sums
  };

  double cross_entropy = 0;
  double accuracy = 0;
  double top_probability = 0;                   // mean of the largest
  double logit_gap = 0;                         // mean of the largest logit minus the next
  double top_probability_wrong = not_a_number;  // mean of the largest where the answer is wrong; NaN where none is
  std::array<Bin, 10> bins{};
};

/// Logits of (questions, routes).
Evaluation evaluate(const ek::Matrix<double>& logits, const std::vector<int>& labels);

/// What the network says in eval. For float and double.
template <typename Scalar>
Evaluation evaluate(const ek::Mlp<Scalar>& network, const Examples<Scalar>& examples);

/// The loss on all training questions, without dropout. BatchNorm takes the statistics of these questions, as it does in
/// training. For float and double.
template <typename Scalar>
double training_loss(ek::Mlp<Scalar>& network, const Problem<Scalar>& problem);

}  // namespace examples
