// Where sizes are known at compile time, inference asks for no memory at all, from its first call on.

#include "allocation/counter.hpp"

#include <concepts>  // same_as
#include <cstddef>   // byte
#include <span>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/sequential.hpp"

namespace ek = evenkeel;
using allocation::count;

namespace {

template <typename Scalar, int Rows, int Columns>
using RowMajor = Eigen::Matrix<Scalar, Rows, Columns, Eigen::RowMajor>;
template <typename Scalar, int Rows, int Columns>
using ColumnMajor = Eigen::Matrix<Scalar, Rows, Columns>;

/// Both forms of infer on an X of fixed size, in a row: what each asks for, and that all give the bits of `expected`.
template <class X, int Out, class Layer>
void check_calls(const Layer& layer, const ek::Matrix<typename Layer::Scalar>& input) {
  using Scalar = typename Layer::Scalar;
  constexpr int rows = X::RowsAtCompileTime;
  using Y = RowMajor<Scalar, rows, Out>;
  using YByColumns = Eigen::Matrix<Scalar, rows, Out, rows == 1 ? Eigen::RowMajor : Eigen::ColMajor>;
  const X x = input;
  Y y;
  CHECK(count([&] { y = layer.infer(x); }) == 0);
  CHECK(count([&] {
          ek::WorkspaceFor<Layer, X> workspace;
          y.setZero();
          layer.infer(x, y, workspace);
        }) == 0);
  YByColumns by_columns;
  CHECK(count([&] {
          ek::WorkspaceFor<Layer, X> workspace;
          layer.infer(x, by_columns, workspace);
        }) == 0);
  STATIC_REQUIRE(std::same_as<decltype(layer.infer(x)), Y>);
  const ek::Matrix<Scalar> expected = layer.infer(input);
  CHECK(compare::same_bits(ek::Matrix<Scalar>(layer.infer(x)), expected));
  CHECK(compare::same_bits(ek::Matrix<Scalar>(y), expected));
  CHECK(compare::same_bits(ek::Matrix<Scalar>(by_columns), expected));
  if constexpr (Out == X::ColsAtCompileTime) {
    X in_place = x;
    CHECK(count([&] {
            ek::WorkspaceFor<Layer, X> workspace;
            layer.infer(in_place, in_place, workspace);
          }) == 0);
    CHECK(compare::same_bits(ek::Matrix<Scalar>(in_place), expected));
  }
}

/// The same for some rows by rows and by columns, and for one row.
template <int In, int Out, class Layer>
void check_no_requests(const Layer& layer) {
  using Scalar = typename Layer::Scalar;
  const auto input = values::random<Scalar>(4, In, 1);
  check_calls<RowMajor<Scalar, 4, In>, Out>(layer, input);
  check_calls<ColumnMajor<Scalar, 4, In>, Out>(layer, input);
  check_calls<RowMajor<Scalar, 1, In>, Out>(layer, input.topRows(1));
}

}  // namespace

TEST_CASE("A workspace asks for no memory before any is taken from it", "[fixed_size]") {
  CHECK(count([] {
          ek::Workspace<float> workspace;
          ek::Workspace<float>::Frame frame(workspace);
        }) == 0);
  CHECK(count([] {
          ek::Workspace<float> workspace;
          ek::Workspace<float>::Frame(workspace).take(1, 1);
        }) > 0);
}

TEST_CASE("A layer of fixed size infers without memory from the heap", "[fixed_size]") {
  check_no_requests<64, 64>(ek::LayerNorm<float, 64>());
  check_no_requests<64, 64>(ek::RMSNorm<float, 64>());
  check_no_requests<64, 64>(ek::BatchNorm<float, 64>());
  check_no_requests<64, 32>(ek::Linear<float, 64, 32>());
  check_no_requests<64, 64>(ek::Linear<double, 64, 64>());
  check_no_requests<30, 30>(ek::BatchNorm<double, 10>(10, 3));
}

