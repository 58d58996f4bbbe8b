// Can a small network send a question to the right desk?
//
//   build/release/examples/router
//   build/release/examples/router --ask "where is my parcel" --ask "the app does not open"
//   build/release/examples/router --data my_questions.tsv --norm none --dropout 0.5 --decay 3
//   build/release/examples/router --save router.safetensors; build/release/examples/router --load router.safetensors
//
// Trains a multilayer perceptron with a norm and dropout on questions, each a set of words, and prints cross-entropy and
// accuracy on questions that it has not seen: for one split of the questions, and the means over twenty. With --ask, or
// with lines on standard input, the network of the one split answers. Some seconds for the 200 questions that come with
// the program. With --save the network of the one split is kept in a file that PyTorch's users read too; --load takes it
// instead of training.

#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "evenkeel/core/error.hpp"
#include "evenkeel/io/safetensors.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/summary.hpp"
#include "evenkeel/training/loss.hpp"
#include "examples/support/output.hpp"
#include "examples/support/program.hpp"
#include "examples/support/questions.hpp"
#include "examples/support/training.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;
using examples::Questions;

namespace {

struct Settings {
  std::string data = EVENKEEL_EXAMPLE_DATA_DIR "/router.tsv";
  std::uint64_t seed = 0;
  double dropout = 0.5;
  double decay = 3.0;
  std::string norm = "batch";
  ek::Index steps = 2000;
  std::vector<ek::Index> sizes = {64, 64};
  ek::Index batch = 16;
  double rate = 1e-3;
  int splits = 20;
  unsigned threads = (std::max)(1u, std::thread::hardware_concurrency());
  std::vector<std::string> ask;
  std::string save, load;
  bool quiet = false;
};

/// A trained network, and what it was trained on.
struct Router {
  examples::Problem<float> problem;
  ek::Mlp<float> network;
};

struct Score {
  double cross_entropy = 0;
  double accuracy = 0;
};

struct Scores {
  Score validation, test;
};

Router train(const Settings& settings, const Questions& questions, std::uint64_t seed) {
  examples::Problem<float> problem(questions, seed);
  ek::Mlp<float> network = examples::train(problem, {.hidden = settings.sizes,
                                                     .norm = examples::norms_by_name().at(settings.norm),
                                                     .dropout = settings.dropout,
                                                     .decay = settings.decay,
                                                     .rate = settings.rate,
                                                     .batch = settings.batch,
                                                     .steps = settings.steps,
                                                     .seed = seed});
  return {std::move(problem), std::move(network)};
}

/// What a file of weights says of itself: which column is which word, and which output which route.
ek::TensorMetadata meaning(const Router& router, const Questions& questions) {
  const auto lines = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += name + '\n';
    return text;
  };
  return {{"words", lines(router.problem.vocabulary.words())}, {"routes", lines(questions.routes)}};
}

/// The network of these settings with weights from a file, which may also come from PyTorch and say nothing of itself.
Router load(const Settings& settings, const Questions& questions) {
  examples::Problem<float> problem(questions, settings.seed);
  ek::Mlp<float> network(problem.sizes(settings.sizes),
                         {.norm = examples::norms_by_name().at(settings.norm), .dropout = settings.dropout});
  Router router{std::move(problem), std::move(network)};
  const ek::SafetensorsFile file(settings.load);
  ek::load_safetensors(file, router.network);
  for (const auto& [key, expected] : meaning(router, questions)) {
    const auto found = file.metadata().find(key);
    if (found != file.metadata().end() && found->second != expected)
      throw ek::FormatError(settings.load + ": expected a network for the " + key +
                            " of this --data and --seed, got one for others");
  }
  return router;
}

Scores score(const Router& router) {
  const auto of = [&](const examples::Examples<float>& part) -> Score {
    const examples::Evaluation evaluation = examples::evaluate(router.network, part);
    return {evaluation.cross_entropy, evaluation.accuracy};
  };
  return {of(router.problem.validation), of(router.problem.test)};
}

/// The scores of every split.
std::vector<Scores> score_splits(const Settings& settings, const Questions& questions) {
  const auto results =
      examples::run_tasks(static_cast<std::size_t>(settings.splits), settings.threads, settings.quiet,
                          [&](std::size_t i) { return score(train(settings, questions, settings.seed + i)); });
  std::vector<Scores> scores;
  for (const auto& result : results)
    if (result) scores.push_back(*result);
  return scores;
}

