// How fast and how exact is each layer beside oneDNN?
//
//   build/native/bench/peers_onednn
//   build/native/bench/peers_onednn --benchmark_filter=batch_norm_forward/512x768
//
// float, one thread, the same inputs in the same memory. Ours and theirs are timed in turn: `ratio` is the median of
// ours over theirs. oneDNN's primitives are made once, outside the timing, on a layout that needs no reorder; for
// BatchNorm the faster of two ways to look at the same numbers. error/* compares both with long double: the largest
// error over the largest number of the result. Written for oneDNN 2.x, which has no RMSNorm (3.x has) and no dropout.

#include <dlfcn.h>

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/support/peers.hpp"
#include "bench/support/program.hpp"

namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Format = memory::format_tag;
using Flags = dnnl::normalization_flags;
using Arguments = std::unordered_map<int, memory>;
using Batch = bench::Batch<float>;
using bench::Index;

constexpr float epsilon = 1e-5f;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

void execute(const dnnl::primitive& primitive, const Arguments& arguments) {
  static dnnl::stream stream(engine());
  primitive.execute(stream, arguments);
  stream.wait();
}

memory::desc vector(Index size) { return {{size}, memory::data_type::f32, Format::x}; }

memory in(const memory::desc& description, float* data) { return {description, engine(), data}; }

/// A batch as a matrix.
memory::desc matrix(const Batch& batch) {
  return {{batch.rows(), batch.columns()}, memory::data_type::f32, Format::nc};
}
/// Channels last, an example of one place for each row.
memory::desc examples(const Batch& batch) {
  return {{batch.rows(), batch.columns(), 1, 1}, memory::data_type::f32, Format::nhwc};
}
/// Channels last, one example with a place for each row.
memory::desc places(const Batch& batch) {
  return {{1, batch.columns(), batch.rows(), 1}, memory::data_type::f32, Format::nhwc};
}

/// LayerNorm or BatchNorm in training. Both have the same arguments.
template <class Forward, class Backward>
class Norm {
 public:
  Norm(Batch& batch, const memory::desc& data)
      : Norm(batch, data,
             typename Forward::primitive_desc({prop_kind::forward_training, data, epsilon, flags}, engine())) {}

  void forward() { execute(forward_, forward_arguments_); }
  void backward() { execute(backward_, backward_arguments_); }

  const float* y() const { return static_cast<float*>(forward_arguments_.at(DNNL_ARG_DST).get_data_handle()); }
  const float* dx() const { return static_cast<float*>(backward_arguments_.at(DNNL_ARG_DIFF_SRC).get_data_handle()); }
  const float* dweight() const { return static_cast<float*>(dweight_.get_data_handle()); }

 private:
  inline static const Flags flags = Flags::use_scale | Flags::use_shift;

  Norm(Batch& batch, const memory::desc& data, const typename Forward::primitive_desc& forward)
      : forward_(forward),
        backward_(
            typename Backward::primitive_desc({prop_kind::backward, data, data, epsilon, flags}, engine(), forward)),
        dweight_(vector(batch.columns()), engine()) {
    const memory x = in(data, batch.x.data());
    const memory weight = in(vector(batch.columns()), batch.weight.data());
    const memory bias = in(vector(batch.columns()), batch.bias.data());
    const memory mean(forward.mean_desc(), engine()), variance(forward.variance_desc(), engine());
    forward_arguments_ = {{DNNL_ARG_SRC, x},        {DNNL_ARG_DST, in(data, batch.y.data())},
                          {DNNL_ARG_MEAN, mean},    {DNNL_ARG_VARIANCE, variance},
                          {DNNL_ARG_SCALE, weight}, {DNNL_ARG_SHIFT, bias}};
    backward_arguments_ = {{DNNL_ARG_SRC, x},
                           {DNNL_ARG_DIFF_DST, in(data, batch.dy.data())},
                           {DNNL_ARG_DIFF_SRC, in(data, batch.dx.data())},
                           {DNNL_ARG_MEAN, mean},
                           {DNNL_ARG_VARIANCE, variance},
                           {DNNL_ARG_SCALE, weight},
                           {DNNL_ARG_SHIFT, bias},
                           {DNNL_ARG_DIFF_SCALE, dweight_},
                           {DNNL_ARG_DIFF_SHIFT, memory(vector(batch.columns()), engine())}};
    this->forward();  // the statistics for backward
  }

