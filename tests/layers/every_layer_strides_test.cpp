// Every layer reads and writes Eigen objects of every kind as it does plain matrices.

#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/group_norm.hpp"
#include "evenkeel/layers/instance_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

using Plain = ek::Matrix<float>;
using ColumnMajor = Eigen::MatrixXf;

constexpr Index rows = 7;
constexpr Index columns = 6;

/// Calls f with a layer of each kind, 6 features in and out.
template <class F>
void with_every_layer(const F& f) {
  f(ek::Dropout<float>(0.4, {.seed = 3}));
  f(ek::AlphaDropout<float>(0.4, {.seed = 3}));
  f(ek::SpatialDropout<float>(0.4, 3, 2, {.seed = 3}));
  f(ek::BatchNorm<float>(6));
  f(ek::BatchNorm<float>(2, 3));
  f(ek::GroupNorm<float>(2, 6));
  f(ek::GroupNorm<float>(1, 2, 3));
  f(ek::InstanceNorm<float>(2, 3, {.affine = true, .track_running_statistics = true}));
  f(ek::LayerNorm<float>(6));
  f(ek::RMSNorm<float>(6));
  f(ek::Linear<float>(6, 6, {.seed = 4}));
  f(ek::ReLU<float>());
  f(ek::LeakyReLU<float>());
  f(ek::GELU<float>());
  f(ek::SiLU<float>());
  f(ek::Tanh<float>());
  f(ek::Sigmoid<float>());
}

struct Expected {
  Plain y, dx;
  Plain infer;  // after the training forward
  std::vector<Plain> gradients;
};

template <class Layer>
std::vector<Plain> gradients_of(Layer& layer) {
  std::vector<Plain> all;
  if constexpr (requires { layer.parameters(); })
    for (const auto& parameter : layer.parameters()) all.emplace_back(parameter.gradient);
  return all;
}

template <class Layer>
Expected expected_of(Layer layer, const Plain& x, const Plain& dy) {
  Expected expected{Plain(rows, columns), Plain(rows, columns), {}, {}};
  layer.forward(x, expected.y, ek::Mode::train);
  layer.backward(x, dy, expected.dx);
  expected.infer = layer.infer(x);
  expected.gradients = gradients_of(layer);
  return expected;
}

/// The same bits; in Linear, whose sums may run in another order, the same but for roundings.
template <class Layer, class Actual>
bool same(const Layer&, const Actual& actual, const Plain& expected) {
  if constexpr (std::is_same_v<Layer, ek::Linear<float>>)
    return compare::difference(actual, expected) <= 4 * compare::epsilon<float>;
  else
    return compare::same_bits(Plain(actual), expected);
}

template <class Layer>
bool same_gradients(Layer& layer, const Expected& expected) {
  const auto gradients = gradients_of(layer);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (!same(layer, gradients[i], expected.gradients[i])) return false;
  return gradients.size() == expected.gradients.size();
}

/// Both pairs and infer read these as they read plain copies of them.
template <class X, class DY>
void check_inputs(const X& x, const DY& dy) {
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    const Expected expected = expected_of(prototype, x, dy);
    auto layer = prototype;
    Plain y(rows, columns), dx(rows, columns);
    layer.forward(x, y, ek::Mode::train);
    layer.backward(x, dy, dx);
    CHECK(same(layer, y, expected.y));
    CHECK(same(layer, dx, expected.dx));
    CHECK(same_gradients(layer, expected));

    layer = prototype;
    CHECK(same(layer, layer.forward(x, ek::Mode::train), expected.y));
    CHECK(same(layer, layer.backward(dy), expected.dx));
    CHECK(same_gradients(layer, expected));
    CHECK(same(layer, layer.infer(x), expected.infer));
  });
}

/// Forward, backward and infer write `target` of `storage`, and nothing else of the storage.
template <class Storage, class Select>
void check_outputs(Storage storage, const Select& select) {
  const Plain x = values::random<float>(rows, columns, 1);
  const Plain dy = values::random<float>(rows, columns, 2);
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    const Expected expected = expected_of(prototype, x, dy);
    const auto check = [&](const Plain& values, const auto& write) {
      storage.setConstant(7);
      Storage surroundings = storage;
      auto&& target = select(storage);
      write(target);
      CHECK(same(prototype, target, values));
      select(surroundings) = target;
      CHECK(compare::same_bits(storage, surroundings));
    };
    auto layer = prototype;
    ek::Workspace<float> workspace;
    check(expected.y, [&](auto& y) { layer.forward(x, y, ek::Mode::train); });
    check(expected.dx, [&](auto& dx) { layer.backward(x, dy, dx); });
    check(expected.infer, [&](auto& y) { layer.infer(x, y, workspace); });
    CHECK(same_gradients(layer, expected));
  });
}

}  // namespace

