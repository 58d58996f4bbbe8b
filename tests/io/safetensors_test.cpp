#include "evenkeel/io/safetensors.hpp"

#include <sys/resource.h>  // setrlimit

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/sgd.hpp"
#include "io/bytes.hpp"
#include "network/own_layers.hpp"
#include "network/same_state.hpp"

namespace ek = evenkeel;
using bytes::operator+;

namespace {

using Names = std::vector<std::string>;

/// A tensor for a test's file, in memory of its own.
struct Made {
  std::string name;
  ek::TensorType type;
  ek::TensorShape shape;
  bytes::Bytes content;
};

ek::SafetensorsFile file_of(const std::vector<Made>& made) {
  std::vector<ek::Tensor> tensors;
  for (const Made& each : made) tensors.push_back({each.name, each.type, each.shape, each.content});
  return ek::SafetensorsFile(ek::safetensors_bytes(tensors), "f");
}

Made f32(const std::string& name, const ek::TensorShape& shape, std::initializer_list<float> numbers) {
  return {name, ek::TensorType::f32, shape, bytes::of(numbers)};
}
Made count(const std::string& name, std::int64_t number) {
  return {name, ek::TensorType::i64, {}, bytes::of({number})};
}

template <class Network>
std::string refused(const std::vector<Made>& made, Network& network, const ek::LoadOptions& options = {}) {
  return error_of([&] { ek::load_safetensors(file_of(made), network, options); });
}

/// Two features in and out: Linear, BatchNorm, Linear, as fc1, bn and fc2.
auto three_layers(std::uint64_t seed = 1) {
  return ek::Sequential{ek::Linear<float>(2, 2, {.seed = seed}), ek::BatchNorm<float>(2),
                        ek::Linear<float>(2, 2, {.seed = seed + 1})};
}
/// What PyTorch keeps of that, with a prefix.
std::vector<Made> three_layers_file(const std::string& prefix = "") {
  return {f32(prefix + "0.weight", {2, 2}, {1, 2, 3, 4}), f32(prefix + "0.bias", {2}, {5, 6}),
          f32(prefix + "1.weight", {2}, {7, 8}),          f32(prefix + "1.bias", {2}, {9, 10}),
          f32(prefix + "1.running_mean", {2}, {11, 12}),  f32(prefix + "1.running_var", {2}, {13, 14}),
          count(prefix + "1.num_batches_tracked", 15),    f32(prefix + "2.weight", {2, 2}, {16, 17, 18, 19}),
          f32(prefix + "2.bias", {2}, {20, 21})};
}
std::vector<Made> without(std::vector<Made> made, const std::string& name) {
  std::erase_if(made, [&](const Made& each) { return each.name == name; });
  return made;
}

/// Shows the parameters of both under the same names.
struct BothNorms {
  using Scalar = float;
  ek::LayerNorm<float> a{2}, b{2};
  ek::Parameters<float> parameters() { return merged(a.parameters(), b.parameters()); }
  ek::Parameters<const float> parameters() const { return merged(a.parameters(), b.parameters()); }
  template <class List>
  static List merged(List list, const List& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }
};

}  // namespace

TEST_CASE("CONV-1: Linear's weight is read as (out, in), a square one too", "[safetensors]") {
  const ek::Matrix<float> x = (ek::Matrix<float>(1, 2) << 1, 10).finished();
  ek::Linear<float> square(2, 2);
  ek::load_safetensors(file_of({f32("weight", {2, 2}, {1, 2, 3, 4}), f32("bias", {2}, {0, 0})}), square);
  CHECK(square.infer(x) == (ek::Matrix<float>(1, 2) << 21, 43).finished());
  ek::Linear<float> wide(2, 3);
  ek::load_safetensors(file_of({f32("weight", {3, 2}, {1, 2, 3, 4, 5, 6}), f32("bias", {3}, {0, 0, 0})}), wide);
  CHECK(wide.infer(x) == (ek::Matrix<float>(1, 3) << 21, 43, 65).finished());
}

