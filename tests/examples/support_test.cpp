// What the experiments share: statistics, verdicts, files, work.

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "examples/run.hpp"
#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/training.hpp"
#include "examples/support/work.hpp"

using namespace examples;
using programs::Folder;

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
}

TEST_CASE("Means leave NaN out and medians take it for infinitely large", "[support]") {
  CHECK(mean({1, not_a_number, 3}) == 2);
  CHECK(std::isnan(mean({not_a_number})));
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(median({not_a_number, 1, 2}) == 2);
  CHECK(median({not_a_number, not_a_number, 2}) == infinity);
  CHECK(median({infinity, infinity}) == infinity);
  CHECK(std::isnan(median({})));
}

TEST_CASE("Paired differences carry Nadeau and Bengio's error", "[support]") {
  // Differences 1, 2, 3: mean 2, deviation 1, so 1 * sqrt(1/3 + 40/120) = sqrt(2/3).
  const Estimate estimate = paired_difference({2, 4, 6}, {1, 2, 3}, 40.0 / 120.0);
  CHECK(estimate.value == Approx(2));
  CHECK(estimate.error == Approx(0.816496580927726));
  CHECK(estimate.count == 3);
  CHECK(to_string(estimate) == "+2.000 ± 0.816");
  const Estimate one = paired_difference({not_a_number, 1}, {1, 2}, 0.5);  // the first pair is left out
  CHECK(one.value == -1);
  CHECK(std::isnan(one.error));
  CHECK(to_string(one) == "-1.000");
}

TEST_CASE("A verdict asks for two standard errors", "[support]") {
  CHECK(positive({0.3, 0.1, 5}) == Verdict::holds);
  CHECK(positive({0.2, 0.1, 5}) == Verdict::within_error);
  CHECK(positive({-0.3, 0.1, 5}) == Verdict::does_not_hold);
  CHECK(positive({0.3, not_a_number, 1}) == Verdict::undecided);
  CHECK(negative({-0.3, 0.1, 5}) == Verdict::holds);
  CHECK(negative({0.3, 0.1, 5}) == Verdict::does_not_hold);
  CHECK(nothing({0.2, 0.1, 5}) == Verdict::holds);
  CHECK(nothing({0.3, 0.1, 5}) == Verdict::does_not_hold);
  CHECK(nothing({not_a_number, not_a_number, 0}) == Verdict::undecided);
  CHECK(positive({0.3, 0.0, 4}) == Verdict::undecided);  // an error of nothing by chance
  CHECK(all_of({Verdict::holds, Verdict::within_error}) == Verdict::within_error);
  CHECK(all_of({Verdict::does_not_hold, Verdict::within_error}) == Verdict::does_not_hold);
  CHECK(all_of({Verdict::does_not_hold, Verdict::undecided}) == Verdict::undecided);
}

TEST_CASE("An output file is there whole or not at all", "[support]") {
  const Folder folder;
  const std::string path = folder / "out.csv";
  std::ofstream(path) << "old";
  {
    Csv csv(path, {"a", "b"});
    csv.row(1, "x");
  }  // not written: an interrupt, an error
  CHECK(programs::content_of(path) == "old");
  {
    Csv csv(path, {"a", "b"});
    csv.row(0.1, "say \"x\", y");
    csv.row(not_a_number, -infinity);
    csv.write();
  }
  CHECK(programs::content_of(path) == "a,b\n0.1,\"say \"\"x\"\", y\"\nnan,-inf\n");
  CHECK(folder.files() == 1);
}

TEST_CASE("A row that does not fit its columns is refused", "[support]") {
  const Folder folder;
  Csv csv(folder / "out.csv", {"a", "b"});
  CHECK_THROWS_AS(csv.row(1), std::logic_error);
}

TEST_CASE("A place where no file can be written is refused at once", "[support]") {
  const Folder folder;
  CHECK_THROWS_WITH(OutputFile(folder.path().string()),
                    folder.path().string() + ": expected a file to write, got a directory");
  CHECK_THROWS_WITH(OutputFile(folder / "none/a.csv"),
                    folder / "none/a.csv" + ": expected a file that can be written, got a place where none can be");
  CHECK_THROWS_WITH(Plot("test", folder / "a.gif"),
                    "--plot: expected a name that ends in .svg or .png, got " + (folder / "a.gif"));
}

