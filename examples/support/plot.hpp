#pragma once

// Pictures by gnuplot, as a program beside this one.

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>  // access

#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "examples/support/output.hpp"  // OutputFile

namespace examples {

/// Colours that people with any colour vision can tell apart: Okabe & Ito 2008, darkest first where it matters.
inline constexpr std::array<const char*, 6> plot_colours = {"#0072B2", "#D55E00", "#009E73",
                                                            "#CC79A7", "#000000", "#E69F00"};

/// A picture that is asked for with --plot, or none.
class Plot {
 public:
  static constexpr int width = 800;  // pixels; the text is sized for it

  /// An empty path: no picture. Throws std::invalid_argument for another ending than .svg and .png, std::runtime_error if
  /// no file can be written there. Without gnuplot says so on standard error and draws none.
  Plot(const std::string& program, const std::string& path) {
    if (path.empty()) return;
    if (!path.ends_with(".svg") && !path.ends_with(".png"))
      throw std::invalid_argument(fmt::format("--plot: expected a name that ends in .svg or .png, got {}", path));
    file_ = std::make_unique<OutputFile>(path);
    if (has_gnuplot()) return;
    file_.reset();
    fmt::print(stderr, "{}: {} will not be drawn: gnuplot is not installed (Debian: gnuplot-nox); all else works\n",
               program, path);
  }

  /// Whether there is a picture to draw.
  explicit operator bool() const { return file_ != nullptr; }

  /// Draws by these gnuplot commands, of which terminal, output and colours are set already. Throws std::runtime_error
  /// with gnuplot's own words if it cannot.
  void draw(int height, const std::string& commands) {
    if (file_ == nullptr) return;
    const std::string picture = file_->begin();
    const std::string errors =
        std::filesystem::temp_directory_path() / fmt::format("evenkeel_gnuplot_{}.txt", getpid());
    const std::string command = "gnuplot 2>" + quoted_for_shell(errors);
    const auto before = std::signal(SIGPIPE, SIG_IGN);  // gnuplot may end early: its exit code tells
    std::FILE* gnuplot = popen(command.c_str(), "w");
    int status = -1;
    if (gnuplot != nullptr) {
      const std::string script = heading(height, picture) + commands + "\nunset output\n";
      std::fwrite(script.data(), 1, script.size(), gnuplot);
      status = pclose(gnuplot);
    }
    std::signal(SIGPIPE, before);
    const std::string said = read(errors);
    std::remove(errors.c_str());
    if (status != 0) throw std::runtime_error(fmt::format("{}: gnuplot could not draw it: {}", file_->target(), said));
    file_->keep();
    file_.reset();
  }

  /// A text in gnuplot's single quotes.
  static std::string quoted(std::string_view text) {
    std::string result = "'";
    for (const char character : text) {
      if (character == '\'') result += '\'';
      result += character;
    }
    return result + '\'';
  }

  /// Rows of numbers that commands can plot as $name; NaN and infinity are left out of lines.
  static std::string block(const std::string& name, const std::vector<std::vector<double>>& rows) {
    std::string text = "$" + name + " << END\n";
    for (const auto& row : rows) {
      for (const double number : row) text += std::isnan(number) ? std::string("nan ") : fmt::format("{} ", number);
      text += '\n';
    }
    return text + "END\n";
  }

 private:
  static bool has_gnuplot() {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (access((folder + "/gnuplot").c_str(), X_OK) == 0) return true;
    return false;
  }

  static std::string quoted_for_shell(std::string_view text) {
    std::string result = "'";
    for (const char character : text) result += character == '\'' ? std::string("'\\''") : std::string(1, character);
    return result + '\'';
  }

  static std::string read(const std::string& path) {
    std::string text;
    if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
      std::array<char, 300> start;
      text.assign(start.data(), std::fread(start.data(), 1, start.size(), file));
      std::fclose(file);
    }
    for (char& character : text)
      if (character == '\n') character = ' ';
    return text;
  }

  std::string heading(int height, const std::string& picture) const {
    const bool svg = file_->target().ends_with(".svg");
    std::string text = fmt::format(
        "set encoding utf8\nset terminal {} size {},{} font 'sans,{}' background '#ffffff'\nset output {}\n",
        svg ? "svg" : "pngcairo", width, height, svg ? 12 : 10, quoted(picture));
    for (std::size_t i = 0; i < plot_colours.size(); ++i)
      text += fmt::format("set linetype {} linecolor '{}' linewidth 2 pointtype {} pointsize 0.8\n", i + 1,
                          plot_colours[i], std::array{7, 5, 9, 13, 11, 6}[i]);
    return text +
           "set grid linecolor '#dddddd' linewidth 1 linetype 1\nset border linecolor '#666666'\nset tics nomirror\n"
           "set key box linecolor '#cccccc' spacing 1.1\nset datafile missing 'nan'\n";
  }

  std::unique_ptr<OutputFile> file_;
};

}  // namespace examples
