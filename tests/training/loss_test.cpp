// The losses: values by their formulas in long double, gradients by differences, labels of every kind, and the cases in which
// losses of other libraries went wrong (CE-1 to CE-6).

#include "evenkeel/training/loss.hpp"

#include <array>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/values.hpp"
#include "evenkeel/core/error.hpp"

namespace ek = evenkeel;
using compare::same_bits;

namespace {

template <typename Scalar>
constexpr auto infinity = std::numeric_limits<Scalar>::infinity();
template <typename Scalar>
constexpr auto not_a_number = std::numeric_limits<Scalar>::quiet_NaN();

/// A dozen roundings.
template <typename Scalar>
constexpr double tolerance = 12 * compare::epsilon<Scalar>;

/// -log softmax(logits)[label] by its definition.
template <class Row>
long double cross_entropy_of(const Row& logits, Eigen::Index label) {
  long double sum = 0;
  for (Eigen::Index j = 0; j < logits.size(); ++j) sum += std::exp(static_cast<long double>(logits(j)));
  return std::log(sum) - static_cast<long double>(logits(label));
}

template <typename Value>
double relative_error(Value value, long double expected) {
  return static_cast<double>(std::abs(static_cast<long double>(value) / expected - 1));
}

/// Whether the gradient of a loss is what central differences of its value give.
template <class Loss, class Targets>
void check_gradient(Loss& loss, ek::Matrix<double> x, const Targets& targets) {
  const ek::Matrix<double> gradient = loss(x, targets).gradient;
  for (Eigen::Index i = 0; i < x.rows(); ++i)
    for (Eigen::Index j = 0; j < x.cols(); ++j) {
      const double h = 1e-5;  // truncation and rounding are below 1e-10 for values and slopes of size one
      const double kept = x(i, j);
      x(i, j) = kept + h;
      const double above = loss(x, targets).value;
      x(i, j) = kept - h;
      const double below = loss(x, targets).value;
      x(i, j) = kept;
      CHECK(std::abs((above - below) / (2 * h) - gradient(i, j)) < 1e-9);
    }
}

template <typename Scalar>
ek::Matrix<Scalar> row(std::initializer_list<Scalar> numbers) {
  ek::Matrix<Scalar> result(1, static_cast<Eigen::Index>(numbers.size()));
  std::copy(numbers.begin(), numbers.end(), result.data());
  return result;
}

ek::Matrix<double> three_rows() { return (ek::Matrix<double>(3, 3) << 1, 2, 3, 0, 0, 0, 5, -1, 2).finished(); }

}  // namespace

// Cross-entropy: value and gradient.

TEMPLATE_TEST_CASE("Cross-entropy is the mean of -log softmax at the labels", "[loss]", float, double, long double) {
  const auto logits = values::random<TestType>(6, 5, 1);
  const std::vector<int> labels = {0, 4, 2, 2, 1, 3};
  long double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i)
    sum += cross_entropy_of(logits.row(static_cast<Eigen::Index>(i)), labels[i]);

  ek::SoftmaxCrossEntropy<TestType> mean;
  CHECK(relative_error(mean(logits, labels).value, sum / 6) < tolerance<TestType>);
  ek::SoftmaxCrossEntropy<TestType> total({.reduction = ek::Reduction::sum});
  CHECK(relative_error(total(logits, labels).value, sum) < tolerance<TestType>);
}

TEST_CASE("Cross-entropy's gradient is the slope of its value", "[loss]") {
  const auto reduction = GENERATE(ek::Reduction::mean, ek::Reduction::sum);
  const double smoothing = GENERATE(0.0, 0.3, 1.0);
  ek::SoftmaxCrossEntropy<double> loss({.reduction = reduction, .label_smoothing = smoothing, .ignored_label = -1});
  check_gradient(loss, values::random<double>(5, 4, 2), std::vector<int>{3, 0, -1, 2, 1});
}

TEST_CASE("Label smoothing spreads its share evenly over all classes", "[loss]") {
  const auto logits = values::random<double>(4, 5, 3);
  const std::vector<int> labels = {1, 4, 0, 2};
  for (const double share : {0.1, 0.5, 1.0}) {
    const auto smoothing = static_cast<long double>(share);
    long double expected = 0;
    for (Eigen::Index i = 0; i < 4; ++i) {
      expected += (1 - smoothing) * cross_entropy_of(logits.row(i), labels[static_cast<std::size_t>(i)]) / 4;
      for (Eigen::Index j = 0; j < 5; ++j) expected += smoothing / 5 * cross_entropy_of(logits.row(i), j) / 4;
    }
    ek::SoftmaxCrossEntropy<double> loss({.label_smoothing = share});
    CHECK(loss(logits, labels).value == Catch::Approx(static_cast<double>(expected)).epsilon(tolerance<double>));
  }
}

