#include "evenkeel/checking/report.hpp"

#include <iomanip>
#include <limits>
#include <sstream>
#include <type_traits>

#include "catch.hpp"
#include "evenkeel/checking/verdict.hpp"

namespace ek = evenkeel;
using ek::checking::Derivative;
using ek::checking::Finding;
using ek::checking::Judge;

static_assert(!std::is_convertible_v<ek::GradientReport, bool>, "a report must not turn into a number by accident");
static_assert(std::is_constructible_v<bool, ek::GradientReport>);

namespace {

constexpr long double tolerance = 1e-6L;
constexpr auto epsilon = static_cast<long double>(std::numeric_limits<double>::epsilon());
constexpr long double not_a_number = std::numeric_limits<long double>::quiet_NaN();

Finding finding(long double numeric, long double error, long double analytic) {
  return {0, 0, {numeric, error, 0.125L, false, numeric, numeric}, analytic};
}
Finding kink(long double left, long double right, long double error, long double analytic) {
  return {0, 0, {(left + right) / 2, error, 0.125L, true, left, right}, analytic};
}

ek::GradientReport judge(const std::vector<Finding>& findings, ek::GradientCheckOptions options = {}) {
  Judge judge(tolerance, epsilon, options);
  std::vector<Finding> placed = findings;
  for (std::size_t i = 0; i < placed.size(); ++i) placed[i].column = static_cast<ek::Index>(i);
  judge.add("input", 1, static_cast<ek::Index>(placed.size()), placed);
  return judge.report();
}

ek::GradientVerdict verdict(const Finding& one) { return judge({one}, {.kink_share = 1}).verdict; }

}  // namespace

TEST_CASE("An element passes where difference and estimate are within the tolerance", "[report]") {
  using enum ek::GradientVerdict;
  CHECK(verdict(finding(1, 1e-9L, 1)) == pass);
  CHECK(verdict(finding(-1, 1e-9L, -1)) == pass);
  CHECK(verdict(finding(1, 1e-9L, 1 + 1.9e-6L)) == pass);
  CHECK(verdict(finding(1, 1e-9L, 1 - 1.9e-6L)) == pass);
  CHECK(verdict(finding(1, 1e-9L, 1 + 2.1e-6L)) == fail);
  CHECK(verdict(finding(1, 1e-9L, 1 - 2.1e-6L)) == fail);
  CHECK(verdict(finding(1, 1e-9L, -1)) == fail);
  CHECK(verdict(finding(0, 1e-9L, 1)) == fail);
  CHECK(verdict(finding(1, 1e-9L, 0)) == fail);
}

TEST_CASE("An element is undecided where the estimate is too large to tell", "[report]") {
  using enum ek::GradientVerdict;
  CHECK(verdict(finding(1, 3e-6L, 1)) == inconclusive);
  CHECK(verdict(finding(1, 1e-3L, 1.0005L)) == inconclusive);
  CHECK(verdict(finding(1, 1e-3L, 1.002L)) == fail);
  CHECK(verdict({0, 0, Derivative{}, 1}) == inconclusive);
  CHECK(verdict({0, 0, Derivative{}, 0}) == inconclusive);
}

TEST_CASE("An analytic gradient that is not finite fails", "[report]") {
  CHECK(verdict(finding(1, 1e-9L, not_a_number)) == ek::GradientVerdict::fail);
  CHECK(verdict(finding(0, 0, std::numeric_limits<long double>::infinity())) == ek::GradientVerdict::fail);
  CHECK(verdict(kink(0, 1, 1e-9L, not_a_number)) == ek::GradientVerdict::fail);
  CHECK(verdict({0, 0, Derivative{}, not_a_number}) == ek::GradientVerdict::fail);
}

TEST_CASE("At a kink any value between the slopes passes and no other", "[report]") {
  using enum ek::GradientVerdict;
  for (const auto& [left, right] : {std::pair{0.0L, 1.0L}, std::pair{1.0L, 0.0L}}) {
    for (const long double between : {0.0L, 0.5L, 1.0L}) CHECK(verdict(kink(left, right, 1e-9L, between)) == pass);
    for (const long double outside : {-0.01L, 1.01L, 1.5L}) CHECK(verdict(kink(left, right, 1e-9L, outside)) == fail);
  }
  CHECK(verdict(kink(0, 1, 1e-3L, 1.0005L)) == inconclusive);
}

TEST_CASE("The difference at a kink is that to the nearest slope", "[report]") {
  const auto report = judge({kink(0, 1, 1e-9L, 1.5L)});
  CHECK(report.worst.at(0).numeric == 1);
  CHECK(report.worst.at(0).relative_error == Catch::Approx(0.2));
  CHECK(report.worst.at(0).kink);
}

TEST_CASE("Elements that are zero within rounding are counted and not judged", "[report]") {
  const long double zero = 64 * epsilon * 100;  // beside a gradient of 100
  const auto report = judge({finding(100, 1e-9L, 100), finding(0.4L * zero, 1, -0.5L * zero), finding(0, 0, 0)});
  CHECK(report);
  CHECK(report.zeros() == 2);
  CHECK(report.largest_relative_error() == 0);
  CHECK(report.worst.size() == 1);
  CHECK_FALSE(judge({finding(100, 1e-9L, 100), finding(0.6L * zero, 1e-30L, -0.5L * zero)}));
  // Also beside one that is large on one side only.
  CHECK(judge({finding(1, 1e-9L, 100), finding(0.4L * zero, 1, -0.5L * zero)}).zeros() == 1);
  CHECK(judge({finding(100, 1e-9L, 1), finding(0.4L * zero, 1, -0.5L * zero)}).zeros() == 1);
}

