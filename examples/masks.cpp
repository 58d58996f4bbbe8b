// Is a network's eval output the average over its dropout masks, and does disagreement between masks tell wrong answers?
//
//   build/release/examples/masks
//   build/release/examples/masks --seeds 20 --plot masks.png --csv masks.csv
//   build/release/examples/masks --data my_questions.tsv --dropout 0.3 --masks 1000
//
// 1. One linear layer behind dropout: all 2^n masks on the n words of a question, each with its probability, against eval.
// 2. The library's own masks, 1 to 10,000 of them: how near their average comes to eval, for that layer and for a network
//    with two hidden layers of 64.
// 3. That network's masks on questions that it has not seen: is their average better than eval, and does their uncertainty
//    tell wrong answers from right ones?
//
// Six splits of the questions, two networks of 3,000 steps and 30,000 forward passes each: about 15 s on two cores.
//
// What is random, for whoever wants to draw the same elsewhere; s = 0, 1, ... is the split and p the dropout:
//
//   features   examples::split(questions, s). Row i of a batch is question i of its validation or test part; the columns
//              are the words of its training part in order of appearance.
//   networks   linear: Mlp({words, routes}, {.input_dropout = p, .seed = s}); dropout is layer 0, the weights layer 1.
//              deep: Mlp({words, 64, 64, routes}, {.dropout = p, .seed = s}); dropout is layer 2 and layer 5.
//              Training: AdamW at learning rate 0.001 through fit, .batch_size = 16, .seed = s.
//   masks      After training a copy is reseeded with 2^32 + s, and mask k = 0, 1, ... is call k: the pass number k of
//              Mode::monte_carlo over a whole part, which begins with k = 0 again for each part. Averages over K are of
//              masks 0 to K - 1, K to 2K - 1, and so on.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/core/mode.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/training/loss.hpp"
#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/questions.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/training.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;
using examples::Estimate;
using examples::Questions;

namespace {

using Matrix = ek::Matrix<double>;
using Row = Eigen::RowVectorXd;
using Network = ek::Mlp<double>;
using Problem = examples::Problem<double>;

/// Of a question with more words not all masks are gone through; with these there are 65,536.
constexpr ek::Index most_words = 16;
/// Two ways to compute the same number differ by less.
constexpr double rounding = 1e-12;

struct Settings : examples::CommonOptions {
  double dropout = 0.5;
  double decay = 3;
  ek::Index masks = 10000;

  /// 1, 10, 100, ..., masks.
  std::vector<ek::Index> mask_counts() const {
    std::vector<ek::Index> counts;
    for (ek::Index count = 1; count <= masks; count *= 10) counts.push_back(count);
    return counts;
  }
};

/// What one forward pass says about some questions, or the mean of many passes. All (questions, routes).
struct Outputs {
  Matrix logits, log_probabilities, probabilities;

  explicit Outputs(const Matrix& z) : logits{z}, log_probabilities{ek::log_softmax(z)}, probabilities{ek::softmax(z)} {}

  void set_zero() {
    for (Matrix* each : {&logits, &log_probabilities, &probabilities}) each->setZero();
  }
  void scale(double factor) {
    for (Matrix* each : {&logits, &log_probabilities, &probabilities}) *each *= factor;
  }
  void add(double weight, const Outputs& other) {
    logits += weight * other.logits;
    log_probabilities += weight * other.log_probabilities;
    probabilities += weight * other.probabilities;
  }
};

/// The averages over masks that are compared with eval: of the logits, and two of the probabilities. The geometric one is
/// exp(mean of the logarithms), divided by its sum over the routes.
enum Average : std::size_t { of_logits, geometric, arithmetic };
constexpr std::array averages = {of_logits, geometric, arithmetic};
constexpr std::array average_names = {"logits", "geometric", "arithmetic"};
template <class T>
using ByAverage = std::array<T, averages.size()>;

/// Each average minus eval.
ByAverage<Matrix> differences(const Outputs& mean, const Outputs& eval) {
  return {mean.logits - eval.logits, ek::softmax(mean.log_probabilities) - eval.probabilities,
          mean.probabilities - eval.probabilities};
}

/// y = x weight^T + bias behind dropout, in numbers, to be thinned without the library's help.
struct DropoutLinear {
  Matrix weight;              // (routes, words)
  Row bias;                   // (routes)
  double p;                   // what Dropout makes of the option: a multiple of 2^-16
  double scale{1 / (1 - p)};  // on words that are kept

  DropoutLinear(const Network& network, double dropout)
      : weight{network.parameters()[0].value},
        bias{network.parameters()[1].value},
        p{std::round(65536 * dropout) / 65536} {}

  /// The mean over all masks on these words, each with its probability, where words before them gave these logits. Without
  /// words this is one thinned network; the first word is dropped from one half of the others and kept in the other half.
  Outputs mean_over_masks(std::span<const ek::Index> words, const Row& logits) const {
    if (words.empty()) return Outputs(logits);
    const Row with_first = logits + scale * weight.col(words.front()).transpose();
    Outputs mean = mean_over_masks(words.subspan(1), logits);
    mean.scale(p);
    mean.add(1 - p, mean_over_masks(words.subspan(1), with_first));
    return mean;
  }
};

/// All masks of one validation question: the largest difference to eval over the routes, NaN with too many words.
struct Enumerated {
  std::size_t question;  // place in Questions::all
  ek::Index words;
  ByAverage<double> difference = {examples::not_a_number, examples::not_a_number, examples::not_a_number};

