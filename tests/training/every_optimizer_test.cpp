#include <algorithm>  // max
#include <cmath>      // pow, sqrt, signbit
#include <cstdint>
#include <limits>
#include <sstream>
#include <tuple>
#include <type_traits>
#include <utility>  // pair, move
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/schedule.hpp"
#include "evenkeel/training/sgd.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;

namespace {

/// The members of the table: an optimizer with options. Decay is on where it can be, so that each law meets it.
template <class Optimizer_>
struct Member {
  using Optimizer = Optimizer_;
  const char* name;
  typename Optimizer::Options options;

  typename Optimizer::Options without_decay() const {
    auto result = options;
    result.weight_decay = 0;
    return result;
  }
};

template <typename S>
auto members() {
  return std::tuple{
      Member<ek::SGD<S>>{"SGD", {.learning_rate = 0.1}},
      Member<ek::SGD<S>>{"SGD with decay", {.learning_rate = 0.1, .weight_decay = 0.25}},
      Member<ek::SGD<S>>{"SGD with momentum",
                         {.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.25}},
      Member<ek::SGD<S>>{"SGD with Nesterov's momentum",
                         {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.25}},
      Member<ek::Adam<S>>{"Adam", {.learning_rate = 0.1}},
      Member<ek::Adam<S>>{"Adam with L2", {.learning_rate = 0.1, .weight_decay = 0.25}},
      Member<ek::Adam<S>>{"Adam with amsgrad", {.learning_rate = 0.1, .beta2 = 0.5, .amsgrad = true}},
      Member<ek::Adam<S>>{"Adam with short memory", {.learning_rate = 0.1, .beta1 = 0.25, .beta2 = 0.75}},
      Member<ek::AdamW<S>>{"AdamW", {.learning_rate = 0.1, .weight_decay = 0.25}},
      Member<ek::AdamW<S>>{"AdamW with amsgrad",
                           {.learning_rate = 0.1, .beta2 = 0.5, .weight_decay = 0.25, .amsgrad = true}}};
}

template <typename S, class Law>
void for_each_member(const Law& law) {
  std::apply(
      [&law](const auto&... member) {
        const auto one = [&law](const auto& m) {
          DYNAMIC_SECTION(m.name) { law(m); }
        };
        (one(member), ...);
      },
      members<S>());
}

/// One element moved as the papers write it, in long double.
struct ByHand {
  template <typename S>
  explicit ByHand(S value) : p{static_cast<long double>(value)} {}

