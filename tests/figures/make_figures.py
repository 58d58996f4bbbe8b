#!/usr/bin/python3
"""Writes what PyTorch computes, with the inputs, into the text files beside this one; the tests named pytorch_* read them.

    /usr/bin/python3 tests/figures/make_figures.py        needs torch (Debian, Ubuntu: python3-torch); takes seconds

Written with PyTorch 1.13. Another version or processor may change last digits, which the tests' tolerances allow for.

A file is a list of matrices: a line "name rows columns", then rows x columns numbers in row-major order. The names in a
case are "case.x" for an input, "case.dy" for the gradient of the loss by the output, "case.dx" for that by the input.

Inputs are multiples of 1/256 and short in decimal: exact in float and in double, so that one reference, computed in double,
serves the tests in both types. Where the float result of PyTorch itself is of interest it is named "case.y.float32".
"""

import pathlib

import torch
import torch.nn.functional as F
from torch.nn.utils import stateless

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)


class Figures:
    """One file of named matrices."""

    def __init__(self, name):
        self.path = pathlib.Path(__file__).with_name(name + ".txt")
        self.lines = []
        torch.manual_seed(sum(map(ord, name)))  # its own for each file: adding to one leaves the others as they are

    def add(self, **matrices):
        for name, matrix in matrices.items():
            self.set(name, matrix)

    def set(self, name, matrix):
        digits = 9 if getattr(matrix, "dtype", None) in (torch.float32, torch.bfloat16) else 17
        matrix = torch.as_tensor(matrix, dtype=torch.float64).detach()
        rows = matrix.reshape(1, -1) if matrix.dim() < 2 else matrix.reshape(matrix.shape[0], -1)
        self.lines.append(f"{name} {rows.shape[0]} {rows.shape[1]}")
        for row in rows:
            numbers = [f"{number:.{digits}g}" for number in row.tolist()]
            self.lines += [" ".join(numbers[i : i + 5]) for i in range(0, len(numbers), 5)]

    def part(self, name):
        return Part(self, name)

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")


class Part:
    """The matrices of one case, their names prefixed with its name."""

    def __init__(self, figures, name):
        self.figures, self.name = figures, name

    def add(self, **matrices):
        for name, matrix in matrices.items():
            self.set(name, matrix)

    def set(self, name, matrix):
        self.figures.set(f"{self.name}.{name}", matrix)

    def part(self, name):
        return Part(self.figures, f"{self.name}.{name}")


def draw(*shape, scale=1.0):
    """Normal, rounded to multiples of 1/256."""
    return torch.round(torch.randn(*shape) * scale * 256) / 256


def differentiate(part, function, x, dy=None, **parameters):
    """Adds x, dy, the parameters, y = function(x, parameters) and the gradients of sum(dy * y)."""
    x = x.clone().requires_grad_()
    parameters = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    y = function(x, **parameters)
    dy = draw(*y.shape) if dy is None else dy
    gradients = torch.autograd.grad(y, [x, *parameters.values()], dy)
    part.add(x=x, dy=dy, **parameters, y=y, dx=gradients[0])
    part.add(**{"d" + name: gradient for name, gradient in zip(parameters, gradients[1:])})


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    return F.layer_norm(x, x.shape[1:], weight, bias, eps)


def rms_norm(x, weight=None, eps=1e-5):
    y = x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps)
    return y if weight is None else y * weight


def norms():
    figures = Figures("layer_norm")
    weight, bias = draw(7), draw(7)
    x = draw(5, 7, scale=2) + 1
    differentiate(figures.part("default"), layer_norm, x, weight=weight, bias=bias)
    differentiate(figures.part("wide"), layer_norm, draw(3, 37), weight=draw(37), bias=draw(37))
    differentiate(figures.part("epsilon"), lambda *a, **k: layer_norm(*a, **k, eps=0.125), x, weight=weight, bias=bias)
    differentiate(figures.part("weight_only"), layer_norm, x, weight=weight)
    differentiate(figures.part("bias_only"), layer_norm, x, bias=bias)
    differentiate(figures.part("bare"), layer_norm, x)
    figures.write()

    figures = Figures("rms_norm")
    differentiate(figures.part("default"), rms_norm, x, weight=weight)
    differentiate(figures.part("wide"), rms_norm, draw(3, 37), weight=draw(37))
    differentiate(figures.part("epsilon"), lambda *a, **k: rms_norm(*a, **k, eps=0.125), x, weight=weight)
    differentiate(figures.part("unit_offset"), lambda x, weight: rms_norm(x, 1 + weight), x, weight=weight)
    differentiate(figures.part("bare"), rms_norm, x)
    figures.write()


