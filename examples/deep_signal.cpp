// How do a signal and its gradient travel through twenty layers, with and without norms?
//
//   build/release/examples/deep_signal
//   build/release/examples/deep_signal --plot depth.png --csv depth.csv
//
// Sends 512 random vectors through a deep stack at three scales of its starting weights and a random gradient back, and
// prints how large they come out, for no norm, LayerNorm, RMSNorm and BatchNorm before every ReLU. Then the same for
// residual stacks with the norm before (pre-norm) and behind (post-norm) each sub-layer: how the gradient spreads over
// depth. Medians of five starts; some seconds.

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
#include <variant>
#include <vector>

#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;

namespace {

using Scalar = double;
using Matrix = ek::Matrix<Scalar>;

struct Settings : examples::CommonOptions {
  ek::Index depth = 20;
  ek::Index width = 256;
  ek::Index count = 512;
};

enum class Norm { none, layer, rms, batch };
constexpr std::array norm_names = {"none", "layer", "rms", "batch"};

/// Where the norm stands; f is linear, then ReLU.
enum class Stack {
  plain,     ///< h' = ReLU(norm(linear(h)))
  pre_norm,  ///< h' = h + f(norm(h)), and a norm behind the last
  post_norm  ///< h' = norm(h + f(h))
};
constexpr std::array stack_names = {"plain", "pre-norm", "post-norm"};

/// What is measured of one stack, first layer to last; sizes are root mean squares.
struct Signal {
  std::vector<double> activation;  // of each layer's output
  std::vector<double> gradient;    // on each layer's input
  std::vector<double> on_weights;  // on each layer's W
};

double size_of(const Matrix& values) { return std::sqrt(values.squaredNorm() / static_cast<double>(values.size())); }

Matrix normal(ek::Index rows, ek::Index columns, ek::RandomStream random) {
  Matrix x(rows, columns);
  for (ek::Index i = 0; i < x.size(); ++i) x.data()[i] = random.normal();
  return x;
}

/// A norm, or none, as one layer.
class AnyNorm {
 public:
  AnyNorm(Norm norm, ek::Index features) {
    if (norm == Norm::layer) layer_ = ek::LayerNorm<Scalar>(features);
    if (norm == Norm::rms) layer_ = ek::RMSNorm<Scalar>(features);
    if (norm == Norm::batch) layer_ = ek::BatchNorm<Scalar>(features);
  }
  void forward(const Matrix& x, Matrix& y) {
    std::visit([&](auto& layer) { run_forward(layer, x, y); }, layer_);
  }
  /// dx may be dy.
  void backward(const Matrix& x, const Matrix& dy, Matrix& dx) {
    std::visit([&](auto& layer) { run_backward(layer, x, dy, dx); }, layer_);
  }

 private:
  static void run_forward(std::monostate, const Matrix& x, Matrix& y) { y = x; }
  template <class Layer>
  static void run_forward(Layer& layer, const Matrix& x, Matrix& y) {
    layer.forward(x, y, ek::Mode::train);
  }
  static void run_backward(std::monostate, const Matrix&, const Matrix& dy, Matrix& dx) { dx = dy; }
  template <class Layer>
  static void run_backward(Layer& layer, const Matrix& x, const Matrix& dy, Matrix& dx) {
    layer.backward(x, dy, dx);
  }

  std::variant<std::monostate, ek::LayerNorm<Scalar>, ek::RMSNorm<Scalar>, ek::BatchNorm<Scalar>> layer_;
};

/// One layer of a stack, with what its backward pass needs again.
class Block {
 public:
  Block(Stack stack, Norm norm, ek::Index width, ek::Index examples, double scale, std::uint64_t seed, ek::Index place)
      : stack_{stack},
        linear_{
            width,
            width,
            {.bias = false, .init = ek::Init::normal(scale), .seed = seed, .path = "linear." + std::to_string(place)}},
        norm_{norm, width},
        normalized_{examples, width},
        linear_output_{examples, width},
        sum_{examples, width} {}

