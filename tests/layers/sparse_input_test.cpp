// Sparse input: to one linear layer against the equations by loops, to networks and training against the dense input.

#include <Eigen/SparseCore>
#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/adam.hpp"
#include "evenkeel/training/fit.hpp"
#include "evenkeel/training/loss.hpp"

namespace ek = evenkeel;
using compare::same_bits;
using ek::Index;

namespace {

template <typename Scalar>
using ByRows = Eigen::SparseMatrix<Scalar, Eigen::RowMajor>;
template <typename Scalar>
using ByColumns = Eigen::SparseMatrix<Scalar>;

/// Two of three elements are zero, and all of row 2.
template <typename Scalar>
ek::Matrix<Scalar> mostly_zero(Index rows, Index columns, std::uint32_t seed = 1) {
  ek::Matrix<Scalar> x = values::random<Scalar>(rows, columns, seed);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      if ((i + 2 * j) % 3 != 0 || i == 2) x(i, j) = 0;
  return x;
}

/// The largest difference, in terms of the largest expected element.
template <typename Scalar, class Here>
double difference(const Here& here, const ek::Matrix<long double>& expected) {
  REQUIRE(here.rows() == expected.rows());
  REQUIRE(here.cols() == expected.cols());
  const long double largest = expected.cwiseAbs().maxCoeff();
  return static_cast<double>((here.template cast<long double>() - expected).cwiseAbs().maxCoeff() / largest);
}

template <class Network>
std::vector<ek::Matrix<double>> gradients_of(Network& network) {
  std::vector<ek::Matrix<double>> all;
  for (const auto& parameter : network.parameters()) all.push_back(parameter.gradient);
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("Linear on a sparse input is its equation", "[sparse_input]", float, double) {
  const Index batch = 7, in = 9, out = 5;
  const auto x = mostly_zero<TestType>(batch, in);
  const auto dy = values::random<TestType>(batch, out, 2);
  ek::Linear<TestType> layer(in, out, {.seed = 3});
  const ek::Matrix<long double> weight = layer.parameters()[0].value.template cast<long double>();
  const ek::Matrix<long double> bias = layer.parameters()[1].value.template cast<long double>();

  using Exact = ek::Matrix<long double>;
  Exact y(batch, out), dx = Exact::Zero(batch, in), dweight = Exact::Zero(out, in), dbias = Exact::Zero(1, out);
  for (Index i = 0; i < batch; ++i)
    for (Index o = 0; o < out; ++o) {
      y(i, o) = bias(o);
      dbias(o) += static_cast<long double>(dy(i, o));
      for (Index j = 0; j < in; ++j) {
        y(i, o) += static_cast<long double>(x(i, j)) * weight(o, j);
        dx(i, j) += static_cast<long double>(dy(i, o)) * weight(o, j);
        dweight(o, j) += static_cast<long double>(dy(i, o)) * static_cast<long double>(x(i, j));
      }
    }
  const double tolerance = 16 * static_cast<double>(std::numeric_limits<TestType>::epsilon());  // 9 terms a sum

  const auto check = [&](const auto& sparse) {
    ek::Matrix<TestType> y_here(batch, out), dx_here(batch, in);
    layer.forward(sparse, y_here, ek::Mode::train);
    layer.backward(sparse, dy, dx_here);
    CHECK(difference<TestType>(y_here, y) <= tolerance);
    CHECK(difference<TestType>(dx_here, dx) <= tolerance);
    CHECK(difference<TestType>(layer.parameters()[0].gradient, dweight) <= tolerance);
    CHECK(difference<TestType>(layer.parameters()[1].gradient, dbias) <= tolerance);
    layer.backward_parameters(sparse, dy, ek::Accumulate::yes);
    CHECK(difference<TestType>(layer.parameters()[0].gradient, 2 * dweight) <= tolerance);
    CHECK(difference<TestType>(layer.infer(sparse), y) <= tolerance);
    CHECK(difference<TestType>(layer.forward(sparse, ek::Mode::eval), y) <= tolerance);
    CHECK(difference<TestType>(layer.backward(dy), dx) <= tolerance);
    CHECK(difference<TestType>(layer.parameters()[0].gradient, dweight) <= tolerance);
  };
  const ByRows<TestType> rows = x.sparseView();
  const ByColumns<TestType> columns = x.sparseView();
  check(rows);
  check(columns);
  check(rows.middleRows(0, batch));
  check(ByRows<TestType>(columns.transpose()).transpose());
}

TEST_CASE("Both orders of a sparse input give the same bits", "[sparse_input]") {
  const auto x = mostly_zero<float>(8, 20);
  const auto dy = values::random<float>(8, 4, 2);
  ek::Linear<float> one(20, 4), other(20, 4);
  CHECK(same_bits(one.forward(ByRows<float>(x.sparseView()), ek::Mode::train),
                  other.forward(ByColumns<float>(x.sparseView()), ek::Mode::train)));
  CHECK(same_bits(one.backward(dy), other.backward(dy)));
  CHECK(same_bits(one.parameters()[0].gradient, other.parameters()[0].gradient));
}

TEST_CASE("A sparse input is written into outputs of either order and into blocks", "[sparse_input]") {
  const ByRows<double> x = mostly_zero<double>(4, 6).sparseView();
  ek::Linear<double> layer(6, 3);
  const ek::Matrix<double> expected = layer.infer(x);
  Eigen::MatrixXd columns(4, 3);
  ek::Matrix<double> large = ek::Matrix<double>::Zero(6, 8);
  ek::Workspace<double> workspace;
  layer.infer(x, columns, workspace);
  layer.forward(x, large.block(1, 2, 4, 3), ek::Mode::train);
  CHECK(same_bits(columns, expected));
  CHECK(same_bits(large.block(1, 2, 4, 3), expected));
  large.block(1, 2, 4, 3).setZero();
  CHECK(large.isZero(0));
}

TEST_CASE("Networks take a sparse input as they take the dense one", "[sparse_input]") {
  const auto x = mostly_zero<double>(6, 10);
  const ByRows<double> sparse = x.sparseView();
  const auto dy = values::random<double>(6, 3, 2);
  const auto check = [&](auto network) {
    auto other = network;
    ek::Matrix<double> y(6, 3), y_sparse(6, 3), dx(6, 10), dx_sparse(6, 10);
    network.forward(x, y, ek::Mode::train);
    other.forward(sparse, y_sparse, ek::Mode::train);
    CHECK(y_sparse.isApprox(y, 1e-14));
    network.backward(x, dy, dx);
    other.backward(sparse, dy, dx_sparse);
    CHECK(dx_sparse.isApprox(dx, 1e-13));
    const auto expected = gradients_of(network), here = gradients_of(other);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK((here[i] - expected[i]).cwiseAbs().maxCoeff() < 1e-13);
    other.backward_parameters(sparse, dy);
    CHECK(same_bits(gradients_of(other)[0], here[0]));
    CHECK(other.infer(sparse).isApprox(network.infer(x), 1e-14));
    network.forward(x, ek::Mode::train);
    other.forward(sparse, ek::Mode::train);
    CHECK(other.backward(dy).isApprox(network.backward(dy), 1e-13));
  };
  check(ek::Mlp<double>({10, 8, 3}, {.norm = ek::Norm::layer, .dropout = 0.5, .seed = 1}));
  check(ek::Mlp<double>({10, 8, 8, 3}, {.norm = ek::Norm::batch}));
  check(ek::Sequential{ek::Linear<double>(10, 4), ek::ReLU<double>(), ek::Linear<double>(4, 3, {.seed = 1})});
  check(ek::Sequential{ek::sequential(ek::Linear<double>(10, 4), ek::LayerNorm<double>(4)), ek::Linear<double>(4, 3)});
  check(ek::Sequential{ek::Linear<double>(10, 3)});
}

TEST_CASE("Dense and sparse inputs may follow each other", "[sparse_input]") {
  const auto x = mostly_zero<double>(5, 6);
  const ByColumns<double> sparse = x.sparseView();
  const auto dy = values::random<double>(5, 2, 2);
  ek::Linear<double> layer(6, 2);
  layer.forward(sparse, ek::Mode::train);
  const ek::Matrix<double> after_sparse = layer.backward(dy);
  layer.forward(ek::Matrix<double>(2 * x), ek::Mode::train);
  layer.backward(dy);
  const ek::Matrix<double> twice = layer.parameters()[0].gradient;
  layer.forward(sparse, ek::Mode::train);
  CHECK(same_bits(layer.backward(dy), after_sparse));
  CHECK(twice.isApprox(2 * layer.parameters()[0].gradient, 1e-14));
}

TEST_CASE("A sparse input that cannot be taken is an error that says why", "[sparse_input]") {
  const ByRows<float> x(4, 5);
  const ek::Matrix<float> dy(4, 3);
  ek::Linear<float> layer(6, 3);
  CHECK(error_of([&] { layer.forward(x, ek::Mode::train); }) ==
        "ShapeError: Linear::forward: expected input of shape (batch, 6), got (4, 5)");
  CHECK(error_of([&] { layer.infer(x); }) ==
        "ShapeError: Linear::infer: expected input of shape (batch, 6), got (4, 5)");
  ek::Linear<float> right(5, 3);
  CHECK(error_of([&] { right.backward_parameters(x, dy); }) ==
        "UsageError: Linear::backward_parameters: expected a forward call before it, got none");
  ek::Matrix<float> y(4, 3), wrong(3, 3);
  CHECK(error_of([&] { right.forward(x, wrong, ek::Mode::train); }) ==
        "ShapeError: Linear::forward: expected output of shape (4, 3), got (3, 3)");
  right.forward(x, y, ek::Mode::train);
  CHECK(error_of([&] { right.backward(dy); }) ==
        "UsageError: Linear::backward: expected backward(x, dy, dx) after forward(x, y, mode), which keeps no copy of "
        "its "
        "input, got backward(dy)");
  CHECK(error_of([&] { right.backward_parameters(ByRows<float>(3, 5), dy); }) ==
        "ShapeError: Linear::backward_parameters: expected the forward's input of shape (4, 5), got (3, 5)");

  ek::Mlp<float> mlp({5, 3}, {.input_dropout = 0.5});
  CHECK(error_of([&] { mlp.forward(x, ek::Mode::train); }) ==
        "UsageError: Mlp::forward: expected dense input, since layer 0 (Dropout) takes no other, got a sparse matrix");
  ek::Sequential inner{ek::sequential(ek::LayerNorm<float>(5), ek::Linear<float>(5, 3)), ek::ReLU<float>()};
  CHECK(error_of([&] { inner.infer(x); }) ==
        "UsageError: Sequential::infer: expected dense input, since layer 0 (LayerNorm) takes no other, got a sparse "
        "matrix");
}

TEST_CASE("fit on sparse examples trains as on the dense ones", "[sparse_input]") {
  const auto x = mostly_zero<double>(20, 12);
  std::vector<int> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(i % 3);
  const auto trained_on = [&](const auto& examples) {
    ek::Mlp<double> network({12, 8, 3}, {.dropout = 0.2});
    ek::AdamW<double> optimizer(network, {.learning_rate = 0.01, .weight_decay = 0.1});
    ek::SoftmaxCrossEntropy<double> cross_entropy;
    ek::fit(network, cross_entropy, optimizer, examples, labels, {.steps = 40, .batch_size = 6});
    return network.infer(x);
  };
  const ek::Matrix<double> by_rows = trained_on(ByRows<double>(x.sparseView()));
  CHECK(same_bits(trained_on(ByColumns<double>(x.sparseView())), by_rows));
  CHECK(by_rows.isApprox(trained_on(x), 1e-10));
}
