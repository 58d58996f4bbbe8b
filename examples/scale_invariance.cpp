// What do weights under a norm do when only their direction matters?
//
//   build/release/examples/scale_invariance
//   build/release/examples/scale_invariance --norm batch --plot norms.png --csv norms.csv
//
// Trains a network on the questions whose first layer W stands under a norm, by plain SGD with dropout and smoothed
// labels. Scales W by five factors and prints what happens to the loss and to the gradient on W; then follows norm(W) over
// training without and with weight decay, from three sizes of the start. Twice: for a layer without bias and with epsilon
// 1e-12, where scaling W changes nothing, and for a usual layer with a bias and epsilon 1e-5, where it does. Some seconds.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/batches.hpp"
#include "evenkeel/training/loss.hpp"
#include "evenkeel/training/sgd.hpp"
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

using Matrix = ek::Matrix<double>;
using Problem = examples::Problem<double>;

struct Settings : examples::CommonOptions {
  std::string norm = "layer";
  double rate = 0.1;
  double decay = 0.01;
  double dropout = 0.5;
  ek::Index batch = 16;
};

constexpr ek::Index hidden = 64;
constexpr double rounding = 1e-13;  // of a norm(W), as a share of it
constexpr double label_smoothing = 0.1;

/// The layer under the norm.
struct Kind {
  const char* name;
  bool bias;
  double epsilon;
};
constexpr Kind exact = {"exact", false, 1e-12};
constexpr Kind usual = {"usual", true, 1e-5};

/// One training run.
struct Case {
  Kind kind;
  double start;  // W starts at He's weights times this
  bool decays;
};
constexpr std::array cases = {Case{exact, 0.25, false}, Case{exact, 1, false}, Case{exact, 4, false},
                              Case{exact, 0.25, true},  Case{exact, 1, true},  Case{exact, 4, true},
                              Case{usual, 1, false},    Case{usual, 1, true}};
constexpr std::size_t exact_case = 1, usual_case = 6;  // no decay, from He's start

constexpr std::array factors = {0.01, 0.1, 1.0, 10.0, 100.0};

/// The network at one step, or with W scaled by a factor.
struct Point {
  double at = 0;  // the step, or the factor
  double loss = 0;
  double norm = 0;      // of W
  double gradient = 0;  // norm of the gradient on W
  double cosine = 0;    // between the two
};

/// What holds W to the gradient where scaling W is not free: W . gradient = -(b . its gradient) - 2 epsilon dL/d epsilon.
struct Balance {
  double weight = 0, bias = 0, epsilon = 0;
};

struct Run {
  std::vector<Point> points;  // a hundred over training, the first and the last step among them
  std::vector<Point> scaled;  // the trained network with W scaled, on all training questions
  Balance balance;
  double largest_cosine = 0;  // over all steps, as an absolute value
  ek::Index falls = 0;        // steps in which norm(W) fell
  double squared_steps = 0;   // sum of (rate * gradient)^2
  double predicted = 0;       // where decay and growth balance, by the last quarter's gradients
  double last_quarter = 0;    // norm(W) there, the mean of its fourth power
  double first_norm = 0, last_norm = 0;
};

template <class Norm>
auto make_network(const Settings& settings, const Problem& problem, Kind kind, double epsilon, std::uint64_t seed) {
  const auto linear = [&](bool bias, const char* path) {
    return ek::LinearOptions{.bias = bias, .init = ek::Init::he, .seed = seed, .path = path};
  };
  return ek::Sequential(ek::Linear<double>(problem.words(), hidden, linear(kind.bias, "linear.0")),
                        Norm(hidden, {.epsilon = epsilon}), ek::ReLU<double>(),
                        ek::Dropout<double>(settings.dropout, {.seed = seed}),
                        ek::Linear<double>(hidden, problem.routes, linear(true, "linear.1")));
}

const ek::CrossEntropyOptions smoothed = {.label_smoothing = label_smoothing};