  bool done() const { return words <= most_words; }
};

std::vector<Enumerated> enumerate(const Network& network, double dropout, const Matrix& features,
                                  const std::vector<std::size_t>& questions) {
  const DropoutLinear layer(network, dropout);
  std::vector<Enumerated> results;
  for (ek::Index i = 0; i < features.rows(); ++i) {
    examples::give_up_if_interrupted();
    std::vector<ek::Index> words;  // the other features are 0 under every mask
    for (ek::Index j = 0; j < features.cols(); ++j)
      if (features(i, j) != 0) words.push_back(j);
    Enumerated result{questions[static_cast<std::size_t>(i)], static_cast<ek::Index>(words.size())};
    if (result.done()) {
      const Outputs eval(network.infer(features.row(i)));
      const auto apart = differences(layer.mean_over_masks(words, layer.bias), eval);
      for (const Average average : averages) result.difference[average] = apart[average].cwiseAbs().maxCoeff();
    }
    results.push_back(result);
  }
  return results;
}

/// Calls use(outputs) for mask 0, 1, ..., masks - 1; see the top of this file.
template <class Use>
void for_each_mask(Network network, const Matrix& features, ek::Index masks, std::size_t split, const Use& use) {
  network.reseed((std::uint64_t{1} << 32) + split);
  for (ek::Index mask = 0; mask < masks; ++mask) {
    if (mask % 64 == 0) examples::give_up_if_interrupted();
    use(Outputs(network.forward(features, ek::Mode::monte_carlo)));
  }
}

/// Averages of K masks, one after another, and the mean over them, all questions and routes of (average - eval)^2.
class AveragesOf {
 public:
  AveragesOf(ek::Index masks, const Outputs& eval) : masks_{masks}, eval_{eval}, mean_{eval} { mean_.set_zero(); }

  double masks() const { return static_cast<double>(masks_); }

  void add(const Outputs& outputs) {
    mean_.add(1 / masks(), outputs);
    if (++in_mean_ < masks_) return;
    const auto apart = differences(mean_, eval_);
    for (const Average average : averages) squares_[average] += apart[average].array().square().mean();
    ++finished_;
    in_mean_ = 0;
    mean_.set_zero();
  }

  ByAverage<double> mean_square() const {
    ByAverage<double> result = squares_;
    for (double& square : result) square /= finished_;
    return result;
  }

 private:
  ek::Index masks_;
  Outputs eval_;
  Outputs mean_;                 // of this average, as far as it goes
  ek::Index in_mean_ = 0;        // its masks so far
  double finished_ = 0;          // averages before it
  ByAverage<double> squares_{};  // their sum
};

/// The mean squares for averages of 1, 10, 100, ... masks, and what is in them:
///
///     mean square(K) = own error^2 + spread^2 / K
///
/// Eval's own error is its distance from the average over all masks there are, the spread is the standard deviation of one
/// mask, and spread^2 / K is chance. The n averages of K masks have the average of all n K as their mean; so
/// mean square(K) - mean square(n K) is (1 - 1 / n) spread^2 / K, for means exactly, for the geometric one about: the better
/// the larger K is, so n K is split in the middle.
struct Curve {
  struct Point {
    double masks;
    ByAverage<double> mean_square;
  };
  std::vector<Point> points;

  /// Of the average over the most masks.
  double chance_square(Average average) const {
    const Point& middle = points[(points.size() - 1) / 2];
    const Point& last = points.back();
    return (middle.mean_square[average] - last.mean_square[average]) / (last.masks / middle.masks - 1);
  }
  double spread_square(Average average) const { return chance_square(average) * points.back().masks; }
  double own_square(Average average) const { return points.back().mean_square[average] - chance_square(average); }
};

Curve sample(const Network& network, const Matrix& features, const Settings& settings, std::size_t split) {
  const Outputs eval(network.infer(features));
  std::vector<AveragesOf> all;
  for (const ek::Index count : settings.mask_counts()) all.emplace_back(count, eval);
  for_each_mask(network, features, settings.masks, split, [&](const Outputs& outputs) {
    for (AveragesOf& each : all) each.add(outputs);
  });
  Curve curve;
  for (const AveragesOf& each : all) curve.points.push_back({each.masks(), each.mean_square()});
  return curve;
}

/// In nats: 0 where one route has all the probability, log(routes) where each has as much.
double entropy(const Row& probabilities) {
  double sum = 0;
  for (const double p : probabilities)
    if (p > 0) sum -= p * std::log(p);
  return sum;
}

ek::Index top(const Row& probabilities) {
  ek::Index place = 0;
  probabilities.maxCoeff(&place);
  return place;
}

/// What the deep network says about one test question. Masks as samples of a prediction: Gal & Ghahramani 2016,
/// https://arxiv.org/abs/1506.02142; the mutual information of answer and mask: Houlsby, Huszar, Ghahramani & Lengyel 2011,
/// https://arxiv.org/abs/1112.5745.
struct Answer {
  std::size_t question;  // place in Questions::all
  ek::Index truth;       // a route
  Row eval;              // probabilities
  Row mean, deviation;   // of the probabilities over masks
  double mask_entropy;   // of one mask, mean over masks
  double mask_loss;      // -log p(truth) of one mask, mean over masks
  double mask_right;     // share of masks whose answer is right

