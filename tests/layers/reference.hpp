#pragma once

#include <array>
#include <cmath>    // sqrt, exp, erf, tanh, floor
#include <cstddef>  // size_t
#include <cstdint>  // uint32_t, uint64_t

#include "evenkeel/core/types.hpp"  // Matrix, Index

/// The equations of the layers written out by plain loops in long double, from the papers and from PyTorch's
/// documentation: what the layers are tested against. Nothing of the library is used but the type of a matrix.
namespace reference {

using evenkeel::Index;
using Number = long double;
using Numbers = evenkeel::Matrix<Number>;

template <class M>
Numbers exact(const M& matrix) {
  return matrix.template cast<Number>();
}

/// weight (x - mean) / sqrt(variance + epsilon) + bias over each row.
inline Numbers layer_norm(const Numbers& x, const Numbers& weight, const Numbers& bias, Number epsilon) {
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i) {
    Number mean = 0;
    for (Index j = 0; j < x.cols(); ++j) mean += x(i, j) / static_cast<Number>(x.cols());
    Number variance = 0;
    for (Index j = 0; j < x.cols(); ++j)
      variance += (x(i, j) - mean) * (x(i, j) - mean) / static_cast<Number>(x.cols());
    for (Index j = 0; j < x.cols(); ++j)
      y(i, j) = weight(0, j) * (x(i, j) - mean) / std::sqrt(variance + epsilon) + bias(0, j);
  }
  return y;
}

/// gain x / sqrt(mean(x^2) + epsilon) over each row.
inline Numbers rms_norm(const Numbers& x, const Numbers& gain, Number epsilon) {
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i) {
    Number mean_square = 0;
    for (Index j = 0; j < x.cols(); ++j) mean_square += x(i, j) * x(i, j) / static_cast<Number>(x.cols());
    for (Index j = 0; j < x.cols(); ++j) y(i, j) = gain(0, j) * x(i, j) / std::sqrt(mean_square + epsilon);
  }
  return y;
}

/// Mean and variance of each channel, a channel being `positions` neighbouring columns.
struct ChannelStatistics {
  Numbers mean;
  Numbers biased;
  Numbers unbiased;
};

inline ChannelStatistics channel_statistics(const Numbers& x, Index positions) {
  const Index channels = x.cols() / positions;
  const auto count = static_cast<Number>(x.rows() * positions);
  ChannelStatistics result{Numbers::Zero(1, channels), Numbers::Zero(1, channels), Numbers::Zero(1, channels)};
  for (Index c = 0; c < channels; ++c) {
    for (Index i = 0; i < x.rows(); ++i)
      for (Index p = 0; p < positions; ++p) result.mean(0, c) += x(i, c * positions + p) / count;
    Number squares = 0;
    for (Index i = 0; i < x.rows(); ++i)
      for (Index p = 0; p < positions; ++p) {
        const Number deviation = x(i, c * positions + p) - result.mean(0, c);
        squares += deviation * deviation;
      }
    result.biased(0, c) = squares / count;
    result.unbiased(0, c) = squares / (count - 1);
  }
  return result;
}

/// weight (x - mean) / sqrt(variance + epsilon) + bias over each channel.
inline Numbers batch_norm(const Numbers& x, Index positions, const Numbers& mean, const Numbers& variance,
                          const Numbers& weight, const Numbers& bias, Number epsilon) {
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) {
      const Index c = j / positions;
      y(i, j) = weight(0, c) * (x(i, j) - mean(0, c)) / std::sqrt(variance(0, c) + epsilon) + bias(0, c);
    }
  return y;
}

/// weight (x - mean) / sqrt(variance + epsilon) + bias over each group of a row, weight and bias being those of the channel.
inline Numbers group_norm(const Numbers& x, Index groups, Index positions, const Numbers& weight, const Numbers& bias,
                          Number epsilon) {
  Numbers y(x.rows(), x.cols());
  const Index width = x.cols() / groups;
  const auto count = static_cast<Number>(width);
  for (Index i = 0; i < x.rows(); ++i)
    for (Index start = 0; start < x.cols(); start += width) {
      Number mean = 0, variance = 0;
      for (Index j = start; j < start + width; ++j) mean += x(i, j) / count;
      for (Index j = start; j < start + width; ++j) variance += (x(i, j) - mean) * (x(i, j) - mean) / count;
      for (Index j = start; j < start + width; ++j) {
        const Index c = j / positions;
        y(i, j) = weight(0, c) * (x(i, j) - mean) / std::sqrt(variance + epsilon) + bias(0, c);
      }
    }
  return y;
}

