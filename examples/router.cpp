// Can a small network send a question to the right desk?
//
//   build/release/examples/router
//   build/release/examples/router --ask "where is my parcel" --ask "the app does not open"
//   build/release/examples/router --data my_questions.tsv --norm none --dropout 0.5 --decay 3
//
// Trains a multilayer perceptron with a norm and dropout on questions, each a set of words, and prints cross-entropy and
// accuracy on questions that it has not seen: for one split of the questions, and the means over twenty. With --ask, or
// with lines on standard input, the network of the one split answers. Some seconds for the 200 questions that come with
// the program. Nothing is saved.

#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/summary.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/fit.hpp"
#include "evenkeel/training/loss.hpp"
#include "examples/support/program.hpp"
#include "examples/support/questions.hpp"

namespace ek = evenkeel;
using examples::Questions;
using examples::Vocabulary;

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
  bool quiet = false;
};

/// A trained network and the words it knows.
struct Router {
  Vocabulary vocabulary;
  ek::Mlp<float> network;
};

struct Score {
  double cross_entropy = 0;
  double accuracy = 0;
};

struct Scores {
  Score validation, test;
};

ek::Mlp<float> make_network(const Settings& settings, ek::Index words, ek::Index routes, std::uint64_t seed) {
  const std::map<std::string, ek::Norm> norms = {
      {"none", ek::Norm::none}, {"batch", ek::Norm::batch}, {"layer", ek::Norm::layer}, {"rms", ek::Norm::rms}};
  std::vector<ek::Index> sizes = {words};
  sizes.insert(sizes.end(), settings.sizes.begin(), settings.sizes.end());
  sizes.push_back(routes);
  return ek::Mlp<float>(sizes, {.norm = norms.at(settings.norm), .dropout = settings.dropout, .seed = seed});
}

Router train(const Settings& settings, const Questions& questions, const examples::Split& split, std::uint64_t seed) {
  Router router{Vocabulary(questions, split.train), ek::Mlp<float>({1, 1})};
  router.network =
      make_network(settings, router.vocabulary.size(), static_cast<ek::Index>(questions.routes.size()), seed);
  ek::AdamW<float> optimizer(router.network, {.learning_rate = settings.rate, .weight_decay = settings.decay});
  ek::SoftmaxCrossEntropy<float> cross_entropy;
  ek::fit(router.network, cross_entropy, optimizer, router.vocabulary.features<float>(questions, split.train),
          examples::labels(questions, split.train),
          {.steps = settings.steps,
           .batch_size = settings.batch,
           .seed = seed,
           .drop_last = settings.norm == "batch"});  // a last batch of one has no statistics
  return router;
}

Score score(const Router& router, const Questions& questions, const std::vector<std::size_t>& places) {
  const ek::Matrix<float> logits = router.network.infer(router.vocabulary.features<float>(questions, places));
  const std::vector<int> labels = examples::labels(questions, places);
  ek::SoftmaxCrossEntropy<float> cross_entropy;
  int right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ek::Index guess = 0;
    logits.row(static_cast<ek::Index>(i)).maxCoeff(&guess);
    right += guess == labels[i];
  }
  return {cross_entropy(logits, labels).value, right / static_cast<double>(labels.size())};
}

/// The scores of every split, the same for any number of threads.
std::vector<Scores> score_splits(const Settings& settings, const Questions& questions) {
  std::vector<Scores> scores(static_cast<std::size_t>(settings.splits));
  const examples::Progress progress(settings.quiet);
  std::atomic<std::size_t> next{0};
  std::mutex printing;
  std::size_t done = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < scores.size(); i = next++) {
      const std::uint64_t seed = settings.seed + i;
      const examples::Split split = examples::split(questions, seed);
      const Router router = train(settings, questions, split, seed);
      scores[i] = {score(router, questions, split.validation), score(router, questions, split.test)};
      const std::lock_guard lock(printing);
      progress.show(fmt::format("{} of {} splits", ++done, scores.size()));
    }
  };
  std::vector<std::thread> team;
  for (unsigned t = 1; t < (std::min)(settings.threads, static_cast<unsigned>(scores.size())); ++t)
    team.emplace_back(work);
  work();
  for (std::thread& thread : team) thread.join();
  return scores;
}