  bool right() const { return top(eval) == truth; }
  double predictive_entropy() const { return entropy(mean); }
  double mutual_information() const { return predictive_entropy() - mask_entropy; }
};
using Answers = std::vector<Answer>;

Answers answer(const Network& network, const examples::Examples<double>& test,
               const std::vector<std::size_t>& questions, ek::Index masks, std::size_t split) {
  const Outputs eval(network.infer(test.features));
  const double weight = 1 / static_cast<double>(masks);
  Outputs mean = eval;
  mean.set_zero();
  Matrix squares = mean.probabilities;
  Eigen::VectorXd entropies = Eigen::VectorXd::Zero(test.count()), right = entropies;
  for_each_mask(network, test.features, masks, split, [&](const Outputs& outputs) {
    mean.add(weight, outputs);
    squares += weight * outputs.probabilities.cwiseAbs2();
    entropies -= weight * outputs.probabilities.cwiseProduct(outputs.log_probabilities).rowwise().sum();
    for (ek::Index i = 0; i < test.count(); ++i)
      if (top(outputs.probabilities.row(i)) == test.labels[static_cast<std::size_t>(i)]) right[i] += weight;
  });
  const Matrix variances = (squares - mean.probabilities.cwiseAbs2()) / (1 - weight);  // of masks - 1

  Answers answers;
  for (ek::Index i = 0; i < test.count(); ++i) {
    const auto place = static_cast<std::size_t>(i);
    const ek::Index truth = test.labels[place];
    answers.push_back({.question = questions[place],
                       .truth = truth,
                       .eval = eval.probabilities.row(i),
                       .mean = mean.probabilities.row(i),
                       .deviation = variances.row(i).cwiseMax(0.0).cwiseSqrt(),
                       .mask_entropy = entropies[i],
                       .mask_loss = -mean.log_probabilities(i, truth),
                       .mask_right = right[i]});
  }
  return answers;
}

/// A number that an answer gives. That of a network is the mean over its answers.
struct Figure {
  const char* name;    // in tables
  const char* column;  // in the CSV
  double (*of)(const Answer&);
};

/// Who answers: one mask, in the mean over masks; the mean of the masks' probabilities; the network without masks.
enum Predictor : std::size_t { one_mask, masks_mean, eval_alone };
constexpr std::array losses = {
    Figure{"one mask", "cross_entropy_one_mask", [](const Answer& a) { return a.mask_loss; }},
    Figure{"mean of the masks", "cross_entropy_mean", [](const Answer& a) { return -std::log(a.mean[a.truth]); }},
    Figure{"eval", "cross_entropy_eval", [](const Answer& a) { return -std::log(a.eval[a.truth]); }}};
constexpr std::array accuracies = {
    Figure{"one mask", "right_one_mask", [](const Answer& a) { return a.mask_right; }},
    Figure{"mean of the masks", "right_mean", [](const Answer& a) { return top(a.mean) == a.truth ? 1.0 : 0.0; }},
    Figure{"eval", "right_eval", [](const Answer& a) { return a.right() ? 1.0 : 0.0; }}};
constexpr Figure agreement = {"same answer", "same_answer",
                              [](const Answer& a) { return top(a.mean) == top(a.eval) ? 1.0 : 0.0; }};

/// Ways to tell how unsure an answer is: more is less sure.
enum Doubt : std::size_t { eval_doubt, eval_entropy, predictive_entropy, expected_entropy, mutual_information };
constexpr std::array doubts = {
    Figure{"eval: 1 - top probability", "eval_doubt", [](const Answer& a) { return 1 - a.eval.maxCoeff(); }},
    Figure{"eval: entropy", "eval_entropy", [](const Answer& a) { return entropy(a.eval); }},
    Figure{"masks: predictive entropy", "predictive_entropy", [](const Answer& a) { return a.predictive_entropy(); }},
    Figure{"     = expected entropy", "expected_entropy", [](const Answer& a) { return a.mask_entropy; }},
    Figure{"     + mutual information", "mutual_information", [](const Answer& a) { return a.mutual_information(); }}};

double mean_of(const Figure& figure, const Answers& answers) {
  std::vector<double> values;
  for (const Answer& each : answers) values.push_back(figure.of(each));
  return examples::mean(values);
}

/// Of the right answers alone, or of the wrong ones; NaN if there is none.
double mean_where(bool right, const Figure& figure, const Answers& answers) {
  std::vector<double> values;
  for (const Answer& each : answers)
    if (each.right() == right) values.push_back(figure.of(each));
  return examples::mean(values);
}

/// The area under the ROC curve: of all pairs of a wrong and a right answer, the share in which the wrong one is the less
/// sure; a tie is half a pair. Chance gives 0.5. NaN if all are right or all wrong.
double roc_area(const Figure& doubt, const Answers& answers) {
  double won = 0, pairs = 0;
  for (const Answer& wrong : answers)
    for (const Answer& right : answers) {
      if (wrong.right() || !right.right()) continue;
      const double more = doubt.of(wrong) - doubt.of(right);
      won += more > 0 ? 1 : more < 0 ? 0 : 0.5;
      ++pairs;
    }
  return pairs > 0 ? won / pairs : examples::not_a_number;
}

Answers surest_first(Answers answers, const Figure& doubt) {
  std::stable_sort(answers.begin(), answers.end(),
                   [&](const Answer& a, const Answer& b) { return doubt.of(a) < doubt.of(b); });
  return answers;
}

struct SplitResult {
  std::size_t split;
  std::vector<Enumerated> enumerated;
  Curve linear, deep;
  Answers answers;
};
using WhichCurve = Curve SplitResult::*;

SplitResult run_split(const Settings& settings, const Questions& questions, std::size_t split) {
  const examples::Split parts = examples::split(questions, split);
  const Problem problem(questions, parts);
  const Matrix& validation = problem.validation.features;
  const Network linear = examples::train(problem, {.hidden = {},
                                                   .input_dropout = settings.dropout,
                                                   .decay = settings.decay,
                                                   .steps = settings.steps,
                                                   .seed = split});
  const Network deep = examples::train(
      problem, {.dropout = settings.dropout, .decay = settings.decay, .steps = settings.steps, .seed = split});
  return {.split = split,
          .enumerated = enumerate(linear, settings.dropout, validation, parts.validation),
          .linear = sample(linear, validation, settings, split),
          .deep = sample(deep, validation, settings, split),
          .answers = answer(deep, problem.test, parts.test, settings.masks, split)};
}

/// The splits that are finished.
struct Results {
  std::vector<SplitResult> splits;
  double validation_to_train, test_to_train;  // ratios of the numbers of questions

