#pragma once

#include <cmath>    // llround
#include <cstdint>  // uint32_t, uint64_t
#include <limits>   // the most a seed can be
#include <string_view>

#include "evenkeel/core/check.hpp"      // fraction
#include "evenkeel/core/error.hpp"      // EVENKEEL_THROW
#include "evenkeel/core/mode.hpp"       // Mode
#include "evenkeel/core/parameter.hpp"  // TrainingState
#include "evenkeel/core/random.hpp"     // stream_of
#include "evenkeel/kernels/mask.hpp"    // MaskKey

namespace evenkeel::detail {

/// Which masks a layer that drops elements draws: what Dropout and the layers with a dropout of their own share. A mask is a
/// function of (seed, stream, number of the call, row, column) alone; see kernels::MaskKey. The threshold is
/// T = round(65536 p), at least 1 if p > 0 and at most 65535 if p < 1, and the scale 65536 / (65536 - T).
class MaskSource {
 public:
  /// Throws std::invalid_argument unless p, called `what` in messages, is in [0, 1].
  MaskSource(double p, std::uint64_t seed, const char* layer, const char* what)
      : layer_{layer}, p_{fraction(p, layer, what)}, threshold_{threshold_of(p_)}, seed_{seed} {}

  /// The number of forward calls that drew a mask: the number that the next one will use.
  std::uint32_t calls() const { return static_cast<std::uint32_t>(next_call_); }
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
      EVENKEEL_THROW(std::invalid_argument, layer_, "::replay: expected call <= ", last_call, ", got ", call);
    next_call_ = call;
  }
  /// Called by the outermost network with the layer's path in it.
  void set_stream(std::string_view path) { stream_ = stream_of(path); }

  /// Where its random numbers are: seed and calls.
  TrainingState training_state() { return {{"seed", {&seed_, 1}, any_seed}, {"call", {&next_call_, 1}, last_call}}; }
  ConstTrainingState training_state() const {
    return {{"seed", {&seed_, 1}, any_seed}, {"call", {&next_call_, 1}, last_call}};
  }

 protected:
  double probability() const { return p_; }
  std::uint32_t threshold() const { return threshold_; }

  /// To be called by each forward. Uses up the number of a call where the mode draws masks.
  void begin_call(Mode mode) {
    masked_ = mode.draws_masks() && threshold_ > 0;
    if (!mode.draws_masks()) return;
    key_ = {seed_, calls(), stream_, threshold_};
    next_call_ = next_call_ >= last_call ? 0 : next_call_ + 1;
  }
  /// Whether the last forward dropped anything, by which mask, and what it multiplied the rest by.
  bool masked() const { return masked_; }
  const kernels::MaskKey& key() const { return key_; }
  template <typename Scalar>
  Scalar scale() const {
    return threshold_ == everything ? Scalar(0)
                                    : static_cast<Scalar>(65536.0 / static_cast<double>(everything - threshold_));
  }

 private:
  static constexpr std::uint32_t everything = 65536;
  static constexpr std::uint32_t last_call = 0xFFFFFFFE;  // the next is RandomStream's
  static constexpr std::uint64_t any_seed = (std::numeric_limits<std::uint64_t>::max)();

  static std::uint32_t threshold_of(double p) {
    if (!(p > 0)) return 0;
    if (!(p < 1)) return everything;
    const auto rounded = static_cast<std::uint32_t>(std::llround(everything * p));
    return rounded < 1 ? 1 : rounded > everything - 1 ? everything - 1 : rounded;
  }

  const char* layer_;            // in messages
  double p_;                     // in [0, 1]
  std::uint32_t threshold_;      // a 16-bit random number below it drops
  std::uint64_t seed_;           // the key
  std::uint32_t stream_ = 0;     // which layer of the network
  std::uint64_t next_call_ = 0;  // the number of the next mask, at most last_call
  bool masked_ = false;          // whether the last forward dropped anything
  kernels::MaskKey key_{};       // of its mask
};

}  // namespace evenkeel::detail
