#pragma once

#include <string>
#include <typeinfo>  // the exact type of an error
#include <vector>

#include "evenkeel/core/parameter.hpp"  // Parameters
#include "evenkeel/core/view.hpp"       // as_map

/// Parameters without a layer around them: values and gradients are set by hand. Copies share nothing.
template <typename Scalar>
struct FreeParameters {
  struct Parameter {
    std::string name;
    evenkeel::ParameterKind kind;
    evenkeel::Matrix<Scalar> value, gradient;
  };
  std::vector<Parameter> list;

  FreeParameters() = default;

  /// One weight "w" of one element.
  explicit FreeParameters(Scalar value) { add("w", evenkeel::Matrix<Scalar>::Constant(1, 1, value)); }

  void add(std::string name, evenkeel::Matrix<Scalar> value,
           evenkeel::ParameterKind kind = evenkeel::ParameterKind::weight) {
    const evenkeel::Matrix<Scalar> gradient = evenkeel::Matrix<Scalar>::Zero(value.rows(), value.cols());
    list.push_back({std::move(name), kind, std::move(value), gradient});
  }

  evenkeel::Parameters<Scalar> parameters() {
    evenkeel::Parameters<Scalar> views;
    for (Parameter& p : list) views.push_back({p.name, map(p.value), map(p.gradient), p.kind});
    return views;
  }

  /// Of the first parameter.
  Scalar& value(evenkeel::Index column = 0) { return list[0].value(0, column); }
  Scalar& gradient(evenkeel::Index column = 0) { return list[0].gradient(0, column); }

 private:
  static evenkeel::StridedMap<Scalar> map(evenkeel::Matrix<Scalar>& matrix) {
    return evenkeel::as_map(evenkeel::View<Scalar>{matrix.data(), matrix.rows(), matrix.cols(), matrix.cols(), 1});
  }
};

/// One step with this gradient on all elements of the first parameter.
template <class Optimizer, typename Scalar>
void step(Optimizer& optimizer, FreeParameters<Scalar>& parameters, Scalar gradient, double factor = 1) {
  parameters.list[0].gradient.setConstant(gradient);
  optimizer.step(factor);
}

/// The text of the Error that a call throws; other texts where it throws none or one of another type, derived ones included.
template <class Error, class Call>
std::string thrown(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return typeid(error) == typeid(Error) ? error.what() : std::string("another type: ") + error.what();
  }
  return "nothing thrown";
}