  template <class Number>
  std::vector<double> by_split(const Number& number) const {
    std::vector<double> values;
    for (const SplitResult& each : splits) values.push_back(number(each));
    return values;
  }

  /// Over all questions whose masks were gone through; NaN if there is none.
  double largest_difference(Average average) const {
    double largest = examples::not_a_number;
    for (const SplitResult& each : splits)
      for (const Enumerated& question : each.enumerated) largest = std::fmax(largest, question.difference[average]);
    return largest;
  }

  /// A number of each split's curve: the mean, and its standard error as that of a difference to nothing.
  template <class Number>
  Estimate of_curves(WhichCurve curve, const Number& number) const {
    const auto values = by_split([&](const SplitResult& each) { return number(each.*curve); });
    return examples::paired_difference(values, std::vector<double>(values.size(), 0.0), validation_to_train);
  }
  double mean_square(WhichCurve curve, std::size_t point, Average average) const {
    return of_curves(curve, [&](const Curve& each) { return each.points[point].mean_square[average]; }).value;
  }
  double spread_square(WhichCurve curve, Average average) const {
    return of_curves(curve, [&](const Curve& each) { return each.spread_square(average); }).value;
  }
  Estimate own_square(WhichCurve curve, Average average) const {
    return of_curves(curve, [&](const Curve& each) { return each.own_square(average); });
  }

  std::vector<double> of_answers(const Figure& figure) const {
    return by_split([&](const SplitResult& each) { return mean_of(figure, each.answers); });
  }
  std::vector<double> of_answers_where(bool right, const Figure& figure) const {
    return by_split([&](const SplitResult& each) { return mean_where(right, figure, each.answers); });
  }
  std::vector<double> roc_areas(const Figure& doubt) const {
    return by_split([&](const SplitResult& each) { return roc_area(doubt, each.answers); });
  }
  /// On test questions, paired by split.
  Estimate difference(const std::vector<double>& after, const std::vector<double>& before) const {
    return examples::paired_difference(after, before, test_to_train);
  }
};

/// 12345 as 12,345.
std::string grouped(ek::Index number) {
  std::string text = fmt::format("{}", number);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3)
    text.insert(static_cast<std::size_t>(place), ",");
  return text;
}

void print_enumerated(const Results& results) {
  ek::Index done = 0, all = 0, masks = 0;
  for (const SplitResult& each : results.splits)
    for (const Enumerated& question : each.enumerated) {
      ++all;
      if (!question.done()) continue;
      ++done;
      masks += ek::Index{1} << question.words;
    }
  fmt::print(
      "Eval: one pass without masks. Mask: one random choice of what is dropped.\n\n1. One linear layer behind "
      "dropout, averages over all masks: largest difference to eval\n");
  fmt::print("{} masks on {} of {} validation questions, those of at most {} known words.\n\n", grouped(masks), done,
             all, most_words);
  const auto line = [&](const char* title, Average average) {
    fmt::print("{:<38} {:>9.1e}\n", title, results.largest_difference(average));
  };
  line("mean of the logits", of_logits);
  line("geometric mean of the probabilities", geometric);
  line("arithmetic mean of the probabilities", arithmetic);
}

