// What does BatchNorm's dependence on the batch do, and what do running statistics, LayerNorm and RMSNorm do about it?
//
//   build/release/examples/batchnorm_flaws
//   build/release/examples/batchnorm_flaws --draws 5000 --plot flaws.png --csv flaws.csv
//   build/release/examples/batchnorm_flaws --data my_questions.tsv --seed 1
//
// Takes what one layer of 64 features with He's start makes of all questions, and runs five tests: a question in two
// batches, the mean of a batch against that of all questions, a batch of one, a sequence whose last token changes, and the
// same batch in training and in eval. Prints one table a test, of 500 draws each. Takes about a second.
//
// Every figure is a function of the data, --seed and --draws, by these random streams (core/random.hpp). Running statistics
// have seen draws 0 to 199 when the measuring begins, at draw 200; in tests 2 and 5 each draw moves them once it has been
// measured.
//
//   the layer    weights from RandomStream(seed, stream_of("weight")): normal numbers times sqrt(2 / words), row by row of
//                (64, words), the words in the order in which the file first has them; no bias
//   a batch      the first B questions in the order of the draw: 0 ... N - 1, shuffled by
//                RandomStream(seed, stream_of("order"), draw)
//   two batches  of the order by stream_of("pair"): the first question with the B - 1 after it, and with the next B - 1
//   a sequence   RandomStream(seed, stream_of("tokens"), draw): 8 tokens of 64 normal numbers, token by token

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "examples/support/batch_of_one.hpp"
#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/questions.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;
using Matrix = ek::Matrix<double>;
using Row = Eigen::RowVectorXd;

namespace {

constexpr ek::Index features = 64;
constexpr ek::Index pair_batch = 16;
constexpr std::array<ek::Index, 4> batch_sizes = {2, 8, 32, 128};
constexpr ek::Index tokens = 8;
constexpr double token_change = 3;
constexpr double momentum = 0.1;
constexpr std::uint32_t warm_up = 200;      // draws; 0.9^200 of where the running statistics start is nothing
constexpr std::uint32_t enough_draws = 50;  // for an average to be compared with what is expected of it

/// The four ways to normalize that the tests set side by side.
enum Norm : std::size_t { by_batch, by_running, by_layer, by_rms };
constexpr std::array norm_names = {"BatchNorm, batch", "BatchNorm, running", "LayerNorm", "RMSNorm"};
constexpr std::array norm_keys = {"batch_norm", "batch_norm_running", "layer_norm", "rms_norm"};  // in the CSV
constexpr std::array all_norms = {by_batch, by_running, by_layer, by_rms};
template <typename Value>
using EachNorm = std::array<Value, all_norms.size()>;

struct Settings : examples::CommonOptions {
  std::uint64_t seed = 0;
  std::uint32_t draws = 500;
};

/// The norms with gain one and shift zero.
class Norms {
 public:
  /// Lets the running statistics see a batch.
  void train(const Matrix& x) { batch_norm_.forward(x, ek::Mode::train); }
  Row running_mean() const { return batch_norm_.running_mean(); }

  EachNorm<Matrix> outputs(const Matrix& x) {
    constexpr ek::Mode batch_at_rest(ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::keep);
    const Matrix by_its_batch = x.rows() > 1 ? batch_norm_.forward(x, batch_at_rest) : examples::normalized_alone(x);
    return {by_its_batch, batch_norm_.infer(x), layer_norm_.infer(x), rms_norm_.infer(x)};
  }

  /// The mean |difference| between the outputs in eval and then in train mode, in which the running statistics move. That
  /// of BatchNorm stands in both its places.
  EachNorm<double> train_to_eval(const Matrix& x) {
    const auto distance = [&](auto& norm) {
      const Matrix eval = norm.infer(x);
      return (norm.forward(x, ek::Mode::train) - eval).cwiseAbs().mean();
    };
    const double batch_norm = distance(batch_norm_);
    return {batch_norm, batch_norm, distance(layer_norm_), distance(rms_norm_)};
  }

  /// What the layer says to a batch of one in training.
  std::string refusal(const Matrix& example) {
    try {
      batch_norm_.forward(example, ek::Mode::train);
    } catch (const ek::ShapeError& error) {
      return error.what();
    }
    return "nothing";
  }

