#include "evenkeel/checking/contract_check.hpp"

#include <cstdint>  // uint64_t, int64_t
#include <memory>   // shared_ptr
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "catch.hpp"
#include "core/compare.hpp"
#include "core/error_of.hpp"
#include "core/values.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "network/own_layers.hpp"

/// A layer that keeps every contract, and one fault after another planted in it. Every fault must break its own contract and no
/// other.

namespace ek = evenkeel;
using ek::Index;
using ek::Mode;
using Matrix = ek::Matrix<double>;
using Row = Eigen::RowVectorXd;

static_assert(!std::is_convertible_v<ek::ContractReport, bool>, "a report must not turn into a number by accident");
static_assert(std::is_constructible_v<bool, ek::ContractReport>);

namespace {

enum class Fault {
  none,
  copies_differ,
  multiplies_old_output_by_zero,
  writes_behind_output,
  writes_beside_gradient,
  changes_output_gradient,
  mixes_rows_in_eval,
  forgets_input_stride,
  forgets_output_order,
  infer_not_in_place,
  backward_not_in_place,
  forward_not_in_place,
  allocates_in_backward,
  adds_to_gradients,
  overwrites_when_told_to_add,
  doubles_parameters_alone,
  adds_up_backwards,
  infer_is_off,
  infer_keeps_its_input,
  state_never_moves,
  eval_moves_state,
  infer_moves_what_is_hidden,
  parameters_move,
  copies_share_gradient,
  copies_lose_input,
  backward_first_is_silent,
  wrong_output_is_silent,
  wrong_gradient_is_silent,
  counts_before_error,
  forward_throws_for_one_row
};

long allocations_so_far = 0;
long forwards_of_all = 0;

/// Gradients that a copy may share.
struct Gradient {
  std::shared_ptr<Row> row;
  bool shared = false;

  Gradient(Index size, bool shares) : row{std::make_shared<Row>(Row::Zero(size))}, shared{shares} {}
  Gradient(const Gradient& other) : row{other.row}, shared{other.shared} {
    if (!shared) row = std::make_shared<Row>(*other.row);
  }
  Gradient& operator=(const Gradient& other) {
    row = other.shared ? other.row : std::make_shared<Row>(*other.row);
    shared = other.shared;
    return *this;
  }
};

/// The input of the last forward, which a copy may lose.
struct Kept {
  Matrix matrix;
  bool lost_in_copies = false;

  explicit Kept(bool lost) : lost_in_copies{lost} {}
  Kept(const Kept& other) : lost_in_copies{other.lost_in_copies} {
    if (!lost_in_copies) matrix = other.matrix;
  }
  Kept& operator=(const Kept& other) {
    matrix = other.lost_in_copies ? Matrix() : other.matrix;
    lost_in_copies = other.lost_in_copies;
    return *this;
  }
};

/// y = scale x + what is drawn in training, by column; counts its training batches and their mean. Keeps its input.
class Planted {
 public:
  using Scalar = double;

  Planted(Index features, Fault fault)
      : fault_{fault},
        scale_{values::positive<double>(1, features, 5)},
        gradient_(features, fault == Fault::copies_share_gradient),
        mean_{Row::Zero(features)},
        kept_(fault == Fault::copies_lose_input) {}

  template <class X, class Y>
  void forward(const X& x, Y&& y, Mode mode) {
    if (fault_ == Fault::counts_before_error) ++calls_;
    if (fault_ != Fault::wrong_output_is_silent) check("output", x, y);
    if (fault_ == Fault::wrong_output_is_silent && (x.rows() != y.rows() || x.cols() != y.cols())) return;
    if (fault_ == Fault::counts_before_error) --calls_;
    if (fault_ == Fault::forward_throws_for_one_row && x.rows() == 1) throw std::runtime_error("one row");
    kept_.matrix = x;
    backwards_ = 0;
    pending_ = true;
    const double drawn = mode.draws_masks() ? static_cast<double>(calls_ + hidden_) : 0.0;
    Matrix result = output_of(x, mode == Mode::eval).array() + drawn;
    if (fault_ == Fault::copies_differ) result.array() += static_cast<double>(++forwards_of_all);
    if (fault_ == Fault::multiplies_old_output_by_zero) result += 0 * y;
    y = result;
    if (fault_ == Fault::writes_behind_output && y.innerStride() == 1) y.data()[y.rows() * y.outerStride()] = 7;
    if (fault_ == Fault::forgets_output_order && y.outerStride() == 1) y.array() += 1;
    if (fault_ == Fault::parameters_move && mode == Mode::train) scale_ *= 0.5;
    if (fault_ == Fault::eval_moves_state && mode == Mode::eval) mean_.array() += 1;
    if (!mode.updates_running_statistics() || fault_ == Fault::state_never_moves) return;
    mean_ += 0.1 * (kept_.matrix.colwise().mean() - mean_);
    ++batches_;
    ++calls_;
  }