/// One row for both networks and the three averages; cell(curve, average) gives the text.
template <class Cell>
void print_row(const std::string& title, const Cell& cell) {
  fmt::print("{:<20}", title);
  for (const WhichCurve curve : {&SplitResult::linear, &SplitResult::deep}) {
    fmt::print("  ");
    for (const Average average : averages) fmt::print(" {:>10}", cell(curve, average));
  }
  fmt::print("\n");
}

/// Of a square that may be negative by chance.
std::string root(double square) { return fmt::format("{:.4f}", std::sqrt((std::max)(0.0, square))); }

/// Whether there is any: beyond rounding, and beyond two standard errors unless one split tells of none.
bool is_there(const Estimate& square) {
  return square.value > rounding * rounding && examples::positive(square) != examples::Verdict::within_error;
}
std::string own_error(const Estimate& square) { return is_there(square) ? root(square.value) : "0"; }

void print_curves(const Settings& settings, const Results& results) {
  fmt::print("\n2. Averages over K of the library's masks: root mean square difference to eval\n\n");
  fmt::print("{:<20}  {:^33}  {:^33}\n", "", "one linear layer", "two hidden layers");
  print_row("      K", [](WhichCurve, Average average) { return average_names[average]; });
  const auto counts = settings.mask_counts();
  for (std::size_t point = 0; point < counts.size(); ++point)
    print_row(fmt::format("{:>7}", grouped(counts[point])),
              [&](WhichCurve curve, Average average) { return root(results.mean_square(curve, point, average)); });
  print_row("  of which chance", [&](WhichCurve curve, Average average) {
    return root(results.spread_square(curve, average) / static_cast<double>(settings.masks));
  });
  print_row("eval's own error",
            [&](WhichCurve curve, Average average) { return own_error(results.own_square(curve, average)); });
  print_row("spread of one mask",
            [&](WhichCurve curve, Average average) { return root(results.spread_square(curve, average)); });
  print_row("eval is as good as", [&](WhichCurve curve, Average average) -> std::string {
    const Estimate own = results.own_square(curve, average);
    return is_there(own) ? fmt::format("{:.0f} masks", results.spread_square(curve, average) / own.value)
                         : "any number";
  });
  fmt::print(
      "\nOwn error: what remains with all masks there are; 0 is nothing beyond two standard errors.\nChance: spread / "
      "sqrt(K), what other masks would change.\nAs good as: so many masks have an average as far from that of all as "
      "eval is, (spread / own error)^2.\n");
}

void print_scores(const Settings& settings, const Results& results) {
  fmt::print("\n3. Two hidden layers on test questions, {} masks\n\n", grouped(settings.masks));
  fmt::print("{:<30} {:>16} {:>16}\n", "", "cross-entropy", "accuracy");
  for (const Predictor each : {one_mask, masks_mean, eval_alone})
    fmt::print("{:<30} {:>16.3f} {:>16.3f}\n", losses[each].name, examples::mean(results.of_answers(losses[each])),
               examples::mean(results.of_answers(accuracies[each])));
  const auto line = [&](Predictor after, Predictor before) {
    const auto difference = [&](const auto& figures) {
      return to_string(results.difference(results.of_answers(figures[after]), results.of_answers(figures[before])));
    };
    fmt::print("{:<30} {:>16} {:>16}\n", fmt::format("{} - {}", losses[after].name, losses[before].name),
               difference(losses), difference(accuracies));
  };
  line(masks_mean, one_mask);
  line(masks_mean, eval_alone);
  fmt::print("Eval and the mean of the masks have the same answer to {:.1f} % of the questions.\n",
             100 * examples::mean(results.of_answers(agreement)));
}

void print_doubts(const Results& results) {
  fmt::print("\n{:<29} {:>7} {:>7} {:>17} {:>9} {:>17}\n", "uncertainty where eval is", "right", "wrong",
             "wrong - right", "ROC area", "- first line's");
  const auto top_areas = results.roc_areas(doubts[eval_doubt]);
  for (const Figure& doubt : doubts) {
    auto right = results.of_answers_where(true, doubt), wrong = results.of_answers_where(false, doubt);
    for (std::size_t i = 0; i < right.size(); ++i)  // a split that has but one kind says nothing of the difference
      if (std::isnan(right[i]) || std::isnan(wrong[i])) right[i] = wrong[i] = examples::not_a_number;
    const auto areas = results.roc_areas(doubt);
    fmt::print("{:<29} {} {} {:>17} {} {:>17}\n", doubt.name, examples::figure(examples::mean(right), 7, 3),
               examples::figure(examples::mean(wrong), 7, 3), to_string(results.difference(wrong, right)),
               examples::figure(examples::mean(areas), 9, 3),
               &doubt == &doubts[eval_doubt] ? "" : to_string(results.difference(areas, top_areas)));
  }
}

