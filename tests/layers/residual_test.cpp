// Residual and PreNormStack: that they are their parts, the masks, names, and what they say of what does not fit.

#include "evenkeel/layers/residual.hpp"

#include <string>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/network/transformer.hpp"
#include "network/own_layers.hpp"

namespace ek = evenkeel;
using compare::same_bits;
using ek::Index;

namespace {

constexpr Index batch = 11, features = 37;

template <typename Scalar>
auto make_branch(std::uint64_t seed) {
  return ek::sequential(ek::Linear<Scalar>(features, 9, {.seed = seed}), ek::Tanh<Scalar>(),
                        ek::Linear<Scalar>(9, features, {.seed = seed + 1}));
}

/// The norm with parameters that are anything but ones and zeros.
template <class Norm>
Norm make_norm(std::uint32_t seed) {
  Norm norm(features);
  for (auto& parameter : norm.parameters())
    parameter.value = values::positive<typename Norm::Scalar>(1, features, ++seed);
  return norm;
}

template <typename Scalar>
struct Data {
  ek::Matrix<Scalar> x = values::random<Scalar>(batch, features, 1), dy = values::random<Scalar>(batch, features, 2);
};

/// All gradients of parameters, one behind another.
template <class Layer>
std::vector<ek::Matrix<typename Layer::Scalar>> gradients(Layer& layer) {
  std::vector<ek::Matrix<typename Layer::Scalar>> all;
  for (const auto& parameter : layer.parameters()) all.emplace_back(parameter.gradient);
  return all;
}

/// A layer as others see it that know nothing of its rows: what any norm layer is to Residual.
template <class Layer>
class Plain {
 public:
  using Scalar = typename Layer::Scalar;

  explicit Plain(Layer layer) : layer_{layer} {}
  template <class X, class Y>
  void forward(const X& x, Y&& y, ek::Mode mode) {
    layer_.forward(x, y, mode);
  }
  template <class X, class DY, class DX>
  void backward(const X& x, const DY& dy, DX&& dx, ek::Accumulate accumulate = ek::Accumulate::no) {
    layer_.backward(x, dy, dx, accumulate);
  }
  template <class X, class Y>
  void infer(const X& x, Y&& y, ek::Workspace<Scalar>& workspace) const {
    layer_.infer(x, y, workspace);
  }
  Index output_features(Index columns) const { return layer_.output_features(columns); }
  auto parameters() { return layer_.parameters(); }
  auto parameters() const { return layer_.parameters(); }

