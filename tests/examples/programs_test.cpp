// Runs the example programs as a user does, and looks at what they print and at their exit code.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "examples/run.hpp"

using programs::contains;
using programs::Run;
using programs::run;

namespace {

/// The last number of the line that begins so.
double last_number(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) return std::stod(line.substr(line.find_last_of(' ') + 1));
  return -1;
}

}  // namespace

TEST_CASE("norms prints the worked vectors and passing checks", "[programs]") {
  const Run norms = run("norms");
  CHECK(norms.exit_code == 0);
  // Worked by hand: (-3, -1, 1, 3) / sqrt(5), and (2, 4, 6, 8) / sqrt(30).
  CHECK(contains(
      norms.output,
      "(   2   4   6   8 )   LayerNorm ( -1.342 -0.447  0.447  1.342 )   RMSNorm ( 0.365 0.730 1.095 1.461 )"));
  CHECK(contains(
      norms.output,
      "( 102 104 106 108 )   LayerNorm ( -1.342 -0.447  0.447  1.342 )   RMSNorm ( 0.971 0.990 1.009 1.028 )"));
  CHECK_FALSE(contains(norms.output, "FAIL"));
}

TEST_CASE("grad_check passes on every row", "[programs]") {
  const Run check = run("grad_check");
  CHECK(check.exit_code == 0);
  std::istringstream lines(check.output);
  int rows = 0;
  std::string line;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line) && !line.empty()) {
    INFO(line);
    CHECK(line.ends_with("pass"));
    const std::size_t exponent = line.find("e-");  // the error is the only figure in exponent form
    if (exponent != std::string::npos) CHECK(std::stoi(line.substr(exponent + 2)) >= 8);
    ++rows;
  }
  CHECK(rows >= 25);
}

TEST_CASE("A small Transformer soon knows more than how frequent characters are", "[programs]") {
  const programs::Folder folder;
  const std::string table = folder / "blocks.csv";
  const Run blocks = run("transformer_block --steps 60 --seeds 1 --blocks 1 --csv " + table);
  CHECK(blocks.exit_code == 0);
  const std::string words = "the held-out text has ";
  const std::size_t place = blocks.output.find(words);
  REQUIRE(place != std::string::npos);
  const double entropy = std::stod(blocks.output.substr(place + words.size()));
  std::istringstream lines(programs::content_of(table));
  std::string line;
  std::getline(lines, line);
  CHECK(line == "norm,warmup,rate,seed,first_gradient,training_loss,held_out_loss");
  int rows = 0;
  for (; std::getline(lines, line); ++rows) {
    INFO(line);
    CHECK(std::stod(line.substr(line.find_last_of(',') + 1)) < entropy - 0.05);
  }
  CHECK(rows == 8);
}

TEST_CASE("train_eval shows the kernel's zero and the layer's error", "[programs]") {
  const Run demonstration = run("train_eval");
  CHECK(demonstration.exit_code == 0);
  CHECK(contains(demonstration.output, "of the BatchNorm kernel: 0.0"));
  CHECK(contains(demonstration.output, "BatchNorm::forward (layer 1): expected more than one value per channel"));
}

TEST_CASE("router learns more than the majority guess", "[programs]") {
  const Run router = run("router --steps 300 --splits 2");
  CHECK(router.exit_code == 0);
  CHECK(last_number(router.output, "mean over 2 splits") > 0.5);
  CHECK(last_number(router.output, "majority guess") == 0.25);
}

TEST_CASE("router prints the same for any number of threads", "[programs]") {
  CHECK(run("router --steps 50 --splits 3 --threads 1").output ==
        run("router --steps 50 --splits 3 --threads 3").output);
}

TEST_CASE("router trains with every norm and size", "[programs]") {
  for (const char* options : {"--norm none --dropout 0", "--norm layer --sizes 8",
                              "--norm rms --sizes 16 16 16 --decay 0", "--norm batch --batch 17 --seed 9"}) {
    INFO(options);
    CHECK(run(std::string("router --steps 20 --splits 0 ") + options).exit_code == 0);
  }
}

