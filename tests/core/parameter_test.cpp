#include "evenkeel/core/parameter.hpp"

#include <cstdint>  // int64_t
#include <string>
#include <type_traits>
#include <utility>  // as_const, swap

#include "catch.hpp"

namespace ek = evenkeel;
using ek::detail::Layout;
using ek::detail::Parameter;

TEST_CASE("The kinds of parameters have names", "[parameter]") {
  CHECK(std::string(ek::to_string(ek::ParameterKind::weight)) == "weight");
  CHECK(std::string(ek::to_string(ek::ParameterKind::bias)) == "bias");
  CHECK(std::string(ek::to_string(ek::ParameterKind::norm_scale)) == "norm_scale");
  CHECK(std::string(ek::to_string(ek::ParameterKind::norm_shift)) == "norm_shift");
}

TEST_CASE("A parameter starts at its fill, its gradient at zero", "[parameter]") {
  Parameter<double> parameter("weight", ek::ParameterKind::weight, 2, 3, 1.5);
  const auto list = ek::detail::parameter_views<double>(parameter);
  REQUIRE(list.size() == 1);
  CHECK(list[0].name == "weight");
  CHECK(list[0].kind == ek::ParameterKind::weight);
  CHECK(list[0].size() == 6);
  CHECK((list[0].value.array() == 1.5).all());
  CHECK((list[0].gradient.array() == 0).all());
}

TEST_CASE("Views of a parameter write into it, in either order of memory", "[parameter]") {
  for (const Layout layout : {Layout::rows_together, Layout::columns_together}) {
    Parameter<double> parameter("weight", ek::ParameterKind::weight, 2, 3, 0, true, layout);
    auto view = ek::detail::parameter_views<double>(parameter)[0];
    CHECK(view.value.rows() == 2);
    CHECK(view.value.cols() == 3);
    view.value(1, 2) = 7;
    view.value(0, 2) = 5;
    view.gradient(1, 0) = 9;
    CHECK(parameter.value()(1, 2) == 7);
    CHECK(std::as_const(parameter).value()(1, 2) == 7);
    CHECK(parameter.gradient()(1, 0) == 9);
    CHECK(view.flat_value().size() == 6);
    CHECK(view.flat_value()[5] == 7);
    CHECK(view.flat_value()[layout == Layout::rows_together ? 2 : 4] == 5);
    CHECK(view.flat_gradient()[layout == Layout::rows_together ? 3 : 1] == 9);
    view.flat_value().setConstant(4);
    CHECK((view.value.array() == 4).all());
    CHECK(parameter.data()[0] == 4);
  }
}

TEST_CASE("An absent parameter is a constant that nobody sees", "[parameter]") {
  Parameter<double> absent("bias", ek::ParameterKind::bias, 1, 3, 2, false),
      there("weight", ek::ParameterKind::weight, 1, 3, 1);
  CHECK_FALSE(absent.present());
  CHECK(there.present());
  CHECK(absent.data()[2] == 2);
  CHECK(absent.gradient().data == nullptr);
  CHECK(absent.gradient().size() == 0);
  CHECK(ek::detail::parameter_views<const double>(std::as_const(absent), std::as_const(there)).size() == 1);
  const auto list = ek::detail::parameter_views<double>(absent, there);
  REQUIRE(list.size() == 1);
  CHECK(list[0].name == "weight");
}

TEST_CASE("Parameters of a const layer can be read", "[parameter]") {
  const Parameter<double> parameter("bias", ek::ParameterKind::bias, 1, 3, 2);
  const auto list = ek::detail::parameter_views<const double>(parameter);
  REQUIRE(list.size() == 1);
  CHECK(list[0].value(0, 1) == 2);
  CHECK(list[0].flat_value()[2] == 2);
  CHECK(list[0].flat_gradient()[2] == 0);
  STATIC_REQUIRE(std::is_const_v<std::remove_reference_t<decltype(*list[0].value.data())>>);
}

TEST_CASE("A parameter's cast and copy have its value and gradient and share neither", "[parameter]") {
  Parameter<double> parameter("weight", ek::ParameterKind::weight, 2, 3, 0, true, Layout::columns_together);
  parameter.value()(1, 2) = 0.5;
  parameter.gradient()(0, 1) = 0.25;
  auto cast = parameter.cast<float>();
  auto copy = parameter;
  CHECK(cast.value()(1, 2) == 0.5f);
  CHECK(cast.gradient()(0, 1) == 0.25f);
  CHECK(ek::detail::parameter_views<float>(cast)[0].name == "weight");
  parameter.value()(1, 2) = 3;
  parameter.gradient()(0, 1) = 3;
  CHECK(copy.value()(1, 2) == 0.5);
  CHECK(copy.gradient()(0, 1) == 0.25);
  CHECK(cast.value()(1, 2) == 0.5f);
  CHECK_FALSE(Parameter<double>("bias", ek::ParameterKind::bias, 1, 3, 2, false).cast<float>().present());
}

TEST_CASE("Lists of parameters can be sorted and filtered: assignment changes what is looked at", "[parameter]") {
  Parameter<double> first("weight", ek::ParameterKind::weight, 2, 3, 1),
      second("bias", ek::ParameterKind::bias, 1, 4, 2);
  auto list = ek::detail::parameter_views<double>(first, second);
  std::swap(list[0], list[1]);
  CHECK(list[0].name == "bias");
  CHECK(list[0].value.cols() == 4);
  CHECK(list[0].kind == ek::ParameterKind::bias);
  CHECK(list[1].value.data() == first.data());
  CHECK(first.data()[0] == 1);
  CHECK(second.data()[0] == 2);
  const std::string name = "a name that is too long to be kept in the string itself";
  list[0].name = name;
  const auto& same = list[0];
  list[0] = same;
  CHECK(list[0].name == name);
  list[0].value.setConstant(5);
  CHECK(second.data()[3] == 5);

  std::int64_t count = 7;
  double number = 3;
  ek::BufferView<double> counter("count", ek::as_map(ek::View<double>{}), &count),
      other("number", ek::as_map(ek::View<double>{&number, 1, 1, 1, 1}));
  counter = other;
  CHECK(counter.name == "number");
  CHECK(counter.count == nullptr);
  CHECK(counter.value.data() == &number);
  CHECK(count == 7);
}
