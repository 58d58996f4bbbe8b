#pragma once

#include <algorithm>  // all_of, copy, fill, min
#include <cstddef>    // byte, size_t
#include <cstdint>    // int64_t, uint64_t
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>  // conditional_t, remove_const_t
#include <utility>      // move
#include <vector>

#include "evenkeel/core/check.hpp"      // is_finite
#include "evenkeel/core/error.hpp"      // FormatError
#include "evenkeel/core/parameter.hpp"  // ParameterKind
#include "evenkeel/core/types.hpp"      // Arithmetic, Matrix, Real
#include "evenkeel/core/view.hpp"       // View
#include "evenkeel/io/tensor.hpp"       // Tensor

namespace evenkeel {

/// What did not fit when a file was loaded, by the file's names; both empty after a strict load.
struct LoadedKeys {
  std::vector<std::string> missing;     ///< Wanted, and not in the file: left as they were.
  std::vector<std::string> unexpected;  ///< In the file, and not wanted: not looked at.
};

namespace detail {

/// A place in memory that one tensor of a file is written from or, where Scalar is not const, read into: floating-point
/// numbers or whole ones.
template <typename Scalar>
struct Slot {
  using Whole = std::conditional_t<std::is_const_v<Scalar>, const std::uint64_t, std::uint64_t>;

  std::string key;
  TensorShape shape;
  View<Scalar> numbers{};
  std::span<Whole> whole{};
  TensorType whole_type = TensorType::u64;
  std::uint64_t most = 0;     // that a whole number may be
  bool finite = false;        // what all numbers must be
  bool variance = false;      // and not negative
  std::span<Whole> zeroed{};  // whole numbers elsewhere that mean nothing any more once this one is read

