// The experiments against the same arithmetic done in NumPy: tests/figures/make_experiment_figures.py.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "examples/run.hpp"
#include "examples/support/training.hpp"

using programs::Folder;
using programs::Run;

namespace {

using Table = std::vector<std::vector<std::string>>;

Table read_csv(const std::string& path) {
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file);
  Table table;
  for (std::string line; std::getline(file, line);) {
    table.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) table.back().push_back(cell);
  }
  return table;
}

/// How far two cells are apart: relative to the larger number or, below `least`, to that; 1 for unequal words.
double difference(const std::string& a, const std::string& b, double least) {
  if (a == b) return 0;
  if (a.empty() || b.empty()) return 1;
  char *a_end = nullptr, *b_end = nullptr;
  const double x = std::strtod(a.c_str(), &a_end), y = std::strtod(b.c_str(), &b_end);
  if (*a_end != '\0' || *b_end != '\0') return 1;
  if (std::isnan(x) && std::isnan(y)) return 0;
  const double distance = std::abs(x - y) / (std::max)({std::abs(x), std::abs(y), least});
  return std::isnan(distance) ? 1 : distance;
}

/// The rows whose first `keys` cells are those of a row of `other`.
Table rows_in(const Table& table, const Table& other, std::size_t keys) {
  const auto key_of = [&](const auto& row) {
    return std::vector<std::string>(row.begin(),
                                    row.begin() + static_cast<std::ptrdiff_t>((std::min)(keys, row.size())));
  };
  std::set<std::vector<std::string>> wanted;
  for (const auto& row : other) wanted.insert(key_of(row));
  Table found;
  for (const auto& row : table)
    if (wanted.count(key_of(row)) > 0) found.push_back(row);
  return found;
}

/// Runs the program and compares its CSV with the committed one of its name: all of it or, with `keys`, the rows that the
/// committed one has. Rounding grows over the steps of a training run, so the tolerance is far above that of one step, and
/// far below any fault's effect.
void check_figures(const std::string& program, const std::string& options, double least = 0, std::size_t keys = 0) {
  const Folder folder;
  const std::string csv = folder / "figures.csv";
  const Run run = programs::run(program + " " + options + " --csv " + csv);
  INFO(run.output);
  REQUIRE(run.exit_code == 0);
  const Table expected = read_csv(EVENKEEL_FIGURES_DIR "/experiments/" + program + ".csv");
  const Table here = keys > 0 ? rows_in(read_csv(csv), expected, keys) : read_csv(csv);
  REQUIRE(here.size() == expected.size());
  CHECK(here.front() == expected.front());
  for (std::size_t i = 1; i < here.size(); ++i) {
    REQUIRE(here[i].size() == expected[i].size());
    for (std::size_t j = 0; j < here[i].size(); ++j)
      if (difference(here[i][j], expected[i][j], least) > 1e-9)
        FAIL_CHECK("row " << i << ", " << here.front()[j] << ": " << here[i][j] << ", in NumPy " << expected[i][j]);
  }
}

}  // namespace

TEST_CASE("dropout_grid measures what NumPy does of every cell", "[experiments]") {
  check_figures("dropout_grid", "--precision double --steps 30 --seeds 2");
}

TEST_CASE("norm_lr_grid ends at NumPy's losses in every cell", "[experiments]") {
  check_figures("norm_lr_grid", "--precision double --steps 20 --seeds 1 --layers 3");
}

TEST_CASE("deep_signal measures NumPy's signals in every stack and layer", "[experiments]") {
  check_figures("deep_signal", "--depth 4 --width 16 --examples 32 --seeds 2");
}

TEST_CASE("scale_invariance follows NumPy's weights through training", "[experiments]") {
  check_figures("scale_invariance", "--steps 30 --seeds 1", 1e-4);  // a cosine of nothing has no digits
}

TEST_CASE("batchnorm_flaws measures what NumPy does in all five tests", "[experiments]") {
  check_figures("batchnorm_flaws", "--draws 50", 1e-4);
}

TEST_CASE("masks averages over all masks and over the library's as NumPy does", "[experiments]") {
  check_figures("masks", "--steps 50 --seeds 2 --masks 100", 1e-4, 6);
}

TEST_CASE("norm_cost's account has the article's figures", "[experiments]") {
  const Folder folder;
  const std::string csv = folder / "figures.csv";
  REQUIRE(programs::run("norm_cost --rows 64 --features 16 --rounds 1 --csv " + csv).exit_code == 0);
  const auto seconds = [table = read_csv(csv)](const std::string& name, const std::string& figure) {
    for (const auto& row : table)
      if (row[0] == "account" && row[1] == name && row[3] == figure) return std::stod(row[4]);
    return -1.0;
  };
  // Published as 32 and 20 us, 0.64, 0.48 and 0.32 ms, 2.22 ms.
  CHECK(std::round(seconds("layer_norm", "math_seconds") * 1e6) == 32);
  CHECK(std::round(seconds("rms_norm", "math_seconds") * 1e6) == 20);
  CHECK(std::round(seconds("layer_norm", "unfused_seconds") * 1e5) == 64);
  CHECK(std::round(seconds("rms_norm", "unfused_seconds") * 1e5) == 48);
  CHECK(std::round(seconds("layer_norm", "fused_seconds") * 1e5) == 32);
  CHECK(std::round(seconds("rms_norm", "fused_seconds") * 1e5) == 32);
  CHECK(std::round(seconds("matmul", "seconds") * 1e5) == 222);
}

TEST_CASE("A run of 200 steps with dropout 0.5 and decay 3 follows NumPy's loss path", "[experiments]") {
  const Table expected = read_csv(EVENKEEL_FIGURES_DIR "/experiments/loss_path.csv");
  const examples::Problem<double> problem(examples::read_questions(EVENKEEL_EXAMPLE_DATA_DIR "/router.tsv"), 0);
  std::vector<double> losses;
  examples::train(problem, {.dropout = 0.5, .decay = 3.0, .steps = 200, .seed = 0}, [&](const evenkeel::FitStep& step) {
    losses.push_back(step.loss);
    return true;
  });
  REQUIRE(losses.size() == 200);
  REQUIRE(expected.size() == 201);
  double largest = 0;
  for (std::size_t step = 0; step < losses.size(); ++step)
    largest = (std::max)(largest, std::abs(losses[step] - std::stod(expected[step + 1][1])));
  CHECK(largest <= 1e-10);
}
