#pragma once

#include <cmath>    // sqrt
#include <cstdint>  // uint64_t
#include <string>
#include <utility>  // as_const

#include "evenkeel/core/buffer.hpp"     // Buffer
#include "evenkeel/core/check.hpp"      // at_least, not_negative
#include "evenkeel/core/parallel.hpp"   // RowChunks
#include "evenkeel/core/parameter.hpp"  // Parameter
#include "evenkeel/core/random.hpp"     // RandomStream
#include "evenkeel/core/sparse.hpp"     // SparseView
#include "evenkeel/kernels/half_product.hpp"
#include "evenkeel/kernels/moments.hpp"           // add_partial_sums
#include "evenkeel/kernels/product.hpp"           // the arithmetic
#include "evenkeel/kernels/sparse_product.hpp"    // that of sparse input
#include "evenkeel/layers/sparse_layer_base.hpp"  // SparseLayerBase

namespace evenkeel {

/// How a Linear layer's weights start.
class Init {
 public:
  /// Weight and bias uniform in +-1/sqrt(in): torch.nn.Linear's default.
  static const Init uniform;
  /// Weight normal with deviation sqrt(2 / in), bias zero: He et al. 2015, equation 10, https://arxiv.org/abs/1502.01852.
  static const Init he;
  /// Weight normal with this deviation, bias zero. Throws std::invalid_argument unless it is finite and >= 0.
  static Init normal(double deviation) {
    return {Kind::normal, detail::not_negative(deviation, "Init::normal", "standard deviation")};
  }

  /// The next weight, or bias, of a layer with so many inputs.
  double weight(Index in, RandomStream& random) const {
    if (kind_ == Kind::uniform) return bound(in) * (2 * random.uniform() - 1);
    return random.normal() * (kind_ == Kind::he ? std::sqrt(2.0 / static_cast<double>(in)) : deviation_);
  }
  double bias(Index in, RandomStream& random) const {
    return kind_ == Kind::uniform ? bound(in) * (2 * random.uniform() - 1) : 0.0;
  }

 private:
  enum class Kind { uniform, he, normal };
  constexpr Init(Kind kind, double deviation) : kind_{kind}, deviation_{deviation} {}
  static double bound(Index in) { return 1.0 / std::sqrt(static_cast<double>(in)); }

  Kind kind_;
  double deviation_;  // of Kind::normal
};

inline constexpr Init Init::uniform{Init::Kind::uniform, 0};
inline constexpr Init Init::he{Init::Kind::he, 0};

struct LinearOptions {
  bool bias = true;           ///< Whether there is a bias to learn; else it is zero.
  Init init = Init::uniform;  ///< PyTorch's default.
  std::uint64_t seed = 0;     ///< Of the start. Layers of equal seed, path and size start equal: give each its own.
  std::string path = {};      ///< Part of the names of the start's random streams.
};

/// An affine map of each example.
///
///     y = x weight^T + bias
///
/// Shapes  input: (batch, in), dense or sparse (Eigen::SparseMatrix of either order, Maps and blocks of it);
///         output: (batch, out); weight: (out, in); bias: (1, out).
///         A batch of halves is dense.
/// Modes   all compute the same.
/// Start   The weight is drawn row by row from RandomStream(seed, stream_of("weight")), the bias from
///         RandomStream(seed, stream_of("bias")); with a path, from "path.weight" and "path.bias".
/// Before BatchNorm a bias has no effect: `.bias = false`.
/// Source  torch.nn.Linear(in, out). The weights of one input lie together in memory; `value` shows them as (out, in).
template <Storable Scalar_, int In = Eigen::Dynamic, int Out = Eigen::Dynamic>
class Linear final : public SparseLayerBase<Linear<Scalar_, In, Out>, Scalar_> {
 public:
  using Scalar = Scalar_;
  using Number = Arithmetic<Scalar>;  ///< Of weight and bias.
  static constexpr const char* name = "Linear";

  /// Throws std::invalid_argument if in < 1 or out < 1.
  Linear(Index in, Index out, LinearOptions options = {})
      : in_{detail::size_of<In>(in, name, "in")},
        out_{detail::size_of<Out>(out, name, "out")},
        options_{options},
        weight_{"weight", ParameterKind::weight, out_, in_, Number(0), true, detail::Layout::columns_together},
        bias_{"bias", ParameterKind::bias, 1, out_, Number(0), options.bias} {
    RandomStream weights(options.seed, stream_of(path_to("weight")));
    for (Index i = 0; i < out_; ++i)
      for (Index j = 0; j < in_; ++j) weight_.value()(i, j) = static_cast<Number>(options.init.weight(in_, weights));
    if (!options.bias) return;
    RandomStream biases(options.seed, stream_of(path_to("bias")));
    for (Index i = 0; i < out_; ++i) bias_.data()[i] = static_cast<Number>(options.init.bias(in_, biases));
  }
  explicit Linear(LinearOptions options = {}) requires(In != Eigen::Dynamic && Out != Eigen::Dynamic)
      : Linear(In, Out, options) {}