TEST_CASE("Label smoothing must be a share", "[loss]") {
  const auto make = [](double smoothing) { return ek::SoftmaxCrossEntropy<float>({.label_smoothing = smoothing}); };
  CHECK_THROWS_AS(make(1.5), std::invalid_argument);
  CHECK_THROWS_WITH(make(1.5), "SoftmaxCrossEntropy: expected label_smoothing in [0, 1], got 1.5");
  CHECK_THROWS_WITH(make(-0.5), "SoftmaxCrossEntropy: expected label_smoothing in [0, 1], got -0.5");
  CHECK_THROWS_WITH(make(not_a_number<double>), "SoftmaxCrossEntropy: expected label_smoothing in [0, 1], got nan");
  CHECK_NOTHROW(make(1));
}

TEST_CASE("Every row of a cross-entropy gradient sums to zero", "[loss]") {
  const double smoothing = GENERATE(0.0, 0.2);
  ek::SoftmaxCrossEntropy<double> loss({.label_smoothing = smoothing});
  const auto& result = loss(values::random<double>(7, 9, 4), std::vector<int>{0, 1, 2, 3, 4, 5, 8});
  CHECK(result.gradient.rowwise().sum().cwiseAbs().maxCoeff() < 1e-16);
}

TEST_CASE("Column-major, transposed and strided logits give the same loss", "[loss]") {
  const auto logits = values::random<double>(6, 5, 5);
  const std::vector<int> labels = {0, 4, 2, 2, 1, 3};
  ek::SoftmaxCrossEntropy<double> loss;
  const double expected = loss(logits, labels).value;
  const ek::Matrix<double> gradient = loss(logits, labels).gradient;
  const auto check = [&](const auto& x) {
    const auto& result = loss(x, labels);
    CHECK(same_bits(result.value, expected));
    CHECK(same_bits(result.gradient, gradient));
  };
  check(Eigen::MatrixXd(logits));
  const Eigen::MatrixXd transposed = logits.transpose();
  check(transposed.transpose());
  Eigen::MatrixXd wide = Eigen::MatrixXd::Constant(9, 11, 77);
  wide.block(1, 2, 6, 5) = logits;
  check(wide.block(1, 2, 6, 5));
  check((wide.block(1, 2, 6, 5) + Eigen::MatrixXd::Zero(6, 5)));
}

TEST_CASE("A loss takes a batch of another size at every call", "[loss]") {
  ek::SoftmaxCrossEntropy<float> loss;
  const std::vector<int> labels(40, 2);
  for (const Eigen::Index batch : {16, 5, 16, 40, 1, 7, 16}) {
    const auto logits = values::random<float>(batch, 3, static_cast<std::uint32_t>(batch));
    ek::SoftmaxCrossEntropy<float> fresh;
    const auto expected = fresh(logits, std::span(labels).first(static_cast<std::size_t>(batch)));
    const auto result = loss(logits, std::span(labels).first(static_cast<std::size_t>(batch)));
    CHECK(same_bits(result.gradient, expected.gradient));
    CHECK(same_bits(result.value, expected.value));
  }
}

TEST_CASE("A loss of its own last gradient is that of a copy of it", "[loss]") {
  const auto logits = values::random<double>(4, 3, 6);
  const std::vector<int> labels = {0, 2, 1, -1};
  ek::SoftmaxCrossEntropy<double> loss({.ignored_label = -1});
  ek::SoftmaxCrossEntropy<double> other({.ignored_label = -1});
  const ek::Matrix<double> copy = loss(logits, labels).gradient;
  const auto expected = other(copy, labels);
  const auto result = loss(loss(logits, labels).gradient, labels);
  CHECK(result.value == expected.value);
  CHECK(same_bits(result.gradient, expected.gradient));
}

TEST_CASE("A loss returns numbers and a reference to a matrix, not expressions", "[loss]") {
  ek::SoftmaxCrossEntropy<float> loss;
  const auto result = loss(row({1.f, 2.f}), std::array{0});
  static_assert(std::is_same_v<decltype(result.value), double>);
  static_assert(std::is_same_v<decltype(result.gradient), const ek::Matrix<float>&>);
  static_assert(std::is_same_v<decltype(ek::softmax(row({1.f}))), ek::Matrix<float>>);
  static_assert(std::is_same_v<decltype(ek::LossResult<long double>::value), long double>);
  CHECK(result.gradient.size() == 2);
}

