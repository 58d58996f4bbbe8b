#pragma once

#include <cmath>    // llround
#include <cstdint>  // uint32_t, uint64_t
#include <string_view>

#include "evenkeel/core/buffer.hpp"        // Buffer
#include "evenkeel/core/check.hpp"         // fraction
#include "evenkeel/core/random.hpp"        // stream_of
#include "evenkeel/kernels/dropout.hpp"    // the arithmetic
#include "evenkeel/layers/layer_base.hpp"  // LayerBase

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
template <class Derived, Real Scalar_>
class DropoutBase : public LayerBase<Derived, Scalar_> {
 public:
  using Scalar = Scalar_;

  double p() const { return p_; }

  /// The number of forward calls that drew a mask: the number that the next one will use.
  std::uint32_t calls() const { return next_call_; }
  std::uint64_t seed() const { return seed_; }

  /// Starts a new sequence of masks.
  void reseed(std::uint64_t seed) {
    seed_ = seed;
    next_call_ = 0;
  }
  /// Makes the next mask that of call number `call`, counted from 0. Throws std::invalid_argument for 2^32 - 1, which is
  /// no call's number.
  void replay(std::uint32_t call) {
    if (call > last_call)
      EVENKEEL_THROW(std::invalid_argument, Derived::name, "::replay: expected call <= ", last_call, ", got ", call);
    next_call_ = call;
  }
  /// Called by the outermost network with the layer's path in it.
  void set_stream(std::string_view path) { stream_ = stream_of(path); }

 protected:
  static constexpr std::uint32_t everything = 65536;

  DropoutBase(double p, DropoutOptions options)
      : p_{detail::fraction(p, Derived::name, "p")}, threshold_{threshold_of(p_)}, seed_{options.seed} {}

  /// Of the last forward's mask.
  const kernels::MaskKey& key() const { return key_; }

  std::uint32_t threshold() const { return threshold_; }

  /// What keeps the mean: the inverse of the share that is kept; 0 where nothing is.
  Scalar mean_scale() const {
    return threshold_ == everything ? Scalar(0)
                                    : static_cast<Scalar>(65536.0 / static_cast<double>(everything - threshold_));
  }

  /// The place in the network and the next mask, from the same layer in another scalar type.
  template <class Other>
  void take_place_of(const Other& other) {
    stream_ = other.stream_;
    next_call_ = other.next_call_;
  }

 private:
  friend LayerBase<Derived, Scalar>;
  template <class, Real>
  friend class DropoutBase;

  static constexpr std::uint32_t last_call = 0xFFFFFFFE;  // the next is RandomStream's

  static constexpr bool needs_input() { return false; }

  static std::uint32_t threshold_of(double p) {
    if (!(p > 0)) return 0;
    if (!(p < 1)) return everything;
    const auto rounded = static_cast<std::uint32_t>(std::llround(everything * p));
    return rounded < 1 ? 1 : rounded > everything - 1 ? everything - 1 : rounded;
  }

  Derived& self() { return static_cast<Derived&>(*this); }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    masked_ = mode.draws_masks() && threshold_ > 0;
    if (mode.draws_masks()) {
      key_ = {seed_, next_call_, stream_, threshold_};
      next_call_ = next_call_ >= last_call ? 0 : next_call_ + 1;
    }
    if (masked_)
      self().drop_forward(x, y);
    else
      copy(x, y);
  }
  void run_backward(View<const Scalar>, View<const Scalar> dy, View<Scalar> dx, Accumulate) {
    if (dx.data == nullptr) return;
    if (masked_)
      self().drop_backward(dy, dx);
    else
      copy(dy, dx);
  }
  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>&) const { copy(x, y); }

  static void copy(View<const Scalar> x, View<Scalar> y) {
    if (x.data != y.data) as_map(y) = as_map(x);
  }

  double p_;                     // in [0, 1]
  std::uint32_t threshold_;      // a 16-bit random number below it drops
  std::uint64_t seed_;           // the key
  std::uint32_t stream_ = 0;     // which layer of the network
  std::uint32_t next_call_ = 0;  // the number of the next mask
  bool masked_ = false;          // whether the last forward dropped anything
  kernels::MaskKey key_{};       // of its mask
};

namespace detail {

/// A mask kept from forward to backward, in one bit an element.
template <Real Scalar>
class KeptMask {
 public:
  /// Where the forward from x to y is to keep it.
  std::uint64_t* room(View<const Scalar> x, View<Scalar> y) {
    along_columns_ = kernels::mask_along_columns(x, y);
    return bits_.resize(kernels::mask_words(x.size()));
  }
  /// dx = dy * scale where that forward, whose mask's key this is, kept x, else 0.
  void backward(View<const Scalar> dy, const kernels::MaskKey& key, Scalar scale, View<Scalar> dx) const {
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
