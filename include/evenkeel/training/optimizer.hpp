#pragma once

#include <algorithm>    // max, min
#include <array>        // pieces, lines of the report
#include <concepts>     // convertible_to
#include <cstddef>      // size_t
#include <cstdint>      // int64_t
#include <functional>   // function
#include <limits>       // the most steps
#include <ostream>      // operator<<
#include <string>       // names
#include <string_view>  // lookup by name
#include <tuple>        // tuple_size_v
#include <utility>      // move, as_const
#include <vector>

#include "evenkeel/core/check.hpp"      // is_finite
#include "evenkeel/core/error.hpp"      // EVENKEEL_THROW
#include "evenkeel/core/parallel.hpp"   // parallel_for
#include "evenkeel/core/parameter.hpp"  // Parameters
#include "evenkeel/core/types.hpp"      // Matrix, Real

namespace evenkeel {

/// Which parameters `weight_decay` applies to: those of kind weight, or also biases and the scales and shifts of norms,
/// as PyTorch does unless told otherwise.
enum class Decay { weights, everything };

/// What a group's predicate sees of a parameter.
struct ParameterInfo {
  std::string name;    ///< With the path in front: "0.weight".
  ParameterKind kind;  ///< What it does, whatever its name or shape.
  Index rows;          ///< Of the logical shape.
  Index columns;       ///< Of the logical shape.
};

/// Parameters that get options of their own.
template <class Options>
struct ParameterGroup {
  std::string name;                                    ///< For messages and the report.
  std::function<bool(const ParameterInfo&)> contains;  ///< Asked once a parameter, at construction.
  Options options = {};                                ///< All of them: nothing is taken over from the rest.
};

/// What an optimizer remembers from step to step: a plain value that shares nothing with the optimizer.
template <typename Scalar>
struct OptimizerState {
  struct Moment {
    std::string name;      ///< The parameter's name and PyTorch's name of the moment: "0.weight.exp_avg".
    Matrix<Scalar> value;  ///< In the parameter's logical shape.
  };

  std::int64_t steps = 0;       ///< Taken so far. At least 0.
  std::vector<Moment> moments;  ///< Parameter by parameter, in the network's order.

  /// The moment of this name. Throws std::invalid_argument if there is none.
  const Matrix<Scalar>& at(std::string_view name) const {
    for (const Moment& moment : moments)
      if (moment.name == name) return moment.value;
    EVENKEEL_THROW(std::invalid_argument, "OptimizerState::at: expected the name of a moment, got \"", name, '"');
  }
  Matrix<Scalar>& at(std::string_view name) { return const_cast<Matrix<Scalar>&>(std::as_const(*this).at(name)); }
};

/// What an optimizer does to each parameter. Prints itself as a table.
struct DecayReport {
  struct Row {
    ParameterInfo parameter;
    std::string group;     ///< "rest" for parameters in no group.
    double learning_rate;  ///< Before the schedule's factor.
    double weight_decay;   ///< 0: not decayed, printed as "-".
  };

  std::string optimizer;  ///< "AdamW".
  std::int64_t steps;     ///< Taken so far.
  std::vector<Row> rows;  ///< In the network's order.

  std::string text() const { return detail::text(*this); }

  friend std::ostream& operator<<(std::ostream& out, const DecayReport& report) {
    using Line = std::array<std::string, 6>;
    std::vector<Line> lines{{"parameter", "shape", "kind", "group", "learning rate", "weight decay"}};
    for (const Row& row : report.rows)
      lines.push_back({row.parameter.name, detail::shape(row.parameter.rows, row.parameter.columns),
                       to_string(row.parameter.kind), row.group, detail::text(row.learning_rate),
                       row.weight_decay > 0 ? detail::text(row.weight_decay) : "-"});
    std::array<std::size_t, 6> width{};
    for (const Line& line : lines)
      for (std::size_t i = 0; i < line.size(); ++i) width[i] = (std::max)(width[i], line[i].size());

    std::string table = detail::text(report.optimizer, ", steps taken: ", report.steps, '\n');
    for (const Line& line : lines) {
      for (std::size_t i = 0; i + 1 < line.size(); ++i)
        table += line[i] + std::string(width[i] - line[i].size() + 2, ' ');
      table += line.back() + '\n';
    }
    return out << table;
  }
};

/// Anything that lists its parameters: a layer, a network, or a type of one's own.
template <class Network, typename Scalar>
concept HasParameters = requires(Network& network) {
  { network.parameters() } -> std::convertible_to<Parameters<Scalar>>;
};

namespace kernels {

/// An update works on pieces of a parameter that stay in cache, each in a row of loops without branches, which the
/// compilers vectorize. One piece of intermediate results:
template <typename Scalar>
using Piece = std::array<Scalar, 256>;

/// Calls body(first, count) for consecutive pieces of `size` elements.
template <class Body>
void for_each_piece(Index size, const Body& body) {
  constexpr Index most = std::tuple_size_v<Piece<char>>;
  parallel_for((size + most - 1) / most, size,
               [&](Index piece) { body(piece * most, (std::min)(most, size - piece * most)); });
}

}  // namespace kernels

namespace detail {

/// One parameter as an optimizer sees it: flat memory, the same order for value, gradient and moments.
template <typename Scalar>
struct TrainedParameter {
  using Flat = Eigen::Array<Scalar, Eigen::Dynamic, 1>;

