#pragma once

#include <cstdint>  // int64_t, uint64_t
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "evenkeel/core/parameter.hpp"       // ParameterKind
#include "evenkeel/core/view.hpp"            // View
#include "evenkeel/io/safetensors.hpp"       // save_slots
#include "evenkeel/io/safetensors_file.hpp"  // SafetensorsFile
#include "evenkeel/io/slot.hpp"              // Slots, load_into
#include "evenkeel/training/batches.hpp"     // Batches
#include "evenkeel/training/optimizer.hpp"   // ParameterInfo

/// A training that is stopped and goes on. Needs nlohmann-json, as safetensors.hpp does.
namespace evenkeel {
namespace detail {

/// What a checkpoint keeps of an optimizer.
template <class Optimizer>
class OptimizerPart {
 public:
  explicit OptimizerPart(const Optimizer& optimizer) : state_{optimizer.state()} {
    for (const auto& row : optimizer.report().rows) parameters_.push_back(row.parameter);
  }

  template <typename Scalar>
  void add_to(Slots<Scalar>& slots) {
    slots.push_back(count_slot<Scalar>("optimizer.step", &state_.steps));
    auto parameter = parameters_.begin();  // whose moments come next, as both are in the network's order
    for (auto& moment : state_.moments) {
      while (!moment.name.starts_with(parameter->name + '.')) ++parameter;
      auto& value = moment.value;
      slots.push_back({.key = "optimizer." + moment.name,
                       .shape = shape_of(value.rows(), value.cols(), parameter->kind != ParameterKind::weight),
                       .numbers = View<Scalar>{value.data(), value.rows(), value.cols(), value.cols(), 1}});
    }
  }
  void give_to(Optimizer& optimizer) const { optimizer.load_state(state_); }

 private:
  typename Optimizer::State state_;
  std::vector<ParameterInfo> parameters_;
};

/// The same of the order of the examples.
class BatchesPart {
 public:
  explicit BatchesPart(const Batches& batches) : taken_{batches.taken()}, most_{batches.most_taken()} {}

  template <typename Scalar>
  void add_to(Slots<Scalar>& slots) {
    slots.push_back(count_slot<Scalar>("batches.taken", &taken_));
    slots.back().most = static_cast<std::uint64_t>(most_);
  }
  void give_to(Batches& batches) const { batches.skip_to(taken_); }

 private:
  std::int64_t taken_;
  std::int64_t most_;
};

template <class Optimizer>
OptimizerPart<Optimizer> checkpoint_part(const Optimizer& optimizer) {
  return OptimizerPart<Optimizer>(optimizer);
}
inline BatchesPart checkpoint_part(const Batches& batches) { return BatchesPart(batches); }

template <typename Scalar, class Network, class Parts>
Slots<Scalar> checkpoint_slots(Network& network, Parts& parts) {
  Slots<Scalar> slots;
  add_network(slots, network, "model.");
  add_training_state(slots, network, "training.");
  std::apply([&](auto&... part) { (part.add_to(slots), ...); }, parts);
  return slots;
}

}  // namespace detail

/// Writes all that training needs to go on where it is, in one file: the network with the state of its random numbers, and
/// any of an optimizer and a Batches.
///
///     ek::save_checkpoint("run.safetensors", net, optimizer, batches);
///     ek::load_checkpoint("run.safetensors", net, optimizer, batches);   // the same bits as without a stop
///
/// Names   "model." before the network's, so that load_safetensors(path, net, {.prefix = "model."}) reads the weights alone;
///         "training.3.seed", "training.3.call" of a dropout, "training.1.non_finite" of a BatchNorm; "optimizer.step",
///         "optimizer.0.weight.exp_avg"; "batches.taken".
/// Statistics that are prepared and not committed are not kept, neither here nor by a load.
/// Options are not kept: load into objects that were made with the same ones. A long double is rounded to F64.
/// Throws what save_safetensors throws.
template <class Network, class... Parts>
void save_checkpoint(const std::filesystem::path& path, const Network& network, const Parts&... parts) {
  using Scalar = detail::NumberOf<Network>;
  std::tuple kept{detail::checkpoint_part(parts)...};
  detail::save_slots<Scalar>(path, detail::checkpoint_slots<const Scalar>(network, kept), {}, "save_checkpoint");
}

/// Reads a checkpoint of the same parts. Throws what load_safetensors throws, with nothing changed anywhere, unless all that
/// is wanted is there and nothing else.
template <class Network, class... Parts>
void load_checkpoint(const SafetensorsFile& file, Network& network, Parts&... parts) {
  std::tuple kept{detail::checkpoint_part(parts)...};
  const auto slots = detail::checkpoint_slots<detail::NumberOf<Network>>(network, kept);
  detail::load_into(slots, file.tensors(), file.source(), "", true, "load_checkpoint");
  detail::discard_prepared(network);
  std::apply([&](const auto&... part) { (part.give_to(parts), ...); }, kept);
}
template <class Network, class... Parts>
void load_checkpoint(const std::filesystem::path& path, Network& network, Parts&... parts) {
  load_checkpoint(SafetensorsFile(path), network, parts...);
}

}  // namespace evenkeel
