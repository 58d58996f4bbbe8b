#include <cmath>
#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "evenkeel/training/schedule.hpp"
#include "evenkeel/training/sgd.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;
using Catch::Approx;

TEST_CASE("LRW-1: the first update of a warm-up moves, and the base rate is reached with the last", "[schedule]") {
  const double factors[] = {0.25, 0.5, 0.75, 1, 1, 1};
  const double values[] = {0.975, 0.925, 0.85, 0.75, 0.65, 0.55};
  FreeParameters<double> parameters(1.0);
  ek::SGD<double> optimizer(parameters, {.learning_rate = 0.1});
  for (int t = 0; t < 6; ++t) {
    CHECK(ek::warmup(t, 4) == factors[t]);
    step(optimizer, parameters, 1.0, ek::warmup(t, 4));
    CHECK(parameters.value() == Approx(values[t]).epsilon(1e-14));
  }
}

TEST_CASE("LRW-1: all schedules warm up alike", "[schedule]") {
  for (int t = 0; t < 4; ++t) {
    CHECK(ek::warmup_cosine(t, 4, 10, 0.5) == (t + 1) / 4.0);
    CHECK(ek::warmup_linear(t, 4, 10, 0.5) == (t + 1) / 4.0);
  }
}

TEST_CASE("LRW-2: a warm-up of 0 or 1 updates is none", "[schedule]") {
  for (const int length : {0, 1}) {
    CHECK(ek::warmup(0, length) == 1);
    CHECK(ek::warmup(1, length) == 1);
  }
  CHECK(ek::warmup_cosine(0, 0, 10) == 1);
  CHECK(ek::warmup_cosine(0, 1, 10) == 1);
  CHECK(ek::warmup_cosine(1, 1, 10) == 1);
  CHECK(ek::warmup_linear(0, 0, 10) == 1);
  CHECK(ek::warmup_linear(0, 1, 10) == 1);
  CHECK(ek::warmup_linear(1, 1, 10) == 1);
}

TEST_CASE("LRW-2: a schedule that is all warm-up ends at the final factor", "[schedule]") {
  const std::vector<double> expected{0.25, 0.5, 0.75, 1, 0.125, 0.125};
  for (int t = 0; t < 6; ++t) {
    CHECK(ek::warmup_cosine(t, 4, 4, 0.125) == expected[static_cast<std::size_t>(t)]);
    CHECK(ek::warmup_linear(t, 4, 4, 0.125) == expected[static_cast<std::size_t>(t)]);
  }
  CHECK(ek::warmup_cosine(0, 0, 1) == 1);
  CHECK(ek::warmup_cosine(1, 0, 1) == 0);
}

TEST_CASE("LRW-2: a base rate of 0 stays 0", "[schedule]") {
  FreeParameters<double> parameters(1.0);
  ek::SGD<double> optimizer(parameters, {.learning_rate = 0});
  for (int t = 0; t < 6; ++t) step(optimizer, parameters, 1.0, ek::warmup(t, 4));
  CHECK(parameters.value() == 1);
}

TEST_CASE("LRW-2: negative and inconsistent lengths are refused", "[schedule]") {
  const auto message = [](auto call) { return thrown<std::invalid_argument>(call); };
  CHECK(message([] { ek::constant(-1); }) == "constant: expected t >= 0, got -1");
  CHECK(message([] { ek::warmup(-1, 4); }) == "warmup: expected t >= 0, got -1");
  CHECK(message([] { ek::warmup(0, -1); }) == "warmup: expected warmup >= 0, got -1");
  CHECK(message([] { ek::warmup_cosine(-2, 1, 10); }) == "warmup_cosine: expected t >= 0, got -2");
  CHECK(message([] { ek::warmup_cosine(0, -1, 10); }) == "warmup_cosine: expected warmup >= 0, got -1");
  CHECK(message([] { ek::warmup_cosine(0, 0, 0); }) == "warmup_cosine: expected total >= 1, got 0");
  CHECK(message([] { ek::warmup_cosine(0, 11, 10); }) == "warmup_cosine: expected total >= warmup = 11, got 10");
  CHECK(message([] { ek::warmup_cosine(0, 1, 10, -0.5); }) ==
        "warmup_cosine: expected a finite final_factor >= 0, got -0.5");
  CHECK(message([] { ek::warmup_linear(-2, 1, 10); }) == "warmup_linear: expected t >= 0, got -2");
  CHECK(message([] { ek::warmup_linear(0, -1, 10); }) == "warmup_linear: expected warmup >= 0, got -1");
  CHECK(message([] { ek::warmup_linear(0, 0, 0); }) == "warmup_linear: expected total >= 1, got 0");
  CHECK(message([] { ek::warmup_linear(0, 11, 10); }) == "warmup_linear: expected total >= warmup = 11, got 10");
  CHECK(message([] { ek::warmup_linear(0, 1, 10, std::nan("")); }) ==
        "warmup_linear: expected a finite final_factor >= 0, got nan");
}

TEST_CASE("The constant schedule is 1", "[schedule]") {
  CHECK(ek::constant(0) == 1);
  CHECK(ek::constant(std::int64_t{1} << 60) == 1);
}

TEST_CASE("warmup_cosine falls by half a cosine to the final factor and stays there", "[schedule]") {
  // total - warmup = 6: angles of 0, 30, 60, 90, 120, 150 degrees.
  const double cosines[] = {1, std::sqrt(3.0) / 2, 0.5, 0, -0.5, -std::sqrt(3.0) / 2};
  for (int k = 0; k < 6; ++k) {
    CHECK(ek::warmup_cosine(4 + k, 4, 10) == Approx((1 + cosines[k]) / 2).margin(1e-15));
    CHECK(ek::warmup_cosine(4 + k, 4, 10, 0.2) == Approx(0.2 + 0.8 * (1 + cosines[k]) / 2).margin(1e-15));
  }
  CHECK(ek::warmup_cosine(10, 4, 10) == 0);
  CHECK(ek::warmup_cosine(10, 4, 10, 0.2) == 0.2);
  CHECK(ek::warmup_cosine(1000, 4, 10, 0.2) == 0.2);
}

TEST_CASE("warmup_linear falls along a line to the final factor and stays there", "[schedule]") {
  const double line[] = {1, 0.75, 0.5, 0.25};
  for (int k = 0; k < 4; ++k) {
    CHECK(ek::warmup_linear(2 + k, 2, 6) == line[k]);
    CHECK(ek::warmup_linear(2 + k, 2, 6, 0.5) == 0.5 + 0.5 * line[k]);
  }
  CHECK(ek::warmup_linear(6, 2, 6) == 0);
  CHECK(ek::warmup_linear(1000, 2, 6, 0.5) == 0.5);
}
