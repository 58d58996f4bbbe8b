#include "examples/support/questions.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace examples;

namespace {

/// A file that lasts as long as the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / "evenkeel_questions_test.tsv";
};

/// What read_questions says of a file with this content, without the path.
std::string error_of(const std::string& content) {
  const TemporaryFile file(content);
  try {
    read_questions(file.path());
  } catch (const evenkeel::FormatError& error) {
    const std::string text = error.what();
    CHECK(text.starts_with(file.path() + ":"));
    return text.substr(file.path().size() + 1);
  }
  return "no error";
}

std::string two_routes(int each) {
  std::string text;
  for (int i = 0; i < each; ++i) text += "a\tfirst " + std::to_string(i) + "\nb\tsecond " + std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("Questions are read with their routes in alphabetical order", "[questions]") {
  const TemporaryFile file("\xEF\xBB\xBF# a comment\nsecond\tIs it open?\r\n\n" + two_routes(5) +
                           "second\t1\nsecond\t2\nsecond\t3\nsecond\tno end of line, \xC3\xA9t\xC3\xA9");
  const Questions questions = read_questions(file.path());
  CHECK(questions.routes == std::vector<std::string>{"a", "b", "second"});
  REQUIRE(questions.all.size() == 15);
  CHECK(questions.all.front().text == "Is it open?");
  CHECK(questions.all.front().route == 2);
  CHECK(questions.all.back().text == "no end of line, \xC3\xA9t\xC3\xA9");
  CHECK(questions.count_by_route() == std::vector<evenkeel::Index>{5, 5, 5});
}

TEST_CASE("A file that is not one of questions is refused with its line", "[questions]") {
  CHECK(error_of("") == "1: expected lines route<TAB>question, got an empty file");
  CHECK(error_of("\n# nothing\n") == "1: expected lines route<TAB>question, got an empty file");
  CHECK(error_of("a\tone\nno tab\n") == "2: expected route<TAB>question, got a line without a tab");
  CHECK(error_of("a\tone\ttwo\n") == "1: expected route<TAB>question, got a line with 2 tabs");
  CHECK(error_of("\tone\n") == "1: expected route<TAB>question, got an empty route");
  CHECK(error_of("a\t  \n") == "1: expected route<TAB>question, got an empty question");
  CHECK(error_of("a\tone\na\ttwo \xFF\n") == "2: expected UTF-8, got bytes that are not");
  CHECK(error_of("a\tone\na\ttwo\n") == "2: expected at least two routes, got only 'a'");
  CHECK(error_of(two_routes(4)) ==
        "8: expected at least 5 questions of every route, to train, validate and test, got 4 of 'a'");
}

TEST_CASE("A directory and a missing file are refused", "[questions]") {
  CHECK_THROWS_WITH(read_questions("/"), "/: expected a file of lines route<TAB>question, got a directory");
  CHECK_THROWS_WITH(read_questions("/no such file"),
                    "/no such file: expected a file of lines route<TAB>question, got none that can be opened");
}

TEST_CASE("UTF-8 is told from other bytes", "[questions]") {
  // Boundaries of RFC 3629: the shortest and longest of each length, overlong forms, surrogates, beyond U+10FFFF.
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    CHECK(is_utf8(good));
  for (const char* bad : {"\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE1\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF1\x80\x80", "\xFF"})
    CHECK_FALSE(is_utf8(bad));
}

TEST_CASE("Words are lower case, without punctuation, with inner apostrophes", "[questions]") {
  CHECK(words_of("Where's MY parcel?? #12 'quoted' a-b") ==
        std::vector<std::string>{"where's", "my", "parcel", "12", "quoted", "a", "b"});
  CHECK(words_of("\xC3\x89t\xC3\xA9!") == std::vector<std::string>{"\xC3\x89t\xC3\xA9"});
  CHECK(words_of(" ... ").empty());
}

TEST_CASE("A split takes a fifth of every route to validate and to test, and each question once", "[questions]") {
  const Questions questions = read_questions(EVENKEEL_EXAMPLE_DATA_DIR "/router.tsv");
  const Split one = split(questions, 1);
  CHECK(one.train.size() == 120);
  CHECK(one.validation.size() == 40);
  CHECK(one.test.size() == 40);
  std::set<std::size_t> all;
  std::vector<int> tested(questions.routes.size());
  for (const auto* part : {&one.train, &one.validation, &one.test}) all.insert(part->begin(), part->end());
  for (const int route : labels(questions, one.test)) ++tested[static_cast<std::size_t>(route)];
  CHECK(all.size() == 200);
  CHECK(tested == std::vector<int>{10, 10, 10, 10});
  CHECK(split(questions, 1).train == one.train);
  CHECK(split(questions, 2).train != one.train);
}

TEST_CASE("The questions that come along are 50 of each of 4 routes, none twice", "[questions]") {
  const Questions questions = read_questions(EVENKEEL_EXAMPLE_DATA_DIR "/router.tsv");
  CHECK(questions.count_by_route() == std::vector<evenkeel::Index>{50, 50, 50, 50});
  std::set<std::string> texts;
  for (const Question& question : questions.all) texts.insert(question.text);
  CHECK(texts.size() == 200);
}

TEST_CASE("Features are the words of the training part alone", "[questions]") {
  Questions questions;
  questions.routes = {"a", "b"};
  questions.all = {{0, "red blue red"}, {1, "blue green"}, {1, "black"}};
  const Vocabulary vocabulary(questions, {0, 1});
  REQUIRE(vocabulary.size() == 3);
  evenkeel::Matrix<float> expected(3, 3);
  expected << 1, 1, 0, 0, 1, 1, 0, 0, 0;  // red, blue, green in the order of their first sight
  CHECK(vocabulary.features<float>(questions, {0, 1, 2}) == expected);
  CHECK(vocabulary.knows_any_of("GREEN?"));
  CHECK_FALSE(vocabulary.knows_any_of("black"));
}
