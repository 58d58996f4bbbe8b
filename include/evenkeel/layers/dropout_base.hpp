#pragma once

#include <cstdint>  // uint64_t

#include "evenkeel/core/buffer.hpp"         // Buffer
#include "evenkeel/kernels/dropout.hpp"     // the arithmetic
#include "evenkeel/layers/layer_base.hpp"   // LayerBase
#include "evenkeel/layers/mask_source.hpp"  // MaskSource

namespace evenkeel {

struct DropoutOptions {
  std::uint64_t seed = 0;  ///< The key of the masks: the same seed in the same place of a network, the same masks.
};

/// What the layers that drop at random share: the probability, the random state, and when a mask is drawn. Where none is (a
/// mode that draws no masks, p = 0) they are the identity, bit for bit. A layer derives from it (DropoutBase<Derived, Scalar>) as it
/// would from LayerBase, and supplies name, output_features, check_input and
///
///     void drop_forward(x, y)      with the mask of key()
///     void drop_backward(dy, dx)   with the same
///
/// Masks   A function of (seed, stream, number of the call, row, column) alone; see kernels::MaskKey. `stream` is
///         stream_of(path), the layer's path in the outermost network, and 0 outside any. p stands for a threshold
///         T = round(65536 p), at least 1 if p > 0 and at most 65535 if p < 1.
template <class Derived, Storable Scalar_>
class DropoutBase : public LayerBase<Derived, Scalar_>, public detail::MaskSource {
 public:
  using Scalar = Scalar_;

  double p() const { return this->probability(); }
  static constexpr int fixed_output_features(int features) { return features; }

 protected:
  DropoutBase(double p, DropoutOptions options) : MaskSource(p, options.seed, Derived::name, "p") {}

 private:
  friend LayerBase<Derived, Scalar>;

  static constexpr bool needs_input() { return false; }

  Derived& self() { return static_cast<Derived&>(*this); }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    this->begin_call(mode);
    if (this->masked())
      self().drop_forward(x, y);
    else
      copy(x, y);
  }
  void run_backward(View<const Scalar>, View<const Scalar> dy, View<Scalar> dx, Accumulate) {
    if (dx.data == nullptr) return;
    if (this->masked())
      self().drop_backward(dy, dx);
    else
      copy(dy, dx);
  }
  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>&) const { copy(x, y); }

  static void copy(View<const Scalar> x, View<Scalar> y) {
    if (x.data != y.data) as_map(y) = as_map(x);
  }
};

namespace detail {

/// A mask kept from forward to backward, in one bit an element.
template <Storable Scalar>
class KeptMask {
 public:
  /// Where the forward from x to y is to keep it.
  std::uint64_t* room(View<const Scalar> x, View<Scalar> y) {
    along_columns_ = kernels::mask_along_columns(x, y);
    return bits_.resize(kernels::mask_words(x.size()));
  }
  /// dx = dy * scale where that forward, whose mask's key this is, kept x, else 0.
  void backward(View<const Scalar> dy, const kernels::MaskKey& key, Arithmetic<Scalar> scale, View<Scalar> dx) const {
    if (kernels::mask_along_columns(dy, dx) == along_columns_)
      kernels::dropout_backward(dy, bits_.data(), scale, dx);
    else
      kernels::dropout_forward(dy, key, scale, dx, nullptr);  // the same mask, in the other order
  }

 private:
  Buffer<std::uint64_t> bits_;
  bool along_columns_ = false;  // how they lie in the buffer
};

}  // namespace detail
}  // namespace evenkeel
