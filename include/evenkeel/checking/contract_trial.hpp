#pragma once

#include <Eigen/Core>  // Array

#include <array>
#include <cstdint>  // uint64_t
#include <cstring>  // memcpy, memset
#include <exception>
#include <limits>  // epsilon
#include <string>
#include <utility>  // move

#include "evenkeel/checking/contract_record.hpp"  // Record
#include "evenkeel/checking/contract_report.hpp"  // ContractOptions, ContractLine
#include "evenkeel/checking/function.hpp"         // EveryOutput
#include "evenkeel/core/error.hpp"                // text, shape
#include "evenkeel/core/mode.hpp"                 // Mode
#include "evenkeel/core/types.hpp"                // Matrix, Index
#include "evenkeel/core/view.hpp"                 // View, StridedMap
#include "evenkeel/core/workspace.hpp"            // Workspace
#include "evenkeel/network/layer.hpp"             // Layer

/// What contracts are checked with: matrices whose surroundings are watched, the calls of a layer on them, and their
/// results.
namespace evenkeel::checking {

/// How a matrix lies in memory.
enum class Lie { by_rows, by_columns, block, gaps };

inline constexpr Lie every_lie[] = {Lie::by_rows, Lie::by_columns, Lie::block, Lie::gaps};

constexpr const char* to_string(Lie lie) {
  switch (lie) {
    case Lie::by_rows:
      return "row-major";
    case Lie::by_columns:
      return "column-major";
    case Lie::block:
      return "a block";
    case Lie::gaps:
      return "strided";
  }
  return "unknown";
}

/// A matrix in memory that is filled with a pattern (as numbers: NaN) before, behind and between its elements.
template <typename Scalar>
class Guarded {
 public:
  Guarded(const Matrix<Scalar>& values, Lie lie) : Guarded(values.rows(), values.cols(), lie) { map() = values; }
  Guarded(Index rows, Index columns, Lie lie) {
    constexpr Index more = 3;  // between rows
    view_ = {nullptr, rows, columns, columns, 1};
    if (lie == Lie::by_columns) view_ = {nullptr, rows, columns, 1, rows};
    if (lie == Lie::block) view_.row_stride = columns + more;
    if (lie == Lie::gaps) view_ = {nullptr, rows, columns, 2 * columns + more, 2};
    memory_.resize(2 * margin + rows * columns * 2 + rows * more);
    std::memset(static_cast<void*>(memory_.data()), pattern, bytes());
    view_.data = memory_.data() + margin;
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  StridedMap<Scalar> map() { return as_map(view_); }
  StridedMap<const Scalar> read() const { return as_map(View<const Scalar>(view_)); }

  /// Where something has been written outside of the matrix; empty if nowhere.
  std::string damage() const {
    Guarded clean(view_.rows, view_.columns, *this);
    for (std::size_t byte = 0; byte < bytes(); ++byte)
      if (reinterpret_cast<const unsigned char*>(clean.memory_.data())[byte] != pattern)
        return detail::text("written ", static_cast<Index>(byte / sizeof(Scalar)) - margin,
                            " places from its first element; it has the shape ",
                            detail::shape(view_.rows, view_.columns), " and the strides ",
                            detail::shape(view_.row_stride, view_.column_stride));
    return {};
  }

 private:
  static constexpr Index margin = 64;
  static constexpr unsigned char pattern = 0xFF;

  /// A copy in which the elements have the pattern too.
  Guarded(Index rows, Index columns, const Guarded& other) : view_{other.view_}, memory_(other.memory_.size()) {
    std::memcpy(static_cast<void*>(memory_.data()), other.memory_.data(), bytes());
    view_.data = memory_.data() + margin;
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j) std::memset(static_cast<void*>(&view_(i, j)), pattern, sizeof(Scalar));
  }

  std::size_t bytes() const { return static_cast<std::size_t>(memory_.size()) * sizeof(Scalar); }