TEST_CASE("A copied loss has a gradient of its own, a cast one the same options", "[loss]") {
  const auto logits = values::random<double>(3, 3, 7);
  const std::vector<int> labels = {0, 2, -7};
  ek::SoftmaxCrossEntropy<double> loss({.reduction = ek::Reduction::sum, .label_smoothing = 0.25, .ignored_label = -7});
  const auto first = loss(logits, labels);
  const ek::Matrix<double> gradient = first.gradient;
  auto copy = loss;
  copy(3 * logits, labels);
  CHECK(same_bits(first.gradient, gradient));

  auto wide = loss.cast<long double>();
  CHECK(static_cast<double>(wide(logits.cast<long double>(), labels).value) ==
        Catch::Approx(first.value).epsilon(1e-14));
  ek::MeanSquaredError<float> squares(ek::LossOptions{.reduction = ek::Reduction::sum});
  CHECK(squares.cast<double>()(row({1.0, 2.0}), row({0.0, 0.0})).value == 5);
  ek::BinaryCrossEntropy<float> binary(ek::LossOptions{.reduction = ek::Reduction::sum});
  CHECK(binary.cast<double>()(row({0.0, 0.0}), row({0.0, 1.0})).value == Catch::Approx(2 * std::log(2.0)));
}

// Labels.

namespace {

template <class L>
void check_labels_0_2_1(const L& labels) {
  static_assert(ek::Labels<L>);
  const auto logits = values::random<double>(3, 3, 8);
  ek::SoftmaxCrossEntropy<double> loss;
  ek::SoftmaxCrossEntropy<double> same;
  const auto expected = same(logits, std::vector<int>{0, 2, 1});
  const auto result = loss(logits, labels);
  CHECK(same_bits(result.value, expected.value));
  CHECK(same_bits(result.gradient, expected.gradient));
}

}  // namespace

TEST_CASE("Labels may be any contiguous range of integers", "[loss]") {
  check_labels_0_2_1(std::vector<int>{0, 2, 1});
  check_labels_0_2_1(std::vector<std::int64_t>{0, 2, 1});
  check_labels_0_2_1(std::vector<std::uint16_t>{0, 2, 1});
  check_labels_0_2_1(std::array<unsigned char, 3>{0, 2, 1});
  check_labels_0_2_1(std::array<signed char, 3>{0, 2, 1});
  const int array[] = {0, 2, 1};
  check_labels_0_2_1(array);
  const long numbers[] = {7, 0, 2, 1, 7};
  check_labels_0_2_1(std::span<const long>(numbers).subspan(1, 3));
}

TEST_CASE("Labels of a narrow type serve more classes than it can count", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss;
  const auto logits = values::random<double>(2, 300, 24);  // 300 would be 44 in eight bits
  const double value = loss(logits, std::array<unsigned char, 2>{200, 50}).value;
  CHECK(value == loss(logits, std::array{200, 50}).value);
}

TEST_CASE("Labels may be any Eigen vector of integers", "[loss]") {
  const Eigen::VectorXi column = Eigen::Vector3i(0, 2, 1);
  check_labels_0_2_1(column);
  check_labels_0_2_1(Eigen::RowVector3i(0, 2, 1));
  check_labels_0_2_1(Eigen::Matrix<long, 1, 3>(0, 2, 1));
  check_labels_0_2_1(Eigen::Array<short, 3, 1>(0, 2, 1));
  check_labels_0_2_1(column.transpose());
  check_labels_0_2_1(column.array() + 0);
  Eigen::MatrixXi table = Eigen::MatrixXi::Constant(4, 5, 99);  // column-major: a row has a stride
  table.row(2).segment(1, 3) = column.transpose();
  check_labels_0_2_1(table.row(2).segment(1, 3));
  table.col(3).head(3) = column;
  check_labels_0_2_1(table.col(3).head(3));
  const int strided[] = {0, 9, 2, 9, 1, 9};
  check_labels_0_2_1(Eigen::Map<const Eigen::VectorXi, 0, Eigen::InnerStride<2>>(strided, 3));
}

static_assert(!ek::Labels<std::vector<float>> && !ek::Labels<Eigen::VectorXf> && !ek::Labels<int>);

