#include "evenkeel/kernels/group_norm.hpp"

#include <cstddef>  // size_t
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "kernels/strided.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using reference::exact;
using reference::Number;
using reference::Numbers;
using strided::Order;
using strided::Storage;

namespace {

struct Shape {
  Index rows;
  kernels::Groups groups;
};
// Features; short channels, whose scale is spread over their columns, and long ones; more rows than are packed or summed at a time.
constexpr Shape shapes[] = {{6, {3, 12, 1}}, {70, {2, 6, 3}}, {70, {2, 200, 4}}, {5, {2, 4, 37}}, {1, {3, 3, 600}}};

/// dx, dweight and dbias by the equations, in long double.
struct Gradients {
  Numbers dx, dweight, dbias;

  Gradients(const Numbers& x, const Numbers& dy, const kernels::Groups& groups, const Numbers& weight, Number epsilon)
      : dx(x.rows(), x.cols()), dweight{Numbers::Zero(1, weight.cols())}, dbias{dweight} {
    const Numbers ones = Numbers::Ones(1, weight.cols()), zeros = 0 * ones;
    const Numbers standard = reference::group_norm(x, groups.groups, groups.positions, ones, zeros, epsilon);
    const auto n = static_cast<Number>(groups.width());
    for (Index i = 0; i < x.rows(); ++i)
      for (Index start = 0; start < x.cols(); start += groups.width()) {
        Number mean = 0, variance = 0, mean_g = 0, mean_gx = 0;
        for (Index j = start; j < start + groups.width(); ++j) {
          const Index c = j / groups.positions;
          mean += x(i, j) / n;
          mean_g += dy(i, j) * weight(0, c) / n;
          mean_gx += dy(i, j) * weight(0, c) * standard(i, j) / n;
          dweight(0, c) += dy(i, j) * standard(i, j);
          dbias(0, c) += dy(i, j);
        }
        for (Index j = start; j < start + groups.width(); ++j) variance += (x(i, j) - mean) * (x(i, j) - mean) / n;
        for (Index j = start; j < start + groups.width(); ++j)
          dx(i, j) = (dy(i, j) * weight(0, j / groups.positions) - mean_g - standard(i, j) * mean_gx) /
                     std::sqrt(variance + epsilon);
      }
  }
};

}  // namespace

TEST_CASE("Groups are normalized and differentiated by their equations, to the same bits in every storage order",
          "[group_norm]") {
  for (const Shape& shape : shapes) {
    const Index rows = shape.rows;
    const kernels::Groups groups = shape.groups;
    const Index columns = groups.channels * groups.positions;
    const auto x = values::random<double>(rows, columns, 1), dy = values::random<double>(rows, columns, 2),
               weight = values::positive<double>(1, groups.channels, 3),
               bias = values::random<double>(1, groups.channels, 4),
               start = values::random<double>(1, groups.channels, 5);
    std::vector<ek::Matrix<double>> first;
    for (const Order in : strided::orders)
      for (const Order out : strided::orders) {
        Storage<double> input(x, in), delta(dy, in), y(x, out), dx(x, out);
        ek::Matrix<double> dweight = start, dbias = start;
        std::vector<kernels::RowMoments<double>> kept(static_cast<std::size_t>(rows * groups.groups));
        std::vector<double> forward(
            static_cast<std::size_t>(kernels::group_norm_forward_scratch<double>(input.fixed(), y.view(), groups)), 7);
        kernels::group_norm_forward(input.fixed(), groups, weight.data(), bias.data(), 1e-5, y.view(), kept.data(),
                                    forward.data());
        std::vector<double> backward(static_cast<std::size_t>(kernels::group_norm_backward_scratch<double>(
                                         input.fixed(), delta.fixed(), dx.view(), groups)),
                                     7);
        kernels::group_norm_backward<double>(input.fixed(), delta.fixed(), groups, weight.data(), kept.data(),
                                             dx.view(), dweight.data(), dbias.data(), ek::Accumulate::yes,
                                             backward.data());
        const std::vector<ek::Matrix<double>> results = {y.matrix(), dx.matrix(), dweight, dbias};
        if (first.empty()) first = results;
        bool same = true;
        for (std::size_t k = 0; k < first.size(); ++k) same = same && compare::same_bits(results[k], first[k]);
        INFO(rows << " rows, " << groups.groups << " groups, " << groups.channels << " x " << groups.positions);
        CHECK(same);
        CHECK(y.gaps_untouched());
        CHECK(dx.gaps_untouched());
      }
    INFO(rows << " rows, " << groups.groups << " groups, " << groups.channels << " x " << groups.positions);
    const Numbers y =
        reference::group_norm(exact(x), groups.groups, groups.positions, exact(weight), exact(bias), 1e-5L);
    const Gradients gradients(exact(x), exact(dy), groups, exact(weight), 1e-5L);
    CHECK(compare::difference(first[0], y) <= 4e-15);
    CHECK(compare::difference(first[1], gradients.dx) <= 1e-14);
    CHECK(compare::difference(first[2], Numbers(exact(start) + gradients.dweight)) <= 1e-13);
    CHECK(compare::difference(first[3], Numbers(exact(start) + gradients.dbias)) <= 1e-13);
  }
}

TEST_CASE("Without a target for them, GroupNorm's gradients of parameters or input are not computed", "[group_norm]") {
  for (const Shape& shape : shapes) {
    const Index rows = shape.rows;
    const kernels::Groups groups = shape.groups;
    const Index columns = groups.channels * groups.positions;
    const auto x = values::random<double>(rows, columns, 1), dy = values::random<double>(rows, columns, 2),
               weight = values::positive<double>(1, groups.channels, 3);
    Storage<double> input(x, Order::row_major), delta(dy, Order::row_major), y(x, Order::row_major);
    std::vector<kernels::RowMoments<double>> kept(static_cast<std::size_t>(rows * groups.groups));
    std::vector<double> scratch(static_cast<std::size_t>(
        kernels::group_norm_backward_scratch<double>(input.fixed(), delta.fixed(), y.view(), groups)));
    kernels::group_norm_forward(input.fixed(), groups, weight.data(), weight.data(), 1e-5, y.view(), kept.data(),
                                scratch.data());
    ek::Matrix<double> dx(rows, columns), both(1, groups.channels), bias = both, alone = both, bias_alone = both;
    const ek::View<double> to{dx.data(), rows, columns, columns, 1};
    const auto backward = [&](ek::View<double> target, double* dweight, double* dbias) {
      kernels::group_norm_backward<double>(input.fixed(), delta.fixed(), groups, weight.data(), kept.data(), target,
                                           dweight, dbias, ek::Accumulate::no, scratch.data());
    };
    backward(to, both.data(), bias.data());
    const ek::Matrix<double> full = dx;
    dx.setZero();
    backward({}, alone.data(), bias_alone.data());
    CHECK(compare::same_bits(alone, both));
    CHECK(compare::same_bits(bias_alone, bias));
    CHECK(dx.isZero(0));
    backward(to, nullptr, nullptr);
    CHECK(compare::same_bits(dx, full));
  }
}
