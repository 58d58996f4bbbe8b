// What does a norm cost: its arithmetic, or the memory that its numbers travel through?
//
//   build/release/examples/norm_cost
//   build/release/examples/norm_cost --rows 65536 --rounds 31 --plot cost.png --csv cost.csv
//   build/release/examples/norm_cost --rows 256 --features 256 --rounds 3
//
// First an account from data sheets: LayerNorm and RMSNorm over a training batch on a large chip, each as separate passes
// over memory and as a fused one, beside one matrix product. Then the same question to this machine, on one thread: the
// time of each layer's forward over a matrix well beyond the caches, in passes over memory, one pass being half the time of
// a copy; how long the same work takes in cache, where arithmetic is all that is left; and norms written as one loop a
// pass. Takes about five seconds.

#include <fmt/core.h>
#include <time.h>  // clock_gettime

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/layers/batch_norm.hpp"
#include "evenkeel/layers/dropout.hpp"
#include "evenkeel/layers/layer_norm.hpp"
#include "evenkeel/layers/linear.hpp"
#include "evenkeel/layers/rms_norm.hpp"
#include "examples/support/claims.hpp"
#include "examples/support/output.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"
#include "examples/support/statistics.hpp"
#include "examples/support/work.hpp"

namespace ek = evenkeel;
using Matrix = ek::Matrix<float>;

namespace {

constexpr double epsilon = 1e-5;          // of every norm, as is the layers' default
constexpr std::size_t enough_rounds = 5;  // to conclude anything

struct Settings : examples::CommonOptions {
  ek::Index rows = 16384;
  ek::Index features = 1024;
  int rounds = 21;
};

// The account on paper.

/// What a chip can do at best, in a second.
struct Chip {
  double vector_flops;  // on the units that norms run on
  double tensor_flops;  // on the units for matrix products
  double bandwidth;     // bytes
};
constexpr Chip chip = {67e12, 989e12, 3.35e12};  // H100 SXM: float32, bfloat16, HBM3

/// A batch of activations in bfloat16.
struct Workload {
  double tokens, width, bytes_each;

  double elements() const { return tokens * width; }
  double pass() const { return elements() * bytes_each / chip.bandwidth; }  // seconds to read or write all of it
};
constexpr Workload workload = {8 * 8192, 4096, 2};

/// One norm as an account: what is to be calculated, and how often all activations travel.
struct NormAccount {
  const char *name, *key;
  double flops_each;
  double unfused_passes;  // LayerNorm: read for the mean, for the variance, to normalize, and write; RMSNorm: one less

  static constexpr double fused_passes = 2;  // read and write
  double math() const { return workload.elements() * flops_each / chip.vector_flops; }
  double unfused() const { return unfused_passes * workload.pass(); }
  double fused() const { return fused_passes * workload.pass(); }
  double bound() const { return fused() / math(); }
};
constexpr std::array accounts = {NormAccount{"LayerNorm", "layer_norm", 8, 4},
                                 NormAccount{"RMSNorm", "rms_norm", 5, 3}};

double matmul_account() { return 2 * workload.elements() * workload.width / chip.tensor_flops; }

void print_account() {
  fmt::print("On paper: an H100 SXM, {:g} Tflop/s, {:g} Tflop/s in matrix products, {:g} TB/s\n",
             chip.vector_flops / 1e12, chip.tensor_flops / 1e12, chip.bandwidth / 1e12);
  fmt::print("{:.0f} tokens of width {:.0f} in {:g} bytes: {:.0f} MB, {:.3f} ms a pass over memory\n\n",
             workload.tokens, workload.width, workload.bytes_each, workload.elements() * workload.bytes_each / 1e6,
             workload.pass() * 1e3);
  fmt::print("{:<12} {:>13} {:>8}   {:>14} {:>8}   {:>12} {:>8}   {:>12}\n", "", "flops/element", "math us",
             "unfused passes", "ms", "fused passes", "ms", "fused / math");
  for (const NormAccount& norm : accounts)
    fmt::print("{:<12} {:13.0f} {:8.0f}   {:14.0f} {:8.2f}   {:12.0f} {:8.2f}   {:12.1f}\n", norm.name, norm.flops_each,
               norm.math() * 1e6, norm.unfused_passes, norm.unfused() * 1e3, norm.fused_passes, norm.fused() * 1e3,
               norm.bound());
  fmt::print("one {0:.0f} x {0:.0f} matrix product on the same tokens: {1:.2f} ms\n\n", workload.width,
             matmul_account() * 1e3);
}

// The measurement.

/// Both norms by Eigen's expressions, in float throughout. Unfused, each step is a loop over the whole matrix, as where
/// every operation is a call of its own; fused, a row goes through all steps while it is in cache.
class PlainNorms {
 public:
  PlainNorms(ek::Index rows, ek::Index features)
      : weight_{Row::Ones(features)}, bias_{Row::Zero(features)}, mean_(rows), inverse_(rows) {}

