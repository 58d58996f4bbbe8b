// How fast and how exact is each layer beside PyTorch?
//
//   build/native/bench/peers_torch
//   build/native/bench/peers_torch --benchmark_filter=layer_norm_backward/512x768
//
// float, one thread, the same inputs in the same memory. Ours and theirs are timed in turn: `ratio` is the median of
// ours over theirs. PyTorch's side are the ATen functions that its modules end in, in inference mode, so without
// autograd's records. They return new tensors (their out-variants copy what these return), so malloc is told to hold on
// to memory, and theirs is touched for the first time no oftener than ours. Where there are several ways to the same
// result, the fastest is taken. error/* compares both with long double: the largest error over the largest number of
// the result. PyTorch 1.13 has no RMSNorm (2.4 has): its forward is put together from what there is, without backward.

#include <ATen/core/ivalue.h>  // before all others: clang++ does not take them in C++20 without it

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "bench/support/peers.hpp"
#include "bench/support/program.hpp"

namespace {

using at::Tensor;
using Batch = bench::Batch<float>;
using Results = std::tuple<Tensor, Tensor, Tensor>;

constexpr double epsilon = 1e-5;

Tensor matrix(Batch& batch, Batch::Map& map) { return at::from_blob(map.data(), {batch.rows(), batch.columns()}); }

Tensor vector(Batch::Vector& numbers) { return at::from_blob(numbers.data(), {numbers.size()}); }

/// Results of backward: gradients of input, weight and bias.
class Gradients {
 public:
  const float* dx() const { return std::get<0>(gradients_).data_ptr<float>(); }
  const float* dweight() const { return std::get<1>(gradients_).data_ptr<float>(); }

 protected:
  Results gradients_;
};

class LayerNorm : public Gradients {
 public:
  explicit LayerNorm(Batch& batch)
      : x_{matrix(batch, batch.x)},
        dy_{matrix(batch, batch.dy)},
        weight_{vector(batch.weight)},
        bias_{vector(batch.bias)},
        features_{batch.columns()} {
    forward();
  }

  void forward() { outputs_ = at::native_layer_norm(x_, features_, weight_, bias_, epsilon); }
  void backward() {
    const auto& [y, mean, inverse_deviation] = outputs_;
    gradients_ =
        at::native_layer_norm_backward(dy_, x_, features_, mean, inverse_deviation, weight_, bias_, {true, true, true});
  }

  const float* y() const { return std::get<0>(outputs_).data_ptr<float>(); }

 private:
  Tensor x_, dy_, weight_, bias_;
  std::vector<std::int64_t> features_;
  Results outputs_;  // y, mean, inverse deviation
};

/// Each of these calls goes over memory once.
class RMSNorm {
 public:
  explicit RMSNorm(Batch& batch)
      : x_{matrix(batch, batch.x)}, weight_{vector(batch.weight)}, y_{matrix(batch, batch.y)} {}

  void forward() {
    at::mul_out(y_, x_, x_);
    const Tensor scale = at::mean(y_, 1, true).add_(epsilon).rsqrt_();
    at::mul_out(y_, x_, scale);
    y_.mul_(weight_);
  }

  const float* y() const { return y_.data_ptr<float>(); }

 private:
  Tensor x_, weight_, y_;
};

/// The same numbers as a matrix, or as channels last with a place for each row, which other kernels serve.
class BatchNorm : public Gradients {
 public:
  explicit BatchNorm(Batch& batch, bool training = true)
      : weight_{vector(batch.weight)},
        bias_{vector(batch.bias)},
        running_mean_{at::zeros({batch.columns()})},
        running_variance_{at::ones({batch.columns()})},
        training_{training} {
    const Tensor x = matrix(batch, batch.x), dy = matrix(batch, batch.dy);
    ways_ = {{x, dy, {}}, {places(x), places(dy), {}}};
    forward_ = bench::fastest(ways_, [this](Way& way) { forward(way); });
    if (training) backward_ = bench::fastest(ways_, [this](Way& way) { backward(way); });
  }

  void forward() { forward(ways_[forward_]); }
  void backward() { backward(ways_[backward_]); }

  const float* y() const { return std::get<0>(ways_[forward_].outputs).data_ptr<float>(); }

 private:
  struct Way {
    Tensor x, dy;
    Results outputs;  // y, mean, inverse deviation
  };