void print_most_uncertain(const Questions& questions, const SplitResult& result) {
  constexpr std::size_t shown = 3, shown_routes = 4;
  const auto name = [&](ek::Index route) { return questions.routes[static_cast<std::size_t>(route)]; };
  const Answers answers = surest_first(result.answers, doubts[predictive_entropy]);
  fmt::print("\nThe least sure test questions of split {}: eval's answer; probability, mean (deviation over masks)\n",
             result.split);
  for (std::size_t i = 0; i < (std::min)(shown, answers.size()); ++i) {
    const Answer& each = answers[answers.size() - 1 - i];
    fmt::print("  {}\n", questions.all[each.question].text);
    fmt::print("    {}, {}; predictive entropy {:.2f} of at most {:.2f}, mutual information {:.2f}\n",
               name(top(each.eval)), each.right() ? "right" : "wrong: " + name(each.truth), each.predictive_entropy(),
               std::log(static_cast<double>(each.mean.size())), each.mutual_information());
    std::vector<ek::Index> routes(questions.routes.size());
    std::iota(routes.begin(), routes.end(), ek::Index{0});
    std::stable_sort(routes.begin(), routes.end(),
                     [&](ek::Index a, ek::Index b) { return each.mean[a] > each.mean[b]; });
    routes.resize((std::min)(shown_routes, routes.size()));
    const char* before = "    ";
    for (const ek::Index route : routes) {
      fmt::print("{}{} {:.2f} ({:.2f})", before, name(route), each.mean[route], each.deviation[route]);
      before = ", ";
    }
    fmt::print("\n");
  }
}

void print_claims(const Results& results) {
  using examples::Verdict;
  examples::Claims claims(true);
  const auto exact = [&](Average average) {
    const double largest = results.largest_difference(average);
    return std::isnan(largest) ? Verdict::undecided : examples::verdict_of(largest < rounding);
  };
  claims.add(exact(of_logits), "for one linear layer eval is the average over all masks", "exact",
             fmt::format("off by at most {:.1e}", results.largest_difference(of_logits)));
  claims.add(exact(geometric), "on a softmax it is the geometric mean", "yes",
             fmt::format("off by at most {:.1e}, the arithmetic mean by {:.1e}", results.largest_difference(geometric),
                         results.largest_difference(arithmetic)));

  const WhichCurve deep = &SplitResult::deep;
  const Estimate own = results.own_square(deep, of_logits);
  claims.add(examples::positive(own), "through deeper layers it is an approximation", "yes",
             "logits off by " + own_error(own));
  // It works well if eval, one pass, is nearer to the average over all masks than the average over ten masks is.
  const auto nearer_than_ten_masks = [&](const std::string& claim, Average average) {
    const auto beyond = [&](const Curve& each) { return each.own_square(average) - each.spread_square(average) / 10; };
    claims.add(examples::negative(results.of_curves(deep, beyond)), claim, "yes",
               fmt::format("off by {}, ten masks by {}", own_error(results.own_square(deep, average)),
                           root(results.spread_square(deep, average) / 10)));
  };
  nearer_than_ten_masks("one that works well: nearer to the mean logits than ten masks are", of_logits);
  nearer_than_ten_masks("and to the geometric mean of the probabilities", geometric);
  nearer_than_ten_masks("and to their arithmetic mean", arithmetic);

  // Of the arithmetic mean: at point 0 of one mask, at point 1 of ten.
  const auto variance = [&](std::size_t point) {
    return results
        .of_curves(
            deep,
            [&](const Curve& each) { return each.points[point].mean_square[arithmetic] - each.own_square(arithmetic); })
        .value;
  };
  const double ratio = variance(0) / variance(1);
  claims.add(examples::verdict_of(std::abs(ratio - 10) < 2), "averaging K masks divides the variance by K",
             "it is lowered", fmt::format("by {:.1f} for ten", ratio));
  const Estimate loss =
      results.difference(results.of_answers(losses[eval_alone]), results.of_answers(losses[one_mask]));
  claims.add(examples::negative(loss), "so eval has a lower CE on test than one mask", "", to_string(loss));
  claims.print();
}

/// Columns: part, split, row, question, masks, figure, value. `row` is that of the batch, so of the mask; `question` counts
/// the file's questions from 0. What does not apply is empty.
void write_enumerated(examples::Csv& csv, const SplitResult& result) {
  for (std::size_t row = 0; row < result.enumerated.size(); ++row) {
    const Enumerated& each = result.enumerated[row];
    const auto add = [&](const std::string& figure, auto value) {
      csv.row("all_masks", result.split, row, each.question, "", figure, value);
    };
    add("words", each.words);
    for (const Average average : averages)
      add(fmt::format("largest_difference_{}", average_names[average]), each.difference[average]);
  }
}

void write_curve(examples::Csv& csv, const std::string& part, const SplitResult& result, const Curve& curve) {
  const auto add = [&](double masks, const std::string& figure, Average average, double value) {
    csv.row(part, result.split, "", "", masks, figure + "_" + average_names[average], value);
  };
  for (const Average average : averages) {
    for (const Curve::Point& point : curve.points)
      add(point.masks, "rms_difference", average, std::sqrt(point.mean_square[average]));
    add(curve.points.back().masks, "own_error_square", average, curve.own_square(average));
    add(curve.points.back().masks, "spread_square", average, curve.spread_square(average));
  }
}

