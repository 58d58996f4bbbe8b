// Does dropout help a small classifier, and what does weight decay have to do with it?
//
//   build/release/examples/dropout_grid
//   build/release/examples/dropout_grid --steps 12000 --plot grid.png --csv grid.csv
//   build/release/examples/dropout_grid --data my_questions.tsv --norm layer
//
// Trains a network with two hidden layers of 64 under five dropout rates and five weight decays, on twenty splits of the
// questions each, and prints how well it answers questions that it has not seen, how sure it is, and what dropout adds at
// each decay. 500 networks of 3,000 steps: about a minute on two cores.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
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
using examples::Estimate;
using examples::Evaluation;

namespace {

constexpr std::array decays = {0.0, 0.3, 1.0, 3.0, 10.0};
constexpr std::array dropouts = {0.0, 0.1, 0.3, 0.5, 0.7};
constexpr std::size_t cells = decays.size() * dropouts.size();

struct Settings : examples::CommonOptions {
  std::string norm = "none";
  std::string precision = "float";
  ek::Index batch = 16;
};

/// What one network says about the questions that it was not trained on.
struct Run {
  Evaluation validation, test;
};

/// Setting and split of one run, in the order of the work: all settings of a split, then the next split, so that an
/// interrupt leaves whole splits.
struct Place {
  std::size_t split, decay, dropout;
  explicit Place(std::size_t task)
      : split{task / cells}, decay{task % cells / dropouts.size()}, dropout{task % dropouts.size()} {}
};

template <typename Scalar>
Run run_one(const Settings& settings, const examples::Questions& questions, const Place& place) {
  const examples::Problem<Scalar> problem(questions, place.split);
  const auto network = examples::train(problem, {.norm = examples::norms_by_name().at(settings.norm),
                                                 .dropout = dropouts[place.dropout],
                                                 .decay = decays[place.decay],
                                                 .batch = settings.batch,
                                                 .steps = settings.steps,
                                                 .seed = place.split});
  return {examples::evaluate(network, problem.validation), examples::evaluate(network, problem.test)};
}

/// The runs of the splits that are finished in every setting.
class Grid {
 public:
  Grid(const std::vector<std::optional<Run>>& runs, double validation_to_train, double test_to_train)
      : validation_to_train_{validation_to_train}, test_to_train_{test_to_train} {
    for (std::size_t first = 0; first + cells <= runs.size(); first += cells) {
      const auto end = runs.begin() + static_cast<std::ptrdiff_t>(first + cells);
      const auto begin = runs.begin() + static_cast<std::ptrdiff_t>(first);
      if (!std::all_of(begin, end, [](const auto& run) { return run.has_value(); })) continue;
      for (std::size_t cell = 0; cell < cells; ++cell) runs_[cell].push_back(*runs[first + cell]);
    }
  }

  struct Cell {
    std::size_t decay, dropout;
    bool operator==(const Cell&) const = default;
  };

  std::size_t splits() const { return runs_[0].size(); }
  const std::vector<Run>& runs(Cell cell) const { return runs_[cell.decay * dropouts.size() + cell.dropout]; }

  std::vector<double> validation(Cell cell, double Evaluation::*metric) const {
    std::vector<double> values;
    for (const Run& run : runs(cell)) values.push_back(run.validation.*metric);
    return values;
  }
  std::vector<double> test(Cell cell, double Evaluation::*metric) const {
    std::vector<double> values;
    for (const Run& run : runs(cell)) values.push_back(run.test.*metric);
    return values;
  }
  double validation_mean(Cell cell, double Evaluation::*metric) const {
    return examples::mean(validation(cell, metric));
  }
  double test_mean(Cell cell, double Evaluation::*metric) const { return examples::mean(test(cell, metric)); }

  /// On the validation questions, paired by split.
  Estimate difference(Cell after, Cell before, double Evaluation::*metric) const {
    return examples::paired_difference(validation(after, metric), validation(before, metric), validation_to_train_);
  }
  Estimate test_difference(Cell after, Cell before, double Evaluation::*metric) const {
    return examples::paired_difference(test(after, metric), test(before, metric), test_to_train_);
  }
  /// What this cell's dropout adds at its decay.
  Estimate added(Cell cell, double Evaluation::*metric) const { return difference(cell, {cell.decay, 0}, metric); }