  void layer_norm_unfused(const Matrix& x, Matrix& y) {
    for (ek::Index i = 0; i < x.rows(); ++i) take_mean(x, i);               // reads
    for (ek::Index i = 0; i < x.rows(); ++i) take_deviation(x, i);          // reads
    for (ek::Index i = 0; i < x.rows(); ++i) subtract_and_divide(x, i, y);  // reads and writes
  }
  void layer_norm_fused(const Matrix& x, Matrix& y) {
    for (ek::Index i = 0; i < x.rows(); ++i) {
      take_mean(x, i);
      take_deviation(x, i);
      subtract_and_divide(x, i, y);
    }
  }
  void rms_norm_unfused(const Matrix& x, Matrix& y) {
    for (ek::Index i = 0; i < x.rows(); ++i) take_rms(x, i);   // reads
    for (ek::Index i = 0; i < x.rows(); ++i) divide(x, i, y);  // reads and writes
  }
  void rms_norm_fused(const Matrix& x, Matrix& y) {
    for (ek::Index i = 0; i < x.rows(); ++i) {
      take_rms(x, i);
      divide(x, i, y);
    }
  }

 private:
  using Row = Eigen::RowVectorXf;

  void take_mean(const Matrix& x, ek::Index i) { mean_[i] = x.row(i).mean(); }
  void take_deviation(const Matrix& x, ek::Index i) {
    inverse_[i] = inverse_root((x.row(i).array() - mean_[i]).square().mean());
  }
  void take_rms(const Matrix& x, ek::Index i) { inverse_[i] = inverse_root(x.row(i).array().square().mean()); }
  void subtract_and_divide(const Matrix& x, ek::Index i, Matrix& y) const {
    y.row(i) = (x.row(i).array() - mean_[i]) * inverse_[i] * weight_.array() + bias_.array();
  }
  void divide(const Matrix& x, ek::Index i, Matrix& y) const {
    y.row(i) = x.row(i).array() * inverse_[i] * weight_.array();
  }
  static float inverse_root(float square) { return 1 / std::sqrt(square + static_cast<float>(epsilon)); }