TEST_CASE("Labels in a matrix are an error", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss;
  CHECK_THROWS_AS(loss(three_rows(), Eigen::MatrixXi::Zero(3, 3)), ek::ShapeError);
  CHECK_THROWS_WITH(loss(three_rows(), Eigen::MatrixXi::Zero(3, 2)),
                    "labels: expected a vector, got a matrix of shape (3, 2)");
}

TEST_CASE("Logits without classes are an error of shape", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss;
  CHECK_THROWS_AS(loss(ek::Matrix<double>(2, 0), std::array{0, 0}), ek::ShapeError);
  CHECK_THROWS_WITH(loss(ek::Matrix<double>(2, 0), std::array{0, 0}),
                    "SoftmaxCrossEntropy: expected logits of shape (batch, classes), classes >= 1, got (2, 0)");
}

// The public cases.

TEST_CASE("CE-1: a shared offset of the logits does not matter", "[loss]") {
  ek::SoftmaxCrossEntropy<float> loss;
  const float v = GENERATE(0.f, 1e4f, 1e6f);  // v + 2 and v - 1 are floats
  const auto logits = row({v + 2, v - 1});
  const double expected = 0.04858735157374206;  // log1p(exp(-3))
  const auto& result = loss(logits, std::array{0});
  CHECK(result.value == Catch::Approx(expected).epsilon(1e-6));
  CHECK(result.gradient(0, 0) == Catch::Approx(0.95257413 - 1).epsilon(2e-6));
  CHECK(result.gradient(0, 1) == Catch::Approx(1 - 0.95257413).epsilon(2e-6));
  CHECK(ek::log_softmax(logits)(0, 0) == Catch::Approx(-expected).epsilon(1e-6));
  CHECK(ek::log_softmax(logits)(0, 1) == Catch::Approx(-3 - expected).epsilon(1e-6));
}

TEST_CASE("CE-1: equal logits give ln 2, however large", "[loss]") {
  ek::SoftmaxCrossEntropy<float> loss;
  const float v = GENERATE(0.f, 1e8f, 1e20f, -1e20f);
  const auto& result = loss(row({v, v}), std::array{1});
  CHECK(result.value == Catch::Approx(0.6931471805599453));
  CHECK(result.gradient == row({0.5f, -0.5f}));
  CHECK(ek::log_softmax(row({v, v}))(0, 1) == Catch::Approx(-0.6931471805599453));
  CHECK(ek::softmax(row({v, v})) == row({0.5f, 0.5f}));
}

TEMPLATE_TEST_CASE("CE-2: the exponential of large logits does not overflow", "[loss]", float, double) {
  ek::SoftmaxCrossEntropy<TestType> loss;
  CHECK(loss(row<TestType>({-1000, 0, 1000}), std::array{2}).value == 0);
  const auto logits = row<TestType>({1000, 0, -1000});
  const auto right = loss(logits, std::array{0});
  CHECK(right.value == 0);
  CHECK(right.gradient == row<TestType>({0, 0, 0}));
  const auto wrong = loss(logits, std::array{2});
  CHECK(wrong.value == 2000);
  CHECK(wrong.gradient == row<TestType>({1, 0, -1}));
  CHECK(ek::softmax(logits) == row<TestType>({1, 0, 0}));
  CHECK(ek::log_softmax(logits) == row<TestType>({0, -1000, -2000}));
}

TEST_CASE("CE-2: the loss is finite for any finite logits in float", "[loss]") {
  ek::SoftmaxCrossEntropy<float> loss;
  const auto result = loss(row({3e38f, -3e38f}), std::array{1});
  CHECK(result.value == Catch::Approx(6e38).epsilon(1e-6));
  CHECK(result.gradient == row({1.f, -1.f}));
}

TEST_CASE("CE-3: a class masked with -infinity is left out", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss;
  const auto logits = row({-infinity<double>, 0.0, 0.0});
  const auto& result = loss(logits, std::array{1});
  CHECK(result.value == Catch::Approx(0.6931471805599453).epsilon(1e-15));
  CHECK(result.gradient == row({0.0, -0.5, 0.5}));
  CHECK(ek::softmax(logits) == row({0.0, 0.5, 0.5}));
  CHECK(ek::log_softmax(logits)(0, 0) == -infinity<double>);
}

