// Which learning rates train a deep network, from a tiny and from a good start, with and without norms?
//
//   build/release/examples/norm_lr_grid
//   build/release/examples/norm_lr_grid --plot rates.png --csv rates.csv
//
// Trains ten hidden layers of 64 on the questions, from weights of deviation 0.01 and from He's, without a norm and with
// LayerNorm, RMSNorm and BatchNorm, by SGD and by Adam at rates a factor of ten apart, and prints the loss on the training
// questions after 1,000 steps: medians over five splits. 360 networks: less than a minute on two cores.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/questions.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/training.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;

namespace {

struct Settings : examples::CommonOptions {
  std::string precision = "float";
  ek::Index batch = 16;
  int layers = 10;
};

enum class Start { tiny, he };
constexpr std::array starts = {Start::tiny, Start::he};
constexpr std::array start_names = {"0.01", "He"};
constexpr std::array norms = {ek::Norm::none, ek::Norm::layer, ek::Norm::rms, ek::Norm::batch};
constexpr std::array norm_names = {"none", "layer", "rms", "batch"};
constexpr std::array optimizer_names = {"SGD", "Adam"};

/// All settings of the grid, as places in the arrays above; a rate is a power of ten.
struct Cell {
  std::size_t start, norm, optimizer;
  int power;
  double rate() const { return std::pow(10, power); }
  bool operator==(const Cell&) const = default;
};
constexpr std::pair<int, int> powers(std::size_t optimizer) {
  return optimizer == 0 ? std::pair{-4, 0} : std::pair{-5, -2};
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (std::size_t start = 0; start < starts.size(); ++start)
    for (std::size_t norm = 0; norm < norms.size(); ++norm)
      for (std::size_t optimizer = 0; optimizer < optimizer_names.size(); ++optimizer)
        for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power)
          cells.push_back({start, norm, optimizer, power});
  return cells;
}

/// The loss on the training questions after training; NaN where it diverged.
template <typename Scalar>
double loss_after(const Settings& settings, const examples::Questions& questions, const Cell& cell,
                  std::uint64_t seed) {
  const examples::Problem<Scalar> problem(questions, seed);
  bool diverged = false;
  auto network =
      examples::train<Scalar>(problem,
                              {.hidden = std::vector<ek::Index>(static_cast<std::size_t>(settings.layers), 64),
                               .norm = norms[cell.norm],
                               .init = starts[cell.start] == Start::he ? ek::Init::he : ek::Init::normal(0.01),
                               .optimizer = cell.optimizer == 0 ? examples::Optimizer::sgd : examples::Optimizer::adamw,
                               .rate = cell.rate(),
                               .batch = settings.batch,
                               .steps = settings.steps,
                               .seed = seed},
                              [&](const ek::FitStep& step) {
                                diverged = std::isnan(step.loss);  // and nothing brings it back
                                return !diverged;
                              });
  return diverged ? examples::not_a_number : examples::training_loss(network, problem);
}

/// At the edge of what trains at all: where a run lands differs from start to start, so nothing is claimed of these.
bool chaotic(const Cell& cell) {
  return (cell.norm == 1 || cell.norm == 2) && cell.optimizer == 1 && cell.power == (cell.start == 0 ? -3 : -2);
}

/// The losses of the settings that are finished on every split.
class Results {
 public:
  Results(const std::vector<Cell>& cells, const std::vector<std::optional<double>>& losses, std::size_t seeds)
      : cells_{cells}, medians_(cells.size()) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::vector<double> values;
      for (std::size_t seed = 0; seed < seeds; ++seed)
        if (losses[i * seeds + seed]) values.push_back(*losses[i * seeds + seed]);
      if (values.size() == seeds) medians_[i] = examples::median(values);
    }
  }

  /// Infinite where most runs diverged; none where it is not finished.
  std::optional<double> operator()(const Cell& cell) const {
    return medians_[static_cast<std::size_t>(std::find(cells_.begin(), cells_.end(), cell) - cells_.begin())];
  }
  double at(std::size_t start, std::size_t norm, std::size_t optimizer, int power) const {
    return (*this)({start, norm, optimizer, power}).value();
  }
  bool complete() const {
    return std::all_of(medians_.begin(), medians_.end(), [](const auto& loss) { return loss.has_value(); });
  }

  /// The rate with the lowest loss, as a power of ten, and that loss; chaotic cells are not looked at.
  std::pair<int, double> best(std::size_t start, std::size_t norm, std::size_t optimizer) const {
    std::pair<int, double> result{0, std::numeric_limits<double>::infinity()};
    for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power)
      if (const double loss = at(start, norm, optimizer, power);
          loss < result.second && !chaotic({start, norm, optimizer, power}))
        result = {power, loss};
    return result;
  }

 private:
  std::vector<Cell> cells_;
  std::vector<std::optional<double>> medians_;
};

