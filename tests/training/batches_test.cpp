#include <algorithm>  // sort
#include <cstdint>
#include <numeric>  // iota
#include <vector>

#include "catch.hpp"
#include "evenkeel/training/batches.hpp"
#include "training/free_parameters.hpp"

namespace ek = evenkeel;

namespace {

using Order = std::vector<ek::Index>;

Order copy(std::span<const ek::Index> batch) { return {batch.begin(), batch.end()}; }

/// All batches of an epoch, one after another.
Order order_of(ek::Batches& batches, std::int64_t epoch) {
  batches.begin_epoch(epoch);
  Order order;
  for (ek::Index b = 0; b < batches.per_epoch(); ++b)
    for (const ek::Index example : batches.batch(b)) order.push_back(example);
  return order;
}

/// The documented order, drawn once more: Fisher & Yates with the words of Philox.
Order documented_order(std::uint32_t count, std::uint64_t seed, std::uint32_t epoch) {
  Order order(count);
  std::iota(order.begin(), order.end(), 0);
  for (std::uint32_t draw = 0; draw + 1 < count; ++draw) {
    const auto block = ek::philox({draw / 4, epoch, 0xFFFFFFFFu, ek::stream_of("shuffle")}, seed);
    const std::uint32_t place = count - 1 - draw;
    std::swap(order[place], order[(std::uint64_t{block[draw % 4]} * (place + 1)) >> 32]);
  }
  return order;
}

}  // namespace

TEST_CASE("An epoch's order is the documented one", "[batches]") {
  ek::Batches batches(37, 8, {.seed = 1});
  CHECK(order_of(batches, 0) == documented_order(37, 1, 0));
  CHECK(order_of(batches, 5) == documented_order(37, 1, 5));
  CHECK(order_of(batches, 0xFFFFFFFF) == documented_order(37, 1, 0xFFFFFFFF));
  ek::Batches other(37, 8, {.seed = std::uint64_t{1} << 40});
  CHECK(order_of(other, 0) == documented_order(37, std::uint64_t{1} << 40, 0));
}

TEST_CASE("An epoch holds each example once, in an order of its own", "[batches]") {
  ek::Batches batches(100, 7, {.seed = 3});
  Order sorted = order_of(batches, 0);
  std::sort(sorted.begin(), sorted.end());
  Order expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(sorted == expected);
  CHECK(order_of(batches, 0) != order_of(batches, 1));
}

TEST_CASE("An epoch's order does not depend on the epochs before it", "[batches]") {
  ek::Batches batches(50, 8, {.seed = 3});
  const Order third = order_of(batches, 3);
  order_of(batches, 1);
  order_of(batches, 2);
  CHECK(order_of(batches, 3) == third);
}

TEST_CASE("Without shuffling the examples come in order", "[batches]") {
  ek::Batches batches(5, 2, {.shuffle = false});
  for (int epoch = 0; epoch < 2; ++epoch) {
    batches.begin_epoch(epoch);
    CHECK(copy(batches.batch(0)) == Order{0, 1});
    CHECK(copy(batches.batch(1)) == Order{2, 3});
    CHECK(copy(batches.batch(2)) == Order{4});
  }
}

TEST_CASE("The last batch is smaller, or dropped", "[batches]") {
  CHECK(ek::Batches(10, 3).per_epoch() == 4);
  CHECK(ek::Batches(10, 3).batch(3).size() == 1);
  CHECK(ek::Batches(10, 3, {.drop_last = true}).per_epoch() == 3);
  CHECK(ek::Batches(9, 3).per_epoch() == 3);
  CHECK(ek::Batches(9, 3, {.drop_last = true}).per_epoch() == 3);
  CHECK(ek::Batches(9, 3, {.drop_last = true}).batch(2).size() == 3);
  CHECK(ek::Batches(3, 10).per_epoch() == 1);
  CHECK(ek::Batches(3, 10).batch(0).size() == 3);
  CHECK(ek::Batches(3, (std::numeric_limits<ek::Index>::max)()).batch(0).size() == 3);
  CHECK(ek::Batches(3, 3, {.drop_last = true}).per_epoch() == 1);
}