 private:
  ek::BatchNorm<double> batch_norm_{features, {.momentum = momentum}};
  ek::LayerNorm<double> layer_norm_{features};
  ek::RMSNorm<double> rms_norm_{features};
};

/// The questions behind one layer, and what can be drawn of them.
class Activations {
 public:
  /// Reads the questions. Throws FormatError or std::runtime_error where they are not what they should be.
  explicit Activations(const Settings& settings) : seed_{settings.seed} {
    const examples::Questions questions = examples::read_questions(settings.data);
    std::vector<std::size_t> all(questions.all.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const examples::Vocabulary vocabulary(questions, all);
    words_ = vocabulary.size();
    if (words_ == 0) throw std::runtime_error(settings.data + ": expected questions with words in them, got none");
    const ek::Linear<double> layer(words_, features, {.bias = false, .init = ek::Init::he, .seed = seed_});
    values_ = layer.infer(vocabulary.features<double>(questions, all));
    mean_ = values_.colwise().mean();
    deviation_ = (values_.rowwise() - mean_).array().square().colwise().mean().sqrt().matrix();
    if (!(deviation_.minCoeff() > 1e-9))
      throw std::runtime_error(settings.data + ": expected questions of different words, got the same words in all");
  }

  ek::Index count() const { return values_.rows(); }
  ek::Index words() const { return words_; }
  Matrix one(ek::Index place) const { return values_.row(place); }

  Matrix batch(ek::Index size, std::uint32_t draw) const { return rows(order("order", draw), 0, size); }

  /// Two batches that share their first question and no other.
  std::array<Matrix, 2> pair(ek::Index size, std::uint32_t draw) const {
    const auto places = order("pair", draw);
    std::array<Matrix, 2> result = {rows(places, 0, size), rows(places, size - 1, size)};
    result[1].row(0) = result[0].row(0);
    return result;
  }

  /// How far a mean is from that of all questions, in standard deviations, on average over the features.
  double mean_error(const Row& mean) const { return ((mean - mean_).array().abs() / deviation_.array()).mean(); }
  /// What mean_error comes to for a batch that is drawn without replacement, if features are normally distributed.
  double expected_error(double batch) const {
    return std::sqrt(2 / 3.14159265358979323846 * (1 / batch - 1 / static_cast<double>(count())));
  }

 private:
  std::vector<ek::Index> order(std::string_view stream, std::uint32_t draw) const {
    std::vector<ek::Index> places(static_cast<std::size_t>(count()));
    std::iota(places.begin(), places.end(), ek::Index{0});
    ek::RandomStream random(seed_, ek::stream_of(stream), draw);
    ek::shuffle(places, random);
    return places;
  }
  Matrix rows(const std::vector<ek::Index>& places, ek::Index first, ek::Index size) const {
    Matrix result(size, features);
    for (ek::Index i = 0; i < size; ++i) result.row(i) = values_.row(places[static_cast<std::size_t>(first + i)]);
    return result;
  }

  std::uint64_t seed_;
  ek::Index words_;
  Matrix values_;         // (questions, features)
  Row mean_, deviation_;  // of each feature
};

/// A figure of every draw.
class Draws {
 public:
  void add(double value) { values_.push_back(value); }
  double mean() const { return examples::mean(values_); }
  double low() const { return quantile(0.05); }   // nine of ten draws lie between this one
  double high() const { return quantile(0.95); }  // and this one
  double least() const { return quantile(0); }
  double most() const { return quantile(1); }

 private:
  /// The value of the nearest rank, counted from 0 to n - 1.
  double quantile(double share) const {
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
  }

  std::vector<double> values_;
};

struct TwoBatches {
  ek::Index batch;
  EachNorm<Draws> difference, size;  // mean |.| of the shared question's outputs
};
struct BySize {
  ek::Index batch;
  Draws batch_error, running_error;  // see Activations::mean_error
  EachNorm<Draws> train_to_eval;
};
struct Alone {
  EachNorm<double> largest{}, size{};  // |output| of one question: over all questions, and on average
  std::string refusal;
};
struct Results {
  TwoBatches two_batches;
  std::vector<BySize> by_size;
  Alone alone;
  EachNorm<Draws> last_token;  // largest move of the first token's output
};

/// One line of progress over all tests.
class Meter {
 public:
  Meter(std::size_t count, bool quiet) : count_{count}, progress_{quiet} {}
  void tick() {
    examples::give_up_if_interrupted();
    progress_.show(++done_, count_);
  }

