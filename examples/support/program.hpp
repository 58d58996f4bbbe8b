#pragma once

// What every example program does alike: read the command line, report errors in one line, show progress on a terminal.

#include <fmt/core.h>
#include <unistd.h>  // isatty

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>

namespace examples {

/// Exit code where options or files are not what they should be.
inline constexpr int bad_input = 2;

/// Parses the command line, then runs `body` and returns its exit code (0 if it returns nothing). Prints an error as one
/// line "program: what was wrong" and returns 2.
template <class Body>
int run_program(CLI::App& app, int argc, char** argv, const Body& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "{}: {} (--help shows what can be said)\n", app.get_name(), error.what());
    return bad_input;
  }
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return 0;
    } else {
      return body();
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
    return bad_input;
  }
}

/// One line on standard error, rewritten as the work goes on; silent where that is not a terminal.
class Progress {
 public:
  explicit Progress(bool quiet = false) : shown_{!quiet && isatty(STDERR_FILENO) == 1} {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text) const {
    if (!shown_) return;
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool shown_;
};

}  // namespace examples