TEST_CASE("One wrong element makes the check fail, one undecided makes it inconclusive", "[report]") {
  const Finding right = finding(1, 1e-9L, 1), wrong = finding(1, 1e-9L, 2), unsure = finding(1, 1, 1);
  CHECK(judge({right, right}).verdict == ek::GradientVerdict::pass);
  CHECK(judge({right, right}));
  CHECK(judge({right, wrong, unsure}).verdict == ek::GradientVerdict::fail);
  CHECK_FALSE(judge({right, wrong, unsure}));
  CHECK(judge({right, unsure}).verdict == ek::GradientVerdict::inconclusive);
  CHECK_FALSE(judge({right, unsure}));
  CHECK(judge({right, unsure}).reason == "the numeric side is not exact enough at 1 of 2 elements");
}

TEST_CASE("A check of nothing proves nothing", "[report]") {
  CHECK(judge({}).verdict == ek::GradientVerdict::inconclusive);
  CHECK(judge({}).reason == "no elements to check");
}

TEST_CASE("More kinks than the share make a check inconclusive", "[report]") {
  std::vector<Finding> findings(19, finding(1, 1e-9L, 1));
  findings.push_back(kink(0, 1, 1e-9L, 0));
  CHECK(judge(findings));
  CHECK(judge(findings).kinks() == 1);
  findings.push_back(kink(0, 1, 1e-9L, 0));
  CHECK(judge(findings).verdict == ek::GradientVerdict::inconclusive);
  CHECK(judge(findings).reason == "too many kinks: 2 of 21 elements, expected at most 5 %");
  CHECK(judge(findings, {.kink_share = 0.1}));
  findings.push_back(kink(0, 1, 1e-9L, 2));
  CHECK(judge(findings).verdict == ek::GradientVerdict::fail);
}

TEST_CASE("The worst elements are the failed, then the undecided, then those furthest off", "[report]") {
  const auto report = judge({finding(1, 1e-9L, 1), finding(1, 1, 1), finding(1, 1e-9L, 1.1L), finding(1, 1e-9L, 3),
                             finding(1, 1e-9L, 1 + 1e-8L)},
                            {.shown = 4});
  REQUIRE(report.worst.size() == 4);
  CHECK(report.worst[0].column == 3);
  CHECK(report.worst[1].column == 2);
  CHECK(report.worst[2].column == 1);
  CHECK(report.worst[3].column == 4);
  CHECK(judge({finding(1, 1e-9L, 1)}, {.shown = 0}).worst.empty());
}

TEST_CASE("The relative error is relative to both sides, or to 1e-12 if they are smaller", "[report]") {
  CHECK(judge({finding(1, 1e-9L, 3)}).largest_relative_error() == Catch::Approx(0.5));
  CHECK(judge({finding(1e-13L, 1e-30L, -1e-13L)}).largest_relative_error() == Catch::Approx(0.2));
}

TEST_CASE("A report prints a headline, a table of tensors and one of the worst elements", "[report]") {
  Judge the_judge(tolerance, epsilon, {.shown = 3});
  the_judge.add("input", 2, 2,
                {{0, 0, {1, 1e-9L, 0.125L, false, 1, 1}, 1},
                 {0, 1, {0, 0, 0.125L, false, 0, 0}, 0},
                 {1, 0, {0.25L, 1e-9L, 0.125L, false, 0, 0}, 0.25L},
                 {1, 1, {0.5L, 1e-9L, 0.0625L, true, 0, 1}, 0}});
  the_judge.add("0.weight", 1, 2,
                {{0, 0, {2, 1e-9L, 0.125L, false, 2, 2}, 2.5L}, {0, 1, {3, 1, 0.125L, false, 3, 3}, 3}});
  ek::GradientReport report = the_judge.report();
  report.numeric_type = "long double";
  std::ostringstream out;
  out << report;
  CHECK(out.str() == R"(gradient check: FAIL, 1 of 6 elements wrong, in 0.weight
  tolerance 1e-06, numeric side in long double
  tensor     shape  relative error  zeros  kinks  failed  undecided
  input     (2, 2)               0      1      1       0          0
  0.weight  (1, 2)           0.111      0      0       1          1
  worst elements  numeric  analytic  relative error   step  estimate       verdict
  0.weight(0, 0)        2       2.5           0.111  0.125     1e-09          FAIL
  0.weight(0, 1)        3         3               0  0.125         1  INCONCLUSIVE
  input(0, 0)           1         1               0  0.125     1e-09          pass
)");
}

TEST_CASE("A report without comparison prints why in one line", "[report]") {
  ek::GradientReport report;
  report.reason = "not deterministic: ...";
  std::ostringstream out;
  out << report;
  CHECK(out.str() == "gradient check: INCONCLUSIVE, not deterministic: ...\n");
}

TEST_CASE("Printing a report neither uses nor changes the stream's format", "[report]") {
  const auto report = judge({finding(10, 1e-9L, 11)});
  std::ostringstream plain, formatted;
  plain << report;
  formatted << std::hex << std::showpos << std::fixed << std::setprecision(1) << std::setfill('*');
  formatted << report;
  CHECK(formatted.str() == plain.str());
  formatted.str("");
  formatted << std::setw(6) << 17 << ' ' << 0.25;
  CHECK(formatted.str() == "****11 +0.2");
}
