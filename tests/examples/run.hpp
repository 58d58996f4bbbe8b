#pragma once

#include <sys/wait.h>
#include <unistd.h>  // getpid

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"

/// Runs the example programs as a user does.
namespace programs {

struct Run {
  int exit_code;
  std::string output;  // standard output and standard error
};

/// `environment` is put before the command, e.g. "PATH=/nowhere".
inline Run run(const std::string& command, const std::string& input = "</dev/null",
               const std::string& environment = "") {
  const std::string line = environment + " " EVENKEEL_EXAMPLE_PROGRAMS_DIR "/" + command + " 2>&1 " + input;
  std::FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Run result{0, {}};
  std::array<char, 4096> chunk;
  for (std::size_t n; (n = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) result.output.append(chunk.data(), n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A folder for a test's files, empty at first and gone at the end.
class Folder {
 public:
  Folder() : path_{std::filesystem::temp_directory_path() / ("evenkeel_test_" + std::to_string(getpid()))} {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace programs
