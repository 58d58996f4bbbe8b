#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/training/adam.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;
using Catch::Approx;

namespace {

/// The parameter after each of three steps with the gradients 0.1, -0.2, 0.3, from 1.
template <class Optimizer>
std::vector<double> three_steps(Optimizer& optimizer, FreeParameters<double>& parameters) {
  std::vector<double> result;
  for (const double gradient : {0.1, -0.2, 0.3}) {
    step(optimizer, parameters, gradient);
    result.push_back(parameters.value());
  }
  return result;
}

/// Figures given to nine or ten decimals.
void check_figures(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) CHECK(actual[i] == Approx(expected[i]).margin(6e-10).epsilon(0));
}

template <typename T>
concept HasAdam = requires {
  typename ek::Adam<T>;
};

}  // namespace

TEST_CASE("OPT-1: epsilon is not scaled by the bias correction", "[adam]") {
  FreeParameters<double> parameters(0.0);
  ek::Adam<double> optimizer(parameters, {.learning_rate = 1e-3, .epsilon = 1e-8});
  step(optimizer, parameters, 1e-8);
  CHECK(parameters.value() == Approx(-5e-4).epsilon(1e-12));  // folded into the rate: -3.0653e-5
}

TEST_CASE("OPT-2: epsilon stands outside the root", "[adam]") {
  FreeParameters<double> parameters(0.0);
  ek::Adam<double> optimizer(parameters, {.learning_rate = 1, .epsilon = 1e-8});
  step(optimizer, parameters, 1e-5);
  CHECK(parameters.value() == Approx(-1e-5 / (1e-5 + 1e-8)).epsilon(1e-12));  // inside: -0.0995
}

TEMPLATE_TEST_CASE("OPT-3: the first step is finite, fresh and after a reset", "[adam]", ek::Adam<double>,
                   ek::AdamW<double>) {
  FreeParameters<double> parameters(0.0);
  TestType optimizer(parameters, {.learning_rate = 0.5});
  step(optimizer, parameters, -3.0);
  CHECK(parameters.value() == Approx(0.5).epsilon(1e-8));  // rate * sign(g), but for epsilon / |g|
  for (int t = 0; t < 100; ++t) step(optimizer, parameters, 0.25);
  optimizer.reset();
  parameters.value() = 0;
  step(optimizer, parameters, 3.0);
  CHECK(parameters.value() == Approx(-0.5).epsilon(1e-8));
}

TEST_CASE("OPT-4: the step counter does not saturate", "[adam]") {
  FreeParameters<float> parameters(1.0f);
  ek::Adam<float> optimizer(parameters, {.learning_rate = 1e-3});
  for (int t = 0; t < 1000; ++t) step(optimizer, parameters, 0.1f);
  CHECK(std::abs(parameters.value()) < 5e-4f);  // 1 - 1000 * 1e-3, and 1000 roundings of up to 3e-8

  auto state = optimizer.state();
  for (const std::int64_t steps : {std::int64_t{1} << 24, std::int64_t{1} << 53}) {
    state.steps = steps;
    optimizer.load_state(state);
    step(optimizer, parameters, 0.1f);
    CHECK(optimizer.steps() == steps + 1);
  }
}

TEST_CASE("OPT-5: 1 - beta is worked out in double", "[adam]") {
  for (const double beta : {0.999, 0.9999}) {
    FreeParameters<float> parameters(0.0f);
    ek::Adam<float> optimizer(parameters, {.learning_rate = 1, .beta1 = beta, .beta2 = beta});
    step(optimizer, parameters, 1.0f);
    CHECK(static_cast<double>(optimizer.state().at("w.exp_avg")(0, 0)) == Approx(1 - beta).epsilon(1e-7));
    CHECK(static_cast<double>(optimizer.state().at("w.exp_avg_sq")(0, 0)) == Approx(1 - beta).epsilon(1e-7));
    CHECK(static_cast<double>(parameters.value()) == Approx(-1).epsilon(3e-7));  // some roundings of float
  }
}