/// Loss and gradients on all training questions, without masks, by the batch's own statistics.
template <class Network>
double whole_loss(Network& network, const Problem& problem) {
  const ek::Mode mode(ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::keep);
  ek::SoftmaxCrossEntropy<double> cross_entropy(smoothed);
  const auto& loss = cross_entropy(network.forward(problem.train.features, mode), problem.train.labels);
  network.backward_parameters(problem.train.features, loss.gradient);
  return loss.value;
}

template <class Parameter>
Point point_of(double at, double loss, const Parameter& weight) {
  const double norm = weight.value.norm(), gradient = weight.gradient.norm();
  return {at, loss, norm, gradient, weight.value.cwiseProduct(weight.gradient).sum() / (norm * gradient)};
}

/// The trained network with W scaled by each factor.
template <class Network>
std::vector<Point> scale_weights(Network network, const Problem& problem) {
  std::vector<Point> points;
  const Matrix trained = network.parameters().front().value;
  for (const double factor : factors) {
    auto parameters = network.parameters();
    parameters.front().value = trained * factor;
    const double loss = whole_loss(network, problem);
    points.push_back(point_of(factor, loss, parameters.front()));
  }
  return points;
}

/// The three terms of the balance, that of epsilon by a difference of losses at epsilon -+ 1 %.
template <class Norm, class Network>
Balance balance_of(const Settings& settings, Network& network, const Problem& problem, Kind kind) {
  whole_loss(network, problem);
  auto parameters = network.parameters();
  Balance balance;
  balance.weight = parameters[0].value.cwiseProduct(parameters[0].gradient).sum();
  if (kind.bias) balance.bias = -parameters[1].value.cwiseProduct(parameters[1].gradient).sum();
  const auto loss_at = [&](double epsilon) {
    auto other = make_network<Norm>(settings, problem, kind, epsilon, 0);
    auto copies = other.parameters();
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i].value = parameters[i].value;
    return whole_loss(other, problem);
  };
  balance.epsilon = -2 * (loss_at(1.01 * kind.epsilon) - loss_at(0.99 * kind.epsilon)) / 0.02;
  return balance;
}

template <class Norm>
Run train(const Settings& settings, const Problem& problem, const Case& setting, std::uint64_t seed) {
  auto network = make_network<Norm>(settings, problem, setting.kind, setting.kind.epsilon, seed);
  auto parameters = network.parameters();
  auto& weight = parameters.front();
  weight.value *= setting.start;
  const double decay = setting.decays ? settings.decay : 0;
  ek::SGD<double> optimizer(network, {.learning_rate = settings.rate, .weight_decay = decay});
  ek::SoftmaxCrossEntropy<double> cross_entropy(smoothed);
  ek::Batches batches(problem.train.count(), (std::min)(settings.batch, problem.train.count()),
                      {.seed = seed, .drop_last = true});

  Run run;
  run.first_norm = weight.value.norm();
  double gradients = 0, fourth_powers = 0;  // sums over the last quarter
  ek::Index quarter = 0;                    // its steps
  const ek::Index stride = (std::max)(ek::Index{1}, settings.steps / 100);
  Matrix x;
  std::vector<int> labels;
  for (ek::Index step = 0; step < settings.steps; ++step) {
    if (step % 64 == 0) examples::give_up_if_interrupted();
    problem.train.take(batches.next(), x, labels);
    const auto& loss = cross_entropy(network.forward(x, ek::Mode::train), labels);
    network.backward_parameters(x, loss.gradient);

    const Point now = point_of(static_cast<double>(step), loss.value, weight);
    if (step % stride == 0 || step + 1 == settings.steps) run.points.push_back(now);
    run.largest_cosine = (std::max)(run.largest_cosine, std::abs(now.cosine));
    run.squared_steps += std::pow(settings.rate * now.gradient, 2);
    if (4 * (step + 1) > 3 * settings.steps) {
      gradients += std::pow(now.norm * now.gradient, 2);
      fourth_powers += std::pow(now.norm, 4);
      ++quarter;
    }
    optimizer.step();
    if (weight.value.norm() < now.norm * (1 - rounding)) ++run.falls;
  }
  run.last_norm = weight.value.norm();
  const auto count = static_cast<double>(quarter);
  run.predicted = std::pow(settings.rate * gradients / count / (2 * decay), 0.25);
  run.last_quarter = std::pow(fourth_powers / count, 0.25);
  run.balance = balance_of<Norm>(settings, network, problem, setting.kind);
  run.scaled = scale_weights(network, problem);
  return run;
}

