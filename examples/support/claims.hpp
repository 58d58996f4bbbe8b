#pragma once

// The closing block of an experiment: what the article found, and whether it shows in this run.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/statistics.hpp"  // Estimate

namespace examples {

enum class Verdict {
  holds,          ///< The article's sign, beyond two standard errors where there are any.
  within_error,   ///< No more than two standard errors from nothing.
  does_not_hold,  ///< The other sign, beyond two standard errors where there are any.
  undecided       ///< Too few runs to tell, or none that could.
};

inline const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::within_error:
      return "within error";
    case Verdict::does_not_hold:
      return "does not hold";
    case Verdict::undecided:
      break;
  }
  return "undecided";
}

/// For a claim that is simply true or false of the run's figures.
inline Verdict verdict_of(bool holds) { return holds ? Verdict::holds : Verdict::does_not_hold; }

/// From fewer values the standard error itself is too uncertain to be believed.
inline constexpr std::size_t enough_values = 5;

/// For "this difference is above zero".
inline Verdict positive(const Estimate& difference) {
  if (std::isnan(difference.value) || std::isnan(difference.error) || difference.count < enough_values)
    return Verdict::undecided;
  if (std::abs(difference.value) <= 2 * difference.error) return Verdict::within_error;
  return verdict_of(difference.value > 0);
}
/// For "this difference is below zero".
inline Verdict negative(const Estimate& difference) {
  return positive({-difference.value, difference.error, difference.count});
}
/// For "this difference is nothing beyond its error".
inline Verdict nothing(const Estimate& difference) {
  const Verdict verdict = positive(difference);
  return verdict == Verdict::undecided ? verdict : verdict_of(verdict == Verdict::within_error);
}

/// Of several differences that are claimed together: the worst.
inline Verdict all_of(const std::vector<Verdict>& verdicts) {
  Verdict worst = Verdict::holds;
  for (const Verdict verdict : verdicts) {
    if (verdict == Verdict::undecided) return verdict;
    if (verdict > worst) worst = verdict;
  }
  return worst;
}

/// The article that the experiments follow; for the end of their help.
inline constexpr const char* article_note =
    "\nThe article is 'Dropout and Normalization: Two Layers Every Diagram Has'. Its figures are of its own runs on "
    "200 "
    "questions, so only the pattern can be the same here; they are shown beside runs with its settings alone.\n"
    "Ctrl-C ends a run early and shows what is finished.";

class Claims {
 public:
  /// `comparable` says whether the run has the article's settings; its figures are left out otherwise.
  explicit Claims(bool comparable) : comparable_{comparable} {}

  /// One claim: its words, the article's figures, this run's.
  void add(Verdict verdict, std::string claim, std::string article, std::string here) {
    lines_.push_back({verdict, std::move(claim), std::move(article), std::move(here)});
  }

  void print() const {
    fmt::print("\nWhat the article found / what this run shows\n");
    for (const Line& line : lines_)
      fmt::print("  {:<14} {}: {}{}\n", to_string(line.verdict), line.claim, line.here,
                 line.article.empty() || !comparable_ ? "" : " (article: " + line.article + ")");
    fmt::print(
        "Holds, does not hold: by more than two standard errors (±), or plainly true or false where there is none.\n"
        "Within error: less than two, so nothing is shown either way.{}{}\n",
        any(Verdict::undecided) ? fmt::format(" Undecided: too small a run, e.g. below {} splits.", enough_values) : "",
        comparable_ ? "" : "\nThe article's settings are others, so its figures are left out.");
  }

 private:
  struct Line {
    Verdict verdict;
    std::string claim, article, here;
  };

  bool any(Verdict verdict) const {
    return std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) { return line.verdict == verdict; });
  }

  bool comparable_;
  std::vector<Line> lines_;
};

}  // namespace examples
