#pragma once

#include <algorithm>  // min
#include <cstddef>    // size_t
#include <cstdint>    // uint64_t
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>  // move
#include <vector>

#include "evenkeel/core/error.hpp"  // FormatError
#include "evenkeel/io/tensor.hpp"   // TensorType, TensorShape

/// The header of a safetensors file, from and to JSON.
namespace evenkeel {

/// What a file says of itself, as strings: {"format": "pt"}.
using TensorMetadata = std::map<std::string, std::string>;

namespace detail {

inline constexpr std::uint64_t most_header_bytes = 100'000'000;  // as in the reference implementation
inline constexpr const char* metadata_key = "__metadata__";

/// What a header says of one tensor.
struct HeaderEntry {
  std::string name;
  std::optional<TensorType> type;
  std::optional<TensorShape> shape;
  std::optional<std::vector<std::uint64_t>> offsets;  // in the bytes behind the header
};

struct Header {
  std::vector<HeaderEntry> entries;
  TensorMetadata metadata;
};

/// Takes the header's JSON piece by piece, as nlohmann::json::sax_parse reads it, and accepts what the format allows.
class HeaderReader {
 public:
  using Json = nlohmann::json;

  explicit HeaderReader(const std::string& source) : source_{source} {}

  Header take() { return std::move(header_); }

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("true or false"); }
  bool number_integer(Json::number_integer_t number) { return unexpected(text(number)); }
  bool number_float(Json::number_float_t, const std::string& digits) { return unexpected(digits.substr(0, 30)); }
  bool binary(Json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(Json::number_unsigned_t number) {
    if (place_ != Place::sizes && place_ != Place::offsets) return unexpected(text(number));
    (place_ == Place::sizes ? header_.entries.back().shape : header_.entries.back().offsets)->push_back(number);
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata_value) {
      header_.metadata[key_] = std::move(value);
      place_ = Place::metadata;
    } else if (place_ == Place::type) {
      header_.entries.back().type = tensor_type_named(value);
      if (!header_.entries.back().type)
        EVENKEEL_THROW(FormatError, here(), "expected a dtype of the format, such as \"F32\", got ", in_quotes(value));
      place_ = Place::tensor;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::start)
      place_ = Place::names;
    else if (place_ == Place::metadata_object)
      place_ = Place::metadata;
    else if (place_ == Place::tensor_object)
      place_ = Place::tensor;
    else
      return unexpected("an object");
    return true;
  }

  bool key(std::string& name) {
    std::set<std::string>& seen = place_ == Place::names ? names_ : keys_;
    if (!seen.insert(name).second)
      EVENKEEL_THROW(FormatError, here(), "expected distinct keys, got ", in_quotes(name), " twice");
    if (place_ == Place::names) {
      keys_.clear();
      place_ = name == metadata_key ? Place::metadata_object : Place::tensor_object;
      if (place_ == Place::tensor_object) header_.entries.push_back({name, {}, {}, {}});
    } else if (place_ == Place::metadata) {
      key_ = name;
      place_ = Place::metadata_value;
    } else if (name == "dtype") {
      place_ = Place::type;
    } else if (name == "shape") {
      place_ = Place::shape;
    } else if (name == "data_offsets") {
      place_ = Place::data_offsets;
    } else {
      EVENKEEL_THROW(FormatError, here(), "expected dtype, shape and data_offsets, got ", in_quotes(name));
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      const HeaderEntry& entry = header_.entries.back();
      const char* missing = !entry.type ? "dtype" : !entry.shape ? "shape" : !entry.offsets ? "data_offsets" : nullptr;
      if (missing != nullptr)
        EVENKEEL_THROW(FormatError, here(), "expected dtype, shape and data_offsets, got no ", missing);
    }
    place_ = Place::names;  // behind the last, nothing more comes
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ == Place::shape) {
      header_.entries.back().shape.emplace();
      place_ = Place::sizes;
    } else if (place_ == Place::data_offsets) {
      header_.entries.back().offsets.emplace();
      place_ = Place::offsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }
  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  template <class Error>
  bool parse_error(std::size_t, const std::string&, const Error& error) {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 3: ..."
    if (what.starts_with('[')) what.remove_prefix((std::min)(what.find(' ') + 1, what.size()));
    EVENKEEL_THROW(FormatError, source_, ": expected a header of JSON, got a ", what.substr(0, 200));
    return false;
  }

