#include "evenkeel/layers/layer_base.hpp"

#include <Eigen/Core>
#include <cstddef>  // byte
#include <map>
#include <memory>  // make_shared, unique_ptr
#include <new>
#include <optional>
#include <type_traits>
#include <utility>  // declval
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Matrix = ek::Matrix<float>;

template <class Layer>
concept ReturnsMatrices = std::is_same_v<decltype(std::declval<Layer&>().forward(
                                             std::declval<Matrix>() * std::declval<Matrix>(), ek::Mode::train)),
                                         const Matrix&> &&
    std::is_same_v<decltype(std::declval<Layer&>().backward(std::declval<Matrix>() + std::declval<Matrix>())),
                   const Matrix&> &&
    std::is_same_v<decltype(std::declval<const Layer&>().infer(std::declval<Matrix>().transpose())), Matrix>;

template <typename T>
concept HasLayerNorm = requires {
  typename ek::LayerNorm<T>;
};

template <class Layer>
void check_that_it_works(Layer& layer) {
  const auto x = values::random<float>(3, 4, 1);
  layer.forward(x, ek::Mode::train);
  CHECK(layer.backward(x).allFinite());
  CHECK(layer.infer(x).allFinite());
}

}  // namespace

TEST_CASE("ALI-3: layers return matrices, not expressions that refer to what is gone", "[layer_base]") {
  STATIC_REQUIRE(ReturnsMatrices<ek::Dropout<float>>);
  STATIC_REQUIRE(ReturnsMatrices<ek::BatchNorm<float>>);
  STATIC_REQUIRE(ReturnsMatrices<ek::LayerNorm<float>>);
  STATIC_REQUIRE(ReturnsMatrices<ek::RMSNorm<float>>);
  STATIC_REQUIRE(ReturnsMatrices<ek::Linear<float>>);

  ek::LayerNorm<float> layer(4);
  auto a = values::random<float>(3, 2, 1), b = values::random<float>(2, 4, 2), c = values::random<float>(3, 4, 3);
  const Matrix expected = layer.infer(Matrix(a * b + c));
  const auto& y = layer.forward(a * b + c, ek::Mode::train);
  const auto fresh = layer.infer(a * b + c);
  a.setZero();
  b.setZero();
  c.setZero();
  CHECK(compare::same_bits(y, expected));
  CHECK(compare::same_bits(fresh, expected));
}

TEST_CASE("ALI-4: what happens to the input after the stand-alone forward does not matter", "[layer_base]") {
  const auto plain = values::random<float>(5, 4, 1);
  const auto dy = values::random<float>(5, 4, 2);
  const auto check = [&](auto layer) {
    INFO(layer.name);
    layer.forward(plain, ek::Mode::train);
    const Matrix expected = layer.backward(dy);
    if constexpr (requires { layer.replay(0); }) layer.replay(0);
    {
      Matrix gone = plain;
      layer.forward(gone, ek::Mode::train);
    }
    CHECK(compare::same_bits(layer.backward(dy), expected));
    if constexpr (requires { layer.replay(0); }) layer.replay(0);
    Matrix overwritten = plain;
    layer.forward(overwritten, ek::Mode::train);
    overwritten.setConstant(99);
    CHECK(compare::same_bits(layer.backward(dy), expected));
    if constexpr (requires { layer.replay(0); }) layer.replay(0);
    layer.forward(plain + Matrix::Zero(5, 4), ek::Mode::train);
    CHECK(compare::same_bits(layer.backward(dy), expected));
  };
  check(ek::Dropout<float>(0.5));
  check(ek::BatchNorm<float>(4));
  check(ek::LayerNorm<float>(4));
  check(ek::RMSNorm<float>(4));
  check(ek::Linear<float>(4, 4));
}

TEST_CASE("A forward in place and one that is not can follow each other", "[layer_base]") {
  const auto x = values::random<float>(5, 4, 1), other = values::random<float>(5, 4, 2),
             dy = values::random<float>(5, 4, 3);
  ek::LayerNorm<float> layer(4), apart(4);
  Matrix y(5, 4), dx(5, 4), expected(5, 4);
  apart.forward(other, y, ek::Mode::train);
  apart.backward(other, dy, expected);

  y = x;
  layer.forward(y, y, ek::Mode::train);
  layer.forward(other, y, ek::Mode::train);
  layer.backward(other, dy, dx);  // of the caller's input, not of the one that was saved
  CHECK(compare::same_bits(dx, expected));
  layer.forward(x, ek::Mode::train);
  layer.forward(other, y, ek::Mode::train);
  layer.backward(other, dy, dx);
  CHECK(compare::same_bits(dx, expected));
}