  /// The cell with the lowest validation cross-entropy.
  Cell chosen() const { return best(dropouts.size()); }
  Cell chosen_without_dropout() const { return best(1); }

 private:
  Cell best(std::size_t dropout_count) const {
    Cell result{0, 0};
    for (std::size_t decay = 0; decay < decays.size(); ++decay)
      for (std::size_t dropout = 0; dropout < dropout_count; ++dropout)
        if (validation_mean({decay, dropout}, &Evaluation::cross_entropy) <
            validation_mean(result, &Evaluation::cross_entropy))
          result = {decay, dropout};
    return result;
  }

  std::array<std::vector<Run>, cells> runs_;
  double validation_to_train_;
  double test_to_train_;
};

using Cell = Grid::Cell;

std::string name(Cell cell) {
  return fmt::format("dropout {:.1f}, decay {:.1f}", dropouts[cell.dropout], decays[cell.decay]);
}

void print_table(const Grid& grid) {
  fmt::print(
      "On validation. What dropout adds is paired by split with no dropout at the same decay; ± is its standard "
      "error.\n"
      "CE: cross-entropy. top p: largest probability. gap: largest logit minus the next. wrong: top p of wrong "
      "answers.\n\n"
      "{:>5} {:>7}   {:>5} {:>16}   {:>8} {:>16}   {:>5}  {:>6}  {:>5}   {:>7} {:>8}\n",
      "decay", "dropout", "CE", "dropout adds", "accuracy", "dropout adds", "top p", "gap", "wrong", "test CE",
      "accuracy");
  for (std::size_t decay = 0; decay < decays.size(); ++decay) {
    for (std::size_t dropout = 0; dropout < dropouts.size(); ++dropout) {
      const Cell cell{decay, dropout};
      const auto added = [&](double Evaluation::*metric) {
        return dropout == 0 ? std::string() : to_string(grid.added(cell, metric));
      };
      fmt::print("{:>5.1f} {:>7.1f}   {:5.3f} {:>16}   {:8.3f} {:>16}   {:5.3f}  {:6.2f}  {:5.3f}   {:7.3f} {:8.3f}\n",
                 decays[decay], dropouts[dropout], grid.validation_mean(cell, &Evaluation::cross_entropy),
                 added(&Evaluation::cross_entropy), grid.validation_mean(cell, &Evaluation::accuracy),
                 added(&Evaluation::accuracy), grid.validation_mean(cell, &Evaluation::top_probability),
                 grid.validation_mean(cell, &Evaluation::logit_gap),
                 grid.validation_mean(cell, &Evaluation::top_probability_wrong),
                 grid.test_mean(cell, &Evaluation::cross_entropy), grid.test_mean(cell, &Evaluation::accuracy));
    }
    fmt::print("\n");
  }
}

void print_choice(const Grid& grid) {
  const Cell chosen = grid.chosen(), decay_only = grid.chosen_without_dropout(), neither{0, 0};
  fmt::print("Chosen by validation CE: {}. Without dropout: decay {:.1f}.\n", name(chosen), decays[decay_only.decay]);
  fmt::print("{:<40} {:>7} {:>9}\n", "On test", "CE", "accuracy");
  const auto line = [&](const std::string& title, Cell cell) {
    fmt::print("  {:<38} {:7.3f} {:9.3f}\n", title, grid.test_mean(cell, &Evaluation::cross_entropy),
               grid.test_mean(cell, &Evaluation::accuracy));
  };
  line("chosen: " + name(chosen), chosen);
  line(fmt::format("decay alone: {:.1f}", decays[decay_only.decay]), decay_only);
  line("neither", neither);
  fmt::print("  dropout's own share of the CE {:>22}\n",
             to_string(grid.test_difference(chosen, decay_only, &Evaluation::cross_entropy)));
  fmt::print("  decay's share of the CE       {:>22}\n",
             to_string(grid.test_difference(decay_only, neither, &Evaluation::cross_entropy)));
}

/// The article's figures after 3,000 and after 12,000 steps; another number of steps is compared with the nearer.
struct Article {
  const char *raised, *gap, *wrong, *helped, *helped_accuracy, *confidence, *collapse, *dropout_share, *decay_share;
};
constexpr Article article_3000 = {"+0.113 ± 0.052 to +0.546 ± 0.132",
                                  "3.85 to 6.93",
                                  "0.752 to 0.860",
                                  "-0.028 ± 0.025",
                                  "+0.014 ± 0.025",
                                  "0.482 to 0.312",
                                  "-0.227 ± 0.042",
                                  "-0.022 ± 0.024",
                                  "-0.285 ± 0.097"};
constexpr Article article_12000 = {"+0.320 ± 0.085 to +2.066 ± 0.481",
                                   "5.55 to 13.47",
                                   "0.833 to 0.925",
                                   "-0.236 ± 0.064",
                                   "+0.039 ± 0.028",
                                   "0.470 to 0.306",
                                   "-0.236 ± 0.056",
                                   "-0.191 ± 0.041",
                                   "-0.395 ± 0.167"};

void print_claims(const Settings& settings, const Grid& grid) {
  using enum examples::Verdict;
  const Article& article = settings.steps < 6000 ? article_3000 : article_12000;
  examples::Claims claims;

  std::vector<examples::Verdict> raised, unmoved;
  Estimate least{1e300, 0}, most{-1e300, 0}, largest_move{0, 0};
  for (std::size_t dropout = 1; dropout < dropouts.size(); ++dropout) {
    const Estimate loss = grid.added({0, dropout}, &Evaluation::cross_entropy);
    raised.push_back(examples::positive(loss));
    if (!(loss.value > least.value)) least = loss;
    if (!(loss.value < most.value)) most = loss;
    const Estimate accuracy = grid.added({0, dropout}, &Evaluation::accuracy);
    unmoved.push_back(examples::nothing(accuracy));
    if (!(std::abs(accuracy.value) < std::abs(largest_move.value))) largest_move = accuracy;
  }
  claims.add(all_of(raised), "without decay every dropout rate raises the CE", article.raised,
             to_string(least) + " to " + to_string(most));
  claims.add(all_of(unmoved), "and accuracy stays within its error", "yes", "at most " + to_string(largest_move));

  const auto from_to = [&](double Evaluation::*metric, Cell before, Cell after, int digits) {
    return fmt::format("{:.{}f} to {:.{}f}", grid.validation_mean(before, metric), digits,
                       grid.validation_mean(after, metric), digits);
  };
  const Cell none{0, 0}, half{0, 3};
  claims.add(examples::positive(grid.added(half, &Evaluation::logit_gap)),
             "dropout 0.5 without decay widens the gap of the logits", article.gap,
             from_to(&Evaluation::logit_gap, none, half, 2));
  claims.add(examples::positive(grid.added(half, &Evaluation::top_probability_wrong)), "and makes wrong answers surer",
             article.wrong, from_to(&Evaluation::top_probability_wrong, none, half, 3));

  const Cell helped{3, 3};
  claims.add(examples::negative(grid.added(helped, &Evaluation::cross_entropy)), "at decay 3 dropout 0.5 lowers the CE",
             article.helped, to_string(grid.added(helped, &Evaluation::cross_entropy)));
  claims.add(examples::nothing(grid.added(helped, &Evaluation::accuracy)), "and accuracy is a tie",
             article.helped_accuracy, to_string(grid.added(helped, &Evaluation::accuracy)));

  double surest = 0;
  for (std::size_t dropout = 0; dropout < dropouts.size(); ++dropout)
    surest = (std::max)(surest, grid.validation_mean({4, dropout}, &Evaluation::top_probability));
  claims.add(examples::verdict_of(surest < 0.5), "at decay 10 the mean top p is below 0.5", article.confidence,
             fmt::format("at most {:.3f}", surest));
  claims.add(examples::negative(grid.added({4, 4}, &Evaluation::accuracy)), "and dropout 0.7 with it loses accuracy",
             article.collapse,
             fmt::format("{}, top p {:.3f}", to_string(grid.added({4, 4}, &Evaluation::accuracy)),
                         grid.validation_mean({4, 4}, &Evaluation::top_probability)));

  const Cell chosen = grid.chosen(), decay_only = grid.chosen_without_dropout();
  claims.add(examples::verdict_of(chosen == helped), "the choice is dropout 0.5 with decay 3", "yes", name(chosen));
  claims.add(examples::negative(grid.test_difference(decay_only, none, &Evaluation::cross_entropy)),
             "on test decay alone lowers the CE", article.decay_share,
             to_string(grid.test_difference(decay_only, none, &Evaluation::cross_entropy)));
  claims.add(examples::negative(grid.test_difference(chosen, decay_only, &Evaluation::cross_entropy)),
             "and dropout lowers it further", article.dropout_share,
             to_string(grid.test_difference(chosen, decay_only, &Evaluation::cross_entropy)));
  claims.print();
}

void write_csv(examples::Csv& csv, const std::vector<std::optional<Run>>& runs) {
  for (std::size_t task = 0; task < runs.size(); ++task) {
    if (!runs[task]) continue;
    const Place place(task);
    csv.add(decays[place.decay]);
    csv.add(dropouts[place.dropout]);
    csv.add(place.split);
    for (const Evaluation* part : {&runs[task]->validation, &runs[task]->test}) {
      csv.add(part->cross_entropy);
      csv.add(part->accuracy);
      csv.add(part->top_probability);
      csv.add(part->logit_gap);
      csv.add(part->top_probability_wrong);
      for (const auto& bin : part->bins) {
        csv.add(bin.count);
        csv.add(bin.confidence);
        csv.add(bin.right);
      }
    }
    csv.end_row();
  }
  csv.write();
}

std::vector<std::string> csv_columns() {
  std::vector<std::string> columns = {"decay", "dropout", "split"};
  for (const std::string part : {"validation_", "test_"}) {
    for (const char* metric : {"cross_entropy", "accuracy", "top_probability", "logit_gap", "top_probability_wrong"})
      columns.push_back(part + metric);
    for (std::size_t bin = 0; bin < std::tuple_size_v<decltype(Evaluation::bins)>; ++bin)
      for (const char* sum : {"count", "confidence", "right"})
        columns.push_back(fmt::format("{}bin{}_{}", part, bin, sum));
  }
  return columns;
}

/// Left: validation CE of every cell. Right: how often an answer of some confidence is right, over all test questions.
void draw(examples::Plot& plot, const Settings& settings, const Grid& grid) {
  std::vector<std::vector<double>> heat;
  double largest = 0, smallest = 1e300;
  for (std::size_t decay = 0; decay < decays.size(); ++decay)
    for (std::size_t dropout = 0; dropout < dropouts.size(); ++dropout) {
      const double loss = grid.validation_mean({decay, dropout}, &Evaluation::cross_entropy);
      heat.push_back({static_cast<double>(dropout), static_cast<double>(decay), loss});
      largest = (std::max)(largest, loss);
      smallest = (std::min)(smallest, loss);
    }
  const auto tics = [](const auto& values) {
    std::string text;
    for (std::size_t i = 0; i < values.size(); ++i) text += fmt::format("{}'{:g}' {}", i > 0 ? ", " : "", values[i], i);
    return text;
  };

  std::string commands = examples::Plot::block("heat", heat);
  std::string curves;
  const std::array<std::pair<std::string, Cell>, 4> shown = {{{"neither", {0, 0}},
                                                              {"dropout 0.5, no decay", {0, 3}},
                                                              {"decay alone", grid.chosen_without_dropout()},
                                                              {"chosen", grid.chosen()}}};
  for (std::size_t i = 0; i < shown.size(); ++i) {
    std::vector<std::vector<double>> points;
    for (std::size_t bin = 0; bin < std::tuple_size_v<decltype(Evaluation::bins)>; ++bin) {
      Evaluation::Bin sum;
      for (const Run& run : grid.runs(shown[i].second)) {
        sum.count += run.test.bins[bin].count;
        sum.confidence += run.test.bins[bin].confidence;
        sum.right += run.test.bins[bin].right;
      }
      if (sum.count >= 10) points.push_back({sum.confidence / sum.count, sum.right / sum.count});
    }
    if (points.empty()) continue;
    commands += examples::Plot::block(fmt::format("curve{}", i), points);
    curves += fmt::format(", $curve{0} with linespoints linetype {1} title {2}", i, i + 1,
                          examples::Plot::quoted(shown[i].first));
  }
  const double middle = std::sqrt(smallest * largest);
  commands += fmt::format(
      "set rmargin 2\nset multiplot layout 1,2 title {}\n"
      "set title 'Validation cross-entropy, mean of {} splits'\nunset key\nunset grid\n"
      "set xlabel 'dropout'\nset ylabel 'weight decay'\nset xtics ({})\nset ytics ({})\nset tics scale 0\n"
      "set xrange [-0.5:4.5]\nset yrange [-0.5:4.5]\nset logscale cb\nset cbrange [{}:{}]\nunset colorbox\n"
      "set palette defined (0 '#fde725', 1 '#5ec962', 2 '#21918c', 3 '#3b528b', 4 '#440154')\n"
      "plot $heat using 1:2:3 with image, '' using 1:2:(sprintf('%.2f', $3)):($3 < {} ? 0x000000 : 0xffffff) "
      "with labels textcolor rgb variable\n",
      examples::Plot::quoted(fmt::format("{} steps, norm {}", settings.steps, settings.norm)), grid.splits(),
      tics(dropouts), tics(decays), smallest, largest > smallest ? largest : smallest * 1.01, middle);
  commands += fmt::format(
      "set title 'Confidence against accuracy, test questions'\nset grid\nset key top left width -2\n"
      "set xlabel 'confidence (top probability)'\nset ylabel 'share that is right'\nset xtics auto\nset ytics auto\n"
      "set xrange [0:1]\nset yrange [0:1]\nset xtics 0.2\nset ytics 0.2\n"
      "plot x with lines linecolor '#999999' dashtype 2 title 'as sure as right'{}\nunset multiplot\n",
      curves);
  plot.draw(420, commands);
}

int run(const Settings& settings) {
  examples::Plot plot("dropout_grid", settings.plot);
  examples::Csv csv(settings.csv, csv_columns());
  const examples::Questions questions = examples::read_questions(settings.data);
  const examples::Split parts = examples::split(questions, 0);
  const auto to_train = [&](const auto& part) {
    return static_cast<double>(part.size()) / static_cast<double>(parts.train.size());
  };

  fmt::print("{} questions, {} routes; {} splits into {} to train, {} to validate, {} to test\n", questions.all.size(),
             questions.routes.size(), settings.seeds, parts.train.size(), parts.validation.size(), parts.test.size());
  fmt::print("{} steps of AdamW at 0.001 on batches of {}, hidden layers 64 and 64, norm {}, {}\n\n", settings.steps,
             settings.batch, settings.norm, settings.precision);
  std::fflush(stdout);

  const auto runs = examples::run_tasks(
      static_cast<std::size_t>(settings.seeds) * cells, settings.threads, settings.quiet, [&](std::size_t task) {
        return settings.precision == "float" ? run_one<float>(settings, questions, Place(task))
                                             : run_one<double>(settings, questions, Place(task));
      });
  write_csv(csv, runs);
  const Grid grid(runs, to_train(parts.validation), to_train(parts.test));
  if (examples::interrupted())
    fmt::print("Interrupted. {}: {} of {} splits are finished.\n\n",
               grid.splits() > 0 ? "This table is partial" : "There is nothing to show", grid.splits(), settings.seeds);
  if (grid.splits() > 0) {
    print_table(grid);
    print_choice(grid);
    print_claims(settings, grid);
    draw(plot, settings, grid);
  }
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Trains a small classifier of questions under five dropout rates and five weight decays, on many splits of the "
      "questions, and shows what each of the two does to cross-entropy, accuracy and confidence on unseen questions.",
      "dropout_grid"};
  app.footer(
      "Cross-entropy punishes answers that are wrong and sure; accuracy only counts. A network that is right 70 % of "
      "the "
      "time and 90 % sure is overconfident, which the gap of its logits and the confidence of its wrong answers show. "
      "Settings are compared split by split, with a standard error that allows for questions that the splits share.\n"
      "The best of 25 cells looks better on validation than it is; the lines 'on test' tell what the choice is worth.");
  settings.add_data(app);
  settings.add_seeds(app, 20, "Splits of the questions, each with its own start, order and masks");
  settings.add_steps(app, 3000);
  app.add_option("--norm", settings.norm, "Norm behind each hidden layer: none, batch, layer or rms")
      ->check(CLI::IsMember(examples::norm_names()))
      ->option_text("NAME [none]");
  app.add_option("--precision", settings.precision, "Of all numbers in training: float or double")
      ->check(CLI::IsMember({"float", "double"}))
      ->option_text("TYPE [float]");
  app.add_option("--batch", settings.batch, "Questions in a step")
      ->check(CLI::Range(2, 1000000))
      ->option_text("N [16]");
  settings.add_threads(app);
  settings.add_output(app, "Heat map of the grid, and confidence against accuracy");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