  long double p;
  long double m = 0, v = 0, v_max = 0;
  int t = 0;
};

void step_by_hand(const ek::SGDOptions& o, ByHand& x, long double gradient, bool decayed) {
  ++x.t;
  const long double g = gradient + (decayed ? static_cast<long double>(o.weight_decay) * x.p : 0);
  const auto mu = static_cast<long double>(o.momentum);
  x.m = x.t == 1 ? g : mu * x.m + (1 - static_cast<long double>(o.dampening)) * g;
  const long double direction = o.nesterov ? g + mu * x.m : o.momentum > 0 ? x.m : g;
  x.p = x.p - static_cast<long double>(o.learning_rate) * direction;
}

template <class AnyAdamOptions>
void adam_by_hand(const AnyAdamOptions& o, ByHand& x, long double g) {
  ++x.t;
  const auto beta1 = static_cast<long double>(o.beta1), beta2 = static_cast<long double>(o.beta2);
  x.m = beta1 * x.m + (1 - beta1) * g;
  x.v = beta2 * x.v + (1 - beta2) * g * g;
  x.v_max = (std::max)(x.v_max, x.v);
  const long double m_hat = x.m / (1 - std::pow(beta1, x.t));
  const long double v_hat = (o.amsgrad ? x.v_max : x.v) / (1 - std::pow(beta2, x.t));
  x.p = x.p -
        static_cast<long double>(o.learning_rate) * m_hat / (std::sqrt(v_hat) + static_cast<long double>(o.epsilon));
}

void step_by_hand(const ek::AdamOptions& o, ByHand& x, long double gradient, bool decayed) {
  adam_by_hand(o, x, gradient + (decayed ? static_cast<long double>(o.weight_decay) * x.p : 0));
}

void step_by_hand(const ek::AdamWOptions& o, ByHand& x, long double gradient, bool decayed) {
  if (decayed) x.p -= static_cast<long double>(o.learning_rate) * static_cast<long double>(o.weight_decay) * x.p;
  adam_by_hand(o, x, gradient);
}

/// A weight of several pieces and a rest, a bias, and the two parameters of a norm.
template <typename S>
FreeParameters<S> network() {
  FreeParameters<S> result;
  result.add("0.weight", values::random<S>(23, 29, 1));
  result.add("0.bias", values::random<S>(1, 23, 2), ek::ParameterKind::bias);
  result.add("1.weight", values::random<S>(1, 23, 3), ek::ParameterKind::norm_scale);
  result.add("1.bias", values::random<S>(1, 23, 4), ek::ParameterKind::norm_shift);
  return result;
}

/// Gradients that differ from step to step.
template <typename S>
void draw_gradients(FreeParameters<S>& parameters, int number) {
  for (std::size_t i = 0; i < parameters.list.size(); ++i) {
    auto& p = parameters.list[i];
    const auto seed = static_cast<std::uint32_t>(100 + 10 * number) + static_cast<std::uint32_t>(i);
    p.gradient.array() = values::random<S>(p.value.rows(), p.value.cols(), seed).array();  // not moved: in place
  }
}

template <class Optimizer, typename S>
void train(Optimizer& optimizer, FreeParameters<S>& parameters, int first, int end) {
  for (int number = first; number < end; ++number) {
    draw_gradients(parameters, number);
    optimizer.step(ek::warmup_linear(number, 3, 20));
  }
}

template <typename S>
bool same_values(const FreeParameters<S>& a, const FreeParameters<S>& b) {
  for (std::size_t i = 0; i < a.list.size(); ++i)
    if (!compare::same_bits(a.list[i].value, b.list[i].value)) return false;
  return true;
}

template <typename S>
bool same_state(const ek::OptimizerState<S>& a, const ek::OptimizerState<S>& b) {
  if (a.steps != b.steps || a.moments.size() != b.moments.size()) return false;
  for (std::size_t i = 0; i < a.moments.size(); ++i)
    if (a.moments[i].name != b.moments[i].name || !compare::same_bits(a.moments[i].value, b.moments[i].value))
      return false;
  return true;
}

template <class Optimizer>
constexpr bool moves_only = std::is_nothrow_move_constructible_v<Optimizer>&& std::is_move_assignable_v<Optimizer> &&
                            !std::is_copy_constructible_v<Optimizer> && !std::is_copy_assignable_v<Optimizer>;

}  // namespace

TEMPLATE_TEST_CASE("Every optimizer takes the first steps that the papers write", "[every_optimizer]", float, double,
                   long double) {
  for_each_member<TestType>([](const auto& member) {
    auto parameters = network<TestType>();
    std::vector<std::vector<ByHand>> by_hand;
    for (const auto& p : parameters.list) by_hand.emplace_back(p.value.data(), p.value.data() + p.value.size());
    typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, member.options);

    for (int number = 0; number < 6; ++number) {
      draw_gradients(parameters, number);
      optimizer.step();
      double largest = 0;
      for (std::size_t i = 0; i < by_hand.size(); ++i) {
        const auto& p = parameters.list[i];
        for (std::size_t j = 0; j < by_hand[i].size(); ++j) {
          ByHand& element = by_hand[i][j];
          step_by_hand(member.options, element, static_cast<long double>(p.gradient.data()[j]),
                       p.kind == ek::ParameterKind::weight);
          const auto error = static_cast<double>(std::abs(static_cast<long double>(p.value.data()[j]) - element.p));
          largest = (std::max)(largest, error);
        }
      }
      // Values and updates are of size 1: some roundings a step, of numbers that are worked out in double at best.
      const double unit = (std::max)(compare::epsilon<TestType>, compare::epsilon<double>);
      CHECK(largest <= (8 + 8 * number) * unit);
    }
  });
}

TEMPLATE_TEST_CASE("Equal elements move equally, wherever they stand", "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    FreeParameters<TestType> parameters;
    parameters.add("a", ek::Matrix<TestType>::Constant(13, 41, TestType(0.7)));
    parameters.add("b", ek::Matrix<TestType>::Constant(1, 3, TestType(0.7)));
    typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, member.options);
    for (int number = 0; number < 5; ++number) {
      for (auto& p : parameters.list) p.gradient.setConstant(TestType(0.3) - TestType(number) / 10);
      optimizer.step();
    }
    for (const auto& p : parameters.list)
      CHECK(compare::same_bits(p.value,
                               ek::Matrix<TestType>::Constant(p.value.rows(), p.value.cols(), parameters.value())));
  });
}