  static Tensor places(const Tensor& rows) { return rows.t().unsqueeze(0).unsqueeze(3); }

  void forward(Way& way) {
    way.outputs =
        at::native_batch_norm(way.x, weight_, bias_, running_mean_, running_variance_, training_, 0.1, epsilon);
  }
  void backward(Way& way) {
    const auto& [y, mean, inverse_deviation] = way.outputs;
    gradients_ = at::native_batch_norm_backward(way.dy, way.x, weight_, running_mean_, running_variance_, mean,
                                                inverse_deviation, training_, epsilon, {true, true, true});
  }

  Tensor weight_, bias_, running_mean_, running_variance_;
  bool training_;
  std::vector<Way> ways_;
  std::size_t forward_ = 0, backward_ = 0;
};

/// With mean 0 and variance 1, as after reset.
class BatchNormEval {
 public:
  explicit BatchNormEval(Batch& batch) : layer_(batch, false) {}
  void forward() { layer_.forward(); }

 private:
  BatchNorm layer_;
};

/// As at::dropout does it, which multiplies by numbers, or as at::native_dropout does, which keeps a mask of bytes.
template <class Kind>
class Dropout {
 public:
  explicit Dropout(Batch& batch)
      : x_{matrix(batch, batch.x)},
        dy_{matrix(batch, batch.dy)},
        y_{matrix(batch, batch.y)},
        dx_{matrix(batch, batch.dx)} {
    ways_ = {{&Dropout::forward_by_numbers, &Dropout::backward_by_numbers},
             {&Dropout::forward_by_mask, &Dropout::backward_by_mask}};
    forward_ = bench::fastest(ways_, [this](const Way& way) { (this->*way.forward)(); });
    backward_ = bench::fastest(ways_, [this](const Way& way) { (this->*way.backward)(); });
  }

  void forward() { (this->*ways_[forward_].forward)(); }
  void backward() { (this->*ways_[backward_].backward)(); }

 private:
  struct Way {
    void (Dropout::*forward)();
    void (Dropout::*backward)();
  };

  static constexpr double keep = 1 - Kind::p;

  void forward_by_numbers() {
    noise_ = at::empty_like(x_).bernoulli_(keep).div_(keep);
    at::mul_out(y_, x_, noise_);
  }
  void backward_by_numbers() { at::mul_out(dx_, dy_, noise_); }

  void forward_by_mask() { std::tie(y_, mask_) = at::native_dropout(x_, Kind::p, true); }
  void backward_by_mask() { dx_ = at::native_dropout_backward(dy_, mask_, 1 / keep); }

  Tensor x_, dy_, y_, dx_, noise_, mask_;
  std::vector<Way> ways_;
  std::size_t forward_ = 0, backward_ = 0;
};

/// With the instructions that its kernels are compiled for, which may be fewer than the machine has.
std::string version() {
  const std::string config = at::show_config(), key = "CPU capability usage: ";
  const std::size_t found = config.find(key);
  if (found == std::string::npos) return TORCH_VERSION;
  const std::size_t start = found + key.size();
  return TORCH_VERSION ", " + config.substr(start, config.find('\n', start) - start);
}

/// Freed memory is not given back to the system, to be touched for the first time again and again.
void keep_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace

int main(int argc, char** argv) {
  keep_memory();
  at::set_num_threads(1);
  const c10::InferenceMode inference;
  benchmark::AddCustomContext("pytorch", version());
  using bench::Group;
  bench::add_times<bench::LayerNorm, LayerNorm>();
  bench::add_times<bench::RMSNorm, RMSNorm>();
  bench::add_times<bench::BatchNorm, BatchNorm>();
  bench::add_times<bench::BatchNormEval, BatchNormEval>();
  bench::add_times<bench::DropoutTenth, Dropout<bench::DropoutTenth>>();
  bench::add_times<bench::DropoutHalf, Dropout<bench::DropoutHalf>>();
  bench::add_errors<bench::LayerNorm, LayerNorm>(Group::row, bench::Norm::deviation);
  bench::add_errors<bench::RMSNorm, RMSNorm>(Group::row, bench::Norm::root_mean_square);
  bench::add_errors<bench::BatchNorm, BatchNorm>(Group::column, bench::Norm::deviation);
  return bench::run_program(argc, argv);
}
