#pragma once

#include <cstddef>  // size_t
#include <cstdint>  // int64_t, uint64_t
#include <limits>   // the most a stream can number
#include <numeric>  // iota
#include <span>
#include <vector>

#include "evenkeel/core/check.hpp"   // at_least
#include "evenkeel/core/error.hpp"   // EVENKEEL_THROW
#include "evenkeel/core/random.hpp"  // RandomStream, shuffle
#include "evenkeel/core/types.hpp"   // Index

namespace evenkeel {

struct BatchesOptions {
  std::uint64_t seed = 0;  ///< Of the orders of all epochs.
  bool shuffle = true;     ///< Whether each epoch has an order of its own; else all go from 0 to count - 1.
  bool drop_last = false;  ///< Whether to leave out an epoch's last batch where it would be smaller than the others.
};

/// The mini-batches of a data set, as numbers of examples in 0 ... count - 1.
///
///     order(epoch) = 0, 1, ..., count - 1, put through shuffle() with RandomStream(seed, stream_of("shuffle"), epoch)
///     batch b      = order(epoch)[b * batch_size ... (b + 1) * batch_size - 1], the last one cut off at count
///
/// An epoch's order depends on seed and epoch alone: training can go on at any batch, and another language can draw the
/// same. After construction nothing allocates.
///
/// Two ways to use it: `begin_epoch(e)`, then `batch(b)` for b < per_epoch(); or `next()` in a loop over steps.
class Batches {
 public:
  /// Stands at the first batch of epoch 0. Throws std::invalid_argument if count or batch_size < 1, count >= 2^32, or
  /// drop_last would leave no batch; a batch_size above count gives one batch of count.
  Batches(Index count, Index batch_size, BatchesOptions options = {}) : batch_size_{batch_size}, options_{options} {
    detail::at_least(1, count, "Batches", "count");
    detail::at_least(1, batch_size, "Batches", "batch_size");
    if (count > most) EVENKEEL_THROW(std::invalid_argument, "Batches: expected count <= ", most, ", got ", count);
    if (options.drop_last && batch_size > count)
      EVENKEEL_THROW(std::invalid_argument, "Batches: expected batch_size <= count = ", count, " with drop_last, got ",
                     batch_size);
    per_epoch_ = count / batch_size + (count % batch_size != 0 && !options.drop_last ? 1 : 0);
    order_.resize(static_cast<std::size_t>(count));
    begin_epoch(0);
  }

  Index count() const { return static_cast<Index>(order_.size()); }
  Index per_epoch() const { return per_epoch_; }
  std::int64_t epoch() const { return epoch_; }

  /// How many batches next() has given since the first of epoch 0, the epochs before the present one counted whole.
  std::int64_t taken() const { return epoch_ * per_epoch_ + next_; }
  std::int64_t most_taken() const { return most * per_epoch_ + (per_epoch_ - 1); }
  /// Goes on as if next() had given so many: a stopped run at the batch where it stopped. Throws std::invalid_argument
  /// unless 0 <= taken <= most_taken().
  void skip_to(std::int64_t taken) {
    if (taken < 0 || taken > most_taken())
      EVENKEEL_THROW(std::invalid_argument, "Batches::skip_to: expected taken in [0, ", most_taken(), "], got ", taken);
    begin_epoch(taken / per_epoch_);
    next_ = taken % per_epoch_;
  }

  /// Puts the examples into this epoch's order; next() goes on with its first batch. Throws std::invalid_argument unless
  /// 0 <= epoch < 2^32.
  void begin_epoch(std::int64_t epoch) {
    if (epoch < 0 || epoch > most)
      EVENKEEL_THROW(std::invalid_argument, "Batches::begin_epoch: expected epoch in [0, ", most, "], got ", epoch);
    epoch_ = epoch;
    next_ = 0;
    std::iota(order_.begin(), order_.end(), Index{0});
    if (!options_.shuffle) return;
    RandomStream random(options_.seed, stream_of("shuffle"), static_cast<std::uint32_t>(epoch));
    shuffle(order_, random);
  }

  /// Batch b of the epoch begun last, valid until another begins. Throws std::invalid_argument unless
  /// 0 <= b < per_epoch().
  std::span<const Index> batch(Index b) const {
    if (b < 0 || b >= per_epoch_)
      EVENKEEL_THROW(std::invalid_argument, "Batches::batch: expected b in [0, ", per_epoch_ - 1, "], got ", b);
    const Index first = b * batch_size_;
    const Index size = batch_size_ < count() - first ? batch_size_ : count() - first;
    return std::span(order_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
  }

  /// The next batch, valid until the next call; after the last of an epoch, the first of the epoch after it.
  std::span<const Index> next() {
    if (next_ == per_epoch_) begin_epoch(epoch_ + 1);
    return batch(next_++);
  }

 private:
  static constexpr std::int64_t most = (std::numeric_limits<std::uint32_t>::max)();

  Index batch_size_;          // >= 1
  BatchesOptions options_;    //
  Index per_epoch_ = 0;       // >= 1
  std::int64_t epoch_ = 0;    // the one in order_
  Index next_ = 0;            // the batch that next() gives, per_epoch_: the next epoch's first
  std::vector<Index> order_;  // count numbers
};

}  // namespace evenkeel
