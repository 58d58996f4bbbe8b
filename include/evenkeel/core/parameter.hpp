#pragma once

#include <cstdint>  // int64_t
#include <memory>   // construct_at, destroy_at
#include <span>
#include <string>       // names
#include <type_traits>  // is_const_v
#include <utility>      // move
#include <vector>

#include "evenkeel/core/types.hpp"  // Matrix, Index
#include "evenkeel/core/view.hpp"   // StridedMap

namespace evenkeel {

/// What a parameter does. Optimizers decay weights only, unless told otherwise.
enum class ParameterKind { weight, bias, norm_scale, norm_shift };

constexpr const char* to_string(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::weight:
      return "weight";
    case ParameterKind::bias:
      return "bias";
    case ParameterKind::norm_scale:
      return "norm_scale";
    case ParameterKind::norm_shift:
      return "norm_shift";
  }
  return "unknown";
}

/// Whether backward overwrites the gradients of parameters or adds to them (micro-batches).
enum class Accumulate { no, yes };

namespace detail {

/// Assignment of a view that holds Eigen maps, which by themselves would copy elements.
template <class V>
V& rebind(V& view, const V& other) {
  if (&view == &other) return view;
  std::destroy_at(&view);
  return *std::construct_at(&view, other);
}

}  // namespace detail

/// One parameter of a layer or network: its value and gradient, in PyTorch's logical shape (Linear's weight is out x in;
/// vectors are 1 x n) with run-time strides; the order in memory is not part of the contract. Valid as long as the
/// layer lives and stays where it is. Scalar is const where the layer is.
template <typename Scalar>
struct ParameterView {
  using Plain = std::remove_const_t<Scalar>;
  using Flat = std::conditional_t<std::is_const_v<Scalar>, const Eigen::Array<Plain, Eigen::Dynamic, 1>,
                                  Eigen::Array<Plain, Eigen::Dynamic, 1>>;

  ParameterView(std::string name_, StridedMap<Scalar> value_, StridedMap<Scalar> gradient_, ParameterKind kind_)
      : name(std::move(name_)), value(value_), gradient(gradient_), kind{kind_} {}
  ParameterView(const ParameterView&) = default;
  /// Looks at another parameter from now on: lists can be filtered and sorted. (Assigning `value` writes its elements.)
  ParameterView& operator=(const ParameterView& other) { return detail::rebind(*this, other); }

  std::string name;  ///< PyTorch's, with the path in front inside a network: "0.weight".
  StridedMap<Scalar> value;
  StridedMap<Scalar> gradient;  ///< Of the last backward; zero before any.
  ParameterKind kind;

  Index size() const { return value.size(); }

  /// All elements in the order in which they lie in memory.
  Eigen::Map<Flat> flat_value() const { return {const_cast<Scalar*>(value.data()), value.size()}; }
  Eigen::Map<Flat> flat_gradient() const { return {const_cast<Scalar*>(gradient.data()), gradient.size()}; }
};

/// Part of a layer's state that is not trained: running statistics, or a counter (then `value` has no elements). What is
/// written here is not checked. Scalar is const where the layer is.
template <typename Scalar>
struct BufferView {
  using Count = std::conditional_t<std::is_const_v<Scalar>, const std::int64_t, std::int64_t>;

  BufferView(std::string name_, StridedMap<Scalar> value_, Count* count_ = nullptr)
      : name(std::move(name_)), value(value_), count{count_} {}
  BufferView(const BufferView&) = default;
  BufferView& operator=(const BufferView& other) { return detail::rebind(*this, other); }

  std::string name;
  StridedMap<Scalar> value;
  Count* count;
  bool takes_non_finite = false;  ///< Whether NaN and infinity may stand in it, so that a file may hold them.
};

