// How far is each layer from the speed of memory?
//
//   build/native/bench/kernels
//   build/native/bench/kernels --benchmark_filter=layer_norm_forward/512x768
//
// Forward and backward of every norm and of dropout, on batches that fit the caches and on one that does not: float and
// row-major where a name says nothing else, then /double, /columns (column-major) and /strided (a block of a wider
// matrix). The counters are what to read: x_copy is the time in terms of a copy of the same bytes, x_limit in terms of
// what the work must move at least (see support/layers.hpp); both are medians of pairs taken in turn. copy/* is that
// copy, in gigabytes read and written a second. eigen_* is what one would write with Eigen's expressions alone.

#include <benchmark/benchmark.h>

#include <string>

#include "bench/support/batch.hpp"
#include "bench/support/layers.hpp"
#include "bench/support/pairs.hpp"
#include "bench/support/program.hpp"

namespace {

using bench::Layout;
using bench::Limit;
using bench::Shape;

void add_copy(Shape shape) {
  bench::add(bench::path("copy", shape), [=](benchmark::State& state) {
    const bench::Batch<float> batch(shape);
    const auto copy = [&] { batch.yardstick.copy(); };
    const double time = bench::run(state, "x_copy", copy, copy);
    state.counters["gb_s"] = 2e-9 * sizeof(float) * static_cast<double>(shape.size()) / time;
  });
}

template <typename Scalar, Layout layout = Layout::rows>
void add_layers(Shape shape, const std::string& variant = "") {
  bench::for_each_layer([&]<class Kind>(Kind) {
    using Batch = bench::Batch<Scalar, layout>;
    const auto add = [&](const char* what, Limit limit, const auto& call) {
      bench::add(bench::path(std::string(Kind::name) + what, shape, variant), [=](benchmark::State& state) {
        Batch batch(shape);
        bench::Ours<Kind, Batch> ours(batch);
        bench::run(
            state, [&] { call(ours); }, batch.yardstick, limit);
      });
    };
    add("_forward", Kind::forward_limit, [](auto& layer) { layer.forward(); });
    if constexpr (bench::has_backward<Kind>)
      add("_backward", Kind::backward_limit, [](auto& layer) { layer.backward(); });
  });
}

// With Eigen alone, on the same batches -----------------------------------------------------------------------------

using Batch = bench::Batch<float>;
using Matrix = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Column = Eigen::ArrayXf;
using Row = Eigen::Array<float, 1, Eigen::Dynamic>;
constexpr float epsilon = 1e-5f;

void layer_norm_forward(Batch& batch) {
  const auto x = batch.x.array();
  const Column mean = x.rowwise().mean();
  const Column scale = ((x.colwise() - mean).square().rowwise().mean() + epsilon).rsqrt();
  batch.y.array() = (((x.colwise() - mean).colwise() * scale).rowwise() * batch.weight.transpose()).rowwise() +
                    batch.bias.transpose();
}

/// As if forward had kept nothing.
void layer_norm_backward(Batch& batch) {
  const auto x = batch.x.array(), dy = batch.dy.array();
  const Column mean = x.rowwise().mean();
  const Column scale = ((x.colwise() - mean).square().rowwise().mean() + epsilon).rsqrt();
  static Matrix normalized, slope;  // grown once
  normalized = (x.colwise() - mean).colwise() * scale;
  slope = dy.rowwise() * batch.weight.transpose();
  const Column mean_slope = slope.rowwise().mean();
  const Column mean_product = (slope * normalized).rowwise().mean();
  batch.dx.array() = ((slope.colwise() - mean_slope) - normalized.colwise() * mean_product).colwise() * scale;
  const Row dweight = (dy * normalized).colwise().sum();
  const Row dbias = dy.colwise().sum();
  bench::escape(dweight.data());
  bench::escape(dbias.data());
}

void rms_norm_forward(Batch& batch) {
  const auto x = batch.x.array();
  const Column scale = (x.square().rowwise().mean() + epsilon).rsqrt();
  batch.y.array() = (x.colwise() * scale).rowwise() * batch.weight.transpose();
}

void batch_norm_forward(Batch& batch) {
  const auto x = batch.x.array();
  const Row mean = x.colwise().mean();
  const Row scale = ((x.rowwise() - mean).square().colwise().mean() + epsilon).rsqrt() * batch.weight.transpose();
  batch.y.array() = ((x.rowwise() - mean).rowwise() * scale).rowwise() + batch.bias.transpose();
}

/// Eigen's random numbers are in [-1, 1].
void dropout_forward(Batch& batch) {
  batch.y.array() = (Matrix::Random(batch.rows(), batch.columns()) < 0.0f).select(2 * batch.x.array(), 0.0f);
}

void add_eigen(const char* name, Shape shape, Limit limit, void (*call)(Batch&)) {
  bench::add(bench::path(std::string("eigen_") + name, shape), [=](benchmark::State& state) {
    Batch batch(shape);
    bench::run(
        state, [&] { call(batch); }, batch.yardstick, limit);
  });
}

}  // namespace

int main(int argc, char** argv) {
  for (const Shape shape : bench::shapes) add_copy(shape);
  for (const Shape shape : bench::shapes) add_layers<float>(shape);
  for (const Shape shape : bench::shapes) {
    add_eigen("layer_norm_forward", shape, Limit::copy, layer_norm_forward);
    add_eigen("layer_norm_backward", shape, Limit::read_two_write_one, layer_norm_backward);
    add_eigen("rms_norm_forward", shape, Limit::copy, rms_norm_forward);
    add_eigen("batch_norm_forward", shape, Limit::read_and_copy, batch_norm_forward);
    add_eigen("dropout_0.5_forward", shape, Limit::copy, dropout_forward);
  }
  for (const Shape shape : bench::shapes) add_layers<double>(shape, "double");
  for (const Shape shape : bench::shapes) add_layers<float, Layout::columns>(shape, "columns");
  add_layers<double, Layout::columns>(bench::middle_shape, "double/columns");
  add_layers<float, Layout::strided>(bench::middle_shape, "strided");
  return bench::run_program(argc, argv);
}
