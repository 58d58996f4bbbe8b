// After the first round of calls nothing allocates in layers of halves, and no call holds a matrix more than those it is given.

#include "allocation/counter.hpp"

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"

namespace ek = evenkeel;
using Eigen::bfloat16;
using Eigen::Index;

namespace {

constexpr Index rows = 400;

/// Requests for memory of all calls after the first round of them, row by row and by columns.
template <class Layer>
long requests_of(Layer layer, Index in) {
  const Index out = layer.output_features(in);
  const ek::Matrix<bfloat16> x = values::random<float>(rows, in, 1).cast<bfloat16>();
  const ek::Matrix<bfloat16> dy = values::random<float>(rows, out, 2).cast<bfloat16>();
  const Eigen::Matrix<bfloat16, Eigen::Dynamic, Eigen::Dynamic> x_columns = x, dy_columns = dy;
  auto y_columns = dy_columns, dx_columns = x_columns;
  ek::Matrix<bfloat16> y = dy, dx = x;
  ek::Workspace<bfloat16> workspace;
  const auto round = [&] {
    layer.forward(x, y, ek::Mode::train);
    layer.backward(x, dy, dx);
    layer.infer(x, y, workspace);
    layer.forward(x_columns, y_columns, ek::Mode::train);
    layer.backward(x_columns, dy_columns, dx_columns);
    layer.infer(x_columns, y_columns, workspace);
    layer.forward(x, ek::Mode::train);
    layer.backward(dy);
  };
  round();
  return allocation::count([&] {
    for (int again = 0; again < 2; ++again) round();
  });
}

/// The most bytes that a training step holds besides its arguments.
template <class Layer>
long bytes_of_step(Layer layer, Index in) {
  ek::Matrix<bfloat16> x = ek::Matrix<bfloat16>::Zero(rows, in), dx = x;
  ek::Matrix<bfloat16> y = ek::Matrix<bfloat16>::Zero(rows, layer.output_features(in)), dy = y;
  return allocation::bytes([&] {
           layer.forward(x, y, ek::Mode::train);
           layer.backward(x, dy, dx);
         })
      .most;
}

}  // namespace

TEST_CASE("Layers of halves do not allocate after the first round", "[half]") {
  CHECK(requests_of(ek::LayerNorm<bfloat16>(900), 900) == 0);  // more than are packed on the stack
  CHECK(requests_of(ek::BatchNorm<bfloat16>(40), 40) == 0);
  CHECK(requests_of(ek::Dropout<bfloat16>(0.5), 40) == 0);
  CHECK(requests_of(ek::Linear<bfloat16>(40, 30), 40) == 0);
}

TEST_CASE("Layers of halves convert some rows at a time", "[half]") {
  constexpr long matrix = rows * 1000 * static_cast<long>(sizeof(float));  // in floats; partial sums are less than half
  CHECK(bytes_of_step(ek::LayerNorm<bfloat16>(1000), 1000) < matrix / 2);
  CHECK(bytes_of_step(ek::BatchNorm<bfloat16>(1000), 1000) < matrix / 2);
  CHECK(bytes_of_step(ek::Dropout<bfloat16>(0.5), 1000) < matrix / 2);
  CHECK(bytes_of_step(ek::Linear<bfloat16>(1000, 10), 1000) < matrix / 2);
}
