#pragma once

#include <algorithm>  // max, min
#include <cstddef>    // size_t
#include <cstdint>    // uint64_t
#include <locale>     // figures look the same under any locale
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>  // move
#include <vector>

#include "evenkeel/core/error.hpp"  // shape
#include "evenkeel/core/types.hpp"  // Matrix, Index

namespace evenkeel {

/// How check_gradients looks and judges. Each field is checked: std::invalid_argument names the one that is out of bounds.
struct GradientCheckOptions {
  /// The largest |numeric - analytic| / (|numeric| + |analytic|) that passes. Finite, > 0. Default: 1e-6 where the
  /// analytic side is in double or long double, 1e-3 in float: well above rounding, well below a forgotten term.
  std::optional<double> tolerance = std::nullopt;
  /// Of the random weights that contract the outputs, and of the directions. Any number; another one is another check.
  std::uint64_t seed = 0;
  /// The first and largest step, in the unit of the element (of a direction: of its length). Finite, > 0. It is halved
  /// until the derivative settles. Default: about epsilon^(1/5) max(1, |x|), with the epsilon of the evaluating type, and
  /// 32 times that where rounding hides the answer; see checking::differentiate.
  std::optional<double> step = std::nullopt;
  /// How many of the worst elements the report names. >= 0; five show a pattern without hiding the table.
  Index shown = 5;
  /// The largest share of elements at kinks (both slopes of ReLU at zero are right) with which a check proves anything.
  /// In [0, 1]; real data sit on a kink by chance only.
  double kink_share = 0.05;
  /// 0: every element by itself. K > 0: K random directions through the space of all inputs and parameters together, at
  /// a cost that does not grow with the network; a wrong gradient is found all the same, but not placed. >= 0.
  Index directions = 0;
};

enum class GradientVerdict {
  pass,         ///< The two sides agree.
  fail,         ///< They differ by more than tolerance and error estimate together: the analytic gradient is wrong.
  inconclusive  ///< The numeric side is not exact enough to tell, or there is no numeric side.
};

constexpr const char* to_string(GradientVerdict verdict) {
  switch (verdict) {
    case GradientVerdict::pass:
      return "pass";
    case GradientVerdict::fail:
      return "FAIL";
    case GradientVerdict::inconclusive:
      return "INCONCLUSIVE";
  }
  return "unknown";
}

/// One element of an input or parameter.
struct GradientElement {
  std::string tensor;         ///< "input", a parameter's name, or "direction".
  Index row = 0, column = 0;  ///< Its place there.
  double numeric = 0;         ///< The difference quotient; at a kink the value between both slopes nearest to analytic.
  double analytic = 0;        ///< What backward, or the gradient given, says.
  double relative_error = 0;  ///< |numeric - analytic| / max(1e-12, |numeric| + |analytic|).
  double step = 0;            ///< The smallest step that `numeric` was taken from.
  double error_estimate = 0;  ///< Of `numeric`, absolute.
  bool kink = false;          ///< Whether the function has two slopes here.
  GradientVerdict verdict = GradientVerdict::inconclusive;
};

/// An input, a parameter, or all directions.
struct GradientTensor {
  std::string name;
  Matrix<double> numeric;             ///< In the tensor's shape; a direction has one row.
  Matrix<double> analytic;            ///< The same.
  double largest_relative_error = 0;  ///< Over all elements but the zeros.
  Index zeros = 0;                    ///< Elements that are zero within rounding on both sides: counted, not judged.
  Index kinks = 0;                    ///< Elements at which the function has two slopes.
  Index failed = 0;                   ///< Elements whose analytic gradient is wrong.
  Index undecided = 0;                ///< Elements whose numeric side is not exact enough.
};

/// What check_gradients found. Is true where every element passes; prints itself, inside a test framework too.
struct GradientReport {
  GradientVerdict verdict = GradientVerdict::inconclusive;
  std::string reason;                   ///< Why it is inconclusive as a whole; empty if it is not.
  std::string numeric_type;             ///< "long double", or the type of what was given where that has no cast.
  double tolerance = 0;                 ///< As used.
  std::vector<GradientTensor> tensors;  ///< The input, then the parameters in their order.
  std::vector<GradientElement> worst;   ///< Failed ones first, then undecided ones, each by falling relative error.