  void forward(const Matrix& h, Matrix& next) {
    switch (stack_) {
      case Stack::plain:
        linear_.forward(h, linear_output_, ek::Mode::train);
        norm_.forward(linear_output_, normalized_);
        relu_.forward(normalized_, next, ek::Mode::train);
        break;
      case Stack::pre_norm:
        norm_.forward(h, normalized_);
        linear_.forward(normalized_, linear_output_, ek::Mode::train);
        relu_.forward(linear_output_, next, ek::Mode::train);
        next += h;
        break;
      case Stack::post_norm:
        linear_.forward(h, linear_output_, ek::Mode::train);
        relu_.forward(linear_output_, sum_, ek::Mode::train);
        sum_ += h;
        norm_.forward(sum_, next);
        break;
    }
  }

  /// Replaces the gradient on `next` by that on h.
  void backward(const Matrix& h, Matrix& gradient) {
    switch (stack_) {
      case Stack::plain:
        relu_.backward(normalized_, gradient, gradient);
        norm_.backward(linear_output_, gradient, gradient);
        linear_.backward(h, gradient, sum_);
        gradient.swap(sum_);
        break;
      case Stack::pre_norm:
        relu_.backward(linear_output_, gradient, sum_);
        linear_.backward(normalized_, sum_, linear_output_);
        norm_.backward(h, linear_output_, sum_);
        gradient += sum_;
        break;
      case Stack::post_norm:
        norm_.backward(sum_, gradient, gradient);
        relu_.backward(linear_output_, gradient, sum_);
        linear_.backward(h, sum_, normalized_);
        gradient += normalized_;
        break;
    }
  }

  double weight_gradient() { return size_of(linear_.parameters().front().gradient); }

 private:
  Stack stack_;
  ek::Linear<Scalar> linear_;
  AnyNorm norm_;
  ek::ReLU<Scalar> relu_;
  Matrix normalized_, linear_output_, sum_;  // (examples, width)
};

/// Input, weights and output gradient are normal: RandomStream(seed, stream_of("input")), the layers' own with the paths
/// "linear.0", "linear.1", ..., RandomStream(seed, stream_of("output gradient")). The scales of one seed share their draws.
Signal travel(const Settings& settings, Stack stack, Norm norm, double scale, std::uint64_t seed) {
  std::vector<Block> blocks;
  for (ek::Index l = 0; l < settings.depth; ++l)
    blocks.emplace_back(stack, norm, settings.width, settings.count, scale, seed, l);
  AnyNorm last(stack == Stack::pre_norm ? norm : Norm::none, settings.width);

  std::vector<Matrix> h(blocks.size() + 1, Matrix(settings.count, settings.width));
  h[0] = normal(settings.count, settings.width, {seed, ek::stream_of("input")});
  for (std::size_t l = 0; l < blocks.size(); ++l) blocks[l].forward(h[l], h[l + 1]);
  Matrix top(settings.count, settings.width);
  last.forward(h.back(), top);

  Signal signal;
  signal.gradient.resize(blocks.size());
  Matrix gradient = normal(settings.count, settings.width, {seed, ek::stream_of("output gradient")});
  last.backward(h.back(), gradient, gradient);
  for (std::size_t l = blocks.size(); l-- > 0;) {
    examples::give_up_if_interrupted();
    blocks[l].backward(h[l], gradient);
    signal.gradient[l] = size_of(gradient);
  }
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    signal.activation.push_back(size_of(h[l + 1]));
    signal.on_weights.push_back(blocks[l].weight_gradient());
  }
  return signal;
}

double he(ek::Index width) { return std::sqrt(2.0 / static_cast<double>(width)); }

/// One row of the tables.
struct Case {
  Stack stack;
  Norm norm;
  double scale;
};

