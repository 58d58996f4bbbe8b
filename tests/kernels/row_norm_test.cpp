// The kernels of LayerNorm and RMSNorm: what the layers do not use of them.

#include <algorithm>  // max
#include <type_traits>
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

/// How much scratch both directions need.
std::size_t scratch_for(Storage<double>& x, Storage<double>& dy, Storage<double>& dx) {
  return static_cast<std::size_t>(
      std::max(kernels::row_norm_forward_scratch<double>(x.fixed(), dx.view()),
               kernels::row_norm_backward_scratch<double>(x.fixed(), dy.fixed(), dx.view())));
}

}  // namespace

TEST_CASE("The row norms' forward and backward are the same bits in every storage order", "[row_norm]") {
  struct Shape {
    Index batch, features;
  };
  // Packed on the stack, in scratch, and on the stack because they are few; more rows than are packed at a time, and than are
  // summed in their own type.
  for (const auto& [batch, features] : {Shape{6, 37}, Shape{70, 37}, Shape{133, 600}, Shape{20, 600}, Shape{5, 600}}) {
    const auto x = values::random<double>(batch, features, 1), dy = values::random<double>(batch, features, 2),
               weight = values::positive<double>(1, features, 3), bias = values::random<double>(1, features, 4);
    std::vector<Matrix> first;
    for (const Order in : strided::orders)
      for (const Order out : strided::orders) {
        Storage<double> input(x, in), delta(dy, in), y(x, out), dx(x, out);
        Matrix dweight(1, features), dbias(1, features);
        std::vector<Matrix> results;
        std::vector<double> scratch(scratch_for(input, delta, dx));

        std::vector<kernels::RowMoments<double>> moments(static_cast<std::size_t>(batch));
        kernels::layer_norm_forward(input.fixed(), weight.data(), bias.data(), 1e-5, y.view(), moments.data(),
                                    scratch.data());
        kernels::layer_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), moments.data(), dx.view(),
                                             dweight.data(), dbias.data(), no, scratch.data());
        results.insert(results.end(), {y.matrix(), dx.matrix(), dweight, dbias});

        std::vector<double> kept(static_cast<std::size_t>(batch));
        kernels::rms_norm_forward(input.fixed(), weight.data(), 0.0, 1e-5, y.view(), kept.data(), scratch.data());
        kernels::rms_norm_backward<double>(input.fixed(), delta.fixed(), weight.data(), 0.0, kept.data(), dx.view(),
                                           dweight.data(), no, scratch.data());
        results.insert(results.end(), {y.matrix(), dx.matrix(), dweight});

        if (first.empty()) first = results;
        for (std::size_t k = 0; k < first.size(); ++k) CHECK(compare::same_bits(results[k], first[k]));
        CHECK(y.gaps_untouched());
        CHECK(dx.gaps_untouched());
      }
    CHECK(compare::difference(first[0], reference::layer_norm(exact(x), exact(weight), exact(bias), 1e-5L)) <= 4e-15);
    CHECK(compare::difference(first[4], reference::rms_norm(exact(x), exact(weight), 1e-5L)) <= 4e-15);
  }
}

