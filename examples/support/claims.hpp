#pragma once

// The closing block of an experiment: what the article found, and whether it shows in this run.

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/statistics.hpp"  // Estimate

namespace examples {

enum class Verdict {
  holds,          ///< The article's sign, beyond two standard errors where there are any.
  within_error,   ///< No more than two standard errors from nothing.
  does_not_hold,  ///< The other sign, beyond two standard errors where there are any.
  undecided       ///< Too few runs to tell.
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

/// For "this difference is above zero".
inline Verdict positive(const Estimate& difference) {
  if (std::isnan(difference.value) || std::isnan(difference.error)) return Verdict::undecided;
  if (std::abs(difference.value) <= 2 * difference.error) return Verdict::within_error;
  return verdict_of(difference.value > 0);
}
/// For "this difference is below zero".
inline Verdict negative(const Estimate& difference) { return positive({-difference.value, difference.error}); }
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

class Claims {
 public:
  /// One claim: its words, the article's figures, this run's.
  void add(Verdict verdict, std::string claim, std::string article, std::string here) {
    lines_.push_back({verdict, std::move(claim), std::move(article), std::move(here)});
  }

  void print() const {
    fmt::print("\nWhat the article found / what this run shows\n");
    for (const Line& line : lines_)
      fmt::print("  {:<14} {}: {}{}\n", to_string(line.verdict), line.claim, line.here,
                 line.article.empty() ? "" : " (article: " + line.article + ")");
  }

 private:
  struct Line {
    Verdict verdict;
    std::string claim, article, here;
  };
  std::vector<Line> lines_;
};

}  // namespace examples