def hard_norms():
    """Rows and columns whose mean is far from zero for their spread: inputs are floats, references are in double."""
    figures = Figures("hard_norm")
    spread = 1e4 + 0.01 * torch.randn(3, 20)
    x = torch.cat([spread, -spread[:1], 1e7 + 4 * torch.randn(1, 20), 1e-6 * torch.randn(1, 20)]).float()
    weight, bias, dy = draw(20), draw(20), draw(len(x), 20)
    for name, function, parameters in [
        ("layer_norm", layer_norm, {"weight": weight, "bias": bias}),
        ("rms_norm", rms_norm, {"weight": weight}),
    ]:
        differentiate(figures.part(name), function, x.double(), dy=dy, **parameters)
    figures.set("layer_norm.y.float32", layer_norm(x, weight.float(), bias.float()))

    part = figures.part("batch_norm")
    x = (torch.tensor([1e4, -1e4, 1e7, 1e-3]) + torch.tensor([0.01, 0.01, 4, 1e-6]) * torch.randn(24, 4)).float()
    layer = torch.nn.BatchNorm1d(4)
    set_parameters(layer)
    differentiate_layer(part, layer, x.double())
    layer.float()
    part.set("y.float32", layer(x))
    figures.write()


def set_parameters(module):
    for parameter in module.parameters():
        parameter.data = draw(*parameter.shape).to(parameter.dtype)


def differentiate_layer(part, layer, x):
    """The same as differentiate, for a module; running statistics that it tracks are added as they are after the call."""
    x = x.clone().requires_grad_()
    y = layer(x)
    dy = draw(*y.shape)
    parameters = dict(layer.named_parameters())
    gradients = torch.autograd.grad(y, [x, *parameters.values()], dy)
    part.add(x=x, dy=dy, **parameters, y=y, dx=gradients[0])
    part.add(**{"d" + name: gradient for name, gradient in zip(parameters, gradients[1:])})
    part.add(**{name: buffer for name, buffer in layer.named_buffers()})


def batch_norm():
    figures = Figures("batch_norm")
    for name, layer, shape, batches in [
        ("default", torch.nn.BatchNorm1d(3), (3,), (5, 4, 6)),
        ("epsilon", torch.nn.BatchNorm1d(3, eps=0.125), (3,), (5,)),
        ("momentum", torch.nn.BatchNorm1d(3, momentum=0.3), (3,), (5, 4)),
        ("cumulative", torch.nn.BatchNorm1d(3, momentum=None), (3,), (5, 4, 6)),
        ("no_affine", torch.nn.BatchNorm1d(3, affine=False), (3,), (5, 4)),
        ("untracked", torch.nn.BatchNorm1d(3, track_running_stats=False), (3,), (5,)),
        ("many_rows", torch.nn.BatchNorm1d(1), (1,), (150,)),
        ("positions", torch.nn.BatchNorm2d(3), (3, 2, 3), (4, 2)),
        ("one_example", torch.nn.BatchNorm2d(3), (3, 2, 2), (1,)),
    ]:
        set_parameters(layer)
        layer.train()
        for i, rows in enumerate(batches):
            offset = draw(*shape)  # the channels have means of their own
            differentiate_layer(figures.part(f"{name}.{i}"), layer, 2 * draw(rows, *shape) + offset)
        layer.eval()
        differentiate_layer(figures.part(f"{name}.eval"), layer, draw(3, *shape))
    figures.write()


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    return F.group_norm(x, groups, weight, bias, eps)


def group_and_instance_norm():
    figures = Figures("group_norm")
    for name, groups, shape, options in [
        ("features", 3, (12,), {}),
        ("positions", 2, (4, 3), {}),
        ("many_positions", 2, (4, 5, 6), {}),
        ("one_group", 1, (3, 2, 3), {}),
        ("epsilon", 2, (4, 3), {"eps": 0.125}),
        ("no_affine", 2, (4, 3), {}),
    ]:
        parameters = {} if name == "no_affine" else {"weight": draw(shape[0]), "bias": draw(shape[0])}
        function = lambda x, **k: group_norm(x, groups, **k, **options)
        differentiate(figures.part(name), function, draw(4, *shape, scale=2) + 1, **parameters)
    figures.write()

    figures = Figures("instance_norm")
    for name, layer, shape, batches in [
        ("default", torch.nn.InstanceNorm2d(3), (3, 2, 3), (4,)),
        ("affine", torch.nn.InstanceNorm1d(3, affine=True), (3, 5), (4,)),
        ("one_example", torch.nn.InstanceNorm2d(2, eps=0.125, affine=True), (2, 5, 6), (1,)),
        ("tracked", torch.nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (3, 5), (4, 3)),
        ("momentum", torch.nn.InstanceNorm1d(3, momentum=0.3, track_running_stats=True), (3, 5), (4, 3)),
    ]:
        set_parameters(layer)
        layer.train()
        for i, rows in enumerate(batches):
            offset = draw(shape[0], *(1 for _ in shape[1:]))  # the channels have means of their own
            differentiate_layer(figures.part(f"{name}.{i}"), layer, 2 * draw(rows, *shape) + offset)
        layer.eval()
        differentiate_layer(figures.part(f"{name}.eval"), layer, draw(3, *shape))
    figures.write()