  template <class X, class DY, class DX>
  void backward(const X& x, const DY& dy, DX&& dx, ek::Accumulate accumulate = ek::Accumulate::no) {
    if (!pending_ && fault_ == Fault::backward_first_is_silent) return;
    if (fault_ == Fault::wrong_gradient_is_silent && dy.cols() > x.cols()) return;
    check_pending(x, dy);
    check("input gradient", kept_.matrix, dx);
    if (fault_ == Fault::allocates_in_backward) ++allocations_so_far;
    if (fault_ == Fault::overwrites_when_told_to_add) accumulate = ek::Accumulate::no;
    if (fault_ == Fault::adds_to_gradients) accumulate = ek::Accumulate::yes;
    const Matrix& input = kept_.matrix;
    const Matrix given = x;
    write_gradient(fault_ == Fault::forward_not_in_place ? given : input, dy, accumulate);
    const bool in_place = static_cast<const void*>(dx.data()) == static_cast<const void*>(dy.data());
    Matrix result = dy.array().rowwise() * scale_.array();
    if (fault_ == Fault::adds_up_backwards) result *= ++backwards_;
    if (fault_ == Fault::backward_not_in_place && in_place) result *= 2;
    if (fault_ == Fault::changes_output_gradient && !in_place) const_cast<double&>(dy.coeffRef(1, 1)) = 0;
    dx = result;
    if (fault_ == Fault::writes_beside_gradient && dx.outerStride() > dx.cols() && dx.innerStride() == 1)
      dx.data()[dx.cols()] = 0;
  }

  template <class X, class DY>
  void backward_parameters(const X& x, const DY& dy, ek::Accumulate accumulate) {
    check_pending(x, dy);
    write_gradient(kept_.matrix, dy, accumulate);
    if (fault_ == Fault::doubles_parameters_alone) *gradient_.row *= 2;
  }

  template <class X, class Y>
  void infer(const X& x, Y&& y, ek::Workspace<double>&) const {
    check("output", x, y);
    Matrix result = output_of(x, true);
    const bool in_place = static_cast<const void*>(x.data()) == static_cast<const void*>(y.data());
    if (fault_ == Fault::infer_not_in_place && in_place) result.array() += 1;
    if (fault_ == Fault::infer_is_off) result.array() += 1e-10;
    if (fault_ == Fault::infer_keeps_its_input && x.rows() == kept_.matrix.rows()) kept_.matrix = x;
    if (fault_ == Fault::infer_moves_what_is_hidden && pending_) ++hidden_;
    y = result;
  }

  Index output_features(Index features) const { return features; }
  void check_input(Index rows, Index columns, Mode, const char*) const {
    if (columns != scale_.size())
      EVENKEEL_THROW(ek::ShapeError, "Planted: expected ", scale_.size(), " columns, got ",
                     ek::detail::shape(rows, columns));
  }
  ek::Parameters<double> parameters() {
    return {ek::parameter_view("scale", scale_, *gradient_.row, ek::ParameterKind::weight)};
  }
  ek::Parameters<const double> parameters() const {
    return {ek::parameter_view("scale", scale_, std::as_const(*gradient_.row), ek::ParameterKind::weight)};
  }
  ek::Buffers<double> buffers() {
    return {{"mean", ek::as_map(ek::detail::view_of<double>(mean_.data(), mean_))},
            {"batches", ek::as_map(ek::View<double>{}), &batches_}};
  }
  std::uint64_t calls() const { return calls_; }