TEST_CASE("CE-3: a masked class as label has the loss infinity, and other rows stay clean", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss({.reduction = ek::Reduction::sum});
  const ek::Matrix<double> logits = (ek::Matrix<double>(2, 3) << -infinity<double>, 0, 0, 0, 0, 0).finished();
  const auto& result = loss(logits, std::array{0, 0});
  CHECK(result.value == infinity<double>);
  CHECK(result.gradient.row(0) == row({-1.0, 0.5, 0.5}));
  CHECK((result.gradient.row(1) - row({-2.0 / 3, 1.0 / 3, 1.0 / 3})).cwiseAbs().maxCoeff() < 1e-15);
}

TEST_CASE("CE-4: labels out of range are named with their row", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss;
  const ek::Matrix<double> logits = three_rows().topRows(2);
  const auto call = [&](auto label) { loss(logits, std::vector<decltype(label)>{0, label}); };
  CHECK_THROWS_AS(call(3), ek::ShapeError);
  CHECK_THROWS_WITH(call(3), "SoftmaxCrossEntropy: expected labels in [0, 3), got 3 in row 1");
  CHECK_THROWS_WITH(call(-1), "SoftmaxCrossEntropy: expected labels in [0, 3), got -1 in row 1");
  CHECK_THROWS_WITH(call(1000), "SoftmaxCrossEntropy: expected labels in [0, 3), got 1000 in row 1");
  CHECK_THROWS_WITH(call(INT_MIN), "SoftmaxCrossEntropy: expected labels in [0, 3), got -2147483648 in row 1");
  CHECK_THROWS_WITH(call(static_cast<unsigned char>(200)),
                    "SoftmaxCrossEntropy: expected labels in [0, 3), got 200 in row 1");
  CHECK_THROWS_WITH(call(static_cast<signed char>(-1)),
                    "SoftmaxCrossEntropy: expected labels in [0, 3), got -1 in row 1");
  // 2^32 would be 0 in 32 bits.
  CHECK_THROWS_WITH(call(std::int64_t{1} << 32),
                    "SoftmaxCrossEntropy: expected labels in [0, 3), got 4294967296 in row 1");
  CHECK_THROWS_AS(call(~std::uint64_t{0}), ek::ShapeError);
}

TEST_CASE("CE-4: the number of labels must be that of the rows", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss;
  const ek::Matrix<double> logits = three_rows().topRows(2);
  CHECK_THROWS_AS(loss(logits, std::array{0}), ek::ShapeError);
  CHECK_THROWS_WITH(loss(logits, std::array{0}), "SoftmaxCrossEntropy: expected one label for each of 2 rows, got 1");
  CHECK_THROWS_WITH(loss(logits, std::array{0, 1, 2}),
                    "SoftmaxCrossEntropy: expected one label for each of 2 rows, got 3");
  CHECK_THROWS_WITH(loss(logits, Eigen::Vector3i(0, 1, 2)),
                    "SoftmaxCrossEntropy: expected one label for each of 2 rows, got 3");
  CHECK_THROWS_WITH(loss(logits, std::vector<int>{}),
                    "SoftmaxCrossEntropy: expected one label for each of 2 rows, got 0");
}

TEST_CASE("CE-4: a call that fails writes nothing", "[loss]") {
  ek::SoftmaxCrossEntropy<double> loss({.ignored_label = -100});
  const auto kept = loss(three_rows(), std::array{2, 0, 1});
  const ek::Matrix<double> gradient = kept.gradient;
  CHECK_THROWS(loss(2 * three_rows(), std::array{2, 0, 3}));
  CHECK_THROWS(loss(2 * three_rows(), std::array{2, 0, -1}));
  CHECK_THROWS(loss(2 * three_rows(), std::array{2, 0}));
  CHECK_THROWS(loss(2 * three_rows().leftCols(2), std::array{2, 0, 1}));
  CHECK(same_bits(kept.gradient, gradient));
}

TEST_CASE("CE-5: NaN makes its whole row NaN, wherever it stands, and no other", "[loss]") {
  ek::SoftmaxCrossEntropy<float> loss({.reduction = ek::Reduction::sum});
  const Eigen::Index classes = GENERATE(3, 8, 17);
  const auto clean = values::random<float>(3, classes, 9);
  const ek::Matrix<float> clean_gradient = loss(clean, std::array{0, 1, 2}).gradient;
  const ek::Matrix<float> clean_softmax = ek::softmax(clean);
  for (Eigen::Index place = 0; place < classes; ++place) {
    INFO("NaN at " << place << " of " << classes);
    ek::Matrix<float> logits = clean;
    logits(1, place) = not_a_number<float>;
    const auto& result = loss(logits, std::array{0, 1, 2});
    CHECK(std::isnan(result.value));
    CHECK(result.gradient.row(1).array().isNaN().all());
    CHECK(same_bits(result.gradient.row(0), clean_gradient.row(0)));
    CHECK(same_bits(result.gradient.row(2), clean_gradient.row(2)));
    CHECK(ek::softmax(logits).row(1).array().isNaN().all());
    CHECK(ek::log_softmax(logits).row(1).array().isNaN().all());
    CHECK(same_bits(ek::softmax(logits).row(2), clean_softmax.row(2)));
  }
}