 private:
  Layer layer_;
};

/// The identity, with parameters, whose backward cannot add.
struct Once : own::Twice<double> {
  static constexpr const char* name = "Once";
  Index output_features(Index columns) const { return columns; }
  template <class X, class Y>
  void forward(const X& x, Y&& y, ek::Mode) {
    y = x;
  }
  template <class X, class DY, class DX>
  void backward(const X&, const DY& dy, DX&& dx) {
    dx = dy;
  }
  template <class X, class Y>
  void infer(const X& x, Y&& y, ek::Workspace<double>&) const {
    y = x;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("Residual is its norm, branch, dropout and addition one by one", "[residual]", ek::LayerNorm<double>,
                   ek::LayerNorm<float>, ek::RMSNorm<double>, ek::RMSNorm<float>) {
  using Scalar = typename TestType::Scalar;
  using Matrix = ek::Matrix<Scalar>;
  const double tolerance = 8 * compare::epsilon<Scalar>;
  const Data<Scalar> data;
  for (const auto place : {ek::NormPlace::before, ek::NormPlace::after})
    for (const ek::Mode mode : {ek::Mode::train, ek::Mode::eval}) {
      INFO((place == ek::NormPlace::before ? "before" : "after") << (mode == ek::Mode::train ? ", train" : ", eval"));
      auto norm = make_norm<TestType>(10);
      auto branch = make_branch<Scalar>(3);
      ek::Dropout<Scalar> dropout(0.4, {.seed = 5});
      dropout.set_stream("dropout");
      ek::Residual block(norm, branch, {.norm = place, .dropout = 0.4, .seed = 5});
      for (int call = 0; call < 2; ++call) {  // each draws a mask of its own
        Matrix y, dx;
        if (place == ek::NormPlace::before) {
          y = data.x + dropout.forward(branch.forward(norm.forward(data.x, mode), mode), mode);
          dx = data.dy + norm.backward(branch.backward(dropout.backward(data.dy)));
        } else {
          y = norm.forward(Matrix(data.x + dropout.forward(branch.forward(data.x, mode), mode)), mode);
          const Matrix on_sum = norm.backward(data.dy);
          dx = on_sum + branch.backward(dropout.backward(on_sum));
        }
        Matrix given_y(batch, features), given_dx(batch, features);
        block.forward(data.x, given_y, mode);
        CHECK(compare::difference(given_y, y) <= tolerance);
        block.backward(data.x, data.dy, given_dx);
        CHECK(compare::difference(given_dx, dx) <= tolerance);
        auto expected = gradients(branch);
        for (const auto& gradient : gradients(norm)) expected.push_back(gradient);
        const auto given = gradients(block);
        REQUIRE(given.size() == expected.size());
        for (std::size_t i = 0; i < given.size(); ++i)
          CHECK(compare::difference(given[i], expected[i]) <= 4 * tolerance);
        if (mode == ek::Mode::eval) CHECK(same_bits(block.infer(data.x), given_y));
      }
    }
}

TEMPLATE_TEST_CASE("PreNormStack is as many Residual and a norm", "[residual]", ek::LayerNorm<double>,
                   ek::RMSNorm<float>) {
  using Scalar = typename TestType::Scalar;
  const double tolerance = 32 * compare::epsilon<Scalar>;
  const Data<Scalar> data;
  const auto norm = make_norm<TestType>(10);
  const auto one = make_branch<Scalar>(3), two = make_branch<Scalar>(5);
  for (const ek::Mode mode : {ek::Mode::train, ek::Mode::eval}) {
    ek::PreNormStack stack(norm, {.dropout = 0.4, .seed = 5}, one, ek::GELU<Scalar>(), two);
    ek::Residual first(norm, one, {.dropout = 0.4, .seed = 5});
    ek::Residual second(norm, ek::GELU<Scalar>(), {.dropout = 0.4, .seed = 5});
    ek::Residual third(norm, two, {.dropout = 0.4, .seed = 5});
    first.set_stream("0");
    second.set_stream("1");
    third.set_stream("2");
    auto last = norm;
    const ek::Matrix<Scalar> y =
        last.forward(third.forward(second.forward(first.forward(data.x, mode), mode), mode), mode);
    CHECK(compare::difference(stack.forward(data.x, mode), y) <= tolerance);
    const ek::Matrix<Scalar> dx = first.backward(second.backward(third.backward(last.backward(data.dy))));
    CHECK(compare::difference(stack.backward(data.dy), dx) <= tolerance);

    std::vector<ek::Matrix<Scalar>> expected;
    const auto add = [&](auto& layer, std::size_t begin, std::size_t end) {
      const auto all = gradients(layer);
      for (std::size_t i = begin; i < (end == 0 ? all.size() : end); ++i) expected.push_back(all[i]);
    };
    add(first, 0, 4), add(third, 0, 4);  // the branches, then the norms
    add(first, 4, 0), add(second, 0, 0), add(third, 4, 0), add(last, 0, 0);
    const auto given = gradients(stack);
    REQUIRE(given.size() == expected.size());
    for (std::size_t i = 0; i < given.size(); ++i) CHECK(compare::difference(given[i], expected[i]) <= 4 * tolerance);
    if (mode == ek::Mode::eval) CHECK(same_bits(stack.infer(data.x), stack.forward(data.x, mode)));
  }
}

TEST_CASE("A norm that no kernel fuses gives the same", "[residual]") {
  const Data<double> data;
  const auto norm = make_norm<ek::LayerNorm<double>>(10);
  const auto branch = make_branch<double>(3);
  const auto check = [&](auto fused, auto plain) {
    for (const ek::Mode mode : {ek::Mode::train, ek::Mode::eval}) {
      CHECK(same_bits(plain.forward(data.x, mode), fused.forward(data.x, mode)));
      CHECK(same_bits(plain.backward(data.dy), fused.backward(data.dy)));
      plain.backward_parameters(data.x, data.dy);
      fused.backward_parameters(data.x, data.dy, ek::Accumulate::no);
      CHECK(gradients(plain) == gradients(fused));
      CHECK(same_bits(plain.infer(data.x), fused.infer(data.x)));
    }
  };
  for (const auto place : {ek::NormPlace::before, ek::NormPlace::after}) {
    const ek::ResidualOptions options{.norm = place, .dropout = 0.4};
    check(ek::Residual(norm, branch, options), ek::Residual(Plain(norm), branch, options));
  }
  check(ek::PreNormStack(norm, {.dropout = 0.4}, branch, ek::Tanh<double>()),
        ek::PreNormStack(Plain(norm), {.dropout = 0.4}, branch, ek::Tanh<double>()));
}

TEST_CASE("The masks of a Residual are Dropout's in the place \"dropout\", to the bit", "[residual]") {
  const Data<float> data;
  const auto kept = [&](const std::string& path, auto& block) {
    ek::Dropout<float> dropout(0.4, {.seed = 5});
    dropout.set_stream(path);
    const auto mask = dropout.forward(ek::Matrix<float>::Ones(batch, features), ek::Mode::train);
    const auto& y = block.forward(data.x, ek::Mode::train);
    Index wrong = 0;  // a dropped place has x itself
    for (Index i = 0; i < y.size(); ++i) wrong += (y.data()[i] == data.x.data()[i]) != (mask.data()[i] == 0);
    return wrong;
  };
  ek::Residual block(ek::LayerNorm<float>(features), make_branch<float>(3), {.dropout = 0.4, .seed = 5});
  CHECK(kept("dropout", block) == 0);
  auto outer = ek::sequential(block);
  outer.replay(0);
  CHECK(kept("0.dropout", outer) == 0);
  outer.reseed(6);
  CHECK(kept("0.dropout", outer) > 0);
  outer.reseed(5);
  CHECK(kept("0.dropout", outer) == 0);
  CHECK(kept("0.dropout", outer) > 0);  // the next call
}

TEST_CASE("Residual and PreNormStack pass the gradient check with masks on", "[residual]") {
  const auto passes = [](const auto& layer) {
    const auto report =
        ek::check_gradients(layer, values::random<double>(5, features, 7), ek::Mode::train, {.tolerance = 1e-8});
    INFO(report);
    CHECK(report);
  };
  for (const auto place : {ek::NormPlace::before, ek::NormPlace::after}) {
    const ek::ResidualOptions options{.norm = place, .dropout = 0.3, .seed = 2};
    passes(ek::Residual(make_norm<ek::LayerNorm<double>>(1), make_branch<double>(3), options));
    passes(ek::Residual(make_norm<ek::BatchNorm<double>>(1), make_branch<double>(3), options));
  }
  passes(ek::PreNormStack(make_norm<ek::RMSNorm<double>>(1), {.dropout = 0.3}, make_branch<double>(3),
                          ek::SiLU<double>()));
}

TEST_CASE("Parameters and running statistics are named by their places", "[residual]") {
  const auto names = [](auto views) {
    std::string all;
    for (const auto& view : views) all += view.name + " ";
    return all;
  };
  const ek::Residual block(ek::BatchNorm<float>(features), make_branch<float>(1));
  CHECK(names(block.parameters()) ==
        "branch.0.weight branch.0.bias branch.2.weight branch.2.bias norm.weight norm.bias ");
  CHECK(names(block.buffers()) == "norm.running_mean norm.running_var norm.num_batches_tracked ");
  ek::PreNormStack stack(ek::RMSNorm<float>(features), {}, ek::Linear<float>(features, features), ek::ReLU<float>());
  CHECK(names(stack.parameters()) == "0.branch.weight 0.branch.bias 0.norm.weight 1.norm.weight norm.weight ");
  CHECK(names(ek::sequential(ek::ReLU<float>(), stack).parameters()).find("1.0.branch.weight") == 0);
}

TEST_CASE("The state that training goes on from is that of all parts", "[residual]") {
  const Data<double> data;
  ek::Residual block(ek::BatchNorm<double>(features), ek::sequential(ek::Dropout<double>(0.5), ek::Tanh<double>()),
                     {.dropout = 0.5, .seed = 3});
  std::string names;
  for (const auto& view : block.training_state()) names += view.name + " ";
  CHECK(names == "branch.0.seed branch.0.call norm.non_finite dropout.seed dropout.call ");

  ek::Residual other = block;
  block.forward(data.x, ek::Mode::train);
  for (std::size_t k = 0; k < block.training_state().size(); ++k)
    for (std::size_t i = 0; i < block.training_state()[k].values.size(); ++i)
      other.training_state()[k].values[i] = block.training_state()[k].values[i];
  CHECK(same_bits(other.forward(data.x, ek::Mode::train), block.forward(data.x, ek::Mode::train)));
}

TEST_CASE("Statistics that the parts prepare are committed or discarded together", "[residual]") {
  const Data<double> data;
  ek::Residual block{ek::BatchNorm<double>(features), ek::BatchNorm<double>(features)};
  ek::Residual moved = block;
  moved.forward(data.x, ek::Mode::train);
  block.forward(data.x, ek::Mode::train_prepared);
  block.discard_statistics();
  block.commit_statistics();
  CHECK(block.buffers()[0].value.isZero(0));
  block.forward(data.x, ek::Mode::train_prepared);
  block.commit_statistics();
  REQUIRE(block.buffers().size() == 6);
  for (const std::size_t k : {0u, 1u, 3u, 4u}) CHECK(same_bits(block.buffers()[k].value, moved.buffers()[k].value));
}

TEST_CASE("A layer of one's own can be the branch", "[residual]") {
  const Data<double> data;
  std::string noted;
  ek::Residual block{ek::LayerNorm<double>(features), own::NotesPath<double>(noted)};
  CHECK(noted == "branch");
  auto net = ek::sequential(ek::ReLU<double>(), block);
  CHECK(noted == "1.branch");
  ek::LayerNorm<double> norm(features);
  CHECK(same_bits(block.forward(data.x, ek::Mode::train),
                  ek::Matrix<double>((norm.forward(data.x, ek::Mode::train).array() + 1).matrix() + data.x)));
  CHECK(compare::difference(block.backward(data.dy), data.dy + norm.backward(data.dy)) <= 1e-14);
}

TEST_CASE("cast keeps parameters, and which masks come next", "[residual]") {
  const auto check = [](auto layer) {
    const Data<float> data;
    layer.forward(data.x, ek::Mode::train);
    layer.reseed(8);
    layer.forward(data.x, ek::Mode::train);
    auto wide = layer.template cast<double>();
    const auto& y = wide.forward(data.x.template cast<double>(), ek::Mode::train);
    CHECK(compare::difference(layer.forward(data.x, ek::Mode::train), y) <= 32 * compare::epsilon<float>);
  };
  const auto norm = make_norm<ek::LayerNorm<float>>(1);
  check(ek::Residual(norm, make_branch<float>(3), {.norm = ek::NormPlace::after, .dropout = 0.5, .seed = 4}));
  check(ek::PreNormStack(norm, {.dropout = 0.5}, make_branch<float>(3), ek::Tanh<float>()));
}

TEST_CASE("The cast of a part of a network draws the masks that the part draws", "[residual]") {
  const Data<double> data;
  const auto check = [&](auto part) {
    auto twin = part.template cast<double>();
    CHECK(same_bits(part.forward(data.x, ek::Mode::train), twin.forward(data.x, ek::Mode::train)));
    CHECK(ek::check_gradients(part, data.x, ek::Mode::train, {.directions = 3}));
  };
  const ek::LayerNorm<double> norm(features);
  const auto branch = ek::sequential(ek::Linear<double>(features, features, {.seed = 1}), ek::Dropout<double>(0.5));
  const ek::TransformerBlock<double> block(features, 1, 3, 1, {.dropout = 0.5, .seed = 1});
  const ek::Sequential net{branch, ek::Residual(norm, branch, {.dropout = 0.5}),
                           ek::PreNormStack(norm, {.dropout = 0.5}, branch), block,
                           ek::Mlp<double>({features, 7, features}, {.dropout = 0.5})};
  check(net.layer<0>());
  check(net.layer<1>());
  check(net.layer<2>());
  check(net.layer<3>());
  check(net.layer<4>());
  check(net);
}

TEST_CASE("Residual says what does not fit", "[residual]") {
  using Norm = ek::LayerNorm<float>;
  CHECK(error_of([] { ek::Residual(Norm(8), ek::Linear<float>(8, 4)); }) ==
        "ShapeError: Residual: expected branch (Linear) to give the 8 features that it is added to, got 4");
  CHECK(error_of([] { ek::Residual(Norm(8), ek::Linear<float>(4, 8)); }) ==
        "ShapeError: Residual: expected branch (Linear) to take 8 features, got one for 4");
  CHECK(error_of([] { ek::PreNormStack(Norm(8), {}, ek::ReLU<float>(), ek::Linear<float>(8, 4)); }) ==
        "ShapeError: PreNormStack: expected 1.branch (Linear) to give the 8 features that it is added to, got 4");
  CHECK(error_of([] { ek::Residual(Norm(8), ek::ReLU<float>(), {.dropout = 1.5}); }) ==
        "invalid_argument: Residual: expected dropout in [0, 1], got 1.5");
  CHECK(error_of([] {
          ek::Residual(Norm(8), ek::ReLU<float>()).forward(ek::Matrix<float>::Zero(2, 7), ek::Mode::train);
        }) == "ShapeError: Residual::forward: expected input of shape (batch, 8), got (2, 7)");
}

TEST_CASE("A branch that cannot add to its gradients is an error with Accumulate::yes", "[residual]") {
  const Data<double> data;
  ek::Residual block{ek::LayerNorm<double>(features), Once{}};
  block.forward(data.x, ek::Mode::train);
  block.backward(data.dy);
  CHECK(error_of([&] { block.backward(data.dy, ek::Accumulate::yes); }) ==
        "UsageError: Residual::backward: expected branch (Once) to take Accumulate::yes, got one without "
        "backward(x, dy, dx, accumulate)");
}
