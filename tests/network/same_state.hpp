#pragma once

#include <cstddef>  // size_t

#include "core/compare.hpp"

/// Comparisons to the bit of two networks of the same layers.
namespace compare {

/// Whether they have the same parameters.
template <class A, class B>
bool same_values(A& a, B& b) {
  const auto of_a = a.parameters();
  const auto of_b = b.parameters();
  bool same = of_a.size() == of_b.size();
  for (std::size_t i = 0; same && i < of_a.size(); ++i)
    same = of_a[i].name == of_b[i].name && same_bits(of_a[i].value, of_b[i].value);
  return same;
}

/// Whether they have the same gradients of parameters.
template <class A, class B>
bool same_gradients(A& a, B& b) {
  const auto of_a = a.parameters();
  const auto of_b = b.parameters();
  bool same = of_a.size() == of_b.size();
  for (std::size_t i = 0; same && i < of_a.size(); ++i) same = same_bits(of_a[i].gradient, of_b[i].gradient);
  return same;
}

/// Whether they have the same running statistics and counters.
template <class A, class B>
bool same_buffers(A& a, B& b) {
  const auto of_a = a.buffers();
  const auto of_b = b.buffers();
  bool same = of_a.size() == of_b.size();
  for (std::size_t i = 0; same && i < of_a.size(); ++i) {
    same = of_a[i].name == of_b[i].name && same_bits(of_a[i].value, of_b[i].value) &&
           (of_a[i].count == nullptr) == (of_b[i].count == nullptr) &&
           (of_a[i].count == nullptr || *of_a[i].count == *of_b[i].count);
  }
  return same;
}

}  // namespace compare