  bool is_whole() const { return whole.data() != nullptr; }
};

template <typename Scalar>
using Slots = std::vector<Slot<Scalar>>;

/// What a slot holds instead of a number such as this one; empty if it may hold it.
template <typename Scalar>
std::string held_instead(const Slot<Scalar>& slot, std::remove_const_t<Scalar> number) {
  if (slot.finite && !is_finite(number)) return slot.variance ? "finite variances >= 0" : "finite statistics";
  if (slot.variance && number < 0) return slot.finite ? "finite variances >= 0" : "variances >= 0 or NaN";
  return {};
}
template <typename Scalar>
std::string whole_held_instead(const Slot<Scalar>& slot, std::uint64_t number) {
  return number > slot.most ? text("whole numbers from 0 to ", slot.most) : std::string();
}
/// A whole number, for a message.
template <typename Scalar>
std::string whole_text(const Slot<Scalar>& slot, std::uint64_t number) {
  return slot.whole_type == TensorType::i64 ? text(static_cast<std::int64_t>(number)) : text(number);
}

/// PyTorch's shape of what is shown as a matrix: biases, and the scales, shifts and statistics of norms, are vectors.
inline TensorShape shape_of(Index rows, Index columns, bool vector) {
  const auto size = [](Index n) { return static_cast<std::uint64_t>(n); };
  if (vector && rows == 1) return {size(columns)};
  return {size(rows), size(columns)};
}

/// A counter, signed in memory and never negative.
template <typename Scalar, typename Count>
Slot<Scalar> count_slot(std::string key, Count* count) {
  // A signed integer may be looked at as the unsigned one of its size ([basic.lval]).
  using Whole = typename Slot<Scalar>::Whole;
  return {.key = std::move(key),
          .shape = {},
          .whole = {reinterpret_cast<Whole*>(count), 1},
          .whole_type = TensorType::i64,
          .most = (std::uint64_t{1} << 63) - 1};
}

/// The type of a layer's or network's parameters and running statistics: float where its data are halves.
template <class Network>
using NumberOf = Arithmetic<typename Network::Scalar>;

/// Adds the parameters and buffers of a layer or network.
template <typename Scalar, class Network>
void add_network(Slots<Scalar>& slots, Network& network, const std::string& prefix) {
  if constexpr (requires { network.parameters(); })
    for (const ParameterView<Scalar>& parameter : network.parameters()) {
      const auto& value = parameter.value;
      slots.push_back({.key = prefix + parameter.name,
                       .shape = shape_of(value.rows(), value.cols(), parameter.kind != ParameterKind::weight),
                       .numbers = view_of<Scalar>(const_cast<Scalar*>(value.data()), value)});
    }
  if constexpr (requires { network.buffers(); })
    for (const BufferView<Scalar>& buffer : network.buffers()) {
      const auto& value = buffer.value;
      if (buffer.count != nullptr)
        slots.push_back(count_slot<Scalar>(prefix + buffer.name, buffer.count));
      else
        slots.push_back({.key = prefix + buffer.name,
                         .shape = shape_of(value.rows(), value.cols(), true),
                         .numbers = view_of<Scalar>(const_cast<Scalar*>(value.data()), value),
                         .finite = !buffer.takes_non_finite,
                         .variance = buffer.name.ends_with("running_var")});
    }
}

/// Adds what else the next training forward depends on.
template <typename Scalar, class Network>
void add_training_state(Slots<Scalar>& slots, Network& network, const std::string& prefix) {
  if constexpr (requires { network.training_state(); })
    for (const auto& state : network.training_state())
      slots.push_back(
          {.key = prefix + state.name, .shape = {state.values.size()}, .whole = state.values, .most = state.most});
}

/// A file of a network alone tells how many batches there were and not which of them a channel left out: where the one is
/// read, the other starts anew.
template <typename Scalar, class Network>
void forget_left_out(Slots<Scalar>& slots, Network& network, const std::string& prefix) {
  constexpr std::string_view counts = "non_finite";  // beside "num_batches_tracked"
  if constexpr (requires { network.training_state(); })
    for (const auto& state : network.training_state()) {
      if (!state.name.ends_with(counts)) continue;
      const std::string path = state.name.substr(0, state.name.size() - counts.size());
      for (Slot<Scalar>& slot : slots)
        if (slot.key == prefix + path + "num_batches_tracked") slot.zeroed = state.values;
    }
}

/// Forgets running statistics that were prepared before a load: committed after it they would undo it.
template <class Network>
void discard_prepared(Network& network) {
  if constexpr (requires { network.discard_statistics(); }) network.discard_statistics();
}

/// Throws std::invalid_argument where two slots have one key.
template <typename Scalar>
void check_distinct(const Slots<Scalar>& slots, const char* place) {
  std::set<std::string_view> keys;
  for (const Slot<Scalar>& slot : slots)
    if (!keys.insert(slot.key).second)
      EVENKEEL_THROW(std::invalid_argument, place, ": expected distinct names, got ", in_quotes(slot.key), " twice");
}

/// What a slot holds, as a tensor of a file in the memory of `bytes`; floating-point numbers in the type that is given.
/// Throws std::invalid_argument for numbers that could not be read again.
template <typename Scalar>
Tensor tensor_from(const Slot<Scalar>& slot, TensorType floating, std::vector<std::byte>& bytes, const char* place) {
  const auto check = [&](const std::string& expected, const auto& got) {
    if (!expected.empty())
      EVENKEEL_THROW(std::invalid_argument, place, ": expected ", expected, " in ", in_quotes(slot.key), ", got ", got);
  };
  for (const std::uint64_t number : slot.whole) {
    check(whole_held_instead(slot, number), whole_text(slot, number));
    append_number(bytes, number);
  }
  for (Index i = 0; i < slot.numbers.rows; ++i)
    for (Index j = 0; j < slot.numbers.columns; ++j) {
      const Scalar number = slot.numbers(i, j);
      check(held_instead(slot, number), number);
      if (!append_floating(bytes, floating, number))
        EVENKEEL_THROW(std::invalid_argument, place, ": expected numbers that ", to_string(floating), " can hold in ",
                       in_quotes(slot.key), ", got ", number);
    }
  return {slot.key, slot.is_whole() ? slot.whole_type : floating, slot.shape, bytes};
}

/// The numbers of a tensor of floating type, row by row.
/// Throws FormatError for another type, and for finite numbers that Scalar cannot hold.
template <Real Scalar>
Matrix<Scalar> floating_numbers(const Tensor& tensor, Index rows, Index columns, const std::string& place) {
  if (!is_floating(tensor.type))
    EVENKEEL_THROW(FormatError, place, "expected type F64, F32, F16 or BF16, got ", to_string(tensor.type));
  Matrix<Scalar> numbers(rows, columns);
  for (Index i = 0; i < numbers.size(); ++i) {
    const double number = floating_at(tensor.type, tensor.bytes, static_cast<std::size_t>(i));
    numbers.data()[i] = static_cast<Scalar>(number);
    if (is_finite(number) && !is_finite(numbers.data()[i]))
      EVENKEEL_THROW(FormatError, place, "expected numbers that a float can hold, got ", number);
  }
  return numbers;
}

/// What a slot is going to hold.
template <typename Scalar>
struct NewContent {
  Matrix<Scalar> numbers;
  std::vector<std::uint64_t> whole;
};

/// The content of a tensor, for a slot. Throws FormatError if it does not fit.
template <typename Scalar>
NewContent<Scalar> content_for(const Slot<Scalar>& slot, const Tensor& tensor, const std::string& source) {
  const std::string place = text(source, ": tensor ", in_quotes(tensor.name), ": ");
  if (tensor.shape != slot.shape)
    EVENKEEL_THROW(FormatError, place, "expected shape ", shape(slot.shape), ", got ", shape(tensor.shape));
  NewContent<Scalar> content;
  if (slot.is_whole()) {
    if (tensor.type != slot.whole_type)
      EVENKEEL_THROW(FormatError, place, "expected type ", to_string(slot.whole_type), ", got ",
                     to_string(tensor.type));
    for (std::size_t i = 0; i < slot.whole.size(); ++i) {
      content.whole.push_back(number_at<std::uint64_t>(tensor.bytes, i));
      const std::string expected = whole_held_instead(slot, content.whole.back());
      if (!expected.empty())
        EVENKEEL_THROW(FormatError, place, "expected ", expected, ", got ", whole_text(slot, content.whole.back()));
    }
    return content;
  }
  content.numbers = floating_numbers<Scalar>(tensor, slot.numbers.rows, slot.numbers.columns, place);
  for (const Scalar number : content.numbers.template reshaped<Eigen::RowMajor>())
    if (const std::string expected = held_instead(slot, number); !expected.empty())
      EVENKEEL_THROW(FormatError, place, "expected ", expected, ", got ", number);
  return content;
}

/// The names, for a message.
inline std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 20;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) list += (i > 0 ? ", " : " ") + in_quotes(names[i]);
  if (names.size() > most) list += text(" and ", names.size() - most, " more");
  return names.empty() ? " none" : list;
}