TEST_CASE("CE-6: the mean is over the examples that count", "[loss]") {
  const auto logits = three_rows();
  const std::array labels{2, 0, 1};
  ek::SoftmaxCrossEntropy<double> mean;
  ek::SoftmaxCrossEntropy<double> sum({.reduction = ek::Reduction::sum});
  CHECK(mean(logits, labels).value == Catch::Approx(2.51905467).epsilon(1e-8));
  CHECK(sum(logits, labels).value == Catch::Approx(7.55716401).epsilon(1e-8));
  const ek::Matrix<double> expected = (ek::Matrix<double>(3, 3) << 0.03001019, 0.08157616, -0.11158635, -0.22222222,
                                       0.11111111, 0.11111111, 0.31677674, -0.33254812, 0.01577139)
                                          .finished();
  CHECK((mean(logits, labels).gradient - expected).cwiseAbs().maxCoeff() < 1e-8);
  CHECK((sum(logits, labels).gradient - 3 * expected).cwiseAbs().maxCoeff() < 3e-8);
  CHECK(sum(logits.row(0), std::array{2}).value == Catch::Approx(0.40760596).epsilon(1e-7));
  CHECK(sum(logits.row(1), std::array{0}).value == Catch::Approx(1.09861229).epsilon(1e-8));
  CHECK(sum(logits.row(2), std::array{1}).value == Catch::Approx(6.05094576).epsilon(1e-8));
}

TEST_CASE("CE-6: an ignored example counts for nothing", "[loss]") {
  const auto logits = three_rows();
  ek::SoftmaxCrossEntropy<double> mean({.ignored_label = -100});
  ek::SoftmaxCrossEntropy<double> of_two;
  const auto expected = of_two(logits.topRows(2), std::array{2, 0});
  const auto result = mean(logits, std::array{2, 0, -100});
  CHECK(result.value == Catch::Approx(0.75310913).epsilon(1e-7));
  CHECK(same_bits(result.value, expected.value));
  CHECK(same_bits(result.gradient.topRows(2), expected.gradient));
  CHECK(result.gradient.row(2).isZero(0));

  // Also one that holds NaN, and where the ignored label is one of the classes.
  ek::Matrix<double> spoilt = logits;
  spoilt(2, 1) = not_a_number<double>;
  CHECK(mean(spoilt, std::array{2, 0, -100}).value == result.value);
  CHECK(mean(spoilt, std::array{2, 0, -100}).gradient.row(2).isZero(0));
  ek::SoftmaxCrossEntropy<double> without_class_1({.ignored_label = 1});
  CHECK(without_class_1(logits, std::array{2, 0, 1}).value == result.value);
  CHECK_THROWS_WITH(mean(logits, std::array{2, 0, -99}),
                    "SoftmaxCrossEntropy: expected labels in [0, 3), got -99 in row 2");
}

TEST_CASE("CE-6: without any example that counts, value and gradient are zero", "[loss]") {
  const auto reduction = GENERATE(ek::Reduction::mean, ek::Reduction::sum);
  ek::SoftmaxCrossEntropy<double> loss({.reduction = reduction, .ignored_label = -100});
  loss(three_rows(), std::array{0, 1, 2});
  const auto ignored = loss(three_rows(), std::array{-100, -100, -100});
  CHECK(ignored.value == 0);
  CHECK(ignored.gradient == ek::Matrix<double>::Zero(3, 3));
  const auto empty = loss(ek::Matrix<double>(0, 3), std::vector<int>{});
  CHECK(empty.value == 0);
  CHECK(empty.gradient.rows() == 0);
  CHECK(empty.gradient.cols() == 3);
}

// softmax and log_softmax.

TEMPLATE_TEST_CASE("softmax and log_softmax are what their names say", "[loss]", float, double, long double) {
  const auto logits = values::random<TestType>(4, 6, 10);
  const ek::Matrix<TestType> probabilities = ek::softmax(logits);
  const ek::Matrix<TestType> logarithms = ek::log_softmax(logits);
  for (Eigen::Index i = 0; i < 4; ++i)
    for (Eigen::Index j = 0; j < 6; ++j) {
      const long double expected = -cross_entropy_of(logits.row(i), j);
      CHECK(relative_error(logarithms(i, j), expected) < tolerance<TestType>);
      CHECK(relative_error(probabilities(i, j), std::exp(expected)) < tolerance<TestType>);
    }
}