void write_answers(examples::Csv& csv, ek::Index masks, const Questions& questions, const SplitResult& result) {
  std::vector<Figure> figures = {agreement};
  for (const auto* more : {&losses, &accuracies}) figures.insert(figures.end(), more->begin(), more->end());
  figures.insert(figures.end(), doubts.begin(), doubts.end());

  const auto add_mean = [&](const std::string& figure, double value) {
    csv.row("test", result.split, "", "", masks, figure, value);
  };
  for (const Figure& figure : figures) add_mean(figure.column, mean_of(figure, result.answers));
  for (const Figure& doubt : doubts) {
    add_mean(fmt::format("{}_where_right", doubt.column), mean_where(true, doubt, result.answers));
    add_mean(fmt::format("{}_where_wrong", doubt.column), mean_where(false, doubt, result.answers));
    add_mean(fmt::format("{}_roc_area", doubt.column), roc_area(doubt, result.answers));
  }
  for (std::size_t row = 0; row < result.answers.size(); ++row) {
    const Answer& each = result.answers[row];
    const auto add = [&](const std::string& figure, double value) {
      csv.row("test", result.split, row, each.question, masks, figure, value);
    };
    for (const Figure& figure : figures) add(figure.column, figure.of(each));
    for (ek::Index route = 0; route < each.mean.size(); ++route) {
      const std::string& name = questions.routes[static_cast<std::size_t>(route)];
      add("probability_eval_" + name, each.eval[route]);
      add("probability_mean_" + name, each.mean[route]);
      add("probability_deviation_" + name, each.deviation[route]);
    }
  }
}

/// Difference to eval against K, each in units of its spread, so that all begin near 1.
std::string curves_panel(const Settings& settings, const Results& results) {
  struct Line {
    const char* title;
    WhichCurve curve;
    Average average;
    const char* style;
  };
  // From the highest to the lowest; the last two coincide.
  const std::array<Line, 6> lines = {
      {{"deep, arithmetic", &SplitResult::deep, arithmetic, "linespoints linetype 4"},
       {"deep, logits", &SplitResult::deep, of_logits, "linespoints linetype 3"},
       {"linear, arithmetic", &SplitResult::linear, arithmetic, "linespoints linetype 2"},
       {"deep, geometric", &SplitResult::deep, geometric, "linespoints linetype 6"},
       {"linear, geometric", &SplitResult::linear, geometric, "points linetype 5 pointtype 6 pointsize 1.6"},
       {"linear, logits", &SplitResult::linear, of_logits, "linespoints linetype 1"}}};
  const auto counts = settings.mask_counts();
  std::string blocks, plots;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [title, curve, average, style] = lines[i];
    const double spread_square = results.spread_square(curve, average);
    if (!(spread_square > rounding * rounding)) continue;  // questions without a known word: nothing to drop
    std::vector<std::vector<double>> points;
    for (std::size_t point = 0; point < counts.size(); ++point)
      points.push_back(
          {static_cast<double>(counts[point]), std::sqrt(results.mean_square(curve, point, average) / spread_square)});
    blocks += examples::Plot::block(fmt::format("curve{}", i), points);
    plots += fmt::format("$curve{} with {} title {}, ", i, style, examples::Plot::quoted(title));
  }
  return blocks + fmt::format(
                      "set title 'Averages over masks, against eval'\nset key bottom left\nset logscale xy\nset xrange "
                      "[0.7:{}]\nset yrange [*:2]\nset format x '10^{{%T}}'\nset xlabel 'masks in the average'\nset "
                      "ylabel 'RMS difference to eval / spread of one mask'\nplot {}1 / sqrt(x) with lines linecolor "
                      "'#000000' linewidth 1 dashtype 2 title '1 / √masks'\n",
                      1.4 * static_cast<double>(settings.masks), plots);
}

/// Of the `kept` surest answers of each split, the share that is right.
double accuracy_of_surest(const Results& results, const Figure& doubt, std::size_t kept) {
  return examples::mean(results.by_split([&](const SplitResult& each) {
    Answers answers = surest_first(each.answers, doubt);
    answers.erase(answers.begin() + static_cast<std::ptrdiff_t>(kept), answers.end());
    return mean_of(accuracies[eval_alone], answers);
  }));
}

std::string surest_panel(const Results& results) {
  const std::array<std::pair<const char*, Doubt>, 3> lines = {{{"eval: top probability", eval_doubt},
                                                               {"masks: predictive entropy", predictive_entropy},
                                                               {"masks: mutual information", mutual_information}}};
  const std::size_t all = results.splits.front().answers.size();
  std::string blocks, plots;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::vector<double>> points;
    for (std::size_t kept = (all + 4) / 5; kept <= all; ++kept)
      points.push_back({100 * static_cast<double>(kept) / static_cast<double>(all),
                        accuracy_of_surest(results, doubts[lines[i].second], kept)});
    blocks += examples::Plot::block(fmt::format("surest{}", i), points);
    plots += fmt::format("{}$surest{} with lines linetype {} dashtype {} title {}", i > 0 ? ", " : "", i, i + 1,
                         std::array{"1", "1", "'-'"}[i], examples::Plot::quoted(lines[i].first));
  }
  return blocks + fmt::format(
                      "set title 'Answering only where it is sure, test'\nset key top left\nunset logscale\nset format "
                      "x '%g'\nset xrange [100:20]\nset yrange [*:1]\nset xlabel 'surest questions, % of all'\nset "
                      "ylabel 'accuracy on them'\nplot {}\n",
                      plots);
}