/// The plain stacks, then the residual ones from He's start.
std::vector<Case> all_cases(ek::Index width) {
  std::vector<Case> cases;
  for (const Norm norm : {Norm::none, Norm::layer, Norm::rms, Norm::batch})
    for (const double scale : {0.01, he(width), 1.0}) cases.push_back({Stack::plain, norm, scale});
  cases.push_back({Stack::pre_norm, Norm::none, he(width)});  // without a norm the two are the same
  for (const Stack stack : {Stack::pre_norm, Stack::post_norm})
    for (const Norm norm : {Norm::layer, Norm::rms, Norm::batch}) cases.push_back({stack, norm, he(width)});
  return cases;
}

/// The medians over the starts, of the cases that are finished.
class Results {
 public:
  Results(std::vector<Case> cases, const std::vector<std::optional<Signal>>& signals, std::size_t seeds)
      : cases_{std::move(cases)}, medians_(cases_.size()) {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const auto first = signals.begin() + static_cast<std::ptrdiff_t>(i * seeds);
      const auto end = first + static_cast<std::ptrdiff_t>(seeds);
      if (!std::all_of(first, end, [](const auto& signal) { return signal.has_value(); })) continue;
      medians_[i] = {median(first, end, &Signal::activation), median(first, end, &Signal::gradient),
                     median(first, end, &Signal::on_weights)};
    }
  }

  const std::vector<Case>& cases() const { return cases_; }
  const std::optional<Signal>& operator[](std::size_t i) const { return medians_[i]; }
  bool complete() const {
    return std::all_of(medians_.begin(), medians_.end(), [](const auto& signal) { return signal.has_value(); });
  }

  /// Of a case that is finished; the scale is told by its place: 0.01, He, 1.
  const Signal& of(Stack stack, Norm norm, std::size_t scale = 0) const {
    for (std::size_t i = 0; i < cases_.size(); ++i)
      if (cases_[i].stack == stack && cases_[i].norm == norm) return medians_[i + scale].value();
    throw std::logic_error("no such stack");
  }

 private:
  template <class Iterator>
  static std::vector<double> median(Iterator first, Iterator end, std::vector<double> Signal::*member) {
    std::vector<double> medians;
    for (std::size_t layer = 0; layer < ((**first).*member).size(); ++layer) {
      std::vector<double> values;
      for (Iterator signal = first; signal != end; ++signal) values.push_back(((**signal).*member)[layer]);
      medians.push_back(examples::median(values));
    }
    return medians;
  }

  std::vector<Case> cases_;
  std::vector<std::optional<Signal>> medians_;  // one a case
};

/// Three or four figures, whatever the size.
std::string figure(double value) {
  if (value != 0 && (value < 1e-3 || value >= 1e4)) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : 1);
}

void print_plain(const Results& results, bool comparable) {
  // The article's figures for LayerNorm, at the three scales.
  constexpr std::array article = {std::array{0.71, 0.784, 111.0}, std::array{0.71, 0.785, 12.5},
                                  std::array{0.71, 0.785, 1.11}};
  fmt::print("Plain stacks: linear, norm, ReLU. Sizes are root mean squares; the gradient at the top has size 1.\n\n");
  fmt::print("{:<6} {:>6}   {:>10} {:>8}   {:>17} {:>8}   {:>13} {:>8}  {:>13}\n", "norm", "scale", "activation",
             "article", "gradient reaching", "article", "gradient on W", "article", "on W x scale");
  fmt::print("{:<6} {:>6}   {:>10} {:>8}   {:>17} {:>8}   {:>13} {:>8}\n", "", "of W", "at the top", "", "layer 1", "",
             "of layer 1", "");
  for (std::size_t i = 0; i < results.cases().size() && results.cases()[i].stack == Stack::plain; ++i) {
    const Case& row = results.cases()[i];
    if (!results[i]) continue;
    const Signal& signal = *results[i];
    const auto published = [&](std::size_t column) {
      return comparable && row.norm == Norm::layer ? fmt::format("{:g}", article[i % 3][column]) : std::string();
    };
    fmt::print("{:<6} {:>6.3f}   {:>10} {:>8}   {:>17} {:>8}   {:>13} {:>8}  {:>13}\n",
               norm_names[static_cast<std::size_t>(row.norm)], row.scale, figure(signal.activation.back()),
               published(0), figure(signal.gradient.front()), published(1), figure(signal.on_weights.front()),
               published(2), figure(signal.on_weights.front() * row.scale));
    if (i % 3 == 2) fmt::print("\n");
  }
}