def linear():
    figures = Figures("linear")
    differentiate(figures.part("default"), F.linear, draw(5, 7), weight=draw(4, 7), bias=draw(4))
    differentiate(figures.part("wide"), F.linear, draw(5, 18), weight=draw(17, 18), bias=draw(17))
    differentiate(figures.part("no_bias"), F.linear, draw(5, 7), weight=draw(4, 7))
    figures.write()


def activation():
    figures = Figures("activation")
    small = [0.0, 2.0**-30, 0.125, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
    large = [16.0, 20.0, 40.0, 80.0, 100.0, 700.0, 1e4]
    x = torch.tensor([small + large, [-value for value in small + large]])
    dy = draw(*x.shape) + 3
    for name, function in {
        "relu": F.relu,
        "leaky_relu": F.leaky_relu,
        "leaky_relu_slope": lambda x: F.leaky_relu(x, 0.2),
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }.items():
        differentiate(figures.part(name), function, x, dy=dy)
    # F.gelu takes 1 + erf, which has no digits left far to the left; erfc has.
    tail = -torch.arange(1.0, 36.0).reshape(5, 7)
    differentiate(figures.part("gelu_tail"), lambda x: 0.5 * x * torch.special.erfc(-x * 0.5**0.5), tail)
    figures.write()


def loss():
    figures = Figures("loss")
    logits = 3 * draw(7, 5)
    logits[5] = torch.tensor([1000.0, -1000.0, 0.0, 999.0, 10.0])
    labels = torch.tensor([0, 4, 2, 2, 1, 3, 3])
    some = torch.tensor([0, -100, 2, -100, 1, 3, 3])
    for name, options in {
        "mean": {},
        "sum": {"reduction": "sum"},
        "smoothing": {"label_smoothing": 0.1},
        "smoothing_sum": {"label_smoothing": 0.1, "reduction": "sum"},
        "ignored": {"target": some},
        "ignored_sum": {"target": some, "reduction": "sum"},
        "ignored_smoothing": {"target": some, "label_smoothing": 0.1},
    }.items():
        options = {"target": labels, **options}
        differentiate_loss(figures.part("cross_entropy." + name), F.cross_entropy, logits, **options)
    differentiate(figures.part("softmax"), lambda x: torch.softmax(x, 1), logits)
    differentiate(figures.part("log_softmax"), lambda x: torch.log_softmax(x, 1), logits)

    for reduction in "mean", "sum":
        part = figures.part("mean_squared_error." + reduction)
        differentiate_loss(part, F.mse_loss, draw(6, 3), target=draw(6, 3), reduction=reduction)

    logits = torch.cat([3 * draw(6, 3), torch.tensor([[0.0, 100.0, -100.0], [1e4, -1e4, 1e4]])])
    hard = (draw(8, 3) > 0).double()
    soft = torch.round(torch.rand(8, 3) * 256) / 256
    for name, options in {
        "mean": {"target": hard},
        "sum": {"target": hard, "reduction": "sum"},
        "soft": {"target": soft},
    }.items():
        part = figures.part("binary_cross_entropy." + name)
        differentiate_loss(part, F.binary_cross_entropy_with_logits, logits, **options)
    figures.write()


def differentiate_loss(part, function, x, target, **options):
    x = x.clone().requires_grad_()
    value = function(x, target, **options)
    part.add(x=x, target=target, value=value, dx=torch.autograd.grad(value, x)[0])


def optimizers():
    figures = Figures("optimizer")
    shapes = {"weight": (3, 2), "bias": (3,)}
    start = {name: draw(*shape) for name, shape in shapes.items()}
    gradients = [{name: draw(*shape) for name, shape in shapes.items()} for _ in range(5)]
    figures.add(**{f"start.{name}": value for name, value in start.items()})
    for step, gradient in enumerate(gradients):
        figures.add(**{f"gradient.{step}.{name}": value for name, value in gradient.items()})

    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    for name, optimizer, options in [
        ("sgd", sgd, {"lr": 0.1}),
        ("sgd_momentum", sgd, {"lr": 0.1, "momentum": 0.9}),
        ("sgd_dampening", sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.25}),
        ("sgd_nesterov", sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        ("sgd_decay", sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5}),
        ("sgd_nesterov_decay", sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.5}),
        ("adam", adam, {}),
        ("adam_decay", adam, {"lr": 0.01, "weight_decay": 0.5}),
        ("adam_amsgrad", adam, {"lr": 0.01, "amsgrad": True}),
        ("adam_amsgrad_decay", adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.5}),
        ("adamw", adamw, {}),
        ("adamw_decay", adamw, {"lr": 0.01, "weight_decay": 3.0}),
        ("adamw_weights_only", adamw, {"lr": 0.01, "weight_decay": 3.0}),
        ("adamw_amsgrad", adamw, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.5}),
        ("adamw_betas", adamw, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 0.001}),
    ]:
        parameters = {key: value.clone().requires_grad_() for key, value in start.items()}
        groups = [{"params": [parameters["weight"]]}, {"params": [parameters["bias"]]}]
        if name.endswith("weights_only"):
            groups[1]["weight_decay"] = 0.0
        stepper = optimizer(groups, **{"lr": 0.001, **options})
        for step, gradient in enumerate(gradients):
            for key, parameter in parameters.items():
                parameter.grad = gradient[key].clone()
            stepper.step()
            figures.add(**{f"{name}.{step}.{key}": parameter for key, parameter in parameters.items()})
        for key, parameter in parameters.items():
            state = stepper.state[parameter]
            for moment in "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq":
                if state.get(moment) is not None:
                    figures.set(f"{name}.state.{key}.{moment}", state[moment])
    figures.write()


