#include "evenkeel/kernels/softmax.hpp"

#include <cmath>  // exp, log, isnan
#include <limits>
#include <vector>

#include "catch.hpp"

namespace ek = evenkeel;
using ek::Index;

namespace {

template <typename Scalar>
ek::kernels::SoftmaxRow<Scalar> row_of(const std::vector<Scalar>& logits) {
  return {logits.data(), static_cast<Index>(logits.size()), 1};
}

}  // namespace

TEMPLATE_TEST_CASE("A softmax row gives probabilities and their logarithms", "[softmax]", double, float) {
  const std::vector<TestType> logits{TestType(0.5), TestType(-1.25), 3, TestType(2.75), -10};
  const auto row = row_of(logits);
  long double sum = 0;
  for (const TestType logit : logits) sum += std::exp(static_cast<long double>(logit));
  CHECK(row.largest == 3);
  const double tolerance = 4 * static_cast<double>(std::numeric_limits<TestType>::epsilon());
  for (const TestType logit : logits) {
    const auto exact = static_cast<long double>(logit);
    CHECK(static_cast<double>(row.probability(logit)) ==
          Catch::Approx(static_cast<double>(std::exp(exact) / sum)).epsilon(tolerance));
    CHECK(static_cast<double>(row.log_probability(logit)) ==
          Catch::Approx(static_cast<double>(exact - std::log(sum))).epsilon(tolerance));
  }
}

TEST_CASE("Logits of any size, near or far from each other, give numbers", "[softmax]") {
  for (const double shift : {-1e300, -1000.0, 0.0, 1000.0, 1e300}) {
    const auto row = row_of<double>({shift, shift, shift});
    CHECK(row.probability(shift) == Catch::Approx(1 / 3.0).epsilon(1e-15));
    CHECK(row.log_probability(shift) == Catch::Approx(-std::log(3.0)).epsilon(1e-15));
  }
  const auto far = row_of<double>({0, -2000, 5});
  CHECK(far.probability(-2000) == 0);
  CHECK(far.log_probability(-2000) == Catch::Approx(-2005 - std::log1p(std::exp(-5.0))).epsilon(1e-15));
}

TEST_CASE("Logits at both ends of float have a finite logarithm of their probability", "[softmax]") {
  const auto row = row_of<float>({3e38f, -3e38f});
  CHECK(row.log_probability(-3e38f) == Catch::Approx(-2 * static_cast<double>(3e38f)).epsilon(1e-15));
  CHECK(row.log_probability(3e38f) == 0);
}

TEST_CASE("The logarithm of a near certainty keeps its digits", "[softmax]") {
  const auto row = row_of<double>({1000, 1000 - 30});
  CHECK(row.log_probability(1000) == Catch::Approx(-std::exp(-30.0)).epsilon(1e-2));
  CHECK(row.log_probability(1000) < 0);
}

TEST_CASE("A class of infinite certainty against it has probability 0", "[softmax]") {
  const auto row = row_of<double>({1, -std::numeric_limits<double>::infinity(), 1});
  CHECK(row.probability(-std::numeric_limits<double>::infinity()) == 0);
  CHECK(row.probability(1) == 0.5);
}

TEST_CASE("A NaN at any place, for any number of classes, makes the row NaN", "[softmax]") {
  for (std::size_t classes = 1; classes <= 33; ++classes)
    for (std::size_t place = 0; place < classes; ++place) {
      std::vector<float> logits(classes, 1.0f);
      logits[place] = std::numeric_limits<float>::quiet_NaN();
      const auto row = row_of(logits);
      CHECK(std::isnan(row.probability(1)));
      CHECK(std::isnan(row.log_probability(1)));
    }
}

TEST_CASE("One class is certain", "[softmax]") {
  const auto row = row_of<float>({-5});
  CHECK(row.probability(-5) == 1);
  CHECK(row.log_probability(-5) == 0);
}

TEST_CASE("A row may be a column of a matrix", "[softmax]") {
  const double logits[] = {1, 100, 2, 100, 3, 100};
  const ek::kernels::SoftmaxRow<double> row(logits, 3, 2);
  CHECK(row.largest == 3);
  CHECK(row.probability(1) == Catch::Approx(0.09003057).epsilon(1e-7));
}