/// The article's table in the order of all_cells; it has no BatchNorm.
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double article[2][3][2][5] = {{{{1.386, 1.386, 1.386, 1.387, 1.392}, {1.386, 1.386, 1.386, 1.387}},
                                         {{0.872, 0.069, 1.387, 1.387, 1.392}, {0.808, 0.072, 1.386, 1.387}},
                                         {{0.798, 0.062, 1.386, 1.387, 1.392}, {0.722, 0.055, 1.196, 1.387}}},
                                        {{{1.385, 1.286, 0.002, 0.000, inf}, {1.230, 0.001, 0.000, 0.000}},
                                         {{1.214, 0.226, 0.006, 0.001, 1.392}, {0.803, 0.010, 0.000, 0.506}},
                                         {{1.221, 0.207, 0.005, 0.001, 1.392}, {0.810, 0.009, 0.000, 0.000}}}};

void print_table(const Results& results, bool comparable) {
  for (std::size_t optimizer = 0; optimizer < optimizer_names.size(); ++optimizer) {
    fmt::print("{:<6} {:<6} {:<8}", "start", "norm", optimizer_names[optimizer]);
    for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power)
      fmt::print(" {:>8g}", std::pow(10, power));
    fmt::print("\n");
    for (std::size_t start = 0; start < starts.size(); ++start)
      for (std::size_t norm = 0; norm < norms.size(); ++norm) {
        fmt::print("{:<6} {:<6} {:<8}", start_names[start], norm_names[norm], "here");
        for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power) {
          const Cell cell{start, norm, optimizer, power};
          const auto loss = results(cell);
          fmt::print(" {:>7}{}", loss ? fmt::format("{:.3f}", *loss) : "", chaotic(cell) ? "*" : " ");
        }
        fmt::print("\n");
        if (norm >= std::size(article[start]) || !comparable) continue;
        fmt::print("{:<6} {:<6} {:<8}", "", "", "article");
        for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power)
          fmt::print(" {:>7.3f} ", article[start][norm][optimizer][power - powers(optimizer).first]);
        fmt::print("\n");
      }
    fmt::print("\n");
  }
  fmt::print(
      "inf: the loss became NaN in most splits. *: at the edge, another outcome from another start; no claim rests on "
      "it.\n");
}