void print_scores(const char* title, const Scores& scores) {
  fmt::print("{:<24} {:>13.3f} {:>8.3f} {:>13.3f} {:>8.3f}\n", title, scores.validation.cross_entropy,
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
  ek::Matrix<float> x(1, router.vocabulary.size());
  router.vocabulary.fill(text, x.row(0));
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
  fmt::print("{}\n", router.vocabulary.knows_any_of(text) ? "" : "   (no word of it was seen in training)");
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

void run(const Settings& settings) {
  const Questions questions = examples::read_questions(settings.data);
  const examples::Split split = examples::split(questions, settings.seed);
  const Router router = train(settings, questions, split, settings.seed);

  fmt::print("{} questions, {} routes: {} to train, {} to validate, {} to test; {} words seen in training\n\n",
             questions.all.size(), questions.routes.size(), split.train.size(), split.validation.size(),
             split.test.size(), router.vocabulary.size());
  fmt::print("{}\n", ek::summary(router.network));
  fmt::print("{} steps of AdamW at rate {}, decay {} on weights only, dropout {}, norm {}, batches of {}\n\n",
             settings.steps, settings.rate, settings.decay, settings.dropout, settings.norm, settings.batch);

  fmt::print("{:<24} {:>13} {:>8} {:>13} {:>8}\n", "", "validation CE", "accuracy", "test CE", "accuracy");
  print_scores(fmt::format("split {}", settings.seed).c_str(),
               {score(router, questions, split.validation), score(router, questions, split.test)});
  std::fflush(stdout);

  std::vector<std::string> asked = settings.ask;
  const bool from_input =
      std::find(asked.begin(), asked.end(), "-") != asked.end() || (asked.empty() && input_is_waiting());
  asked.erase(std::remove(asked.begin(), asked.end(), "-"), asked.end());
  if (asked.empty() && !from_input && settings.splits > 0)
    print_scores(fmt::format("mean over {} splits", settings.splits).c_str(), mean(score_splits(settings, questions)));
  print_scores("majority guess",
               {majority(questions, split, split.validation), majority(questions, split, split.test)});

  if (from_input)
    for (std::string& line : lines_of_input()) asked.push_back(std::move(line));
  if (!asked.empty()) fmt::print("\n");
  for (const std::string& text : asked) answer(router, questions, text);
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
  app.add_option("--seed", settings.seed, "Of the split, the start, the order and the masks")->capture_default_str();
  app.add_option("--dropout", settings.dropout, "Share of hidden activations dropped in training, in [0, 1)")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  app.add_option("--decay", settings.decay, "AdamW's weight decay, on weights only")
      ->check(CLI::Range(0.0, 1e3))
      ->capture_default_str();
  app.add_option("--norm", settings.norm, "Norm behind each hidden layer: none, batch, layer or rms")
      ->check(CLI::IsMember({"none", "batch", "layer", "rms"}))
      ->option_text("NAME [batch]");
  app.add_option("--steps", settings.steps, "Training steps")->check(CLI::Range(1, 100000000))->capture_default_str();
  app.add_option("--sizes", settings.sizes, "Sizes of the hidden layers, e.g. --sizes 128 64")
      ->check(CLI::Range(1, 100000))
      ->option_text("N ... [64 64]");
  app.add_option("--batch", settings.batch, "Questions in a step")
      ->check(CLI::Range(2, 1000000))
      ->capture_default_str();
  app.add_option("--rate", settings.rate, "Learning rate")->check(CLI::Range(0.0, 10.0))->capture_default_str();
  app.add_option("--splits", settings.splits, "Splits that the means are over; 0 for none")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--threads", settings.threads, "Splits trained at the same time; the numbers stay the same")
      ->check(CLI::Range(1u, 1024u))
      ->option_text("N");
  app.add_option("--ask", settings.ask,
                 "A question to answer, instead of the means over splits; may be repeated; - reads "
                 "questions from standard input, a line each")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--quiet", settings.quiet, "No progress line");
  return examples::run_program(app, argc, argv, [&] { run(settings); });
}