TEST_CASE("Two calls of the stand-alone pair with one shape return one matrix, again and again", "[layer_base]") {
  ek::LayerNorm<float> layer(4);
  const auto x = values::random<float>(5, 4, 1), small = values::random<float>(2, 4, 1);
  const Matrix* y = &layer.forward(x, ek::Mode::train);
  const float* data = y->data();
  const float* gradient = layer.backward(x).data();
  layer.forward(small, ek::Mode::train);
  layer.backward(small);
  CHECK(layer.forward(x, ek::Mode::train).data() == data);
  CHECK(layer.backward(x).data() == gradient);
}

TEST_CASE("BLD-5: layers live in containers, on the heap and by value", "[layer_base]") {
  using Layer = ek::LayerNorm<float, 4>;
  std::vector<Layer> many(3);
  for (int i = 0; i < 10; ++i) many.emplace_back();
  for (auto& layer : many) check_that_it_works(layer);
  const auto shared = std::make_shared<Layer>();
  check_that_it_works(*shared);
  const std::unique_ptr<ek::BatchNorm<float, 4>> owned(new ek::BatchNorm<float, 4>());
  check_that_it_works(*owned);
  std::map<int, ek::RMSNorm<float, 4>> by_number;
  check_that_it_works(by_number[3]);
  std::optional<ek::Linear<float, 4, 4>> maybe(std::in_place);
  check_that_it_works(*maybe);
  alignas(Layer) std::byte storage[sizeof(Layer)];
  Layer* placed = new (storage) Layer();
  check_that_it_works(*placed);
  placed->~Layer();
  Layer moved = std::move(many.back());
  check_that_it_works(moved);
}

TEST_CASE("BLD-6, OVF-1: float, double and long double are computed in, 16-bit numbers only stored, integers neither",
          "[layer_base]") {
  STATIC_REQUIRE(ek::Real<float>);
  STATIC_REQUIRE(ek::Real<double>);
  STATIC_REQUIRE(ek::Real<long double>);
  STATIC_REQUIRE_FALSE(ek::Real<int>);
  STATIC_REQUIRE_FALSE(ek::Real<Eigen::half>);
  STATIC_REQUIRE_FALSE(ek::Real<Eigen::bfloat16>);
  STATIC_REQUIRE(ek::Storable<Eigen::half>);
  STATIC_REQUIRE(ek::Storable<Eigen::bfloat16>);
  STATIC_REQUIRE_FALSE(ek::Storable<int>);
  STATIC_REQUIRE(HasLayerNorm<long double>);
  STATIC_REQUIRE(HasLayerNorm<Eigen::half>);
  STATIC_REQUIRE_FALSE(HasLayerNorm<int>);
}

TEST_CASE("BLD-6: layers compute in long double with its precision", "[layer_base]") {
  using Long = ek::Matrix<long double>;
  const Long x = values::random<long double>(6, 4, 1) / 3;
  const Long dy = values::random<long double>(6, 4, 2) / 7;
  const auto check = [&](auto layer, auto in_double) {
    INFO(layer.name);
    const Long y = layer.forward(x, ek::Mode::train);
    const Long dx = layer.backward(dy);
    const auto near = in_double.forward(x.template cast<double>(), ek::Mode::train);
    const auto near_dx = in_double.backward(dy.template cast<double>());
    CHECK(compare::difference(near, y) < 64 * compare::epsilon<double>);
    CHECK(compare::difference(near_dx, dx) < 64 * compare::epsilon<double>);
    CHECK((near.template cast<long double>().array() != y.array()).any());  // it is not double that does the work
    CHECK(compare::difference(layer.infer(x), layer.forward(x, ek::Mode::eval)) == 0);
  };
  check(ek::BatchNorm<long double>(4), ek::BatchNorm<double>(4));
  check(ek::LayerNorm<long double>(4), ek::LayerNorm<double>(4));
  check(ek::RMSNorm<long double>(4), ek::RMSNorm<double>(4));
  check(ek::Linear<long double>(4, 4), ek::Linear<long double>(4, 4).cast<double>());
  check(ek::Dropout<long double>(0.3), ek::Dropout<double>(0.3));
}