void print_claims(const Results& results, double chance, bool comparable) {
  examples::Claims claims(comparable);
  const std::string range = "{:.3f} to {:.3f}";

  double least = inf, most = 0;
  const auto include = [&](double loss) {
    least = (std::min)(least, loss);
    most = (std::max)(most, loss);
  };
  const auto forget = [&] {
    least = inf;
    most = 0;
  };
  for (std::size_t optimizer = 0; optimizer < 2; ++optimizer)
    for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power)
      include(results.at(0, 0, optimizer, power));
  claims.add(examples::verdict_of(least > chance - 0.01),
             fmt::format("from 0.01 without a norm no rate gets below a guess, {:.3f}", chance), "1.386 to 1.392",
             fmt::format(fmt::runtime(range), least, most));

  forget();
  for (const std::size_t norm : {1u, 2u}) {
    include(results.at(0, norm, 0, -3));
    include(results.at(0, norm, 1, -4));
  }
  claims.add(examples::verdict_of(most < 0.2),
             "with LayerNorm or RMSNorm it trains to below 0.2, by SGD at 0.001 or Adam at 0.0001", "0.055 to 0.072",
             fmt::format(fmt::runtime(range), least, most));

  forget();
  for (const std::size_t norm : {1u, 2u})
    for (const int power : {-2, -1}) include(results.at(0, norm, 0, power));
  claims.add(examples::verdict_of(least > chance - 0.1),
             "but at the SGD rates that suit He's start, 0.01 and 0.1, it is stuck", "1.386 to 1.387",
             fmt::format(fmt::runtime(range), least, most));

  for (std::size_t optimizer = 0; optimizer < 2; ++optimizer) {
    std::vector<std::string> ratios;
    bool holds = true;
    for (const std::size_t norm : {1u, 2u}) {
      const int difference = results.best(1, norm, optimizer).first - results.best(0, norm, optimizer).first;
      holds = holds && difference >= 1 && difference <= (optimizer == 0 ? 2 : 1);
      ratios.push_back(fmt::format("{:g}", std::pow(10, difference)));
    }
    claims.add(examples::verdict_of(holds),
               fmt::format("{}'s best rate is {} times smaller from 0.01 than from He's start",
                           optimizer_names[optimizer], optimizer == 0 ? "10 to 100" : "10"),
               optimizer == 0 ? "10 to 100" : "10",
               fmt::format("{} with LayerNorm, {} with RMSNorm", ratios[0], ratios[1]));
  }

  forget();
  for (const std::size_t norm : {0u, 1u, 2u})
    include((std::min)(results.best(1, norm, 0).second, results.best(1, norm, 1).second));
  claims.add(examples::verdict_of(most < 0.01),
             "from He's start no norm, LayerNorm and RMSNorm all get below 0.01 at their best rates", "0.000",
             fmt::format(fmt::runtime("at most {:.4f}"), most));
  claims.add(
      examples::verdict_of(std::isinf(results.at(1, 0, 0, 0)) && std::isfinite(results.at(1, 1, 0, 0)) &&
                           std::isfinite(results.at(1, 2, 0, 0))),
      "SGD at 1 gives NaN without a norm; with LayerNorm or RMSNorm it stays finite", "inf, 1.392, 1.392",
      fmt::format("{:.3f}, {:.3f}, {:.3f}", results.at(1, 0, 0, 0), results.at(1, 1, 0, 0), results.at(1, 2, 0, 0)));
  claims.print();
}

/// A panel for each start and optimizer: loss against learning rate, a curve a norm.
void draw(examples::Plot& plot, const Settings& settings, const Results& results) {
  std::string commands = fmt::format(
      "set rmargin 2\nset multiplot layout 2,2 "
      "title 'Training loss after {} steps, medians of {}; no point: NaN'\n"
      "set logscale xy\nset format x '10^{{%T}}'\nset format y '10^{{%T}}'\nset yrange [1e-5:3]\nset xlabel 'learning "
      "rate'\n"
      "set ylabel 'loss (1e-5: or less)'\n"
      "set key bottom left\n",
      settings.steps, examples::counted(settings.seeds, "split"));
  for (std::size_t start = 0; start < starts.size(); ++start)
    for (std::size_t optimizer = 0; optimizer < optimizer_names.size(); ++optimizer) {
      std::string curves;
      for (std::size_t norm = 0; norm < norms.size(); ++norm) {
        std::vector<std::vector<double>> points;
        for (int power = powers(optimizer).first; power <= powers(optimizer).second; ++power) {
          const double loss = results.at(start, norm, optimizer, power);
          points.push_back(
              {std::pow(10, power), std::isfinite(loss) ? (std::max)(loss, 1e-5) : examples::not_a_number});
        }
        const std::string name = fmt::format("curve{}{}{}", start, optimizer, norm);
        commands += examples::Plot::block(name, points);
        curves += fmt::format("{}${} with linespoints linetype {} title '{}'", norm > 0 ? ", " : "", name, norm + 1,
                              norm_names[norm]);
      }
      commands += fmt::format("set title '{}, start {}'\nset xrange [{}:{}]\nplot {}\n", optimizer_names[optimizer],
                              start_names[start], std::pow(10, powers(optimizer).first - 0.2),
                              std::pow(10, powers(optimizer).second + 0.2), curves);
    }
  plot.draw(640, commands + "unset multiplot\n");
}