/// What a loader of safetensors should be told where all that is missing is there behind a prefix.
inline std::string prefix_hint(const LoadedKeys& keys, std::string_view place) {
  if (keys.missing.empty() || place != "load_safetensors") return {};
  const std::set<std::string> unexpected(keys.unexpected.begin(), keys.unexpected.end());
  for (const std::string& name : unexpected) {
    if (!name.ends_with(keys.missing.front())) continue;
    const std::string prefix = name.substr(0, name.size() - keys.missing.front().size());
    const bool all = std::all_of(keys.missing.begin(), keys.missing.end(),
                                 [&](const std::string& missing) { return unexpected.contains(prefix + missing); });
    if (all) return text("; all that is missing is there with .prefix = \"", prefix, "\"");
  }
  return {};
}

/// Reads tensors into the slots of their names: all of it, or nothing where it throws FormatError. Tensors whose names do
/// not begin with the prefix are not looked at.
template <typename Scalar>
LoadedKeys load_into(const Slots<Scalar>& slots, std::span<const Tensor> tensors, const std::string& source,
                     const std::string& prefix, bool strict, const char* place) {
  check_distinct(slots, place);
  std::map<std::string_view, const Tensor*> unused;
  for (const Tensor& tensor : tensors)
    if (tensor.name.starts_with(prefix)) unused[tensor.name] = &tensor;
  LoadedKeys keys;
  std::vector<const Tensor*> found;  // for each slot, null for none
  for (const Slot<Scalar>& slot : slots) {
    const auto entry = unused.find(slot.key);
    found.push_back(entry == unused.end() ? nullptr : entry->second);
    if (found.back() == nullptr)
      keys.missing.push_back(slot.key);
    else
      unused.erase(entry);
  }
  for (const auto& entry : unused) keys.unexpected.emplace_back(entry.first);
  if (strict && !(keys.missing.empty() && keys.unexpected.empty()))
    EVENKEEL_THROW(FormatError, source, ": expected the ", slots.size(),
                   " tensors that are to be loaded; missing:", listed(keys.missing),
                   "; unexpected:", listed(keys.unexpected), prefix_hint(keys, place));

  std::vector<NewContent<Scalar>> contents(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (found[i] != nullptr) contents[i] = content_for(slots[i], *found[i], source);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (found[i] == nullptr) continue;
    if (!slots[i].is_whole()) as_map(slots[i].numbers) = contents[i].numbers;
    std::copy(contents[i].whole.begin(), contents[i].whole.end(), slots[i].whole.begin());
    std::fill(slots[i].zeroed.begin(), slots[i].zeroed.end(), std::uint64_t{0});
  }
  return keys;
}

}  // namespace detail
}  // namespace evenkeel
