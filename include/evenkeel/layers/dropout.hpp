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

/// Sets each element to zero with probability p, independently, and scales the others so that the mean stays.
///
///     y = x * scale where kept, else 0           scale = 1 / (1 - p), p being rounded to a multiple of 2^-16
///
/// Shapes  input, output and their gradients: (batch, features), any number of features.
/// Modes   train, frozen_statistics, monte_carlo: draw a new mask at every call. eval: the identity, bit for bit; no mask is
///         used up.
/// Masks   A function of (seed, stream, number of the call, row, column) alone; see kernels::MaskKey. `stream` is
///         stream_of(path), the layer's path in the outermost network, and 0 outside any. The threshold is
///         T = round(65536 p), at least 1 if p > 0 and at most 65535 if p < 1, and the scale 65536 / (65536 - T), so the
///         mean is exact. Forward keeps the mask for backward, in one bit an element.
/// Source  Srivastava et al. 2014, section 10, https://jmlr.org/papers/v15/srivastava14a.html; torch.nn.Dropout(p), whose
///         p is not rounded and whose masks are others.
template <Real Scalar_>
class Dropout final : public LayerBase<Dropout<Scalar_>, Scalar_> {
 public:
  using Scalar = Scalar_;
  static constexpr const char* name = "Dropout";

  /// p is the probability that an element is dropped. Throws std::invalid_argument unless p is in [0, 1].
  explicit Dropout(double p = 0.5, DropoutOptions options = {})
      : p_{detail::fraction(p, name, "p")}, threshold_{threshold_of(p_)}, seed_{options.seed} {}

  double p() const { return p_; }
  Index output_features(Index input_features) const { return input_features; }

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
      EVENKEEL_THROW(std::invalid_argument, name, "::replay: expected call <= ", last_call, ", got ", call);
    next_call_ = call;
  }
  /// Called by the outermost network with the layer's path in it.
  void set_stream(std::string_view path) { stream_ = stream_of(path); }

  template <Real U>
  Dropout<U> cast() const {
    Dropout<U> result(p_, {seed_});
    result.stream_ = stream_;
    result.next_call_ = next_call_;
    return result;
  }

  void check_input(Index, Index, Mode, const char*) const {}

 private:
  friend LayerBase<Dropout, Scalar>;
  template <Real>
  friend class Dropout;

  static constexpr std::uint32_t everything = 65536;
  static constexpr std::uint32_t last_call = 0xFFFFFFFE;  // the next is RandomStream's

  static constexpr bool needs_input() { return false; }

  static std::uint32_t threshold_of(double p) {
    if (!(p > 0)) return 0;
    if (!(p < 1)) return everything;
    const auto rounded = static_cast<std::uint32_t>(std::llround(everything * p));
    return rounded < 1 ? 1 : rounded > everything - 1 ? everything - 1 : rounded;
  }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    masked_ = mode.draws_masks() && threshold_ > 0;
    std::uint64_t* const mask = masked_ ? mask_.resize(kernels::mask_words(x.size())) : nullptr;
    if (mode.draws_masks()) {
      key_ = {seed_, next_call_, stream_, threshold_};
      next_call_ = next_call_ >= last_call ? 0 : next_call_ + 1;
    }
    if (!masked_) return copy(x, y);
    along_columns_ = kernels::mask_along_columns(x, y);
    kernels::dropout_forward(x, key_, scale(), y, mask);
  }

  void run_backward(View<const Scalar>, View<const Scalar> dy, View<Scalar> dx, Accumulate) {
    if (dx.data == nullptr) return;
    if (!masked_) return copy(dy, dx);
    if (kernels::mask_along_columns(dy, dx) == along_columns_)
      kernels::dropout_backward(dy, mask_.data(), scale(), dx);
    else
      kernels::dropout_forward(dy, key_, scale(), dx, nullptr);  // the same mask, in the other order
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>&) const { copy(x, y); }

  Scalar scale() const {
    return threshold_ == everything ? Scalar(0)
                                    : static_cast<Scalar>(65536.0 / static_cast<double>(everything - threshold_));
  }

  static void copy(View<const Scalar> x, View<Scalar> y) {
    if (x.data != y.data) as_map(y) = as_map(x);
  }

  double p_;                            // in [0, 1]
  std::uint32_t threshold_;             // a 16-bit random number below it drops
  std::uint64_t seed_;                  // the key
  std::uint32_t stream_ = 0;            // which layer of the network
  std::uint32_t next_call_ = 0;         // the number of the next mask
  bool masked_ = false;                 // whether the last forward dropped anything
  kernels::MaskKey key_{};              // of its mask
  detail::Buffer<std::uint64_t> mask_;  // its mask
  bool along_columns_ = false;          // how that lies in the buffer
};

}  // namespace evenkeel
