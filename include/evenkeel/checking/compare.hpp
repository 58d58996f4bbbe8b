#pragma once

#include <cmath>     // abs, sqrt
#include <concepts>  // same_as
#include <cstddef>   // size_t
#include <cstdint>   // uint32_t
#include <limits>    // epsilon
#include <string>
#include <utility>  // move
#include <vector>

#include "evenkeel/checking/derivative.hpp"  // differentiate
#include "evenkeel/checking/function.hpp"    // Gradients
#include "evenkeel/checking/report.hpp"      // GradientReport, GradientCheckOptions
#include "evenkeel/checking/verdict.hpp"     // Judge
#include "evenkeel/core/check.hpp"           // positive, fraction, at_least, is_finite
#include "evenkeel/core/error.hpp"           // text
#include "evenkeel/core/random.hpp"          // RandomStream
#include "evenkeel/core/view.hpp"            // View

/// The comparison itself, for anything that checking/function.hpp describes.
namespace evenkeel::checking {

inline void check_options(const GradientCheckOptions& options) {
  constexpr char place[] = "check_gradients";
  if (options.tolerance) detail::positive(*options.tolerance, place, "tolerance");
  if (options.step) detail::positive(*options.step, place, "step");
  detail::at_least(0, options.shown, place, "shown");
  detail::fraction(options.kink_share, place, "kink_share");
  detail::at_least(0, options.directions, place, "directions");
}

template <typename Scalar>
long double tolerance_of(const GradientCheckOptions& options) {
  if (options.tolerance) return static_cast<long double>(*options.tolerance);
  if (Half<Scalar>) return 32 * static_cast<long double>(std::numeric_limits<Scalar>::epsilon());
  return std::same_as<Scalar, float> ? 1e-3L : 1e-6L;
}

template <typename Scalar>
constexpr const char* type_name() {
  return std::same_as<Scalar, float>             ? "float"
         : std::same_as<Scalar, double>          ? "double"
         : std::same_as<Scalar, Eigen::half>     ? "half"
         : std::same_as<Scalar, Eigen::bfloat16> ? "bfloat16"
                                                 : "long double";
}

/// Evaluates twice. Empty if both outputs are the same and finite, else what is wrong with them.
template <class Function>
std::string objection(Function& function, Values& outputs) {
  Values again;
  function.evaluate(outputs);
  function.evaluate(again);
  for (Index i = 0; i < outputs.size(); ++i) {
    const auto show = [](long double value) { return figure(static_cast<double>(value), 9); };
    if (outputs[i] != again[i] && !(outputs[i] != outputs[i] && again[i] != again[i]))
      return detail::text("not deterministic: two evaluations from equal copies gave ", show(outputs[i]), " and ",
                          show(again[i]), " in output ", i,
                          " (does forward read y before it writes it, or draw numbers from outside of the layer?)");
    if (!detail::is_finite(outputs[i])) return detail::text("not finite: output ", i, " is ", show(outputs[i]));
  }
  return {};
}

/// Whether the long double twin is the same function: a cast that loses state (masks, statistics) is not.
inline std::string objection_to_twin(const Values& own, const Values& twin, long double tolerance) {
  const long double size = own.size() > 0 ? own.abs().maxCoeff() : 0;
  for (Index i = 0; i < own.size(); ++i)
    if (std::abs(own[i] - twin[i]) > std::sqrt(tolerance) * size)
      return detail::text("not comparable: in long double output ", i, " is ", figure(static_cast<double>(twin[i]), 9),
                          ", in its own type ", figure(static_cast<double>(own[i]), 9));
  return {};
}

inline GradientReport inconclusive(std::string reason) {
  GradientReport report;
  report.reason = std::move(reason);
  return report;
}

/// Each element by itself.
template <class Function>
void compare_elements(Function& function, const Contraction& contraction, const Gradients& analytic,
                      DerivativeOptions options, Judge& judge) {
  using Scalar = typename Function::Scalar;
  auto tensors = function.tensors();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const View<Scalar> value = tensors[t].value;
    std::vector<Finding> findings;
    findings.reserve(static_cast<std::size_t>(value.size()));
    for (Index row = 0; row < value.rows; ++row)
      for (Index column = 0; column < value.columns; ++column) {
        Scalar& element = value(row, column);
        const Scalar given = element;
        options.analytic = analytic[t](row, column);
        const auto evaluate = [&](Scalar moved, Values& outputs) {
          element = moved;
          function.evaluate(outputs);
        };
        findings.push_back({row, column, differentiate(given, evaluate, contraction, options), options.analytic});
        element = given;
      }
    judge.add(tensors[t].name, value.rows, value.columns, std::move(findings));
  }
}