TEST_CASE("OPT-6: a zero gradient moves nothing, and an epsilon that is 0 in the scalar type is refused", "[adam]") {
  FreeParameters<float> parameters(1.25f);
  ek::Adam<float> optimizer(parameters);
  step(optimizer, parameters, 0.0f);
  CHECK(parameters.value() == 1.25f);
  CHECK(optimizer.state().at("w.exp_avg")(0, 0) == 0);
  CHECK(optimizer.state().at("w.exp_avg_sq")(0, 0) == 0);

  const auto message = [&](double epsilon) {
    return thrown<std::invalid_argument>([&] { ek::Adam<float>(parameters, {.epsilon = epsilon}); });
  };
  CHECK(message(0) == "Adam: expected a finite epsilon > 0, got 0");
  const std::string text =
      "Adam: expected epsilon >= 1.17549435e-38, the smallest normal number of the scalar type, got ";
  CHECK(message(1e-46) == text + "1e-46");
  CHECK(message(1e-40) == text + "1e-40");  // not 0, but flushed to it on some machines
  CHECK(message(1.2e-38) == "nothing thrown");
  FreeParameters<double> doubles(1.25);
  CHECK(thrown<std::invalid_argument>([&] { ek::Adam<double>(doubles, {.epsilon = 1e-46}); }) == "nothing thrown");
  CHECK(thrown<std::invalid_argument>([&] { ek::Adam<double>(doubles, {.epsilon = 1e-310}); }) ==
        "Adam: expected epsilon >= 2.22507386e-308, the smallest normal number of the scalar type, got 1e-310");
  STATIC_REQUIRE(HasAdam<long double>);
  STATIC_REQUIRE_FALSE(HasAdam<Eigen::half>);
}

TEST_CASE("OPT-8: after five steps and a reset Adam goes as from the start", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::Adam<double> optimizer(parameters, {.learning_rate = 0.01});
  for (int t = 0; t < 5; ++t) step(optimizer, parameters, 0.7);
  optimizer.reset();
  parameters.value() = 1;
  check_figures(three_steps(optimizer, parameters), {0.990000001, 0.993661036, 0.990228625});
}

TEST_CASE("WD-1: AdamW decays by rate times decay, before the update", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::AdamW<double> optimizer(parameters, {.learning_rate = 0.1, .epsilon = 1e-12, .weight_decay = 0.5});
  step(optimizer, parameters, 1.0);
  CHECK(parameters.value() == Approx(0.85).epsilon(1e-11));  // epsilon / |g| = 1e-12
}

TEST_CASE("WD-2: AdamW's decay leaves the moments alone, Adam's goes through them", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::AdamW<double> decoupled(parameters, {.learning_rate = 0.1, .weight_decay = 0.5});
  decoupled.step();
  CHECK(parameters.value() == Approx(0.95).epsilon(1e-15));
  CHECK(decoupled.state().at("w.exp_avg")(0, 0) == 0);
  CHECK(decoupled.state().at("w.exp_avg_sq")(0, 0) == 0);

  parameters.value() = 1;
  ek::Adam<double> coupled(parameters, {.learning_rate = 0.1, .weight_decay = 0.5});
  coupled.step();
  CHECK(parameters.value() == Approx(0.9).epsilon(1e-8));  // rate * sign, but for epsilon / 0.5

  parameters.value() = 1;
  ek::AdamW<double> w(parameters, {.learning_rate = 0.01, .weight_decay = 0.1});
  check_figures(three_steps(w, parameters), {0.989000001, 0.991672036, 0.987247953});
  CHECK(w.state().at("w.exp_avg")(0, 0) == Approx(0.0201).epsilon(1e-12));
  CHECK(w.state().at("w.exp_avg_sq")(0, 0) == Approx(1.3994001e-4).epsilon(1e-12));
  parameters.value() = 1;
  ek::Adam<double> l2(parameters, {.learning_rate = 0.01, .weight_decay = 0.1});
  check_figures(three_steps(l2, parameters), {0.9900000005, 0.9873751972, 0.9808115947});
}