TEST_CASE("STR-1: layers read column-major matrices, transposes and blocks", "[every_layer_strides]") {
  const Plain a = values::random<float>(12, 10, 1);
  const Plain b = values::random<float>(12, 10, 2);
  SECTION("column-major") { check_inputs(ColumnMajor(a.topLeftCorner(rows, columns)), b.topLeftCorner(rows, columns)); }
  SECTION("transposes") {
    check_inputs(a.topLeftCorner(columns, rows).transpose(), b.bottomRightCorner(columns, rows).transpose());
  }
  SECTION("blocks") { check_inputs(a.block(1, 2, rows, columns), b.block(2, 1, rows, columns)); }
  SECTION("blocks of column-major matrices") {
    const ColumnMajor c = a, d = b;
    check_inputs(c.block(1, 2, rows, columns), d.block(2, 1, rows, columns));
  }
  SECTION("arrays") { check_inputs(a.block(1, 2, rows, columns).array(), b.block(2, 1, rows, columns).array()); }
}

TEST_CASE("STR-1: layers read maps of any strides", "[every_layer_strides]") {
  const Plain a = values::random<float>(20, 20, 3);
  const Plain b = values::random<float>(20, 20, 4);
  SECTION("inner stride") {
    using Map = Eigen::Map<const Plain, Eigen::Unaligned, Eigen::InnerStride<2>>;
    check_inputs(Map(a.data(), rows, columns), Map(b.data() + 1, rows, columns));
  }
  SECTION("outer stride") {
    using Map = Eigen::Map<const Plain, Eigen::Unaligned, Eigen::OuterStride<>>;
    check_inputs(Map(a.data(), rows, columns, Eigen::OuterStride<>(17)),
                 Map(b.data(), rows, columns, Eigen::OuterStride<>(17)));
  }
  SECTION("both, column-major") {
    using Stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
    using Map = Eigen::Map<const ColumnMajor, Eigen::Unaligned, Stride>;
    check_inputs(Map(a.data(), rows, columns, Stride(31, 3)), Map(b.data(), rows, columns, Stride(29, 2)));
  }
}

TEST_CASE("STR-1: layers read expressions that lie nowhere in memory", "[every_layer_strides]") {
  const Plain a = values::random<float>(rows, columns, 5);
  const Plain b = values::random<float>(rows, columns, 6);
  SECTION("reversed") { check_inputs(a.colwise().reverse(), b.reverse()); }
  SECTION("sums") { check_inputs(a + b, a - b); }
  SECTION("products") {
    const Plain left = values::random<float>(rows, 3, 7), right = values::random<float>(3, columns, 8);
    check_inputs(left * right, right.replicate(3, 1).topRows(rows));
  }
}

TEST_CASE("STR-2: layers read broadcasts of one row", "[every_layer_strides]") {
  const Plain row = values::random<float>(1, columns, 9);
  SECTION("an expression") { check_inputs(row.replicate(rows, 1), Plain::Ones(rows, columns)); }
  SECTION("a stride of zero") {
    using Map = Eigen::Map<const Plain, Eigen::Unaligned, Eigen::OuterStride<>>;
    const Plain gradient = values::random<float>(1, columns, 10);
    check_inputs(Map(row.data(), rows, columns, Eigen::OuterStride<>(0)),
                 Map(gradient.data(), rows, columns, Eigen::OuterStride<>(0)));
  }
}

TEST_CASE("Layers write into any writable Eigen object and leave its surroundings alone", "[every_layer_strides]") {
  SECTION("a column-major matrix") {
    check_outputs(
        ColumnMajor(rows, columns), [](auto& storage) -> auto& { return storage; });
  }
  SECTION("an array") {
    check_outputs(
        Eigen::ArrayXXf(rows, columns), [](auto& storage) -> auto& { return storage; });
  }
  SECTION("a block") {
    check_outputs(Plain(12, 10), [](auto& storage) { return storage.block(2, 3, rows, columns); });
  }
  SECTION("a transposed block") {
    check_outputs(Plain(12, 10), [](auto& storage) { return storage.block(2, 1, columns, rows).transpose(); });
  }
  SECTION("every second column") {
    using Map = Eigen::Map<Plain, Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, 2>>;
    check_outputs(Plain(rows, 13), [](auto& storage) {
      return Map(storage.data() + 1, rows, columns, Eigen::Stride<Eigen::Dynamic, 2>(13, 2));
    });
  }
  SECTION("reversed") {
    check_outputs(Plain(12, 10), [](auto& storage) { return storage.block(2, 3, rows, columns).reverse(); });
  }
}

