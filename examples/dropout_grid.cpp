// Does dropout help a small classifier, and what does weight decay have to do with it?
//
//   build/release/examples/dropout_grid
//   build/release/examples/dropout_grid --steps 12000 --plot grid.png --csv grid.csv
//   build/release/examples/dropout_grid --data my_questions.tsv --norm layer
//
// Trains a network with two hidden layers of 64 under five dropout rates and five weight decays, on twenty splits of the
// questions each, and prints how well it answers questions that it has not seen, how sure it is, and what dropout adds at
// each decay. 500 networks of 3,000 steps: less than a minute on two cores.

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

  /// In how many splits this cell's value is the higher one.
  std::size_t rises(Cell after, Cell before, double Evaluation::*metric) const {
    const std::vector<double> high = validation(after, metric), low = validation(before, metric);
    std::size_t count = 0;
    for (std::size_t i = 0; i < high.size(); ++i)
      if (high[i] > low[i]) ++count;
    return count;
  }

 private:
  Cell best(std::size_t dropout_count) const {
    Cell result{0, 0};
    for (std::size_t decay = 0; decay < decays.size(); ++decay)
      for (std::size_t dropout = 0; dropout < dropout_count; ++dropout)
        if (const double best = validation_mean(result, &Evaluation::cross_entropy);
            std::isnan(best) || validation_mean({decay, dropout}, &Evaluation::cross_entropy) < best)
          result = {decay, dropout};
    return result;
  }

  std::array<std::vector<Run>, cells> runs_;
  double validation_to_train_;
  double test_to_train_;
};

using Cell = Grid::Cell;

/// The cell of these values, which the grid must have.
constexpr Cell cell_of(double dropout, double decay) {
  const auto place = [](const auto& values, double value) {
    return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
  };
  return {place(decays, decay), place(dropouts, dropout)};
}

std::string name(Cell cell) {
  return fmt::format("dropout {:.1f}, decay {:.1f}", dropouts[cell.dropout], decays[cell.decay]);
}