TEST_CASE("WD-3: AdamW's decay follows the scheduled rate", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::AdamW<double> optimizer(parameters, {.learning_rate = 0.1, .weight_decay = 0.5});
  step(optimizer, parameters, 0.0, 0.0);
  CHECK(parameters.value() == 1);
  step(optimizer, parameters, 0.0, 0.5);
  CHECK(parameters.value() == Approx(0.975).epsilon(1e-15));
  step(optimizer, parameters, 0.0, 1.0);
  CHECK(parameters.value() == Approx(0.92625).epsilon(1e-15));
}

TEST_CASE("WD-4: gains, shifts and biases are told by what they do, not by name or shape", "[adam]") {
  ek::Linear<double> in(5, 4, {.seed = 1}), out(4, 1, {.seed = 2});  // the last weight is 1 x 4, like a gain
  ek::BatchNorm<double> batch_norm(4);
  ek::LayerNorm<double> layer_norm(4);
  ek::RMSNorm<double> rms_norm(4);
  ek::Parameters<double> list;
  const auto append = [&list](auto& layer, const std::string& path) {
    for (auto& p : layer.parameters()) list.push_back({path + p.name, p.value, p.gradient, p.kind});
  };
  append(in, "encoder.block.weight.");
  append(batch_norm, "encoder.block.renamed.");
  append(layer_norm, "");
  append(rms_norm, "encoder.");
  append(out, "head.");
  REQUIRE(list.size() == 9);
  std::vector<ek::Matrix<double>> before;
  for (const auto& p : list) before.push_back(p.value);

  ek::AdamW<double> optimizer(list, {.learning_rate = 0.01, .weight_decay = 0.1});
  for (int t = 0; t < 100; ++t) optimizer.step();
  const double shrunk = 0.90479214711370904;  // 0.999^100
  for (std::size_t i = 0; i < list.size(); ++i) {
    INFO(list[i].name);
    if (i == 0 || i == 7)
      CHECK(compare::difference(list[i].value, shrunk * before[i]) < 1e-14);  // a hundred roundings of 1e-16
    else
      CHECK(compare::same_bits(list[i].value, before[i]));
  }
}

TEST_CASE("WD-5: the decay is a part of the parameter, not a constant", "[adam]") {
  FreeParameters<double> parameters;
  parameters.add("w", ek::Matrix<double>(1, 3));
  parameters.list[0].value << 2, -2, 0;
  ek::AdamW<double> optimizer(parameters, {.learning_rate = 0.1, .weight_decay = 0.5});
  optimizer.step();
  CHECK(parameters.value(0) == Approx(1.9).epsilon(1e-15));
  CHECK(parameters.value(1) == Approx(-1.9).epsilon(1e-15));
  CHECK(parameters.value(2) == 0);
}

TEST_CASE("STA-1: Adam resumes with moments and counter", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::Adam<double> optimizer(parameters, {.learning_rate = 0.01});
  step(optimizer, parameters, 0.1);
  step(optimizer, parameters, -0.2);
  const auto state = optimizer.state();
  CHECK(state.steps == 2);
  CHECK(state.at("w.exp_avg")(0, 0) == Approx(-0.011).epsilon(1e-12));
  CHECK(state.at("w.exp_avg_sq")(0, 0) == Approx(4.999e-5).epsilon(1e-12));

  FreeParameters<double> later(parameters.value());
  ek::Adam<double> resumed(later, {.learning_rate = 0.01});
  resumed.load_state(state);
  step(resumed, later, 0.3);
  step(optimizer, parameters, 0.3);
  check_figures({later.value()}, {0.990228625});
  CHECK(compare::same_bits(later.value(), parameters.value()));
}

TEST_CASE("STA-3: the bias correction follows a loaded step count", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::Adam<double> optimizer(parameters, {.learning_rate = 0.01, .epsilon = 1e-8});
  auto state = optimizer.state();
  state.steps = 10000;
  state.at("w.exp_avg")(0, 0) = 0.1;
  state.at("w.exp_avg_sq")(0, 0) = 0.01;
  optimizer.load_state(state);
  step(optimizer, parameters, 0.1);
  check_figures({parameters.value()}, {0.990000227});
  CHECK(optimizer.state().at("w.exp_avg")(0, 0) == Approx(0.1).epsilon(1e-15));
  CHECK(optimizer.state().at("w.exp_avg_sq")(0, 0) == Approx(0.01).epsilon(1e-15));
}

