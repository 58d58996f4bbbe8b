#pragma once

#include <algorithm>  // count_if, max
#include <cstddef>    // size_t
#include <cstdint>    // uint64_t
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "evenkeel/core/error.hpp"  // text
#include "evenkeel/core/types.hpp"  // Index

namespace evenkeel {

/// What an output row of eval depends on.
enum class EvalRows {
  apart,    ///< On its input row alone, or those of its example (rows_per_example).
  together  ///< On the whole batch, as in a BatchNorm that tracks no statistics.
};

/// What is asked of a layer beyond what every layer promises.
struct ContractOptions {
  /// What is expected: either is a contract that can be broken.
  EvalRows eval_rows = EvalRows::apart;
  /// So many consecutive rows of x belong together in eval, as the tokens of a sequence do: not each row, but each such example
  /// stands apart. x is of whole examples, two at least. Default: what the layer says; see the concept Layer.
  std::optional<Index> rows_per_example = std::nullopt;
  /// The largest difference that counts as equal, over the largest number of the matrix, where sums may run in another
  /// order: a row alone and in its batch, other storage orders, in place, infer beside forward. Finite, >= 0; 0: the same
  /// bits. Default: 64 times the type's epsilon. (Where nothing can differ, the same bits are expected anyway.)
  std::optional<double> tolerance = std::nullopt;
  /// Whether forward promises to work with y being x. Not asked of layers in networks, which hand them an x of its own;
  /// evenkeel's layers do.
  bool forward_in_place = false;
  /// Whether wrong shapes and a backward before any forward are promised to be errors. To ask that of a layer that does not
  /// check may crash the program. Default: where the layer has check_input. Needs a layer whose forward has not run.
  std::optional<bool> errors = std::nullopt;
  /// How many requests for memory the program has made so far. A header cannot stand in for malloc; without this the
  /// contract is skipped.
  long (*allocations)() = nullptr;
  /// Of the random output gradient.
  std::uint64_t seed = 0;
};

enum class ContractVerdict {
  pass,    ///< Kept in all that was tried.
  fail,    ///< Broken.
  skipped  ///< Not tried: the layer has nothing that it is about, or something is missing.
};

constexpr const char* to_string(ContractVerdict verdict) {
  switch (verdict) {
    case ContractVerdict::pass:
      return "pass";
    case ContractVerdict::fail:
      return "FAIL";
    case ContractVerdict::skipped:
      return "skipped";
  }
  return "unknown";
}

struct ContractLine {
  std::string contract;  ///< What is promised, as a sentence.
  ContractVerdict verdict = ContractVerdict::pass;
  std::string detail;  ///< Where it broke first, with both values; why it was skipped; or how well it was kept.
};

/// What check_contract found, one line for each contract. Is true where none is broken; prints itself, inside a test
/// framework too.
struct ContractReport {
  std::vector<ContractLine> lines;

  explicit operator bool() const { return count(ContractVerdict::fail) == 0; }

  Index count(ContractVerdict verdict) const {
    return static_cast<Index>(
        std::count_if(lines.begin(), lines.end(), [=](const ContractLine& line) { return line.verdict == verdict; }));
  }
};

/// A headline, then a line for each contract.
inline std::ostream& operator<<(std::ostream& out, const ContractReport& report) {
  using enum ContractVerdict;
  std::string text = std::string("contract check: ") + to_string(report ? pass : fail);
  std::size_t widest = 0;
  const char* separator = ", broken: ";
  for (const ContractLine& line : report.lines) {
    widest = (std::max)(widest, line.contract.size());
    if (line.verdict != fail) continue;
    text += separator + line.contract;
    separator = "; ";
  }
  if (report) text += detail::text(", ", report.count(pass), " kept, ", report.count(skipped), " skipped");
  text += '\n';
  for (const ContractLine& line : report.lines) {
    text += "  " + line.contract + std::string(widest - line.contract.size() + 2, ' ') + to_string(line.verdict);
    if (!line.detail.empty()) text += ": " + line.detail;
    text += '\n';
  }
  return out << text;
}

}  // namespace evenkeel
