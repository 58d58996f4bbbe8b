#pragma once

#include <algorithm>  // max
#include <array>
#include <cstddef>  // size_t
#include <limits>   // quiet_NaN
#include <string>
#include <vector>

#include "evenkeel/checking/contract_record.hpp"  // Record, Comparison
#include "evenkeel/checking/contract_report.hpp"  // ContractLine
#include "evenkeel/checking/contract_trial.hpp"   // Trial, Stage
#include "evenkeel/core/error.hpp"                // text
#include "evenkeel/core/mode.hpp"                 // Mode
#include "evenkeel/core/parallel.hpp"             // parallel_threshold
#include "evenkeel/core/types.hpp"                // Matrix, Index
#include "evenkeel/network/layer.hpp"             // Layer

#if defined(_OPENMP)
#include <omp.h>  // omp_set_num_threads, omp_get_max_threads
#endif

/// The contracts about outputs: what they depend on, and what is written besides.
namespace evenkeel::checking {

template <Layer L>
ContractLine repeats(const Trial<L>& trial) {
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes)
    comparison.expect(name, trial.everything(mode), trial.everything(mode));
  return comparison.line();
}

template <Layer L>
ContractLine overwrites_outputs(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes) {
    Stage<L> three(trial.x, trial.dy, Lie::by_rows, Lie::by_rows, Scalar(3));
    Stage<L> poisoned(trial.x, trial.dy, Lie::by_rows, Lie::by_rows, std::numeric_limits<Scalar>::quiet_NaN());
    comparison.expect(std::string(name) + ", 3 and then NaN in the outputs", trial.everything(mode, three),
                      trial.everything(mode, poisoned));
  }
  return comparison.line();
}

template <Layer L>
ContractLine writes_nothing_else(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  Comparison comparison;
  for (const Lie lie : every_lie)
    for (const auto& [name, mode] : contract_modes) {
      Stage<L> stage(trial.x, trial.dy, lie, lie);
      const auto look = [&, mode_name = name](const char* call) {
        const std::string place = detail::text(call, " in ", mode_name, ", ", to_string(lie));
        const auto guarded = [&](const char* matrix, const Guarded<Scalar>& memory) {
          if (const std::string damage = memory.damage(); !damage.empty())
            comparison.differs(detail::text(place, ", around ", matrix, ": ", damage));
        };
        guarded("x", stage.x);
        guarded("y", stage.y);
        guarded("dy", stage.dy);
        guarded("dx", stage.dx);
        comparison.expect(place, Record{recorded("x", trial.x), recorded("dy", trial.dy)},
                          Record{recorded("x", stage.x.read()), recorded("dy", stage.dy.read())});
      };
      L layer(trial.layer);
      stage.forward(layer, mode);
      look("forward");
      fill_gradients(layer, Scalar(0));
      stage.backward(layer);
      look("backward");
      stage.infer(layer);
      look("infer");
    }
  return comparison.line();
}

/// Outputs of eval, by forward and by infer.
template <Layer L>
Record eval_outputs(const Trial<L>& trial, const Matrix<typename L::Scalar>& x) {
  using Scalar = typename L::Scalar;
  Stage<L> stage(x, Matrix<Scalar>::Zero(x.rows(), trial.dy.cols()));
  L layer(trial.layer);
  stage.infer(layer);
  Record outputs = {recorded("y of infer", stage.y.read())};
  stage.forward(layer, Mode::eval);
  outputs.push_back(recorded("y of forward", stage.y.read()));
  return outputs;
}

template <Layer L>
ContractLine rows_in_eval(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  const Record whole = eval_outputs(trial, trial.x);
  const Index last = trial.x.rows() - 1;
  if (trial.options.eval_rows == EvalRows::together) {
    const auto outputs_without = [&](Index changed) {  // of all rows but the one that is changed
      Matrix<Scalar> x = trial.x;
      x.row(changed) = (x.row(changed).array() * Scalar(-3) + Scalar(1)).matrix();
      Record outputs = eval_outputs(trial, x);
      for (Recorded& output : outputs) output.value.row(changed).setZero();
      return outputs;
    };
    Record before = whole;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      bool moved = false;
      for (const Index changed : {last, Index{0}}) {
        before[i].value = whole[i].value;
        before[i].value.row(changed).setZero();
        Comparison comparison;
        comparison.expect("", before[i].value, outputs_without(changed)[i].value);
        moved = moved || !comparison.same();
      }
      if (!moved)
        return broken(
            detail::text(whole[i].name, ": expected other rows to change with row ", last, " or 0, got the same"));
    }
    return {};
  }
  Comparison comparison(trial.tolerance);
  std::vector<Matrix<long double>> alone(whole.size(), Matrix<long double>(trial.x.rows(), trial.dy.cols()));
  const Index group = trial.rows_per_example;
  for (Index row = 0; row <= last; row += group) {
    const Record one = eval_outputs(trial, trial.x.middleRows(row, group));
    for (std::size_t i = 0; i < whole.size(); ++i) alone[i].middleRows(row, group) = one[i].value;
  }
  const std::string place = group == 1 ? "each row alone, " : detail::text("each ", group, " rows alone, ");
  for (std::size_t i = 0; i < whole.size(); ++i) comparison.expect(place + whole[i].name, whole[i].value, alone[i]);
  return comparison.line();
}