TEST_CASE("Adam's moments are shown in the parameter's logical shape", "[adam]") {
  ek::Linear<double> linear(3, 2);  // its weight lies column by column
  auto list = linear.parameters();
  const auto gradient = values::random<double>(2, 3, 1);
  list[0].gradient = gradient;
  ek::Adam<double> optimizer(linear, {.beta1 = 0.5});
  optimizer.step();
  auto state = optimizer.state();
  CHECK(compare::same_bits(state.at("weight.exp_avg"), ek::Matrix<double>(0.5 * gradient)));

  state.at("weight.exp_avg").setZero();
  state.at("weight.exp_avg")(1, 0) = 7;
  optimizer.load_state(state);
  CHECK(optimizer.state().at("weight.exp_avg")(1, 0) == 7);
  const ek::Matrix<double> before = list[0].value;
  list[0].gradient.setZero();
  optimizer.step();
  CHECK(list[0].value(1, 0) < before(1, 0));
  CHECK(list[0].value(0, 1) == before(0, 1));
}

TEST_CASE("Adam averages in the form that is exact at either end", "[adam]") {
  FreeParameters<double> parameters(0.0);
  ek::Adam<double> forgets(parameters, {.beta1 = 0, .beta2 = 0});
  step(forgets, parameters, 1e20);
  step(forgets, parameters, 0.1);
  CHECK(forgets.state().at("w.exp_avg")(0, 0) == 0.1);
  CHECK(forgets.state().at("w.exp_avg_sq")(0, 0) == Approx(0.01).epsilon(1e-15));

  FreeParameters<double> several;
  several.add("w", ek::Matrix<double>::Zero(1, 50));
  several.list[0].gradient.array() = values::random<double>(1, 50, 1).array() / 3;
  ek::Adam<double> keeps(several);
  auto state = keeps.state();
  state.at("w.exp_avg") = several.list[0].gradient;
  keeps.load_state(state);
  for (int t = 0; t < 10; ++t) keeps.step();
  CHECK(compare::same_bits(keeps.state().at("w.exp_avg"), several.list[0].gradient));

  FreeParameters<float> slow_parameters(0.0f);
  ek::Adam<float> slow(slow_parameters, {.beta1 = 1 - 1e-9});  // 1 in float
  auto started = slow.state();
  started.at("w.exp_avg")(0, 0) = 1;
  slow.load_state(started);
  step(slow, slow_parameters, 1e10f);
  CHECK(static_cast<double>(slow.state().at("w.exp_avg")(0, 0)) == Approx(11).epsilon(1e-6));
}

TEST_CASE("amsgrad divides by the largest mean of squares, bias-corrected after the maximum", "[adam]") {
  FreeParameters<double> parameters(0.0);
  ek::Adam<double> optimizer(parameters, {.learning_rate = 1, .beta1 = 0, .beta2 = 0.5, .amsgrad = true});
  step(optimizer, parameters, 2.0);  // v = 2, corrected 4
  CHECK(parameters.value() == Approx(-1).epsilon(1e-8));
  step(optimizer, parameters, 0.5);  // v = 1.125, maximum 2, corrected 2 / 0.75
  CHECK(optimizer.state().at("w.exp_avg_sq")(0, 0) == 1.125);
  CHECK(optimizer.state().at("w.max_exp_avg_sq")(0, 0) == 2);
  CHECK(parameters.value() == Approx(-1 - 0.5 / std::sqrt(2 / 0.75)).epsilon(1e-8));
}

TEST_CASE("A NaN gradient shows in parameter and moments", "[adam]") {
  FreeParameters<double> parameters(1.0);
  ek::Adam<double> optimizer(parameters, {.amsgrad = true});
  step(optimizer, parameters, 1.0);
  step(optimizer, parameters, std::nan(""));
  CHECK(std::isnan(parameters.value()));
  for (const auto& moment : optimizer.state().moments) {
    INFO(moment.name);
    CHECK(std::isnan(moment.value(0, 0)));
  }
}

