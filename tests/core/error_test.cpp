#include "evenkeel/core/error.hpp"

#include <stdexcept>
#include <string>
#include <type_traits>

#include "catch.hpp"
#include "core/error_of.hpp"

namespace ek = evenkeel;

TEST_CASE("The kinds of errors are the standard's", "[error]") {
  STATIC_REQUIRE(std::is_base_of_v<std::invalid_argument, ek::ShapeError>);
  STATIC_REQUIRE(std::is_base_of_v<std::logic_error, ek::UsageError>);
  STATIC_REQUIRE(std::is_base_of_v<std::runtime_error, ek::FormatError>);
  STATIC_REQUIRE_FALSE(std::is_base_of_v<std::invalid_argument, ek::UsageError>);
}

TEST_CASE("EVENKEEL_THROW throws its type with the pieces as one text", "[error]") {
  CHECK(error_of([] { EVENKEEL_THROW(ek::ShapeError, "Layer::forward", ": got ", 3, " of ", 2.5); }) ==
        "ShapeError: Layer::forward: got 3 of 2.5");
  CHECK(error_of([] { EVENKEEL_THROW(ek::UsageError, "one piece"); }) == "UsageError: one piece");
  CHECK(error_of([] { EVENKEEL_THROW(ek::FormatError, 'c', std::string("s")); }) == "FormatError: cs");
  CHECK(error_of([] { EVENKEEL_THROW(std::invalid_argument, ek::detail::shape(4, 5)); }) == "invalid_argument: (4, 5)");
}

TEST_CASE("A shape is written as (rows, columns)", "[error]") {
  CHECK(ek::detail::shape(3, 40) == "(3, 40)");
  CHECK(ek::detail::shape(0, 0) == "(0, 0)");
}

TEST_CASE("The error handler is kept for programs without exceptions, and has no effect here", "[error]") {
  static std::string heard;
  const ek::ErrorHandler before = ek::detail::error_handler();
  CHECK(before == ek::detail::print_and_abort);
  ek::set_error_handler([](const char* message) { heard = message; });
  CHECK(error_of([] { EVENKEEL_THROW(ek::UsageError, "thrown"); }) == "UsageError: thrown");
  CHECK(heard.empty());
  ek::detail::error_handler()("called");
  CHECK(heard == "called");
  ek::set_error_handler(before);
}
