// Where do the norms of a Transformer go, and what is a warm-up for?
//
//   build/release/examples/transformer_block
//   build/release/examples/transformer_block --steps 200 --seeds 1 --plot blocks.png --csv blocks.csv
//
// Trains small causal Transformers to predict the next character of the questions, with the norms before (pre-norm) and
// behind (post-norm) each residual connection, with and without a warm-up of the learning rate, at two rates. Prints the
// loss on held-out questions beside the entropy of single characters, and the gradients before the first step. A minute on two cores.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/chain.hpp"
#include "evenkeel/network/transformer.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/loss.hpp"
#include "evenkeel/training/schedule.hpp"
#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/questions.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;

namespace {

using Scalar = float;
using Matrix = ek::Matrix<Scalar>;

constexpr ek::Index positions = 32, width = 32, heads = 4, hidden = 4 * width;
constexpr ek::Index batch_sequences = 8;
constexpr std::array rates = {3e-3, 1e-2};

struct Settings : examples::CommonOptions {
  ek::Index blocks = 6;
};

/// The questions as two texts, one question a line, in numbers: what is trained on and what is held out. A number for each
/// character of the training text (letters in lower case), and one for all others.
struct Text {
  std::vector<int> train, held_out;
  int characters = 0;

  Text(const examples::Questions& questions, std::uint64_t seed) {
    const examples::Split parts = examples::split(questions, seed);
    std::array<int, 256> number{};
    const auto read = [&](const std::vector<std::size_t>& places, bool learn) {
      std::vector<int> numbers;
      for (const std::size_t place : places)
        for (const char c : questions.all[place].text + '\n') {
          const auto byte = static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
          if (learn && number[byte] == 0) number[byte] = ++characters;
          numbers.push_back(number[byte]);  // 0: any other
        }
      return numbers;
    };
    auto training = parts.train;
    ek::RandomStream random(seed, ek::stream_of("order"));
    ek::shuffle(training, random);  // else one route would stand behind the other
    train = read(training, true);
    ++characters;
    held_out = read(parts.validation, false);
  }

  /// Nats a character: the cross-entropy of the held-out text under the training text's frequencies, each counted once more.
  double entropy() const {
    std::vector<double> count(static_cast<std::size_t>(characters), 1);
    for (const int c : train) ++count[static_cast<std::size_t>(c)];
    const double all = static_cast<double>(train.size() + count.size());
    double sum = 0;
    for (const int c : held_out) sum -= std::log(count[static_cast<std::size_t>(c)] / all);
    return sum / static_cast<double>(held_out.size());
  }
};

/// Some sequences of a text: a row for each character, one-hot, with its place in the sequence beside it, also one-hot; and
/// the character that follows.
struct Batch {
  Matrix x;
  std::vector<int> next;

  void fill(const std::vector<int>& text, int characters, const std::vector<std::size_t>& starts) {
    x.setZero(static_cast<ek::Index>(starts.size()) * positions, characters + positions);
    next.clear();
    for (std::size_t s = 0; s < starts.size(); ++s)
      for (ek::Index p = 0; p < positions; ++p) {
        const ek::Index row = static_cast<ek::Index>(s) * positions + p;
        const std::size_t place = starts[s] + static_cast<std::size_t>(p);
        x(row, text[place]) = 1;
        x(row, characters + p) = 1;
        next.push_back(text[place + 1]);
      }
  }
};

/// Linear without bias (a learned vector for each character and each place), blocks, with the norms before a norm, Linear.
class Network final : public ek::Chain<Network, Scalar> {
 public:
  using Scalar = ::Scalar;
  static constexpr const char* name = "Network";

  Network(int characters, ek::Index blocks, ek::NormPlace norm, std::uint64_t seed)
      : embedding_(characters + positions, width,
                   {.bias = false, .init = ek::Init::normal(1), .seed = seed, .path = "embedding"}),
        norms_(norm == ek::NormPlace::before ? 1 : 0, ek::LayerNorm<Scalar>(width)),
        output_(width, characters, {.seed = seed, .path = "output"}) {
    for (ek::Index i = 0; i < blocks; ++i)
      blocks_.emplace_back(
          width, heads, hidden, positions,
          ek::TransformerBlockOptions{.norm = norm, .seed = seed, .path = "block." + std::to_string(i)});
    join();
  }

  ek::Index layer_count() const { return static_cast<ek::Index>(2 + blocks_.size() + norms_.size()); }
  ek::Index input_features() const { return embedding_.input_features(); }

