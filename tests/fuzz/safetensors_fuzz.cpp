// Reads any bytes as a file of tensors, a network's and a checkpoint. What is not in order must be a FormatError that leaves
// everything as it was; what is in order must be the same again when it is written and read.

#include <unistd.h>  // getpid

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/compare.hpp"
#include "evenkeel/io/checkpoint.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/training/adam.hpp"
#include "network/same_state.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace ek = evenkeel;

namespace {

using Bytes = std::vector<std::byte>;

void require(bool condition) {
  if (!condition) std::abort();
}

auto make_net() {
  return ek::Sequential{ek::Linear<float>(3, 2, {.seed = 1}), ek::BatchNorm<float>(2), ek::Dropout<float>(0.5)};
}
using Net = decltype(make_net());

struct Run {
  Net net = make_net();
  ek::AdamW<float> optimizer{net};
  ek::Batches batches{10, 4};
};

std::vector<std::uint64_t> training_state(const Net& net) {
  std::vector<std::uint64_t> numbers;
  for (const auto& each : net.training_state()) numbers.insert(numbers.end(), each.values.begin(), each.values.end());
  return numbers;
}

bool same(const Run& a, const Run& b) {
  const auto moments_of_a = a.optimizer.state().moments, moments_of_b = b.optimizer.state().moments;
  bool result = compare::same_values(a.net, b.net) && compare::same_buffers(a.net, b.net) &&
                training_state(a.net) == training_state(b.net) && a.optimizer.steps() == b.optimizer.steps() &&
                a.batches.taken() == b.batches.taken();
  for (std::size_t i = 0; i < moments_of_a.size(); ++i)
    result = result && compare::same_bits(moments_of_a[i].value, moments_of_b[i].value);
  return result;
}

/// Whether the call throws FormatError.
template <class Call>
bool refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const ek::FormatError& error) {
    require(std::strlen(error.what()) < 10'000);
    return true;
  }
}

void check_rewritten(const ek::SafetensorsFile& file) {
  const ek::SafetensorsFile again(ek::safetensors_bytes(file.tensors(), file.metadata()));
  require(again.metadata() == file.metadata() && again.tensors().size() == file.tensors().size());
  for (const ek::Tensor& tensor : file.tensors()) {
    const ek::Tensor& other = again.at(tensor.name);
    require(tensor.type == other.type && tensor.shape == other.shape &&
            std::equal(tensor.bytes.begin(), tensor.bytes.end(), other.bytes.begin(), other.bytes.end()));
  }
}

/// Every tensor can be asked for as a matrix.
void check_matrices(const ek::SafetensorsFile& file) {
  for (const ek::Tensor& tensor : file.tensors()) {
    require(&file.at(tensor.name) == &tensor);
    refused([&] {
      const ek::Matrix<float> matrix = file.matrix<float>(tensor.name);
      require(matrix.size() * static_cast<ek::Index>(ek::detail::bytes_of(tensor.type)) ==
              static_cast<ek::Index>(tensor.bytes.size()));
    });
  }
}

/// A checkpoint of what is to be read: where mutations start.
const Bytes& checkpoint() {
  static const Bytes bytes = [] {
    const auto path = std::filesystem::temp_directory_path() / ("evenkeel_fuzz_" + std::to_string(getpid()));
    Run run;
    for (auto& parameter : run.net.parameters())
      parameter.value.setConstant(2);  // other numbers than before it is read
    run.net.layer<1>().set_running_statistics(Eigen::RowVector2f(3, 4), Eigen::RowVector2f(5, 6));
    run.net.reseed(7);
    ek::save_checkpoint(path, run.net, run.optimizer, run.batches);
    Bytes content = ek::detail::read_file(path);
    std::filesystem::remove(path);
    return content;
  }();
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  refused([&] {
    const ek::SafetensorsFile file(bytes);
    check_rewritten(file);
    check_matrices(file);
    static const Run before;
    Run run;
    if (refused([&] { ek::load_checkpoint(file, run.net, run.optimizer, run.batches); })) require(same(run, before));
    Run lenient;
    const ek::LoadOptions options{.strict = false, .prefix = "model."};
    if (refused([&] { ek::load_safetensors(file, lenient.net, options); })) require(same(lenient, before));
  });
  return 0;
}

/// Changes bytes somewhere, now and then of the checkpoint, and mostly sets the length to that of the header, without which
/// nothing else is looked at.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned int seed) {
  constexpr std::size_t prefix = sizeof(std::uint64_t);
  if ((size < prefix || seed % 32 == 1) && checkpoint().size() <= most) {
    size = checkpoint().size();
    std::memcpy(data, checkpoint().data(), size);
  }
  size = LLVMFuzzerMutate(data, size, most);
  if (size > prefix && seed % 8 != 0) {
    std::size_t end = size;  // of the header: behind its last brace
    while (end > prefix && data[end - 1] != '}') --end;
    const std::uint64_t length = end - prefix;
    std::memcpy(data, &length, prefix);
  }
  return size;
}
