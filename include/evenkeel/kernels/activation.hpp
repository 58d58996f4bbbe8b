#pragma once

#include <cmath>  // exp, erfc, tanh

#include "evenkeel/core/check.hpp"       // not_negative
#include "evenkeel/core/parallel.hpp"    // parallel_for, RowChunks
#include "evenkeel/core/types.hpp"       // Index
#include "evenkeel/core/view.hpp"        // View
#include "evenkeel/kernels/convert.hpp"  // convert, as_number
#include "evenkeel/kernels/lanes.hpp"    // with_strides

/// Elementwise functions: `value` is f(x), `gradient` is dy f'(x).
namespace evenkeel::kernels {

/// max(x, 0), NaN passed on. The slope at 0 and -0 is 0, as in PyTorch.
struct Relu {
  static constexpr const char* name = "ReLU";
  template <typename Scalar>
  Scalar value(Scalar x) const {
    return x < 0 ? Scalar(0) : x;
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    return x <= 0 ? Scalar(0) : dy;
  }
};

/// x where x > 0, else slope * x. The slope at 0 is `slope`, as in PyTorch.
struct LeakyRelu {
  static constexpr const char* name = "LeakyReLU";
  double slope = 0.01;

  LeakyRelu() = default;
  /// Throws std::invalid_argument unless the slope is finite.
  explicit LeakyRelu(double negative_slope) : slope{negative_slope} {
    if (!evenkeel::detail::is_finite(slope))
      EVENKEEL_THROW(std::invalid_argument, "LeakyReLU: expected a finite slope, got ", slope);
  }
  template <typename Scalar>
  Scalar value(Scalar x) const {
    return x > 0 ? x : static_cast<Scalar>(slope) * x;
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    return x > 0 ? dy : static_cast<Scalar>(slope) * dy;
  }
};

/// Which of the two functions that go by the name GELU.
enum class GeluForm {
  exact,  ///< x Phi(x), Phi being the normal distribution function.
  tanh    ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

/// Hendrycks & Gimpel 2016, section 2, https://arxiv.org/abs/1606.08415. The exact form takes Phi from erfc, which keeps the left tail's digits.
struct Gelu {
  static constexpr const char* name = "GELU";
  GeluForm form = GeluForm::exact;

  Gelu() = default;
  explicit Gelu(GeluForm which) : form{which} {}

  template <typename Scalar>
  Scalar value(Scalar x) const {
    const auto half = static_cast<Scalar>(0.5L);
    if (form == GeluForm::exact) return half * x * std::erfc(-x * root_half<Scalar>);
    return half * x * (1 + std::tanh(inner(x)));
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    const auto half = static_cast<Scalar>(0.5L);
    if (form == GeluForm::exact) {
      const Scalar density = root_half_inverse_pi<Scalar> * std::exp(-half * x * x);
      return dy * (half * std::erfc(-x * root_half<Scalar>) + x * density);
    }
    const Scalar t = std::tanh(inner(x));
    const Scalar inner_slope = root_two_over_pi<Scalar> * (1 + 3 * cubic<Scalar> * x * x);
    return dy * half * ((1 + t) + x * (1 - t * t) * inner_slope);
  }

 private:
  template <typename Scalar>
  static constexpr Scalar root_half = static_cast<Scalar>(0.707106781186547524400844362104849039L);
  template <typename Scalar>
  static constexpr Scalar root_half_inverse_pi = static_cast<Scalar>(0.398942280401432677939946059934381868L);
  template <typename Scalar>
  static constexpr Scalar root_two_over_pi = static_cast<Scalar>(0.797884560802865355879892119868763737L);
  template <typename Scalar>
  static constexpr Scalar cubic = static_cast<Scalar>(0.044715L);

  template <typename Scalar>
  static Scalar inner(Scalar x) {
    return root_two_over_pi<Scalar> * (x + cubic<Scalar> * x * x * x);
  }
};

/// 1 / (1 + exp(-x))
struct Sigmoid {
  static constexpr const char* name = "Sigmoid";
  template <typename Scalar>
  Scalar value(Scalar x) const {
    return 1 / (1 + std::exp(-x));
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    const Scalar tail = std::exp(-(x < 0 ? -x : x));  // symmetric, and never infinite
    return dy * tail / ((1 + tail) * (1 + tail));
  }
};

/// x * sigmoid(x), also called swish. Elfwing, Uchibe & Doya 2017, https://arxiv.org/abs/1702.03118.
struct Silu {
  static constexpr const char* name = "SiLU";
  template <typename Scalar>
  Scalar value(Scalar x) const {
    return x / (1 + std::exp(-x));
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    const Scalar s = Sigmoid().value(x);
    return dy * (s + x * Sigmoid().gradient(x, Scalar(1)));
  }
};

struct Tanh {
  static constexpr const char* name = "Tanh";
  template <typename Scalar>
  Scalar value(Scalar x) const {
    return std::tanh(x);
  }
  template <typename Scalar>
  Scalar gradient(Scalar x, Scalar dy) const {
    const Scalar y = std::tanh(x);
    return dy * ((1 - y) * (1 + y));
  }
};

/// y = f(x). y may be x.
template <typename Stored, class Function>
void activation_forward(View<const Stored> x, const Function& f, View<Stored> y) {
  if (x.column_stride != 1 && x.row_stride == 1) return activation_forward(x.transposed(), f, y.transposed());
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto y_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Stored* input = x.row(i);
            Stored* output = y.row(i);
            for (Index j = 0; j < x.columns; ++j)
              convert(f.value(as_number(input[j * x_stride])), output[j * y_stride]);
          }
        },
        x.column_stride, y.column_stride);
  });
}

/// dx = dy f'(x). dx may be x or dy.
template <typename Stored, class Function>
void activation_backward(View<const Stored> x, View<const Stored> dy, const Function& f, View<Stored> dx) {
  if (x.column_stride != 1 && x.row_stride == 1)
    return activation_backward(x.transposed(), dy.transposed(), f, dx.transposed());
  const RowChunks chunks(x.rows, x.columns);
  parallel_for(chunks.count, x.size(), [&](Index chunk) {
    with_strides(
        [&](auto x_stride, auto dy_stride, auto dx_stride) {
          for (Index i = chunks.first(chunk); i < chunks.end(chunk); ++i) {
            const Stored* input = x.row(i);
            const Stored* delta = dy.row(i);
            Stored* output = dx.row(i);
            for (Index j = 0; j < x.columns; ++j)
              convert(f.gradient(as_number(input[j * x_stride]), as_number(delta[j * dy_stride])),
                      output[j * dx_stride]);
          }
        },
        x.column_stride, dy.column_stride, dx.column_stride);
  });
}

}  // namespace evenkeel::kernels