TEST_CASE("Layers accept temporary blocks as outputs", "[every_layer_strides]") {
  const Plain x = values::random<float>(rows, columns, 1);
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    const Expected expected = expected_of(prototype, x, x);
    auto layer = prototype;
    Plain storage = Plain::Zero(rows, 3 * columns);
    ek::Workspace<float> workspace;
    layer.forward(x, storage.leftCols(columns), ek::Mode::train);
    layer.backward(x, x, storage.rightCols(columns));
    layer.infer(x, storage.middleCols(columns, columns), workspace);
    CHECK(compare::same_bits(Plain(storage.leftCols(columns)), expected.y));
    CHECK(compare::same_bits(Plain(storage.rightCols(columns)), expected.dx));
    CHECK(compare::same_bits(Plain(storage.middleCols(columns, columns)), expected.infer));
  });
}

TEST_CASE("An output that overlaps an input without being it comes out right", "[every_layer_strides]") {
  const Plain x = values::random<float>(rows, columns, 1);
  const Plain dy = values::random<float>(rows, columns, 2);
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    const Expected expected = expected_of(prototype, x, dy);
    ek::Workspace<float> workspace;
    Plain storage(rows + 1, columns + 1);
    auto layer = prototype;

    storage.topLeftCorner(rows, columns) = x;
    layer.forward(storage.topLeftCorner(rows, columns), storage.bottomRightCorner(rows, columns), ek::Mode::train);
    CHECK(compare::same_bits(Plain(storage.bottomRightCorner(rows, columns)), expected.y));

    Plain y(rows, columns);
    layer = prototype;
    layer.forward(x, y, ek::Mode::train);
    storage.topLeftCorner(rows, columns) = dy;
    layer.backward(x, storage.topLeftCorner(rows, columns), storage.bottomRightCorner(rows, columns));
    CHECK(compare::same_bits(Plain(storage.bottomRightCorner(rows, columns)), expected.dx));

    storage.topLeftCorner(rows, columns) = x;
    layer.backward(storage.topLeftCorner(rows, columns), dy, storage.bottomLeftCorner(rows, columns));
    CHECK(compare::same_bits(Plain(storage.bottomLeftCorner(rows, columns)), expected.dx));

    storage.topLeftCorner(rows, columns) = x;
    layer.infer(storage.topLeftCorner(rows, columns), storage.topRightCorner(rows, columns), workspace);
    CHECK(compare::same_bits(Plain(storage.topRightCorner(rows, columns)), expected.infer));
  });
}

TEST_CASE("STR-1: a square matrix and its transpose, the one in the place of the other", "[every_layer_strides]") {
  const Plain x = values::random<float>(6, 6, 1);
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    ek::Workspace<float> workspace;
    Plain storage = x;
    prototype.infer(storage, storage.transpose(), workspace);
    CHECK(compare::same_bits(Plain(storage.transpose()), prototype.infer(x)));
  });
}

TEST_CASE("An input that its output has overwritten, by whatever name, is still known to backward",
          "[every_layer_strides]") {
  const Plain x = values::random<float>(rows, columns, 1);
  const Plain dy = values::random<float>(rows, columns, 2);
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    const Expected expected = expected_of(prototype, x, dy);
    Plain dx(rows, columns);

    auto layer = prototype;
    Plain storage = x.colwise().reverse();
    layer.forward(storage.colwise().reverse(), storage.colwise().reverse(), ek::Mode::train);
    CHECK(compare::same_bits(Plain(storage.colwise().reverse()), expected.y));
    layer.backward(storage.colwise().reverse(), dy, dx);
    CHECK(compare::same_bits(dx, expected.dx));
    CHECK(same_gradients(layer, expected));

    layer = prototype;
    storage.setZero(rows + 1, columns + 1);
    storage.topLeftCorner(rows, columns) = x;
    layer.forward(storage.topLeftCorner(rows, columns), storage.bottomRightCorner(rows, columns), ek::Mode::train);
    layer.backward(storage.topLeftCorner(rows, columns), dy, dx);
    CHECK(compare::same_bits(dx, expected.dx));
    CHECK(same_gradients(layer, expected));
  });
}

TEST_CASE("A transpose of what backward returned is an output gradient like any other", "[every_layer_strides]") {
  const Plain x = values::random<float>(6, 6, 1);
  const Plain dy = values::random<float>(6, 6, 2);
  with_every_layer([&](const auto& prototype) {
    INFO(prototype.name);
    auto layer = prototype;
    layer.forward(x, ek::Mode::train);
    const Plain dx = layer.backward(dy);
    const Plain expected = layer.backward(Plain(dx.transpose()));
    CHECK(same(layer, layer.backward(layer.backward(dy).transpose()), expected));
  });
}
