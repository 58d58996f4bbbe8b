#pragma once

#include <cstdint>  // uint64_t
#include <functional>
#include <map>
#include <memory>  // unique_ptr
#include <string>
#include <type_traits>  // conditional_t
#include <utility>      // move
#include <vector>

#include "evenkeel/core/mode.hpp"       // Mode
#include "evenkeel/core/parameter.hpp"  // Parameters, Buffers
#include "evenkeel/core/view.hpp"       // StridedMap
#include "evenkeel/core/workspace.hpp"  // Workspace
#include "layers/reference.hpp"         // Numbers

/// The layers in one table, for the laws that hold for all of them.
namespace laws {

namespace ek = evenkeel;
using ek::Index;
using reference::Numbers;

/// Any layer, as a value, and a layer itself.
template <typename Scalar_>
class AnyLayer {
 public:
  using Scalar = Scalar_;
  using Matrix = ek::Matrix<Scalar>;
  using In = ek::StridedMap<const Scalar>;
  using Out = ek::StridedMap<Scalar>;
  using Other = std::conditional_t<std::is_same_v<Scalar, double>, float, double>;

  template <class Layer>
  explicit AnyLayer(Layer layer) : held_{std::make_unique<Holder<Layer>>(std::move(layer))} {}
  AnyLayer(const AnyLayer& other) : held_{other.held_->copy()} {}
  AnyLayer& operator=(const AnyLayer& other) {
    held_ = other.held_->copy();
    return *this;
  }

  void forward(const Matrix& x, Matrix& y, ek::Mode mode) { held_->forward(in(x), out(y), mode); }
  void backward(const Matrix& x, const Matrix& dy, Matrix& dx, ek::Accumulate accumulate = ek::Accumulate::no) {
    held_->backward(in(x), in(dy), out(dx), accumulate);
  }
  void backward_parameters(const Matrix& x, const Matrix& dy, ek::Accumulate accumulate = ek::Accumulate::no) {
    held_->backward_parameters(in(x), in(dy), accumulate);
  }
  void forward(const In& x, Out y, ek::Mode mode) { held_->forward(x, y, mode); }
  void backward(const In& x, const In& dy, Out dx, ek::Accumulate accumulate = ek::Accumulate::no) {
    held_->backward(x, dy, dx, accumulate);
  }
  void backward_parameters(const In& x, const In& dy, ek::Accumulate accumulate) {
    held_->backward_parameters(x, dy, accumulate);
  }
  void infer(const In& x, Out y, ek::Workspace<Scalar>& workspace) const { held_->infer(x, y, workspace); }
  void check_input(Index rows, Index columns, ek::Mode mode, const char* function) const {
    held_->check_input(rows, columns, mode, function);
  }
  const Matrix& forward(const Matrix& x, ek::Mode mode) { return held_->forward(x, mode); }
  const Matrix& backward(const Matrix& dy, ek::Accumulate accumulate = ek::Accumulate::no) {
    return held_->backward(dy, accumulate);
  }
  void infer(const Matrix& x, Matrix& y, ek::Workspace<Scalar>& workspace) const {
    held_->infer(in(x), out(y), workspace);
  }
  Matrix infer(const Matrix& x) const { return held_->infer(x); }

  Index output_features(Index features) const { return held_->output_features(features); }
  ek::Parameters<Scalar> parameters() { return held_->parameters(); }
  ek::Buffers<Scalar> buffers() { return held_->buffers(); }
  std::string name() const { return held_->name(); }

  /// The same layer in the other of float and double.
  AnyLayer<Other> cast() const { return held_->cast(); }

  /// Parameters and running statistics by their names, and all counters there are.
  std::map<std::string, Numbers> state() {
    std::map<std::string, Numbers> all;
    for (const auto& parameter : parameters()) all[parameter.name] = reference::exact(parameter.value);
    for (const auto& buffer : buffers())
      all[buffer.name] = buffer.count ? Numbers::Constant(1, 1, static_cast<long double>(*buffer.count))
                                      : reference::exact(buffer.value);
    all["calls"] = Numbers::Constant(1, 1, static_cast<long double>(held_->calls()));
    return all;
  }
  /// The gradients of all parameters, one after another.
  std::vector<Matrix> gradients() {
    std::vector<Matrix> all;
    for (const auto& parameter : parameters()) all.emplace_back(parameter.gradient);
    return all;
  }