/// Directions through all elements together, of length one. Direction k has the elements (2u - 1) sqrt(3 / elements), u
/// uniform draws of RandomStream(seed, stream_of("directions"), k) in the order of tensors and rows.
template <class Function>
void compare_directions(Function& function, const Contraction& contraction, const Gradients& analytic,
                        DerivativeOptions options, const GradientCheckOptions& given, Judge& judge) {
  using Scalar = typename Function::Scalar;
  auto tensors = function.tensors();
  std::vector<Matrix<Scalar>> values, direction;
  long double elements = 0;
  for (const auto& tensor : tensors) {
    values.push_back(as_map(tensor.value));
    direction.emplace_back(tensor.value.rows, tensor.value.columns);
    elements += static_cast<long double>(tensor.value.size());
  }
  const double size = std::sqrt(3 / static_cast<double>(elements));
  std::vector<Finding> findings;
  for (Index k = 0; k < given.directions; ++k) {
    RandomStream random(given.seed, stream_of("directions"), static_cast<std::uint32_t>(k));
    options.analytic = 0;
    for (std::size_t t = 0; t < tensors.size(); ++t)
      for (Index i = 0; i < direction[t].size(); ++i) {
        direction[t].data()[i] = static_cast<Scalar>((2 * random.uniform() - 1) * size);
        options.analytic += analytic[t].data()[i] * static_cast<long double>(direction[t].data()[i]);
      }
    const auto evaluate = [&](Scalar distance, Values& outputs) {
      for (std::size_t t = 0; t < tensors.size(); ++t) as_map(tensors[t].value) = values[t] + distance * direction[t];
      function.evaluate(outputs);
    };
    findings.push_back({0, k, differentiate(Scalar(0), evaluate, contraction, options), options.analytic});
  }
  judge.add("direction", 1, given.directions, std::move(findings));
}

/// `own` is what was given, in its own type, and has the analytic side; `numeric` the same function in the type of the
/// differences. They may be one object.
template <class Own, class Numeric>
GradientReport check(Own& own, Numeric& numeric, const GradientCheckOptions& options) {
  using Scalar = typename Own::Scalar;
  using Evaluating = typename Numeric::Scalar;
  const long double tolerance = tolerance_of<Scalar>(options);
  Values outputs;
  Contraction contraction;
  contraction.epsilon = static_cast<long double>(std::numeric_limits<Evaluating>::epsilon());
  std::string reason = objection(own, outputs);
  if (reason.empty()) reason = objection(numeric, contraction.base);
  if (reason.empty()) reason = objection_to_twin(outputs, contraction.base, tolerance);
  if (!reason.empty()) return inconclusive(std::move(reason));

  contraction.weights = own.weights(options.seed, outputs.size());
  const Gradients analytic = own.gradients(contraction.weights);
  DerivativeOptions search;
  search.tolerance = tolerance;
  if (options.step) search.step = static_cast<long double>(*options.step);
  Judge judge(tolerance, static_cast<long double>(std::numeric_limits<Scalar>::epsilon()), options);
  if (options.directions > 0)
    compare_directions(numeric, contraction, analytic, search, options, judge);
  else
    compare_elements(numeric, contraction, analytic, search, judge);
  GradientReport report = judge.report();
  report.numeric_type = type_name<Evaluating>();
  return report;
}

}  // namespace evenkeel::checking
