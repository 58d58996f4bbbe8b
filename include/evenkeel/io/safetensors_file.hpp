#pragma once

#include <algorithm>  // any_of, find_if, sort
#include <cstddef>    // byte, size_t
#include <cstdint>    // uint64_t
#include <filesystem>
#include <limits>
#include <memory>  // shared_ptr
#include <span>
#include <string>
#include <string_view>
#include <utility>  // move
#include <vector>

#include "evenkeel/core/error.hpp"             // FormatError
#include "evenkeel/core/types.hpp"             // Matrix, Real
#include "evenkeel/io/file.hpp"                // read_file
#include "evenkeel/io/safetensors_header.hpp"  // read_header, TensorMetadata
#include "evenkeel/io/slot.hpp"                // floating_numbers
#include "evenkeel/io/tensor.hpp"              // Tensor

namespace evenkeel {

/// A file that has been read whole and found to be in order: every tensor's bytes are there, none shared, none left over.
/// Copies share the bytes, which live as long as any of them.
class SafetensorsFile {
 public:
  /// Throws FormatError, naming file and tensor, for a file that cannot be read or is not in order.
  explicit SafetensorsFile(const std::filesystem::path& path)
      : SafetensorsFile(detail::read_file(path), path.string()) {}
  /// Of bytes in memory; `source` stands for the file in messages.
  explicit SafetensorsFile(std::vector<std::byte> bytes, std::string source = "safetensors")
      : source_{std::move(source)}, bytes_{std::make_shared<const std::vector<std::byte>>(std::move(bytes))} {
    parse();
  }

  const std::string& source() const { return source_; }
  const TensorMetadata& metadata() const { return metadata_; }

  /// In the order of their bytes.
  const std::vector<Tensor>& tensors() const { return tensors_; }