 private:
  std::size_t count_, done_ = 0;
  examples::Progress progress_;
};

TwoBatches compare_two_batches(const Activations& activations, std::uint32_t draws, Meter& meter) {
  TwoBatches result{(std::min)(pair_batch, (activations.count() + 1) / 2), {}, {}};
  Norms norms;
  for (std::uint32_t draw = 0; draw < warm_up; ++draw) norms.train(activations.batch(result.batch, draw));
  for (std::uint32_t draw = warm_up; draw < warm_up + draws; ++draw, meter.tick()) {
    const auto [one, other] = activations.pair(result.batch, draw);
    const auto in_one = norms.outputs(one), in_other = norms.outputs(other);
    for (const Norm norm : all_norms) {
      result.difference[norm].add((in_one[norm].row(0) - in_other[norm].row(0)).cwiseAbs().mean());
      result.size[norm].add(in_one[norm].row(0).cwiseAbs().mean());
    }
  }
  return result;
}

BySize measure_statistics(const Activations& activations, ek::Index batch, std::uint32_t draws, Meter& meter) {
  BySize result{batch, {}, {}, {}};
  Norms norms;
  for (std::uint32_t draw = 0; draw < warm_up; ++draw) norms.train(activations.batch(batch, draw));
  for (std::uint32_t draw = warm_up; draw < warm_up + draws; ++draw, meter.tick()) {
    const Matrix x = activations.batch(batch, draw);
    result.batch_error.add(activations.mean_error(x.colwise().mean()));
    result.running_error.add(activations.mean_error(norms.running_mean()));  // of the batches before
    const auto distances = norms.train_to_eval(x);
    for (const Norm norm : all_norms) result.train_to_eval[norm].add(distances[norm]);
  }
  return result;
}

Alone normalize_alone(const Activations& activations, ek::Index batch) {
  Alone result;
  Norms norms;
  for (std::uint32_t draw = 0; draw < warm_up; ++draw) norms.train(activations.batch(batch, draw));
  result.refusal = norms.refusal(activations.one(0));
  for (ek::Index i = 0; i < activations.count(); ++i) {
    const auto outputs = norms.outputs(activations.one(i));
    for (const Norm norm : all_norms) {
      result.largest[norm] = (std::max)(result.largest[norm], outputs[norm].cwiseAbs().maxCoeff());
      result.size[norm] += outputs[norm].cwiseAbs().mean() / static_cast<double>(activations.count());
    }
  }
  return result;
}

Matrix sequence(std::uint64_t seed, std::uint32_t draw) {
  ek::RandomStream random(seed, ek::stream_of("tokens"), draw);
  Matrix x(tokens, features);
  for (ek::Index i = 0; i < tokens; ++i)
    for (ek::Index j = 0; j < features; ++j) x(i, j) = random.normal();
  return x;
}

EachNorm<Draws> change_last_token(std::uint64_t seed, std::uint32_t draws, Meter& meter) {
  EachNorm<Draws> result;
  Norms norms;
  for (std::uint32_t draw = 0; draw < warm_up; ++draw) norms.train(sequence(seed, draw));
  for (std::uint32_t draw = warm_up; draw < warm_up + draws; ++draw, meter.tick()) {
    const Matrix before = sequence(seed, draw);
    Matrix after = before;
    after.row(tokens - 1).array() += token_change;
    const auto of_before = norms.outputs(before), of_after = norms.outputs(after);
    for (const Norm norm : all_norms)
      result[norm].add((of_before[norm].row(0) - of_after[norm].row(0)).cwiseAbs().maxCoeff());
  }
  return result;
}

Results measure(const Settings& settings, const Activations& activations) {
  std::vector<ek::Index> sizes;
  for (const ek::Index size : batch_sizes)
    if (size < activations.count()) sizes.push_back(size);
  Meter meter((sizes.size() + 2) * settings.draws, settings.quiet);

  Results results;
  results.two_batches = compare_two_batches(activations, settings.draws, meter);
  for (const ek::Index size : sizes)
    results.by_size.push_back(measure_statistics(activations, size, settings.draws, meter));
  results.alone = normalize_alone(activations, results.two_batches.batch);
  results.last_token = change_last_token(settings.seed, settings.draws, meter);
  return results;
}

/// None after an interrupt.
std::optional<Results> measure_all(const Settings& settings, const Activations& activations) {
  try {
    return measure(settings, activations);
  } catch (const examples::Interrupted&) {
    return std::nullopt;
  }
}

/// The error of a running mean, as a share of that of one batch: the variances of its batches, weighted by the squares of
/// m (1 - m)^k, sum to m / (2 - m) of one.
double running_share() { return std::sqrt(momentum / (2 - momentum)); }

void print_two_batches(const TwoBatches& test) {
  fmt::print("1. One question in two batches of {} that share no other: how its outputs differ\n", test.batch);
  fmt::print("   {:<20} {:>10} {:>20} {:>8}\n", "", "difference", "nine of ten draws", "size");
  for (const Norm norm : all_norms)
    fmt::print("   {:<20} {:10.3f} {:>20} {:8.3f}\n", norm_names[norm], test.difference[norm].mean(),
               fmt::format("{:.3f} to {:.3f}", test.difference[norm].low(), test.difference[norm].high()),
               test.size[norm].mean());
}

void print_statistics(const Activations& activations, const std::vector<BySize>& tests) {
  fmt::print(
      "\n2. How far a batch's mean is from that of all {} questions, in standard deviations\n   (mean |difference|; "
      "expected: sqrt(2/pi (1/B - 1/N)))\n",
      activations.count());
  fmt::print("   {:>8} {:>10} {:>10} {:>16} {:>10}\n", "batch of", "batch mean", "expected", "running mean",
             "expected");
  for (const BySize& test : tests) {
    const double expected = activations.expected_error(static_cast<double>(test.batch));
    fmt::print("   {:>8} {:10.3f} {:10.3f} {:16.3f} {:10.3f}\n", test.batch, test.batch_error.mean(), expected,
               test.running_error.mean(), running_share() * expected);
  }
}

void print_alone(const Alone& test) {
  fmt::print("\n3. A batch of one: what is left of a question\n");
  fmt::print("   {:<20} {:>16} {:>8}\n", "", "largest |output|", "size");
  for (const Norm norm : all_norms)
    fmt::print("   {:<20} {:16.1f} {:8.3f}\n", norm_names[norm], test.largest[norm], test.size[norm]);
  fmt::print("   The first line is the bare arithmetic; the layer itself refuses:\n   {}\n", test.refusal);
}

void print_last_token(const EachNorm<Draws>& moves) {
  fmt::print("\n4. A sequence of {} tokens, {:g} added to the last: how far the first one's output moves at most\n",
             tokens, token_change);
  fmt::print("   {:<20} {:>10} {:>20}\n", "", "move", "nine of ten draws");
  for (const Norm norm : all_norms)
    fmt::print("   {:<20} {:10.3f} {:>20}\n", norm_names[norm], moves[norm].mean(),
               fmt::format("{:.3f} to {:.3f}", moves[norm].low(), moves[norm].high()));
}

void print_train_to_eval(const std::vector<BySize>& tests) {
  fmt::print(
      "\n5. The price of running statistics: how outputs of the same batch differ between train and eval mode\n");
  fmt::print("   {:>8} {:>10} {:>10} {:>10}\n", "batch of", "BatchNorm", "LayerNorm", "RMSNorm");
  for (const BySize& test : tests)
    fmt::print("   {:>8} {:10.3f} {:10.3f} {:10.3f}\n", test.batch, test.train_to_eval[by_batch].mean(),
               test.train_to_eval[by_layer].mean(), test.train_to_eval[by_rms].mean());
}

/// The figures by batch size in one text: "0.55, 0.28 at 2, 8".
template <class Figure>
std::string listed(const std::vector<BySize>& tests, const Figure& figure) {
  std::string values, sizes;
  for (const BySize& test : tests) {
    values += fmt::format("{}{:.2f}", values.empty() ? "" : ", ", figure(test));
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", test.batch);
  }
  return values + " at " + sizes;
}

void print_claims(const Settings& settings, const Activations& activations, const Results& results) {
  examples::Claims claims(settings.on_shipped_data());
  const auto& [batch, difference, size] = results.two_batches;
  const auto batch_difference = difference[by_batch].mean(), batch_output = size[by_batch].mean();
  claims.add(examples::verdict_of(batch_difference > batch_output / 4),
             "a question's outputs depend on its batch, by more than a quarter of their size",
             "0.37 of 0.91 in one draw", fmt::format("{:.2f} of {:.2f}", batch_difference, batch_output));

  std::vector<examples::Verdict> errors;
  for (const BySize& test : results.by_size) {
    const double ratio = test.batch_error.mean() / activations.expected_error(static_cast<double>(test.batch));
    errors.push_back(settings.draws < enough_draws ? examples::Verdict::undecided
                                                   : examples::verdict_of(std::abs(ratio - 1) < 0.15));
  }
  claims.add(all_of(errors), "a batch's mean is off by sqrt(2/pi (1/B - 1/N)) deviations, within 15 %",
             "0.55, 0.28, 0.13, 0.04 at 2, 8, 32, 128",
             listed(results.by_size, [](const BySize& test) { return test.batch_error.mean(); }));

  const Alone& alone = results.alone;
  claims.add(examples::verdict_of(alone.largest[by_batch] == 0), "BatchNorm erases a batch of one", "0.0 everywhere",
             fmt::format("{:.1f} at most", alone.largest[by_batch]));
  claims.add(examples::verdict_of(alone.size[by_layer] > 0.5), "and LayerNorm keeps its size", "0.77",
             fmt::format("{:.2f}", alone.size[by_layer]));

  const auto& moves = results.last_token;
  claims.add(examples::verdict_of(moves[by_batch].least() > 0.1), "the last token moves the first one with BatchNorm",
             "1.294 in one draw",
             fmt::format("{:.3f}, at least {:.3f}", moves[by_batch].mean(), moves[by_batch].least()));
  claims.add(examples::verdict_of(moves[by_layer].most() == 0), "and not with LayerNorm", "0.000",
             fmt::format("{:.3f} at most", moves[by_layer].most()));

  const double left = (std::max)(difference[by_running].most(), moves[by_running].most());
  claims.add(examples::verdict_of(left == 0), "running statistics end both dependences", "yes",
             fmt::format("{:.3f} at most", left));
  std::vector<examples::Verdict> mismatches;
  for (const BySize& test : results.by_size)
    mismatches.push_back(examples::verdict_of(test.train_to_eval[by_batch].least() > 0.01));
  claims.add(all_of(mismatches), "at the price that training computes another function than serving", "yes",
             listed(results.by_size, [](const BySize& test) { return test.train_to_eval[by_batch].mean(); }));
  claims.print();
}

void write_csv(examples::Csv& csv, const Activations& activations, const Results& results) {
  const TwoBatches& two = results.two_batches;
  for (const Norm norm : all_norms) {
    csv.row("two_batches", norm_keys[norm], two.batch, "difference", two.difference[norm].mean());
    csv.row("two_batches", norm_keys[norm], two.batch, "difference_low", two.difference[norm].low());
    csv.row("two_batches", norm_keys[norm], two.batch, "difference_high", two.difference[norm].high());
    csv.row("two_batches", norm_keys[norm], two.batch, "size", two.size[norm].mean());
  }
  for (const BySize& test : results.by_size) {
    const double expected = activations.expected_error(static_cast<double>(test.batch));
    csv.row("batch_mean", norm_keys[by_batch], test.batch, "error", test.batch_error.mean());
    csv.row("batch_mean", norm_keys[by_batch], test.batch, "expected", expected);
    csv.row("batch_mean", norm_keys[by_running], test.batch, "error", test.running_error.mean());
    csv.row("batch_mean", norm_keys[by_running], test.batch, "expected", running_share() * expected);
  }
  for (const Norm norm : all_norms) {
    csv.row("batch_of_one", norm_keys[norm], 1, "largest", results.alone.largest[norm]);
    csv.row("batch_of_one", norm_keys[norm], 1, "size", results.alone.size[norm]);
  }
  for (const Norm norm : all_norms) {
    csv.row("last_token", norm_keys[norm], tokens, "move", results.last_token[norm].mean());
    csv.row("last_token", norm_keys[norm], tokens, "move_least", results.last_token[norm].least());
    csv.row("last_token", norm_keys[norm], tokens, "move_most", results.last_token[norm].most());
    csv.row("last_token", norm_keys[norm], tokens, "move_low", results.last_token[norm].low());
    csv.row("last_token", norm_keys[norm], tokens, "move_high", results.last_token[norm].high());
  }
  for (const BySize& test : results.by_size)
    for (const Norm norm : {by_batch, by_layer, by_rms})
      csv.row("train_to_eval", norm_keys[norm], test.batch, "difference", test.train_to_eval[norm].mean());
  csv.write();
}

/// Left: the error of a batch's mean by batch size. Right: how the same batch differs between train and eval.
void draw(examples::Plot& plot, const Activations& activations, const std::vector<BySize>& tests, bool comparable) {
  std::vector<std::vector<double>> points;
  std::string sizes;
  double smallest = 1;
  for (const BySize& test : tests) {
    points.push_back({static_cast<double>(test.batch), test.batch_error.mean(), test.running_error.mean(),
                      test.train_to_eval[by_batch].mean(),
                      (std::max)(test.train_to_eval[by_layer].mean(), test.train_to_eval[by_rms].mean())});
    smallest = (std::min)(smallest, test.running_error.mean());
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", test.batch);
  }
  const double largest = points.back()[0];
  plot.draw(
      400,
      examples::Plot::block("points", points) + "$article << END\n2 0.55\n8 0.28\n32 0.13\n128 0.04\nEND\n" +
          fmt::format("set rmargin 2\nset multiplot layout 1,2\nset logscale x 2\nset xlabel 'batch size'\nset xtics "
                      "({})\nset xrange [1.5:{}]\nset samples 400\n",
                      sizes, largest * 1.3) +
          fmt::format("expected(b) = b < {0} ? sqrt(2 / pi * (1 / b - 1. / {0})) : 1 / 0\n", activations.count()) +
          fmt::format("set title 'How far the mean is from that of all questions'\nset logscale y\nset ylabel "
                      "'standard deviations'\nset key bottom left\nset yrange [{1}:1]\nplot expected(x) with lines "
                      "linetype 1 title 'expected', $points using 1:2 with points linetype 1 pointsize 1.2 title "
                      "'batch', expected(x) * {0} with lines linetype 2 notitle, $points using 1:3 with points "
                      "linetype 2 pointsize 1.2 title 'running', {2}\n",
                      running_share(), smallest / 2,
                      comparable ? "$article with points linetype 5 pointtype 12 pointsize 1.8 title 'article, batch'"
                                 : "1 / 0 notitle") +
          "set title 'The same batch in train and in eval mode'\nunset logscale y\nset yrange [0:*]\nset ylabel 'mean "
          "difference of the outputs'\nset key top right width 2\nplot $points using 1:4 with linespoints linetype 2 "
          "title 'BatchNorm', $points using 1:5 with linespoints linetype 3 title 'LayerNorm, RMSNorm'\nunset "
          "multiplot\n");
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  examples::Plot plot("batchnorm_flaws", settings.plot);
  examples::Csv csv(settings.csv, {"test", "norm", "batch_size", "figure", "value"});
  const Activations activations(settings);

  fmt::print("{} questions of {} words, through one layer of {} features with He's start; {} draws a test\n",
             activations.count(), activations.words(), features, settings.draws);
  fmt::print("batch: with the batch's own statistics; running: with those of {} batches before, as eval does\n\n",
             warm_up);
  std::fflush(stdout);

  const auto measured = measure_all(settings, activations);
  if (!measured) {
    fmt::print(
        "Interrupted. There is nothing to show: averages of some draws only would mislead. --draws makes it "
        "shorter.\n");
    return examples::interrupted_exit;
  }
  const Results& results = *measured;
  print_two_batches(results.two_batches);
  print_statistics(activations, results.by_size);
  print_alone(results.alone);
  print_last_token(results.last_token);
  print_train_to_eval(results.by_size);
  print_claims(settings, activations, results);
  std::fflush(stdout);
  write_csv(csv, activations, results);
  if (plot) draw(plot, activations, results.by_size, settings.on_shipped_data());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Shows what it means that BatchNorm normalizes with the batch: outputs that depend on who else is in it, noisy "
      "statistics of small batches, an erased batch of one, and a sequence that sees its own future. Running "
      "statistics, LayerNorm and RMSNorm stand beside it.",
      "batchnorm_flaws"};
  app.footer(
      "BatchNorm subtracts each feature's mean over the batch and divides by its deviation, so an output is a function "
      "of the whole batch. At inference it uses running statistics, averages over the batches of training: then an "
      "output depends on its own example alone, but it is not the function that was trained. LayerNorm and RMSNorm "
      "take their statistics from the features of one example, and have neither trouble.\n'size' is the mean |output|. "
      "'nine of ten draws' says how much a single draw, such as the article's, may stray." +
      std::string(examples::article_note));
  settings.add_data(app);
  examples::add_seed(app, settings.seed, "Of the layer's start, the batches and the sequences");
  app.add_option("--draws", settings.draws, "Random batches or sequences in each test")
      ->check(CLI::Range(1u, 10000000u))
      ->option_text("N [500]");
  settings.add_output(app, "Error of the mean by batch size, and the difference between train and eval");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