/// Some layers, evenly spread, the first and the last among them.
std::vector<std::size_t> shown_layers(std::size_t depth) {
  std::vector<std::size_t> layers;
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t layer = i * (depth - 1) / 4;
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  return layers;
}

/// The largest over the smallest.
double spread(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end()) / *std::min_element(values.begin(), values.end());
}

void print_residual(const Results& results, std::size_t depth) {
  fmt::print(
      "Residual stacks from He's start: pre-norm h + ReLU(linear(norm(h))) with a norm behind the last, post-norm\n"
      "norm(h + ReLU(linear(h))). Spread: the largest gradient on a layer's W over the smallest.\n\n");
  fmt::print("{:<9} {:<6} {:>10}   {:>11}   gradient on W of layer\n{:<9} {:<6} {:>10}   {:>11}", "", "", "activation",
             "gradient at", "", "norm", "at the top", "layer 1");
  for (const std::size_t layer : shown_layers(depth)) fmt::print(" {:>9}", layer + 1);
  fmt::print(" {:>9}\n", "spread");
  for (std::size_t i = 0; i < results.cases().size(); ++i) {
    const Case& row = results.cases()[i];
    if (row.stack == Stack::plain || !results[i]) continue;
    fmt::print("{:<9} {:<6} {:>10}   {:>11}",
               row.norm == Norm::none ? "residual" : stack_names[static_cast<std::size_t>(row.stack)],
               norm_names[static_cast<std::size_t>(row.norm)], figure(results[i]->activation.back()),
               figure(results[i]->gradient.front()));
    for (const std::size_t layer : shown_layers(depth)) fmt::print(" {:>9}", figure(results[i]->on_weights[layer]));
    fmt::print(" {:>9}\n", figure(spread(results[i]->on_weights)));
  }
}

/// A measure of the plain stack at its three scales.
template <class Measure>
std::vector<double> at_scales(const Results& results, Norm norm, const Measure& measure) {
  std::vector<double> values;
  for (std::size_t scale = 0; scale < 3; ++scale) values.push_back(measure(results.of(Stack::plain, norm, scale)));
  return values;
}

/// From fewer starts a median is one draw's, off by more than the claims allow.
constexpr int enough_starts = 3;