TEST_CASE("router answers questions from the command line and from standard input", "[programs]") {
  const Run asked = run("router --steps 300 --ask 'where is my parcel' --ask 'zzz'");
  CHECK(asked.exit_code == 0);
  CHECK(contains(asked.output, "where is my parcel\n    shipping 0."));
  CHECK(contains(asked.output, "(no word of it was seen in training)"));
  CHECK_FALSE(contains(asked.output, "mean over"));

  const Run piped = run("router --steps 20 --ask -", "<<'END'\nfirst question\n\nsecond question\nEND\n");
  CHECK(piped.exit_code == 0);
  CHECK(contains(piped.output, "first question\n"));
  CHECK(contains(piped.output, "second question\n"));
}

TEST_CASE("router saves its network and loads it instead of training", "[programs]") {
  const programs::Folder folder;
  const std::string file = folder / "router.safetensors";
  const std::string options = " --norm layer --ask 'where is my parcel'";
  const Run saved = run("router --steps 100 --save " + file + options);
  CHECK(saved.exit_code == 0);
  const Run loaded = run("router --steps 1 --load " + file + options);
  CHECK(loaded.exit_code == 0);
  CHECK(contains(loaded.output, "weights from " + file));
  const auto results = [](const Run& result) { return result.output.substr(result.output.find("split 0")); };
  CHECK(results(loaded) == results(saved));
  CHECK_FALSE(contains(run("router --norm layer --load " + file).output, "mean over"));
  CHECK(folder.files() == 1);

  const auto refused = [&](const std::string& more) {
    const Run result = run("router --load " + file + more);
    CHECK(result.exit_code == 2);
    return result.output;
  };
  CHECK(contains(refused(" --norm layer --sizes 64 32"), "tensor \"4.weight\": expected shape (32, 64), got (64, 64)"));
  CHECK(contains(refused(" --norm none"), "missing:"));
  CHECK(contains(refused(" --norm layer --seed 1"), "tensor \"0.weight\": expected shape (64, "));
  CHECK(contains(refused(" --norm layer --save " + file), "--load"));

  // As many words and routes, but others.
  const auto questions = [&](const std::string& name, const std::string& word) {
    std::ofstream data(folder / name);
    for (int i = 0; i < 5; ++i) data << "a\t" << word << " of one kind\nb\tand the other\n";
    return " --steps 10 --norm none --batch 2 --data " + folder / name;
  };
  CHECK(run("router --save " + file + questions("first.tsv", "question")).exit_code == 0);
  CHECK(contains(refused(questions("second.tsv", "answer")),
                 "expected a network for the words of this --data and --seed, got one for others"));
  CHECK(contains(run("router --save " + folder / "missing/file").output, "expected a file that can be written"));
}

TEST_CASE("router refuses bad files and options in one line, with exit code 2", "[programs]") {
  const auto folder = std::filesystem::temp_directory_path();
  const auto file = folder / "evenkeel_programs_test.tsv";
  std::ofstream(file) << "a\tone\nno tab\n";
  for (const std::string& options : {std::string("--data missing.tsv"), "--data " + file.string(),
                                     "--data " + folder.string(), std::string("--steps 0"), std::string("--norm group"),
                                     std::string("--dropout 2"), std::string("--nonsense"), std::string("--sizes 0")}) {
    INFO(options);
    const Run refused = run("router " + options);
    CHECK(refused.exit_code == 2);
    CHECK(refused.output.starts_with("router: "));
    CHECK(std::count(refused.output.begin(), refused.output.end(), '\n') == 1);
  }
  std::filesystem::remove(file);
}

TEST_CASE("every program explains itself", "[programs]") {
  for (const char* program :
       {"router", "norms", "train_eval", "grad_check", "dropout_grid", "batchnorm_flaws", "deep_signal", "norm_lr_grid",
        "norm_cost", "scale_invariance", "masks", "transformer_block"}) {
    INFO(program);
    const Run help = run(std::string(program) + " --help");
    CHECK(help.exit_code == 0);
    CHECK(contains(help.output, std::string("Usage: ") + program));
    const Run negative = run(std::string(program) + (contains(help.output, "--seed N") ? " --seed -1" : " --seeds -1"));
    CHECK(negative.exit_code == 2);
  }
}