TEST_CASE("The row norms' parameter gradients can be asked for one by one, and without dx", "[row_norm]") {
  const auto x = values::random<double>(rows, columns, 1), dy = values::random<double>(rows, columns, 2),
             weight = values::positive<double>(1, columns, 3), bias = values::random<double>(1, columns, 4);
  Storage<double> input(x, Order::row_major), delta(dy, Order::row_major), y(x, Order::row_major);
  std::vector<kernels::RowMoments<double>> moments(rows);
  std::vector<double> kept(rows);
  std::vector<double> scratch(scratch_for(input, delta, y));
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

TEST_CASE("A row norm's forward needs scratch for as many rows as there are, and none for a few", "[row_norm]") {
  const auto scratch = [](Index batch, Index features, Index workers = 4) {
    return kernels::packed_row_norm_forward_scratch<double>(batch, features, workers);
  };
  CHECK(scratch(64, 496) == 0);                     // 16 rows of 512 fill the stack's room
  CHECK(scratch(64, 497) == 64 * (497 + 16));       // on one thread: too few elements for more
  CHECK(scratch(20, 600) == 32 * (600 + 16));       // no more than a power of two for 20 rows
  CHECK(scratch(8, 600) == 0);                      // 8 rows of 616
  CHECK(scratch(1, 8000) == 0);                     //
  CHECK(scratch(256, 600) == 4 * 64 * (600 + 16));  // four chunks, on four threads
  CHECK(scratch(0, 600) == 0);
}

TEST_CASE("A row is the same bits alone as in a batch, whatever its mates", "[row_norm]") {
  struct Shape {
    Index batch, features;
  };
  // Fewer numbers than a register and ends of all lengths, and rows that collide in the caches.
  for (const Shape shape : {Shape{11, 1}, Shape{11, 7}, Shape{11, 37}, Shape{5, 800}, Shape{80, 1024}}) {
    const Index batch = shape.batch, features = shape.features;
    ek::Matrix<float> x = values::random<float>(batch, features, 1);
    x.row(1) *= 1e25f;  // whose squares leave the range of float
    x.row(2).setConstant(3);
    x.row(4) *= 1e-25f;
    const auto dy = values::random<float>(batch, features, 2), weight = values::positive<float>(1, features, 3),
               bias = values::random<float>(1, features, 4);
    const auto run = [&](Index first, Index count, ek::Matrix<float>& y, ek::Matrix<float>& dx) {
      const auto rows_of = [&](auto& matrix) {
        using Number = std::remove_pointer_t<decltype(matrix.data())>;
        return ek::View<Number>{matrix.data(), batch, features, features, 1}.middle_rows(first, count);
      };
      std::vector<kernels::RowMoments<float>> moments(static_cast<std::size_t>(count));
      std::vector<double> scratch(
          static_cast<std::size_t>(kernels::row_norm_backward_scratch<float>(rows_of(x), rows_of(dy), rows_of(dx))));
      kernels::layer_norm_forward<float>(rows_of(x), weight.data(), bias.data(), 1e-5, rows_of(y), moments.data());
      kernels::layer_norm_backward<float>(rows_of(x), rows_of(dy), weight.data(), moments.data(), rows_of(dx), nullptr,
                                          nullptr, no, scratch.data());
    };
    ek::Matrix<float> y(batch, features), dx(batch, features), y_alone(batch, features), dx_alone(batch, features);
    run(0, batch, y, dx);
    for (Index row = 0; row < batch; ++row) run(row, 1, y_alone, dx_alone);
    INFO(batch << " x " << features);
    CHECK(compare::same_bits(y, y_alone));
    CHECK(compare::same_bits(dx, dx_alone));
    CHECK(y.allFinite());
  }
}

TEST_CASE("Results that are written past the caches are the same bits", "[row_norm]") {
  constexpr Index many = 1030, wide = 4100;  // 16.1 MiB; the halves are written the usual way
  static_assert(many * wide * sizeof(float) >= kernels::streamed_bytes);
  static_assert(many / 2 * wide * sizeof(float) < kernels::streamed_bytes);
  const ek::Matrix<float> x = ek::Matrix<float>::Random(many, wide), dy = x.reverse();
  const ek::Matrix<float> weight = ek::Matrix<float>::Random(1, wide), bias = weight.reverse();
  const auto run = [&](Index first, Index count, ek::Matrix<float>& y, ek::Matrix<float>& dx) {
    const auto rows_of = [&](auto& matrix) {
      using Number = std::remove_pointer_t<decltype(matrix.data())>;
      return ek::View<Number>{matrix.data(), many, wide, wide, 1}.middle_rows(first, count);
    };
    std::vector<kernels::RowMoments<float>> moments(static_cast<std::size_t>(count));
    std::vector<double> scratch(
        static_cast<std::size_t>(kernels::row_norm_backward_scratch<float>(rows_of(x), rows_of(x), rows_of(dx))));
    ek::Matrix<float> dweight(1, wide), dbias(1, wide);
    kernels::layer_norm_forward<float>(rows_of(x), weight.data(), bias.data(), 1e-5, rows_of(y), moments.data());
    kernels::layer_norm_backward<float>(rows_of(x), rows_of(dy), weight.data(), moments.data(), rows_of(dx),
                                        dweight.data(), dbias.data(), no, scratch.data());
  };
  ek::Matrix<float> y(many, wide), dx(many, wide), y_halves(many, wide), dx_halves(many, wide);
  run(0, many, y, dx);
  run(0, many / 2, y_halves, dx_halves);
  run(many / 2, many / 2, y_halves, dx_halves);
  CHECK(compare::same_bits(y, y_halves));
  CHECK(compare::same_bits(dx, dx_halves));
}