void print_claims(const Results& results, const Settings& settings, bool comparable) {
  examples::Claims claims(comparable);
  const ek::Index width = settings.width;
  const auto verdict = [&](bool holds) {
    return settings.seeds < enough_starts ? examples::Verdict::undecided : examples::verdict_of(holds);
  };
  const auto list = [](const std::vector<double>& values) {
    return fmt::format("{}, {}, {}", figure(values[0]), figure(values[1]), figure(values[2]));
  };
  const auto top = [](const Signal& signal) { return signal.activation.back(); };
  const auto bottom = [](const Signal& signal) { return signal.gradient.front(); };

  const std::vector<double> activation = at_scales(results, Norm::layer, top);
  claims.add(verdict(spread(activation) < 1.01 && std::abs(activation[1] / std::sqrt(0.5) - 1) < 0.02),
             "with LayerNorm the top has the size of ReLU(standard normal), sqrt(1/2), at every scale, within 2 %",
             "0.71, 0.71, 0.71", list(activation));
  const std::vector<double> gradient = at_scales(results, Norm::layer, bottom);
  claims.add(verdict(spread(gradient) < 1.003), "and the same gradient reaches layer 1 at every scale, within 0.3 %",
             "0.784, 0.785, 0.785", list(gradient));
  std::vector<double> on_weights =
      at_scales(results, Norm::layer, [](const Signal& signal) { return signal.on_weights.front(); });
  const std::array scales = {0.01, he(width), 1.0};
  for (std::size_t i = 0; i < scales.size(); ++i) on_weights[i] *= scales[i];
  claims.add(verdict(spread(on_weights) < 1.02), "and the gradient on W times the scale of W is constant, within 2 %",
             "1.11, 1.10, 1.11", list(on_weights));
  const std::vector<double> bare = at_scales(results, Norm::none, top);
  const std::vector<double> bare_gradient = at_scales(results, Norm::none, bottom);
  claims.add(verdict(bare[0] < 1e-3 && bare_gradient[0] < 1e-3 && bare[2] > 1e3 && bare_gradient[2] > 1e3),
             "without a norm signal and gradient vanish at 0.01 and explode at 1", "yes",
             list(bare) + " and " + list(bare_gradient));

  const Signal &pre = results.of(Stack::pre_norm, Norm::layer), &post = results.of(Stack::post_norm, Norm::layer);
  claims.add(verdict(post.on_weights.back() > 1.5 * pre.on_weights.back()),
             "post-norm's gradients near the output are larger than pre-norm's", "yes, Xiong et al.",
             fmt::format("{} and {} on the last W", figure(post.on_weights.back()), figure(pre.on_weights.back())));
  claims.print();
}

void write_csv(examples::Csv& csv, const std::vector<Case>& cases, const std::vector<std::optional<Signal>>& signals,
               std::size_t seeds) {
  for (std::size_t task = 0; task < signals.size(); ++task) {
    if (!signals[task]) continue;
    const Case& row = cases[task / seeds];
    for (std::size_t layer = 0; layer < signals[task]->activation.size(); ++layer)
      csv.row(stack_names[static_cast<std::size_t>(row.stack)], norm_names[static_cast<std::size_t>(row.norm)],
              row.scale, task % seeds, layer + 1, signals[task]->activation[layer], signals[task]->gradient[layer],
              signals[task]->on_weights[layer]);
  }
  csv.write();
}