 private:
  template <class X>
  Matrix output_of(const X& x, bool eval) const {
    Matrix y = x.array().rowwise() * scale_.array();
    if (fault_ == Fault::mixes_rows_in_eval && eval) y.array() += x.mean();
    if (fault_ == Fault::forgets_input_stride && x.innerStride() != 1) y(1, 1) += 1;
    return y;
  }
  template <class DY>
  void write_gradient(const Matrix& x, const DY& dy, ek::Accumulate accumulate) {
    const Row sums = x.cwiseProduct(dy).colwise().sum();
    *gradient_.row = accumulate == ek::Accumulate::yes ? Row(*gradient_.row + sums) : sums;
  }
  template <class X, class Y>
  void check(const char* what, const X& x, const Y& y) const {
    check_input(x.rows(), x.cols(), Mode::train, "");
    if (x.rows() != y.rows() || x.cols() != y.cols())
      EVENKEEL_THROW(ek::ShapeError, "Planted: expected ", what, " of shape ", ek::detail::shape(x.rows(), x.cols()),
                     ", got ", ek::detail::shape(y.rows(), y.cols()));
  }
  template <class X, class DY>
  void check_pending(const X& x, const DY& dy) const {
    if (!pending_) EVENKEEL_THROW(ek::UsageError, "Planted: expected a forward call before backward");
    check("the forward's input", kept_.matrix, x);
    check("output gradient", kept_.matrix, dy);
  }

  Fault fault_;
  Row scale_;
  Gradient gradient_;
  Row mean_;
  std::int64_t batches_ = 0;
  std::uint64_t calls_ = 0;
  mutable std::uint64_t hidden_ = 0;
  mutable Kept kept_;
  int backwards_ = 0;
  bool pending_ = false;
};

const Matrix& input() {
  static const Matrix x = values::random<double>(5, 4, 1);
  return x;
}

ek::ContractReport report_of(Fault fault, ek::ContractOptions options = {}) {
  options.allocations = [] { return allocations_so_far; };
  return ek::check_contract(Planted(4, fault), input(), options);
}

/// Exactly this contract is broken; gives how.
std::string only(const std::string& contract, const ek::ContractReport& report) {
  CAPTURE(report);
  CHECK_FALSE(report);
  CHECK(report.count(ek::ContractVerdict::fail) == 1);
  for (const ek::ContractLine& line : report.lines)
    if (line.verdict == ek::ContractVerdict::fail) {
      CHECK(line.contract == contract);
      return line.detail;
    }
  return "";
}

std::string text_of(const ek::ContractReport& report) {
  std::ostringstream out;
  out << report;
  return out.str();
}

}  // namespace

TEST_CASE("A layer without a fault keeps every contract", "[contract_check]") {
  const auto report = report_of(Fault::none, {.tolerance = 0, .forward_in_place = true});
  CHECK(report);
  CHECK(report.lines.size() == 21);
  for (const ek::ContractLine& line : report.lines)
    if (line.verdict != ek::ContractVerdict::pass) CHECK(line.detail == "compiled without OpenMP");
}

TEST_CASE("Where equal copies differ nothing else can be told", "[contract_check]") {
  const auto report = report_of(Fault::copies_differ);
  CHECK(only("equal copies compute the same", report).substr(0, 24) == "train, y(0, 0): expected");
  CHECK(report.count(ek::ContractVerdict::skipped) == 20);
  CHECK(report.lines.back().detail == "equal copies differ");
}

TEST_CASE("Outputs that depend on what was in them are found", "[contract_check]") {
  const std::string detail = only("outputs are overwritten", report_of(Fault::multiplies_old_output_by_zero));
  CHECK(detail.substr(0, 47) == "train, 3 and then NaN in the outputs, y(0, 0): ");
  CHECK(detail.substr(detail.size() - 3) == "nan");
}

TEST_CASE("Writing outside of the outputs is found, and into the inputs", "[contract_check]") {
  const char* const contract = "nothing is written elsewhere";
  CHECK(only(contract, report_of(Fault::writes_behind_output)) ==
        "forward in train, row-major, around y: written 20 places from its first element; it has the shape (5, 4) and "
        "the strides (4, 1)");
  CHECK(only(contract, report_of(Fault::writes_beside_gradient)) ==
        "backward in train, a block, around dx: written 4 places from its first element; it has the shape (5, 4) and "
        "the strides (7, 1)");
}

TEST_CASE("Writing into the output gradient is found", "[contract_check]") {
  const auto report = report_of(Fault::changes_output_gradient);
  CHECK_FALSE(report);
  CHECK(report.lines[2].detail.substr(0, 49) == "backward in train, row-major, dy(1, 1): expected ");
}