TEST_CASE("CONV-2: a tensor of as many elements in another shape is refused", "[safetensors]") {
  ek::Linear<float> linear(2, 4, {.bias = false});
  const ek::Linear<float> linear_before = linear;
  for (const ek::TensorShape& shape : {ek::TensorShape{2, 4}, {8}, {4, 2, 1}, {1, 4, 2}})
    CHECK(refused({f32("weight", shape, {1, 2, 3, 4, 5, 6, 7, 8})}, linear) ==
          "FormatError: f: tensor \"weight\": expected shape (4, 2), got " + ek::detail::shape(shape));
  CHECK(compare::same_values(linear, linear_before));

  ek::LayerNorm<float> norm(4, {.bias = false});
  for (const ek::TensorShape& shape : {ek::TensorShape{2, 2}, {4, 1}, {1, 4}})
    CHECK(refused({f32("weight", shape, {1, 2, 3, 4})}, norm) ==
          "FormatError: f: tensor \"weight\": expected shape (4,), got " + ek::detail::shape(shape));
  ek::Linear<float> to_one(3, 1, {.bias = false});  // a matrix also where it has one row
  CHECK(refused({f32("weight", {3}, {1, 2, 3})}, to_one) ==
        "FormatError: f: tensor \"weight\": expected shape (1, 3), got (3,)");
  ek::load_safetensors(file_of({f32("weight", {1, 3}, {1, 2, 3})}), to_one);
  ek::BatchNorm<float> one(1, {.affine = false});
  CHECK(refused({f32("running_mean", {1}, {0}), f32("running_var", {}, {1}), count("num_batches_tracked", 0)}, one) ==
        "FormatError: f: tensor \"running_var\": expected shape (1,), got ()");
  CHECK(refused({f32("running_mean", {1}, {0}),
                 f32("running_var", {1}, {1}),
                 {"num_batches_tracked", ek::TensorType::i64, {1}, bytes::of<std::int64_t>({0})}},
                one) == "FormatError: f: tensor \"num_batches_tracked\": expected shape (), got (1,)");
}

TEST_CASE("A whole network is read, statistics and the counter of batches included", "[safetensors]") {
  auto net = three_layers();
  const ek::LoadedKeys keys = ek::load_safetensors(file_of(three_layers_file()), net);
  CHECK(keys.missing.empty());
  CHECK(keys.unexpected.empty());
  const auto parameters = net.parameters();
  CHECK(parameters[0].value == (ek::Matrix<float>(2, 2) << 1, 2, 3, 4).finished());
  CHECK(parameters[1].value == (ek::Matrix<float>(1, 2) << 5, 6).finished());
  CHECK(parameters[2].value == (ek::Matrix<float>(1, 2) << 7, 8).finished());
  CHECK(parameters[5].value == (ek::Matrix<float>(1, 2) << 20, 21).finished());
  CHECK(net.layer<1>().running_mean() == Eigen::RowVector2f(11, 12));
  CHECK(net.layer<1>().running_variance() == Eigen::RowVector2f(13, 14));
  CHECK(net.layer<1>().batches_tracked() == 15);
}

TEST_CASE("STA-4: a load writes where the numbers are: earlier views and optimizers see them", "[safetensors]") {
  auto net = three_layers();
  auto parameters = net.parameters();
  const auto buffers = net.buffers();
  ek::SGD<float> optimizer(net, {.learning_rate = 1});
  ek::load_safetensors(file_of(three_layers_file()), net);
  REQUIRE(parameters.size() == 6);
  CHECK(parameters[0].value == (ek::Matrix<float>(2, 2) << 1, 2, 3, 4).finished());
  CHECK(parameters[5].value == (ek::Matrix<float>(1, 2) << 20, 21).finished());
  CHECK(buffers[0].value == Eigen::RowVector2f(11, 12));
  CHECK(*buffers[2].count == 15);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(parameters[i].value.data() == net.parameters()[i].value.data());
    CHECK(parameters[i].gradient.data() == net.parameters()[i].gradient.data());
  }
  parameters[0].gradient.setConstant(0.5F);
  optimizer.step();
  CHECK(net.parameters()[0].value == (ek::Matrix<float>(2, 2) << 0.5F, 1.5F, 2.5F, 3.5F).finished());
}

