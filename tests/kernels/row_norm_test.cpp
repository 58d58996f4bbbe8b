// The kernels of LayerNorm and RMSNorm: what the layers do not use of them.

#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/kernels/layer_norm.hpp"
#include "evenkeel/kernels/rms_norm.hpp"
#include "kernels/strided.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using reference::exact;
using strided::Order;
using strided::Storage;

namespace {

using Matrix = ek::Matrix<double>;
constexpr Index rows = 6, columns = 37;
constexpr auto no = ek::Accumulate::no;

}  // namespace

TEST_CASE("The row norms' forward and backward are the same bits in every storage order", "[row_norm]") {
  const auto x = values::random<double>(rows, columns, 1), dy = values::random<double>(rows, columns, 2),
             weight = values::positive<double>(1, columns, 3), bias = values::random<double>(1, columns, 4);
  std::vector<Matrix> first;
  for (const Order in : strided::orders)
    for (const Order out : strided::orders) {
      Storage<double> input(x, in), delta(dy, in), y(x, out), dx(x, out);
      Matrix dweight(1, columns), dbias(1, columns);
      std::vector<Matrix> results;
      std::vector<double> scratch(static_cast<std::size_t>(kernels::layer_norm_scratch(rows, columns)));

      std::vector<kernels::RowMoments<double>> moments(rows);
      kernels::layer_norm_forward(input.fixed(), weight.data(), bias.data(), 1e-5, y.view(), moments.data());
      kernels::layer_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), moments.data(), dx.view(),
                                           dweight.data(), dbias.data(), no, scratch.data());
      results.insert(results.end(), {y.matrix(), dx.matrix(), dweight, dbias});

      std::vector<double> kept(rows);
      kernels::rms_norm_forward(input.fixed(), weight.data(), 0.0, 1e-5, y.view(), kept.data());
      kernels::rms_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), 0.0, kept.data(), dx.view(),
                                         dweight.data(), no, scratch.data());
      results.insert(results.end(), {y.matrix(), dx.matrix(), dweight});

      if (first.empty()) first = results;
      for (std::size_t k = 0; k < first.size(); ++k)
        if (results[k].rows() == rows)
          CHECK(compare::same_bits(results[k], first[k]));
        else  // a sum over the batch
          CHECK(compare::difference(results[k], first[k]) <= 1e-15);
      CHECK(y.gaps_untouched());
      CHECK(dx.gaps_untouched());
    }
  CHECK(compare::difference(first[0], reference::layer_norm(exact(x), exact(weight), exact(bias), 1e-5L)) <= 2e-15);
  CHECK(compare::difference(first[4], reference::rms_norm(exact(x), exact(weight), 1e-5L)) <= 2e-15);
}

TEST_CASE("The row norms' parameter gradients can be asked for one by one, and without dx", "[row_norm]") {
  const auto x = values::random<double>(rows, columns, 1), dy = values::random<double>(rows, columns, 2),
             weight = values::positive<double>(1, columns, 3), bias = values::random<double>(1, columns, 4);
  Storage<double> input(x, Order::row_major), delta(dy, Order::row_major), y(x, Order::row_major);
  std::vector<kernels::RowMoments<double>> moments(rows);
  std::vector<double> kept(rows);
  std::vector<double> scratch(static_cast<std::size_t>(kernels::layer_norm_scratch(rows, columns)));
  kernels::layer_norm_forward(input.fixed(), weight.data(), bias.data(), 1e-5, y.view(), moments.data());
  const auto zeros = reference::Numbers::Zero(1, columns);
  const auto ones = reference::Numbers::Ones(1, columns);
  const reference::Numbers dweight =
      reference::layer_norm(exact(x), ones, zeros, 1e-5L).cwiseProduct(exact(dy)).colwise().sum();
  const reference::Numbers dbias = exact(dy).colwise().sum();

  Matrix first = Matrix::Constant(1, columns, 9), second = first;
  kernels::layer_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), moments.data(), {}, first.data(),
                                       nullptr, no, scratch.data());
  kernels::layer_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), moments.data(), {}, nullptr,
                                       second.data(), no, scratch.data());
  CHECK(compare::difference(first, dweight) <= 1e-14);
  CHECK(compare::difference(second, dbias) <= 1e-14);

  kernels::rms_norm_forward(input.fixed(), weight.data(), 0.0, 1e-5, y.view(), kept.data());
  kernels::rms_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), 0.0, kept.data(), {}, first.data(),
                                     no, scratch.data());
  const reference::Numbers drms = reference::rms_norm(exact(x), ones, 1e-5L).cwiseProduct(exact(dy)).colwise().sum();
  CHECK(compare::difference(first, drms) <= 1e-14);
}