TEST_CASE("Rows that depend on their batch in eval are found, unless they are said to", "[contract_check]") {
  const std::string detail = only("rows in eval stand apart", report_of(Fault::mixes_rows_in_eval));
  CHECK(detail.substr(0, 44) == "each row alone, y of infer(0, 0): expected -");
  CHECK(report_of(Fault::mixes_rows_in_eval, {.eval_rows = ek::EvalRows::together}));
  CHECK(only("rows in eval depend on their batch", report_of(Fault::none, {.eval_rows = ek::EvalRows::together})) ==
        "y of infer: expected other rows to change with row 4 or 0, got the same");
}

TEST_CASE("Storage orders that are mistaken are found", "[contract_check]") {
  const char* const contract = "every storage order gives the same";
  const std::string detail = only(contract, report_of(Fault::forgets_input_stride));
  CHECK(detail.substr(0, 65) == "train, x and dx column-major, y and dy row-major, y of infer(1, 1");
  only(contract, report_of(Fault::forgets_output_order));
}

TEST_CASE("Calls that do not work in place are found, forward where it promises to", "[contract_check]") {
  const char* const contract = "in place gives the same";
  CHECK(only(contract, report_of(Fault::infer_not_in_place)).substr(0, 25) == "infer, y is x, y(0, 0): e");
  CHECK(only(contract, report_of(Fault::backward_not_in_place)).substr(0, 32) == "backward after train, dx is dy, ");
  CHECK(report_of(Fault::forward_not_in_place));
  CHECK(only(contract, report_of(Fault::forward_not_in_place, {.forward_in_place = true})).substr(0, 46) ==
        "backward after train, y in the place of x, gra");
}

TEST_CASE("Allocations after the first calls are found, and are skipped without a counter", "[contract_check]") {
  CHECK(only("nothing is allocated after the first calls", report_of(Fault::allocates_in_backward)) ==
        "train, row-major, backward: expected 0 allocations, got 1");
  const auto report = ek::check_contract(Planted(4, Fault::allocates_in_backward), input());
  CHECK(report);
  CHECK(report.lines[7].detail == "no counter of allocations given");
}

TEST_CASE("Gradients that are added to, overwritten or doubled where they should not be are found",
          "[contract_check]") {
  CHECK(only("backward overwrites gradients", report_of(Fault::adds_to_gradients)).substr(0, 56) ==
        "train, from gradients of 1000, gradient of scale(0, 0): ");
  CHECK(only("backward adds to gradients where told", report_of(Fault::overwrites_when_told_to_add)).substr(0, 52) ==
        "train, added to themselves, gradient of scale(0, 0):");
  only("backward_parameters gives the same gradients", report_of(Fault::doubles_parameters_alone));
}

TEST_CASE("A backward that is another the second time is found", "[contract_check]") {
  CHECK(only("backward repeats itself", report_of(Fault::adds_up_backwards)).substr(0, 33) ==
        "train, the second time, dx(0, 0):");
}

TEST_CASE("An infer that gives something else, or disturbs a pending backward, is found", "[contract_check]") {
  CHECK(only("infer gives what forward gives in eval", report_of(Fault::infer_is_off)).substr(0, 14) ==
        "infer, y(0, 0)");
  CHECK(report_of(Fault::infer_is_off, {.tolerance = 1e-9}));
  CHECK(only("infer leaves a pending backward alone", report_of(Fault::infer_keeps_its_input)).substr(0, 45) ==
        "after a forward in train, gradient of scale(0");
}

TEST_CASE("State that does not move, or moves where it should rest, is found", "[contract_check]") {
  CHECK(only("state moves in training", report_of(Fault::state_never_moves)) ==
        "forward in train: expected one of mean, batches, calls() to move, got none moved");
  CHECK(only("state rests in eval and infer", report_of(Fault::eval_moves_state)) ==
        "forward in eval, mean(0, 0): expected 0, got 1");
  CHECK(only("state rests in eval and infer", report_of(Fault::infer_moves_what_is_hidden)).substr(0, 67) ==
        "training after forward in eval, backward and infer, y(0, 0): expect");
  CHECK(only("parameters rest", report_of(Fault::parameters_move)).substr(0, 24) == "forward in train, scale(");
}

TEST_CASE("Copies that share something are found, and those that lose something", "[contract_check]") {
  CHECK(only("a copy shares nothing", report_of(Fault::copies_share_gradient)).substr(0, 62) ==
        "the copy, after a backward of the layer, gradient of scale(0, ");
  CHECK(only("a copy shares nothing", report_of(Fault::copies_lose_input)) ==
        "threw: Planted: expected 4 columns, got (0, 0)");
}