  template <class F>
  void visit(ek::Index i, F&& f) {
    visit(*this, i, f);
  }
  template <class F>
  void visit(ek::Index i, F&& f) const {
    visit(*this, i, f);
  }

 private:
  template <class Self, class F>
  static void visit(Self& self, ek::Index i, F& f) {
    const auto block = static_cast<std::size_t>(i - 1);
    if (i == 0)
      f(self.embedding_);
    else if (block < self.blocks_.size())
      f(self.blocks_[block]);
    else if (i + 1 < self.layer_count())
      f(self.norms_.front());
    else
      f(self.output_);
  }

  ek::Linear<Scalar> embedding_;
  std::vector<ek::TransformerBlock<Scalar>> blocks_;
  std::vector<ek::LayerNorm<Scalar>> norms_;  // one or none
  ek::Linear<Scalar> output_;
};

/// One row of the table.
struct Case {
  ek::NormPlace norm;
  bool warmup;
  double rate;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto norm : {ek::NormPlace::before, ek::NormPlace::after})
    for (const bool warmup : {true, false})
      for (const double rate : rates) cases.push_back({norm, warmup, rate});
  return cases;
}
const char* name_of(ek::NormPlace norm) { return norm == ek::NormPlace::before ? "pre-norm" : "post-norm"; }

/// What is measured of one training.
struct Outcome {
  double train = 0;           // mean loss of the last tenth of the steps, in nats a character
  double held_out = 0;        // at the end
  double first_gradient = 0;  // root mean square on the last block's linear2.weight before the first step
  std::vector<double> curve;  // mean loss of each twentieth of the steps
};

double held_out_loss(const Network& network, const Text& text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i + positions < text.held_out.size(); i += positions) starts.push_back(i);
  Batch batch;
  batch.fill(text.held_out, text.characters, starts);
  ek::SoftmaxCrossEntropy<Scalar> cross_entropy;
  return cross_entropy(network.infer(batch.x), batch.next).value;
}

/// The seed is of the split, of the start and of the masks; the sequences begin at RandomStream(seed, stream_of("sequences")).
/// Trainings of one seed differ in nothing but the case.
Outcome train(const Settings& settings, const Case& row, const Text& text, std::uint64_t seed) {
  Network network(text.characters, settings.blocks, row.norm, seed);
  ek::AdamW<Scalar> optimizer(network, {.learning_rate = row.rate});
  ek::SoftmaxCrossEntropy<Scalar> cross_entropy;
  ek::RandomStream random(seed, ek::stream_of("sequences"));
  const auto places = static_cast<std::uint32_t>(text.train.size() - positions);
  const std::string last_linear = std::to_string(settings.blocks) + ".linear2.weight";
  const std::int64_t few = (std::max)(settings.steps / 10, std::int64_t{1});
  Batch batch;
  std::vector<std::size_t> starts(batch_sequences);
  Outcome outcome;
  outcome.curve.resize(static_cast<std::size_t>((std::min)(settings.steps, std::int64_t{20})));
  std::vector<double> counts(outcome.curve.size());
  for (std::int64_t t = 0; t < settings.steps; ++t) {
    examples::give_up_if_interrupted();
    for (std::size_t& start : starts) start = random.below(places);
    batch.fill(text.train, text.characters, starts);
    const auto& loss = cross_entropy(network.forward(batch.x, ek::Mode::train), batch.next);
    network.backward_parameters(batch.x, loss.gradient);
    if (t == 0)
      for (const auto& parameter : network.parameters())
        if (parameter.name == last_linear)
          outcome.first_gradient = std::sqrt(static_cast<double>(parameter.gradient.squaredNorm()) /
                                             static_cast<double>(parameter.gradient.size()));
    const auto part = static_cast<std::size_t>(t * static_cast<std::int64_t>(counts.size()) / settings.steps);
    outcome.curve[part] += (loss.value - outcome.curve[part]) / ++counts[part];
    if (t >= settings.steps - few) outcome.train += loss.value / static_cast<double>(few);
    optimizer.step(row.warmup ? ek::warmup(t, 2 * few) : ek::constant(t));
  }
  outcome.held_out = held_out_loss(network, text);
  return outcome;
}

/// Of the cases that are finished, each a list over the seeds.
class Results {
 public:
  Results(std::vector<Case> cases, const std::vector<std::optional<Outcome>>& outcomes, std::size_t seeds)
      : cases_{std::move(cases)}, outcomes_(cases_.size()) {
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      if (outcomes[i]) outcomes_[i / seeds].push_back(*outcomes[i]);
    for (auto& each : outcomes_)
      if (each.size() < seeds) each.clear();
  }

