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

/// A place for a file that is found to be writable at once and written at the end, whole or not at all: it is written beside
/// the place and moved there, so an older file stays until then. Links are followed. What is no regular file, or lies below
/// /dev or /proc as /dev/stdout does, is appended to.
class OutputFile {
 public:
  /// Throws std::runtime_error if no file can be written there.
  explicit OutputFile(std::string target) : target_{std::move(target)} {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path place(target_);
    for (int links = 0; fs::is_symlink(place, error) && !is_device(place) && links < 40; ++links)
      place = place.parent_path() / fs::read_symlink(place, error);
    const fs::file_status status = fs::status(place, error);
    if (fs::is_directory(status)) fail("a file to write", "a directory");
    direct_ = is_device(place) || (fs::exists(status) && !fs::is_regular_file(status));
    if (direct_ || fs::exists(status)) probe(direct_ ? target_ : place.string(), "ab", "one that cannot");
    if (direct_) return;
    place_ = place.string();
    // The ending stays the last part of the name; the rest is cut, as a name may have no more than 255 bytes.
    working_ = (place.parent_path() /
                fmt::format(".{:.40}.{}{:.20}", place.stem().string(), getpid(), place.extension().string()))
                   .string();
    probe(working_, "wb", "a place where none can be");
    fs::remove(working_, error);
  }
  ~OutputFile() {
    std::error_code ignored;
    if (begun_) std::filesystem::remove(working_, ignored);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& target() const { return target_; }

  /// The file to write, to be taken to its place by keep().
  const std::string& begin() {
    begun_ = !direct_;
    return direct_ ? target_ : working_;
  }

  /// Throws std::filesystem::filesystem_error if it cannot be moved.
  void keep() {
    if (direct_) return;
    std::error_code error;
    const auto older = std::filesystem::status(place_, error);
    if (std::filesystem::exists(older)) std::filesystem::permissions(working_, older.permissions(), error);
    std::filesystem::rename(working_, place_);
    begun_ = false;
  }

 private:
  static bool is_device(const std::filesystem::path& path) {
    const std::string text = std::filesystem::absolute(path).lexically_normal().string();
    return text.starts_with("/dev/") || text.starts_with("/proc/");
  }

  void probe(const std::string& path, const char* mode, const char* otherwise) const {
    std::FILE* file = std::fopen(path.c_str(), mode);
    if (file == nullptr) fail("a file that can be written", otherwise);
    std::fclose(file);
  }

  [[noreturn]] void fail(const char* expected, const char* got) const {
    throw std::runtime_error(fmt::format("{}: expected {}, got {}", target_, expected, got));
  }

  std::string target_;   // as given
  std::string place_;    // where the file goes, links followed
  std::string working_;  // beside it
  bool direct_ = false;
  bool begun_ = false;
};

/// Throws std::invalid_argument if two of these files, "" for none, are one: the later would take the place of the other.
inline void check_distinct(const std::vector<std::pair<std::string, std::string>>& files) {
  std::error_code ignored;
  const auto same = [&](const std::string& a, const std::string& b) {
    const auto is_device = [](const std::string& path) { return path.starts_with("/dev/"); };
    if (a.empty() || b.empty() || is_device(a)) return false;
    return std::filesystem::weakly_canonical(a, ignored) == std::filesystem::weakly_canonical(b, ignored) ||
           std::filesystem::equivalent(a, b, ignored);
  };
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t j = i + 1; j < files.size(); ++j)
      if (same(files[i].second, files[j].second))
        throw std::invalid_argument(fmt::format("{} and {}: expected two files, got {} for both", files[i].first,
                                                files[j].first, files[j].second));
}

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
    std::FILE* file = std::fopen(file_->begin().c_str(), "ab");
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