TEMPLATE_TEST_CASE("Every optimizer reaches the minimum of a quadratic", "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    const auto minimum = values::random<TestType>(1, 9, 5);
    const auto curvature = values::positive<TestType>(1, 9, 6);  // in (1/2, 5/2)
    FreeParameters<TestType> parameters;
    parameters.add("w", ek::Matrix<TestType>::Zero(1, 9));
    typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, member.without_decay());
    for (int t = 0; t < 1000; ++t) {
      auto& p = parameters.list[0];
      p.gradient = (curvature.array() * (p.value - minimum).array()).matrix();
      optimizer.step(ek::warmup_cosine(t, 10, 1000));
    }
    // The slowest, plain SGD, shrinks an error by 1 - 0.05 a step at first: long past 1e-4. Adam's last steps are of the
    // scheduled rate, below 1e-6.
    CHECK(compare::difference(parameters.list[0].value, minimum) < 1e-4);
  });
}

TEMPLATE_TEST_CASE("A learning rate of 0 changes no bit, whatever the gradient", "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
    for (const bool by_factor : {true, false}) {
      FreeParameters<TestType> parameters;
      parameters.add("w", ek::Matrix<TestType>(1, 6));
      parameters.list[0].value << TestType(-0.0), TestType(-0.0), TestType(1.1), TestType(1.1), infinity, TestType(-3);
      parameters.list[0].gradient << TestType(0), TestType(-1), infinity, -TestType(NAN), TestType(1), TestType(2);
      const auto before = parameters;
      auto options = member.options;
      if (!by_factor) options.learning_rate = 0;
      typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, options);
      for (int t = 0; t < 3; ++t) optimizer.step(by_factor ? 0 : 1);
      CHECK(same_values(parameters, before));
      CHECK(optimizer.steps() == 3);
      for (const auto& moment : optimizer.state().moments) CHECK(moment.value(0, 5) != 0);
    }
  });
}

TEMPLATE_TEST_CASE("Zero gradients on a fresh state leave undecayed parameters as they are", "[every_optimizer]", float,
                   double) {
  for_each_member<TestType>([](const auto& member) {
    auto parameters = network<TestType>();
    const auto before = parameters;
    typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, member.without_decay());
    for (int t = 0; t < 3; ++t) optimizer.step();
    CHECK(same_values(parameters, before));
    for (const auto& moment : optimizer.state().moments) CHECK((moment.value.array() == 0).all());
  });
}

TEMPLATE_TEST_CASE("STA-1: a resumed run equals an uninterrupted one to the bit", "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto parameters = network<TestType>();
    Optimizer optimizer(parameters, member.options);
    train(optimizer, parameters, 0, 5);

    auto resumed_parameters = parameters;
    Optimizer resumed(resumed_parameters, member.options);
    resumed.load_state(optimizer.state());
    CHECK(resumed.steps() == 5);
    CHECK(same_state(resumed.state(), optimizer.state()));

    train(optimizer, parameters, 5, 10);
    train(resumed, resumed_parameters, 5, 10);
    CHECK(same_values(parameters, resumed_parameters));
    CHECK(same_state(resumed.state(), optimizer.state()));
  });
}

TEMPLATE_TEST_CASE("An optimizer's steps stay where they are once they can count no further", "[every_optimizer]",
                   float, double) {
  for_each_member<TestType>([](const auto& member) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    auto parameters = network<TestType>();
    typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, member.options);
    auto state = optimizer.state();
    state.steps = most - 1;
    optimizer.load_state(state);
    train(optimizer, parameters, 0, 3);
    CHECK(optimizer.steps() == most);
  });
}

TEMPLATE_TEST_CASE("OPT-8: a reset optimizer is a fresh one", "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto parameters = network<TestType>();
    Optimizer optimizer(parameters, member.options);
    train(optimizer, parameters, 0, 5);
    optimizer.reset();
    CHECK(optimizer.steps() == 0);

    auto fresh_parameters = parameters;
    Optimizer fresh(fresh_parameters, member.options);
    CHECK(same_state(optimizer.state(), fresh.state()));
    train(optimizer, parameters, 0, 5);
    train(fresh, fresh_parameters, 0, 5);
    CHECK(same_values(parameters, fresh_parameters));
  });
}

