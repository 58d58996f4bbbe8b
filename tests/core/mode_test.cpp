#include "evenkeel/core/mode.hpp"

#include <type_traits>

#include "catch.hpp"

namespace ek = evenkeel;

TEST_CASE("The named modes are the rows of their table", "[mode]") {
  struct Row {
    ek::Mode mode;
    bool masks;
    ek::Statistics statistics;
    ek::RunningStatistics running;
  };
  const Row rows[] = {{ek::Mode::train, true, ek::Statistics::batch, ek::RunningStatistics::update},
                      {ek::Mode::train_prepared, true, ek::Statistics::batch, ek::RunningStatistics::prepare},
                      {ek::Mode::eval, false, ek::Statistics::running, ek::RunningStatistics::keep},
                      {ek::Mode::frozen_statistics, true, ek::Statistics::frozen, ek::RunningStatistics::keep},
                      {ek::Mode::monte_carlo, true, ek::Statistics::running, ek::RunningStatistics::keep}};
  for (const auto& row : rows) {
    CHECK(row.mode.draws_masks() == row.masks);
    CHECK(row.mode.statistics() == row.statistics);
    CHECK(row.mode.running_statistics() == row.running);
    CHECK(row.mode.updates_running_statistics() == (row.running == ek::RunningStatistics::update));
    for (const auto& other : rows) CHECK((row.mode == other.mode) == (&row == &other));
  }
}

TEST_CASE("Any combination can be made, and is equal to its name if it has one", "[mode]") {
  constexpr ek::Mode mode(ek::Masks::off, ek::Statistics::batch, ek::RunningStatistics::update);
  STATIC_REQUIRE(!mode.draws_masks());
  STATIC_REQUIRE(mode.statistics() == ek::Statistics::batch);
  STATIC_REQUIRE(mode.updates_running_statistics());
  CHECK(mode != ek::Mode::train);
  CHECK(ek::Mode(ek::Masks::on, ek::Statistics::batch, ek::RunningStatistics::update) == ek::Mode::train);
}

TEST_CASE("A mode is made neither from nothing nor from a bool", "[mode]") {
  STATIC_REQUIRE_FALSE(std::is_default_constructible_v<ek::Mode>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<ek::Mode, bool>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<ek::Mode>);
}