void print_scores(const char* title, const Scores& scores) {
  fmt::print("{:<24} {:>13.3f} {:>8.3f}   {:>13.3f} {:>8.3f}\n", title, scores.validation.cross_entropy,
             scores.validation.accuracy, scores.test.cross_entropy, scores.test.accuracy);
}

Scores mean(const std::vector<Scores>& all) {
  Scores sum;
  for (const Scores& each : all) {
    sum.validation.cross_entropy += each.validation.cross_entropy;
    sum.validation.accuracy += each.validation.accuracy;
    sum.test.cross_entropy += each.test.cross_entropy;
    sum.test.accuracy += each.test.accuracy;
  }
  const auto n = static_cast<double>(all.size());
  return {{sum.validation.cross_entropy / n, sum.validation.accuracy / n},
          {sum.test.cross_entropy / n, sum.test.accuracy / n}};
}

/// What one gets by saying the training part's commonest route every time, with the shares of the routes as probabilities.
Score majority(const Questions& questions, const examples::Split& split, const std::vector<std::size_t>& places) {
  std::vector<double> shares(questions.routes.size());
  for (const int route : examples::labels(questions, split.train))
    shares[static_cast<std::size_t>(route)] += 1.0 / static_cast<double>(split.train.size());
  const auto commonest = std::max_element(shares.begin(), shares.end()) - shares.begin();
  Score result;
  for (const int route : examples::labels(questions, places)) {
    result.cross_entropy -= std::log(shares[static_cast<std::size_t>(route)]) / static_cast<double>(places.size());
    result.accuracy += (route == commonest ? 1.0 : 0.0) / static_cast<double>(places.size());
  }
  return result;
}

void answer(const Router& router, const Questions& questions, const std::string& text) {
  ek::Matrix<float> x(1, router.problem.words());
  router.problem.vocabulary.fill(text, x.row(0));
  const ek::Matrix<float> p = ek::softmax(router.network.infer(x));
  std::vector<std::size_t> order(questions.routes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return p(0, static_cast<ek::Index>(a)) > p(0, static_cast<ek::Index>(b)); });
  const std::size_t shown = (std::min)(order.size(), std::size_t{4});
  fmt::print("{}\n   ", text);
  for (std::size_t i = 0; i < shown; ++i)
    fmt::print(" {} {:.3f}{}", questions.routes[order[i]], p(0, static_cast<ek::Index>(order[i])),
               i + 1 < shown ? "," : "");
  fmt::print("{}\n", router.problem.vocabulary.knows_any_of(text) ? "" : "   (no word of it was seen in training)");
}

/// Whether standard input is a file, or a pipe that has something to say; a terminal and an idle pipe are left alone.
bool input_is_waiting() {
  struct stat status {};
  if (fstat(STDIN_FILENO, &status) != 0 || isatty(STDIN_FILENO) == 1) return false;
  if (S_ISREG(status.st_mode)) return true;
  if (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode)) return false;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 200) == 1 && (input.revents & POLLIN) != 0;
}

std::vector<std::string> lines_of_input() {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  return lines;
}