TEST_CASE("CONV-3: missing and unexpected names are an error when strict, with nothing read", "[safetensors]") {
  auto net = three_layers();
  const auto before = net;
  const std::string begin = "FormatError: f: expected the 9 tensors that are to be loaded; missing:";
  CHECK(refused(without(three_layers_file(), "2.bias"), net) == begin + " \"2.bias\"; unexpected: none");
  auto more = three_layers_file();
  more.push_back(f32("2.running_mean", {2}, {0, 0}));
  more.push_back(f32("2.running_var", {2}, {1, 1}));
  CHECK(refused(more, net) == begin + " none; unexpected: \"2.running_mean\", \"2.running_var\"");
  CHECK(refused(three_layers_file("module."), net) ==
        begin + " \"0.weight\", \"0.bias\", \"1.weight\", \"1.bias\", \"2.weight\", \"2.bias\", \"1.running_mean\", " +
            "\"1.running_var\", \"1.num_batches_tracked\"; unexpected: \"module.0.bias\", \"module.0.weight\", " +
            "\"module.1.bias\", \"module.1.num_batches_tracked\", \"module.1.running_mean\", " +
            "\"module.1.running_var\", \"module.1.weight\", \"module.2.bias\", \"module.2.weight\"; " +
            "all that is missing is there with .prefix = \"module.\"");
  CHECK(refused(without(three_layers_file("module."), "module.2.bias"), net).find("prefix") == std::string::npos);
  CHECK(compare::same_values(net, before));
  CHECK(compare::same_buffers(net, before));

  ek::BatchNorm<float> bare(2, {.affine = false});
  CHECK(refused({f32("weight", {2}, {1, 1}), f32("running_mean", {2}, {0, 0}), f32("running_var", {2}, {1, 1}),
                 count("num_batches_tracked", 0)},
                bare) ==
        "FormatError: f: expected the 3 tensors that are to be loaded; missing: none; unexpected: \"weight\"");
  ek::BatchNorm<float> untracked(2, {.track_running_statistics = false});
  CHECK(refused({f32("weight", {2}, {1, 1}), f32("bias", {2}, {0, 0}), f32("running_mean", {2}, {0, 0})}, untracked) ==
        "FormatError: f: expected the 2 tensors that are to be loaded; missing: none; unexpected: \"running_mean\"");
}

TEST_CASE("CONV-3: a lenient load reads what fits and returns both lists", "[safetensors]") {
  auto net = three_layers();
  const auto before = net;
  auto made = without(three_layers_file(), "2.bias");
  made.push_back(f32("3.bias", {1}, {1}));
  const ek::LoadedKeys keys = ek::load_safetensors(file_of(made), net, {.strict = false});
  CHECK(keys.missing == Names{"2.bias"});
  CHECK(keys.unexpected == Names{"3.bias"});
  CHECK(net.parameters()[0].value(0, 1) == 2);
  CHECK(net.parameters()[5].value == before.parameters()[5].value);

  auto untouched = three_layers();
  const ek::LoadedKeys none = ek::load_safetensors(file_of(three_layers_file("module.")), untouched, {.strict = false});
  CHECK(none.missing.size() == 9);
  CHECK(none.unexpected.size() == 9);
  CHECK(compare::same_values(untouched, before));
  CHECK(compare::same_buffers(untouched, before));
  // Another shape is an error here too.
  CHECK(refused({f32("0.bias", {3}, {1, 2, 3})}, net, {.strict = false}) ==
        "FormatError: f: tensor \"0.bias\": expected shape (2,), got (3,)");
}