TEMPLATE_TEST_CASE("STA-2: a state is a value that shares nothing with its optimizer", "[every_optimizer]", float,
                   double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto parameters = network<TestType>();
    auto twin_parameters = parameters;
    Optimizer optimizer(parameters, member.options);
    Optimizer twin(twin_parameters, member.options);
    train(optimizer, parameters, 0, 3);
    train(twin, twin_parameters, 0, 3);

    auto state = optimizer.state();
    state.steps = 77;
    for (auto& moment : state.moments) moment.value.setConstant(TestType(9));
    CHECK(same_state(optimizer.state(), twin.state()));

    // Nor does a loaded state stay connected, or follow the steps taken after it.
    const auto kept = optimizer.state();
    auto loaded = kept;
    optimizer.load_state(loaded);
    for (auto& moment : loaded.moments) moment.value.setConstant(TestType(9));
    CHECK(same_state(optimizer.state(), kept));
    train(optimizer, parameters, 3, 6);
    train(twin, twin_parameters, 3, 6);
    CHECK(same_values(parameters, twin_parameters));
    CHECK(kept.steps == 3);
  });
}

TEST_CASE("STA-2: optimizers do not copy, they move", "[every_optimizer]") {
  STATIC_REQUIRE(moves_only<ek::SGD<float>>);
  STATIC_REQUIRE(moves_only<ek::Adam<double>>);
  STATIC_REQUIRE(moves_only<ek::AdamW<long double>>);

  FreeParameters<double> parameters(1.0), twin_parameters(1.0);
  ek::AdamW<double> optimizer(parameters), twin(twin_parameters);
  step(optimizer, parameters, 0.5);
  step(twin, twin_parameters, 0.5);
  ek::AdamW<double> moved = std::move(optimizer);
  step(moved, parameters, -0.25);
  step(twin, twin_parameters, -0.25);
  CHECK(compare::same_bits(parameters.value(), twin_parameters.value()));
  CHECK(same_state(moved.state(), twin.state()));
}

TEMPLATE_TEST_CASE("A state that does not fit is refused with the first difference and changes nothing",
                   "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto parameters = network<TestType>();
    Optimizer optimizer(parameters, member.options);
    train(optimizer, parameters, 0, 3);
    const auto before = optimizer.state();
    const auto refused = [&](const ek::OptimizerState<TestType>& state) {
      const std::string message = thrown<std::invalid_argument>([&] { optimizer.load_state(state); });
      CHECK(same_state(optimizer.state(), before));
      const std::string place = std::string(Optimizer::name) + "::load_state: ";
      REQUIRE(message.substr(0, place.size()) == place);
      return message.substr(place.size());
    };

    auto changed = before;
    for (auto& moment : changed.moments) moment.value.setConstant(TestType(9));
    changed.steps = -1;
    CHECK(refused(changed) == "expected steps >= 0, got -1");
    changed.steps = 3;
    changed.moments.push_back({"2.weight.exp_avg", ek::Matrix<TestType>::Zero(2, 5)});
    CHECK(refused(changed) == "expected no more moments, got \"2.weight.exp_avg\" of shape (2, 5)");
    changed.moments.pop_back();
    if (changed.moments.empty()) return;  // SGD without momentum remembers none

    const std::string last = changed.moments.back().name;
    changed.moments.back().name = "elsewhere";
    CHECK(refused(changed) == "expected \"" + last + "\" of shape (1, 23), got \"elsewhere\" of shape (1, 23)");
    changed.moments.back().name = last;
    changed.moments.back().value.resize(23, 1);
    CHECK(refused(changed) == "expected \"" + last + "\" of shape (1, 23), got \"" + last + "\" of shape (23, 1)");
    changed.moments.back().value.resize(2, 23);
    CHECK(refused(changed) == "expected \"" + last + "\" of shape (1, 23), got \"" + last + "\" of shape (2, 23)");
    changed.moments.back().value.resize(1, 22);
    CHECK(refused(changed) == "expected \"" + last + "\" of shape (1, 23), got \"" + last + "\" of shape (1, 22)");
    changed.moments.pop_back();
    CHECK(refused(changed) == "expected \"" + last + "\" of shape (1, 23), got nothing");
  });
}

