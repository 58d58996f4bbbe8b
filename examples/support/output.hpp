#pragma once

// Files that are written whole or not at all, and that are found to be writable before the work begins.

#include <fmt/core.h>
#include <unistd.h>  // getpid

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace examples {

/// A place for a file: what is written goes to `path()` and takes the final name with `keep()`; without that nothing is
/// left, and an older file stays. A device or pipe, such as /dev/stdout, is written directly.
class OutputFile {
 public:
  /// Throws std::runtime_error if no file can be written there.
  explicit OutputFile(std::string target) : target_{std::move(target)}, path_{target_} {
    std::error_code ignored;
    const auto status = std::filesystem::status(target_, ignored);
    if (std::filesystem::is_directory(status)) fail("a file to write", "a directory");
    direct_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
    if (direct_) return;
    if (std::filesystem::exists(status)) {
      std::FILE* file = std::fopen(target_.c_str(), "ab");  // an older file that is not ours to replace
      if (file == nullptr) fail("a file that can be written", "one that cannot");
      std::fclose(file);
    }
    // The ending stays the last part of the name: gnuplot's terminal is told by it.
    const std::filesystem::path whole(target_);
    path_ = (whole.parent_path() / fmt::format(".{}.{}{}", whole.stem().string(), getpid(), whole.extension().string()))
                .string();
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    if (file == nullptr) fail("a file that can be written", "a place where none can be");
    std::fclose(file);
  }
  ~OutputFile() {
    std::error_code ignored;
    if (!direct_ && !kept_ && !path_.empty()) std::filesystem::remove(path_, ignored);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }

  void keep() {
    if (!direct_) std::filesystem::rename(path_, target_);
    kept_ = true;
  }

 private:
  [[noreturn]] void fail(const char* expected, const char* got) {
    path_.clear();
    throw std::runtime_error(fmt::format("{}: expected {}, got {}", target_, expected, got));
  }

  std::string target_;
  std::string path_;
  bool direct_ = false;
  bool kept_ = false;
};

/// A table of comma-separated values (RFC 4180). Numbers are written with as many digits as it takes to read the same
/// number again; NaN as nan, infinity as inf.
class Csv {
 public:
  /// An empty path: nothing is written. Throws std::runtime_error if no file can be written there.
  Csv(const std::string& path, const std::vector<std::string>& columns) : columns_{columns.size()} {
    if (path.empty()) return;
    file_ = std::make_unique<OutputFile>(path);
    for (const std::string& column : columns) add(column);
    end_row();
  }

  /// Adds to the row that is being written.
  template <class Value>
  void add(const Value& value) {
    if (file_ == nullptr) return;
    if (cells_++ > 0) text_ += ',';
    if constexpr (std::is_arithmetic_v<Value>)
      text_ += fmt::format("{}", value);
    else
      text_ += quoted(value);
  }
  void end_row() {
    if (file_ == nullptr) return;
    if (cells_ != columns_) throw std::logic_error(fmt::format("a row of {} cells under {} columns", cells_, columns_));
    cells_ = 0;
    text_ += '\n';
  }
  template <class... Values>
  void row(const Values&... values) {
    (add(values), ...);
    end_row();
  }

  /// Writes the file. Throws std::runtime_error if that fails.
  void write() {
    if (file_ == nullptr) return;
    std::FILE* file = std::fopen(file_->path().c_str(), "wb");
    const bool opened = file != nullptr;
    const bool written = opened && std::fwrite(text_.data(), 1, text_.size(), file) == text_.size();
    const bool closed = opened && std::fclose(file) == 0;
    if (!written || !closed) throw std::runtime_error(file_->target() + ": could not be written to its end");
    file_->keep();
    file_.reset();
  }

 private:
  static std::string quoted(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
    std::string result = "\"";
    for (const char character : text) {
      if (character == '"') result += '"';
      result += character;
    }
    return result + '"';
  }

  std::size_t columns_;
  std::unique_ptr<OutputFile> file_;
  std::string text_;
  std::size_t cells_ = 0;
};

}  // namespace examples