TEST_CASE("softmax takes expressions, columns-first data and nothing at all", "[loss]") {
  const auto logits = values::random<double>(4, 6, 11);
  const Eigen::MatrixXd transposed = logits.transpose();
  CHECK(same_bits(ek::softmax(transposed.transpose()), ek::softmax(logits)));
  CHECK(same_bits(ek::softmax(logits.array() + 0), ek::softmax(logits)));
  CHECK(same_bits(ek::log_softmax(transposed.transpose()), ek::log_softmax(logits)));
  CHECK(ek::softmax(ek::Matrix<double>(0, 6)).cols() == 6);
  CHECK(ek::softmax(ek::Matrix<double>(4, 0)).rows() == 4);
  CHECK(ek::log_softmax(ek::Matrix<double>(4, 0)).rows() == 4);
}

// Mean squared error.

TEMPLATE_TEST_CASE("Mean squared error is the mean over all elements", "[loss]", float, double, long double) {
  const auto prediction = values::random<TestType>(5, 3, 12);
  const auto target = values::random<TestType>(5, 3, 13);
  long double sum = 0;
  for (Eigen::Index i = 0; i < 5; ++i)
    for (Eigen::Index j = 0; j < 3; ++j) {
      const long double difference =
          static_cast<long double>(prediction(i, j)) - static_cast<long double>(target(i, j));
      sum += difference * difference;
    }
  ek::MeanSquaredError<TestType> mean;
  CHECK(relative_error(mean(prediction, target).value, sum / 15) < tolerance<TestType>);
  ek::MeanSquaredError<TestType> total(ek::LossOptions{.reduction = ek::Reduction::sum});
  CHECK(relative_error(total(prediction, target).value, sum) < tolerance<TestType>);
  CHECK(total(prediction, target).gradient == 2 * (prediction - target));
}

TEST_CASE("Mean squared error's gradient is the slope of its value", "[loss]") {
  const auto reduction = GENERATE(ek::Reduction::mean, ek::Reduction::sum);
  ek::MeanSquaredError<double> loss(ek::LossOptions{.reduction = reduction});
  check_gradient(loss, values::random<double>(4, 3, 14), values::random<double>(4, 3, 15));
}

// Binary cross-entropy.

TEMPLATE_TEST_CASE("Binary cross-entropy is that of a sigmoid", "[loss]", float, double, long double) {
  const ek::Matrix<TestType> logits = 2 * values::random<TestType>(5, 3, 16);
  ek::Matrix<TestType> targets = values::random<TestType>(5, 3, 17).cwiseAbs() / 2;  // in [0, 1]
  targets.row(0).setZero();
  targets.row(1).setOnes();
  long double sum = 0;
  for (Eigen::Index i = 0; i < 5; ++i)
    for (Eigen::Index j = 0; j < 3; ++j) {
      const long double sigmoid = 1 / (1 + std::exp(-static_cast<long double>(logits(i, j))));
      const auto target = static_cast<long double>(targets(i, j));
      sum -= target * std::log(sigmoid) + (1 - target) * std::log(1 - sigmoid);
    }
  ek::BinaryCrossEntropy<TestType> mean;
  CHECK(relative_error(mean(logits, targets).value, sum / 15) < tolerance<TestType>);
  ek::BinaryCrossEntropy<TestType> total(ek::LossOptions{.reduction = ek::Reduction::sum});
  CHECK(relative_error(total(logits, targets).value, sum) < tolerance<TestType>);
}

TEST_CASE("Binary cross-entropy's gradient is the slope of its value", "[loss]") {
  const auto reduction = GENERATE(ek::Reduction::mean, ek::Reduction::sum);
  ek::BinaryCrossEntropy<double> loss(ek::LossOptions{.reduction = reduction});
  check_gradient(loss, values::random<double>(4, 3, 18), values::random<double>(4, 3, 19).cwiseAbs() / 2);
}

