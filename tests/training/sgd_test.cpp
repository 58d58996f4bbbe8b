#include <cmath>

#include "catch.hpp"
#include "evenkeel/training/sgd.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;
using Catch::Approx;

TEST_CASE("OPT-7: Nesterov's momentum is PyTorch's", "[sgd]") {
  FreeParameters<double> parameters(1.0);
  ek::SGD<double> optimizer(parameters, {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  const double values[] = {0.905, 0.7695, 0.59755}, buffers[] = {0.5, 0.95, 1.355};
  for (int t = 0; t < 3; ++t) {
    step(optimizer, parameters, 0.5);
    CHECK(parameters.value() == Approx(values[t]).epsilon(1e-14));  // exact decimals, some roundings
    CHECK(optimizer.state().at("w.momentum_buffer")(0, 0) == Approx(buffers[t]).epsilon(1e-14));
  }
}

TEST_CASE("OPT-7: Nesterov's momentum without momentum, or with dampening, is refused", "[sgd]") {
  FreeParameters<double> parameters(1.0);
  CHECK(thrown<std::invalid_argument>([&] { ek::SGD<double>(parameters, {.nesterov = true}); }) ==
        "SGD: expected momentum > 0 with nesterov, got 0");
  CHECK(thrown<std::invalid_argument>([&] {
          ek::SGD<double>(parameters, {.momentum = 0.9, .dampening = 0.5, .nesterov = true});
        }) == "SGD: expected dampening = 0 with nesterov, got 0.5");
}

TEST_CASE("SGD dampens every gradient but the first", "[sgd]") {
  FreeParameters<double> parameters(0.0);
  ek::SGD<double> optimizer(parameters, {.learning_rate = 1, .momentum = 0.5, .dampening = 0.75});
  step(optimizer, parameters, 1.0);
  CHECK(parameters.value() == -1.0);  // b = 1
  step(optimizer, parameters, 1.0);
  CHECK(parameters.value() == -1.75);  // b = 0.5 + 0.25
  optimizer.reset();
  step(optimizer, parameters, 1.0);
  CHECK(parameters.value() == -2.75);  // b = 1 again
}

TEST_CASE("A state after no steps starts the momentum afresh", "[sgd]") {
  FreeParameters<double> parameters(0.0);
  ek::SGD<double> optimizer(parameters, {.learning_rate = 1, .momentum = 0.5});
  auto state = optimizer.state();
  state.at("w.momentum_buffer")(0, 0) = 8;
  optimizer.load_state(state);
  step(optimizer, parameters, 1.0);
  CHECK(parameters.value() == -1.0);
}

TEST_CASE("SGD remembers a buffer only where there is momentum", "[sgd]") {
  FreeParameters<double> parameters;
  parameters.add("a", ek::Matrix<double>::Zero(1, 1));
  parameters.add("b", ek::Matrix<double>::Zero(1, 1));
  ek::SGD<double> plain(parameters, {.learning_rate = 1});
  CHECK(plain.state().moments.empty());
  ek::SGD<double> mixed(
      parameters, {.learning_rate = 1},
      {{.name = "b", .contains = [](const auto& p) { return p.name == "b"; }, .options = {.momentum = 0.5}}});
  REQUIRE(mixed.state().moments.size() == 1);
  CHECK(mixed.state().moments[0].name == "b.momentum_buffer");
}

TEST_CASE("SGD says which option is out of bounds", "[sgd]") {
  FreeParameters<float> parameters(1.0f);
  const auto message = [&](ek::SGDOptions options) {
    return thrown<std::invalid_argument>([&] { ek::SGD<float>(parameters, options); });
  };
  CHECK(message({.learning_rate = -1}) == "SGD: expected a finite learning_rate >= 0, got -1");
  CHECK(message({.learning_rate = HUGE_VAL}) == "SGD: expected a finite learning_rate >= 0, got inf");
  CHECK(message({.momentum = -0.5}) == "SGD: expected a finite momentum >= 0, got -0.5");
  CHECK(message({.momentum = std::nan("")}) == "SGD: expected a finite momentum >= 0, got nan");
  CHECK(message({.dampening = HUGE_VAL}) == "SGD: expected a finite dampening, got inf");
  CHECK(message({.weight_decay = -0.1}) == "SGD: expected a finite weight_decay >= 0, got -0.1");
  CHECK(message({.learning_rate = 0, .momentum = 2, .dampening = -1, .weight_decay = 0}) == "nothing thrown");
}
