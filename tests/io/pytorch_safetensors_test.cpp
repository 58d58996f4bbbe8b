// Networks that PyTorch trained, as make_safetensors_figures.py wrote them.

#include <string>

#include "catch.hpp"
#include "core/compare.hpp"
#include "evenkeel/io/safetensors.hpp"
#include "evenkeel/layers/activation.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/network/transformer.hpp"
#include "figures/figures.hpp"
#include "io/bytes.hpp"

namespace ek = evenkeel;

namespace {

const std::string figures_folder = EVENKEEL_FIGURES_DIR "/safetensors/";

/// Loads each file of a network and compares what it computes with what PyTorch did.
template <class Network>
void check_outputs(const std::string& name, Network network) {
  using Scalar = typename Network::Scalar;
  const ek::SafetensorsFile data(figures_folder + name + "_data.safetensors");
  for (const char* suffix : {"", "_f16", "_bf16"}) {
    INFO(name << suffix);
    ek::load_safetensors(figures_folder + name + suffix + ".safetensors", network);
    const double difference =
        compare::difference(network.infer(data.matrix<Scalar>("x")), data.matrix<double>(std::string("y") + suffix));
    CHECK(difference <= (std::is_same_v<Scalar, double> ? 1e-13 : 1e-6));
  }
}

template <typename Scalar>
auto make_mlp() {
  return ek::Sequential{ek::Linear<Scalar>(6, 8),
                        ek::BatchNorm<Scalar>(8),
                        ek::ReLU<Scalar>(),
                        ek::Dropout<Scalar>(0.25),
                        ek::Linear<Scalar>(8, 5, {.bias = false}),
                        ek::LayerNorm<Scalar>(5),
                        ek::GELU<Scalar>(),
                        ek::Linear<Scalar>(5, 3)};
}

template <typename Scalar>
auto make_transformer() {
  return ek::Sequential{ek::Linear<Scalar>(5, 8), ek::TransformerBlock<Scalar>(8, 2, 12, 4, {.dropout = 0.25}),
                        ek::LayerNorm<Scalar>(8), ek::Linear<Scalar>(8, 5)};
}

}  // namespace

TEST_CASE("A network that PyTorch trained gives its outputs here", "[pytorch_safetensors]") {
  check_outputs("mlp", make_mlp<float>());
  check_outputs("mlp", make_mlp<double>());
  check_outputs("transformer", make_transformer<float>());
  check_outputs("transformer", make_transformer<double>());
}

TEST_CASE("What PyTorch's users save is written here byte for byte", "[pytorch_safetensors]") {
  const bytes::Folder folder;
  auto network = make_mlp<float>();
  ek::load_safetensors(figures_folder + "mlp.safetensors", network);
  CHECK(network.layer<1>().batches_tracked() == 200);
  ek::save_safetensors(folder / "mlp", network);
  CHECK(bytes::content_of(folder / "mlp") == bytes::content_of(figures_folder + "mlp.safetensors"));
  ek::save_safetensors(folder / "f16", network, {.type = ek::TensorType::f16});
  CHECK(bytes::content_of(folder / "f16") == bytes::content_of(figures_folder + "mlp_f16.safetensors"));
  ek::save_safetensors(folder / "bf16", network, {.type = ek::TensorType::bf16});
  CHECK(bytes::content_of(folder / "bf16") == bytes::content_of(figures_folder + "mlp_bf16.safetensors"));

  auto transformer = make_transformer<float>();
  ek::load_safetensors(figures_folder + "transformer.safetensors", transformer);
  ek::save_safetensors(folder / "transformer", transformer);
  CHECK(bytes::content_of(folder / "transformer") == bytes::content_of(figures_folder + "transformer.safetensors"));
}
