#pragma once

// What every example program does alike: read the command line, report errors in one line, show progress on a terminal.

#include <fmt/core.h>
#include <unistd.h>  // isatty

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>

#include "examples/support/output.hpp"  // check_distinct

namespace examples {

/// Exit code where options or files are not what they should be.
inline constexpr int bad_input = 2;
/// Exit code after Ctrl-C, as shells have it: 128 + SIGINT.
inline constexpr int interrupted_exit = 130;

/// The text with a new line before each word that would go beyond column 100.
inline std::string wrapped(const std::string& text) {
  std::string result;
  std::size_t line = 0;  // where the last one begins
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = (std::min)(text.find_first_of(" \n", i), text.size());
    if (result.size() + (end - i) - line > 100 && result.size() > line) {
      result.back() = '\n';
      line = result.size();
    }
    result.append(text, i, end - i);
    if (end < text.size()) result += text[end];
    if (end < text.size() && text[end] == '\n') line = result.size();
    i = end + 1;
  }
  return result;
}

/// Parses the command line, then runs `body` and returns its exit code (0 if it returns nothing). Prints an error as one
/// line "program: what was wrong" and returns 2.
template <class Body>
int run_program(CLI::App& app, int argc, char** argv, const Body& body) {
  app.description(wrapped(app.get_description()));
  app.footer(wrapped(app.get_footer()));
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
    std::fflush(stdout);
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
    return bad_input;
  }
}

/// --seed, which CLI11 would take below zero as well.
inline void add_seed(CLI::App& app, std::uint64_t& seed, const std::string& what) {
  const auto check = [](const std::string& text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    return is_number ? std::string() : "expected a whole number from 0 to 2^64 - 1, got " + text;
  };
  app.add_option("--seed", seed, what)->check(CLI::Validator(check, ""))->option_text(fmt::format("N [{}]", seed));
}

/// The options that the experiments have in common, each where it makes sense.
struct CommonOptions {
  static constexpr const char* shipped_data = EVENKEEL_EXAMPLE_DATA_DIR "/router.tsv";

  std::string data = shipped_data;
  int seeds = 0;
  std::int64_t steps = 0;
  unsigned threads = (std::max)(1u, std::thread::hardware_concurrency());
  std::string csv;
  std::string plot;
  bool quiet = false;

  void add_data(CLI::App& app) {
    app.add_option("--data", data,
                   "File of lines route<TAB>question in UTF-8, five or more of each of two or more routes, instead of "
                   "the 200 questions")
        ->option_text("FILE");
  }
  void add_seeds(CLI::App& app, int count, const std::string& what) {
    seeds = count;
    app.add_option("--seeds", seeds, what)->check(CLI::Range(1, 10000))->option_text(fmt::format("N [{}]", count));
  }
  void add_steps(CLI::App& app, std::int64_t count, const std::string& what = "Training steps of each network") {
    steps = count;
    app.add_option("--steps", steps, what)->check(CLI::Range(1, 100000000))->option_text(fmt::format("N [{}]", count));
  }
  void add_threads(CLI::App& app) {
    app.add_option("--threads", threads, "Threads to use; the numbers are the same for any number of them")
        ->check(CLI::Range(1u, 1024u))
        ->option_text(fmt::format("N [{}]", threads));
  }
  void add_output(CLI::App& app, const std::string& picture) {
    app.add_option("--csv", csv, "Write every measured figure to this file, a line each")->option_text("FILE");
    app.add_option("--plot", plot, picture + ", into FILE.svg or FILE.png by gnuplot")->option_text("FILE");
    app.add_flag("--quiet", quiet, "No progress line");
  }

  bool on_shipped_data() const { return data == shipped_data; }

  /// Throws std::invalid_argument if one file stands in two places.
  void check_files() const { check_distinct({{"--data", data}, {"--csv", csv}, {"--plot", plot}}); }
};

/// One line on standard error, rewritten as the work goes on; silent where that is not a terminal.
class Progress {
 public:
  explicit Progress(bool quiet = false) : shown_{!quiet && isatty(STDERR_FILENO) == 1} {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The share done and the time left, as far as what is done tells; ten times a second at most.
  void show(std::size_t done, std::size_t count) {
    if (!shown_) return;
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    const double spent = std::chrono::duration<double>(now - start_).count();
    std::string text = fmt::format("{:3.0f} %", 100.0 * static_cast<double>(done) / static_cast<double>(count));
    if (done > 0 && spent > 0.5)
      text += fmt::format(", {} left", duration(spent / static_cast<double>(done) * static_cast<double>(count - done)));
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
  }
  void clear() const {
    if (!shown_) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }

  static std::string duration(double seconds) {
    if (seconds < 99.5) return fmt::format("{:.0f} s", seconds);
    return fmt::format("{:.0f} min", seconds / 60);
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

}  // namespace examples