 private:
  enum class Place {
    start,
    names,
    metadata_object,
    metadata,
    metadata_value,
    tensor_object,
    tensor,
    type,
    shape,
    sizes,
    data_offsets,
    offsets
  };

  /// The beginning of a message: where in the file.
  std::string here() const {
    switch (place_) {
      case Place::start:
      case Place::names:
        return source_ + ": header: ";
      case Place::metadata_object:
      case Place::metadata:
      case Place::metadata_value:
        return text(source_, ": \"", metadata_key, "\": ");
      default:
        return text(source_, ": tensor ", in_quotes(header_.entries.back().name), ": ");
    }
  }

  bool unexpected(const std::string& got) const {
    const char* expected = "";
    switch (place_) {
      case Place::metadata_object:
        expected = "an object of strings";
        break;
      case Place::metadata_value:
        EVENKEEL_THROW(FormatError, here(), "expected a string for ", in_quotes(key_), ", got ", got);
      case Place::tensor_object:
        expected = "an object of dtype, shape and data_offsets";
        break;
      case Place::type:
        expected = "dtype to be a string";
        break;
      case Place::shape:
      case Place::sizes:
        expected = "shape to be an array of whole numbers >= 0";
        break;
      case Place::data_offsets:
      case Place::offsets:
        expected = "data_offsets to be an array of whole numbers >= 0";
        break;
      default:
        expected = "an object of tensors";
    }
    EVENKEEL_THROW(FormatError, here(), "expected ", expected, ", got ", got);
    return false;
  }

  const std::string& source_;
  Header header_;
  Place place_ = Place::start;
  std::set<std::string> names_;  // of the tensors so far
  std::set<std::string> keys_;   // of the object inside
  std::string key_;              // of the metadata
};

/// Reads the header's text. Throws FormatError, naming `source` and the tensor, for all that the format does not allow; the
/// offsets are still to be compared with shapes and file.
inline Header read_header(std::string_view header, const std::string& source) {
  if (!header.starts_with('{'))
    EVENKEEL_THROW(FormatError, source, ": expected a header that begins with {, got ",
                   header.empty() ? "one of length 0" : "another byte");
  if (header.find('\0') != std::string_view::npos)  // where nlohmann::json would stop
    EVENKEEL_THROW(FormatError, source, ": expected a header of JSON, got a zero byte in it");
  HeaderReader reader(source);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  return reader.take();
}

/// As a string of JSON. Throws std::invalid_argument unless it is UTF-8.
inline std::string json_string(const std::string& value) {
  using Json = nlohmann::json;
  const std::string json = Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (Json::parse(json).get_ref<const std::string&>() != value)
    EVENKEEL_THROW(std::invalid_argument, "safetensors_bytes: expected text in UTF-8, got ", in_quotes(value));
  return json;
}

/// The header's text for tensors one after another, padded with spaces to a multiple of eight bytes, so that the data of
/// a file read to an aligned address are aligned.
inline std::string header_text(const std::vector<Tensor>& tensors, const TensorMetadata& metadata) {
  std::string header = "{";
  const auto add = [&](const std::string& key, const std::string& json) {
    header += (header.size() > 1 ? "," : "") + json_string(key) + ":" + json;
  };
  if (!metadata.empty()) {
    std::string object;
    for (const auto& [key, value] : metadata)
      object += (object.empty() ? "" : ",") + json_string(key) + ":" + json_string(value);
    add(metadata_key, "{" + object + "}");
  }
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    std::string sizes;
    for (const std::uint64_t size : tensor.shape) sizes += text(sizes.empty() ? "" : ",", size);
    add(tensor.name, text("{\"dtype\":\"", to_string(tensor.type), "\",\"shape\":[", sizes, "],\"data_offsets\":[",
                          offset, ",", offset + tensor.bytes.size(), "]}"));
    offset += tensor.bytes.size();
  }
  header += "}";
  return header + std::string((8 - header.size() % 8) % 8, ' ');
}

}  // namespace detail
}  // namespace evenkeel