/// Left: the activation's size over depth, plain stacks. Right: the gradient on W over depth, from He's start.
void draw(examples::Plot& plot, const Results& results, ek::Index width) {
  std::string commands = "set rmargin 2\nset multiplot layout 1,2\n";
  int blocks = 0;
  const auto curve = [&](const std::vector<double>& values, const std::string& style, const std::string& title) {
    std::vector<std::vector<double>> points;
    for (std::size_t layer = 0; layer < values.size(); ++layer)
      points.push_back({static_cast<double>(layer + 1), values[layer]});
    commands += examples::Plot::block(fmt::format("curve{}", ++blocks), points);
    return fmt::format("$curve{} with linespoints {} title '{}'", blocks, style, title);
  };
  std::string left, right;
  for (std::size_t scale = 0; scale < 3; ++scale) {
    const std::string name = fmt::format("{:.2g}", std::array{0.01, he(width), 1.0}[scale]);
    left += curve(results.of(Stack::plain, Norm::none, scale).activation,
                  fmt::format("linetype 1 dashtype {}", scale + 1), "no norm, scale " + name) +
            ", ";
  }
  for (std::size_t scale = 0; scale < 3; ++scale)
    left += curve(results.of(Stack::plain, Norm::layer, scale).activation,
                  fmt::format("linetype 2 dashtype {}", scale + 1), scale == 0 ? "LayerNorm, all scales" : "") +
            ", ";
  right = curve(results.of(Stack::plain, Norm::none, 1).on_weights, "linetype 1", "plain, no norm") + ", " +
          curve(results.of(Stack::plain, Norm::layer, 1).on_weights, "linetype 2", "plain, LayerNorm") + ", " +
          curve(results.of(Stack::pre_norm, Norm::layer).on_weights, "linetype 3", "pre-norm, LayerNorm") + ", " +
          curve(results.of(Stack::post_norm, Norm::layer).on_weights, "linetype 4", "post-norm, LayerNorm");
  commands += "set xlabel 'layer'\nset logscale y\nset format y '10^{%T}'\nset key top left\n";
  commands += "set title 'Size of the activation'\nset offsets 0, 0, graph 0.3, 0\nplot " + left + "\n";
  commands += "set title 'Gradient on each W, He start'\nset offsets 0, 0, 0, graph 0.35\nset key bottom left\nplot " +
              right + "\nunset multiplot\n";
  plot.draw(420, commands);
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  constexpr ek::Index most = ek::Index{1} << 27;  // numbers in a stack, 1 GiB
  if (settings.depth * settings.width > most / (4 * settings.count + 2 * settings.width))
    throw std::invalid_argument(fmt::format(
        "--depth, --width, --examples: expected a stack of less than 1 GiB, got {} layers of width {} on {} vectors",
        settings.depth, settings.width, settings.count));
  examples::Plot plot("deep_signal", settings.plot);
  examples::Csv csv(settings.csv,
                    {"stack", "norm", "scale", "seed", "layer", "activation", "input_gradient", "weight_gradient"});
  fmt::print("{} layers of width {}, {} random vectors, medians of {}\n\n", settings.depth, settings.width,
             settings.count, examples::counted(settings.seeds, "start"));
  std::fflush(stdout);

  const std::vector<Case> cases = all_cases(settings.width);
  const auto seeds = static_cast<std::size_t>(settings.seeds);
  const auto signals =
      examples::run_tasks(cases.size() * seeds, settings.threads, settings.quiet, [&](std::size_t task) {
        const Case& row = cases[task / seeds];
        return travel(settings, row.stack, row.norm, row.scale, task % seeds);
      });
  const Results results(cases, signals, seeds);
  const bool comparable = settings.depth == 20 && settings.width == 256 && settings.count == 512;
  if (examples::interrupted())
    fmt::print(
        "Interrupted. These tables are partial: unfinished rows are left out, and so are verdicts and picture.\n\n");
  print_plain(results, comparable);
  print_residual(results, static_cast<std::size_t>(settings.depth));
  if (results.complete()) print_claims(results, settings, comparable);
  std::fflush(stdout);
  write_csv(csv, cases, signals, seeds);
  if (plot && results.complete()) draw(plot, results, settings.width);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Sends random vectors through a deep stack of layers and a random gradient back, at three scales of the starting "
      "weights, with and without norms, and in residual stacks with the norm before or behind each sub-layer.",
      "deep_signal"};
  app.footer(
      "Without a norm each layer multiplies the signal, and the gradient on its way back, by a factor that depends on "
      "the "
      "scale of W: only at sqrt(2 / width), He's start, is it one. A norm divides the scale out again, so signal and "
      "gradient keep their size, and the gradient on W itself becomes the larger the smaller W is: with small weights "
      "under a norm every step is a large one.\n"
      "In a residual stack the gradient also has a way around the layers. How large it is at each of them decides "
      "whether training needs a careful warm-up." +
      std::string(examples::article_note));
  settings.add_seeds(app, 5, "Starts that the medians are over");
  app.add_option("--depth", settings.depth, "Layers")->check(CLI::Range(2, 1000))->option_text("N [20]");
  app.add_option("--width", settings.width, "Features of every layer")
      ->check(CLI::Range(2, 10000))
      ->option_text("N [256]");
  app.add_option("--examples", settings.count, "Random vectors that are sent through")
      ->check(CLI::Range(2, 100000))
      ->option_text("N [512]");
  settings.add_threads(app);
  settings.add_output(app, "Activations and gradients over depth");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