  const std::vector<Case>& cases() const { return cases_; }
  bool has(std::size_t i) const { return !outcomes_[i].empty(); }
  bool complete() const {
    return std::none_of(outcomes_.begin(), outcomes_.end(), [](const auto& each) { return each.empty(); });
  }
  double median(std::size_t i, double Outcome::*member) const {
    std::vector<double> values;
    for (const Outcome& outcome : outcomes_[i]) values.push_back(outcome.*member);
    return examples::median(values);
  }
  std::vector<double> median_curve(std::size_t i) const {
    std::vector<double> curve;
    for (std::size_t k = 0; k < outcomes_[i].front().curve.size(); ++k) {
      std::vector<double> values;
      for (const Outcome& outcome : outcomes_[i]) values.push_back(outcome.curve[k]);
      curve.push_back(examples::median(values));
    }
    return curve;
  }
  std::size_t find(ek::NormPlace norm, bool warmup, double rate) const {
    for (std::size_t i = 0; i < cases_.size(); ++i)
      if (cases_[i].norm == norm && cases_[i].warmup == warmup && cases_[i].rate == rate) return i;
    throw std::logic_error("no such case");
  }
  double held_out(ek::NormPlace norm, bool warmup, double rate) const {
    return median(find(norm, warmup, rate), &Outcome::held_out);
  }

 private:
  std::vector<Case> cases_;
  std::vector<std::vector<Outcome>> outcomes_;
};

void print_table(const Results& results) {
  fmt::print("{:<10} {:<8} {:>8}   {:>14} {:>9}   {:>14}\n", "", "", "", "first gradient", "training", "loss on");
  fmt::print("{:<10} {:<8} {:>8}   {:>14} {:>9}   {:>14}\n", "norms", "warm-up", "rate", "on the last W", "loss",
             "held-out text");
  for (std::size_t i = 0; i < results.cases().size(); ++i) {
    if (!results.has(i)) continue;
    const Case& row = results.cases()[i];
    fmt::print("{:<10} {:<8} {:>8g}   {:>14.2e} {:>9.3f}   {:>14.3f}\n", name_of(row.norm), row.warmup ? "yes" : "no",
               row.rate, results.median(i, &Outcome::first_gradient), results.median(i, &Outcome::train),
               results.median(i, &Outcome::held_out));
    if (i % rates.size() + 1 == rates.size() && i + 1 < results.cases().size()) fmt::print("\n");
  }
  fmt::print("\nThe training loss, of the last tenth of the steps, is with dropout; the other is without.\n");
}

/// From fewer seeds a median is one run's.
constexpr int enough_seeds = 3;

void print_claims(const Results& results, const Settings& settings, double entropy) {
  using ek::NormPlace;
  examples::Claims claims(true);
  const auto verdict = [&](bool holds) {
    return settings.seeds < enough_seeds ? examples::Verdict::undecided : examples::verdict_of(holds);
  };
  const double best = (std::min)(results.held_out(NormPlace::before, true, rates[0]),
                                 results.held_out(NormPlace::before, true, rates[1]));
  claims.add(verdict(best < entropy), "a pre-norm Transformer learns more than how frequent characters are", "",
             fmt::format("{:.3f} on held-out text, {:.3f} by frequencies", best, entropy));

  const std::size_t pre = results.find(NormPlace::before, true, rates[0]);
  const std::size_t post = results.find(NormPlace::after, true, rates[0]);
  const double pre_gradient = results.median(pre, &Outcome::first_gradient);
  const double post_gradient = results.median(post, &Outcome::first_gradient);
  claims.add(verdict(post_gradient > 1.5 * pre_gradient), "post-norm's first gradients near the output are larger",
             "yes, Xiong et al.", fmt::format("{:.1e} and {:.1e}", post_gradient, pre_gradient));

  const auto cost_of_none = [&](NormPlace norm, double rate) {
    return results.held_out(norm, false, rate) - results.held_out(norm, true, rate);
  };
  const double post_cost =
      (std::max)(cost_of_none(NormPlace::after, rates[0]), cost_of_none(NormPlace::after, rates[1]));
  const double pre_cost =
      (std::max)(cost_of_none(NormPlace::before, rates[0]), cost_of_none(NormPlace::before, rates[1]));
  claims.add(verdict(post_cost > 0.1), "post-norm needs the warm-up: without it the loss is higher by more than 0.1",
             "yes", fmt::format("by {:+.3f} at the rate where it matters most", post_cost));
  claims.add(verdict(pre_cost < 0.1 && pre_cost < post_cost), "pre-norm is much less sensitive", "yes",
             fmt::format("by {:+.3f}", pre_cost));
  claims.print();
}

