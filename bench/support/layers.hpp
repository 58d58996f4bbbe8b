#pragma once

// The layers that are measured, by name.

#include "bench/support/batch.hpp"
#include "evenkeel/core/mode.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/rms_norm.hpp"

namespace bench {

// Each says what its benchmarks are called, in which mode it runs, what it must move at least, and how the layer is made for
// a number of features.

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  static constexpr evenkeel::Mode mode = evenkeel::Mode::train;
  static constexpr Limit forward_limit = Limit::copy, backward_limit = Limit::read_two_write_one;
  template <typename Scalar>
  static auto make(Index features) {
    return evenkeel::LayerNorm<Scalar>(features);
  }
};

struct RMSNorm {
  static constexpr const char* name = "rms_norm";
  static constexpr evenkeel::Mode mode = evenkeel::Mode::train;
  static constexpr Limit forward_limit = Limit::copy, backward_limit = Limit::read_two_write_one;
  template <typename Scalar>
  static auto make(Index features) {
    return evenkeel::RMSNorm<Scalar>(features);
  }
};

struct BatchNorm {
  static constexpr const char* name = "batch_norm";
  static constexpr evenkeel::Mode mode = evenkeel::Mode::train;
  static constexpr Limit forward_limit = Limit::read_and_copy, backward_limit = Limit::read_two_and_read_two_write_one;
  template <typename Scalar>
  static auto make(Index features) {
    return evenkeel::BatchNorm<Scalar>(features);
  }
};

struct BatchNormEval : BatchNorm {
  static constexpr const char* name = "batch_norm_eval";
  static constexpr evenkeel::Mode mode = evenkeel::Mode::eval;
  static constexpr Limit forward_limit = Limit::copy;
};

struct DropoutHalf {
  static constexpr const char* name = "dropout_0.5";
  static constexpr double p = 0.5;
  static constexpr evenkeel::Mode mode = evenkeel::Mode::train;
  static constexpr Limit forward_limit = Limit::copy, backward_limit = Limit::copy;
  template <typename Scalar>
  static auto make(Index) {
    return evenkeel::Dropout<Scalar>(p);
  }
};

struct DropoutTenth {
  static constexpr const char* name = "dropout_0.1";
  static constexpr double p = 0.1;
  static constexpr evenkeel::Mode mode = evenkeel::Mode::train;
  static constexpr Limit forward_limit = Limit::copy, backward_limit = Limit::copy;
  template <typename Scalar>
  static auto make(Index) {
    return evenkeel::Dropout<Scalar>(p);
  }
};

/// Calls visit(Kind()) with each.
template <class Visit>
void for_each_layer(const Visit& visit) {
  visit(LayerNorm());
  visit(RMSNorm());
  visit(BatchNorm());
  visit(BatchNormEval());
  visit(DropoutTenth());
  visit(DropoutHalf());
}

/// Whether a training step goes back through it.
template <class Kind>
inline constexpr bool has_backward = Kind::mode == evenkeel::Mode::train;

/// One of the above on a batch, after a first forward.
template <class Kind, class B>
class Ours {
 public:
  using Scalar = typename B::Scalar;
  using Layer = decltype(Kind::template make<Scalar>(Index{1}));

  explicit Ours(B& batch) : batch_{batch}, layer_{Kind::template make<Scalar>(batch.columns())} {
    if constexpr (requires { layer_.parameters(); })
      for (auto& parameter : layer_.parameters())
        parameter.flat_value() = parameter.kind == evenkeel::ParameterKind::norm_scale ? batch.weight : batch.bias;
    forward();
  }

  void forward() { layer_.forward(batch_.x, batch_.y, Kind::mode); }
  void backward() { layer_.backward(batch_.x, batch_.dy, batch_.dx); }

  Layer& layer() { return layer_; }

 private:
  B& batch_;
  Layer layer_;
};

}  // namespace bench
