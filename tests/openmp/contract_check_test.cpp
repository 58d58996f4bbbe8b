// check_contract counts threads where there are any.

#include "evenkeel/checking/contract_check.hpp"

#include <omp.h>

#include "catch.hpp"
#include "core/values.hpp"
#include "evenkeel/core/parallel.hpp"

namespace ek = evenkeel;

namespace {

/// y = x, and one more where rows are cut into as many pieces as there are threads.
struct DependsOnThreads {
  using Scalar = float;
  bool faulty = false;

  template <class X, class Y>
  void forward(const X& x, Y&& y, ek::Mode) {
    y = x;
    if (faulty && x.size() >= ek::parallel_threshold) y((x.rows() - 1) / ek::most_workers(), 0) += 1;
  }
  template <class X, class DY, class DX>
  void backward(const X&, const DY& dy, DX&& dx) {
    dx = dy;
  }
  template <class X, class Y>
  void infer(const X& x, Y&& y, ek::Workspace<float>&) const {
    y = x;
  }
  ek::Index output_features(ek::Index features) const { return features; }
};

}  // namespace

TEST_CASE("A layer whose output depends on the number of threads is found, on data that are large enough",
          "[contract_check]") {
  const auto x = values::random<float>(5, 64, 1);
  omp_set_num_threads(2);
  CHECK(ek::check_contract(DependsOnThreads{}, x));
  const auto report = ek::check_contract(DependsOnThreads{true}, x);
  CHECK(report.count(ek::ContractVerdict::fail) == 1);
  CHECK(report.lines[6].detail.substr(0, 44) == "train, 2 threads in place of 1, y(1024, 0): ");
  CHECK(omp_get_max_threads() == 2);  // as it was
  omp_set_num_threads(1);
}
