#pragma once

#include <cstddef>  // size_t
#include <cstdint>  // uint64_t
#include <string>   // to_string
#include <tuple>
#include <type_traits>  // is_same_v
#include <utility>      // index_sequence, move

#include "evenkeel/layers/residual_base.hpp"  // ResidualBase

namespace evenkeel {

struct ResidualOptions {
  NormPlace norm = NormPlace::before;  ///< Whether the norm stands before the branch, or behind the addition.
  double dropout = 0;                  ///< Of the branch's output, in [0, 1].
  std::uint64_t seed = 0;              ///< Of the masks.
};

/// A residual connection around a branch f, any layer or network that gives as many features as it takes, with a norm.
///
///     y = x + drop(f(norm(x)))        NormPlace::before
///     y = norm(x + drop(f(x)))        NormPlace::after
///
///     ek::Residual block{ek::LayerNorm<float>(64),
///                        ek::sequential(ek::Linear<float>(64, 256), ek::ReLU<float>(), ek::Linear<float>(256, 64)),
///                        {.dropout = 0.1, .seed = 1}};
///
/// Shapes  input, output and their gradients: (batch, features).
/// Modes   those of dropout, the norm and the branch.
/// Masks   those of a Dropout with the path "dropout" in the block.
/// Names   of parameters: "branch.0.weight", ..., "norm.weight", ...
/// Source  before: Xiong et al. 2020, figure 1b, https://arxiv.org/abs/2002.04745; after: Vaswani et al. 2017, sections 3.1 and
///         5.4 (dropout), https://arxiv.org/abs/1706.03762.
/// Blocks with the norm before want a norm behind the last of them: PreNormStack has it, and fuses the addition of each block
/// with the norm of the next.
template <Layer NormLayer, Layer Branch>
class Residual final : public ResidualBase<Residual<NormLayer, Branch>, NormLayer> {
  using Base = ResidualBase<Residual, NormLayer>;

 public:
  using Scalar = typename NormLayer::Scalar;
  static constexpr const char* name = "Residual";
  static_assert(std::is_same_v<Scalar, typename Branch::Scalar>, "norm and branch must have the same Scalar");

  /// Throws ShapeError where norm and branch do not fit, std::invalid_argument for a dropout outside [0, 1].
  Residual(NormLayer norm, Branch branch, ResidualOptions options = {})
      : Base(options.norm, {std::move(norm)}, 1, options.dropout, options.seed),
        branch_(std::move(branch)),
        options_{options} {
    this->join();
  }

  const NormLayer& norm() const { return Base::norm(0); }
  const Branch& branch() const { return branch_; }
  Branch& branch() { return branch_; }

  Index branch_count() const { return 1; }
  template <class F>
  void visit(Index, F&& f) {
    f(branch_);
  }
  template <class F>
  void visit(Index, F&& f) const {
    f(branch_);
  }
  static std::string branch_path(Index) { return "branch"; }
  static std::string norm_path(Index) { return "norm"; }
  static std::string dropout_path(Index) { return "dropout"; }

  template <Real U>
  auto cast() const requires requires(const NormLayer& norm, const Branch& branch) {
    norm.template cast<U>();
    branch.template cast<U>();
  }
  {
    Residual<decltype(norm().template cast<U>()), decltype(branch_.template cast<U>())> result(
        norm().template cast<U>(), branch_.template cast<U>(), options_);
    this->cast_into(result);
    return result;
  }

 private:
  Branch branch_;
  ResidualOptions options_;
};

template <Layer NormLayer, Layer Branch>
Residual(NormLayer, Branch, ResidualOptions = {}) -> Residual<NormLayer, Branch>;

struct PreNormStackOptions {
  double dropout = 0;      ///< Of each branch's output, in [0, 1].
  std::uint64_t seed = 0;  ///< Of the masks.
};

/// Residual connections one behind another, each with its norm before the branch, and a norm behind the last.
///
///     h = x;   h = h + drop(f(norm(h))) for each branch f;   y = norm(h)
///
///     ek::PreNormStack stack(ek::LayerNorm<float>(64), {.dropout = 0.1, .seed = 1}, branch, another_branch);
///
/// Each addition is one kernel with the norm behind it. The same function as a Sequential of as many Residual and a norm.
///
/// Shapes  input, output and their gradients: (batch, features).
/// Modes   those of dropout, the norms and the branches.
/// Masks   those of a Dropout with the path "i.dropout" in the stack.
/// Names   of parameters: "0.branch.weight", ..., "0.norm.weight", ..., "norm.weight", the last norm's.
/// Source  Xiong et al. 2020, figure 1b and table 1 (the final norm), https://arxiv.org/abs/2002.04745.
template <Layer NormLayer, Layer... Branches>
class PreNormStack final : public ResidualBase<PreNormStack<NormLayer, Branches...>, NormLayer> {
  using Base = ResidualBase<PreNormStack, NormLayer>;

 public:
  using Scalar = typename NormLayer::Scalar;
  static constexpr const char* name = "PreNormStack";
  static_assert(sizeof...(Branches) > 0, "a stack needs a branch");
  static_assert((std::is_same_v<Scalar, typename Branches::Scalar> && ...), "all must have the same Scalar");

  /// Each norm starts as the one given. Throws ShapeError where norm and branches do not fit, std::invalid_argument for a
  /// dropout outside [0, 1].
  PreNormStack(NormLayer norm, PreNormStackOptions options, Branches... branches)
      : Base(NormPlace::before, std::vector<NormLayer>(sizeof...(Branches) + 1, norm), sizeof...(Branches),
             options.dropout, options.seed),
        branches_(std::move(branches)...),
        options_{options} {
    this->join();
  }

  template <std::size_t I>
  auto& branch() {
    return std::get<I>(branches_);
  }
  template <std::size_t I>
  const auto& branch() const {
    return std::get<I>(branches_);
  }

  Index branch_count() const { return static_cast<Index>(sizeof...(Branches)); }
  template <class F>
  void visit(Index i, F&& f) {
    visit(branches_, i, f, std::index_sequence_for<Branches...>());
  }
  template <class F>
  void visit(Index i, F&& f) const {
    visit(branches_, i, f, std::index_sequence_for<Branches...>());
  }
  static std::string branch_path(Index i) { return std::to_string(i) + ".branch"; }
  static std::string norm_path(Index i) {
    return i < static_cast<Index>(sizeof...(Branches)) ? std::to_string(i) + ".norm" : "norm";
  }
  static std::string dropout_path(Index i) { return std::to_string(i) + ".dropout"; }

  template <Real U>
  auto cast() const requires requires(const NormLayer& norm, const Branches&... each) {
    norm.template cast<U>();
    std::tuple{each.template cast<U>()...};
  }
  {
    return std::apply(
        [&](const auto&... each) {
          PreNormStack<decltype(this->norm(0).template cast<U>()), decltype(each.template cast<U>())...> result(
              this->norm(0).template cast<U>(), options_, each.template cast<U>()...);
          this->cast_into(result);
          return result;
        },
        branches_);
  }

 private:
  template <class Tuple, class F, std::size_t... I>
  static void visit(Tuple& branches, Index i, F& f, std::index_sequence<I...>) {
    ((static_cast<Index>(I) == i ? f(std::get<I>(branches)) : void()), ...);
  }

  std::tuple<Branches...> branches_;
  PreNormStackOptions options_;
};

template <Layer NormLayer, Layer... Branches>
PreNormStack(NormLayer, PreNormStackOptions, Branches...) -> PreNormStack<NormLayer, Branches...>;

}  // namespace evenkeel