TEST_CASE("So does a layer that takes any number of features", "[fixed_size]") {
  check_no_requests<10, 10>(ek::Dropout<float>(0.5));
  check_no_requests<10, 10>(ek::AlphaDropout<double>(0.5));
  check_no_requests<10, 10>(ek::SpatialDropout<float>(0.5, 5, 2));
  check_no_requests<10, 10>(ek::GELU<float>());
  check_no_requests<10, 10>(ek::LayerNorm<double>(10));
  check_no_requests<10, 10>(ek::BatchNorm<float>(10));
}

TEST_CASE("Long rows and batch statistics take memory that the workspace of an input brings along", "[fixed_size]") {
  const ek::LayerNorm<float, 600> norm;
  check_no_requests<600, 600>(norm);
  check_calls<ColumnMajor<float, 14, 600>, 600>(norm, values::random<float>(14, 600, 1));
  check_calls<ColumnMajor<float, 14, 600>, 600>(ek::RMSNorm<float, 600>(), values::random<float>(14, 600, 1));

  const ek::BatchNorm<double, 8> of_batch({.track_running_statistics = false});
  check_calls<RowMajor<double, 6, 8>, 8>(of_batch, values::random<double>(6, 8, 1));
  check_calls<ColumnMajor<double, 6, 8>, 8>(of_batch, values::random<double>(6, 8, 1));
}

TEST_CASE("Layers of halves take memory for the floats they compute in", "[fixed_size]") {
  using Half = Eigen::half;
  using X = RowMajor<Half, 6, 64>;
  const X x = RowMajor<float, 6, 64>::Random().cast<Half>();
  const auto requests = [&]<class Layer>(const Layer& layer) {
    return count([&] { layer.infer(x); }) + count([&] {
             ek::WorkspaceFor<Layer, X> workspace;
             X y = x;
             layer.infer(y, y, workspace);
           });
  };
  CHECK(requests(ek::BatchNorm<Half, 64>({.track_running_statistics = false})) == 0);
  CHECK(requests(ek::Linear<Half, 64, 64>()) == 0);
  CHECK(requests(ek::LayerNorm<Half, 64>()) == 0);
}

TEST_CASE("A network of layers of fixed size infers without memory from the heap", "[fixed_size]") {
  const ek::Sequential net{ek::Linear<float, 64, 32>(), ek::LayerNorm<float, 32>(), ek::ReLU<float>(),
                           ek::Dropout<float>(0.5), ek::Linear<float, 32, 5>()};
  check_no_requests<64, 5>(net);
  check_no_requests<16, 16>(
      ek::Sequential{ek::Linear<double, 16, 40>(), ek::BatchNorm<double, 40>(), ek::Linear<double, 40, 16>()});
  check_no_requests<16, 40>(ek::Sequential{ek::Linear<float, 16, 4>(), ek::Linear<float, 4, 40>()});
  check_no_requests<12, 12>(ek::Sequential{ek::Linear<float, 12, 12>()});
  check_no_requests<12, 12>(ek::Sequential{ek::Linear<float, 12, 12>(), ek::ReLU<float>()});
}

TEST_CASE("So does a network within a network", "[fixed_size]") {
  const ek::Sequential inner{ek::Linear<float, 20, 70>(), ek::SiLU<float>(), ek::Linear<float, 70, 20>()};
  check_no_requests<20, 3>(ek::Sequential{ek::RMSNorm<float, 20>(), inner, ek::Linear<float, 20, 3>()});
}

TEST_CASE("The memory that is counted for a network is what it takes", "[fixed_size]") {
  const ek::Sequential net{ek::Linear<float, 64, 32>(), ek::LayerNorm<float, 32>(), ek::Linear<float, 32, 64>(),
                           ek::Sequential{ek::Linear<float, 64, 64>(), ek::ReLU<float>(), ek::Linear<float, 64, 8>()}};
  using X = RowMajor<float, 4, 64>;
  // Two matrices of 4 x 64 in the outer network, as many in the inner one.
  constexpr ek::Index bytes = decltype(net)::fixed_infer_bytes(4, 64);
  STATIC_REQUIRE(bytes == 4 * (4 * 64 * 4));
  alignas(64) static std::byte memory[static_cast<std::size_t>(bytes)];
  const auto with = [&](ek::Index less) {
    const X x = X::Random();
    RowMajor<float, 4, 8> y;
    return count([&] {
      ek::Workspace<float> workspace(std::span<std::byte>(memory).first(static_cast<std::size_t>(bytes - less)));
      net.infer(x, y, workspace);
    });
  };
  CHECK(with(0) == 0);
  CHECK(with(64) > 0);
}

