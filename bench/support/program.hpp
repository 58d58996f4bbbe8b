#pragma once

// What every program does around its benchmarks.

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include <string>

#include "evenkeel/core/version.hpp"

namespace bench {

inline std::string compiler() {
#if defined(__clang__)
  return "clang++ " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

/// Runs what was registered and what the command line asks for; says what it was built from, also in JSON.
inline int run_program(int argc, char** argv) {
  benchmark::AddCustomContext("evenkeel", evenkeel::version);
  benchmark::AddCustomContext("compiler", compiler());
  benchmark::AddCustomContext("flags", EVENKEEL_BENCH_FLAGS);
  benchmark::AddCustomContext("eigen", std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) +
                                           "." + std::to_string(EIGEN_MINOR_VERSION));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