Run train(const Settings& settings, const Problem& problem, const Case& setting, std::uint64_t seed) {
  if (settings.norm == "layer") return train<ek::LayerNorm<double>>(settings, problem, setting, seed);
  if (settings.norm == "rms") return train<ek::RMSNorm<double>>(settings, problem, setting, seed);
  return train<ek::BatchNorm<double>>(settings, problem, setting, seed);
}

/// The runs of each case, all seeds of it.
class Results {
 public:
  Results(const std::vector<std::optional<Run>>& runs, std::size_t seeds) {
    for (std::size_t i = 0; i < cases.size(); ++i)
      for (std::size_t seed = 0; seed < seeds; ++seed)
        if (runs[i * seeds + seed]) runs_[i].push_back(*runs[i * seeds + seed]);
  }

  const std::vector<Run>& operator[](std::size_t i) const { return runs_[i]; }
  bool complete(std::size_t seeds) const {
    return std::all_of(runs_.begin(), runs_.end(), [&](const auto& runs) { return runs.size() == seeds; });
  }

  /// The median over the seeds of what `figure` says of a run.
  template <class Figure>
  double median(std::size_t i, const Figure& figure) const {
    std::vector<double> values;
    for (const Run& run : runs_[i]) values.push_back(figure(run));
    return examples::median(values);
  }
  template <class Figure>
  double largest(std::size_t i, const Figure& figure) const {
    double result = 0;
    for (const Run& run : runs_[i])
      if (const double value = figure(run); !(value <= result)) result = value;
    return result;
  }
  template <class Figure>
  double sum(std::size_t i, const Figure& figure) const {
    double result = 0;
    for (const Run& run : runs_[i]) result += figure(run);
    return result;
  }

 private:
  std::array<std::vector<Run>, cases.size()> runs_;
};

void print_scaling(const Results& results) {
  fmt::print(
      "The trained network with W scaled by a factor, on all training questions without dropout\n{:<8} {:^36}   "
      "{:^36}\n{:<8}",
      "", "no bias, epsilon 1e-12", "bias, epsilon 1e-5", "factor");
  for (int kind = 0; kind < 2; ++kind) fmt::print(" {:>7} {:>12} {:>15}  ", "loss", "cosine", "norm x gradient");
  fmt::print("\n");
  for (std::size_t f = 0; f < factors.size(); ++f) {
    fmt::print("{:<8g}", factors[f]);
    for (const std::size_t i : {exact_case, usual_case})
      fmt::print(" {:7.4f} {:12.1e} {:15.6f}  ", results.median(i, [&](const Run& run) { return run.scaled[f].loss; }),
                 results.median(i, [&](const Run& run) { return run.scaled[f].cosine; }),
                 results.median(i, [&](const Run& run) { return run.scaled[f].norm * run.scaled[f].gradient; }));
    fmt::print("\n");
  }
  const Balance balance = results[usual_case].front().balance;
  fmt::print(
      "Cosine: between W and the gradient on it. With a bias and a larger epsilon, scaling W alone does change "
      "the\nnetwork; only scaling W, the bias b and the root of epsilon together does not. So the gradient along W "
      "need not be\nzero, but makes up for those along the other two. In the first split:\n  W . gradient(W) = {:.3e}, "
      "-b . gradient(b) - 2 epsilon dL/d epsilon = {:.3e} + {:.3e}, difference {:.0e}\n\n",
      balance.weight, balance.bias, balance.epsilon, balance.weight - balance.bias - balance.epsilon);
}