TEST_CASE("An expression of fixed size is evaluated without memory from the heap", "[fixed_size]") {
  const ek::LayerNorm<float, 8> norm;
  RowMajor<float, 4, 8> x = values::random<float>(4, 8, 1), y;
  CHECK(count([&] { y = norm.infer(2 * x - x.reverse()); }) == 0);
  const ek::Matrix<float> expression = 2 * x - x.reverse();
  CHECK(compare::same_bits(ek::Matrix<float>(y), norm.infer(expression)));
}

TEST_CASE("Blocks and maps of fixed size are inputs and outputs like matrices", "[fixed_size]") {
  const ek::Sequential net{ek::Linear<float, 8, 6>(), ek::Tanh<float>(), ek::Linear<float, 6, 2>()};
  const ek::Matrix<float> x = values::random<float>(9, 12, 1), expected = net.infer(x.block(1, 2, 3, 8));
  ek::Matrix<float> y(3, 2);
  CHECK(count([&] { y = net.infer(x.block<3, 8>(1, 2)); }) == 0);
  CHECK(compare::same_bits(y, expected));
  y.setZero();
  CHECK(count([&] {
          ek::WorkspaceFor<decltype(net), RowMajor<float, 3, 8>> workspace;
          net.infer(x.block<3, 8>(1, 2), y, workspace);
        }) == 0);
  CHECK(compare::same_bits(y, expected));
}

TEST_CASE("A workspace for inputs of bounded size does for every smaller one", "[fixed_size]") {
  using X = Eigen::Matrix<float, Eigen::Dynamic, 520, Eigen::ColMajor, 20, 520>;
  const ek::Sequential net{ek::LayerNorm<float, 520>(), ek::Linear<float, 520, 16>(), ek::BatchNorm<float, 16>()};
  const ek::Matrix<float> input = values::random<float>(20, 520, 1);
  static ek::WorkspaceFor<decltype(net), X> workspace;
  static X x;
  ek::Matrix<float> y(20, 16);
  for (int rows = 1; rows <= 20; ++rows) {
    x = input.topRows(rows);
    CHECK(count([&] { net.infer(x, y.topRows(rows), workspace); }) == 0);
    CHECK(compare::same_bits(ek::Matrix<float>(y.topRows(rows)), net.infer(ek::Matrix<float>(x))));
  }
}

TEST_CASE("What is too large for the stack comes from the heap", "[fixed_size]") {
  constexpr int rows = 40;
  using X = RowMajor<float, rows, 8>;
  const ek::Linear<float, 8, 1000> wide;  // 160 kB of output
  const X x = values::random<float>(rows, 8, 1);
  STATIC_REQUIRE(std::same_as<decltype(wide.infer(x)), ek::Matrix<float>>);
  CHECK(compare::same_bits(wide.infer(x), wide.infer(ek::Matrix<float>(x))));

  const ek::Sequential net{wide, ek::Linear<float, 1000, 4>()};  // and between
  STATIC_REQUIRE(std::same_as<decltype(net.infer(x)), RowMajor<float, rows, 4>>);
  const ek::Matrix<float> expected = net.infer(ek::Matrix<float>(x));
  CHECK(compare::same_bits(ek::Matrix<float>(net.infer(x)), expected));
  CHECK(count([&] { net.infer(x); }) > 0);
  static ek::WorkspaceFor<decltype(net), X> workspace;  // not on the stack
  RowMajor<float, rows, 4> y;
  CHECK(count([&] { net.infer(x, y, workspace); }) == 0);
  CHECK(compare::same_bits(ek::Matrix<float>(y), expected));
}
