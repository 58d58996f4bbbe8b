#pragma once

#include <cstddef>  // size_t
#include <string>
#include <utility>  // move

#include "evenkeel/checking/contract_record.hpp"  // Record, Comparison
#include "evenkeel/checking/contract_report.hpp"  // ContractLine
#include "evenkeel/checking/contract_trial.hpp"   // Trial, Stage
#include "evenkeel/core/error.hpp"                // text
#include "evenkeel/core/mode.hpp"                 // Mode
#include "evenkeel/core/parameter.hpp"            // Accumulate
#include "evenkeel/core/types.hpp"                // Matrix, Index
#include "evenkeel/network/layer.hpp"             // Layer, Accumulates

/// The contracts about what a layer holds: gradients, the forward that backward goes with, statistics, parameters. Gradients
/// are cleared before every backward but where overwriting them is the question, so that a fault shows in its own line.
namespace evenkeel::checking {

/// Gives a layer the gradients of another.
template <Layer L>
void copy_gradients(L& from, L& to) {
  if constexpr (ShowsParameters<L>) {
    auto&& sources = from.parameters();
    auto&& targets = to.parameters();
    for (std::size_t i = 0; i < sources.size(); ++i) targets[i].gradient = sources[i].gradient;
  }
}

inline Record doubled(Record record) {
  for (Recorded& one : record) one.value *= 2;
  return record;
}

template <Layer L>
ContractLine overwrites_gradients(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  L layer(trial.layer);
  if (parameters_of(layer).empty()) return skipped("no parameters");
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes) {
    Stage<L> stage(trial.x, trial.dy);
    stage.forward(layer, mode);
    const Record expected = backward_of(layer, stage);
    L other(trial.layer);
    stage.forward(other, mode);
    fill_gradients(other, Scalar(1000));
    stage.backward(other);
    comparison.expect(std::string(name) + ", from gradients of 1000", expected,
                      joined({recorded("dx", stage.dx.read())}, gradients_of(other)));
    layer = trial.layer;
  }
  return comparison.line();
}

template <Layer L>
ContractLine accumulates(const Trial<L>& trial) {
  if constexpr (Accumulates<L>) {
    Comparison comparison(trial.tolerance);
    for (const auto& [name, mode] : contract_modes) {
      L layer(trial.layer);
      if (parameters_of(layer).empty()) return skipped("no parameters");
      Stage<L> stage(trial.x, trial.dy);
      const Record once = (pass_of(layer, stage, mode), gradients_of(layer));
      L other(trial.layer);  // with the gradients of a backward, but none behind it
      copy_gradients(layer, other);
      stage.forward(other, mode);
      other.backward(stage.x.read(), stage.dy.read(), stage.dx.map(), Accumulate::yes);
      comparison.expect(std::string(name) + ", added to themselves", doubled(once), gradients_of(other));
    }
    return comparison.line();
  } else {
    return skipped("backward takes no Accumulate");
  }
}

template <Layer L>
ContractLine parameters_alone(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  if constexpr (GivesParametersAlone<L>) {
    Comparison comparison(trial.tolerance);
    for (const auto& [name, mode] : contract_modes) {
      L layer(trial.layer);
      if (parameters_of(layer).empty()) return skipped("no parameters");
      Stage<L> stage(trial.x, trial.dy);
      const Record once = (pass_of(layer, stage, mode), gradients_of(layer));
      L other(trial.layer);
      stage.forward(other, mode);
      fill_gradients(other, Scalar(0));
      other.backward_parameters(stage.x.read(), stage.dy.read(), Accumulate::yes);
      comparison.expect(std::string(name) + ", added to 0", once, gradients_of(other));
      L third(trial.layer);
      stage.forward(third, mode);
      fill_gradients(third, Scalar(1000));
      third.backward_parameters(stage.x.read(), stage.dy.read(), Accumulate::no);
      comparison.expect(std::string(name) + ", from gradients of 1000", once, gradients_of(third));
    }
    return comparison.line();
  } else {
    return skipped("no backward_parameters");
  }
}

template <Layer L>
ContractLine repeats_backward(const Trial<L>& trial) {
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes) {
    L layer(trial.layer);
    Stage<L> stage(trial.x, trial.dy), other(trial.x, trial.other_dy);
    stage.forward(layer, mode);
    const Record first = backward_of(layer, stage);
    comparison.expect(std::string(name) + ", the second time", first, backward_of(layer, stage));
    (void)backward_of(layer, other);
    comparison.expect(std::string(name) + ", after one of another dy", first, backward_of(layer, stage));
  }
  return comparison.line();
}