  Row weight_, bias_;               // of each feature
  Eigen::VectorXf mean_, inverse_;  // of each row; inverse: of the deviation or of the root mean square
};

/// Work on a whole matrix that is timed, with the state that it keeps.
struct Candidate {
  const char *name, *key, *kind;
  double counted_passes;  // reads and writes of the matrix
  bool by_row;            // so that a few rows in cache are the same work
  std::function<void(const Matrix& x, Matrix& y)> run;
};
enum Place : std::size_t {
  copy,
  layer,
  layer_fused,
  layer_unfused,
  rms,
  rms_fused,
  rms_unfused,
  batch_train,
  batch_eval,
  dropout
};
constexpr std::array all_places = {copy,      layer,       layer_fused, layer_unfused, rms,
                                   rms_fused, rms_unfused, batch_train, batch_eval,    dropout};

/// In the order of Place.
std::vector<Candidate> candidates(ek::Index rows, ek::Index features) {
  const auto forward = [](auto layer, ek::Mode mode) {
    return [layer, mode](const Matrix& x, Matrix& y) mutable { layer.forward(x, y, mode); };
  };
  const auto plain = [&](void (PlainNorms::*norm)(const Matrix& x, Matrix& y)) {
    return [norms = PlainNorms(rows, features), norm](const Matrix& x, Matrix& y) mutable { (norms.*norm)(x, y); };
  };
  const auto memory_copy = [](const Matrix& x, Matrix& y) {
    std::memcpy(y.data(), x.data(), static_cast<std::size_t>(x.size()) * sizeof(float));
  };
  using ek::Mode;
  return {
      {"copy", "copy", "memcpy", 2, true, memory_copy},
      {"LayerNorm", "layer_norm", "evenkeel", 2, true, forward(ek::LayerNorm<float>(features), Mode::train)},
      {"LayerNorm", "layer_norm", "fused", 2, true, plain(&PlainNorms::layer_norm_fused)},
      {"LayerNorm", "layer_norm", "unfused", 4, true, plain(&PlainNorms::layer_norm_unfused)},
      {"RMSNorm", "rms_norm", "evenkeel", 2, true, forward(ek::RMSNorm<float>(features), Mode::train)},
      {"RMSNorm", "rms_norm", "fused", 2, true, plain(&PlainNorms::rms_norm_fused)},
      {"RMSNorm", "rms_norm", "unfused", 3, true, plain(&PlainNorms::rms_norm_unfused)},
      {"BatchNorm", "batch_norm", "train", 3, false, forward(ek::BatchNorm<float>(features), Mode::train)},
      {"BatchNorm", "batch_norm", "eval", 2, false, forward(ek::BatchNorm<float>(features), Mode::eval)},
      {"Dropout", "dropout", "train", 2, true, forward(ek::Dropout<float>(0.5), Mode::train)},
  };
}

/// The candidates with matrices to work on, written once so that all memory is there before anything is timed.
struct Bench {
  Matrix x, y;
  std::vector<Candidate> work;

  Bench(ek::Index rows, ek::Index features) : x(rows, features), y(rows, features), work(candidates(rows, features)) {
    ek::RandomStream random(0, ek::stream_of("norm_cost"));
    for (ek::Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(random.word()) * 0x1p-31f - 1;
    for (const Candidate& candidate : work) candidate.run(x, y);
  }

  /// The largest difference between the outputs of two candidates.
  double difference(Place one, Place other) {
    work[one].run(x, y);
    const Matrix output = y;
    work[other].run(x, y);
    return static_cast<double>((output - y).cwiseAbs().maxCoeff());
  }
};

/// Of processor time, so that what else runs on the machine counts less.
template <class Work>
double seconds(const Work& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = now();
  work();
  return now() - start;
}

/// Seconds for the whole matrix in each round. What is compared is compared within rounds: whatever else the machine does
/// slows a whole round rather than a single candidate.
struct Times {
  using Rounds = std::vector<double>;

  std::vector<Candidate> work;
  std::vector<Rounds> memory;  // of each candidate, over the whole matrix
  std::vector<Rounds> cache;   // of the same work on a few rows again and again; empty where that is other work
  Rounds matmul;               // (rows, features) times (features, features)
  ek::Index matmul_rows = 0;   // that it was timed on
  double difference = 0;       // between evenkeel's outputs and the plain norms', at most

  double seconds(Place place) const { return examples::median(memory[place]); }
  double cache_seconds(Place place) const { return examples::median(cache[place]); }
  double passes(Place place) const { return 2 * ratio(memory[place], memory[copy]); }
  /// How much longer it takes to read and write the numbers than to work on them in cache.
  double bound(Place place) const { return ratio(memory[copy], cache[place]); }