TEST_CASE("next() goes through the batches of epoch after epoch", "[batches]") {
  for (const bool drop_last : {false, true}) {
    ek::Batches running(10, 3, {.seed = 2, .drop_last = drop_last});
    ek::Batches by_epoch(10, 3, {.seed = 2, .drop_last = drop_last});
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      by_epoch.begin_epoch(epoch);
      for (ek::Index b = 0; b < by_epoch.per_epoch(); ++b) {
        CHECK(copy(running.next()) == copy(by_epoch.batch(b)));
        CHECK(running.epoch() == epoch);
      }
    }
  }
}

TEST_CASE("next() goes on from an epoch that was begun", "[batches]") {
  ek::Batches batches(10, 3, {.seed = 2});
  batches.next();
  batches.next();
  batches.begin_epoch(7);
  CHECK(batches.epoch() == 7);
  CHECK(copy(batches.next()) == copy(batches.batch(0)));
  CHECK(batches.epoch() == 7);
}

TEST_CASE("A copy of Batches shares nothing", "[batches]") {
  ek::Batches batches(10, 3, {.seed = 2});
  ek::Batches twin = batches;
  const Order first = copy(batches.batch(0));
  twin.begin_epoch(4);
  CHECK(copy(batches.batch(0)) == first);
  CHECK(batches.epoch() == 0);
}

TEST_CASE("Batches says what is out of bounds", "[batches]") {
  const auto message = [](auto call) { return thrown<std::invalid_argument>(call); };
  CHECK(message([] { ek::Batches(0, 3); }) == "Batches: expected count >= 1, got 0");
  CHECK(message([] { ek::Batches(3, 0); }) == "Batches: expected batch_size >= 1, got 0");
  CHECK(message([] { ek::Batches(3, 4, {.drop_last = true}); }) ==
        "Batches: expected batch_size <= count = 3 with drop_last, got 4");
  CHECK(message([] { ek::Batches(ek::Index{1} << 32, 4); }) == "Batches: expected count <= 4294967295, got 4294967296");
  ek::Batches batches(10, 3);
  CHECK(message([&] { batches.batch(-1); }) == "Batches::batch: expected b in [0, 3], got -1");
  CHECK(message([&] { batches.batch(4); }) == "Batches::batch: expected b in [0, 3], got 4");
  CHECK(message([&] { batches.begin_epoch(-1); }) == "Batches::begin_epoch: expected epoch in [0, 4294967295], got -1");
  CHECK(message([&] { batches.begin_epoch(std::int64_t{1} << 32); }) ==
        "Batches::begin_epoch: expected epoch in [0, 4294967295], got 4294967296");
  CHECK(batches.epoch() == 0);
}

TEST_CASE("Batches goes on at any batch as if those before had been taken", "[batches]") {
  ek::Batches straight(10, 4, {.seed = 5});
  for (std::int64_t taken = 0; taken < 8; ++taken) {
    CHECK(straight.taken() == taken);
    ek::Batches resumed(10, 4, {.seed = 5});
    resumed.skip_to(taken);
    CHECK(resumed.taken() == taken);
    ek::Batches same = straight;
    for (int i = 0; i < 4; ++i) CHECK(copy(resumed.next()) == copy(same.next()));
    straight.next();
  }
  straight.begin_epoch(2);
  CHECK(straight.taken() == 6);
}

TEST_CASE("Batches cannot be taken to where it never is", "[batches]") {
  ek::Batches batches(10, 4);
  CHECK(batches.most_taken() == 3 * (std::int64_t{1} << 32) - 1);
  batches.skip_to(batches.most_taken());
  CHECK(batches.taken() == batches.most_taken());
  CHECK(thrown<std::invalid_argument>([&] { batches.skip_to(batches.most_taken() + 1); }) ==
        "Batches::skip_to: expected taken in [0, 12884901887], got 12884901888");
  CHECK(thrown<std::invalid_argument>([&] { batches.skip_to(-1); }) ==
        "Batches::skip_to: expected taken in [0, 12884901887], got -1");
  CHECK(batches.taken() == batches.most_taken());
}