  ParameterInfo info;
  Scalar* value;
  const Scalar* gradient;
  Index size;
  Index row_stride, column_stride;  // of the logical shape, in memory
  std::size_t group;                // its place in the list of groups
  double weight_decay;              // 0: not decayed
  std::vector<Flat> moments;        // zero before the first step

  /// A moment in the logical shape.
  StridedMap<Scalar> shaped(Flat& moment) const {
    return as_map(View<Scalar>{moment.data(), info.rows, info.columns, row_stride, column_stride});
  }
  StridedMap<const Scalar> shaped(const Flat& moment) const {
    return as_map(View<const Scalar>{moment.data(), info.rows, info.columns, row_stride, column_stride});
  }
};

/// Whether the elements lie in memory without gaps, row after row or column after column.
template <class Map>
bool rows_together(const Map& map) {
  return (map.cols() == 1 || map.innerStride() == 1) && (map.rows() == 1 || map.outerStride() == map.cols());
}
template <class Map>
bool columns_together(const Map& map) {
  return (map.rows() == 1 || map.outerStride() == 1) && (map.cols() == 1 || map.innerStride() == map.rows());
}

}  // namespace detail

namespace detail {

/// The type of a network's parameters: float where its data are halves.
template <class Network>
using ParameterNumber = typename std::remove_cvref_t<decltype(std::declval<Network&>().parameters()[0].value)>::Scalar;

}  // namespace detail

/// What all optimizers have in common: parameters in groups, the step counter, the state and the report. A final class
/// derives from it and gives its name, the checks of its options, the names of its moments, the numbers of a step and the
/// update.
///
/// An optimizer refers to the parameters that the network has at construction: the network must outlive it and stay where
/// it is. Values may be written in between (loading weights in place); the next step moves the new ones. An optimizer can
/// be moved, not copied: two could not both train one network. After construction no step allocates.
template <class Derived, Real Scalar_, class Options_>
class Optimizer {
 public:
  using Scalar = Scalar_;
  using Options = Options_;
  using Group = ParameterGroup<Options>;
  using State = OptimizerState<Scalar>;

  /// A parameter gets the options of the first group that contains it, and `options` where none does. Throws
  /// std::invalid_argument if an option is out of its bounds, a group contains no parameter or there are none at all.
  template <class Network>
  requires HasParameters<Network, Scalar>
  explicit Optimizer(Network& network, Options options = {}, std::vector<Group> groups = {})
      : Optimizer(Parameters<Scalar>(network.parameters()), std::move(options), std::move(groups)) {}

  /// The same for a list of parameters: of several networks, or of a part of one.
  explicit Optimizer(const Parameters<Scalar>& parameters, Options options = {}, std::vector<Group> groups = {})
      : groups_{std::move(groups)} {
    groups_.push_back({"rest", [](const ParameterInfo&) { return true; }, std::move(options)});
    for (std::size_t i = 0; i < groups_.size(); ++i) check_group(groups_[i], i + 1 == groups_.size());

    std::vector<bool> used(groups_.size(), false);
    for (const ParameterView<Scalar>& parameter : parameters) {
      parameters_.push_back(trained(parameter));
      used[parameters_.back().group] = true;
    }
    if (parameters_.empty())
      EVENKEEL_THROW(std::invalid_argument, Derived::name, ": expected parameters to train, got none");
    for (std::size_t i = 0; i + 1 < groups_.size(); ++i)
      if (!used[i])
        EVENKEEL_THROW(std::invalid_argument, Derived::name, ": expected group \"", groups_[i].name,
                       "\" to be the first that contains some parameter, got none");
  }

  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// Moves every parameter by its gradient. `factor` comes from the schedule and multiplies each group's learning rate;
  /// with 0 the moments move and the parameters keep every bit. Throws std::invalid_argument, with nothing moved, unless
  /// it is finite and >= 0.
  void step(double factor = 1) {
    if (!detail::is_finite(factor) || !(factor >= 0))
      EVENKEEL_THROW(std::invalid_argument, Derived::name, "::step: expected a finite factor >= 0, got ", factor);
    if (steps_ < (std::numeric_limits<std::int64_t>::max)()) ++steps_;  // a file may say any number
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      const Options& options = groups_[group].options;
      const double rate = factor * options.learning_rate;
      const auto numbers = Derived::step_numbers(options, rate, steps_);
      for (detail::TrainedParameter<Scalar>& parameter : parameters_)
        if (parameter.group == group) Derived::update(parameter, numbers, rate);
    }
  }

  /// Taken so far, those before a loaded state included.
  std::int64_t steps() const { return steps_; }