void draw(examples::Plot& plot, const Settings& settings, const Results& results) {
  const std::string title =
      fmt::format("Dropout {}, decay {}, mean of {} splits", settings.dropout, settings.decay, results.splits.size());
  plot.draw(440, fmt::format("set multiplot layout 1,2 title {}\n{}{}unset multiplot\n", examples::Plot::quoted(title),
                             curves_panel(settings, results), surest_panel(results)));
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  examples::Plot plot("masks", settings.plot);
  examples::Csv csv(settings.csv, {"part", "split", "row", "question", "masks", "figure", "value"});
  const Questions questions = examples::read_questions(settings.data);
  examples::check_words(questions, settings.seeds, settings.data);
  const examples::Split parts = examples::split(questions, 0);

  fmt::print("{} questions, {} routes; {} into {} to train, {} to validate, {} to test\n", questions.all.size(),
             questions.routes.size(), examples::counted(settings.seeds, "split"), parts.train.size(),
             parts.validation.size(), parts.test.size());
  fmt::print("{} steps of AdamW at 0.001 on batches of 16, hidden layers none or 64 and 64, dropout {}, decay {}\n\n",
             settings.steps, settings.dropout, settings.decay);
  std::fflush(stdout);

  const auto runs = examples::run_tasks(static_cast<std::size_t>(settings.seeds), settings.threads, settings.quiet,
                                        [&](std::size_t split) { return run_split(settings, questions, split); });
  Results results{.splits = {},
                  .validation_to_train = parts.to_train(parts.validation),
                  .test_to_train = parts.to_train(parts.test)};
  for (const auto& each : runs)
    if (each) results.splits.push_back(*each);
  if (examples::interrupted())
    fmt::print("Interrupted. {}: {} of {} splits are finished.\n\n",
               results.splits.empty() ? "There is nothing to show" : "This is partial", results.splits.size(),
               settings.seeds);
  if (!results.splits.empty()) {
    print_enumerated(results);
    print_curves(settings, results);
    print_scores(settings, results);
    print_doubts(results);
    print_most_uncertain(questions, results.splits.front());
    print_claims(results);
    std::fflush(stdout);
  }
  for (const SplitResult& each : results.splits) {
    write_enumerated(csv, each);
    write_curve(csv, "linear", each, each.linear);
    write_curve(csv, "deep", each, each.deep);
    write_answers(csv, settings.masks, questions, each);
  }
  csv.write();
  if (plot && !results.splits.empty()) draw(plot, settings, results);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Dropout trains a crowd of thinned networks, one for each mask. Shows what the network without masks (eval) has "
      "to do with the average of this crowd, for one linear layer and for a deep network, and whether the crowd's "
      "disagreement tells wrong answers from right ones.",
      "masks"};
  app.footer(
      "The geometric mean multiplies the masks' probabilities, the arithmetic mean adds them. The first is the softmax "
      "of the mean logits; the second is less sure where masks disagree.\nEntropy is how open a question is to the "
      "network: 0 if it gives one route all the probability, log(4) = 1.39 nats if it gives four routes a quarter "
      "each. The predictive entropy is that of the masks' mean. It is the sum of the expected entropy, how unsure a "
      "single mask is, and the mutual information, how much the masks disagree: three masks that are each sure of "
      "another route have none of the first and much of the second.\nThe ROC area is the probability that a wrong "
      "answer has more of a measure than a right one: 1 tells them apart, 0.5 is no better than a coin. Errors (±) "
      "allow for questions that the splits share." +
      std::string(examples::article_note));
  settings.add_data(app);
  settings.add_seeds(app, 6, "Splits of the questions, each with its own start, order and masks");
  settings.add_steps(app, 3000);
  app.add_option("--masks", settings.masks, "The most masks to average, a power of ten from 100 to 1000000")
      ->check(CLI::IsMember({100, 1000, 10000, 100000, 1000000}))
      ->option_text("N [10000]");
  app.add_option("--dropout", settings.dropout,
                 "Probability to drop a word before the linear layer, or a unit of the deep network, 0.01 to 0.99")
      ->check(CLI::Range(0.01, 0.99))
      ->option_text("P [0.5]");
  app.add_option("--decay", settings.decay, "AdamW's weight decay, on weights only, 0 to 100")
      ->check(CLI::Range(0.0, 100.0))
      ->option_text("X [3]");
  settings.add_threads(app);
  settings.add_output(app, "Averages against eval by number of masks, and accuracy on the surest questions");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