TEMPLATE_TEST_CASE("STA-4: an optimizer follows values that are written in place", "[every_optimizer]", float, double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto parameters = network<TestType>();
    Optimizer optimizer(parameters, member.options);
    const auto views = parameters.parameters();
    const auto state = optimizer.state();
    for (const auto& view : views) view.flat_value().setConstant(TestType(2));
    optimizer.load_state(state);
    draw_gradients(parameters, 1);
    optimizer.step();

    auto other = network<TestType>();
    for (auto& p : other.list) p.value.setConstant(TestType(2));
    Optimizer fresh(other, member.options);
    draw_gradients(other, 1);
    fresh.step();
    CHECK(same_values(parameters, other));
    for (std::size_t i = 0; i < views.size(); ++i) CHECK(views[i].value.data() == parameters.list[i].value.data());
  });
}

TEMPLATE_TEST_CASE("LRW-3: two groups keep the ratio of their rates at every step of a schedule", "[every_optimizer]",
                   float, double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    FreeParameters<TestType> parameters;
    parameters.add("body", ek::Matrix<TestType>::Zero(1, 3));
    parameters.add("head", ek::Matrix<TestType>::Zero(1, 3));
    auto slow = member.without_decay();
    slow.learning_rate = 0.01;
    Optimizer optimizer(
        parameters, member.without_decay(),
        {{.name = "slow", .contains = [](const ek::ParameterInfo& p) { return p.name == "head"; }, .options = slow}});
    for (int t = 0; t < 8; ++t) {
      for (auto& p : parameters.list) p.gradient << TestType(1), TestType(-0.5), TestType(0.25);
      optimizer.step(ek::warmup(t, 4));
      // Both start at 0 and see the same gradients: the sums of their updates differ by the rate alone.
      const ek::Matrix<TestType> expected = parameters.list[1].value * TestType(10);
      CHECK(compare::difference(parameters.list[0].value, expected) < (4 + 2 * t) * compare::epsilon<TestType>);
      CHECK(parameters.list[1].value(0, 0) != 0);
    }
  });
}

TEMPLATE_TEST_CASE("Weights are decayed, biases and the parameters of norms are not", "[every_optimizer]", float,
                   double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto options = member.options;
    options.weight_decay = 0.25;
    for (const auto decay : {ek::Decay::weights, ek::Decay::everything}) {
      options.decay = decay;
      auto parameters = network<TestType>();
      const auto before = parameters;
      Optimizer optimizer(parameters, options);
      for (int t = 0; t < 3; ++t) optimizer.step();  // all gradients are 0
      for (std::size_t i = 0; i < before.list.size(); ++i) {
        const auto& now = parameters.list[i];
        INFO(now.name);
        if (now.kind == ek::ParameterKind::weight || decay == ek::Decay::everything)
          CHECK((now.value.array() != before.list[i].value.array()).all());
        else
          CHECK(compare::same_bits(now.value, before.list[i].value));
      }
    }
  });
}

TEMPLATE_TEST_CASE("A factor that is negative or not finite is refused and nothing moves", "[every_optimizer]", float,
                   double) {
  for_each_member<TestType>([](const auto& member) {
    using Optimizer = typename std::decay_t<decltype(member)>::Optimizer;
    auto parameters = network<TestType>();
    Optimizer optimizer(parameters, member.options);
    draw_gradients(parameters, 1);
    const auto before = parameters;
    const auto state = optimizer.state();
    const std::string text = std::string(Optimizer::name) + "::step: expected a finite factor >= 0, got ";
    CHECK(thrown<std::invalid_argument>([&] { optimizer.step(-0.5); }) == text + "-0.5");
    CHECK(thrown<std::invalid_argument>([&] { optimizer.step(HUGE_VAL); }) == text + "inf");
    CHECK(thrown<std::invalid_argument>([&] { optimizer.step(std::nan("")); }) == text + "nan");
    CHECK(same_values(parameters, before));
    CHECK(same_state(optimizer.state(), state));
  });
}

