#pragma once

#include <array>
#include <cstddef>  // size_t
#include <cstdint>  // uint64_t
#include <string>
#include <utility>  // move
#include <vector>

#include "evenkeel/core/buffer.hpp"            // Buffer
#include "evenkeel/core/error.hpp"             // EVENKEEL_THROW
#include "evenkeel/kernels/residual_norm.hpp"  // the arithmetic
#include "evenkeel/layers/layer_base.hpp"      // LayerBase
#include "evenkeel/layers/mask_source.hpp"     // MaskSource
#include "evenkeel/network/composite.hpp"      // Composite
#include "evenkeel/network/layer.hpp"          // name_of, Accumulates

namespace evenkeel {

/// Where the norm of a residual connection stands.
enum class NormPlace {
  before,  ///< Pre-norm: x + drop(f(norm(x))). The stream itself is never normalized: a norm behind the last block is needed.
  after  ///< Post-norm: norm(x + drop(f(x))). Wants a warm-up of the learning rate.
};

namespace detail {

/// Where the output of a branch is added to the stream.
template <Real Scalar>
class Joint final : public MaskSource {
 public:
  using MaskSource::MaskSource;

  /// To be called by each forward: what is dropped in it.
  kernels::BranchDropout<Scalar> draw(Mode mode, Index elements) {
    begin_call(mode);
    if (masked()) mask_.resize(kernels::mask_words(elements));
    return dropout();
  }
  /// What was dropped in the last.
  kernels::BranchDropout<Scalar> dropout() {
    if (!masked()) return {};
    return {key(), scale<Scalar>(), mask_.data()};
  }
  using MaskSource::masked;

  Buffer<Scalar> sum;  // (batch, features), of the last forward

 private:
  Buffer<std::uint64_t> mask_;  // of the last forward
};

/// The norms whose work a fused kernel can do.
template <class NormLayer>
concept RowNormLayer = requires(NormLayer& norm) {
  norm.row_norm(Index{});
};

}  // namespace detail

/// Branches one behind another along a stream of activations, each with its norm: what Residual, PreNormStack and
/// TransformerBlock share. Where the norm is a LayerNorm or an RMSNorm, each addition, with the dropout before it and the norm
/// behind it, is one kernel; any other norm layer is run by itself. Derived supplies
///
///     Index branch_count() const
///     void visit(i, f)                                        const and not: calls f with branch i
///     static std::string branch_path(i), norm_path(i), dropout_path(i)     in names of parameters and random streams
template <class Derived, class NormLayer>
class ResidualBase : public Composite<Derived, LayerBase<Derived, typename NormLayer::Scalar>> {
 public:
  using Scalar = typename NormLayer::Scalar;
  static_assert(Real<Scalar>, "residual connections are of float, double or long double: halves can be cast<float>()");

  Index output_features(Index input_features) const { return input_features; }

  /// What the norm takes, or else the first branch with a fixed number of input features; else -1.
  Index input_features() const {
    Index features = -1;
    const auto ask = [&](const auto& part) {
      if constexpr (requires { part.input_features(); })
        if (features < 0) features = part.input_features();
    };
    ask(norm(0));
    for (Index i = 0; i < count(); ++i) self().visit(i, ask);
    return features;
  }

  void check_input(Index rows, Index columns, Mode mode, const char* function) const {
    const Index features = input_features();
    if (features >= 0) detail::check_columns(Derived::name, function, features, rows, columns);
    each_part(self(), [&](const auto& part, const std::string& path) {
      if constexpr (requires { part.check_input(rows, columns, mode, function); })
        part.check_input(rows, columns, mode, detail::CallInPart(function, part_is, path).c_str());
    });
    check_widths(columns);
  }

 protected:
  /// `norms`: one for each branch and, with NormPlace::before, perhaps one behind the last.
  ResidualBase(NormPlace place, std::vector<NormLayer> norms, Index branches, double dropout, std::uint64_t seed)
      : place_{place},
        norms_(std::move(norms)),
        normalized_(norms_.size()),
        joints_(static_cast<std::size_t>(branches), Joint(dropout, seed, Derived::name, "dropout")) {}

