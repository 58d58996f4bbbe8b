#pragma once

#include <unistd.h>  // getpid

#include <array>
#include <bit>  // bit_cast
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/safetensors_file.hpp"

/// Files of the format, byte by byte.
namespace bytes {

using Bytes = std::vector<std::byte>;

/// These numbers as they lie in memory.
template <class Number>
Bytes of(std::initializer_list<Number> numbers) {
  Bytes result;
  for (const Number number : numbers)
    for (const std::byte byte : std::bit_cast<std::array<std::byte, sizeof(Number)>>(number)) result.push_back(byte);
  return result;
}
inline Bytes of(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A header's length of this many, the header and the data.
inline Bytes file(std::uint64_t length, std::string_view header, const Bytes& data = {}) {
  return of<std::uint64_t>({length}) + of(header) + data;
}
inline Bytes file(std::string_view header, const Bytes& data = {}) { return file(header.size(), header, data); }

inline evenkeel::SafetensorsFile parse(std::string_view header, const Bytes& data = {}) {
  return evenkeel::SafetensorsFile(file(header, data), "f");
}

/// A folder for a test's files, empty at first and gone at the end.
class Folder {
 public:
  Folder() : path_{std::filesystem::temp_directory_path() / ("evenkeel_io_test_" + std::to_string(getpid()))} {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::ptrdiff_t files() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::filesystem::path path_;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace bytes
