// The kernel of residual connections: dropout, addition and norm in one pass.

#include <cstdint>  // uint64_t
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/kernels/residual_norm.hpp"
#include "kernels/strided.hpp"
#include "layers/reference.hpp"

namespace ek = evenkeel;
namespace kernels = evenkeel::kernels;
using ek::Index;
using reference::exact;
using reference::Numbers;
using strided::Order;
using strided::Storage;

namespace {

constexpr reference::Mask mask{.p = 0.375, .seed = 77, .call = 5, .stream = 9};

/// LayerNorm or RMSNorm with its parameters, by the equations.
template <class Norm>
Numbers normalized(const Numbers& x, const Numbers& weight, const Numbers& bias) {
  return Norm::centred ? reference::layer_norm(x, weight, bias, 1e-5L) : reference::rms_norm(x, weight, 1e-5L);
}

/// The derivative of it, written out from the equation x^ = (x - mean) / deviation by the product rule.
template <class Norm>
Numbers norm_gradient(const Numbers& x, const Numbers& dy, const Numbers& weight) {
  Numbers dx(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i) {
    const auto n = static_cast<long double>(x.cols());
    const long double mean = Norm::centred ? x.row(i).sum() / n : 0;
    const long double variance = (x.row(i).array() - mean).square().sum() / n + 1e-5L;
    const long double deviation = std::sqrt(variance);
    long double sum = 0, product = 0;  // of g, and of g with x - mean
    for (Index j = 0; j < x.cols(); ++j) {
      sum += dy(i, j) * weight(0, j);
      product += dy(i, j) * weight(0, j) * (x(i, j) - mean);
    }
    for (Index j = 0; j < x.cols(); ++j)
      dx(i, j) = dy(i, j) * weight(0, j) / deviation - (Norm::centred ? sum / n / deviation : 0) -
                 (x(i, j) - mean) * product / n / (variance * deviation);
  }
  return dx;
}

/// All that the kernels are given and give, in some storage order.
template <class Norm>
struct Trial {
  using Scalar = typename Norm::Scalar;
  using Matrix = ek::Matrix<Scalar>;

  Index batch, features;
  Matrix x, branch, dy, other, weight, bias;
  std::vector<std::uint64_t> bits;
  std::vector<typename Norm::Kept> kept;
  Matrix dweight, dbias;

  Trial(Index batch_, Index features_)
      : batch{batch_},
        features{features_},
        x{values::random<Scalar>(batch, features, 1)},
        branch{values::random<Scalar>(batch, features, 2)},
        dy{values::random<Scalar>(batch, features, 3)},
        other{values::random<Scalar>(batch, features, 4)},
        weight{values::positive<Scalar>(1, features, 5)},
        bias{values::random<Scalar>(1, features, 6)},
        bits(static_cast<std::size_t>(kernels::mask_words(batch * features))),
        kept(static_cast<std::size_t>(batch)),
        dweight{Matrix::Zero(1, features)},
        dbias{Matrix::Zero(1, features)} {}

  kernels::BranchDropout<Scalar> dropout(bool on) {
    if (!on) return {};
    const auto threshold = static_cast<std::uint32_t>(mask.threshold());
    return {{mask.seed, mask.call, mask.stream, threshold}, static_cast<Scalar>(mask.scale()), bits.data()};
  }
  kernels::RowNorm<Norm> norm() {
    return {{weight.data(), bias.data()}, 1e-5, kept.data(), dweight.data(), dbias.data()};
  }

  /// sum, y, dx, dbranch, dweight, dbias; `in` and `out` are how inputs and outputs are stored.
  std::vector<Matrix> run(bool dropped, Order in, Order out) {
    using Scratch = std::vector<ek::Wide<Scalar>>;
    Storage<Scalar> x_in(x, in), branch_in(branch, in), dy_in(dy, in), other_in(other, in);
    Storage<Scalar> sum(x, out), y(x, out), dx(x, out), dbranch(x, out);
    Scratch forward(static_cast<std::size_t>(
        kernels::residual_forward_scratch<Scalar>(x_in.fixed(), branch_in.fixed(), sum.view(), y.view())));
    kernels::residual_norm_forward<Norm>(x_in.fixed(), branch_in.fixed(), dropout(dropped), norm(), sum.view(),
                                         y.view(), forward.data());
    Scratch backward(static_cast<std::size_t>(kernels::residual_backward_scratch<Scalar>(batch, features)));
    kernels::residual_norm_backward<Norm>(sum.fixed(), dy_in.fixed(), other_in.fixed(), dropout(dropped), norm(),
                                          dx.view(), dbranch.view(), ek::Accumulate::no, backward.data());
    for (auto* matrix : {&sum, &y, &dx, &dbranch}) CHECK(matrix->gaps_untouched());
    return {sum.matrix(), y.matrix(), dx.matrix(), dbranch.matrix(), dweight, dbias};
  }
};

struct Shape {
  Index batch, features;
};
// Of few columns (several rows of the mask are drawn together), of whole and part registers, of more rows than are packed and
// summed at a time and more than a chunk, of more columns than a table of the mask.
constexpr Shape shapes[] = {{9, 5}, {70, 37}, {33, 128}, {530, 125}, {67, 600}, {3, 4150}};

}  // namespace