  /// To be called at the end of the constructor. Throws ShapeError where a branch does not give what it is added to.
  void join() {
    const Index features = input_features();
    if (features >= 0) check_widths(features);
    self().set_stream("");
  }

  NormPlace place() const { return place_; }
  const NormLayer& norm(Index i) const { return norms_[static_cast<std::size_t>(i)]; }

  /// Gives another of the same parts, in another scalar type, the norms and the state of the dropouts.
  template <class Other>
  void cast_into(Other& other) const {
    for (std::size_t i = 0; i < norms_.size(); ++i) other.norms_[i] = norms_[i].template cast<typename Other::Scalar>();
    for (std::size_t i = 0; i < joints_.size(); ++i) static_cast<detail::MaskSource&>(other.joints_[i]) = joints_[i];
    other.set_stream(this->path());
  }

 private:
  friend LayerBase<Derived, Scalar>;
  friend Composite<Derived, LayerBase<Derived, Scalar>>;
  template <class, class>
  friend class ResidualBase;
  using Joint = detail::Joint<Scalar>;
  static constexpr const char* part_is = "";
  static constexpr bool fused = detail::RowNormLayer<NormLayer>;

  Derived& self() { return static_cast<Derived&>(*this); }
  const Derived& self() const { return static_cast<const Derived&>(*this); }
  Index count() const { return self().branch_count(); }
  Joint& joint(Index i) { return joints_[static_cast<std::size_t>(i)]; }
  NormLayer& changeable_norm(Index i) { return norms_[static_cast<std::size_t>(i)]; }
  bool has_norm(Index i) const { return i < static_cast<Index>(norms_.size()); }

  /// Calls f(part, path) for every branch, then every norm, then every dropout.
  template <class Self, class F>
  static void each_part(Self& self, const F& f) {
    for (Index i = 0; i < self.count(); ++i) self.visit(i, [&](auto& branch) { f(branch, Derived::branch_path(i)); });
    Index i = 0;
    for (auto& norm : self.norms_) f(norm, Derived::norm_path(i++));
    i = 0;
    for (auto& joint : self.joints_) f(joint, Derived::dropout_path(i++));
  }

  void check_widths(Index features) const {
    for (Index i = 0; i < count(); ++i)
      self().visit(i, [&](const auto& branch) {
        Index expected = features;
        if constexpr (requires { branch.input_features(); })
          if (branch.input_features() >= 0) expected = branch.input_features();
        if (expected != features)
          EVENKEEL_THROW(ShapeError, Derived::name, ": expected ", Derived::branch_path(i), " (", name_of(branch),
                         ") to take ", features, " features, got one for ", expected);
        if (branch.output_features(features) != features)
          EVENKEEL_THROW(ShapeError, Derived::name, ": expected ", Derived::branch_path(i), " (", name_of(branch),
                         ") to give the ", features, " features that it is added to, got ",
                         branch.output_features(features));
      });
  }

  static constexpr bool needs_input() { return true; }

  /// The output of norm i, of the last forward.
  View<Scalar> normalized(Index i, Index rows, Index columns) {
    return normalized_[static_cast<std::size_t>(i)].matrix(rows, columns);
  }

  // The steps of a forward.

  void add(View<const Scalar> x, View<const Scalar> branch, const kernels::BranchDropout<Scalar>& dropout,
           View<Scalar> sum) {
    auto* scratch = scratch_.resize(kernels::residual_forward_scratch<Scalar>(x, branch, sum, sum));
    kernels::residual_forward(x, branch, dropout, sum, scratch);
  }
  void add_and_normalize(View<const Scalar> x, View<const Scalar> branch, const kernels::BranchDropout<Scalar>& dropout,
                         NormLayer& norm, View<Scalar> sum, View<Scalar> y, [[maybe_unused]] Mode mode) {
    if constexpr (fused) {
      auto* scratch = scratch_.resize(kernels::residual_forward_scratch<Scalar>(x, branch, sum, y));
      kernels::residual_norm_forward(x, branch, dropout, norm.row_norm(x.rows), sum, y, scratch);
    } else {
      add(x, branch, dropout, sum);
      norm.forward(as_map(View<const Scalar>(sum)), as_map(y), mode);
    }
  }