TEST_CASE("CONV-3: a prefix chooses the names that begin with it", "[safetensors]") {
  auto net = three_layers();
  auto made = three_layers_file("module.");
  made.push_back(f32("head.weight", {1}, {1}));
  ek::load_safetensors(file_of(made), net, {.prefix = "module."});
  CHECK(net.parameters()[5].value(0, 1) == 21);
  made.push_back(f32("module.x", {1}, {1}));
  CHECK(refused(without(made, "module.0.bias"), net, {.prefix = "module."}) ==
        "FormatError: f: expected the 9 tensors that are to be loaded; missing: \"module.0.bias\"; unexpected: "
        "\"module.x\"");
}

TEST_CASE("Long lists of names are cut in the message, not in the result", "[safetensors]") {
  std::vector<Made> many;
  for (int i = 0; i < 25; ++i) many.push_back(f32("n" + std::to_string(100 + i), {1}, {1}));
  ek::ReLU<float> relu;
  const std::string message = refused(many, relu);
  CHECK(message.find("\"n119\" and 5 more") != std::string::npos);
  CHECK(message.find("\"n120\"") == std::string::npos);
  CHECK(ek::load_safetensors(file_of(many), relu, {.strict = false}).unexpected.size() == 25);
}

TEST_CASE("CONV-4: epsilon is not in a file and stays", "[safetensors]") {
  const auto made = [] {
    return file_of({f32("running_mean", {1}, {0}), f32("running_var", {1}, {1e-3F}), count("num_batches_tracked", 7)});
  }();
  const ek::Matrix<float> x = ek::Matrix<float>::Constant(1, 1, 0.1F);
  ek::BatchNorm<float> pytorch(1, {.affine = false});
  ek::load_safetensors(made, pytorch);
  CHECK(pytorch.infer(x)(0, 0) == Catch::Approx(3.1465839).epsilon(1e-6));
  ek::BatchNorm<float> keras(1, {.epsilon = 1e-3, .momentum = 0.01, .affine = false});
  ek::load_safetensors(made, keras);
  CHECK(keras.infer(x)(0, 0) == Catch::Approx(2.2360680).epsilon(1e-6));
}

