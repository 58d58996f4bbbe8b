#pragma once

#include <exception>
#include <functional>  // function
#include <string>
#include <utility>  // move, pair
#include <vector>

#include "evenkeel/checking/contract_record.hpp"  // Record, Comparison
#include "evenkeel/checking/contract_report.hpp"  // ContractLine
#include "evenkeel/checking/contract_trial.hpp"   // Trial, Stage
#include "evenkeel/core/error.hpp"                // text
#include "evenkeel/core/mode.hpp"                 // Mode
#include "evenkeel/core/types.hpp"                // Matrix, Index
#include "evenkeel/core/view.hpp"                 // as_map, view_of
#include "evenkeel/core/workspace.hpp"            // Workspace
#include "evenkeel/network/layer.hpp"             // Layer

/// The contracts about errors, for layers that promise any.
namespace evenkeel::checking {

#if defined(__cpp_exceptions)
/// Whether the call throws.
template <class Call>
bool throws(const Call& call) {
  try {
    call();
  } catch (const std::exception&) {
    return true;
  }
  return false;
}
inline constexpr bool exceptions_on = true;
#else
template <class Call>
bool throws(const Call& call) {
  call();
  return false;
}
inline constexpr bool exceptions_on = false;
#endif

template <Layer L>
bool errors_promised(const Trial<L>& trial) {
  return trial.options.errors ? *trial.options.errors : ChecksInput<L>;
}

template <Layer L>
ContractLine no_errors(const Trial<L>& trial) {
  if (!exceptions_on) return skipped("compiled without exceptions");
  return skipped(trial.options.errors ? "not promised" : "not promised: no check_input, and options.errors is not set");
}

template <Layer L>
ContractLine backward_first(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  if (!exceptions_on || !errors_promised(trial)) return no_errors(trial);
  L layer(trial.layer);
  Stage<L> stage(trial.x, trial.dy);
  stage.infer(layer);  // is no forward to go back from
  Comparison comparison;
  if (!throws([&] { stage.backward(layer); }))
    return broken(
        "backward of a layer whose forward has not run: expected an error, got none (where it has run, set "
        "options.errors to false)");
  comparison.expect("after the error", {recorded("dx", Matrix<Scalar>::Zero(trial.x.rows(), trial.x.cols()))},
                    {recorded("dx", stage.dx.read())});
  return comparison.line();
}

/// Whether the layer says that it cannot take one feature more.
template <Layer L>
bool takes_one_width(const Trial<L>& trial) {
  if constexpr (ChecksInput<L>)
    if (throws([&] { trial.layer.check_input(trial.x.rows(), trial.x.cols() + 1, Mode::train, "forward"); }))
      return true;
  if constexpr (requires { Index{trial.layer.input_features()}; }) return trial.layer.input_features() >= 0;
  return false;
}

/// Calls that have one matrix of a wrong shape, with what it is.
template <Layer L>
std::vector<std::pair<std::string, std::function<void(L&)>>> wrong_calls(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  const Index rows = trial.x.rows(), in = trial.x.cols(), out = trial.dy.cols();
  std::vector<std::pair<std::string, std::function<void(L&)>>> calls;
  const auto add = [&](const char* call, const char* matrix, Index r, Index c, std::function<void(L&)> body) {
    calls.emplace_back(detail::text(call, ", ", matrix, " of shape ", detail::shape(r, c)), std::move(body));
  };
  const auto matrix = [](Index r, Index c) { return Matrix<Scalar>(Matrix<Scalar>::Constant(r, c, Scalar(0.5))); };
  const auto fits = [](Matrix<Scalar>& m) { return as_map(detail::view_of<Scalar>(m.data(), m)); };
  const auto reads = [](const Matrix<Scalar>& m) { return as_map(detail::view_of<const Scalar>(m.data(), m)); };
  for (const auto& [r, c] : {std::pair(rows + 1, out), std::pair(rows, out + 1)}) {
    add("forward", "y", r, c,
        [=, &trial, y = matrix(r, c)](L& l) mutable { l.forward(reads(trial.x), fits(y), Mode::train); });
    add("infer", "y", r, c, [=, &trial, y = matrix(r, c)](L& l) mutable {
      Workspace<Scalar> workspace;
      l.infer(reads(trial.x), fits(y), workspace);
    });
    add("backward", "dy", r, c, [=, &trial, dy = matrix(r, c), dx = matrix(rows, in)](L& l) mutable {
      l.backward(reads(trial.x), reads(dy), fits(dx));
    });
  }
  for (const auto& [r, c] : {std::pair(rows + 1, in), std::pair(rows, in + 1)}) {
    add("backward", "x", r, c, [=, &trial, x = matrix(r, c), dx = matrix(rows, in)](L& l) mutable {
      l.backward(reads(x), reads(trial.dy), fits(dx));
    });
    add("backward", "dx", r, c,
        [=, &trial, dx = matrix(r, c)](L& l) mutable { l.backward(reads(trial.x), reads(trial.dy), fits(dx)); });
  }
  if (takes_one_width(trial)) {
    add("forward", "x", rows, in + 1, [=, x = matrix(rows, in + 1), y = matrix(rows, out)](L& l) mutable {
      l.forward(reads(x), fits(y), Mode::train);
    });
    add("infer", "x", rows, in + 1, [=, x = matrix(rows, in + 1), y = matrix(rows, out)](L& l) mutable {
      Workspace<Scalar> workspace;
      l.infer(reads(x), fits(y), workspace);
    });
  }
  return calls;
}

template <Layer L>
ContractLine wrong_shapes(const Trial<L>& trial) {
  if (!exceptions_on || !errors_promised(trial)) return no_errors(trial);
  Stage<L> stage(trial.x, trial.dy);
  for (const auto& [name, call] : wrong_calls(trial)) {
    L layer(trial.layer);
    stage.forward(layer, Mode::train);
    if (!throws([&, &wrong = call] { wrong(layer); })) return broken(name + ": expected an error, got none");
  }
  return {};
}

template <Layer L>
ContractLine errors_change_nothing(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  if (!exceptions_on || !errors_promised(trial)) return no_errors(trial);
  Comparison comparison;
  Stage<L> stage(trial.x, trial.dy), next(trial.other_x, trial.other_dy);
  const auto before = [&](L& layer) {
    stage.forward(layer, Mode::train);
    fill_gradients(layer, Scalar(1000));
  };
  const auto after = [&](L& layer) {
    Record state = joined(parameters_of(layer), state_of(layer));
    state = joined(std::move(state), gradients_of(layer));
    state = joined(std::move(state), backward_of(layer, stage));
    return joined(std::move(state), pass_of(layer, next, Mode::train));
  };
  L undisturbed(trial.layer);
  before(undisturbed);
  const Record expected = after(undisturbed);
  for (const auto& [name, call] : wrong_calls(trial)) {
    L layer(trial.layer);
    before(layer);
    if (throws([&, &wrong = call] { wrong(layer); })) comparison.expect("after " + name, expected, after(layer));
  }
  return comparison.line();
}

}  // namespace evenkeel::checking
