#pragma once

#include <exception>
#include <string>
#include <utility>  // move

#include "evenkeel/checking/contract_report.hpp"   // ContractReport, ContractOptions
#include "evenkeel/checking/contract_trial.hpp"    // Trial
#include "evenkeel/checking/error_contracts.hpp"   // the contracts
#include "evenkeel/checking/output_contracts.hpp"  // likewise
#include "evenkeel/checking/state_contracts.hpp"   // likewise
#include "evenkeel/core/check.hpp"                 // not_negative, at_least
#include "evenkeel/core/error.hpp"                 // ShapeError
#include "evenkeel/core/view.hpp"                  // DenseOf
#include "evenkeel/network/layer.hpp"              // Layer, rows_per_example

namespace evenkeel {
namespace checking {

/// The line of one contract. What the layer throws where it should not breaks it.
template <Layer L>
ContractLine kept(ContractLine (*contract)(const Trial<L>&), const Trial<L>& trial) {
#if defined(__cpp_exceptions)
  try {
    return contract(trial);
  } catch (const std::exception& error) {
    return broken(std::string("threw: ") + error.what());
  }
#else
  return contract(trial);
#endif
}

template <Layer L>
ContractReport kept_contracts(const Trial<L>& trial) {
  const bool together = trial.options.eval_rows == EvalRows::together;
  ContractReport report;
  const auto add = [&](const char* name, ContractLine (*contract)(const Trial<L>&)) {
    const bool copies_differ = !report.lines.empty() && report.lines.front().verdict == ContractVerdict::fail;
    ContractLine line = copies_differ ? skipped("equal copies differ") : kept(contract, trial);
    line.contract = name;
    report.lines.push_back(std::move(line));
  };
  add("equal copies compute the same", repeats);
  add("outputs are overwritten", overwrites_outputs);
  add("nothing is written elsewhere", writes_nothing_else);
  add(together ? "rows in eval depend on their batch" : "rows in eval stand apart", rows_in_eval);
  add("every storage order gives the same", storage_orders);
  add("in place gives the same", in_place);
  add("any number of threads gives the same", threads);
  add("nothing is allocated after the first calls", allocations);
  add("backward overwrites gradients", overwrites_gradients);
  add("backward adds to gradients where told", accumulates);
  add("backward_parameters gives the same gradients", parameters_alone);
  add("backward repeats itself", repeats_backward);
  add("infer gives what forward gives in eval", infers);
  add("infer leaves a pending backward alone", infers_apart);
  add("state moves in training", state_moves);
  add("state rests in eval and infer", state_rests);
  add("parameters rest", parameters_rest);
  add("a copy shares nothing", copies);
  add("backward before any forward is an error", backward_first);
  add("wrong shapes are errors", wrong_shapes);
  add("an error leaves the layer as it was", errors_change_nothing);
  return report;
}

}  // namespace checking

/// Checks what a layer or network promises besides right gradients: that it can stand in a network, be trained in
/// micro-batches, copied, and shared by threads. (Gradients: check_gradients.)
///
///     const auto report = ek::check_contract(layer, x);
///     if (!report) std::cout << report;                  // one line a contract; in a test: CHECK(report)
///
/// Works on copies: the layer stays as it is, unless its copies share something, which the report then says. x is an
/// input such as the layer sees in training, of at least two rows, finite; it takes some hundred calls of its size, and with
/// OpenMP some of a size that runs on several threads. Optional members of the concept Layer are optional here.
///
///     contract                                       what is tried
///     equal copies compute the same                  two copies, the same bits; else nothing more can be tried
///     outputs are overwritten                        y and dx do not depend on what was in them
///     nothing is written elsewhere                   memory around x, y, dy, dx; x and dy themselves
///     rows in eval stand apart                       each row alone; see ContractOptions::eval_rows
///     every storage order gives the same             row-major, column-major, blocks, strides, in all pairs
///     in place gives the same                        infer with y being x, backward with dx being dy; forward_in_place
///     any number of threads gives the same           1, 2 and 3 of OpenMP's, the same bits
///     nothing is allocated after the first calls     ContractOptions::allocations
///     backward overwrites gradients                  from gradients that are not zero
///     backward adds to gradients where told          Accumulate::yes
///     backward_parameters gives the same gradients   as backward, with either Accumulate
///     backward repeats itself                        the same bits, also with another dy between
///     infer gives what forward gives in eval
///     infer leaves a pending backward alone          the same bits, infer of another size between
///     state moves in training                        one of buffers(), training_state() and calls() at least
///     state rests in eval and infer                  those, and what is not shown, seen in the training after it
///     parameters rest                                in forward, backward and infer
///     a copy shares nothing                          made between forward and backward, it goes on; neither sees the other
///     backward before any forward is an error        ContractOptions::errors
///     wrong shapes are errors                        the same
///     an error leaves the layer as it was            the same
///
/// Throws ShapeError for an x of less than two rows or examples, std::invalid_argument for options. What the layer throws where it
/// should not breaks the contract at hand.
template <Layer L, DenseOf<typename L::Scalar> X>
ContractReport check_contract(const L& layer, const X& x, const ContractOptions& options = {}) {
  if (options.tolerance) detail::not_negative(*options.tolerance, "check_contract", "tolerance");
  const Index together = options.rows_per_example.value_or(rows_per_example(layer));
  detail::at_least(1, together, "check_contract", "rows_per_example");
  if (x.rows() < 2 * together || x.rows() % together != 0 || x.cols() < 1) {
    if (together == 1)
      EVENKEEL_THROW(ShapeError, "check_contract: expected x of at least 2 rows and 1 column, got ",
                     detail::shape(x.rows(), x.cols()));
    EVENKEEL_THROW(ShapeError, "check_contract: expected x of two or more whole examples of ", together, " rows, got ",
                   detail::shape(x.rows(), x.cols()));
  }
  return checking::kept_contracts(checking::Trial<L>(layer, Matrix<typename L::Scalar>(x), options));
}

}  // namespace evenkeel