TEMPLATE_TEST_CASE("Binary cross-entropy takes extreme logits", "[loss]", float, double) {
  ek::BinaryCrossEntropy<TestType> loss(ek::LossOptions{.reduction = ek::Reduction::sum});
  const auto logits = row<TestType>({10000, -10000});
  const auto right = loss(logits, row<TestType>({1, 0}));
  CHECK(right.value == 0);
  CHECK(right.gradient == row<TestType>({0, 0}));
  const auto wrong = loss(logits, row<TestType>({0, 1}));
  CHECK(wrong.value == 20000);
  CHECK(wrong.gradient == row<TestType>({1, -1}));
  const auto largest = std::numeric_limits<TestType>::max();
  CHECK(loss(row<TestType>({largest, -largest}), row<TestType>({1, 0})).value == 0);
  // A small loss keeps its digits: log1p(exp(-20)).
  CHECK(loss(row<TestType>({20}), row<TestType>({1})).value == Catch::Approx(2.0611536181902037e-9).epsilon(1e-6));
}

TEST_CASE("Binary cross-entropy of infinite logits has the right gradient, and NaN where the value would be",
          "[loss]") {
  // Documented for finite logits only: infinity * 0 stands in the formula, in PyTorch's as well.
  ek::BinaryCrossEntropy<double> loss(ek::LossOptions{.reduction = ek::Reduction::sum});
  const auto result = loss(row({infinity<double>, -infinity<double>, 0.0}), row({1.0, 0.0, 1.0}));
  CHECK(std::isnan(result.value));
  CHECK(result.gradient == row({0.0, 0.0, -0.5}));
  CHECK(loss(row({infinity<double>}), row({0.0})).gradient(0, 0) == 1);
}

// What the two have in common.

TEMPLATE_TEST_CASE("Targets of another shape are an error that says both", "[loss]", ek::MeanSquaredError<double>,
                   ek::BinaryCrossEntropy<double>) {
  TestType loss;
  const auto kept = loss(row({1.0, 2.0}), row({0.0, 1.0}));
  const ek::Matrix<double> gradient = kept.gradient;
  const auto x = values::random<double>(4, 3, 20);
  CHECK_THROWS_AS(loss(x, ek::Matrix<double>(3, 4)), ek::ShapeError);
  CHECK_THROWS_WITH(loss(x, ek::Matrix<double>(3, 4)),
                    std::string(TestType::name) + "::operator(): expected target of shape (4, 3), got (3, 4)");
  CHECK_THROWS_AS(loss(row({5.0, 6.0}), ek::Matrix<double>(2, 1)), ek::ShapeError);
  CHECK(same_bits(kept.gradient, gradient));
}

TEMPLATE_TEST_CASE("A loss without any element is zero", "[loss]", ek::MeanSquaredError<double>,
                   ek::BinaryCrossEntropy<double>) {
  TestType loss;
  const auto result = loss(ek::Matrix<double>(0, 3), ek::Matrix<double>(0, 3));
  CHECK(result.value == 0);
  CHECK(result.gradient.cols() == 3);
}

TEMPLATE_TEST_CASE("NaN and infinity in a prediction stay in their elements of the gradient", "[loss]",
                   ek::MeanSquaredError<double>, ek::BinaryCrossEntropy<double>) {
  TestType loss(ek::LossOptions{.reduction = ek::Reduction::sum});
  ek::Matrix<double> x = values::random<double>(3, 3, 21);
  const auto target = ek::Matrix<double>::Constant(3, 3, 0.5).eval();
  const ek::Matrix<double> clean = loss(x, target).gradient;
  x(1, 2) = not_a_number<double>;
  const auto result = loss(x, target);
  CHECK(std::isnan(result.value));
  CHECK(std::isnan(result.gradient(1, 2)));
  ek::Matrix<double> rest = result.gradient;
  rest(1, 2) = clean(1, 2);
  CHECK(same_bits(rest, clean));
}

TEMPLATE_TEST_CASE("Predictions and targets may be column-major, strided or expressions", "[loss]",
                   ek::MeanSquaredError<double>, ek::BinaryCrossEntropy<double>) {
  TestType loss;
  const auto x = values::random<double>(4, 3, 22);
  const ek::Matrix<double> target = values::random<double>(4, 3, 23).cwiseAbs() / 2;
  const double expected = loss(x, target).value;
  const ek::Matrix<double> gradient = loss(x, target).gradient;
  const Eigen::MatrixXd turned = x.transpose();
  const Eigen::MatrixXd columns = target;
  CHECK(loss(turned.transpose(), columns).value == expected);
  CHECK(same_bits(loss(turned.transpose(), columns).gradient, gradient));
  CHECK(loss(1.0 * x, target.array() + 0.0).value == expected);
}