 private:
  static In in(const Matrix& m) { return {m.data(), m.rows(), m.cols(), {m.cols(), 1}}; }
  static Out out(Matrix& m) { return {m.data(), m.rows(), m.cols(), {m.cols(), 1}}; }

  struct Interface {
    virtual ~Interface() = default;
    virtual std::unique_ptr<Interface> copy() const = 0;
    virtual void forward(const In& x, Out y, ek::Mode mode) = 0;
    virtual void backward(const In& x, const In& dy, Out dx, ek::Accumulate accumulate) = 0;
    virtual void backward_parameters(const In& x, const In& dy, ek::Accumulate accumulate) = 0;
    virtual const Matrix& forward(const Matrix& x, ek::Mode mode) = 0;
    virtual const Matrix& backward(const Matrix& dy, ek::Accumulate accumulate) = 0;
    virtual void infer(const In& x, Out y, ek::Workspace<Scalar>& workspace) const = 0;
    virtual Matrix infer(const Matrix& x) const = 0;
    virtual Index output_features(Index features) const = 0;
    virtual void check_input(Index rows, Index columns, ek::Mode mode, const char* function) const = 0;
    virtual ek::Parameters<Scalar> parameters() = 0;
    virtual ek::Buffers<Scalar> buffers() = 0;
    virtual std::string name() const = 0;
    virtual AnyLayer<Other> cast() const = 0;
    virtual std::uint64_t calls() const = 0;
  };

  template <class Layer>
  struct Holder final : Interface {
    explicit Holder(Layer held) : layer{std::move(held)} {}
    std::unique_ptr<Interface> copy() const override { return std::make_unique<Holder>(layer); }
    void forward(const In& x, Out y, ek::Mode mode) override { layer.forward(x, y, mode); }
    void backward(const In& x, const In& dy, Out dx, ek::Accumulate accumulate) override {
      layer.backward(x, dy, dx, accumulate);
    }
    void backward_parameters(const In& x, const In& dy, ek::Accumulate accumulate) override {
      layer.backward_parameters(x, dy, accumulate);
    }
    const Matrix& forward(const Matrix& x, ek::Mode mode) override { return layer.forward(x, mode); }
    const Matrix& backward(const Matrix& dy, ek::Accumulate accumulate) override {
      return layer.backward(dy, accumulate);
    }
    void infer(const In& x, Out y, ek::Workspace<Scalar>& workspace) const override { layer.infer(x, y, workspace); }
    Matrix infer(const Matrix& x) const override { return layer.infer(x); }
    Index output_features(Index features) const override { return layer.output_features(features); }
    void check_input(Index rows, Index columns, ek::Mode mode, const char* function) const override {
      layer.check_input(rows, columns, mode, function);
    }
    ek::Parameters<Scalar> parameters() override {
      if constexpr (requires { layer.parameters(); })
        return layer.parameters();
      else
        return {};
    }
    ek::Buffers<Scalar> buffers() override {
      if constexpr (requires { layer.buffers(); })
        return layer.buffers();
      else
        return {};
    }
    std::string name() const override { return Layer::name; }
    AnyLayer<Other> cast() const override { return AnyLayer<Other>(layer.template cast<Other>()); }
    std::uint64_t calls() const override {
      if constexpr (requires { layer.calls(); })
        return layer.calls();
      else
        return 0;
    }

    Layer layer;
  };

  std::unique_ptr<Interface> held_;
};

/// A row of the table.
template <typename Scalar>
struct Member {
  std::string name;
  Index features;          // of the input that the laws use
  AnyLayer<Scalar> layer;  // fresh, but for parameters and running statistics, which are anything but ones and zeros
  bool rows_apart;         // whether each row of a training output depends on its own row only
  std::string input;       // the input it asks for in messages; empty if it takes any

  /// Output of the first forward, from the layer's state() before it.
  std::function<Numbers(const std::map<std::string, Numbers>& state, const Numbers& x, ek::Mode mode)> equation;
};

/// All layers with all their variants.
template <typename Scalar>
std::vector<Member<Scalar>> members();

}  // namespace laws