TEST_CASE("Links are followed, devices stay, and permissions too", "[support]") {
  const Folder folder;
  std::filesystem::create_directory(folder / "real");
  const std::string real = folder / "real/table.csv", link = folder / "link.csv";
  std::ofstream(real) << "old";
  std::filesystem::permissions(real, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink("real/table.csv", link);
  const auto write = [](const std::string& path) {
    Csv csv(path, {"a"});
    csv.row(1);
    csv.write();
  };
  write(link);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(programs::content_of(real) == "a\n1\n");
  CHECK(std::filesystem::status(real).permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  const std::string dangling = folder / "dangling.csv";
  std::filesystem::create_symlink("real/new.csv", dangling);
  write(dangling);
  CHECK(programs::content_of(folder / "real/new.csv") == "a\n1\n");
  write("/dev/null");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK(folder.files() == 3);
}

TEST_CASE("One file in two places is refused", "[support]") {
  const Folder folder;
  std::ofstream(folder / "a.csv") << "a";
  CHECK_THROWS_WITH(check_distinct({{"--data", folder / "a.csv"}, {"--csv", folder / "./a.csv"}}),
                    "--data and --csv: expected two files, got " + (folder / "./a.csv") + " for both");
  CHECK_NOTHROW(check_distinct({{"--data", folder / "a.csv"}, {"--csv", folder / "b.csv"}, {"--plot", ""}}));
  CHECK_NOTHROW(check_distinct({{"--csv", ""}, {"--plot", ""}}));
}

TEST_CASE("Numbers in tables keep their columns, and counts their plural", "[support]") {
  CHECK(figure(0.8757, 7, 3) == "  0.876");
  CHECK(figure(not_a_number, 7, 3) == "      -");
  CHECK(figure(infinity, 5, 2) == "  inf");
  CHECK(counted(1, "split") == "1 split");
  CHECK(counted(20, "split") == "20 splits");
}

TEST_CASE("Tasks give the same results for any number of threads", "[support]") {
  for (const unsigned threads : {1u, 2u, 7u}) {
    const auto results = run_tasks(20, threads, true, [](std::size_t i) { return i * i; });
    REQUIRE(results.size() == 20);
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(results[i].value() == i * i);
  }
}

TEST_CASE("What a task throws reaches the caller", "[support]") {
  const auto task = [](std::size_t i) -> int {
    if (i == 3) throw std::runtime_error("task 3");
    return 0;
  };
  CHECK_THROWS_WITH(run_tasks(10, 2, true, task), "task 3");
}

TEST_CASE("An interrupt keeps what is finished and drops what gave up", "[support]") {
  const auto task = [](std::size_t i) {
    if (i == 4) std::raise(SIGINT);
    if (i == 4) give_up_if_interrupted();
    return i;
  };
  const auto results = run_tasks(10, 1, true, task);
  CHECK(interrupted());
  examples::detail::interrupt_seen = false;
  for (std::size_t i = 0; i < results.size(); ++i) CHECK(results[i].has_value() == (i < 4));
}

TEST_CASE("Texts are broken before column 100", "[support]") {
  const std::string word(60, 'a');
  CHECK(wrapped(word + " " + word + "\n" + word) == word + "\n" + word + "\n" + word);
  CHECK(wrapped("short text\nnext") == "short text\nnext");
  CHECK(wrapped("") == "");
}

TEST_CASE("Durations are told in seconds, then in minutes", "[support]") {
  CHECK(Progress::duration(12.4) == "12 s");
  CHECK(Progress::duration(130) == "2 min");
}

TEST_CASE("An evaluation says how right and how sure the answers are", "[support]") {
  // Probabilities 3/4 and 1/4, then 1/5 and 4/5; the second answer is wrong.
  ek::Matrix<double> logits(2, 2);
  logits << std::log(3.0), 0, 0, std::log(4.0);
  const Evaluation evaluation = evaluate(logits, {0, 0});
  CHECK(evaluation.cross_entropy == Approx(-(std::log(0.75) + std::log(0.2)) / 2));
  CHECK(evaluation.accuracy == 0.5);
  CHECK(evaluation.top_probability == Approx((0.75 + 0.8) / 2));
  CHECK(evaluation.logit_gap == Approx((std::log(3.0) + std::log(4.0)) / 2));
  CHECK(evaluation.top_probability_wrong == Approx(0.8));
  CHECK(evaluation.bins[7].count == 1);
  CHECK(evaluation.bins[7].right == 1);
  CHECK(evaluation.bins[8].count == 1);  // 0.8 and rounding: never in bin 7
  CHECK(std::isnan(evaluate(logits, {0, 1}).top_probability_wrong));
}