def clip():
    figures = Figures("clip")
    gradients = {"weight": draw(3, 4), "bias": draw(4)}
    figures.add(**gradients)
    for name, maximum in {"larger": 0.5, "smaller": 100.0}.items():
        parameters = {key: torch.zeros_like(value).requires_grad_() for key, value in gradients.items()}
        for key, parameter in parameters.items():
            parameter.grad = gradients[key].clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), maximum)
        figures.set(f"{name}.maximum", maximum)
        figures.set(f"{name}.norm", norm)
        for key, parameter in parameters.items():
            figures.set(f"{name}.{key}", parameter.grad)
    figures.write()


def network():
    """Five training steps of a small network; in "layer" only the weights of the linear layers decay."""
    figures = Figures("network")
    for name, norm in {"batch": torch.nn.BatchNorm1d(8), "layer": torch.nn.LayerNorm(8)}.items():
        part = figures.part(name)
        # BatchNorm takes a bias before it out again: its gradient is rounding errors, which Adam would blow up to full steps.
        first = torch.nn.Linear(6, 8, bias=name == "layer")
        net = torch.nn.Sequential(first, norm, torch.nn.ReLU(), torch.nn.Linear(8, 3))
        set_parameters(net)
        for key, parameter in net.named_parameters():
            part.set(f"start.{key}", parameter)
        decayed = [net[0].weight, net[3].weight]
        others = [parameter for parameter in net.parameters() if all(parameter is not other for other in decayed)]
        groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0 if name == "layer" else 0.5}]
        optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.5)
        net.train()
        for step, rows in enumerate((7, 7, 7, 7, 4)):
            x, labels = draw(rows, 6), torch.randint(3, (rows,))
            optimizer.zero_grad()
            value = F.cross_entropy(net(x), labels)
            value.backward()
            optimizer.step()
            part.part(str(step)).add(x=x, labels=labels, loss=value)
        net.eval()
        x = draw(4, 6)
        part.part("eval").add(x=x, y=net(x))
        for key, parameter in [*net.named_parameters(), *net.named_buffers()]:
            part.set(f"end.{key}", parameter)
    figures.write()


