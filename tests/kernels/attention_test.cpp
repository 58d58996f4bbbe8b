#include "evenkeel/kernels/attention.hpp"

#include <utility>  // as_const

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"

namespace ek = evenkeel;
using ek::Index;
using Matrix = ek::Matrix<double>;

namespace {

ek::View<double> view(Matrix& matrix) { return {matrix.data(), matrix.rows(), matrix.cols(), matrix.cols(), 1}; }
ek::View<const double> view(const Matrix& matrix) {
  return {matrix.data(), matrix.rows(), matrix.cols(), matrix.cols(), 1};
}

constexpr ek::kernels::AttentionShape one_head{.heads = 1, .positions = 3, .features = 1};

}  // namespace

// One sequence of three tokens, one head of one feature. Queries are 1, so the last token's logits are the keys.
TEST_CASE("ALI-2: the logits' gradient takes the place of the weights' gradient", "[attention]") {
  const Matrix qkv{{1, 1, 0}, {1, 2, 0}, {1, 3, 0}};
  Matrix weights(3, 3), gradient{{0, 0, 0}, {0, 0, 0}, {1, -2, 0.5}}, dqkv = Matrix::Zero(3, 3);
  ek::kernels::attention_weights<double>(view(qkv), one_head, view(weights));
  CHECK(compare::difference(weights.row(2), Matrix{{0.09003057, 0.24472847, 0.66524096}}) <= 1e-8);
  CHECK(compare::same_bits(Matrix(weights.row(0)), Matrix{{1, 0, 0}}));

  ek::kernels::attention_weights_backward<double>(view(std::as_const(weights)), view(qkv), one_head, view(gradient),
                                                  view(dqkv));
  const Matrix expected{{0.09604515, -0.47310764, 0.37706249}};
  CHECK(compare::difference(gradient.row(2), expected) <= 1e-8);
  CHECK(compare::difference(dqkv.col(1).transpose(), expected) <= 1e-8);  // of the keys
  CHECK(dqkv(2, 0) == Catch::Approx(0.09604515 - 2 * 0.47310764 + 3 * 0.37706249).epsilon(1e-7));
}

TEST_CASE("ALI-2: the weights' gradient may take the place of the weights", "[attention]") {
  constexpr ek::kernels::AttentionShape shape{.heads = 2, .positions = 4, .features = 6};
  constexpr Index rows = 8;
  const auto qkv = values::random<double>(rows, 18, 1), dy = values::random<double>(rows, 6, 2);
  Matrix weights(shape.weight_rows(rows), 4), apart(shape.weight_rows(rows), 4);
  Matrix dqkv = Matrix::Zero(rows, 18), expected = dqkv;
  ek::kernels::attention_weights<double>(view(qkv), shape, view(weights));
  ek::kernels::attention_mix_backward<double>(view(std::as_const(weights)), view(qkv), shape, view(dy), view(apart),
                                              view(expected));
  ek::kernels::attention_mix_backward<double>(view(std::as_const(weights)), view(qkv), shape, view(dy), view(weights),
                                              view(dqkv));
  CHECK(compare::same_bits(weights, apart));
  CHECK(compare::same_bits(dqkv, expected));
}
