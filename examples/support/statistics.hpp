#pragma once

// Means over splits, and how far to trust them.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace examples {

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Of the values that are not NaN; NaN if there is none.
inline double mean(const std::vector<double>& values) {
  double sum = 0;
  std::size_t count = 0;
  for (const double value : values)
    if (!std::isnan(value)) {
      sum += value;
      ++count;
    }
  return count > 0 ? sum / static_cast<double>(count) : not_a_number;
}

/// The middle value, or the mean of the two middle ones. NaN counts as infinitely large: a diverged run is a bad one.
inline double median(std::vector<double> values) {
  if (values.empty()) return not_a_number;
  for (double& value : values)
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1 || values[middle - 1] == values[middle]) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

/// A value and its standard error, which is NaN where one value tells of none.
struct Estimate {
  double value = not_a_number;
  double error = not_a_number;
  std::size_t count = 0;  // of the values that it is the mean of
};

/// "1 split", "2 splits"
inline std::string counted(std::int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// "0.876" in so many columns; "-" where there is no number.
inline std::string figure(double value, int width, int digits) {
  return std::isnan(value) ? fmt::format("{:>{}}", "-", width) : fmt::format("{:>{}.{}f}", value, width, digits);
}

/// "+0.113 ± 0.052"
inline std::string to_string(const Estimate& estimate) {
  if (std::isnan(estimate.error)) return fmt::format("{:+.3f}", estimate.value);
  return fmt::format("{:+.3f} ± {:.3f}", estimate.value, estimate.error);
}

/// The mean over J splits of after - before, with the standard error
///
///     sd * sqrt(1 / J + tested / trained)     sd with J - 1; Nadeau & Bengio 2003, Machine Learning 52, section 3
///
/// The second term is for the questions that the splits share: without it the error would fall to nothing as one split the
/// same questions again and again. `tested_to_trained` is the ratio of the numbers of questions. Splits in which a value is
/// NaN are left out.
inline Estimate paired_difference(const std::vector<double>& after, const std::vector<double>& before,
                                  double tested_to_trained) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < (std::min)(after.size(), before.size()); ++i)
    if (!std::isnan(after[i]) && !std::isnan(before[i])) differences.push_back(after[i] - before[i]);
  const auto count = static_cast<double>(differences.size());
  const double middle = mean(differences);
  double squares = 0;
  for (const double difference : differences) squares += (difference - middle) * (difference - middle);
  const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : not_a_number;
  return {middle, deviation * std::sqrt(1 / count + tested_to_trained), differences.size()};
}

}  // namespace examples