int run(const Settings& settings) {
  const Questions questions = examples::read_questions(settings.data);
  const examples::Split split = examples::split(questions, settings.seed);
  std::unique_ptr<examples::OutputFile> file;
  if (!settings.save.empty()) file = std::make_unique<examples::OutputFile>(settings.save);
  const bool trained = settings.load.empty();
  const Router router = trained ? train(settings, questions, settings.seed) : load(settings, questions);
  if (file != nullptr && !examples::interrupted()) {
    ek::save_safetensors(file->begin(), router.network, {.metadata = meaning(router, questions)});
    file->keep();
  }

  fmt::print("{} questions, {} routes: {} to train, {} to validate, {} to test; {} words seen in training\n\n",
             questions.all.size(), questions.routes.size(), split.train.size(), split.validation.size(),
             split.test.size(), router.problem.words());
  fmt::print("{}\n", ek::summary(router.network));
  if (trained)
    fmt::print("{} steps of AdamW at rate {}, decay {} on weights only, dropout {}, norm {}, batches of {}\n\n",
               settings.steps, settings.rate, settings.decay, settings.dropout, settings.norm, settings.batch);
  else
    fmt::print("weights from {}\n\n", settings.load);

  fmt::print("{:<24} {:>22}   {:>22}\n{:<24} {:>13} {:>8}   {:>13} {:>8}\n", "", "validation", "test", "",
             "cross-entropy", "accuracy", "cross-entropy", "accuracy");
  print_scores(fmt::format("split {}", settings.seed).c_str(), score(router));
  std::fflush(stdout);

  std::vector<std::string> asked = settings.ask;
  const bool from_input =
      std::find(asked.begin(), asked.end(), "-") != asked.end() || (asked.empty() && input_is_waiting());
  asked.erase(std::remove(asked.begin(), asked.end(), "-"), asked.end());
  if (asked.empty() && !from_input && settings.splits > 0 && trained) {
    const std::vector<Scores> scores = score_splits(settings, questions);
    const std::string of = examples::interrupted() ? fmt::format(" of {}", settings.splits) : "";
    if (!scores.empty()) print_scores(fmt::format("mean over {}{} splits", scores.size(), of).c_str(), mean(scores));
  }
  print_scores("majority guess",
               {majority(questions, split, split.validation), majority(questions, split, split.test)});

  if (from_input)
    for (std::string& line : lines_of_input()) asked.push_back(std::move(line));
  if (!asked.empty()) fmt::print("\n");
  for (const std::string& text : asked) answer(router, questions, text);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Trains a small network with a norm and dropout to send questions to the right desk, and prints cross-entropy "
      "(CE) "
      "and accuracy on questions it has not seen: three fifths of each route train, one fifth validates, one fifth "
      "tests.",
      "router"};
  app.add_option("--data", settings.data, "File of lines route<TAB>question in UTF-8; the 200 questions by default")
      ->option_text("FILE");
  examples::add_seed(app, settings.seed, "Of the split, the start, the order and the masks");
  app.add_option("--dropout", settings.dropout, "Share of hidden activations dropped in training, in [0, 1)")
      ->check(CLI::Range(0.0, 0.999))
      ->option_text("P [0.5]");
  app.add_option("--decay", settings.decay, "AdamW's weight decay, on weights only")
      ->check(CLI::Range(0.0, 1e3))
      ->option_text("X [3]");
  app.add_option("--norm", settings.norm, "Norm behind each hidden layer: none, batch, layer or rms")
      ->check(CLI::IsMember(examples::norm_names()))
      ->option_text("NAME [batch]");
  app.add_option("--steps", settings.steps, "Training steps")->check(CLI::Range(1, 100000000))->option_text("N [2000]");
  app.add_option("--sizes", settings.sizes, "Sizes of the hidden layers, e.g. --sizes 128 64")
      ->check(CLI::Range(1, 100000))
      ->option_text("N ... [64 64]");
  app.add_option("--batch", settings.batch, "Questions in a step")
      ->check(CLI::Range(2, 1000000))
      ->option_text("N [16]");
  app.add_option("--rate", settings.rate, "Learning rate")->check(CLI::Range(0.0, 10.0))->option_text("X [0.001]");
  app.add_option("--splits", settings.splits, "Splits that the means are over; 0 for none")
      ->check(CLI::Range(0, 100000))
      ->option_text("N [20]");
  app.add_option("--threads", settings.threads, "Splits trained at the same time; the numbers stay the same")
      ->check(CLI::Range(1u, 1024u))
      ->option_text("N");
  app.add_option("--ask", settings.ask,
                 "A question to answer, instead of the means over splits; may be repeated; - reads "
                 "questions from standard input, a line each")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  const auto save = app.add_option("--save", settings.save,
                                   "Write the network of the one split to this file in the safetensors format, under "
                                   "the names of the torch.nn.Sequential of its layers");
  save->option_text("FILE");
  app.add_option("--load", settings.load,
                 "Take weights from such a file instead of training; give the --data, --seed, --norm, --sizes and "
                 "--dropout that it was trained with")
      ->option_text("FILE")
      ->excludes(save);
  app.add_flag("--quiet", settings.quiet, "No progress line");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