TEST_CASE("The first group that contains a parameter has it, the rest has the options", "[every_optimizer]") {
  auto parameters = network<double>();
  using Group = ek::ParameterGroup<ek::SGDOptions>;
  ek::SGD<double> optimizer(
      parameters, {.learning_rate = 1},
      {Group{.name = "first layer",
             .contains = [](const ek::ParameterInfo& p) { return p.name.substr(0, 2) == "0."; },
             .options = {.learning_rate = 0.5, .weight_decay = 0.125}},
       Group{.name = "biases",
             .contains = [](const ek::ParameterInfo& p) { return p.name == "0.bias" || p.name == "1.bias"; },
             .options = {.learning_rate = 0.25}}});
  const auto before = parameters;
  for (auto& p : parameters.list) p.gradient.setConstant(1);
  optimizer.step();
  const auto moved = [&](std::size_t i) -> ek::Matrix<double> {
    return before.list[i].value - parameters.list[i].value;
  };
  const double tolerance = 4 * compare::epsilon<double>;  // values of size 1, a subtraction each way
  CHECK(compare::difference(moved(0), (0.5 * (1 + 0.125 * before.list[0].value.array())).matrix()) < tolerance);
  CHECK(compare::difference(moved(1), ek::Matrix<double>::Constant(1, 23, 0.5)) < tolerance);
  CHECK(compare::difference(moved(2), ek::Matrix<double>::Constant(1, 23, 1)) < tolerance);
  CHECK(compare::difference(moved(3), ek::Matrix<double>::Constant(1, 23, 0.25)) < tolerance);
}

TEST_CASE("A group's predicate sees name, kind and logical shape", "[every_optimizer]") {
  auto parameters = network<float>();
  std::ostringstream seen;
  ek::SGD<float> optimizer(parameters, {},
                           {{.name = "all",
                             .contains =
                                 [&seen](const ek::ParameterInfo& p) {
                                   seen << p.name << ' ' << ek::to_string(p.kind) << ' ' << p.rows << 'x' << p.columns
                                        << '\n';
                                   return true;
                                 },
                             .options = {}}});
  CHECK(seen.str() ==
        "0.weight weight 23x29\n"
        "0.bias bias 1x23\n"
        "1.weight norm_scale 1x23\n"
        "1.bias norm_shift 1x23\n");
}

TEST_CASE("A group without parameters, without predicate or with bad options is named", "[every_optimizer]") {
  auto parameters = network<double>();
  using Group = ek::ParameterGroup<ek::AdamWOptions>;
  const auto construct = [&](const std::vector<Group>& groups) {
    return thrown<std::invalid_argument>([&] { ek::AdamW<double>(parameters, {}, groups); });
  };
  const auto everything = [](const ek::ParameterInfo&) { return true; };
  const auto nothing = [](const ek::ParameterInfo&) { return false; };
  CHECK(construct({{"tail", nothing, {}}}) ==
        "AdamW: expected group \"tail\" to be the first that contains some parameter, got none");
  CHECK(construct({{"all", everything, {}}, {"shadowed", everything, {}}}) ==
        "AdamW: expected group \"shadowed\" to be the first that contains some parameter, got none");
  CHECK(construct({{"head", nullptr, {}}}) == "AdamW, group \"head\": expected a predicate, got none");
  CHECK(construct({{"head", everything, {.beta1 = 1}}}) == "AdamW, group \"head\": expected beta1 in [0, 1), got 1");
  CHECK(construct({{"head", everything, {}}}) == "nothing thrown");
}

TEMPLATE_TEST_CASE("An undecayed parameter that is not finite stays out of the moments", "[every_optimizer]", float,
                   double) {
  for_each_member<TestType>([](const auto& member) {
    FreeParameters<TestType> parameters(std::numeric_limits<TestType>::infinity());
    parameters.list[0].kind = ek::ParameterKind::bias;
    typename std::decay_t<decltype(member)>::Optimizer optimizer(parameters, member.options);
    step(optimizer, parameters, TestType(1));
    CHECK(std::isinf(parameters.value()));
    for (const auto& moment : optimizer.state().moments) CHECK(std::isfinite(moment.value(0, 0)));
  });
}

TEST_CASE("An optimizer without parameters is refused", "[every_optimizer]") {
  FreeParameters<double> none;
  CHECK(thrown<std::invalid_argument>([&] { ek::SGD<double> optimizer(none); }) ==
        "SGD: expected parameters to train, got none");
}

