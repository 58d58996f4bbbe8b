// Every layer keeps the contracts that check_contract knows, and so do networks.

#include <string>

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/checking/contract_check.hpp"
#include "evenkeel/layers/alpha_dropout.hpp"
#include "evenkeel/layers/attention.hpp"
#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/spatial_dropout.hpp"
#include "evenkeel/network/mlp.hpp"
#include "evenkeel/network/sequential.hpp"
#include "evenkeel/network/transformer.hpp"
#include "layers/any_layer.hpp"

namespace ek = evenkeel;
using laws::AnyLayer;

namespace {

/// Nothing is broken, and what is skipped is skipped because the layer has nothing of the kind.
void check(const std::string& name, const ek::ContractReport& report) {
  CAPTURE(name);
  CHECK(report);
  for (const ek::ContractLine& line : report.lines) {
    if (line.verdict != ek::ContractVerdict::skipped) continue;
    INFO(line.contract << ": " << line.detail);
    CHECK((line.detail == "no parameters" || line.detail == "the output has another shape than the input" ||
           line.detail == "no buffers(), training_state() or calls()" || line.detail == "compiled without OpenMP" ||
           line.detail == "no counter of allocations given"));
  }
}

}  // namespace

TEST_CASE("Every layer keeps every contract, to the bit but for Linear", "[every_layer_contract]") {
  for (const auto& member : laws::members<float>()) {
    ek::ContractOptions options{.tolerance = 0, .forward_in_place = true};
    if (member.layer.name() == "Linear") options.tolerance = std::nullopt;  // its sums may run in another order
    if (member.name.find("not tracking") != std::string::npos) options.eval_rows = ek::EvalRows::together;
    check(member.name, ek::check_contract(member.layer, values::random<float>(7, member.features, 1), options));
  }
}

TEST_CASE("Networks keep every contract", "[every_layer_contract]") {
  const ek::ContractOptions options{.forward_in_place = true};
  const auto x = values::random<float>(7, 6, 1);
  check("Sequential", ek::check_contract(AnyLayer<float>(ek::Sequential{
                                             ek::SpatialDropout<float>(0.2, 3, 2), ek::Linear<float>(6, 6, {.seed = 1}),
                                             ek::BatchNorm<float>(6), ek::AlphaDropout<float>(0.3)}),
                                         x, options));
  check("Mlp", ek::check_contract(
                   AnyLayer<float>(ek::Mlp<float>({6, 9, 6}, {.norm = ek::Norm::batch, .dropout = 0.4, .seed = 2})), x,
                   options));
}

TEST_CASE("Tokens of a sequence belong together in eval, and sequences stand apart", "[every_layer_contract]") {
  const auto x = values::random<float>(8, 6, 1);
  const ek::CausalSelfAttention<float> attention(6, 2, 4, {.dropout = 0.3, .seed = 1});
  ek::ContractOptions options;
  check("attention", ek::check_contract(attention, x, options));
  check("block", ek::check_contract(ek::TransformerBlock<float>(6, 2, 9, 4, {.dropout = 0.3, .seed = 1}), x, options));
  options.rows_per_example = 2;
  CHECK_FALSE(ek::check_contract(attention, x, options));
  // Within one sequence the last token changes no other, but the first does.
  const ek::CausalSelfAttention<float> one_sequence(6, 2, 8, {.seed = 1});
  CHECK(ek::check_contract(one_sequence, x,
                           {.eval_rows = ek::EvalRows::together, .rows_per_example = 1, .errors = false}));
  CHECK_THROWS_WITH(ek::check_contract(attention, x, {.rows_per_example = 3}),
                    "check_contract: expected x of two or more whole examples of 3 rows, got (8, 6)");
  CHECK_THROWS_WITH(ek::check_contract(one_sequence, x),
                    "check_contract: expected x of two or more whole examples of 8 rows, got (8, 6)");
}

TEST_CASE("Where a network's random numbers stand is state that moves", "[every_layer_contract]") {
  const auto report = ek::check_contract(ek::Sequential{ek::Dropout<float>(0.5)}, values::random<float>(5, 4, 1));
  CHECK(report);
  CHECK(report.lines[14].contract == "state moves in training");
  CHECK(report.lines[14].verdict == ek::ContractVerdict::pass);
}