TEMPLATE_TEST_CASE("Adam and AdamW say which option is out of bounds", "[adam]", ek::Adam<double>, ek::AdamW<double>) {
  FreeParameters<double> parameters(1.0);
  const auto message = [&](typename TestType::Options options) {
    const std::string text = thrown<std::invalid_argument>([&] { TestType(parameters, options); });
    const std::string place = std::string(TestType::name) + ": ";
    return text.substr(0, place.size()) == place ? text.substr(place.size()) : text;
  };
  CHECK(message({.learning_rate = -1e-3}) == "expected a finite learning_rate >= 0, got -0.001");
  CHECK(message({.learning_rate = std::nan("")}) == "expected a finite learning_rate >= 0, got nan");
  CHECK(message({.beta1 = 1}) == "expected beta1 in [0, 1), got 1");
  CHECK(message({.beta1 = -0.1}) == "expected beta1 in [0, 1), got -0.1");
  CHECK(message({.beta2 = 1}) == "expected beta2 in [0, 1), got 1");
  CHECK(message({.beta2 = std::nan("")}) == "expected beta2 in [0, 1), got nan");
  CHECK(message({.epsilon = -1e-8}) == "expected a finite epsilon > 0, got -1e-08");
  CHECK(message({.epsilon = HUGE_VAL}) == "expected a finite epsilon > 0, got inf");
  CHECK(message({.weight_decay = -1}) == "expected a finite weight_decay >= 0, got -1");
  CHECK(message({.learning_rate = 0, .beta1 = 0, .beta2 = 0, .weight_decay = 0}) == "nothing thrown");
}

TEST_CASE("The defaults are PyTorch's", "[adam]") {
  CHECK(ek::AdamOptions{}.learning_rate == 1e-3);
  CHECK(ek::AdamOptions{}.beta1 == 0.9);
  CHECK(ek::AdamOptions{}.beta2 == 0.999);
  CHECK(ek::AdamOptions{}.epsilon == 1e-8);
  CHECK(ek::AdamOptions{}.weight_decay == 0);
  CHECK_FALSE(ek::AdamOptions{}.amsgrad);
  CHECK(ek::AdamWOptions{}.learning_rate == 1e-3);
  CHECK(ek::AdamWOptions{}.beta1 == 0.9);
  CHECK(ek::AdamWOptions{}.beta2 == 0.999);
  CHECK(ek::AdamWOptions{}.epsilon == 1e-8);
  CHECK(ek::AdamWOptions{}.weight_decay == 0.01);
  CHECK_FALSE(ek::AdamWOptions{}.amsgrad);
}

TEMPLATE_TEST_CASE("Adam moves an element of a long parameter as it would alone", "[adam]", float, double) {
  using Options = ek::AdamOptions;
  const std::vector<Options> every_kind = {
      {}, {.weight_decay = 0.1}, {.amsgrad = true}, {.beta1 = 0.25}, {.weight_decay = 0.1, .amsgrad = true}};
  for (const Options& options : every_kind)
    for (const ek::Index size : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 255, 256, 300}) {
      INFO(options.weight_decay << " " << options.amsgrad << " " << options.beta1 << ", size " << size);
      const auto value = values::random<TestType>(1, size, 1);
      FreeParameters<TestType> together, apart;
      together.add("w", value);
      for (ek::Index i = 0; i < size; ++i) apart.add("w" + std::to_string(i), value.col(i));
      ek::Adam<TestType> optimizer(together, options), optimizer_apart(apart, options);
      for (const double factor : {1.0, 0.0, 2.0}) {
        const auto gradient = values::random<TestType>(1, size, static_cast<std::uint32_t>(2 + factor));
        together.list[0].gradient = gradient;
        for (ek::Index i = 0; i < size; ++i) apart.list[static_cast<std::size_t>(i)].gradient = gradient.col(i);
        optimizer.step(factor);
        optimizer_apart.step(factor);
      }
      ek::Matrix<TestType> expected(1, size);
      for (ek::Index i = 0; i < size; ++i) expected(i) = apart.list[static_cast<std::size_t>(i)].value(0, 0);
      // Fused multiplications may fall otherwise.
      CHECK(compare::difference(together.list[0].value, expected) <= 4 * compare::epsilon<TestType>);
    }
}
