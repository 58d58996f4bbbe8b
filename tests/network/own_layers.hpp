#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/core/mode.hpp"
#include "evenkeel/core/parameter.hpp"
#include "evenkeel/core/workspace.hpp"

/// Layers as a user writes them: deriving from nothing.
namespace own {

/// y = x + 1 where masks are drawn, x elsewhere. The least that a layer can be: no parameters, no name, no checks.
template <typename Scalar_>
struct AddOneInTraining {
  using Scalar = Scalar_;

  template <class X, class Y>
  void forward(const X& x, Y&& y, evenkeel::Mode mode) {
    y = (x.array() + Scalar(mode.draws_masks() ? 1 : 0)).matrix();
  }
  template <class X, class DY, class DX>
  void backward(const X&, const DY& dy, DX&& dx) {
    dx = dy;
  }
  template <class X, class Y>
  void infer(const X& x, Y&& y, evenkeel::Workspace<Scalar>&) const {
    y = x;
  }
  Eigen::Index output_features(Eigen::Index input_features) const { return input_features; }
};

/// y = [x a, x b] with two learned numbers: twice as many features come out. Everything optional is there but
/// backward_parameters and set_stream.
template <typename Scalar_>
struct Twice {
  using Scalar = Scalar_;
  using Row = Eigen::Matrix<Scalar, 1, 2>;
  static constexpr const char* name = "Twice";

  template <class X, class Y>
  void forward(const X& x, Y&& y, evenkeel::Mode) {
    y.leftCols(x.cols()) = x * factors(0);
    y.rightCols(x.cols()) = x * factors(1);
  }
  template <class X, class DY, class DX>
  void backward(const X& x, const DY& dy, DX&& dx, evenkeel::Accumulate accumulate = evenkeel::Accumulate::no) {
    const auto n = x.cols();
    const Row sums(x.cwiseProduct(dy.leftCols(n)).sum(), x.cwiseProduct(dy.rightCols(n)).sum());
    gradients = accumulate == evenkeel::Accumulate::yes ? Row(gradients + sums) : sums;
    dx = dy.leftCols(n) * factors(0) + dy.rightCols(n) * factors(1);
  }
  template <class X, class Y>
  void infer(const X& x, Y&& y, evenkeel::Workspace<Scalar>&) const {
    y.leftCols(x.cols()) = x * factors(0);
    y.rightCols(x.cols()) = x * factors(1);
  }
  Eigen::Index output_features(Eigen::Index features) const { return 2 * features; }

  evenkeel::Parameters<Scalar> parameters() {
    const auto map = [](Row& row) { return evenkeel::as_map(evenkeel::View<Scalar>{row.data(), 1, 2, 2, 1}); };
    return {{"factors", map(factors), map(gradients), evenkeel::ParameterKind::weight}};
  }
  evenkeel::Parameters<const Scalar> parameters() const {
    const auto map = [](const Row& row) {
      return evenkeel::as_map(evenkeel::View<const Scalar>{row.data(), 1, 2, 2, 1});
    };
    return {{"factors", map(factors), map(gradients), evenkeel::ParameterKind::weight}};
  }
  template <typename U>
  Twice<U> cast() const {
    return {factors.template cast<U>(), gradients.template cast<U>()};
  }

  Row factors = Row(Scalar(0.5), Scalar(-2));
  Row gradients = Row::Zero();
};

/// Notes the path it is told, in a string that copies of it share.
template <typename Scalar_>
struct NotesPath : AddOneInTraining<Scalar_> {
  explicit NotesPath(std::string& path) : noted(&path) {}
  void set_stream(std::string_view path) { *noted = path; }

  std::string* noted;
};

}  // namespace own
