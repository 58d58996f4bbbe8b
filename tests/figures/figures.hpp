#pragma once

#include <algorithm>  // max
#include <cmath>      // abs, isnan
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>  // runtime_error
#include <string>

#include "evenkeel/core/types.hpp"  // Matrix

#if !defined(EVENKEEL_FIGURES_DIR)
#define EVENKEEL_FIGURES_DIR "tests/figures"
#endif

/// What PyTorch computes, as make_figures.py wrote it.
namespace figures {

/// The matrices of one file, or of one part of it: "x" in part "default" is "default.x" in the file.
class Figures {
 public:
  /// Reads <name>.txt. Throws std::runtime_error with its path if it is missing or cannot be read.
  explicit Figures(const std::string& name) : source_{EVENKEEL_FIGURES_DIR "/" + name + ".txt"} {
    std::ifstream file(source_);
    if (!file) throw std::runtime_error(source_ + ": expected a file of figures, got none");
    std::string key;
    for (Eigen::Index rows = 0, columns = 0; file >> key >> rows >> columns;) {
      evenkeel::Matrix<double> matrix(rows, columns);
      for (double& number : matrix.reshaped<Eigen::RowMajor>())
        if (!(file >> number)) throw std::runtime_error(source_ + ": expected a number in " + key);
      matrices_[key] = matrix;
    }
    if (!file.eof()) throw std::runtime_error(source_ + ": expected name, rows and columns after " + key);
  }

  Figures part(const std::string& name) const {
    Figures result = *this;
    result.prefix_ += name + ".";
    return result;
  }

  bool has(const std::string& name) const { return matrices_.count(prefix_ + name) != 0; }

  /// Throws std::runtime_error if there is none of that name.
  const evenkeel::Matrix<double>& operator[](const std::string& name) const {
    const auto found = matrices_.find(prefix_ + name);
    if (found == matrices_.end()) throw std::runtime_error(source_ + ": expected a matrix " + prefix_ + name);
    return found->second;
  }

  template <typename Scalar>
  evenkeel::Matrix<Scalar> as(const std::string& name) const {
    return (*this)[name].template cast<Scalar>();
  }

 private:
  std::string source_;
  std::string prefix_;
  std::map<std::string, evenkeel::Matrix<double>> matrices_;
};

/// The largest |actual - expected| / max(|expected|, floor) over all elements; infinite where that is not a number or the
/// shapes differ.
template <class Actual>
double relative_difference(const Actual& actual, const evenkeel::Matrix<double>& expected, double floor = 0) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (actual.rows() != expected.rows() || actual.cols() != expected.cols()) return infinity;
  double largest = 0;
  for (Eigen::Index i = 0; i < expected.rows(); ++i)
    for (Eigen::Index j = 0; j < expected.cols(); ++j) {
      const auto element = static_cast<double>(actual(i, j));
      if (element == expected(i, j)) continue;
      const double relative = std::abs(element - expected(i, j)) / (std::max)(std::abs(expected(i, j)), floor);
      largest = std::isnan(relative) ? infinity : (std::max)(largest, relative);
    }
  return largest;
}

/// The largest |actual - expected| over the largest |expected|: for elements that are sums of terms larger than themselves.
template <class Actual>
double difference(const Actual& actual, const evenkeel::Matrix<double>& expected) {
  return relative_difference(actual, expected, expected.size() == 0 ? 0.0 : expected.cwiseAbs().maxCoeff());
}

}  // namespace figures
