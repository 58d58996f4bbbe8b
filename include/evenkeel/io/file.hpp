#pragma once

#include <array>
#include <cerrno>
#include <cstddef>  // byte, size_t
#include <cstdio>   // fopen: can create a file only if there is none, and tells why it failed
#include <filesystem>
#include <memory>  // unique_ptr
#include <span>
#include <string>
#include <system_error>  // generic_category, errc
#include <vector>

#include "evenkeel/core/error.hpp"  // EVENKEEL_THROW

namespace evenkeel::detail {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

/// What the last call of the C library says went wrong: "No such file or directory".
inline std::string last_error() { return std::generic_category().message(errno); }

/// All bytes of a file. Throws FormatError with its path if it cannot be read to its end.
inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  const OpenFile file(std::fopen(path.string().c_str(), "rb"));
  if (file == nullptr)
    EVENKEEL_THROW(FormatError, path.string(), ": expected a file that can be read, got: ", last_error());
  std::vector<std::byte> bytes;
  std::vector<std::byte> chunk(std::size_t{1} << 16);
  for (std::size_t n; (n = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0;)
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  if (std::ferror(file.get()) != 0)
    EVENKEEL_THROW(FormatError, path.string(), ": expected a file that can be read, got: ", last_error());
  return bytes;
}

/// Where a path leads through links: to a file that need not be there yet. Sets the error if it leads nowhere.
inline std::filesystem::path followed(std::filesystem::path path, std::error_code& error) {
  constexpr int most = 40;  // links on the way, as Linux has it
  for (int i = 0; i < most; ++i) {
    if (!std::filesystem::is_symlink(path, error)) return path;
    path = path.parent_path() / std::filesystem::read_symlink(path, error);  // the latter alone if it is absolute
  }
  error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
  return path;
}

/// Makes these bytes a file, or the new content of one, in one step: they are written beside it, and then take its name.
/// Links are followed, also to a file that is not there yet, and an older file's permissions kept. Throws FormatError with
/// the path if that fails; an older file is then as it was.
inline void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  namespace fs = std::filesystem;
  const auto fail = [&](const std::string& got) {
    EVENKEEL_THROW(FormatError, path.string(), ": expected a file that can be written, got: ", got);
  };
  std::error_code error;
  const fs::path target = followed(path, error);
  if (error == std::errc::too_many_symbolic_link_levels) fail(error.message());
  const fs::file_status older = fs::status(target, error);
  if (fs::is_directory(older)) fail("a directory");
  if (fs::exists(older) && !fs::is_regular_file(older)) fail("what is no regular file");
  if (fs::exists(older) && OpenFile(std::fopen(target.string().c_str(), "r+b")) == nullptr) fail(last_error());

  OpenFile file;
  fs::path working;
  for (int i = 0; file == nullptr; ++i) {
    working = target.parent_path() / text('.', target.filename().string().substr(0, 100), '.', i, ".partial");
    file.reset(std::fopen(working.string().c_str(), "wbx"));
    if (file == nullptr && (errno != EEXIST || i == 1000)) fail(last_error());
  }
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const bool closed = std::fclose(file.release()) == 0 && written;
  std::string why = closed ? "" : last_error();
  if (closed) {
    if (fs::exists(older)) fs::permissions(working, older.permissions(), error);
    error.clear();
    fs::rename(working, target, error);
    if (error) why = error.message();
  }
  if (why.empty()) return;
  fs::remove(working, error);
  fail(why);
}

}  // namespace evenkeel::detail