namespace {

/// The experiments at sizes that take a moment.
struct Experiment {
  std::string name, options;
};
const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> all = {{"dropout_grid", "--steps 3 --seeds 1"},
                                              {"norm_lr_grid", "--steps 2 --seeds 1 --layers 1"},
                                              {"deep_signal", "--depth 3 --width 16 --examples 32 --seeds 2"},
                                              {"scale_invariance", "--steps 20 --seeds 1"},
                                              {"masks", "--steps 5 --seeds 2 --masks 100"},
                                              {"transformer_block", "--steps 4 --seeds 1 --blocks 1"},
                                              {"batchnorm_flaws", "--draws 10"},
                                              {"norm_cost", "--rows 64 --features 16 --rounds 3"}};
  return all;
}

}  // namespace

TEST_CASE("every experiment says what the article found and what the run shows", "[programs]") {
  for (const auto& [name, options] : experiments()) {
    const Run result = run(name + " " + options);
    INFO(result.output);
    CHECK(result.exit_code == 0);
    const std::size_t claims = result.output.find("\nWhat the article found / what this run shows\n  ");
    REQUIRE(claims != std::string::npos);
    std::istringstream lines(result.output.substr(claims));
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);  // the heading
    int count = 0;
    while (std::getline(lines, line) && !line.starts_with("Holds, does not hold: ")) {
      ++count;
      CHECK((line.starts_with("  holds  ") || line.starts_with("  within error  ") ||
             line.starts_with("  does not hold  ") || line.starts_with("  undecided  ")));
    }
    CHECK(count >= 4);
  }
}

TEST_CASE("experiments print and write the same bits for any number of threads", "[programs]") {
  const programs::Folder folder;
  for (const auto& [name, options] : experiments()) {
    if (name == "batchnorm_flaws" || name == "norm_cost") continue;  // on one thread
    INFO(name);
    const std::string one = folder / "one.csv", three = folder / "three.csv";
    CHECK(run(name + " " + options + " --threads 1 --csv " + one).output ==
          run(name + " " + options + " --threads 3 --csv " + three).output);
    CHECK(programs::content_of(one) == programs::content_of(three));
    CHECK(programs::content_of(one).size() > 200);
  }
}