  Index input_features() const { return in_; }
  Index output_features(Index) const { return out_; }
  static constexpr int fixed_output_features(int features) {
    return detail::fixed_features(In, features) == detail::misfit ? detail::misfit : Out;
  }
  static constexpr Index fixed_infer_bytes(int, int features) {
    if (!Half<Scalar> || Out == Eigen::Dynamic) return 0;
    return Workspace<Scalar>::template bytes<Number>(kernels::multiply_halves_scratch(features, Out, 1));
  }

  Parameters<Number> parameters() { return detail::parameter_views<Number>(weight_, bias_); }
  Parameters<const Number> parameters() const { return detail::parameter_views<const Number>(weight_, bias_); }

  template <Storable U>
  Linear<U, In, Out> cast() const {
    Linear<U, In, Out> result(in_, out_, options_);
    result.weight_ = weight_.template cast<Arithmetic<U>>();
    result.bias_ = bias_.template cast<Arithmetic<U>>();
    return result;
  }

  void check_input(Index rows, Index columns, Mode, const char* function) const {
    detail::check_columns(name, function, in_, rows, columns);
  }

 private:
  friend LayerBase<Linear, Scalar>;
  friend SparseLayerBase<Linear, Scalar>;
  template <Storable, int, int>
  friend class Linear;

  static constexpr bool needs_input() { return true; }

  std::string path_to(const char* parameter) const {
    return options_.path.empty() ? parameter : options_.path + "." + parameter;
  }

  /// X is View<const Scalar> or SparseView<Scalar>.
  template <class X>
  void multiply(X x, View<Scalar> y) const requires Real<Scalar> {
    kernels::fill_rows(y, bias_.data());
    kernels::multiply(x, weight_.value().transposed(), y, kernels::Product::add);
  }

  // Templates, since clang 14 instantiates constrained members of a class that is instantiated explicitly.
  template <Half Stored = Scalar>
  void multiply_halves(View<const Stored> x, View<Stored> y, Number* scratch) const {
    kernels::multiply_halves(x, weight_.value().transposed(), bias_.data(), y, scratch);
  }

  template <class X>
  void run_forward(X x, View<Scalar> y, Mode) {
    if constexpr (Half<Scalar>)
      multiply_halves(x, y, scratch_.resize(kernels::multiply_halves_scratch(in_, out_)));
    else
      multiply(x, y);
  }

  template <class X>
  void run_backward(X x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    const auto product = accumulate == Accumulate::no ? kernels::Product::set : kernels::Product::add;
    Wide<Scalar>* sums = bias_.present() ? bias_sums_.resize(out_) : nullptr;
    if constexpr (Half<Scalar>) {
      Number* scratch = scratch_.resize(kernels::multiply_transposed_halves_scratch(in_, out_));
      kernels::multiply_transposed_halves(x, dy, weight_.gradient().transposed(), product, sums, scratch);
    } else {
      kernels::multiply_transposed(x, dy, weight_.gradient().transposed(), product);
      if (bias_.present()) kernels::column_sums(dy, sums);
    }
    if (bias_.present()) kernels::add_partial_sums(sums, 1, out_, out_, accumulate, bias_.gradient().data);
    if (dx.data != nullptr) multiply_back(dy, dx);
  }

  void multiply_back(View<const Scalar> dy, View<Scalar> dx) {
    const View<const Number> weight = std::as_const(weight_).value();
    if constexpr (Half<Scalar>) {
      Number* scratch = scratch_.resize(kernels::multiply_halves_scratch(out_, in_));
      kernels::multiply_halves(dy, weight, nullptr, dx, scratch);
    } else {
      const bool apart = !overlap(dy, View<const Scalar>(dx));
      const View<Scalar> target = apart ? dx : scratch_.matrix(dx.rows, dx.columns);
      kernels::multiply(dy, weight, target, kernels::Product::set);
      if (!apart) as_map(dx) = as_map(target);
    }
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    typename Workspace<Scalar>::Frame frame(workspace);
    if constexpr (Half<Scalar>) {
      const Index workers = x.rows > kernels::detail::product_rows ? most_workers() : 1;
      const Index needed = kernels::multiply_halves_scratch(in_, out_, workers);
      multiply_halves(x, y, frame.template take_array<Number>(needed));
    } else {
      if (!overlap(x, View<const Scalar>(y))) return multiply(x, y);
      const View<Scalar> copy = frame.take(x.rows, x.columns);
      as_map(copy) = as_map(x);
      multiply(View<const Scalar>(copy), y);
    }
  }
  template <Real Plain = Scalar>
  void run_infer(SparseView<Plain> x, View<Scalar> y, Workspace<Scalar>&) const {
    multiply(x, y);
  }

  Index in_, out_;                          // >= 1
  LinearOptions options_;                   // as given
  detail::Parameter<Number> weight_;        // (out, in), the weights of one input together
  detail::Parameter<Number> bias_;          // (1, out)
  detail::Buffer<Wide<Scalar>> bias_sums_;  // (out), of the last backward
  detail::Buffer<Number> scratch_;          // (batch, in), where dx overlaps dy; some rows of halves as floats
};

}  // namespace evenkeel