/// Whole numbers, beside parameters and buffers, that a layer's next training forward depends on: where its random numbers
/// are. With all three a copy goes on with the same bits. What is written here is not checked. Number is const where the
/// layer is.
template <typename Number>
struct StateView {
  std::string name;          ///< With the path in front inside a network: "3.call".
  std::span<Number> values;  ///< Of std::uint64_t.
  std::uint64_t most;        ///< That one of them may be.
};

/// The view of a parameter that a layer of one's own keeps in two Eigen matrices of the same shape, const or not.
template <class M>
auto parameter_view(std::string name, M& value, M& gradient, ParameterKind kind) {
  using Plain = typename M::Scalar;
  using Scalar = std::conditional_t<std::is_const_v<M>, const Plain, Plain>;
  return ParameterView<Scalar>(std::move(name), as_map(detail::view_of<Scalar>(value.data(), value)),
                               as_map(detail::view_of<Scalar>(gradient.data(), gradient)), kind);
}

template <typename Scalar>
using Parameters = std::vector<ParameterView<Scalar>>;
template <typename Scalar>
using Buffers = std::vector<BufferView<Scalar>>;
using TrainingState = std::vector<StateView<std::uint64_t>>;
using ConstTrainingState = std::vector<StateView<const std::uint64_t>>;

namespace detail {

/// In which order the elements of a two-dimensional parameter lie in memory.
enum class Layout { rows_together, columns_together };

/// The storage of one parameter and its gradient.
template <typename Scalar>
class Parameter {
 public:
  /// Starts at `fill`; an absent parameter (`present` false) is used by kernels like any other, but not shown.
  Parameter(const char* name, ParameterKind kind, Index rows, Index columns, Scalar fill, bool present = true,
            Layout layout = Layout::rows_together)
      : name_{name},
        kind_{kind},
        rows_{rows},
        columns_{columns},
        layout_{layout},
        present_{present},
        value_{Flat::Constant(rows * columns, fill)},
        gradient_{Flat::Zero(present ? rows * columns : 0)} {}

  bool present() const { return present_; }
  const Scalar* data() const { return value_.data(); }
  Scalar* data() { return value_.data(); }

  /// In the logical shape.
  View<Scalar> value() { return shaped(value_.data()); }
  View<const Scalar> value() const { return shaped(value_.data()); }
  View<Scalar> gradient() { return present_ ? shaped(gradient_.data()) : View<Scalar>{}; }

  void append_to(Parameters<Scalar>& list) {
    if (present_) list.push_back({name_, as_map(value()), as_map(gradient()), kind_});
  }
  void append_to(Parameters<const Scalar>& list) const {
    if (present_) list.push_back({name_, as_map(value()), as_map(shaped(gradient_.data())), kind_});
  }

  /// The same parameter in another scalar type.
  template <typename U>
  Parameter<U> cast() const {
    Parameter<U> result(name_, kind_, rows_, columns_, U{}, present_, layout_);
    result.value_ = value_.template cast<U>();
    result.gradient_ = gradient_.template cast<U>();
    return result;
  }

 private:
  template <typename>
  friend class Parameter;
  using Flat = Eigen::Array<Scalar, Eigen::Dynamic, 1>;

  template <typename S>
  View<S> shaped(S* data) const {
    return layout_ == Layout::rows_together ? View<S>{data, rows_, columns_, columns_, 1}
                                            : View<S>{data, rows_, columns_, 1, rows_};
  }

  const char* name_;      // PyTorch's, without a path
  ParameterKind kind_;    //
  Index rows_, columns_;  // the logical shape
  Layout layout_;         //
  bool present_;          // false: kernels see a constant, users see nothing
  Flat value_;            // rows x columns elements in order of memory
  Flat gradient_;         // the same, empty where not present
};

/// The parameters among these that are present.
template <typename Scalar, class... P>
auto parameter_views(P&... parameters) {
  Parameters<Scalar> list;
  (parameters.append_to(list), ...);
  return list;
}

}  // namespace detail
}  // namespace evenkeel
