#pragma once

// Questions with routes, read from a file, split for an experiment and turned into word-presence features.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evenkeel/core/error.hpp"   // FormatError
#include "evenkeel/core/random.hpp"  // RandomStream, shuffle
#include "evenkeel/core/types.hpp"   // Matrix, Index

namespace examples {

namespace ek = evenkeel;

struct Question {
  int route;  // place in Questions::routes
  std::string text;
};

struct Questions {
  std::vector<std::string> routes;  // in alphabetical order
  std::vector<Question> all;        // in the order of the file

  std::vector<ek::Index> count_by_route() const {
    std::vector<ek::Index> counts(routes.size());
    for (const Question& question : all) ++counts[static_cast<std::size_t>(question.route)];
    return counts;
  }
};

/// Whether these bytes are UTF-8 (RFC 3629, section 4).
inline bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4) return false;
    const std::size_t more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (i + more >= text.size()) return false;
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      unsigned char least = 0x80, most = 0xBF;
      if (k == 1 && lead == 0xE0) least = 0xA0;
      if (k == 1 && lead == 0xED) most = 0x9F;
      if (k == 1 && lead == 0xF0) least = 0x90;
      if (k == 1 && lead == 0xF4) most = 0x8F;
      if (next < least || next > most) return false;
    }
    i += more + 1;
  }
  return true;
}

/// Reads a file of lines `route<TAB>question` in UTF-8; blank lines and lines that begin with # do not count. Throws
/// FormatError with file, line, what was expected and what came. Every route needs enough questions to be split.
inline Questions read_questions(const std::string& path) {
  constexpr ek::Index least_by_route = 5;
  const auto fail = [&](std::size_t line, const std::string& what) {
    throw ek::FormatError(path + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail(0, "expected a file of lines route<TAB>question, got a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(0, "expected a file of lines route<TAB>question, got none that can be opened");

  struct Line {
    std::string route, question;
    std::size_t number;
  };
  std::vector<Line> lines;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.ends_with('\r')) line.pop_back();
    if (!is_utf8(line)) fail(number, "expected UTF-8, got bytes that are not");
    if (line.find_first_not_of(" \t") == std::string::npos || line.front() == '#') continue;
    const auto tabs = std::count(line.begin(), line.end(), '\t');
    if (tabs != 1)
      fail(number, "expected route<TAB>question, got a line " +
                       (tabs == 0 ? std::string("without a tab") : "with " + std::to_string(tabs) + " tabs"));
    const std::size_t tab = line.find('\t');
    if (tab == 0) fail(number, "expected route<TAB>question, got an empty route");
    if (line.find_first_not_of(' ', tab + 1) == std::string::npos)
      fail(number, "expected route<TAB>question, got an empty question");
    lines.push_back({line.substr(0, tab), line.substr(tab + 1), number});
  }
  if (file.bad()) fail(0, "expected a file that can be read to its end, got an error on reading");
  if (lines.empty()) fail(1, "expected lines route<TAB>question, got an empty file");

  std::map<std::string, int> places;
  for (const Line& each : lines) places[each.route];
  Questions result;
  for (auto& [route, place] : places) {
    place = static_cast<int>(result.routes.size());
    result.routes.push_back(route);
  }
  for (Line& each : lines) result.all.push_back({places[each.route], std::move(each.question)});
  if (result.routes.size() < 2)
    fail(lines.back().number, "expected at least two routes, got only '" + result.routes.front() + "'");
  const std::vector<ek::Index> counts = result.count_by_route();
  for (std::size_t route = 0; route < counts.size(); ++route)
    if (counts[route] < least_by_route)
      fail(lines.back().number, "expected at least " + std::to_string(least_by_route) +
                                    " questions of every route, to train, validate and test, got " +
                                    std::to_string(counts[route]) + " of '" + result.routes[route] + "'");
  return result;
}

/// Three fifths to train, one fifth to validate, one fifth to test, of every route alike. Each holds places in
/// Questions::all.
struct Split {
  std::vector<std::size_t> train, validation, test;

  /// The questions of a part for each one to train on.
  double to_train(const std::vector<std::size_t>& part) const {
    return static_cast<double>(part.size()) / static_cast<double>(train.size());
  }
};

/// Shuffles the questions of route r by RandomStream(seed, stream_of("split"), r) and cuts them.
inline Split split(const Questions& questions, std::uint64_t seed) {
  Split result;
  for (std::size_t route = 0; route < questions.routes.size(); ++route) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < questions.all.size(); ++i)
      if (questions.all[i].route == static_cast<int>(route)) places.push_back(i);
    ek::RandomStream random(seed, ek::stream_of("split"), static_cast<std::uint32_t>(route));
    ek::shuffle(places, random);
    const std::size_t fifth = (places.size() + 2) / 5;
    for (std::size_t i = 0; i < places.size(); ++i)
      (i < fifth ? result.validation : i < 2 * fifth ? result.test : result.train).push_back(places[i]);
  }
  return result;
}

/// The words of a question: lower case, cut at everything but letters, digits and apostrophes. Letters beyond ASCII stay
/// as they are.
inline std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    while (word.starts_with('\'')) word.erase(0, 1);
    while (word.ends_with('\'')) word.pop_back();
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool upper = byte >= 'A' && byte <= 'Z';
    const bool part =
        upper || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '\'' || byte >= 0x80;
    if (part)
      word += upper ? static_cast<char>(byte + ('a' - 'A')) : c;
    else
      finish();
  }
  finish();
  return words;
}

/// One feature for each word of the training part: 1 where a question has the word, else 0.
class Vocabulary {
 public:
  Vocabulary(const Questions& questions, const std::vector<std::size_t>& training) {
    for (const std::size_t i : training)
      for (const std::string& word : words_of(questions.all[i].text)) columns_.try_emplace(word, size());
  }

  ek::Index size() const { return static_cast<ek::Index>(columns_.size()); }

  /// In the order of the columns.
  std::vector<std::string> words() const {
    std::vector<std::string> result(columns_.size());
    for (const auto& [word, column] : columns_) result[static_cast<std::size_t>(column)] = word;
    return result;
  }

  template <class Row>
  void fill(std::string_view text, Row&& row) const {
    row.setZero();
    for (const std::string& word : words_of(text))
      if (const auto found = columns_.find(word); found != columns_.end()) row[found->second] = 1;
  }

  /// Whether the training part had any word of this text.
  bool knows_any_of(std::string_view text) const {
    const auto words = words_of(text);
    return std::any_of(words.begin(), words.end(), [&](const auto& word) { return columns_.contains(word); });
  }

  template <typename Scalar>
  ek::Matrix<Scalar> features(const Questions& questions, const std::vector<std::size_t>& places) const {
    ek::Matrix<Scalar> x(static_cast<ek::Index>(places.size()), size());
    for (std::size_t i = 0; i < places.size(); ++i)
      fill(questions.all[places[i]].text, x.row(static_cast<ek::Index>(i)));
    return x;
  }

 private:
  std::unordered_map<std::string, ek::Index> columns_;
};

inline std::vector<int> labels(const Questions& questions, const std::vector<std::size_t>& places) {
  std::vector<int> result;
  for (const std::size_t i : places) result.push_back(questions.all[i].route);
  return result;
}

}  // namespace examples
