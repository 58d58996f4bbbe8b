#pragma once

#include <array>
#include <cmath>    // log, cos, sin, sqrt
#include <cstddef>  // size_t
#include <cstdint>  // uint32_t, uint64_t
#include <string_view>
#include <utility>  // swap

#include "evenkeel/core/types.hpp"  // Index

/// Random numbers that are a function of (seed, place): no engine, no hidden state. Bits, masks and uniform numbers are the
/// same on every platform; normal numbers up to the last digit of its log, sin and cos.
///
/// Source  Philox4x32-10: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"; the constants
///         and the order of words are those of C++26's std::philox4x32.
namespace evenkeel {

using PhiloxBlock = std::array<std::uint32_t, 4>;

namespace detail {

inline constexpr std::uint32_t philox_multiplier_0 = 0xD2511F53;
inline constexpr std::uint32_t philox_multiplier_1 = 0xCD9E8D57;
inline constexpr std::uint32_t philox_weyl_0 = 0x9E3779B9;
inline constexpr std::uint32_t philox_weyl_1 = 0xBB67AE85;
inline constexpr int philox_rounds = 10;

}  // namespace detail

/// The 128 random bits that Philox4x32-10 gives for a counter under a 64-bit key (low word first).
constexpr PhiloxBlock philox(PhiloxBlock counter, std::uint64_t key) {
  auto key_0 = static_cast<std::uint32_t>(key);
  auto key_1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < detail::philox_rounds; ++round) {
    const std::uint64_t product_0 = std::uint64_t{detail::philox_multiplier_0} * counter[0];
    const std::uint64_t product_1 = std::uint64_t{detail::philox_multiplier_1} * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key_0, static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key_1, static_cast<std::uint32_t>(product_0)};
    key_0 += detail::philox_weyl_0;
    key_1 += detail::philox_weyl_1;
  }
  return counter;
}

/// The stream number of a path such as "3" or "2.0" in a network: 32-bit FNV-1a of its bytes (offset basis 2166136261,
/// prime 16777619). The empty path, a layer outside any network, has stream 0.
constexpr std::uint32_t stream_of(std::string_view path) {
  if (path.empty()) return 0;
  std::uint32_t hash = 2166136261u;
  for (const char character : path) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 16777619u;
  }
  return hash;
}

/// A sequence of draws, for initialization and shuffling. Its words are those of the blocks
/// philox({block, episode, 0xFFFFFFFF, stream}, seed), block = 0, 1, ..., each block's four words in order. Dropout's
/// masks never use 0xFFFFFFFF as third counter word, so the two cannot meet.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::uint32_t stream, std::uint32_t episode = 0)
      : seed_{seed}, stream_{stream}, episode_{episode} {}

  /// The next 32 bits.
  constexpr std::uint32_t word() {
    if (used_ == block_.size()) {
      block_ = philox({next_block_++, episode_, 0xFFFFFFFFu, stream_}, seed_);
      used_ = 0;
    }
    return block_[used_++];
  }

  /// Uniform in [0, 1): the upper 53 bits of (second word, first word) times 2^-53.
  constexpr double uniform() {
    const std::uint64_t low = word();
    const std::uint64_t high = word();
    return static_cast<double>(((high << 32) | low) >> 11) * 0x1p-53;
  }

  /// Standard normal by Box & Muller 1958: sqrt(-2 log(1 - u)) cos(2 pi v), u and v the next two uniforms; the draw
  /// after it is the same with sin.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
    const double angle = 6.283185307179586476925 * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

  /// Uniform in {0, ..., count - 1}, count < 2^32: the high 32 bits of word * count. (Off by at most count / 2^32.)
  constexpr std::uint32_t below(std::uint32_t count) {
    return static_cast<std::uint32_t>((std::uint64_t{word()} * count) >> 32);
  }

 private:
  std::uint64_t seed_;
  std::uint32_t stream_;
  std::uint32_t episode_;
  std::uint32_t next_block_ = 0;
  PhiloxBlock block_{};
  std::size_t used_ = 4;
  double spare_ = 0;
  bool has_spare_ = false;
};

/// Puts a range in random order: Fisher & Yates, from the last place to the second, each exchanged with below(place + 1).
template <class Range>
void shuffle(Range& range, RandomStream& random) {
  using std::swap;
  for (auto place = range.size(); place > 1; --place) {
    const auto other = random.below(static_cast<std::uint32_t>(place));
    swap(range[place - 1], range[static_cast<decltype(place)>(other)]);
  }
}

}  // namespace evenkeel