void print_table(const Grid& grid) {
  fmt::print(
      "On validation, means over the splits. CE: cross-entropy, lower is better. change: to no dropout at the same "
      "decay,\n"
      "split by split; ±: its standard error, sd * sqrt(1 / splits + tested / trained), the second term for the "
      "questions\n"
      "that splits share. top p: largest probability. gap: largest logit minus the next. wrong: top p of wrong "
      "answers.\n\n"
      "{:>5} {:>7}   {:>5} {:>16}   {:>8} {:>16}   {:>5}  {:>6}  {:>5}   {:>7} {:>8}\n",
      "decay", "dropout", "CE", "change", "accuracy", "change", "top p", "gap", "wrong", "test CE", "accuracy");
  for (std::size_t decay = 0; decay < decays.size(); ++decay) {
    for (std::size_t dropout = 0; dropout < dropouts.size(); ++dropout) {
      const Cell cell{decay, dropout};
      const auto change = [&](double Evaluation::*metric) {
        return dropout == 0 ? std::string() : to_string(grid.added(cell, metric));
      };
      const auto mean = [&](double Evaluation::*metric, int width, int digits) {
        return examples::figure(grid.validation_mean(cell, metric), width, digits);
      };
      fmt::print("{:>5.1f} {:>7.1f}   {} {:>16}   {} {:>16}   {}  {}  {}   {} {}\n", decays[decay], dropouts[dropout],
                 mean(&Evaluation::cross_entropy, 5, 3), change(&Evaluation::cross_entropy),
                 mean(&Evaluation::accuracy, 8, 3), change(&Evaluation::accuracy),
                 mean(&Evaluation::top_probability, 5, 3), mean(&Evaluation::logit_gap, 6, 2),
                 mean(&Evaluation::top_probability_wrong, 5, 3),
                 examples::figure(grid.test_mean(cell, &Evaluation::cross_entropy), 7, 3),
                 examples::figure(grid.test_mean(cell, &Evaluation::accuracy), 8, 3));
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
  line("no dropout, no decay", neither);
  const auto share = [&](const char* whose, Cell with, Cell without) {
    fmt::print("  {:<28} {:>22}\n", fmt::format("{} share of the CE", whose),
               with == without ? "none was chosen"
                               : to_string(grid.test_difference(with, without, &Evaluation::cross_entropy)));
  };
  share("dropout's own", chosen, decay_only);
  share("decay's", decay_only, neither);
}

/// The article's figures after 3,000 and after 12,000 steps.
struct Article {
  ek::Index steps;
  const char *raised, *gap, *wrong, *helped, *helped_accuracy, *confidence, *collapse, *decay_share, *dropout_share;
};
constexpr std::array articles = {
    Article{3000, "+0.113 ± 0.052 to +0.546 ± 0.132", "3.85 to 6.93", "0.752 to 0.860", "-0.028 ± 0.025",
            "+0.014 ± 0.025", "0.482 to 0.312", "-0.227 ± 0.042", "-0.285 ± 0.097", "-0.022 ± 0.024, a tie"},
    Article{12000, "+0.320 ± 0.085 to +2.066 ± 0.481", "5.55 to 13.47", "0.833 to 0.925", "-0.236 ± 0.064",
            "+0.039 ± 0.028", "0.470 to 0.306", "-0.236 ± 0.056", "-0.395 ± 0.167", "-0.191 ± 0.041"}};

/// How far a claim that a difference is above zero is from being shown: the higher, the safer.
double safety(const Estimate& difference) { return difference.value - 2 * difference.error; }

/// What every dropout rate does without decay.
void claim_no_decay(examples::Claims& claims, const Grid& grid, const Article& article) {
  std::vector<examples::Verdict> raised, unmoved;
  Cell weakest = cell_of(0.1, 0), largest = weakest, farthest = weakest;
  const auto loss = [&](Cell cell) { return grid.added(cell, &Evaluation::cross_entropy); };
  const auto accuracy = [&](Cell cell) { return grid.added(cell, &Evaluation::accuracy); };
  for (const double dropout : dropouts) {
    const Cell cell = cell_of(dropout, 0);
    if (dropout == 0) continue;
    raised.push_back(examples::positive(loss(cell)));
    unmoved.push_back(examples::nothing(accuracy(cell)));
    if (safety(loss(cell)) < safety(loss(weakest))) weakest = cell;
    if (loss(cell).value > loss(largest).value) largest = cell;
    const auto distance = [&](Cell each) { return std::abs(accuracy(each).value) - 2 * accuracy(each).error; };
    if (distance(cell) > distance(farthest)) farthest = cell;
  }
  const auto shown = [&](Cell cell, const Estimate& estimate) {
    return fmt::format("{} at {:.1f}", to_string(estimate), dropouts[cell.dropout]);
  };
  claims.add(all_of(raised), "without decay every dropout rate raises the CE", article.raised,
             fmt::format("least clearly {}, in {} of {} splits; most {}", shown(weakest, loss(weakest)),
                         grid.rises(weakest, cell_of(0, 0), &Evaluation::cross_entropy), grid.splits(),
                         shown(largest, loss(largest))));
  claims.add(all_of(unmoved), "and no change of accuracy can be seen", "yes",
             "most clearly " + shown(farthest, accuracy(farthest)));
}

void print_claims(const Settings& settings, const Grid& grid) {
  const bool long_run = settings.steps == articles[1].steps;
  const Article& article = articles[long_run ? 1 : 0];
  examples::Claims claims(settings.on_shipped_data() && settings.steps == article.steps && settings.norm == "none" &&
                          settings.batch == 16);
  claim_no_decay(claims, grid, article);

  const Cell none = cell_of(0, 0), half = cell_of(0.5, 0), helped = cell_of(0.5, 3), both = cell_of(0.7, 10);
  const auto from_to = [&](double Evaluation::*metric, int digits) {
    return fmt::format("{:.{}f} to {:.{}f}", grid.validation_mean(none, metric), digits,
                       grid.validation_mean(half, metric), digits);
  };
  claims.add(examples::positive(grid.added(half, &Evaluation::logit_gap)),
             "dropout 0.5 without decay widens the gap of the logits", article.gap, from_to(&Evaluation::logit_gap, 2));
  claims.add(examples::positive(grid.added(half, &Evaluation::top_probability_wrong)), "and makes wrong answers surer",
             article.wrong, from_to(&Evaluation::top_probability_wrong, 3));

  claims.add(examples::negative(grid.added(helped, &Evaluation::cross_entropy)), "at decay 3 dropout 0.5 lowers the CE",
             article.helped, to_string(grid.added(helped, &Evaluation::cross_entropy)));
  claims.add(examples::nothing(grid.added(helped, &Evaluation::accuracy)), "and no change of accuracy can be seen",
             article.helped_accuracy, to_string(grid.added(helped, &Evaluation::accuracy)));

  double surest = 0;
  for (const double dropout : dropouts) {
    const double mean = grid.validation_mean(cell_of(dropout, 10), &Evaluation::top_probability);
    if (!(mean <= surest)) surest = mean;
  }
  claims.add(examples::verdict_of(surest < 0.5), "at decay 10 the mean top p is below 0.5", article.confidence,
             fmt::format("at most {:.3f}", surest));
  claims.add(examples::negative(grid.added(both, &Evaluation::accuracy)), "and dropout 0.7 with it loses accuracy",
             article.collapse,
             fmt::format("{}, top p {:.3f}", to_string(grid.added(both, &Evaluation::accuracy)),
                         grid.validation_mean(both, &Evaluation::top_probability)));

  const Cell chosen = grid.chosen(), decay_only = grid.chosen_without_dropout();
  claims.add(examples::verdict_of(chosen == helped), "the choice is dropout 0.5 with decay 3", "yes", name(chosen));
  const auto claim_share = [&](const char* claim, const char* published, Cell with, Cell without) {
    const Estimate share = grid.test_difference(with, without, &Evaluation::cross_entropy);
    if (with == without)
      claims.add(examples::Verdict::does_not_hold, claim, published, "none was chosen");
    else
      claims.add(examples::negative(share), claim, published, to_string(share));
  };
  claim_share("on test decay alone lowers the CE", article.decay_share, decay_only, none);
  claim_share("and dropout lowers it further", article.dropout_share, chosen, decay_only);
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
  const Cell decay_alone = grid.chosen_without_dropout();
  const std::array<std::pair<std::string, Cell>, 4> shown = {
      {{"no dropout, no decay", cell_of(0, 0)},
       {"dropout 0.5, no decay", cell_of(0.5, 0)},
       {fmt::format("decay {:g} alone", decays[decay_alone.decay]), decay_alone},
       {name(grid.chosen()), grid.chosen()}}};
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
      "set title 'Validation cross-entropy (yellow is best)'\nunset key\nunset grid\n"
      "set xlabel 'dropout'\nset ylabel 'weight decay'\nset xtics ({})\nset ytics ({})\nset tics scale 0\n"
      "set xrange [-0.5:4.5]\nset yrange [-0.5:4.5]\nset logscale cb\nset cbrange [{}:{}]\nunset colorbox\n"
      "set palette defined (0 '#fde725', 1 '#5ec962', 2 '#21918c', 3 '#3b528b', 4 '#440154')\n"
      "plot $heat using 1:2:3 with image, '' using 1:2:(sprintf('%.2f', $3)):($3 < {} ? 0x000000 : 0xffffff) "
      "with labels textcolor rgb variable\n",
      examples::Plot::quoted(fmt::format("{} steps, norm {}, means of {}", settings.steps, settings.norm,
                                         examples::counted(static_cast<std::int64_t>(grid.splits()), "split"))),
      tics(dropouts), tics(decays), smallest, largest > smallest ? largest : smallest * 1.01, middle);
  commands += fmt::format(
      "set title 'Confidence against accuracy, test questions'\nset grid\nset key top left width -2\n"
      "set xlabel 'top probability (points of 10 questions or more)'\nset ylabel 'share that is right'\nset xtics "
      "auto\nset ytics auto\n"
      "set xrange [0:1]\nset yrange [0:1]\nset xtics 0.2\nset ytics 0.2\n"
      "plot x with lines linecolor '#999999' dashtype 2 title 'perfectly calibrated'{}\nunset multiplot\n",
      curves);
  plot.draw(420, commands);
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  examples::Plot plot("dropout_grid", settings.plot);
  examples::Csv csv(settings.csv, csv_columns());
  const examples::Questions questions = examples::read_questions(settings.data);
  examples::check_words(questions, settings.seeds, settings.data);
  const examples::Split parts = examples::split(questions, 0);

  fmt::print("{} questions, {} routes; {} into {} to train, {} to validate, {} to test\n", questions.all.size(),
             questions.routes.size(), examples::counted(settings.seeds, "split"), parts.train.size(),
             parts.validation.size(), parts.test.size());
  fmt::print("{} steps of AdamW at 0.001 on batches of {}, hidden layers 64 and 64, norm {}, {}\n\n", settings.steps,
             (std::min)(settings.batch, static_cast<ek::Index>(parts.train.size())), settings.norm, settings.precision);
  std::fflush(stdout);

  const auto runs = examples::run_tasks(
      static_cast<std::size_t>(settings.seeds) * cells, settings.threads, settings.quiet, [&](std::size_t task) {
        return settings.precision == "float" ? run_one<float>(settings, questions, Place(task))
                                             : run_one<double>(settings, questions, Place(task));
      });
  const Grid grid(runs, parts.to_train(parts.validation), parts.to_train(parts.test));
  if (examples::interrupted())
    fmt::print("Interrupted. {}: {} of {} splits are finished.\n\n",
               grid.splits() > 0 ? "This table is partial" : "There is nothing to show", grid.splits(), settings.seeds);
  if (grid.splits() > 0) {
    print_table(grid);
    print_choice(grid);
    print_claims(settings, grid);
    std::fflush(stdout);
  }
  write_csv(csv, runs);
  if (plot && grid.splits() > 0) draw(plot, settings, grid);
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
      "The best of 25 cells looks better on validation than it is; the lines 'on test' tell what the choice is worth." +
      std::string(examples::article_note));
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