TEST_CASE("Missing errors are found where the layer promises any", "[contract_check]") {
  CHECK(only("backward before any forward is an error", report_of(Fault::backward_first_is_silent)) ==
        "backward of a layer whose forward has not run: expected an error, got none (where it has run, set "
        "options.errors to false)");
  CHECK(only("wrong shapes are errors", report_of(Fault::wrong_output_is_silent)) ==
        "forward, y of shape (6, 4): expected an error, got none");
  CHECK(only("wrong shapes are errors", report_of(Fault::wrong_gradient_is_silent)) ==
        "backward, dy of shape (5, 5): expected an error, got none");
  const auto report = report_of(Fault::backward_first_is_silent, {.errors = false});
  CHECK(report);
  CHECK(report.lines[18].detail == "not promised");
  CHECK(report.lines[20].verdict == ek::ContractVerdict::skipped);
}

TEST_CASE("An error that leaves a trace is found", "[contract_check]") {
  CHECK(only("an error leaves the layer as it was", report_of(Fault::counts_before_error)) ==
        "after forward, y of shape (6, 4), calls()(0, 0): expected 1, got 2");
}

TEST_CASE("An error where there should be none breaks the contract at hand", "[contract_check]") {
  CHECK(only("rows in eval stand apart", report_of(Fault::forward_throws_for_one_row)) == "threw: one row");
}

TEST_CASE("A layer of the user's own without checks is not asked for errors", "[contract_check]") {
  const auto report = ek::check_contract(own::Twice<double>(), input());
  CHECK(report);
  CHECK(report.lines[18].detail == "not promised: no check_input, and options.errors is not set");
  CHECK(report.lines[5].detail == "the output has another shape than the input");
}

TEST_CASE("check_contract leaves the layer as it is", "[contract_check]") {
  ek::Dropout<double> layer(0.5), twin(0.5);
  layer.forward(input(), Mode::train);
  twin.forward(input(), Mode::train);
  CHECK(ek::check_contract(layer, input(), {.errors = false}));
  CHECK(compare::same_bits(layer.backward(input()), twin.backward(input())));
  CHECK(compare::same_bits(layer.forward(input(), Mode::train), twin.forward(input(), Mode::train)));
}

TEST_CASE("A contract report prints a headline and a line for each contract", "[contract_check]") {
  using enum ek::ContractVerdict;
  ek::ContractReport report{{{"rows stand apart", pass, "within 1e-16 of the largest number"},
                             {"parameters rest", pass, ""},
                             {"errors", skipped, "not promised"}}};
  CHECK(text_of(report) == R"(contract check: pass, 2 kept, 1 skipped
  rows stand apart  pass: within 1e-16 of the largest number
  parameters rest   pass
  errors            skipped: not promised
)");
  report.lines[1] = {"parameters rest", fail, "forward in train, scale(0, 1): expected 2, got 1"};
  report.lines.push_back({"a copy shares nothing", fail, "..."});
  CHECK(text_of(report) == R"(contract check: FAIL, broken: parameters rest; a copy shares nothing
  rows stand apart       pass: within 1e-16 of the largest number
  parameters rest        FAIL: forward in train, scale(0, 1): expected 2, got 1
  errors                 skipped: not promised
  a copy shares nothing  FAIL: ...
)");
}

TEST_CASE("Two numbers that differ in their last digits are printed with all of them", "[contract_check]") {
  ek::checking::Comparison comparison;
  comparison.expect("here", {{"y", ek::Matrix<long double>::Constant(1, 1, 1)}},
                    {{"y", ek::Matrix<long double>::Constant(1, 1, 1.0000000000000002L)}});
  CHECK(comparison.line().detail == "here, y(0, 0): expected 1, got 1.0000000000000002");
}

TEST_CASE("An input of one row and a negative tolerance are errors", "[contract_check]") {
  CHECK(error_of([] { ek::check_contract(own::Twice<double>(), input().topRows(1)); }) ==
        "ShapeError: check_contract: expected x of at least 2 rows and 1 column, got (1, 4)");
  CHECK(error_of([] { ek::check_contract(own::Twice<double>(), input(), {.tolerance = -1}); }) ==
        "invalid_argument: check_contract: expected a finite tolerance >= 0, got -1");
}