  /// The tensor of this name. Throws FormatError if there is none.
  const Tensor& at(std::string_view name) const {
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) { return tensor.name == name; });
    if (found == tensors_.end())
      EVENKEEL_THROW(FormatError, source_, ": expected a tensor ", detail::in_quotes(name), ", got none");
    return *found;
  }

  /// The numbers of a tensor of at most two dimensions: a vector as one row, a single number as a matrix of one. Throws
  /// FormatError if there is none of this name, for more dimensions, for sizes that Index cannot hold, for types other than
  /// F64, F32, F16 and BF16, and for finite numbers that Scalar cannot hold.
  template <Real Scalar>
  Matrix<Scalar> matrix(std::string_view name) const {
    const Tensor& tensor = at(name);
    const std::string place = detail::text(source_, ": tensor ", detail::in_quotes(name), ": ");
    const TensorShape& shape = tensor.shape;
    if (shape.size() > 2)
      EVENKEEL_THROW(FormatError, place, "expected at most two dimensions, got shape ", detail::shape(shape));
    constexpr auto most = static_cast<std::uint64_t>((std::numeric_limits<Index>::max)());
    if (std::any_of(shape.begin(), shape.end(), [](std::uint64_t size) { return size > most; }))
      EVENKEEL_THROW(FormatError, place, "expected sizes of at most ", most, ", got shape ", detail::shape(shape));
    const auto rows = static_cast<Index>(shape.size() == 2 ? shape[0] : 1);
    const auto columns = static_cast<Index>(shape.empty() ? 1 : shape.back());
    return detail::floating_numbers<Scalar>(tensor, rows, columns, place);
  }

 private:
  void parse() {
    const std::span<const std::byte> bytes = *bytes_;
    constexpr std::size_t prefix = sizeof(std::uint64_t);
    if (bytes.size() < prefix)
      EVENKEEL_THROW(FormatError, source_, ": expected the header's length in 8 bytes, got ", bytes.size());
    const auto length = detail::number_at<std::uint64_t>(bytes, 0);
    const std::uint64_t rest = bytes.size() - prefix;
    if (length > detail::most_header_bytes)
      EVENKEEL_THROW(FormatError, source_, ": expected a header of at most ", detail::most_header_bytes,
                     " bytes, got length ", length);
    if (length > rest) EVENKEEL_THROW(FormatError, source_, ": expected a header of ", length, " bytes, got ", rest);
    const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + prefix,
                                  static_cast<std::size_t>(length));
    detail::Header parsed = detail::read_header(header, source_);
    metadata_ = std::move(parsed.metadata);
    place_tensors(parsed.entries, bytes.subspan(prefix + header.size()));
  }

  void place_tensors(std::vector<detail::HeaderEntry>& entries, std::span<const std::byte> data) {
    std::vector<detail::HeaderEntry*>
        in_order;  // of their data (pointers: GCC 12 warns of sorting the entries themselves)
    for (detail::HeaderEntry& entry : entries) {
      check_entry(entry, data.size());
      in_order.push_back(&entry);
    }
    std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) { return *a->offsets < *b->offsets; });
    std::uint64_t end = 0;  // of the tensors so far
    for (detail::HeaderEntry* const each : in_order) {
      detail::HeaderEntry& entry = *each;
      const std::uint64_t begin = entry.offsets->front();
      if (begin != end)
        EVENKEEL_THROW(FormatError, place_of(entry), "expected data that begin at byte ", end,
                       tensors_.empty() ? "" : ", where those of " + detail::in_quotes(tensors_.back().name) + " end",
                       ", got data_offsets ", offsets_text(entry), begin < end ? ", an overlap" : ", a hole");
      end = entry.offsets->back();
      tensors_.push_back({std::move(entry.name), *entry.type, std::move(*entry.shape),
                          data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))});
    }
    if (end != data.size())
      EVENKEEL_THROW(FormatError, source_, ": expected ", end, " bytes of data, where those of ",
                     tensors_.empty() ? "no tensor" : detail::in_quotes(tensors_.back().name), " end, got ",
                     data.size());
  }

  void check_entry(const detail::HeaderEntry& entry, std::uint64_t data_size) const {
    const std::string place = place_of(entry);
    const std::vector<std::uint64_t>& offsets = *entry.offsets;
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      EVENKEEL_THROW(FormatError, place, "expected data_offsets [begin, end] with begin <= end, got ",
                     offsets_text(entry));
    if (offsets[1] > data_size)
      EVENKEEL_THROW(FormatError, place, "expected data within the file's ", data_size,
                     " bytes of data, got data_offsets ", offsets_text(entry));
    const auto needed = detail::bytes_in(*entry.shape, *entry.type);
    if (needed != offsets[1] - offsets[0])
      EVENKEEL_THROW(FormatError, place, "expected data_offsets that are ",
                     needed ? detail::text(*needed) : "more than 2^64", " bytes apart, for ", to_string(*entry.type),
                     " of shape ", detail::shape(*entry.shape), ", got ", offsets_text(entry));
  }

  std::string place_of(const detail::HeaderEntry& entry) const {
    return detail::text(source_, ": tensor ", detail::in_quotes(entry.name), ": ");
  }
  static std::string offsets_text(const detail::HeaderEntry& entry) {
    const std::vector<std::uint64_t>& offsets = *entry.offsets;
    std::string result = "[";
    for (std::size_t i = 0; i < (std::min)(offsets.size(), std::size_t{4}); ++i)
      result += detail::text(i > 0 ? ", " : "", offsets[i]);
    return result + (offsets.size() > 4 ? ", ...]" : "]");
  }

  std::string source_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;  // shared, as tensors point into them
  TensorMetadata metadata_;
  std::vector<Tensor> tensors_;
};

/// The bytes of a file with these tensors, as safetensors' own writer lays them out: by type, then by name. Throws
/// std::invalid_argument where two tensors have one name, one is named "__metadata__", a name is not UTF-8, or the bytes are
/// not those of type and shape.
inline std::vector<std::byte> safetensors_bytes(std::vector<Tensor> tensors, const TensorMetadata& metadata = {}) {
  constexpr const char* place = "safetensors_bytes";
  const auto name_before = [](const Tensor& a, const Tensor& b) { return a.name < b.name; };
  std::sort(tensors.begin(), tensors.end(), name_before);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (i > 0 && tensor.name == tensors[i - 1].name)
      EVENKEEL_THROW(std::invalid_argument, place, ": expected distinct names, got ", detail::in_quotes(tensor.name),
                     " twice");
    if (tensor.name == detail::metadata_key)
      EVENKEEL_THROW(std::invalid_argument, place, ": expected names other than ", detail::in_quotes(tensor.name),
                     ", got it");
    if (detail::bytes_in(tensor.shape, tensor.type) != tensor.bytes.size())
      EVENKEEL_THROW(std::invalid_argument, place, ": expected the bytes of ", to_string(tensor.type), " of shape ",
                     detail::shape(tensor.shape), " in ", detail::in_quotes(tensor.name), ", got ",
                     tensor.bytes.size());
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.type > b.type; });

  const std::string header = detail::header_text(tensors, metadata);
  std::vector<std::byte> bytes;
  detail::append_number(bytes, std::uint64_t{header.size()});
  const auto append = [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); };
  append(std::as_bytes(std::span(header)));
  for (const Tensor& tensor : tensors) append(tensor.bytes);
  return bytes;
}

}  // namespace evenkeel