TEST_CASE("A load that fails at the last tensor has written none", "[safetensors]") {
  auto net = three_layers();
  const auto before = net;
  const auto with = [](const Made& last) {
    auto made = without(three_layers_file(), last.name);
    made.push_back(last);
    return made;
  };
  const auto check = [&](const Made& last, const std::string& expected) {
    CHECK(refused(with(last), net) == "FormatError: f: tensor \"" + last.name + "\": expected " + expected);
    CHECK(compare::same_values(net, before));
    CHECK(compare::same_buffers(net, before));
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
  check(f32("2.bias", {1}, {1}), "shape (2,), got (1,)");
  check({"2.bias", ek::TensorType::i64, {2}, bytes::of<std::int64_t>({1, 2})}, "type F64, F32, F16 or BF16, got I64");
  check({"2.bias", ek::TensorType::f64, {2}, bytes::of({0.0, -1e300})}, "numbers that a float can hold, got -1e+300");
  check({"1.num_batches_tracked", ek::TensorType::f32, {}, bytes::of({1.0F})}, "type I64, got F32");
  check(count("1.num_batches_tracked", -1), "whole numbers from 0 to 9223372036854775807, got -1");
  check(f32("1.running_var", {2}, {1, -0.5F}), "finite variances >= 0, got -0.5");
  check(f32("1.running_var", {2}, {1, infinity}), "finite variances >= 0, got inf");
  check(f32("1.running_mean", {2}, {0, not_a_number}), "finite statistics, got nan");
}

TEST_CASE("Statistics that were prepared before a load do not undo it", "[safetensors]") {
  auto net = three_layers();
  net.forward(values::random<float>(4, 2, 1), ek::Mode::train_prepared);
  ek::load_safetensors(file_of(three_layers_file()), net);
  net.layer<1>().commit_statistics();
  CHECK(net.layer<1>().running_mean() == Eigen::RowVector2f(11, 12));
}

TEST_CASE("Statistics that are not finite are read where the layer accepts them", "[safetensors]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
  const ek::BatchNormOptions options{.affine = false, .non_finite = ek::NonFinite::accept};
  ek::BatchNorm<float> layer(2, options), other(2, options);
  const auto made = [](float mean, float variance) {
    return std::vector<Made>{f32("running_mean", {2}, {mean, 1}), f32("running_var", {2}, {variance, 1}),
                             count("num_batches_tracked", 3)};
  };
  for (const float variance : {0.0F, not_a_number, infinity}) {
    ek::load_safetensors(file_of(made(not_a_number, variance)), layer);
    CHECK(compare::same_bits(layer.running_variance(), Eigen::RowVector2f(variance, 1)));
    const bytes::Folder folder;
    ek::save_safetensors(folder / "f", layer);
    ek::load_safetensors(folder / "f", other);
    CHECK(compare::same_buffers(other, layer));
  }
  for (const auto& [variance, text] : {std::pair(-1.0F, "-1"), std::pair(-infinity, "-inf")})
    CHECK(refused(made(0, variance), layer) ==
          std::string("FormatError: f: tensor \"running_var\": expected variances >= 0 or NaN, got ") + text);
}

TEST_CASE("What a load would refuse is not written", "[safetensors]") {
  const bytes::Folder folder;
  ek::BatchNorm<float> layer(2, {.affine = false});
  const auto refused_with = [&](std::size_t buffer, auto number) {
    ek::BatchNorm<float> wrong = layer;
    if (buffer == 2)
      *wrong.buffers()[2].count = static_cast<std::int64_t>(number);
    else
      wrong.buffers()[buffer].value(0, 1) = static_cast<float>(number);
    return error_of([&] { ek::save_safetensors(folder / "f", wrong); });
  };
  const std::string begin = "invalid_argument: save_safetensors: expected ";
  CHECK(refused_with(0, std::numeric_limits<float>::quiet_NaN()) ==
        begin + "finite statistics in \"running_mean\", got nan");
  CHECK(refused_with(1, std::numeric_limits<float>::infinity()) ==
        begin + "finite variances >= 0 in \"running_var\", got inf");
  CHECK(refused_with(1, -1) == begin + "finite variances >= 0 in \"running_var\", got -1");
  CHECK(refused_with(2, -1) ==
        begin + "whole numbers from 0 to 9223372036854775807 in \"num_batches_tracked\", got -1");
  CHECK(folder.files() == 0);
}

TEST_CASE("What a layer left out before a load does not count in the average after it", "[safetensors]") {
  const bytes::Folder folder;
  const ek::Matrix<double> x = values::random<double>(5, 3, 1);
  ek::Matrix<double> spoilt = x;
  spoilt(2, 1) = std::numeric_limits<double>::quiet_NaN();
  const auto make = [] {
    return ek::Sequential{ek::ReLU<double>(), ek::BatchNorm<double>(3, {.momentum = std::nullopt})};
  };
  auto saved = make(), loaded = make();
  for (const double factor : {1.0, 2.0}) saved.forward(factor * x, ek::Mode::train);
  for (const std::string prefix : {"", "model."}) {
    ek::save_safetensors(folder / "net", saved, {.prefix = prefix});
    for (int i = 0; i < 5; ++i) loaded.forward(spoilt, ek::Mode::train);
    ek::load_safetensors(folder / "net", loaded, {.prefix = prefix});
    CHECK(loaded.layer<1>().non_finite_statistics() == 0);
    auto other = saved;
    other.forward(3 * x, ek::Mode::train);
    loaded.forward(3 * x, ek::Mode::train);
    CHECK(compare::same_buffers(loaded, other));
  }
}

TEST_CASE("A load that does not read the counter of batches leaves what was left out of it", "[safetensors]") {
  ek::BatchNorm<float> layer(1, {.momentum = std::nullopt, .affine = false});
  layer.forward(ek::Matrix<float>{{1}, {std::numeric_limits<float>::quiet_NaN()}}, ek::Mode::train);
  const std::vector<Made> made{f32("running_mean", {1}, {4}), f32("running_var", {1}, {2})};
  CHECK_FALSE(refused(made, layer).empty());
  CHECK(layer.non_finite_statistics() == 1);
  ek::load_safetensors(file_of(made), layer, {.strict = false});
  CHECK(layer.batches_tracked() == 1);
  CHECK(layer.non_finite_statistics() == 1);
}

TEST_CASE("NaN and infinity are read as parameters", "[safetensors]") {
  ek::LayerNorm<float> norm(2, {.weight = false});
  constexpr float infinity = std::numeric_limits<float>::infinity();
  ek::load_safetensors(file_of({f32("bias", {2}, {std::numeric_limits<float>::quiet_NaN(), -infinity})}), norm);
  CHECK(std::isnan(norm.parameters()[0].value(0, 0)));
  CHECK(norm.parameters()[0].value(0, 1) == -infinity);
}

TEST_CASE("Numbers of every floating type are converted", "[safetensors]") {
  ek::LayerNorm<double> norm(2);
  ek::load_safetensors(file_of({{"weight", ek::TensorType::f16, {2}, bytes::of<std::uint16_t>({0x3555, 0xC100})},
                                {"bias", ek::TensorType::bf16, {2}, bytes::of<std::uint16_t>({0x4049, 0x0001})}}),
                       norm);
  CHECK(norm.parameters()[0].value == (ek::Matrix<double>(1, 2) << 0.333251953125, -2.5).finished());
  CHECK(norm.parameters()[1].value == (ek::Matrix<double>(1, 2) << 3.140625, 9.183549615799121e-41).finished());

  ek::LayerNorm<float> single(2, {.bias = false});
  ek::load_safetensors(file_of({{"weight", ek::TensorType::f64, {2}, bytes::of({0.1, -0.0})}}), single);
  CHECK(compare::same_bits(single.parameters()[0].value, (ek::Matrix<float>(1, 2) << 0.1F, -0.0F).finished()));
  ek::LayerNorm<long double> wide(2, {.bias = false});
  ek::load_safetensors(file_of({{"weight", ek::TensorType::f64, {2}, bytes::of({0.1, 1e300})}}), wide);
  CHECK(wide.parameters()[0].value(0, 0) == static_cast<long double>(0.1));
}

TEMPLATE_TEST_CASE("What is saved is loaded again, to the bit", "[safetensors]", float, double) {
  const bytes::Folder folder;
  for (const ek::Norm norm : {ek::Norm::batch, ek::Norm::layer}) {
    ek::Mlp<TestType> net({5, 7, 3}, {.norm = norm, .dropout = 0.5, .seed = 1});
    net.forward(values::random<TestType>(6, 5, 1), ek::Mode::train);
    ek::save_safetensors(folder / "net.safetensors", net);
    ek::Mlp<TestType> other({5, 7, 3}, {.norm = norm, .dropout = 0.5, .seed = 2});
    ek::load_safetensors(folder / "net.safetensors", other);
    CHECK(compare::same_values(other, net));
    CHECK(compare::same_buffers(other, net));
  }
}

TEMPLATE_TEST_CASE("Networks and layers of halves are saved as the floats that their parameters are", "[safetensors]",
                   Eigen::half, Eigen::bfloat16) {
  const bytes::Folder folder;
  const auto make = [](std::uint64_t seed) {
    return ek::Sequential{ek::Linear<TestType>(5, 7, {.seed = seed}), ek::BatchNorm<TestType>(7), ek::ReLU<TestType>()};
  };
  auto net = make(1), other = make(2);
  net.forward(values::random<float>(6, 5, 1).template cast<TestType>(), ek::Mode::train);
  ek::save_safetensors(folder / "net", net);
  CHECK(ek::SafetensorsFile(folder / "net").at("0.weight").type == ek::TensorType::f32);
  ek::load_safetensors(folder / "net", other);
  CHECK(compare::same_values(other, net));
  CHECK(compare::same_buffers(other, net));

  ek::LayerNorm<TestType> norm(3), same(3);
  norm.parameters()[0].value << 0.1F, 0.2F, 0.3F;
  ek::save_safetensors(folder / "norm", norm, {.type = ek::TensorType::f64});
  ek::load_safetensors(folder / "norm", same);
  CHECK(compare::same_values(same, norm));
}

TEST_CASE("A file has PyTorch's names and shapes", "[safetensors]") {
  const bytes::Folder folder;
  const auto net = three_layers();
  ek::save_safetensors(folder / "net.safetensors", net, {.prefix = "encoder.", .metadata = {{"format", "pt"}}});
  const ek::SafetensorsFile file(folder / "net.safetensors");
  CHECK(file.metadata() == ek::TensorMetadata{{"format", "pt"}});
  CHECK(file.tensors().size() == 9);
  CHECK(file.at("encoder.0.weight").shape == ek::TensorShape{2, 2});
  CHECK(file.at("encoder.0.weight").type == ek::TensorType::f32);
  CHECK(file.matrix<float>("encoder.0.weight") == net.parameters()[0].value);
  CHECK(file.at("encoder.0.bias").shape == ek::TensorShape{2});
  CHECK(file.at("encoder.1.running_var").shape == ek::TensorShape{2});
  CHECK(file.at("encoder.1.num_batches_tracked").shape.empty());
  CHECK(file.at("encoder.1.num_batches_tracked").type == ek::TensorType::i64);
}

TEST_CASE("Files can be written in 16 bits", "[safetensors]") {
  const bytes::Folder folder;
  ek::LayerNorm<float> norm(2);
  norm.parameters()[0].value << 0.2691408770292272F, -2.5F;
  ek::save_safetensors(folder / "bf16", norm, {.type = ek::TensorType::bf16});
  const ek::SafetensorsFile file(folder / "bf16");
  CHECK(file.at("weight").type == ek::TensorType::bf16);
  CHECK(ek::detail::number_at<std::uint16_t>(file.at("weight").bytes, 0) == 0x3E8A);
  ek::LayerNorm<float> other(2);
  ek::load_safetensors(file, other);
  CHECK(other.parameters()[0].value == (ek::Matrix<float>(1, 2) << 0.26953125F, -2.5F).finished());

  norm.parameters()[0].value(0, 1) = 1e6F;
  CHECK(error_of([&] { ek::save_safetensors(folder / "f16", norm, {.type = ek::TensorType::f16}); }) ==
        "invalid_argument: save_safetensors: expected numbers that F16 can hold in \"weight\", got 1000000");
  CHECK(error_of([&] { ek::save_safetensors(folder / "f16", norm, {.type = ek::TensorType::i64}); }) ==
        "invalid_argument: save_safetensors: expected type F64, F32, F16 or BF16, got I64");
  CHECK(folder.files() == 1);
}

TEMPLATE_TEST_CASE("The floats of a network of halves are saved and loaded, to the bit", "[safetensors]", Eigen::half,
                   Eigen::bfloat16) {
  const bytes::Folder folder;
  const auto make = [](std::uint64_t seed) {
    return ek::Sequential{ek::Linear<TestType>(3, 2, {.seed = seed}), ek::BatchNorm<TestType>(2)};
  };
  auto net = make(1), other = make(2);
  net.forward(values::random<float>(5, 3, 1).template cast<TestType>().eval(), ek::Mode::train);
  ek::save_safetensors(folder / "net", net);
  CHECK(ek::SafetensorsFile(folder / "net").at("0.weight").type == ek::TensorType::f32);
  ek::load_safetensors(folder / "net", other);
  CHECK(compare::same_values(other, net));
  CHECK(compare::same_buffers(other, net));
}

TEST_CASE("Layers of one's own are saved and loaded", "[safetensors]") {
  const bytes::Folder folder;
  ek::Sequential net{own::Twice<float>(), ek::Linear<float>(4, 1)};
  ek::save_safetensors(folder / "own", net);
  const auto saved = net;
  for (auto& parameter : net.parameters()) parameter.value.setZero();
  ek::load_safetensors(folder / "own", net);
  CHECK(compare::same_values(net, saved));
}

TEST_CASE("Two parameters of one name are refused in both directions", "[safetensors]") {
  BothNorms both;
  const bytes::Folder folder;
  CHECK(error_of([&] { ek::save_safetensors(folder / "both", both); }) ==
        "invalid_argument: save_safetensors: expected distinct names, got \"weight\" twice");
  CHECK(refused({}, both) == "invalid_argument: load_safetensors: expected distinct names, got \"weight\" twice");
}

TEST_CASE("A file takes the place of an older one, with its permissions and through links", "[safetensors]") {
  const bytes::Folder folder;
  const ek::LayerNorm<float> norm(2);
  ek::save_safetensors(folder / "a", norm);
  const std::string content = bytes::content_of(folder / "a");
  namespace fs = std::filesystem;
  std::ofstream(folder / "b") << "old";
  fs::permissions(folder / "b", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("b", folder / "link");
  ek::save_safetensors(folder / "link", norm);
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(bytes::content_of(folder / "b") == content);
  CHECK(fs::status(folder / "b").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(folder.files() == 3);
}

TEST_CASE("A link to a file that is not there yet makes that file", "[safetensors]") {
  const bytes::Folder folder;
  const ek::LayerNorm<float> norm(2);
  ek::save_safetensors(folder / "plain", norm);
  const std::string content = bytes::content_of(folder / "plain");
  namespace fs = std::filesystem;
  fs::create_directory(folder / "runs");
  fs::create_symlink("runs/new", folder / "near");
  fs::create_symlink(folder / "near", folder / "link");
  ek::save_safetensors(folder / "link", norm);
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(fs::is_symlink(folder / "near"));
  CHECK(fs::is_regular_file(folder / "runs/new"));
  CHECK(bytes::content_of(folder / "runs/new") == content);

  const auto refused_path = [&](const std::string& name) {
    return error_of([&] { ek::save_safetensors(folder / name, norm); });
  };
  const auto message = [&](const std::string& name, const std::string& got) {
    return "FormatError: " + (folder / name).string() + ": expected a file that can be written, got: " + got;
  };
  fs::create_symlink("missing/new", folder / "far");
  CHECK(refused_path("far") == message("far", "No such file or directory"));
  fs::create_symlink("circle", folder / "circle");
  CHECK(refused_path("circle") == message("circle", "Too many levels of symbolic links"));
  CHECK(fs::is_symlink(folder / "circle"));
}

TEST_CASE("A file that cannot be written is a FormatError, and the older one stays whole", "[safetensors]") {
  const bytes::Folder folder;
  const ek::LayerNorm<float> norm(2);
  const auto refused_path = [&](const std::filesystem::path& path) {
    return error_of([&] { ek::save_safetensors(path, norm); });
  };
  const auto message = [](const std::filesystem::path& path, const std::string& got) {
    return "FormatError: " + path.string() + ": expected a file that can be written, got: " + got;
  };
  CHECK(refused_path(folder / "missing/a") == message(folder / "missing/a", "No such file or directory"));
  std::filesystem::create_directory(folder / "directory");
  CHECK(refused_path(folder / "directory") == message(folder / "directory", "a directory"));
  CHECK(refused_path("/dev/null") == message("/dev/null", "what is no regular file"));

  std::ofstream(folder / "a") << "older";
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{10, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string full = refused_path(folder / "a");
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(full == message(folder / "a", "File too large"));
  CHECK(bytes::content_of(folder / "a") == "older");
  CHECK(folder.files() == 2);  // and no half of a new one
}
