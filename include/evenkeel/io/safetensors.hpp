#pragma once

#include <cstddef>  // byte, size_t
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>  // is_same_v
#include <utility>      // move
#include <vector>

#include "evenkeel/core/error.hpp"           // EVENKEEL_THROW
#include "evenkeel/io/file.hpp"              // replace_file
#include "evenkeel/io/safetensors_file.hpp"  // SafetensorsFile, safetensors_bytes
#include "evenkeel/io/slot.hpp"              // LoadedKeys
#include "evenkeel/io/tensor.hpp"            // TensorType

/// Networks in the format in which PyTorch's users keep weights: an 8-byte length, a header in JSON that names tensors, and
/// their bytes. Needs nlohmann-json 3.8 or newer, as nothing outside of evenkeel/io does. With CMake: evenkeel::safetensors.
///
///     ek::save_safetensors("router.safetensors", net);
///     ek::load_safetensors("router.safetensors", net);                   // all of it, or FormatError and nothing
///
///     from safetensors.torch import load_file, save_file                 # the same file in Python
///     net.load_state_dict(load_file("router.safetensors"))
///
/// Names and shapes are PyTorch's: biases and the parameters and statistics of norms have one dimension, weights two,
/// num_batches_tracked none. A tensor of another shape is an error also where it has as many elements. Options of layers,
/// epsilon and momentum among them, are not in a file and stay as they are.
///
/// Source  https://huggingface.co/docs/safetensors, "Format", and the checks of the reference implementation (tensor.rs).
///         Stricter than that: a header must begin with {, as the format says, and a tensor's entry may have no fields but
///         dtype, shape and data_offsets, since another could change what the bytes mean.
namespace evenkeel {

struct SaveOptions {
  std::string prefix = {};  ///< Put before every name: "encoder." for PyTorch's module of that name.
  std::optional<TensorType> type =
      std::nullopt;              ///< f64, f32, f16 or bf16; none: the network's own (long double: f64).
  TensorMetadata metadata = {};  ///< Strings to keep with it. Some readers want {{"format", "pt"}}.
};

struct LoadOptions {
  bool strict = true;       ///< Whether missing and unexpected names are an error; else they are returned.
  std::string prefix = {};  ///< Before every name: "module.". Tensors of other names are not looked at.
};

namespace detail {

template <typename Scalar>
constexpr TensorType type_of() {
  return std::is_same_v<Scalar, float> ? TensorType::f32 : TensorType::f64;
}

template <typename Scalar>
void save_slots(const std::filesystem::path& path, const Slots<const Scalar>& slots, const SaveOptions& options,
                const char* place) {
  check_distinct(slots, place);
  const TensorType type = options.type.value_or(type_of<Scalar>());
  if (!is_floating(type))
    EVENKEEL_THROW(std::invalid_argument, place, ": expected type F64, F32, F16 or BF16, got ", to_string(type));
  std::vector<std::vector<std::byte>> bytes(slots.size());
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < slots.size(); ++i) tensors.push_back(tensor_from(slots[i], type, bytes[i], place));
  replace_file(path, safetensors_bytes(std::move(tensors), options.metadata));
}

}  // namespace detail

/// Writes the parameters and buffers of a network or layer. An older file of that name is replaced once the new one is
/// complete. Throws FormatError if it cannot be written; std::invalid_argument where two names are the same, the type is none
/// of the four, a finite number is too large for it, or running statistics are none that could be read again. Rounds to nearest, ties to even.
template <class Network>
void save_safetensors(const std::filesystem::path& path, const Network& network, const SaveOptions& options = {}) {
  using Scalar = detail::NumberOf<Network>;
  detail::Slots<const Scalar> slots;
  detail::add_network(slots, network, options.prefix);
  detail::save_slots<Scalar>(path, slots, options, "save_safetensors");
}

/// Reads parameters and buffers of a network or layer: floating-point numbers of any type, converted. Tells which names were
/// missing or unexpected; with `strict` that is an error. Throws FormatError, which names file and tensor, with nothing read
/// into the network, unless the file is in order, every tensor has the shape of its place, finite numbers stay finite, and
/// running statistics are finite, unless the layer accepts others (NonFinite::accept), with no variance < 0.
///
/// num_batches_tracked is of all training batches, those among them that a channel left out as not finite. Which these
/// were is not in such a file, as it is in a checkpoint: an average without momentum goes on as if all had been taken.
template <class Network>
LoadedKeys load_safetensors(const SafetensorsFile& file, Network& network, const LoadOptions& options = {}) {
  detail::Slots<detail::NumberOf<Network>> slots;
  detail::add_network(slots, network, options.prefix);
  detail::forget_left_out(slots, network, options.prefix);
  LoadedKeys keys =
      detail::load_into(slots, file.tensors(), file.source(), options.prefix, options.strict, "load_safetensors");
  detail::discard_prepared(network);
  return keys;
}
template <class Network>
LoadedKeys load_safetensors(const std::filesystem::path& path, Network& network, const LoadOptions& options = {}) {
  return load_safetensors(SafetensorsFile(path), network, options);
}

}  // namespace evenkeel