  explicit operator bool() const { return verdict == GradientVerdict::pass; }

  double largest_relative_error() const {
    double largest = 0;
    for (const auto& tensor : tensors) largest = (std::max)(largest, tensor.largest_relative_error);
    return largest;
  }
  Index elements() const {
    Index sum = 0;
    for (const auto& tensor : tensors) sum += tensor.numeric.size();
    return sum;
  }
  Index zeros() const { return sum_of(&GradientTensor::zeros); }
  Index kinks() const { return sum_of(&GradientTensor::kinks); }
  Index failed() const { return sum_of(&GradientTensor::failed); }
  Index undecided() const { return sum_of(&GradientTensor::undecided); }

 private:
  Index sum_of(Index GradientTensor::*count) const {
    Index sum = 0;
    for (const auto& tensor : tensors) sum += tensor.*count;
    return sum;
  }
};

namespace checking {

/// A number as %g writes it.
inline std::string figure(double value, int digits) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(digits);
  out << value;
  return out.str();
}

/// Rows of text under a heading, the first column flush left and the others flush right, two spaces between.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) { add(std::move(heading)); }
  void add(std::vector<std::string> row) {
    widths_.resize((std::max)(widths_.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = (std::max)(widths_[i], row[i].size());
    rows_.push_back(std::move(row));
  }
  std::string text() const {
    std::string all;
    for (const auto& row : rows_) {
      std::string line = "  ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths_[i] - row[i].size(), ' ');
        line += i == 0 ? row[i] + padding : "  " + padding + row[i];
      }
      all += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    }
    return all;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

/// The verdict and what it rests on, in one line.
inline std::string headline(const GradientReport& report) {
  std::string line = std::string("gradient check: ") + to_string(report.verdict) + ", ";
  if (report.failed() > 0) {
    line += detail::text(report.failed(), " of ", report.elements(), " elements wrong, in");
    const char* separator = " ";
    for (const auto& tensor : report.tensors) {
      if (tensor.failed == 0) continue;
      line += separator + tensor.name;
      separator = ", ";
    }
    return line;
  }
  if (!report.reason.empty()) return line + report.reason;
  return line + detail::text(report.elements(), " elements, largest relative error ",
                             figure(report.largest_relative_error(), 3));
}

inline std::string tensor_table(const GradientReport& report) {
  Table table({"tensor", "shape", "relative error", "zeros", "kinks", "failed", "undecided"});
  for (const auto& tensor : report.tensors)
    table.add({tensor.name, detail::shape(tensor.numeric.rows(), tensor.numeric.cols()),
               figure(tensor.largest_relative_error, 3), std::to_string(tensor.zeros), std::to_string(tensor.kinks),
               std::to_string(tensor.failed), std::to_string(tensor.undecided)});
  return table.text();
}

inline std::string worst_table(const GradientReport& report) {
  Table table({"worst elements", "numeric", "analytic", "relative error", "step", "estimate", "verdict"});
  for (const auto& element : report.worst)
    table.add({element.tensor + detail::shape(element.row, element.column), figure(element.numeric, 9),
               figure(element.analytic, 9), figure(element.relative_error, 3), figure(element.step, 3),
               figure(element.error_estimate, 3),
               std::string(to_string(element.verdict)) + (element.kink ? " at a kink" : "")});
  return table.text();
}

}  // namespace checking

/// A headline, a table of the tensors and one of the worst elements. Leaves the stream's format as it was.
inline std::ostream& operator<<(std::ostream& out, const GradientReport& report) {
  std::string text = checking::headline(report) + '\n';
  if (!report.tensors.empty()) {
    text += "  tolerance " + checking::figure(report.tolerance, 3) + ", numeric side in " + report.numeric_type + '\n';
    text += checking::tensor_table(report);
  }
  if (!report.worst.empty()) text += checking::worst_table(report);
  return out << text;
}

}  // namespace evenkeel