template <Layer L>
ContractLine storage_orders(const Trial<L>& trial) {
  Comparison comparison(trial.tolerance);
  for (const auto& [name, mode] : contract_modes) {
    const Record expected = trial.everything(mode);
    for (const Lie inputs : every_lie)
      for (const Lie outputs : every_lie) {
        Stage<L> stage(trial.x, trial.dy, inputs, outputs);
        comparison.expect(detail::text(name, ", x and dx ", to_string(inputs), ", y and dy ", to_string(outputs)),
                          expected, trial.everything(mode, stage));
      }
  }
  return comparison.line();
}

template <Layer L>
ContractLine in_place(const Trial<L>& trial) {
  using Scalar = typename L::Scalar;
  if (trial.x.cols() != trial.dy.cols()) return skipped("the output has another shape than the input");
  Comparison comparison(trial.tolerance);
  for (const auto& [name, mode] : contract_modes) {
    const std::string mode_name = name;
    Stage<L> apart(trial.x, trial.dy), over(trial.x, trial.dy);
    L layer(trial.layer);
    apart.infer(layer);
    const Record inferred = output_of(apart);
    layer.infer(over.x.read(), over.x.map(), over.workspace);
    comparison.expect("infer, y is x", inferred, {recorded("y", over.x.read())});

    apart.forward(layer, mode);
    const Record outputs = output_of(apart);
    const Record gradients = backward_of(layer, apart);
    L other(trial.layer);
    apart.forward(other, mode);
    fill_gradients(other, Scalar(0));
    other.backward(apart.x.read(), over.dy.read(), over.dy.map());
    comparison.expect("backward after " + mode_name + ", dx is dy", gradients,
                      joined({recorded("dx", over.dy.read())}, gradients_of(other)));

    if (!trial.options.forward_in_place) continue;
    L third(trial.layer);
    Stage<L> replaced(trial.x, trial.dy);
    third.forward(replaced.x.read(), replaced.x.map(), mode);
    comparison.expect("forward in " + mode_name + ", y is x", outputs, {recorded("y", replaced.x.read())});
    comparison.expect("backward after " + mode_name + ", y in the place of x", gradients, backward_of(third, replaced));
  }
  return comparison.line();
}

template <Layer L>
ContractLine threads([[maybe_unused]] const Trial<L>& trial) {
#if defined(_OPENMP)
  using Scalar = typename L::Scalar;
  const Index width = (std::max)({Index{1}, trial.x.cols(), trial.dy.cols()});
  const Index rows = (std::max)(trial.x.rows(), 4 * parallel_threshold / width + 1);
  Matrix<Scalar> x(rows, trial.x.cols());
  for (Index i = 0; i < rows; ++i) x.row(i) = trial.x.row(i % trial.x.rows());
  const Matrix<Scalar> dy = trial.output_gradient(rows, trial.options.seed);
  const int given = omp_get_max_threads();
  const auto with = [&](int count, Mode mode) {
    omp_set_num_threads(count);
    Stage<L> stage(x, dy);
    Record record = trial.everything(mode, stage);
    omp_set_num_threads(given);
    return record;
  };
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes) {
    const Record expected = with(1, mode);
    for (const int count : {2, 3})
      comparison.expect(detail::text(name, ", ", count, " threads in place of 1"), expected, with(count, mode));
  }
  return comparison.line();
#else
  return skipped("compiled without OpenMP");
#endif
}

template <Layer L>
ContractLine allocations(const Trial<L>& trial) {
  if (trial.options.allocations == nullptr) return skipped("no counter of allocations given");
  Comparison comparison;
  for (const auto& [name, mode] : contract_modes)
    for (const Lie lie : {Lie::by_rows, Lie::by_columns}) {
      L layer(trial.layer);
      Stage<L> stage(trial.x, trial.dy, lie, lie);
      std::array<long, 4> counts{};
      for (int time = 0; time < 3; ++time) {  // the last one counts
        counts[0] = trial.options.allocations();
        stage.forward(layer, mode);
        counts[1] = trial.options.allocations();
        stage.backward(layer);
        counts[2] = trial.options.allocations();
        stage.infer(layer);
        counts[3] = trial.options.allocations();
      }
      constexpr std::array calls = {"forward", "backward", "infer"};
      for (std::size_t i = 0; i < calls.size(); ++i)
        if (counts[i + 1] != counts[i])
          comparison.differs(detail::text(name, ", ", to_string(lie), ", ", calls[i], ": expected 0 allocations, got ",
                                          counts[i + 1] - counts[i]));
    }
  return comparison.line();
}

}  // namespace evenkeel::checking