TEMPLATE_TEST_CASE("Residual, dropout and norm in one pass give what the equations give", "[residual_norm]",
                   kernels::ByMoments<double>, kernels::ByMoments<float>, kernels::ByRms<double>) {
  using Scalar = typename TestType::Scalar;
  const double tolerance = 16 * compare::epsilon<Scalar>;
  for (const auto& [batch, features] : shapes)
    for (const bool dropped : {true, false}) {
      INFO(batch << " x " << features << (dropped ? ", dropped" : ""));
      Trial<TestType> trial(batch, features);
      const auto results = trial.run(dropped, Order::row_major, Order::row_major);

      const auto drop = [&](const Numbers& numbers) { return dropped ? reference::dropout(numbers, mask) : numbers; };
      const Numbers sum = exact(trial.x) + drop(exact(trial.branch));
      CHECK(compare::difference(results[0], sum) <= tolerance);
      CHECK(compare::difference(results[1], normalized<TestType>(sum, exact(trial.weight), exact(trial.bias))) <=
            tolerance);
      const Numbers dy = exact(trial.dy);
      const Numbers dx = norm_gradient<TestType>(sum, dy, exact(trial.weight)) + exact(trial.other);
      CHECK(compare::difference(results[2], dx) <= tolerance);
      CHECK(compare::difference(results[3], drop(dx)) <= tolerance);
      const Numbers ones = Numbers::Ones(1, features), zeros = Numbers::Zero(1, features);
      const Numbers dweight = normalized<TestType>(sum, ones, zeros).cwiseProduct(dy).colwise().sum();
      CHECK(compare::difference(results[4], dweight) <= 8 * tolerance);
      if (TestType::centred) CHECK(compare::difference(results[5], dy.colwise().sum()) <= 8 * tolerance);
      // What is dropped is exactly zero, and in the same places on both ways.
      for (Index i = 0; i < batch && dropped; ++i)
        for (Index j = 0; j < features; ++j)
          if (!mask.kept(i, j)) {
            REQUIRE(results[0](i, j) == trial.x(i, j));
            REQUIRE(results[3](i, j) == 0);
          }
    }
}

TEST_CASE("The fused kernel gives the bits of dropout, addition and norm one by one", "[residual_norm]") {
  using Norm = kernels::ByMoments<float>;
  for (const auto& [batch, features] : shapes) {
    INFO(batch << " x " << features);
    Trial<Norm> trial(batch, features);
    const auto fused = trial.run(true, Order::row_major, Order::row_major);

    Trial<Norm> parts(batch, features);
    const auto dropout = parts.dropout(true);
    const auto norm = parts.norm();
    const auto view = [](ek::Matrix<float>& m) { return ek::View<float>{m.data(), m.rows(), m.cols(), m.cols(), 1}; };
    ek::Matrix<float> dropped(batch, features), y(batch, features), dx(batch, features);
    kernels::dropout_forward<float>(view(parts.branch), dropout.key, dropout.scale, view(dropped), dropout.mask);
    ek::Matrix<float> sum = parts.x + dropped;
    kernels::row_norm_forward<Norm, kernels::Affine<float>, float>(view(sum), norm.affine, norm.epsilon, view(y),
                                                                   norm.kept, nullptr);
    std::vector<double> scratch(
        static_cast<std::size_t>(kernels::row_norm_backward_scratch<float>(view(sum), view(parts.dy), view(dx))));
    kernels::row_norm_backward<Norm, kernels::Affine<float>, float>(view(sum), view(parts.dy), norm.affine, norm.kept,
                                                                    view(dx), norm.dweight, norm.dbias,
                                                                    ek::Accumulate::no, scratch.data());
    dx += parts.other;
    ek::Matrix<float> dbranch(batch, features);
    kernels::dropout_backward<float>(view(dx), dropout.mask, dropout.scale, view(dbranch));
    CHECK(compare::same_bits(fused[0], sum));
    CHECK(compare::same_bits(fused[1], y));
    CHECK(compare::same_bits(fused[2], dx));
    CHECK(compare::same_bits(fused[3], dbranch));
    CHECK(compare::same_bits(fused[4], parts.dweight));
    CHECK(compare::same_bits(fused[5], parts.dbias));
  }
}