  void run_forward(View<const Scalar> x, View<Scalar> y, Mode mode) {
    const bool before = place_ == NormPlace::before;
    View<const Scalar> stream = x, input = x;  // input: of a branch
    if (before) {
      const View<Scalar> first = normalized(0, x.rows, x.columns);
      changeable_norm(0).forward(as_map(x), as_map(first), mode);
      input = first;
    }
    for (Index i = 0; i < count(); ++i) {
      const bool last = i + 1 == count();
      const Index behind = before ? i + 1 : i;  // the norm behind this addition
      const View<Scalar> sum = has_norm(behind) ? joint(i).sum.matrix(x.rows, x.columns) : y;
      self().visit(i, [&](auto& branch) { branch.forward(as_map(input), as_map(sum), mode); });
      const auto dropout = joint(i).draw(mode, x.size());
      if (!has_norm(behind)) return add(stream, sum, dropout, sum);
      const View<Scalar> output = last ? y : normalized(behind, x.rows, x.columns);
      add_and_normalize(stream, sum, dropout, changeable_norm(behind), sum, output, mode);
      input = output;
      stream = before ? sum : output;
    }
  }

  // The steps of a backward.

  /// Of norm i with the addition before it: from the gradient dy on its output, and `other` on its input, that on its input to dx and,
  /// where something was dropped, that on the branch's output to dbranch. Returns the latter.
  View<const Scalar> back_through_norm(Index i, View<const Scalar> x, View<const Scalar> dy, View<const Scalar> other,
                                       Joint* joint, View<Scalar> dx, View<Scalar> dbranch, Accumulate accumulate) {
    kernels::BranchDropout<Scalar> dropout;
    if (joint != nullptr) dropout = joint->dropout();
    if (dropout.mask == nullptr) dbranch = {};
    auto* scratch = scratch_.resize(kernels::residual_backward_scratch<Scalar>(x.rows, x.columns));
    if constexpr (fused) {
      kernels::residual_norm_backward(x, dy, other, dropout, changeable_norm(i).row_norm(x.rows), dx, dbranch,
                                      accumulate, scratch);
    } else {
      const View<Scalar> gradient = gradients_[3].matrix(x.rows, x.columns);
      run_back(changeable_norm(i), x, dy, gradient, accumulate);
      if (other.data != nullptr)
        as_map(dx) = as_map(gradient) + as_map(other);
      else
        as_map(dx) = as_map(gradient);
      if (dbranch.data != nullptr) kernels::residual_backward<Scalar>(dx, dropout, dbranch, scratch);
    }
    return dbranch.data == nullptr ? dx : dbranch;
  }

  /// A layer's backward; dx may be without data.
  template <class L>
  void run_back(L& layer, View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    if constexpr (requires { layer.backward_parameters(as_map(x), as_map(dy), accumulate); })
      if (dx.data == nullptr) return layer.backward_parameters(as_map(x), as_map(dy), accumulate);
    if (dx.data == nullptr) dx = gradients_[3].matrix(x.rows, x.columns);
    if constexpr (Accumulates<L>)
      layer.backward(as_map(x), as_map(dy), as_map(dx), accumulate);
    else
      layer.backward(as_map(x), as_map(dy), as_map(dx));
  }

  void run_backward(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    if (accumulate == Accumulate::yes) this->check_accumulation();
    if (place_ == NormPlace::before)
      run_backward_before(x, dy, dx, accumulate);
    else
      run_backward_after(x, dy, dx, accumulate);
  }