template <Layer L>
ContractLine infers(const Trial<L>& trial) {
  L layer(trial.layer);
  Stage<L> stage(trial.x, trial.dy);
  stage.infer(layer);
  const Record inferred = output_of(stage);
  stage.forward(layer, Mode::eval);
  Comparison comparison(trial.tolerance);
  comparison.expect("infer", output_of(stage), inferred);
  return comparison.line();
}

template <Layer L>
ContractLine infers_apart(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  Comparison comparison;
  Matrix<Scalar> longer(2 * trial.x.rows(), trial.x.cols());
  longer << trial.other_x, trial.x;
  for (const auto& [name, mode] : contract_modes) {
    L layer(trial.layer), other(trial.layer);
    Stage<L> stage(trial.x, trial.dy), infer_stage(longer, trial.output_gradient(longer.rows(), 0)),
        same_shape(trial.other_x, trial.dy);
    const Record expected = pass_of(layer, stage, mode);
    stage.forward(other, mode);
    const Record outputs = output_of(stage);
    infer_stage.infer(other);
    same_shape.infer(other);
    comparison.expect(std::string("after a forward in ") + name, expected, joined(outputs, backward_of(other, stage)));
  }
  return comparison.line();
}

template <Layer L>
ContractLine state_moves(const Trial<L>& trial) {
  L layer(trial.layer);
  const Record before = state_of(layer);
  if (before.empty()) return skipped("no buffers(), training_state() or calls()");
  Stage<L> stage(trial.x, trial.dy);
  stage.forward(layer, Mode::train);
  Comparison comparison;
  comparison.expect("", before, state_of(layer));
  if (!comparison.same()) return {};
  std::string names;
  for (const Recorded& one : before) names += (names.empty() ? "" : ", ") + one.name;
  return broken("forward in train: expected one of " + names + " to move, got none moved");
}

template <Layer L>
ContractLine state_rests(const Trial<L>& trial) {
  Comparison comparison;
  L layer(trial.layer);
  const Record before = state_of(layer);
  Stage<L> stage(trial.x, trial.dy), other(trial.other_x, trial.other_dy);
  other.forward(layer, Mode::eval);
  comparison.expect("forward in eval", before, state_of(layer));
  (void)backward_of(layer, other);
  comparison.expect("backward", before, state_of(layer));
  other.infer(layer);
  comparison.expect("infer", before, state_of(layer));
  // What is not shown is seen in what comes after.
  L fresh(trial.layer);
  Stage<L> fresh_stage(trial.x, trial.dy);
  const auto what_follows = [](L& of, Stage<L>& on) {
    Record record = pass_of(of, on, Mode::train);
    on.forward(of, Mode::eval);
    return joined(std::move(record), output_of(on));
  };
  const Record expected = what_follows(fresh, fresh_stage);
  comparison.expect("training after forward in eval, backward and infer", expected, what_follows(layer, stage));
  return comparison.line();
}

template <Layer L>
ContractLine parameters_rest(const Trial<L>& trial) {
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes) {
    L layer(trial.layer);
    const Record before = parameters_of(layer);
    if (before.empty()) return skipped("no parameters");
    Stage<L> stage(trial.x, trial.dy);
    stage.forward(layer, mode);
    comparison.expect(std::string("forward in ") + name, before, parameters_of(layer));
    (void)backward_of(layer, stage);
    comparison.expect(std::string("backward after ") + name, before, parameters_of(layer));
    stage.infer(layer);
    comparison.expect("infer", before, parameters_of(layer));
  }
  return comparison.line();
}

template <Layer L>
ContractLine copies(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  Comparison comparison;
  L layer(trial.layer), untouched(trial.layer);
  Stage<L> stage(trial.x, trial.dy), other(trial.other_x, trial.other_dy);
  const Record expected = pass_of(untouched, stage, Mode::train);
  const Record state = joined(parameters_of(untouched), state_of(untouched));

  stage.forward(layer, Mode::train);
  const Record outputs = output_of(stage);
  L copy(layer);
  comparison.expect("a copy made between forward and backward", expected, joined(outputs, backward_of(copy, stage)));
  if constexpr (ShowsParameters<L>)
    for (auto& parameter : copy.parameters()) parameter.value.array() += Scalar(1);
  (void)pass_of(copy, other, Mode::train);
  fill_gradients(layer, Scalar(0));
  fill_gradients(copy, Scalar(1000));
  stage.backward(layer);
  comparison.expect("the layer, after other calls of its copy", joined(expected, state),
                    joined(joined(joined(outputs, {recorded("dx", stage.dx.read())}), gradients_of(layer)),
                           joined(parameters_of(layer), state_of(layer))));
  const Record filled = gradients_of(copy);
  for (const Recorded& one : filled)
    comparison.expect("the copy, after a backward of the layer, " + one.name,
                      Matrix<long double>::Constant(one.value.rows(), one.value.cols(), 1000), one.value);
  return comparison.line();
}

}  // namespace evenkeel::checking