void print_training(const Settings& settings, const Results& results) {
  fmt::print("Training by SGD at {:g}, {} steps. Effective rate: rate / norm(W)^2.\n", settings.rate, settings.steps);
  fmt::print("{:<6} {:>6} {:>6}   {:^34}   {:>8} {:>7} {:>9}   {:^21}\n", "", "start", "decay", "norm(W) at", "balance",
             "steps", "largest", "effective rate");
  fmt::print("{:<6} {:>6} {:>6}   {:>8} {:>8} {:>8} {:>8}  {:>8} {:>7} {:>9}   {:>10} {:>10}\n", "layer", "", "",
             "step 0", "a third", "2 thirds", "last 1/4", "expected", "it fell", "|cosine|", "step 0", "last 1/4");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (results[i].empty()) continue;
    const auto norm_at = [&](double share) {
      return results.median(i, [&](const Run& run) {
        return run.points[static_cast<std::size_t>(share * static_cast<double>(run.points.size() - 1))].norm;
      });
    };
    const double first = results.median(i, [](const Run& run) { return run.first_norm; });
    const double last = results.median(i, [](const Run& run) { return run.last_quarter; });
    const double balance = results.median(i, [](const Run& run) { return run.predicted; });
    fmt::print("{:<6} {:>6g} {:>6g}   {:8.3f} {:8.3f} {:8.3f} {:8.3f}  {:>8} {:>7} {:9.0e}   {:10.2e} {:10.2e}\n",
               cases[i].kind.name, cases[i].start, cases[i].decays ? settings.decay : 0.0, first, norm_at(1.0 / 3),
               norm_at(2.0 / 3), last, cases[i].decays ? fmt::format("{:.3f}", balance) : "",
               results.median(i, [](const Run& run) { return static_cast<double>(run.falls); }),
               results.largest(i, [](const Run& run) { return run.largest_cosine; }), settings.rate / (first * first),
               settings.rate / (last * last));
  }
  fmt::print(
      "Exact: no bias, epsilon 1e-12. Usual: bias, epsilon 1e-5. Start: He's weights times this. Last 1/4: mean over "
      "the\nlast quarter of training. Balance: where the growth by that quarter's gradients and the decay "
      "cancel,\n(rate * (norm * gradient)^2 / (2 * decay))^(1/4). Steps it fell: in which norm(W) became smaller.\n");
}

void print_claims(const Settings& settings, const Results& results) {
  using examples::Verdict;
  examples::Claims claims(true);
  double cosine = 0, falls = 0, growth_error = 0;
  bool grew = true;  // by more than rounding, so that there is something to compare
  for (std::size_t i = 0; i < 3; ++i) {
    const auto take_larger = [](double& largest, double value) {
      if (!(value <= largest)) largest = value;
    };
    take_larger(cosine, results.largest(i, [](const Run& run) { return run.largest_cosine; }));
    take_larger(growth_error, results.largest(i, [](const Run& run) {
      const double growth = run.last_norm * run.last_norm - run.first_norm * run.first_norm;
      return std::abs(growth / run.squared_steps - 1);
    }));
    falls += results.sum(i, [](const Run& run) { return static_cast<double>(run.falls); });
    for (const Run& run : results[i]) grew = grew && run.squared_steps > 1e-9 * run.first_norm * run.first_norm;
  }
  claims.add(examples::verdict_of(cosine < 1e-4), "under a norm the gradient is perpendicular to W", "always",
             fmt::format("|cosine| at most {:.0e} in any step of the exact runs without decay", cosine));

  const auto product = [&](std::size_t i, std::size_t f) {
    return results.median(i, [&](const Run& run) { return run.scaled[f].norm * run.scaled[f].gradient; });
  };
  claims.add(examples::verdict_of(std::abs(product(exact_case, 0) / product(exact_case, 4) - 1) < 0.01),
             "and shrinks as 1 / norm(W)", "a factor of 100 for one of 100",
             fmt::format("norm x gradient {:.5f} to {:.5f} over a factor of 10,000", product(exact_case, 0),
                         product(exact_case, 4)));
  claims.add(examples::verdict_of(falls == 0), "SGD without decay can only make W longer", "always",
             fmt::format("it fell in {:g} of {} steps", falls, 3 * settings.steps * settings.seeds));
  claims.add(grew ? examples::verdict_of(growth_error < 1e-3) : Verdict::undecided,
             "norm(W)^2 grows by (rate x gradient)^2 a step", "exactly",
             fmt::format("over all of training off by {:.0e} of it", growth_error));

  const auto last = [&](std::size_t i) { return results.median(i, [](const Run& run) { return run.last_quarter; }); };
  const auto first = [&](std::size_t i) { return results.median(i, [](const Run& run) { return run.first_norm; }); };
  const auto [shortest, longest] = std::minmax({last(3), last(4), last(5)});
  const double relaxations = static_cast<double>(settings.steps) * settings.rate * settings.decay;
  const auto settled = [&](bool holds) { return relaxations < 4 ? Verdict::undecided : examples::verdict_of(holds); };
  claims.add(settled(longest < 1.1 * shortest), "with decay it settles, wherever it began, within 10 %", "a balance",
             fmt::format("{:.3f}, {:.3f}, {:.3f} in the last quarter, from {:.2f}, {:.2f}, {:.2f}", last(3), last(4),
                         last(5), first(3), first(4), first(5)));
  const double balance = results.median(4, [](const Run& run) { return run.predicted; });
  claims.add(settled(std::abs(last(4) / balance - 1) < 0.05), "where growth and decay cancel, within 5 %", "",
             fmt::format("{:.3f}, expected {:.3f}", last(4), balance));
  const double departed = results.median(usual_case, [](const Run& run) { return run.scaled[0].loss; }) /
                          results.median(usual_case, [](const Run& run) { return run.scaled[2].loss; });
  claims.add(examples::verdict_of(std::abs(departed - 1) > 0.01),
             "with a bias and epsilon 1e-5 the loss does depend on norm(W)", "",
             fmt::format("W times 0.01 multiplies it by {:.2f}", departed));
  claims.print();
}