  void run_backward_before(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    const Index last = count() - 1;
    const auto room = [&](std::size_t k) { return gradients_[k].matrix(x.rows, x.columns); };
    const auto stream_before = [&](Index i) -> View<const Scalar> {
      return i == 0 ? x : joint(i - 1).sum.matrix(x.rows, x.columns);
    };
    View<const Scalar> on_stream = dy, on_branch = dy;
    if (has_norm(last + 1)) {
      on_branch =
          back_through_norm(last + 1, stream_before(last + 1), dy, {}, &joint(last), room(0), room(1), accumulate);
      on_stream = room(0);
    } else if (joint(last).masked()) {
      auto* scratch = scratch_.resize(kernels::residual_backward_scratch<Scalar>(x.rows, x.columns));
      kernels::residual_backward(dy, joint(last).dropout(), room(1), scratch);
      on_branch = room(1);
    }
    for (Index i = last; i >= 0; --i) {
      const View<Scalar> on_normalized = room(2);
      self().visit(i, [&](auto& branch) {
        run_back(branch, normalized(i, x.rows, x.columns), on_branch, on_normalized, accumulate);
      });
      if (i > 0) {
        on_branch = back_through_norm(i, stream_before(i), on_normalized, on_stream, &joint(i - 1), room(0), room(1),
                                      accumulate);
        on_stream = room(0);
      } else if (dx.data != nullptr) {
        back_through_norm(0, x, on_normalized, on_stream, nullptr, dx, {}, accumulate);
      } else {
        run_back(changeable_norm(0), x, on_normalized, View<Scalar>{}, accumulate);
      }
    }
  }

  void run_backward_after(View<const Scalar> x, View<const Scalar> dy, View<Scalar> dx, Accumulate accumulate) {
    const auto room = [&](std::size_t k) { return gradients_[k].matrix(x.rows, x.columns); };
    View<const Scalar> on_output = dy;
    for (Index i = count() - 1; i >= 0; --i) {
      const View<Scalar> on_sum = room(0);
      const View<const Scalar> on_branch = back_through_norm(i, joint(i).sum.matrix(x.rows, x.columns), on_output, {},
                                                             &joint(i), on_sum, room(1), accumulate);
      const View<const Scalar> input = i == 0 ? x : normalized(i - 1, x.rows, x.columns);
      const bool wanted = i > 0 || dx.data != nullptr;
      const View<Scalar> by_branch = wanted ? room(2) : View<Scalar>{};
      self().visit(i, [&](auto& branch) { run_back(branch, input, on_branch, by_branch, accumulate); });
      if (wanted) add(on_sum, by_branch, {}, i > 0 ? on_sum : dx);
      on_output = on_sum;
    }
  }

  void run_infer(View<const Scalar> x, View<Scalar> y, Workspace<Scalar>& workspace) const {
    const bool before = place_ == NormPlace::before;
    typename Workspace<Scalar>::Frame frame(workspace);
    const View<Scalar> branch_output = frame.take(x.rows, x.columns);
    const View<Scalar> room = before ? frame.take(x.rows, x.columns) : View<Scalar>{};
    const Index needed = kernels::residual_forward_scratch<Scalar>(x, branch_output, y, y);
    auto* scratch = needed > 0 ? frame.template take_array<Wide<Scalar>>(needed) : nullptr;
    View<const Scalar> stream = x, input = x;
    if (before) {
      norm(0).infer(as_map(x), as_map(room), workspace);
      input = room;
    }
    for (Index i = 0; i < count(); ++i) {  // the stream goes on in y
      self().visit(i, [&](const auto& branch) { branch.infer(as_map(input), as_map(branch_output), workspace); });
      const Index behind = before ? i + 1 : i;
      const View<Scalar> output = i + 1 == count() || !before ? y : room;
      if (!has_norm(behind)) {
        kernels::residual_forward<Scalar>(stream, branch_output, {}, y, scratch);
      } else if constexpr (fused) {
        kernels::residual_norm_forward(stream, View<const Scalar>(branch_output), {}, norm(behind).row_norm(), y,
                                       output, scratch);
      } else {
        const View<Scalar> sum = output.data == y.data ? branch_output : y;  // apart from the output
        kernels::residual_forward<Scalar>(stream, branch_output, {}, sum, scratch);
        norm(behind).infer(as_map(View<const Scalar>(sum)), as_map(output), workspace);
      }
      stream = y;
      input = output;
    }
  }

  NormPlace place_;
  std::vector<NormLayer> norms_;                     // one a branch, and perhaps one behind the last
  std::vector<detail::Buffer<Scalar>> normalized_;   // what each gave that is not the output, of the last forward
  std::vector<Joint> joints_;                        // one a branch
  std::array<detail::Buffer<Scalar>, 4> gradients_;  // on stream, branch output, branch input; for what nobody wants
  detail::Buffer<Wide<Scalar>> scratch_;             // of the kernels
};

}  // namespace evenkeel