  State state() const {
    State state{steps_, {}};
    for_each_moment(*this, [&state](const auto& parameter, const auto& name, const auto& moment) {
      state.moments.push_back({name, parameter.shaped(moment)});
    });
    return state;
  }

  /// Continues from a state as if its steps had been taken here: the same bits. Throws std::invalid_argument, with nothing
  /// changed, unless it has this optimizer's moments, in this order and these shapes, and a step count >= 0.
  void load_state(const State& state) {
    check_state(state);
    auto given = state.moments.begin();
    for_each_moment(*this, [&given](const auto& parameter, const auto&, auto& moment) {
      parameter.shaped(moment) = (given++)->value;
    });
    steps_ = state.steps;
  }

  /// Forgets everything: the next step is that of a fresh optimizer.
  void reset() {
    for_each_moment(*this, [](const auto&, const auto&, auto& moment) { moment.setZero(); });
    steps_ = 0;
  }

  /// What is decayed, and how: `std::cout << optimizer.report()`.
  DecayReport report() const {
    DecayReport report{Derived::name, steps_, {}};
    for (const auto& parameter : parameters_) {
      const Group& group = groups_[parameter.group];
      report.rows.push_back({parameter.info, group.name, group.options.learning_rate, parameter.weight_decay});
    }
    return report;
  }

 private:
  static void check_group(const Group& group, bool rest) {
    const std::string place = rest ? Derived::name : detail::text(Derived::name, ", group \"", group.name, '"');
    if (!group.contains) EVENKEEL_THROW(std::invalid_argument, place, ": expected a predicate, got none");
    Derived::check(group.options, place.c_str());
  }

  detail::TrainedParameter<Scalar> trained(const ParameterView<Scalar>& parameter) const {
    const auto& value = parameter.value;
    const auto& gradient = parameter.gradient;
    if (gradient.rows() != value.rows() || gradient.cols() != value.cols())
      EVENKEEL_THROW(ShapeError, Derived::name, ": expected a gradient of \"", parameter.name, "\" of shape ",
                     detail::shape(value.rows(), value.cols()), ", got ",
                     detail::shape(gradient.rows(), gradient.cols()));
    if (!(detail::rows_together(value) && detail::rows_together(gradient)) &&
        !(detail::columns_together(value) && detail::columns_together(gradient)))
      EVENKEEL_THROW(std::invalid_argument, Derived::name, ": expected value and gradient of \"", parameter.name,
                     "\" in the same order in memory and without gaps, got other strides");

    ParameterInfo info{parameter.name, parameter.kind, value.rows(), value.cols()};
    std::size_t group = 0;
    while (!groups_[group].contains(info)) ++group;
    const Options& options = groups_[group].options;
    const bool decayed = options.decay == Decay::everything || info.kind == ParameterKind::weight;
    using Flat = typename detail::TrainedParameter<Scalar>::Flat;
    std::vector<Flat> moments(Derived::moment_names(options).size(), Flat::Zero(value.size()));
    return {std::move(info),
            const_cast<Scalar*>(value.data()),
            gradient.data(),
            value.size(),
            value.outerStride(),
            value.innerStride(),
            group,
            decayed ? options.weight_decay : 0,
            std::move(moments)};
  }

  void check_state(const State& state) const {
    const auto fail = [](const std::string& expected, const std::string& got) {
      EVENKEEL_THROW(std::invalid_argument, Derived::name, "::load_state: expected ", expected, ", got ", got);
    };
    const auto described = [](const std::string& name, const auto& value) {
      return detail::text('"', name, "\" of shape ", detail::shape(value.rows(), value.cols()));
    };
    if (state.steps < 0) fail("steps >= 0", detail::text(state.steps));
    auto given = state.moments.begin();
    for_each_moment(*this, [&](const auto& parameter, const auto& name, const auto& moment) {
      const auto shaped = parameter.shaped(moment);
      if (given == state.moments.end()) fail(described(name, shaped), "nothing");
      if (given->name != name || given->value.rows() != shaped.rows() || given->value.cols() != shaped.cols())
        fail(described(name, shaped), described(given->name, given->value));
      ++given;
    });
    if (given != state.moments.end()) fail("no more moments", described(given->name, given->value));
  }

  /// Calls body(parameter, name of the moment, moment), in the order of the state.
  template <class Self, class Body>
  static void for_each_moment(Self& self, const Body& body) {
    for (auto& parameter : self.parameters_) {
      const auto names = Derived::moment_names(self.groups_[parameter.group].options);
      for (std::size_t i = 0; i < names.size(); ++i)
        body(parameter, parameter.info.name + '.' + names[i], parameter.moments[i]);
    }
  }

  std::vector<Group> groups_;                                 // the last is the rest
  std::vector<detail::TrainedParameter<Scalar>> parameters_;  // in the network's order, at least one
  std::int64_t steps_ = 0;                                    // never in a Scalar, which would stop counting
};

}  // namespace evenkeel