  Forward forward_;
  Backward backward_;
  memory dweight_;
  Arguments forward_arguments_, backward_arguments_;
};

class LayerNorm : public Norm<dnnl::layer_normalization_forward, dnnl::layer_normalization_backward> {
 public:
  explicit LayerNorm(Batch& batch) : Norm(batch, matrix(batch)) {}
};

/// The faster way forward and the faster way back.
/// (Plain matrices, nc, are left to code that is slower on every shape here.)
class BatchNorm {
 public:
  explicit BatchNorm(Batch& batch) {
    for (const auto& data : {examples(batch), places(batch)}) ways_.emplace_back(batch, data);
    forward_ = bench::fastest(ways_, [](Way& way) { way.forward(); });
    backward_ = bench::fastest(ways_, [](Way& way) { way.backward(); });
  }

  void forward() { ways_[forward_].forward(); }
  void backward() { ways_[backward_].backward(); }

  const float* y() const { return ways_[forward_].y(); }
  const float* dx() const { return ways_[backward_].dx(); }
  const float* dweight() const { return ways_[backward_].dweight(); }

 private:
  using Way = Norm<dnnl::batch_normalization_forward, dnnl::batch_normalization_backward>;

  std::vector<Way> ways_;
  std::size_t forward_, backward_;
};

/// With mean 0 and variance 1, as after reset.
class BatchNormEval {
 public:
  explicit BatchNormEval(Batch& batch)
      : mean_(Batch::Vector::Zero(batch.columns())), variance_(Batch::Vector::Ones(batch.columns())) {
    for (const auto& data : {examples(batch), places(batch)}) ways_.push_back(way(batch, data));
    forward_ = bench::fastest(ways_, [](const Way& each) { execute(each.primitive, each.arguments); });
  }

  void forward() { execute(ways_[forward_].primitive, ways_[forward_].arguments); }

 private:
  struct Way {
    dnnl::batch_normalization_forward primitive;
    Arguments arguments;
  };

  Way way(Batch& batch, const memory::desc& data) {
    const Flags flags = Flags::use_scale | Flags::use_shift | Flags::use_global_stats;
    const memory::desc channels = vector(batch.columns());
    return {dnnl::batch_normalization_forward({{prop_kind::forward_inference, data, epsilon, flags}, engine()}),
            {{DNNL_ARG_SRC, in(data, batch.x.data())},
             {DNNL_ARG_DST, in(data, batch.y.data())},
             {DNNL_ARG_MEAN, in(channels, mean_.data())},
             {DNNL_ARG_VARIANCE, in(channels, variance_.data())},
             {DNNL_ARG_SCALE, in(channels, batch.weight.data())},
             {DNNL_ARG_SHIFT, in(channels, batch.bias.data())}}};
  }

  Batch::Vector mean_, variance_;
  std::vector<Way> ways_;
  std::size_t forward_;
};

/// oneDNN has no call for the number of its threads: the OpenMP library that it brings is asked by name.
void use_one_thread() {
  if (void* function = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(function)(1);
}

}  // namespace

int main(int argc, char** argv) {
  use_one_thread();
  const dnnl_version_t& version = *dnnl_version();
  benchmark::AddCustomContext("onednn", std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                                            std::to_string(version.patch));
  bench::add_times<bench::LayerNorm, LayerNorm>();
  bench::add_times<bench::BatchNorm, BatchNorm>();
  bench::add_times<bench::BatchNormEval, BatchNormEval>();
  bench::add_errors<bench::LayerNorm, LayerNorm>(bench::Group::row, bench::Norm::deviation);
  bench::add_errors<bench::BatchNorm, BatchNorm>(bench::Group::column, bench::Norm::deviation);
  return bench::run_program(argc, argv);
}