def recomputed_statistics():
    """What two BatchNorms of a network see in three batches, pooled; and what update_bn makes of the same."""
    figures = Figures("recomputed_statistics")
    norms = [torch.nn.BatchNorm1d(4), torch.nn.BatchNorm2d(2)]
    reshaped = torch.nn.Unflatten(1, (2, 3, 1))
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), norms[0], torch.nn.ReLU(), torch.nn.Linear(4, 6), reshaped, norms[1])
    set_parameters(net)
    for name in "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias":
        figures.set(name, net.get_parameter(name))
    batches = [2 * draw(rows, 3) + draw(3) for rows in (6, 6, 3)]
    figures.add(**{f"x{i}": x for i, x in enumerate(batches)})

    seen = {norm: [] for norm in norms}
    for norm in norms:
        norm.register_forward_pre_hook(lambda norm, x: seen[norm].append(x[0].transpose(0, 1).flatten(1)))
    torch.optim.swa_utils.update_bn(batches, net)
    for i, norm in enumerate(norms):
        values = torch.cat(seen[norm], dim=1)  # channels x values
        figures.set(f"{i}.mean", values.mean(dim=1))
        figures.set(f"{i}.variance", values.var(dim=1, unbiased=True))
        figures.set(f"{i}.update_bn.mean", norm.running_mean)
        figures.set(f"{i}.update_bn.variance", norm.running_var)
    figures.write()


def fold():
    figures = Figures("fold")
    for name, bias in {"bias": True, "no_bias": False}.items():
        part = figures.part(name)
        linear, norm = torch.nn.Linear(5, 4, bias=bias).eval(), torch.nn.BatchNorm1d(4, eps=0.0625).eval()
        set_parameters(linear)
        set_parameters(norm)
        norm.running_mean, norm.running_var = draw(4), draw(4) ** 2
        fused = torch.nn.utils.fusion.fuse_linear_bn_eval(linear, norm)
        x = draw(3, 5)
        part.add(**dict(linear.named_parameters(prefix="0")), **dict(norm.named_parameters(prefix="1")))
        part.add(mean=norm.running_mean, variance=norm.running_var, x=x, y=norm(linear(x)))
        part.add(**dict(fused.named_parameters(prefix="fused")))
    figures.write()


def transformer():
    """Three sequences of five tokens through torch.nn.TransformerEncoderLayer with a causal mask, in eval."""
    figures = Figures("transformer")
    sequences, positions, features = 3, 5, 8
    mask = torch.full((positions, positions), float("-inf")).triu(1)

    def rows(layer, **arguments):
        """The layer as a function of rows, each a token, and of parameters."""
        return lambda x, **parameters: stateless.functional_call(
            layer, parameters, (x.view(sequences, positions, features),), arguments
        ).reshape(-1, features)

    for name, norm_first, activation in [
        ("before_relu", True, "relu"), ("after_relu", False, "relu"), ("before_gelu", True, "gelu")
    ]:  # fmt: skip
        layer = torch.nn.TransformerEncoderLayer(
            features, 2, 12, activation=activation, norm_first=norm_first, batch_first=True
        ).eval()
        parameters = {key: draw(*value.shape, scale=0.5) for key, value in layer.named_parameters()}
        x = draw(sequences * positions, features)
        differentiate(figures.part(name), rows(layer, src_mask=mask), x, **parameters)
    figures.write()


def bfloat16():
    """Layers in bfloat16, parameters too, with the same in double under the names "case.y.float64" and "case.dx.float64"."""
    figures = Figures("bfloat16")
    for name, layer, x in [
        ("layer_norm", torch.nn.LayerNorm(40), draw(4, 40, scale=2) + 1),
        ("batch_norm", torch.nn.BatchNorm1d(6), draw(20, 6, scale=2) + 1),
        ("group_norm", torch.nn.GroupNorm(2, 8), draw(3, 8, 6) + 1),
        ("linear", torch.nn.Linear(40, 8), draw(5, 40)),
    ]:
        part = figures.part(name)
        set_parameters(layer)
        layer = layer.bfloat16()
        dy = draw(*layer(x.bfloat16()).shape).bfloat16()
        for dtype, suffix in (torch.bfloat16, ""), (torch.float64, ".float64"):
            layer, x = layer.to(dtype), x.bfloat16().to(dtype).requires_grad_()
            y = layer(x)
            dx = torch.autograd.grad(y, x, dy.to(dtype))[0]
            part.add(**{"y" + suffix: y, "dx" + suffix: dx})
        part.add(x=x.float(), dy=dy.float(), **dict(layer.float().named_parameters()))
    figures.write()


if __name__ == "__main__":
    for make in (
        norms,
        hard_norms,
        batch_norm,
        group_and_instance_norm,
        linear,
        activation,
        loss,
        optimizers,
        clip,
        network,
        recomputed_statistics,
        fold,
        transformer,
        bfloat16,
    ):
        make()