/// x weight^T + bias, weight being (out, in).
inline Numbers linear(const Numbers& x, const Numbers& weight, const Numbers& bias) {
  Numbers y(x.rows(), weight.rows());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index o = 0; o < weight.rows(); ++o) {
      y(i, o) = bias(0, o);
      for (Index j = 0; j < x.cols(); ++j) y(i, o) += x(i, j) * weight(o, j);
    }
  return y;
}

/// A function of each element.
template <class F>
Numbers elementwise(const Numbers& x, const F& f) {
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) y(i, j) = f(x(i, j));
  return y;
}

inline constexpr Number pi = 3.14159265358979323846264338327950288L;

inline Number relu(Number x) { return x > 0 ? x : 0; }
inline Number leaky_relu(Number x, Number slope) { return x > 0 ? x : slope * x; }
inline Number gelu(Number x) { return x * (1 + std::erf(x / std::sqrt(Number(2)))) / 2; }
inline Number gelu_tanh(Number x) {
  return x * (1 + std::tanh(std::sqrt(2 / pi) * (x + static_cast<Number>(0.044715L) * x * x * x))) / 2;
}
inline Number sigmoid(Number x) { return 1 / (1 + std::exp(-x)); }
inline Number silu(Number x) { return x * sigmoid(x); }
inline Number tanh(Number x) { return (std::exp(x) - std::exp(-x)) / (std::exp(x) + std::exp(-x)); }

/// Philox4x32-10 as Random123's documentation has it (Salmon et al. 2011): ten rounds of two Feistel networks side by
/// side, which exchange words.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed % 0x100000000),
                          static_cast<std::uint32_t>(seed / 0x100000000)};
  for (int round = 1; round <= 10; ++round) {
    const std::uint64_t product_of_0 = counter[0] * std::uint64_t{0xD2511F53};
    const std::uint64_t product_of_2 = counter[2] * std::uint64_t{0xCD9E8D57};
    const auto high = [](std::uint64_t product) { return static_cast<std::uint32_t>(product / 0x100000000); };
    const auto low = [](std::uint64_t product) { return static_cast<std::uint32_t>(product % 0x100000000); };
    counter = {high(product_of_2) ^ counter[1] ^ key[0], low(product_of_2), high(product_of_0) ^ counter[3] ^ key[1],
               low(product_of_0)};
    key[0] = static_cast<std::uint32_t>((key[0] + std::uint64_t{0x9E3779B9}) % 0x100000000);
    key[1] = static_cast<std::uint32_t>((key[1] + std::uint64_t{0xBB67AE85}) % 0x100000000);
  }
  return counter;
}

/// What decides one element of a dropout mask.
struct Mask {
  double p = 0.5;
  std::uint64_t seed = 0;
  std::uint32_t call = 0;
  std::uint32_t stream = 0;

  Number threshold() const {
    if (p == 0 || p == 1) return p == 0 ? 0 : 65536;
    const Number rounded = std::floor(static_cast<Number>(p) * 65536 + Number(0.5L));
    return rounded < 1 ? 1 : rounded > 65535 ? 65535 : rounded;
  }
  bool kept(Index row, Index column) const {
    const auto words =
        philox({static_cast<std::uint32_t>(column / 8), static_cast<std::uint32_t>(row), call, stream}, seed);
    const auto place = static_cast<std::size_t>(column % 8);
    const std::uint32_t half = place % 2 == 0 ? words[place / 2] & 0xFFFF : words[place / 2] >> 16;
    return static_cast<Number>(half) >= threshold();
  }
  Number scale() const { return 65536 / (65536 - threshold()); }
};

inline Numbers dropout(const Numbers& x, const Mask& mask) {
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) y(i, j) = mask.kept(i, j) ? x(i, j) * mask.scale() : 0;
  return y;
}

/// Klambauer et al. 2017, with SELU's two constants.
inline Numbers alpha_dropout(const Numbers& x, const Mask& mask) {
  const Number lambda = 1.0507009873554804934193349852946L, alpha = 1.6732632423543772848170429916717L;
  const Number limit = -lambda * alpha;
  const Number kept = 1 - mask.threshold() / 65536;
  const Number a = 1 / std::sqrt(kept + limit * limit * kept * (1 - kept));
  const Number b = -a * (1 - kept) * limit;
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) y(i, j) = a * (mask.kept(i, j) ? x(i, j) : limit) + b;
  return y;
}

/// The mask of a (batch, channels) matrix, a channel being `positions` neighbouring columns.
inline Numbers spatial_dropout(const Numbers& x, Index positions, const Mask& mask) {
  Numbers y(x.rows(), x.cols());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) y(i, j) = mask.kept(i, j / positions) ? x(i, j) * mask.scale() : 0;
  return y;
}

}  // namespace reference