/// The loss in training at the larger rate.
void draw(examples::Plot& plot, const Results& results, std::int64_t steps, double entropy) {
  std::string commands, curves;
  int blocks = 0;
  for (const auto norm : {ek::NormPlace::before, ek::NormPlace::after})
    for (const bool warmup : {true, false}) {
      const std::vector<double> curve = results.median_curve(results.find(norm, warmup, rates.back()));
      std::vector<std::vector<double>> points;
      for (std::size_t k = 0; k < curve.size(); ++k)
        points.push_back(
            {(static_cast<double>(k) + 0.5) * static_cast<double>(steps) / static_cast<double>(curve.size()),
             curve[k]});
      commands += examples::Plot::block(fmt::format("curve{}", ++blocks), points);
      curves += fmt::format("$curve{} with linespoints linetype {} dashtype {} title '{}, {}', ", blocks,
                            norm == ek::NormPlace::before ? 1 : 2, warmup ? 1 : 2, name_of(norm),
                            warmup ? "warm-up" : "no warm-up");
    }
  commands += fmt::format(
      "set title 'Rate {:g}'\nset xlabel 'step'\nset ylabel 'training loss, nats a character'\nset key top right\n",
      rates.back());
  commands += "plot " + curves + fmt::format("{} linetype 5 dashtype 3 title 'frequencies of characters'", entropy);
  plot.draw(420, commands);
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  const examples::Questions questions = examples::read_questions(settings.data);
  const auto seeds = static_cast<std::size_t>(settings.seeds);
  std::vector<Text> texts;
  std::vector<double> entropies;
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    texts.emplace_back(questions, seed);
    entropies.push_back(texts.back().entropy());
    if (texts.back().train.size() <= positions || texts.back().held_out.size() <= positions)
      throw ek::FormatError(fmt::format("{}: expected questions of more than {} characters in each part of a split",
                                        settings.data, positions));
  }
  examples::Plot plot("transformer_block", settings.plot);
  examples::Csv csv(settings.csv,
                    {"norm", "warmup", "rate", "seed", "first_gradient", "training_loss", "held_out_loss"});
  const double entropy = examples::median(entropies);
  fmt::print(
      "{} blocks of width {}, {} heads, on sequences of {} characters, {} steps, medians of {}.\n"
      "Losses in nats a character. By the frequencies of characters the held-out text has {:.3f}, by chance "
      "{:.3f}.\n\n",
      settings.blocks, width, heads, positions, settings.steps, examples::counted(settings.seeds, "seed"), entropy,
      std::log(texts.front().characters));
  std::fflush(stdout);

  const std::vector<Case> cases = all_cases();
  const auto outcomes = examples::run_tasks(
      cases.size() * seeds, settings.threads, settings.quiet,
      [&](std::size_t task) { return train(settings, cases[task / seeds], texts[task % seeds], task % seeds); });
  const Results results(cases, outcomes, seeds);
  if (examples::interrupted())
    fmt::print(
        "Interrupted. This table is partial: unfinished rows are left out, and so are verdicts and picture.\n\n");
  print_table(results);
  if (results.complete()) print_claims(results, settings, entropy);
  std::fflush(stdout);
  for (std::size_t task = 0; task < outcomes.size(); ++task)
    if (outcomes[task]) {
      const Case& row = cases[task / seeds];
      const Outcome& outcome = *outcomes[task];
      csv.row(name_of(row.norm), row.warmup ? "yes" : "no", row.rate, task % seeds, outcome.first_gradient,
              outcome.train, outcome.held_out);
    }
  csv.write();
  if (plot && results.complete()) draw(plot, results, settings.steps, entropy);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Trains small causal Transformers to predict the next character of the questions, with the norms before or "
      "behind "
      "each residual connection, with and without a warm-up, at two learning rates.",
      "transformer_block"};
  app.footer(
      "Pre-norm normalizes what goes into attention and feed-forward network and leaves the stream itself alone, but "
      "for "
      "one norm at its end; post-norm normalizes the stream behind each addition. Behind so many norms the first "
      "gradients near the output are large, and a full learning rate at once can throw post-norm off; a warm-up raises "
      "the rate over the first fifth of the steps." +
      std::string(examples::article_note));
  settings.add_data(app);
  settings.add_steps(app, 300);
  settings.add_seeds(app, 3, "Splits and starts that the medians are over");
  app.add_option("--blocks", settings.blocks, "Transformer blocks")->check(CLI::Range(1, 100))->option_text("N [6]");
  settings.add_threads(app);
  settings.add_output(app, "Loss over the steps");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