TEST_CASE("Parameters with gaps or in another order in memory than their gradients are refused", "[every_optimizer]") {
  std::vector<double> values(16), gradients(16);
  using Strides = std::pair<ek::Index, ek::Index>;
  const auto message = [&](ek::Index rows, ek::Index columns, Strides value, Strides gradient) {
    const ek::View<double> v{values.data(), rows, columns, value.first, value.second};
    const ek::View<double> g{gradients.data(), rows, columns, gradient.first, gradient.second};
    const ek::Parameters<double> list{{"w", ek::as_map(v), ek::as_map(g), ek::ParameterKind::weight}};
    return thrown<std::invalid_argument>([&] { ek::Adam<double> optimizer(list); });
  };
  const std::string refused =
      "Adam: expected value and gradient of \"w\" in the same order in memory and without gaps, got other strides";
  CHECK(message(2, 3, {3, 1}, {1, 2}) == refused);
  CHECK(message(2, 3, {1, 2}, {3, 1}) == refused);
  CHECK(message(2, 3, {4, 1}, {3, 1}) == refused);
  CHECK(message(2, 3, {3, 1}, {4, 1}) == refused);
  CHECK(message(2, 2, {1, 4}, {1, 4}) == refused);  // a part of each column
  CHECK(message(1, 3, {8, 2}, {8, 2}) == refused);  // every other element
  CHECK(message(3, 1, {2, 1}, {2, 1}) == refused);  // the same, upright
  const std::string taken = "nothing thrown";
  CHECK(message(2, 3, {3, 1}, {3, 1}) == taken);
  CHECK(message(2, 3, {1, 2}, {1, 2}) == taken);
  CHECK(message(1, 3, {8, 1}, {3, 1}) == taken);  // from row to row there is nowhere to go
  CHECK(message(3, 1, {1, 7}, {1, 1}) == taken);
}

TEST_CASE("A gradient of another shape than its parameter is refused", "[every_optimizer]") {
  std::vector<double> memory(16);
  const ek::Parameters<double> list{{"w", ek::as_map(ek::View<double>{memory.data(), 2, 3, 3, 1}),
                                     ek::as_map(ek::View<double>{memory.data() + 8, 2, 2, 2, 1}),
                                     ek::ParameterKind::weight}};
  CHECK(thrown<ek::ShapeError>([&] { ek::Adam<double> optimizer(list); }) ==
        "Adam: expected a gradient of \"w\" of shape (2, 3), got (2, 2)");
}

TEST_CASE("A list of parameters trains a part of a network", "[every_optimizer]") {
  auto parameters = network<double>();
  const auto before = parameters;
  ek::Parameters<double> list;
  for (const auto& p : parameters.parameters())
    if (p.kind != ek::ParameterKind::weight) list.push_back(p);
  ek::SGD<double> optimizer(list, {.learning_rate = 1});
  draw_gradients(parameters, 1);
  optimizer.step();
  CHECK(compare::same_bits(parameters.list[0].value, before.list[0].value));
  CHECK((parameters.list[1].value.array() != before.list[1].value.array()).all());
}

TEST_CASE("The report says what is decayed", "[every_optimizer]") {
  auto parameters = network<float>();
  ek::AdamW<float> optimizer(
      parameters, {.learning_rate = 1e-3, .weight_decay = 3},
      {{.name = "norms",
        .contains = [](const ek::ParameterInfo& p) { return p.kind == ek::ParameterKind::norm_scale; },
        .options = {.learning_rate = 0.5, .weight_decay = 0.25, .decay = ek::Decay::everything}}});
  optimizer.step();
  const std::string expected =
      "AdamW, steps taken: 1\n"
      "parameter  shape     kind        group  learning rate  weight decay\n"
      "0.weight   (23, 29)  weight      rest   0.001          3\n"
      "0.bias     (1, 23)   bias        rest   0.001          -\n"
      "1.weight   (1, 23)   norm_scale  norms  0.5            0.25\n"
      "1.bias     (1, 23)   norm_shift  rest   0.001          -\n";
  CHECK(optimizer.report().text() == expected);
  std::ostringstream out;
  out << optimizer.report();
  CHECK(out.str() == expected);
}

TEST_CASE("A state finds its moments by name", "[every_optimizer]") {
  FreeParameters<double> parameters(1.0);
  ek::SGD<double> optimizer(parameters, {.momentum = 0.5});
  step(optimizer, parameters, 0.25);
  auto state = optimizer.state();
  CHECK(state.at("w.momentum_buffer")(0, 0) == 0.25);
  state.at("w.momentum_buffer")(0, 0) = 2;
  CHECK(state.moments[0].value(0, 0) == 2);
  CHECK(thrown<std::invalid_argument>([&] { state.at("w.exp_avg"); }) ==
        "OptimizerState::at: expected the name of a moment, got \"w.exp_avg\"");
}
