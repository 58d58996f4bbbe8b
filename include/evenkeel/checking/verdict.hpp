#pragma once

#include <algorithm>  // max, min, stable_sort, clamp
#include <cmath>      // abs
#include <cstddef>    // size_t
#include <limits>     // epsilon, infinity
#include <string>
#include <utility>  // move
#include <vector>

#include "evenkeel/checking/derivative.hpp"  // Derivative
#include "evenkeel/checking/report.hpp"      // GradientReport
#include "evenkeel/core/check.hpp"           // is_finite
#include "evenkeel/core/types.hpp"           // Index

/// From derivatives to a report.
///
/// With d = |numeric - analytic|, e the error estimate, t = tolerance (|numeric| + |analytic|), an element
///
///     passes             if d <= t and e <= t
///     fails              if d > t + e, or if analytic is NaN or infinite
///     is undecided       else
///
/// At a kink any value between the two slopes is right: numeric is the one of them that is nearest to analytic, and t is
/// relative to the larger slope. Elements with |numeric| + |analytic| <= 64 epsilon times the largest gradient of the check
/// are zeros: what is left there is the rounding of the analytic side, of whose type epsilon is. (A bias before a training
/// BatchNorm has no effect.)
namespace evenkeel::checking {

/// One comparison before it is judged.
struct Finding {
  Index row, column;
  Derivative numeric;
  long double analytic;
};

/// The nearest double, the largest one for what is larger.
inline double as_double(long double value) {
  constexpr auto most = static_cast<long double>((std::numeric_limits<double>::max)());
  return static_cast<double>(detail::is_finite(value) ? std::clamp(value, -most, most) : value);
}

class Judge {
 public:
  Judge(long double tolerance, long double analytic_epsilon, const GradientCheckOptions& options)
      : tolerance_{tolerance}, epsilon_{analytic_epsilon}, options_{options} {}

  void add(std::string name, Index rows, Index columns, std::vector<Finding> findings) {
    for (const Finding& finding : findings) {
      see(finding.analytic);
      see(finding.numeric.value);
    }
    tensors_.push_back({std::move(name), rows, columns, std::move(findings)});
  }

  GradientReport report() const {
    GradientReport report;
    report.tolerance = static_cast<double>(tolerance_);
    for (const Compared& compared : tensors_) judge(compared, report);
    std::stable_sort(report.worst.begin(), report.worst.end(), is_worse);
    if (static_cast<Index>(report.worst.size()) > options_.shown)
      report.worst.resize(static_cast<std::size_t>(options_.shown));
    conclude(report);
    return report;
  }

 private:
  struct Compared {
    std::string name;
    Index rows, columns;
    std::vector<Finding> findings;
  };

  void see(long double gradient) {
    if (detail::is_finite(gradient)) largest_ = (std::max)(largest_, std::abs(gradient));
  }

  void judge(const Compared& compared, GradientReport& report) const {
    GradientTensor tensor;
    tensor.name = compared.name;
    tensor.numeric.resize(compared.rows, compared.columns);
    tensor.analytic.resize(compared.rows, compared.columns);
    for (const Finding& finding : compared.findings) {
      GradientElement element = judged(finding);
      tensor.numeric(finding.row, finding.column) = element.numeric;
      tensor.analytic(finding.row, finding.column) = element.analytic;
      if (is_zero(finding)) {
        ++tensor.zeros;
        continue;
      }
      if (element.kink) ++tensor.kinks;
      if (element.verdict == GradientVerdict::fail) ++tensor.failed;
      if (element.verdict == GradientVerdict::inconclusive) ++tensor.undecided;
      tensor.largest_relative_error = (std::max)(tensor.largest_relative_error, element.relative_error);
      element.tensor = compared.name;
      report.worst.push_back(std::move(element));
    }
    report.tensors.push_back(std::move(tensor));
  }

  GradientElement judged(const Finding& finding) const {
    const Derivative& derivative = finding.numeric;
    const long double analytic = finding.analytic;
    const bool finite = detail::is_finite(analytic);
    const long double numeric = finite ? derivative.nearest(analytic) : derivative.value;
    GradientElement element;
    element.row = finding.row;
    element.column = finding.column;
    element.numeric = as_double(numeric);
    element.analytic = as_double(analytic);
    element.relative_error = relative_error(numeric, analytic);
    element.step = as_double(derivative.step);
    element.error_estimate = as_double(derivative.error);
    element.kink = derivative.kink;
    element.verdict = verdict(derivative, analytic);
    return element;
  }

  bool is_zero(const Finding& finding) const {
    constexpr long double roundings = 64;
    const Derivative& numeric = finding.numeric;
    return !numeric.kink && numeric.error < unknown && detail::is_finite(finding.analytic) &&
           std::abs(numeric.value) + std::abs(finding.analytic) <= roundings * epsilon_ * largest_;
  }

  GradientVerdict verdict(const Derivative& numeric, long double analytic) const {
    if (!detail::is_finite(analytic)) return GradientVerdict::fail;
    const DerivativeOptions comparison{analytic, tolerance_};
    if (comparison.agrees(numeric)) return GradientVerdict::pass;
    return comparison.disagrees(numeric) ? GradientVerdict::fail : GradientVerdict::inconclusive;
  }

  static double relative_error(long double numeric, long double analytic) {
    if (!detail::is_finite(analytic)) return std::numeric_limits<double>::infinity();
    constexpr long double floor = 1e-12L;
    return static_cast<double>(std::abs(numeric - analytic) /
                               (std::max)(floor, std::abs(numeric) + std::abs(analytic)));
  }

  static bool is_worse(const GradientElement& a, const GradientElement& b) {
    const auto rank = [](const GradientElement& element) {
      return element.verdict == GradientVerdict::fail ? 0 : element.verdict == GradientVerdict::inconclusive ? 1 : 2;
    };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return a.relative_error > b.relative_error;
  }

  void conclude(GradientReport& report) const {
    const auto elements = static_cast<double>(report.elements());
    if (report.failed() > 0) {
      report.verdict = GradientVerdict::fail;
    } else if (report.elements() == 0) {
      report.reason = "no elements to check";
    } else if (report.undecided() > 0) {
      report.reason = detail::text("the numeric side is not exact enough at ", report.undecided(), " of ",
                                   report.elements(), " elements");
    } else if (static_cast<double>(report.kinks()) > options_.kink_share * elements) {
      report.reason = detail::text("too many kinks: ", report.kinks(), " of ", report.elements(),
                                   " elements, expected at most ", figure(100 * options_.kink_share, 3), " %");
    } else {
      report.verdict = GradientVerdict::pass;
    }
  }

  long double tolerance_;         // > 0
  long double epsilon_;           // of the analytic side's type
  GradientCheckOptions options_;  // checked
  long double largest_ = 0;       // |gradient| seen
  std::vector<Compared> tensors_;
};

}  // namespace evenkeel::checking