  View<Scalar> view_;
  Eigen::Array<Scalar, Eigen::Dynamic, 1> memory_;
};

/// A batch and the gradient of its output, laid out in memory, with the calls of a layer on it. What a call is to write is
/// filled before it.
template <class L>
struct Stage {
  using Scalar = typename L::Scalar;

  Guarded<Scalar> x, dy, y, dx;
  Scalar fill;
  Workspace<Scalar> workspace;

  Stage(const Matrix<Scalar>& input, const Matrix<Scalar>& output_gradient, Lie inputs = Lie::by_rows,
        Lie outputs = Lie::by_rows, Scalar filled_with = Scalar(0))
      : x(input, inputs),
        dy(output_gradient, outputs),
        y(output_gradient.rows(), output_gradient.cols(), outputs),
        dx(input.rows(), input.cols(), inputs),
        fill{filled_with} {}

  void forward(L& layer, Mode mode) {
    y.map().setConstant(fill);
    layer.forward(x.read(), y.map(), mode);
  }
  void backward(L& layer) {
    dx.map().setConstant(fill);
    layer.backward(x.read(), dy.read(), dx.map());
  }
  void infer(const L& layer) {
    y.map().setConstant(fill);
    layer.infer(x.read(), y.map(), workspace);
  }
};

template <class L>
Record output_of(Stage<L>& stage) {
  return {recorded("y", stage.y.read())};
}
/// What a backward gives, from cleared gradients.
template <class L>
Record backward_of(L& layer, Stage<L>& stage) {
  fill_gradients(layer, typename L::Scalar(0));
  stage.backward(layer);
  return joined({recorded("dx", stage.dx.read())}, gradients_of(layer));
}
template <class L>
Record pass_of(L& layer, Stage<L>& stage, Mode mode) {
  stage.forward(layer, mode);
  const Record output = output_of(stage);
  return joined(output, backward_of(layer, stage));
}

/// What is checked: a layer, of which every contract takes fresh copies, and two batches of the same shape.
template <Layer L>
struct Trial {
  using Scalar = typename L::Scalar;

  const L& layer;
  ContractOptions options;  // checked
  long double tolerance;
  Index rows_per_example;
  Matrix<Scalar> x, dy;
  Matrix<Scalar> other_x, other_dy;

  Trial(const L& layer_, const Matrix<Scalar>& x_, const ContractOptions& options_)
      : layer{layer_},
        options{options_},
        tolerance{options.tolerance ? static_cast<long double>(*options.tolerance)
                                    : 64 * static_cast<long double>(std::numeric_limits<Scalar>::epsilon())},
        rows_per_example{options.rows_per_example.value_or(evenkeel::rows_per_example(layer))},
        x{x_},
        dy{output_gradient(x.rows(), options.seed)},
        other_x{x.colwise().reverse() * Scalar(0.75)},
        other_dy{output_gradient(x.rows(), options.seed + 1)} {}

  Matrix<Scalar> output_gradient(Index rows, std::uint64_t seed) const {
    const Matrix<Scalar> y(rows, layer.output_features(x.cols()));
    return EveryOutput<Scalar>().gradient(y, EveryOutput<Scalar>::weights(seed, y.size()));
  }

  /// infer, and then forward and backward, of a fresh copy.
  Record everything(Mode mode, Stage<L>& stage) const {
    L copy(layer);
    stage.infer(copy);
    const Record inferred = {recorded("y of infer", stage.y.read())};
    return joined(inferred, pass_of(copy, stage, mode));
  }
  Record everything(Mode mode) const {
    Stage<L> stage(x, dy);
    return everything(mode, stage);
  }
};

struct NamedMode {
  const char* name;
  Mode mode;
};
inline constexpr std::array<NamedMode, 2> contract_modes{{{"train", Mode::train}, {"eval", Mode::eval}}};

inline ContractLine skipped(std::string reason) { return {{}, ContractVerdict::skipped, std::move(reason)}; }
inline ContractLine broken(std::string how) { return {{}, ContractVerdict::fail, std::move(how)}; }

}  // namespace evenkeel::checking