/// The loss of answering every question by the shares of the routes: log(routes) where they are equal.
double loss_of_a_guess(const examples::Questions& questions) {
  const std::vector<int> labels = examples::labels(questions, examples::split(questions, 0).train);
  double loss = 0;
  for (int route = 0; route < static_cast<int>(questions.routes.size()); ++route) {
    const double share =
        static_cast<double>(std::count(labels.begin(), labels.end(), route)) / static_cast<double>(labels.size());
    if (share > 0) loss -= share * std::log(share);
  }
  return loss;
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  examples::Plot plot("norm_lr_grid", settings.plot);
  examples::Csv csv(settings.csv, {"start", "norm", "optimizer", "learning_rate", "split", "training_loss"});
  const examples::Questions questions = examples::read_questions(settings.data);
  examples::check_words(questions, settings.seeds, settings.data);
  fmt::print("{} questions, {} routes, {}; {} of 64, {} steps on batches of {}, {}\n", questions.all.size(),
             questions.routes.size(), examples::counted(settings.seeds, "split"),
             examples::counted(settings.layers, "hidden layer"), settings.steps, settings.batch, settings.precision);
  fmt::print("Loss on the training questions by learning rate, medians over the splits\n\n");
  std::fflush(stdout);

  const std::vector<Cell> cells = all_cells();
  const auto seeds = static_cast<std::size_t>(settings.seeds);
  const auto losses =
      examples::run_tasks(cells.size() * seeds, settings.threads, settings.quiet, [&](std::size_t task) {
        const Cell& cell = cells[task / seeds];
        return settings.precision == "float" ? loss_after<float>(settings, questions, cell, task % seeds)
                                             : loss_after<double>(settings, questions, cell, task % seeds);
      });
  const Results results(cells, losses, seeds);
  const bool comparable =
      settings.on_shipped_data() && settings.steps == 1000 && settings.layers == 10 && settings.batch == 16;
  if (examples::interrupted())
    fmt::print(
        "Interrupted. This table is partial: what was not finished is left out, and so are verdicts and picture.\n\n");
  print_table(results, comparable && results.complete());
  if (results.complete()) print_claims(results, loss_of_a_guess(questions), comparable);
  std::fflush(stdout);
  for (std::size_t task = 0; task < losses.size(); ++task) {
    const Cell& cell = cells[task / seeds];
    if (losses[task])
      csv.row(start_names[cell.start], norm_names[cell.norm], optimizer_names[cell.optimizer], cell.rate(),
              task % seeds, *losses[task]);
  }
  csv.write();
  if (plot && results.complete()) draw(plot, settings, results);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Trains a network of ten hidden layers at learning rates a factor of ten apart, from a tiny and from He's start, "
      "without a norm and with three of them, and shows which rates bring the training loss down.",
      "norm_lr_grid"};
  app.footer(
      "A guess, the same answer to every question, has a loss of log(routes) where routes are equally frequent. "
      "Without a norm, weights of "
      "deviation "
      "0.01 let the signal die on its way through ten layers, and no rate brings it back. A norm restores the signal, "
      "but "
      "under a norm the gradient grows as the weights shrink, so that a rate that suits large weights throws small "
      "ones "
      "about: look how far the best rate moves from one start to the other." +
      std::string(examples::article_note));
  settings.add_data(app);
  settings.add_seeds(app, 5, "Splits of the questions, each with its own start and order");
  settings.add_steps(app, 1000);
  app.add_option("--layers", settings.layers, "Hidden layers of 64")->check(CLI::Range(1, 200))->option_text("N [10]");
  app.add_option("--batch", settings.batch, "Questions in a step")
      ->check(CLI::Range(2, 1000000))
      ->option_text("N [16]");
  app.add_option("--precision", settings.precision, "Of all numbers in training: float or double")
      ->check(CLI::IsMember({"float", "double"}))
      ->option_text("TYPE [float]");
  settings.add_threads(app);
  settings.add_output(app, "Training loss against learning rate");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