  static double ratio(const Rounds& above, const Rounds& below) {
    Rounds ratios;
    for (std::size_t i = 0; i < (std::min)(above.size(), below.size()); ++i) ratios.push_back(above[i] / below[i]);
    return examples::median(ratios);
  }
};

Times measure(const Settings& settings) {
  constexpr ek::Index cache_elements = 1 << 14;   // x and y take 128 KiB
  constexpr ek::Index cache_work = 1 << 21;       // elements in a round, so that a clock can tell
  constexpr ek::Index matmul_products = 1 << 29;  // multiplications in a round, or more: few rows are not the same work
  const ek::Index features = settings.features;
  const ek::Index cache_rows = (std::min)(settings.rows, (std::max)(ek::Index{2}, cache_elements / features));
  const ek::Index matmul_rows =
      (std::min)(settings.rows, (std::max)(ek::Index{128}, matmul_products / (features * features)));

  Bench memory(settings.rows, features), cache(cache_rows, features);
  ek::Linear<float> linear(features, features, {.bias = false});
  const Matrix matmul_x = memory.x.topRows(matmul_rows);
  Matrix matmul_y(matmul_rows, features);
  linear.forward(matmul_x, matmul_y, ek::Mode::train);

  const std::size_t count = memory.work.size();
  Times times;
  times.memory.resize(count);
  times.cache.resize(count);
  times.matmul_rows = matmul_rows;
  times.difference = (std::max)({cache.difference(layer, layer_fused), cache.difference(layer, layer_unfused),
                                 cache.difference(rms, rms_fused), cache.difference(rms, rms_unfused)});

  const ek::Index repeats = (std::max)(ek::Index{1}, cache_work / cache.x.size());
  const auto for_all_rows = [&](double taken, ek::Index rows) {
    return taken * static_cast<double>(settings.rows) / static_cast<double>(rows);
  };
  examples::Progress progress(settings.quiet);
  for (int round = 0; round < settings.rounds && !examples::interrupted(); ++round) {
    progress.show(static_cast<std::size_t>(round), static_cast<std::size_t>(settings.rounds));
    for (std::size_t i = 0; i < count; ++i)
      times.memory[i].push_back(seconds([&] { memory.work[i].run(memory.x, memory.y); }));
    for (std::size_t i = 0; i < count; ++i) {
      if (!cache.work[i].by_row) continue;
      cache.work[i].run(cache.x, cache.y);  // brings them into cache
      const double taken = seconds([&] {
        for (ek::Index k = 0; k < repeats; ++k) cache.work[i].run(cache.x, cache.y);
      });
      times.cache[i].push_back(for_all_rows(taken, cache_rows * repeats));
    }
    const double taken = seconds([&] { linear.forward(matmul_x, matmul_y, ek::Mode::train); });
    times.matmul.push_back(for_all_rows(taken, matmul_rows));
  }
  times.work = std::move(memory.work);
  return times;
}

/// The size of this machine's largest cache in bytes, as Linux tells it; 0 where it does not.
double largest_cache() {
  double largest = 0;
  for (int i = 0; i < 5; ++i) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", i));
    double size = 0;
    char unit = 'K';
    if (file >> size >> unit) largest = (std::max)(largest, size * (unit == 'M' ? 1 << 20 : 1 << 10));
  }
  return largest;
}

double matrix_bytes(const Settings& settings) {
  return static_cast<double>(settings.rows) * static_cast<double>(settings.features) * sizeof(float);
}
bool beyond_cache(const Settings& settings) { return matrix_bytes(settings) >= largest_cache(); }

void print_heading(const Settings& settings) {
  constexpr double mebi = 1 << 20;
  fmt::print(
      "Measured on one thread: {} x {} floats, {:.1f} MiB each of input and output; medians of {} rounds, processor "
      "time\n",
      settings.rows, settings.features, matrix_bytes(settings) / mebi, settings.rounds);
  fmt::print("Vector instructions it is compiled for: {}. ", Eigen::SimdInstructionSetsInUse());
  if (const double cache = largest_cache(); cache > 0) fmt::print("Largest cache: {:.1f} MiB.", cache / mebi);
  fmt::print("\n");
  if (!beyond_cache(settings))
    fmt::print("The cache holds too much of this to tell of memory; --rows makes the matrix larger.\n");
  std::fflush(stdout);
}

void print_times(const Settings& settings, const Times& times) {
  const double bytes = 2 * matrix_bytes(settings);  // read once, written once
  fmt::print("\n{:<10} {:<9} {:>9} {:>7} {:>7} {:>8}   {:>11}   {:>15}\n", "", "", "ms", "GB/s", "passes", "counted",
             "in cache ms", "copy / in cache");
  for (const Place place : all_places) {
    const Candidate& work = times.work[place];
    fmt::print("{:<10} {:<9} {:9.3f} {:7.1f} {:7.2f} {:8.0f}", work.name, work.kind, times.seconds(place) * 1e3,
               bytes / times.seconds(place) / 1e9, times.passes(place), work.counted_passes);
    if (work.by_row) fmt::print("   {:11.3f}   {:15.2f}", times.cache_seconds(place) * 1e3, times.bound(place));
    fmt::print("\n");
  }
  fmt::print(
      "passes: time over half a copy's; counted: reads and writes of the matrix, separate for each statistic if "
      "unfused\n(a loop a step over all rows) and one each if fused (a row goes through all steps). Dropout's time is "
      "that of its\nrandom numbers.\n");
  fmt::print("one {0} x {0} matrix product on the same rows: {1:.1f} ms{2}\n", settings.features,
             examples::median(times.matmul) * 1e3,
             times.matmul_rows < settings.rows ? fmt::format(", timed on {} of them", times.matmul_rows) : "");

  const auto rate = [&](Place place, const NormAccount& norm) {
    return matrix_bytes(settings) / sizeof(float) * norm.flops_each / times.cache_seconds(place) / 1e9;
  };
  const auto& [layer_account, rms_account] = accounts;
  fmt::print("arithmetic in cache: LayerNorm {:.0f} Gflop/s fused, {:.0f} evenkeel; RMSNorm {:.0f} and {:.0f}\n",
             rate(layer_fused, layer_account), rate(layer, layer_account), rate(rms_fused, rms_account),
             rate(rms, rms_account));
  fmt::print("outputs of evenkeel and of the plain norms differ by {:.1g} at most\n", times.difference);
}

void print_claims(const Settings& settings, const Times& times) {
  examples::Claims claims(true);
  const bool tells = beyond_cache(settings) && times.matmul.size() >= enough_rounds;
  const auto verdict = [&](bool holds) { return tells ? examples::verdict_of(holds) : examples::Verdict::undecided; };
  claims.add(verdict(times.bound(layer_fused) > 1 && times.bound(rms_fused) > 1),
             "here too memory takes longer than the arithmetic", "10 to 20 times on its chip",
             fmt::format("LayerNorm {:.2f} times, RMSNorm {:.2f}; evenkeel's {:.2f} and {:.2f}",
                         times.bound(layer_fused), times.bound(rms_fused), times.bound(layer), times.bound(rms)));
  claims.add(verdict(times.passes(layer_unfused) - times.passes(rms_unfused) > 0.5), "unfused, RMSNorm saves a pass",
             "4 to 3", fmt::format("{:.2f} to {:.2f}", times.passes(layer_unfused), times.passes(rms_unfused)));
  claims.add(verdict(times.passes(layer_fused) < times.passes(layer_unfused) - 0.5 &&
                     times.passes(rms_fused) < times.passes(rms_unfused) - 0.5),
             "fusing saves passes", "4 to 2 and 3 to 2",
             fmt::format("{:.2f} to {:.2f} and {:.2f} to {:.2f}", times.passes(layer_unfused),
                         times.passes(layer_fused), times.passes(rms_unfused), times.passes(rms_fused)));
  const auto layer_to_rms = [&](Place one, Place other) {
    return Times::ratio(times.memory[one], times.memory[other]);
  };
  claims.add(verdict(std::abs(layer_to_rms(layer_fused, rms_fused) - 1) < 0.25),
             "fused, the two cost the same within 25 %", "0.32 ms both",
             fmt::format("LayerNorm {:.2f} times RMSNorm; evenkeel's {:.2f} times",
                         layer_to_rms(layer_fused, rms_fused), layer_to_rms(layer, rms)));
  claims.add(
      verdict(Times::ratio(times.memory[layer_unfused], times.matmul) < 0.5),
      "even an unfused norm is small beside a matrix product", "0.64 of 2.22 ms",
      fmt::format("{:.2f} of {:.1f} ms", times.seconds(layer_unfused) * 1e3, examples::median(times.matmul) * 1e3));
  claims.print();
}

void write_csv(examples::Csv& csv, const Times& times) {
  const auto account = [&](const char* name, const char* figure, double value) {
    csv.row("account", name, "", figure, value);
  };
  account("chip", "vector_flops", chip.vector_flops);
  account("chip", "tensor_flops", chip.tensor_flops);
  account("chip", "bandwidth", chip.bandwidth);
  account("workload", "tokens", workload.tokens);
  account("workload", "width", workload.width);
  account("workload", "bytes_each", workload.bytes_each);
  account("workload", "pass_seconds", workload.pass());
  account("matmul", "seconds", matmul_account());
  for (const NormAccount& norm : accounts) {
    account(norm.key, "flops_each", norm.flops_each);
    account(norm.key, "math_seconds", norm.math());
    account(norm.key, "unfused_passes", norm.unfused_passes);
    account(norm.key, "unfused_seconds", norm.unfused());
    account(norm.key, "fused_passes", norm.fused_passes);
    account(norm.key, "fused_seconds", norm.fused());
    account(norm.key, "fused_to_math", norm.bound());
  }
  for (const Place place : all_places)
    for (std::size_t round = 0; round < times.memory[place].size(); ++round)
      csv.row("round", times.work[place].key, times.work[place].kind, fmt::format("seconds_{}", round),
              times.memory[place][round]);
  for (const Place place : all_places) {
    const Candidate& work = times.work[place];
    csv.row("measured", work.key, work.kind, "seconds", times.seconds(place));
    csv.row("measured", work.key, work.kind, "passes", times.passes(place));
    csv.row("measured", work.key, work.kind, "counted_passes", work.counted_passes);
    if (!work.by_row) continue;
    csv.row("measured", work.key, work.kind, "cache_seconds", times.cache_seconds(place));
    csv.row("measured", work.key, work.kind, "copy_to_cache", times.bound(place));
  }
  csv.row("measured", "matmul", "evenkeel", "seconds", examples::median(times.matmul));
  csv.write();
}

/// Bars of passes over memory, with what was counted and what the same work takes in cache.
void draw(examples::Plot& plot, const Settings& settings, const Times& times) {
  constexpr std::array<double, all_places.size()> positions = {0, 2, 3, 4, 6, 7, 8, 10, 11, 13};
  constexpr std::array<double, all_places.size()> line_types = {5, 1, 3, 2, 1, 3, 2, 1, 1, 1};
  double highest = 0;
  for (const Place place : all_places)
    if (place != dropout) highest = (std::max)(highest, 1.15 * times.passes(place));  // or it would dwarf the others
  std::vector<std::vector<double>> bars;
  for (const Place place : all_places) {
    const double passes = times.passes(place), counted = times.work[place].counted_passes;
    bars.push_back({positions[place], passes, line_types[place], counted, 2 / times.bound(place),
                    (std::min)((std::max)(passes, counted), 0.9 * highest)});
  }

  plot.draw(420,
            examples::Plot::block("bars", bars) +
                fmt::format("set title {}\nset yrange [0:{}]\nset xrange [-1:14]\n",
                            examples::Plot::quoted(
                                fmt::format("Time of a forward over {} x {} floats, in passes over memory (copy = 2)",
                                            settings.rows, settings.features)),
                            highest) +
                "set ylabel 'passes'\nunset grid\nset grid ytics\nset style fill solid 0.75 noborder\nset key outside "
                "top center horizontal nobox\nset boxwidth 0.9\nset bmargin 3.5\nset xtics ('copy' 0, 'LayerNorm' 3, "
                "'RMSNorm' 7, \"BatchNorm\\ntrain, eval\" 10.5, \"Dropout\\ntrain\" 13) scale 0\nplot $bars using "
                "1:($3 == 1 ? $2 : 1 / 0) with boxes linetype 1 title 'evenkeel', '' using 1:($3 == 3 ? $2 : 1 / 0) "
                "with boxes linetype 3 title 'plain, fused', '' using 1:($3 == 2 ? $2 : 1 / 0) with boxes linetype 2 "
                "title 'plain, unfused', '' using 1:($3 == 5 ? $2 : 1 / 0) with boxes linetype 5 fillstyle solid 0.4 "
                "title 'memcpy', '' using 1:4 with points linetype 5 pointtype 12 pointsize 1.5 title 'counted', '' "
                "using ($1 - 0.4):5:(0.8):(0) with vectors nohead linetype 5 linewidth 3 title 'in cache', '' using "
                "1:6:(sprintf('%.1f', $2)) with labels offset 0,0.9 notitle\n");
}

int run(const Settings& settings) {
  const examples::InterruptGuard guard;
  settings.check_files();
  constexpr ek::Index most = ek::Index{1} << 30;
  if (settings.rows > most / settings.features)
    throw std::invalid_argument(fmt::format("--rows times --features: expected {} at most, got {} x {}", most,
                                            settings.rows, settings.features));
  examples::Plot plot("norm_cost", settings.plot);
  examples::Csv csv(settings.csv, {"part", "name", "variant", "figure", "value"});

  print_account();
  print_heading(settings);
  const Times times = measure(settings);
  if (examples::interrupted())
    fmt::print("Interrupted. What follows is partial: {} of {} rounds.\n", times.matmul.size(), settings.rounds);
  if (!times.matmul.empty()) {
    print_times(settings, times);
    print_claims(settings, times);
    std::fflush(stdout);
  }
  write_csv(csv, times);
  if (plot && !times.matmul.empty()) draw(plot, settings, times);
  return examples::interrupted() ? examples::interrupted_exit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Accounts for what LayerNorm and RMSNorm cost on a large chip, in arithmetic and in passes over memory, then "
      "measures both on this machine, with the other layers, norms in separate passes and a matrix product beside "
      "them.",
      "norm_cost"};
  app.footer(
      "A norm does a handful of operations for each number that it reads. Where memory is slower than that arithmetic, "
      "its cost is the number of times that all numbers travel: 'passes', one being half the time of a copy. A fused "
      "norm reads once and writes once; separate passes read again for every statistic ('counted').\n'in cache' is the "
      "time of the same work on a few rows that never leave the cache: arithmetic, mostly. 'copy / in cache' above 1 "
      "says that memory is what takes the time, below 1 that arithmetic does. evenkeel's norms accumulate in double, "
      "which costs arithmetic; compiled with -march=native (cmake --preset native) they have wider vectors for it. "
      "'plain' are the same formulas by Eigen in float.\nGB/s counts the input and the output once each." +
      std::string(examples::article_note));
  app.add_option("--rows", settings.rows, "Of the matrix; with the output it should be well beyond the caches")
      ->check(CLI::Range(2, 1 << 29))
      ->option_text("N [16384]");
  app.add_option("--features", settings.features, "Columns of the matrix")
      ->check(CLI::Range(2, 4096))
      ->option_text("N [1024]");
  app.add_option("--rounds", settings.rounds,
                 "Times that everything is timed, in turns; nothing is concluded from fewer than 5")
      ->check(CLI::Range(1, 100000))
      ->option_text("N [21]");
  settings.add_output(app, "Bars of passes over memory");
  return examples::run_program(app, argc, argv, [&] { return run(settings); });
}
