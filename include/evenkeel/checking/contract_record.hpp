#pragma once

#include <algorithm>  // max
#include <cmath>      // abs, signbit
#include <concepts>   // convertible_to
#include <cstdint>    // uint64_t
#include <string>
#include <utility>  // move
#include <vector>

#include "evenkeel/checking/contract_report.hpp"  // ContractLine
#include "evenkeel/checking/report.hpp"           // figure
#include "evenkeel/core/error.hpp"                // text, shape
#include "evenkeel/core/mode.hpp"                 // Mode
#include "evenkeel/core/parameter.hpp"            // Accumulate
#include "evenkeel/core/types.hpp"                // Matrix, Index
#include "evenkeel/core/view.hpp"                 // StridedMap

/// Records of what a layer gave and holds, and their comparison.
namespace evenkeel::checking {

/// Something with a name that a layer gave.
struct Recorded {
  std::string name;
  Matrix<long double> value;
};
using Record = std::vector<Recorded>;

template <class M>
Recorded recorded(std::string name, const M& matrix) {
  return {std::move(name), matrix.template cast<long double>()};
}

template <class L>
concept ShowsParameters = requires(L& layer) {
  layer.parameters();
};
template <class L>
concept ShowsBuffers = requires(L& layer) {
  layer.buffers();
};
template <class L>
concept CountsCalls = requires(const L& layer) {
  { layer.calls() } -> std::convertible_to<std::uint64_t>;
};
template <class L>
concept ChecksInput = requires(const L& layer, Mode mode) {
  layer.check_input(Index{}, Index{}, mode, "forward");
};
template <class L>
concept GivesParametersAlone = requires(L& layer, const StridedMap<const typename L::Scalar>& x) {
  layer.backward_parameters(x, x, Accumulate::no);
};

template <class L>
Record gradients_of(L& layer) {
  Record record;
  if constexpr (ShowsParameters<L>)
    for (const auto& parameter : layer.parameters())
      record.push_back(recorded("gradient of " + parameter.name, parameter.gradient));
  return record;
}

template <class L>
void fill_gradients(L& layer, typename L::Scalar value) {
  if constexpr (ShowsParameters<L>)
    for (auto& parameter : layer.parameters()) parameter.gradient.setConstant(value);
}

template <class L>
Record parameters_of(L& layer) {
  Record record;
  if constexpr (ShowsParameters<L>)
    for (const auto& parameter : layer.parameters()) record.push_back(recorded(parameter.name, parameter.value));
  return record;
}

/// Running statistics, counters, and where random numbers stand.
template <class L>
Record state_of(L& layer) {
  Record record;
  const auto count = [](auto number) { return Matrix<long double>::Constant(1, 1, static_cast<long double>(number)); };
  if constexpr (ShowsBuffers<L>)
    for (const auto& buffer : layer.buffers())
      record.push_back(buffer.count != nullptr ? Recorded{buffer.name, count(*buffer.count)}
                                               : recorded(buffer.name, buffer.value));
  if constexpr (requires { layer.training_state(); })
    for (const auto& state : layer.training_state())
      for (std::size_t i = 0; i < state.values.size(); ++i)
        record.push_back(
            {state.name + (state.values.size() > 1 ? detail::text("[", i, "]") : ""), count(state.values[i])});
  if constexpr (CountsCalls<L>) record.push_back({"calls()", count(layer.calls())});
  return record;
}

inline Record joined(Record a, const Record& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The same number, zeros with their signs; any NaN is the same as any other.
inline bool same_number(long double a, long double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : a != a && b != b;
}

/// Compares records until the first difference.
class Comparison {
 public:
  /// `tolerance`: over the largest number of a matrix; 0: the same bits.
  explicit Comparison(long double tolerance = 0) : tolerance_{tolerance} {}

  void expect(const std::string& place, const Record& expected, const Record& got) {
    if (expected.size() != got.size())
      return differs(detail::text(place, ": expected ", expected.size(), " matrices, got ", got.size()));
    for (std::size_t i = 0; i < expected.size(); ++i)
      expect(place + ", " + expected[i].name, expected[i].value, got[i].value);
  }
  void expect(const std::string& place, const Matrix<long double>& expected, const Matrix<long double>& got) {
    if (!same()) return;
    if (expected.rows() != got.rows() || expected.cols() != got.cols())
      return differs(detail::text(place, ": expected the shape ", detail::shape(expected.rows(), expected.cols()),
                                  ", got ", detail::shape(got.rows(), got.cols())));
    long double largest = 0;
    for (Index k = 0; k < expected.size(); ++k)
      largest = (std::max)({largest, std::abs(expected.data()[k]), std::abs(got.data()[k])});
    for (Index i = 0; i < expected.rows(); ++i)
      for (Index j = 0; j < expected.cols(); ++j) {
        const long double a = expected(i, j), b = got(i, j);
        if (same_number(a, b)) continue;
        const long double distance = std::abs(a - b);
        if (!(tolerance_ > 0) || !(distance <= tolerance_ * largest))
          return differs(place + detail::shape(i, j) + ": expected " + shown(a, b) + ", got " + shown(b, a));
        if (largest > 0) furthest_ = (std::max)(furthest_, distance / largest);
      }
  }
  void differs(std::string difference) {
    if (same()) difference_ = std::move(difference);
  }

  bool same() const { return difference_.empty(); }

  ContractLine line() const {
    if (!same()) return {{}, ContractVerdict::fail, difference_};
    if (furthest_ > 0)
      return {
          {}, ContractVerdict::pass, "within " + figure(static_cast<double>(furthest_), 2) + " of the largest number"};
    return {{}, ContractVerdict::pass, {}};
  }

 private:
  /// With as many digits as tell it from the other.
  static std::string shown(long double value, long double other) {
    const auto a = static_cast<double>(value), b = static_cast<double>(other);
    const std::string text = figure(a, 9);
    return text == figure(b, 9) ? figure(a, 17) : text;
  }

  long double tolerance_;
  long double furthest_ = 0;  // relative distance that was allowed
  std::string difference_;
};

}  // namespace evenkeel::checking
