// What do LayerNorm and RMSNorm do to a vector, and are their backward passes right?
//
//   build/release/examples/norms
//
// Normalizes (2, 4, 6, 8) and the same shifted by 100: LayerNorm's output does not change, RMSNorm's is drawn towards
// (1, 1, 1, 1), since it takes no mean away. Then compares both backward passes with finite differences. Takes no time.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "evenkeel/checking/gradient_check.hpp"
#include "evenkeel/core/random.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "examples/support/program.hpp"

namespace ek = evenkeel;
using Matrix = ek::Matrix<double>;

namespace {

std::string numbers(const Matrix& row, const char* format) {
  std::string text;
  for (ek::Index j = 0; j < row.size(); ++j) text += fmt::format(fmt::runtime(format), row(0, j));
  return text;
}

void show(double first) {
  Matrix x(1, 4);
  x << first, first + 2, first + 4, first + 6;
  fmt::print("x = ({} )   LayerNorm ({} )   RMSNorm ({} )\n", numbers(x, " {:3.0f}"),
             numbers(ek::LayerNorm<double>(4).infer(x), " {:6.3f}"),
             numbers(ek::RMSNorm<double>(4).infer(x), " {:5.3f}"));
}

/// Gains and shifts as training might leave them: with ones and zeros a wrong factor would not show.
template <class Layer>
bool check(const char* name, Layer layer, ek::RandomStream& random) {
  for (auto& parameter : layer.parameters())
    for (ek::Index i = 0; i < parameter.size(); ++i) parameter.flat_value()[i] += 0.5 * random.normal();
  Matrix x(5, 8);
  for (ek::Index i = 0; i < x.size(); ++i) x.data()[i] = random.normal();
  const ek::GradientReport report = ek::check_gradients(layer, x, ek::Mode::train, {.tolerance = 1e-9});
  fmt::print("{} backward against finite differences: largest relative error {:.1e}, {}\n", name,
             report.largest_relative_error(), ek::to_string(report.verdict));
  return static_cast<bool>(report);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 0;
  CLI::App app{"Shows LayerNorm and RMSNorm on small vectors and checks their backward passes.", "norms"};
  examples::add_seed(app, seed, "Of the values that the backward passes are checked with");
  return examples::run_program(app, argc, argv, [&] {
    show(2);
    show(102);
    fmt::print(
        "Adding 100 to every number changes nothing for LayerNorm, which takes the mean away; RMSNorm does not, and so "
        "the\n"
        "offset drowns the differences.\n\n");
    ek::RandomStream random(seed, ek::stream_of("norms"));
    const bool layer_norm_passes = check("LayerNorm", ek::LayerNorm<double>(8), random);
    const bool rms_norm_passes = check("RMSNorm  ", ek::RMSNorm<double>(8), random);
    return layer_norm_passes && rms_norm_passes ? 0 : 1;
  });
}