void write_csv(examples::Csv& csv, const Settings& settings, const std::vector<std::optional<Run>>& runs) {
  const auto seeds = static_cast<std::size_t>(settings.seeds);
  for (std::size_t task = 0; task < runs.size(); ++task) {
    if (!runs[task]) continue;
    const Case& setting = cases[task / seeds];
    const auto rows = [&](const char* part, const std::vector<Point>& points) {
      for (const Point& point : points)
        csv.row(part, setting.kind.name, setting.start, setting.decays ? settings.decay : 0.0, task % seeds, point.at,
                point.loss, point.norm, point.gradient, point.cosine, runs[task]->falls, runs[task]->largest_cosine,
                runs[task]->squared_steps, runs[task]->predicted, runs[task]->last_quarter);
    };
    rows("training", runs[task]->points);
    rows("scaled", runs[task]->scaled);
  }
  csv.write();
}

/// norm(W) and the effective rate over training, in the first split.
void draw(examples::Plot& plot, const Settings& settings, const Results& results) {
  std::string commands =
      fmt::format("set rmargin 3\nset multiplot layout 1,2\nset xlabel 'step'\nset xtics {}\nset logscale y\n",
                  (std::max)(ek::Index{1}, settings.steps / 4));
  std::string norms, rates;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::vector<double>> points;
    for (const Point& point : results[i].front().points)
      points.push_back({point.at, point.norm, settings.rate / (point.norm * point.norm)});
    commands += examples::Plot::block(fmt::format("run{}", i), points);
    const bool is_exact = cases[i].kind.epsilon == exact.epsilon;
    const int linetype = is_exact ? (cases[i].decays ? 2 : 1) : (cases[i].decays ? 3 : 4);
    std::string title;
    if (cases[i].start == 1)
      title = fmt::format("{}{}", cases[i].decays ? fmt::format("decay {:g}", settings.decay) : std::string("no decay"),
                          is_exact ? "" : ", usual layer");
    const auto curve = [&](int column) {
      return fmt::format("{}$run{} using 1:{} with lines linetype {} dashtype {} title '{}'", i > 0 ? ", " : "", i,
                         column, linetype, is_exact ? 1 : 2, title);
    };
    norms += curve(2);
    rates += curve(3);
  }
  commands +=
      "set title 'norm(W), starts of 1/4, 1 and 4 times He, split 0'\nset ylabel 'norm(W)'\nset key top right\n"
      "set yrange [*:*]\nset offsets 0, 0, graph 0.3, 0\nplot " +
      norms + "\n";
  commands +=
      "set title 'Effective rate, split 0'\nset ylabel 'rate / norm(W)^2'\nunset key\n"
      "set format y '10^{%T}'\nset offsets 0, 0, 0, 0\nplot " +
      rates + "\nunset multiplot\n";
  plot.draw(420, commands);
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  if (settings.rate * settings.decay >= 1)
    throw std::invalid_argument(
        fmt::format("--rate times --decay: expected less than 1, which takes all of W away in a step, got {:g}",
                    settings.rate * settings.decay));
  examples::Plot plot("scale_invariance", settings.plot);
  examples::Csv csv(settings.csv, {"part", "layer", "start", "decay", "split", "step_or_factor", "loss", "weight_norm",
                                   "gradient_norm", "cosine", "run_steps_it_fell", "run_largest_cosine",
                                   "run_squared_steps", "run_expected_norm", "run_last_quarter_norm"});
  const examples::Questions questions = examples::read_questions(settings.data);
  examples::check_words(questions, settings.seeds, settings.data);
  fmt::print(
      "{} questions, {} routes; words -> linear W -> {} norm -> ReLU -> dropout {:g} -> linear, hidden size "
      "{}\nCross-entropy with labels smoothed by {:g}, batches of {}; medians of {}\n\n",
      questions.all.size(), questions.routes.size(), settings.norm, settings.dropout, hidden, label_smoothing,
      settings.batch, examples::counted(settings.seeds, "split"));
  std::fflush(stdout);

  const auto seeds = static_cast<std::size_t>(settings.seeds);
  const auto runs = examples::run_tasks(cases.size() * seeds, settings.threads, settings.quiet, [&](std::size_t task) {
    const std::uint64_t seed = task % seeds;
    return train(settings, Problem(questions, seed), cases[task / seeds], seed);
  });
  const Results results(runs, seeds);
  if (examples::interrupted())
    fmt::print("Interrupted. These tables are partial: medians of what is finished, no verdicts, no picture.\n\n");
  if (!results[exact_case].empty() && !results[usual_case].empty()) print_scaling(results);
  print_training(settings, results);
  if (results.complete(seeds)) print_claims(settings, results);
  std::fflush(stdout);
  write_csv(csv, settings, runs);
  if (plot && results.complete(seeds)) draw(plot, settings, results);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Trains a network whose first layer W stands under a norm, and shows what follows from the norm dividing the "
      "size of W out again: where the gradient points, how long W becomes, and what weight decay does to it.",
      "scale_invariance"};
  app.footer(
      "If scaling W changes nothing, the gradient cannot point along W, and a step at a right angle to W can only make "
      "it longer. A step of a given length turns a long W less than a short one: rate / norm(W)^2 is the rate that "
      "counts, and it falls as W grows. Weight decay shortens W and so does not simplify the function, but keeps that "
      "rate up; growth and decay settle into a balance. Smoothed labels and dropout keep the gradient from dying out "
      "before they do." +
      std::string(examples::article_note));
  settings.add_data(app);
  settings.add_seeds(app, 3, "Splits of the questions, each with its own start, order and masks");
  settings.add_steps(app, 6000);
  app.add_option("--norm", settings.norm, "The norm above W: layer, rms or batch")
      ->check(CLI::IsMember({"layer", "rms", "batch"}))
      ->option_text("NAME [layer]");
  app.add_option("--rate", settings.rate, "Learning rate")->check(CLI::Range(1e-6, 10.0))->option_text("X [0.1]");
  app.add_option("--decay", settings.decay, "Weight decay of the runs with decay")
      ->check(CLI::Range(1e-6, 1.0))
      ->option_text("X [0.01]");
  app.add_option("--dropout", settings.dropout, "Share of hidden activations dropped in training")
      ->check(CLI::Range(0.0, 0.999))
      ->option_text("X [0.5]");
  app.add_option("--batch", settings.batch, "Questions in a step")
      ->check(CLI::Range(2, 1000000))
      ->option_text("N [16]");
  settings.add_threads(app);
  settings.add_output(app, "norm(W) and the effective rate over training");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