TEST_CASE("experiments refuse bad options in one line before they begin", "[programs]") {
  const programs::Folder folder;
  const std::string small = folder / "small.tsv";
  std::ofstream(small) << "a\tone question\nb\tanother\n";
  const std::string long_run = " --steps 1000000 ";  // what is refused late would never end
  for (const std::string& command :
       {"dropout_grid --seeds 0" + long_run,
        std::string("dropout_grid --steps -1"),
        "dropout_grid --norm group" + long_run,
        "dropout_grid --precision half" + long_run,
        "dropout_grid --threads 0" + long_run,
        "dropout_grid --batch 1" + long_run,
        "dropout_grid --data missing.tsv" + long_run,
        "dropout_grid --data " + small + long_run,
        "dropout_grid --csv /nowhere/a.csv" + long_run,
        "dropout_grid --csv /" + long_run,
        "dropout_grid --csv " + (folder / "a.svg") + " --plot " + (folder / "a.svg") + long_run,
        "dropout_grid --data " + small + " --csv " + small + long_run,
        "dropout_grid --plot /nowhere/a.png" + long_run,
        "dropout_grid --plot " + (folder / "a.pdf") + long_run,
        "norm_lr_grid --layers 0" + long_run,
        "norm_lr_grid --data " + small + long_run,
        "norm_lr_grid --csv /nowhere/a.csv" + long_run,
        std::string("deep_signal --depth 1"),
        std::string("deep_signal --width 0"),
        std::string("deep_signal --plot a.txt"),
        "scale_invariance --norm none" + long_run,
        "scale_invariance --rate nought" + long_run,
        "scale_invariance --data " + small + long_run,
        "masks --masks 50" + long_run,
        "masks --dropout 1" + long_run,
        "masks --data " + small + long_run,
        "transformer_block --blocks 0" + long_run,
        "transformer_block --data " + small + long_run,
        std::string("batchnorm_flaws --draws 0"),
        std::string("batchnorm_flaws --data missing.tsv"),
        std::string("norm_cost --rows 0"),
        std::string("norm_cost --csv /nowhere/a.csv")}) {
    const Run refused = run(command);
    INFO(command << "\n" << refused.output);
    CHECK(refused.exit_code == 2);
    CHECK(refused.output.starts_with(command.substr(0, command.find(' ')) + ": "));
    CHECK(std::count(refused.output.begin(), refused.output.end(), '\n') == 1);
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("A table that cannot be written to its end costs the file alone", "[programs]") {
  const Run full = run("dropout_grid --steps 2 --seeds 1 --csv /dev/full");
  CHECK(full.exit_code == 2);
  CHECK(contains(full.output, "What the article found"));
  CHECK(full.output.ends_with("dropout_grid: /dev/full: could not be written to its end\n"));
}

TEST_CASE("Questions without words to train on are refused by name", "[programs]") {
  const programs::Folder folder;
  const std::string data = folder / "signs.tsv";
  {
    std::ofstream file(data);
    for (int i = 0; i < 10; ++i) file << (i % 2 == 0 ? "a" : "b") << "\t???\n";
  }
  for (const char* program : {"dropout_grid", "norm_lr_grid", "scale_invariance", "masks"}) {
    const Run refused = run(std::string(program) + " --data " + data);
    CHECK(refused.exit_code == 2);
    CHECK(refused.output ==
          std::string(program) + ": " + data + ": expected words in the questions to train on, got none\n");
  }
}

TEST_CASE("Ctrl-C ends an experiment with what is finished", "[programs]") {
  const programs::Folder folder;
  const std::string csv = folder / "partial.csv";
  const Run stopped =
      run("dropout_grid --steps 100000000 --seeds 1 --csv " + csv, "</dev/null", "timeout --preserve-status -s INT 2");
  INFO(stopped.output);
  CHECK(stopped.exit_code == 130);
  CHECK(contains(stopped.output, "Interrupted. There is nothing to show: 0 of 1 splits are finished."));
  const std::string written = programs::content_of(csv);
  CHECK(std::count(written.begin(), written.end(), '\n') == 1);  // the heading

  const Run rounds =
      run("norm_cost --rows 64 --features 16 --rounds 100000", "</dev/null", "timeout --preserve-status -s INT 2");
  CHECK(rounds.exit_code == 130);
  CHECK(contains(rounds.output, "Interrupted. What follows is partial: "));
  const Run draws = run("batchnorm_flaws --draws 10000000", "</dev/null", "timeout --preserve-status -s INT 2");
  CHECK(draws.exit_code == 130);
  CHECK(contains(draws.output, "Interrupted. There is nothing to show"));
}

TEST_CASE("Without gnuplot an experiment says so and does all else", "[programs]") {
  const programs::Folder folder;
  for (const auto& [name, options] : experiments()) {
    const std::string picture = folder / "picture.png";
    const Run without = run(name + " " + options + " --plot " + picture, "</dev/null", "PATH=/nowhere");
    INFO(without.output);
    CHECK(without.exit_code == 0);
    CHECK(contains(without.output, name + ": " + picture + " will not be drawn: gnuplot is not installed"));
    CHECK(contains(without.output, "What the article found"));
    CHECK(folder.files() == 0);
  }
}

TEST_CASE("With gnuplot every experiment draws its picture in both formats", "[programs]") {
  if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
    WARN("gnuplot is not installed: no picture was drawn");
    return;
  }
  const programs::Folder folder;
  for (const auto& [name, options] : experiments()) {
    INFO(name);
    const std::string png = folder / (name + "'s picture.png"), svg = folder / (name + ".svg");
    const Run drawn_png = run(name + " " + options + " --plot \"" + png + "\"");
    CHECK(drawn_png.exit_code == 0);
    CHECK(programs::content_of(png).starts_with("\x89PNG"));
    const Run drawn_svg = run(name + " " + options + " --plot " + svg);
    CHECK(drawn_svg.exit_code == 0);
    CHECK(contains(programs::content_of(svg), "</svg>"));
    CHECK_FALSE(contains(drawn_png.output + drawn_svg.output, "gnuplot"));
  }
  CHECK(folder.files() == 2 * experiments().size());
}
