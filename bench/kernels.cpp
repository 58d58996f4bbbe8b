// How far is each layer from the speed of memory?
//
//   build/native/bench/kernels
//   build/native/bench/kernels --benchmark_filter=layer_norm_forward/512x768
//
// Forward and backward of every norm and of dropout, on batches that fit the caches and on one that does not, in float and
// double, row-major and column-major. The counters are what to read: x_copy is the time in terms of a copy of the same
// bytes, x_limit in terms of what the work must move at least (a copy, unless it reads more); both are medians of pairs taken alternately. eigen_* is what
// one would write with Eigen's expressions alone.

#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/pairs.hpp"
#include "evenkeel/core/random.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/rms_norm.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

struct Shape {
  Index rows, columns;
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(columns); }
};
constexpr std::array shapes = {Shape{32, 64}, Shape{512, 768}, Shape{8192, 768}, Shape{16384, 4096}};

/// Memory for the largest shape, touched once: all benchmarks of a type work in it.
template <typename Scalar>
struct Memory {
  Eigen::Array<Scalar, Eigen::Dynamic, 1> x, dy, y, dx;

  static Memory& instance(Index count) {
    static Memory memory;
    if (memory.x.size() < count) {
      ek::RandomStream random(0, ek::stream_of("bench"));
      for (auto* array : {&memory.x, &memory.dy, &memory.y, &memory.dx}) {
        array->resize(count);
        for (Scalar& number : *array) number = static_cast<Scalar>(random.word()) * Scalar(0x1p-31) - Scalar(1);
      }
    }
    return memory;
  }
};

/// A batch of one shape and order.
template <typename Scalar, int Order>
struct Batch {
  using Map = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Order>>;
  Map x, dy, y, dx;
  bench::Yardstick yardstick;

  explicit Batch(Shape shape) : Batch(shape, Memory<Scalar>::instance(shape.rows * shape.columns)) {}

 private:
  Batch(Shape s, Memory<Scalar>& memory)
      : x(memory.x.data(), s.rows, s.columns),
        dy(memory.dy.data(), s.rows, s.columns),
        y(memory.y.data(), s.rows, s.columns),
        dx(memory.dx.data(), s.rows, s.columns),
        yardstick{static_cast<std::size_t>(s.rows * s.columns), x.data(), dy.data(), dx.data()} {}
};

/// What the work must move at least, where that is not a copy.
enum class Limit { copy, copy_and_read, read_two_write_one, read_two_and_read_two_write_one };

template <typename Scalar, class Work>
void run(benchmark::State& state, const bench::Yardstick& yardstick, Limit limit, const Work& work) {
  const auto copy = [&] { yardstick.template copy<Scalar>(); };
  bench::run(state, work, copy, [&] {
    if (limit == Limit::copy_and_read) yardstick.template read<Scalar>(1);
    if (limit == Limit::read_two_and_read_two_write_one) yardstick.template read<Scalar>(2);
    if (limit == Limit::copy || limit == Limit::copy_and_read)
      copy();
    else
      yardstick.template read_two_write_one<Scalar>();
  });
}

template <typename Scalar, int Order, class MakeLayer>
void add_layer(const std::string& name, const std::string& suffix, Shape shape, ek::Mode mode, Limit forward,
               Limit backward, const MakeLayer& make_layer) {
  const std::string path = "/" + shape.name() + suffix;
  const auto add = [&](const std::string& what, Limit limit, bool is_backward) {
    benchmark::RegisterBenchmark(
        (name + what + path).c_str(),
        [=](benchmark::State& state) {
          Batch<Scalar, Order> batch(shape);
          auto layer = make_layer(shape.columns);
          layer.forward(batch.x, batch.y, mode);
          if (is_backward)
            run<Scalar>(state, batch.yardstick, limit, [&] { layer.backward(batch.x, batch.dy, batch.dx); });
          else
            run<Scalar>(state, batch.yardstick, limit, [&] { layer.forward(batch.x, batch.y, mode); });
        })
        ->UseManualTime()
        ->Iterations(15)
        ->Unit(benchmark::kMicrosecond);
  };
  add("_forward", forward, false);
  if (mode != ek::Mode::eval) add("_backward", backward, true);
}

template <typename Scalar, int Order>
void add_layers(const std::string& suffix) {
  for (const Shape shape : shapes) {
    using ek::Mode;
    add_layer<Scalar, Order>("layer_norm", suffix, shape, Mode::train, Limit::copy, Limit::read_two_write_one,
                             [](Index features) { return ek::LayerNorm<Scalar>(features); });
    add_layer<Scalar, Order>("rms_norm", suffix, shape, Mode::train, Limit::copy, Limit::read_two_write_one,
                             [](Index features) { return ek::RMSNorm<Scalar>(features); });
    const auto batch_norm = [](Index features) { return ek::BatchNorm<Scalar>(features); };
    add_layer<Scalar, Order>("batch_norm", suffix, shape, Mode::train, Limit::copy_and_read,
                             Limit::read_two_and_read_two_write_one, batch_norm);
    add_layer<Scalar, Order>("batch_norm_eval", suffix, shape, Mode::eval, Limit::copy, Limit::copy, batch_norm);
    add_layer<Scalar, Order>("dropout_0.1", suffix, shape, Mode::train, Limit::copy, Limit::copy,
                             [](Index) { return ek::Dropout<Scalar>(0.1); });
    add_layer<Scalar, Order>("dropout_0.5", suffix, shape, Mode::train, Limit::copy, Limit::copy,
                             [](Index) { return ek::Dropout<Scalar>(0.5); });
  }
}

/// LayerNorm as one would write it over a whole matrix.
void add_eigen() {
  for (const Shape shape : shapes)
    benchmark::RegisterBenchmark(
        ("eigen_layer_norm_forward/" + shape.name()).c_str(),
        [=](benchmark::State& state) {
          Batch<float, Eigen::RowMajor> batch(shape);
          const Eigen::RowVectorXf weight = Eigen::RowVectorXf::Ones(shape.columns), bias = weight;
          run<float>(state, batch.yardstick, Limit::copy, [&] {
            const Eigen::VectorXf mean = batch.x.rowwise().mean();
            const Eigen::VectorXf scale =
                ((batch.x.colwise() - mean).array().square().rowwise().mean() + 1e-5f).sqrt().inverse();
            batch.y.array() =
                (((batch.x.colwise() - mean).array().colwise() * scale.array()).rowwise() * weight.array()).rowwise() +
                bias.array();
          });
        })
        ->UseManualTime()
        ->Iterations(15)
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  add_layers<float, Eigen::RowMajor>("");
  add_layers<double, Eigen::RowMajor>("/double");
  add_layers<float, Eigen::ColMajor>("/columns");
  add_eigen();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