TEST_CASE("The fused kernel gives the same bits in every storage order", "[residual_norm]") {
  using Norm = kernels::ByMoments<double>;
  for (const auto& [batch, features] : shapes) {
    INFO(batch << " x " << features);
    const auto first = Trial<Norm>(batch, features).run(true, Order::row_major, Order::row_major);
    for (const Order in : strided::orders)
      for (const Order out : strided::orders) {
        const auto results = Trial<Norm>(batch, features).run(true, in, out);
        for (std::size_t k = 0; k < first.size(); ++k) CHECK(compare::same_bits(results[k], first[k]));
      }
  }
}

TEST_CASE("The fused kernel works in place", "[residual_norm]") {
  using Norm = kernels::ByMoments<double>;
  const Order order = GENERATE(Order::row_major, Order::column_major);
  for (const auto& [batch, features] : {Shape{70, 37}, Shape{20, 600}}) {
    Trial<Norm> trial(batch, features);
    const auto apart = trial.run(true, Order::row_major, Order::row_major);
    const auto in_order = [&](const ek::Matrix<double>& matrix) { return Storage<double>(matrix, order); };
    std::vector<double> scratch(static_cast<std::size_t>(kernels::residual_backward_scratch<double>(batch, features)) +
                                static_cast<std::size_t>(kernels::Packing(features).room<double>(2)));

    auto x = in_order(trial.x), branch = in_order(trial.branch), y = in_order(trial.x);
    SECTION("sum over branch, y over x") {
      kernels::residual_norm_forward<Norm>(x.fixed(), branch.fixed(), trial.dropout(true), trial.norm(), branch.view(),
                                           x.view(), scratch.data());
      CHECK(compare::same_bits(branch.matrix(), apart[0]));
      CHECK(compare::same_bits(x.matrix(), apart[1]));
    }
    SECTION("sum over x") {
      kernels::residual_norm_forward<Norm>(x.fixed(), branch.fixed(), trial.dropout(true), trial.norm(), x.view(),
                                           y.view(), scratch.data());
      CHECK(compare::same_bits(x.matrix(), apart[0]));
      CHECK(compare::same_bits(y.matrix(), apart[1]));
    }
    SECTION("sum in y, where only the norm is wanted") {
      kernels::residual_norm_forward<Norm>(x.fixed(), branch.fixed(), trial.dropout(true), trial.norm(), y.view(),
                                           y.view(), scratch.data());
      CHECK(compare::same_bits(y.matrix(), apart[1]));
    }
    SECTION("dx over sum, dy or other") {
      for (const int which : {0, 1, 2}) {
        auto sum = in_order(apart[0]), dy = in_order(trial.dy), other = in_order(trial.other), dbranch = sum;
        auto& dx = which == 0 ? sum : which == 1 ? dy : other;
        kernels::residual_norm_backward<Norm>(sum.fixed(), dy.fixed(), other.fixed(), trial.dropout(true), trial.norm(),
                                              dx.view(), dbranch.view(), ek::Accumulate::no, scratch.data());
        CHECK(compare::same_bits(dx.matrix(), apart[2]));
        CHECK(compare::same_bits(dbranch.matrix(), apart[3]));
      }
    }
    SECTION("the addition alone, and back") {
      kernels::residual_forward(x.fixed(), branch.fixed(), trial.dropout(true), x.view(), scratch.data());
      CHECK(compare::same_bits(x.matrix(), apart[0]));
      auto dx = in_order(apart[2]);
      kernels::residual_backward(dx.fixed(), trial.dropout(true), dx.view(), scratch.data());
      CHECK(compare::same_bits(dx.matrix(), apart[3]));
    }
  }
}

TEST_CASE("The fused kernel leaves out what is not wanted, and adds to gradients", "[residual_norm]") {
  using Norm = kernels::ByRms<double>;
  Trial<Norm> trial(20, 37);
  const auto apart = trial.run(true, Order::row_major, Order::row_major);
  Storage<double> sum(apart[0], Order::row_major), dy(trial.dy, Order::row_major), dx(trial.x, Order::row_major);
  std::vector<double> scratch(static_cast<std::size_t>(kernels::residual_backward_scratch<double>(20, 37)));
  kernels::residual_norm_backward<Norm>(sum.fixed(), dy.fixed(), {}, trial.dropout(true), trial.norm(), dx.view(), {},
                                        ek::Accumulate::yes, scratch.data());
  CHECK(compare::difference(dx.matrix() + trial.other, apart[2]) <= 1e-15);
  CHECK(compare::same_bits(trial.dweight, 2 * apart[4]));
}
