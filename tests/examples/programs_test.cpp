// Runs the example programs as a user does, and looks at what they print and at their exit code.

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "catch.hpp"

namespace {

struct Run {
  int exit_code;
  std::string output;  // standard output and standard error
};

Run run(const std::string& command, const std::string& input = "</dev/null") {
  const std::string line = std::string(EVENKEEL_EXAMPLE_PROGRAMS_DIR) + "/" + command + " 2>&1 " + input;
  FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Run result{0, {}};
  std::array<char, 4096> chunk;
  for (std::size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) result.output.append(chunk.data(), n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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
  while (std::getline(lines, line)) {
    INFO(line);
    CHECK(line.ends_with("pass"));
    const std::size_t exponent = line.find("e-");  // the error is the only figure in exponent form
    if (exponent != std::string::npos) CHECK(std::stoi(line.substr(exponent + 2)) >= 8);
    ++rows;
  }
  CHECK(rows >= 25);
}

TEST_CASE("train_eval shows the kernel's zero and the layer's error", "[programs]") {
  const Run demonstration = run("train_eval");
  CHECK(demonstration.exit_code == 0);
  CHECK(contains(demonstration.output, "of the BatchNorm kernel: 0.0"));
  CHECK(contains(demonstration.output, "BatchNorm::forward: expected more than one value per channel"));
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
  for (const char* program : {"router", "norms", "train_eval", "grad_check"}) {
    INFO(program);
    const Run help = run(std::string(program) + " --help");
    CHECK(help.exit_code == 0);
    CHECK(contains(help.output, "--seed"));
  }
}
