#!/usr/bin/python3
"""Writes what the experiments compute, done over in NumPy, into experiments/: tests/examples/experiments_test.cpp runs the
programs at the same small sizes and compares.

    /usr/bin/python3 tests/figures/make_experiment_figures.py     needs numpy (Debian, Ubuntu: python3-numpy); a minute

Everything is double. The random numbers come from streams.py; the arithmetic is written from the equations, layer by layer,
and shares nothing with the library.
"""

import itertools
import pathlib

import numpy as np

from streams import Problem, RandomStream, batches, features, mask, read_questions, vocabulary

FOLDER = pathlib.Path(__file__).with_name("experiments")


def write(name, columns, rows):
    with open(FOLDER / (name + ".csv"), "w") as file:
        print(",".join(columns), file=file)
        for row in rows:
            print(",".join(f"{cell:.17g}" if isinstance(cell, (float, np.floating)) else str(cell) for cell in row), file=file)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def cross_entropy(z, y, smoothing=0.0):
    """Mean loss and its gradient by the logits."""
    count, classes = z.shape
    target = np.full(z.shape, smoothing / classes)
    target[np.arange(count), y] += 1 - smoothing
    log_p = z - z.max(1, keepdims=True)
    log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
    return -(target * log_p).sum() / count, (np.exp(log_p) - target) / count


class Norm:
    """LayerNorm, RMSNorm and BatchNorm (with the batch's statistics) as one: mean and mean square over an axis."""

    def __init__(self, kind, features, epsilon=1e-5):
        self.axis, self.centred, self.epsilon = (0 if kind == "batch" else 1), kind != "rms", epsilon
        self.gain, self.shift = np.ones(features), np.zeros(features)

    def forward(self, x):
        self.centre = x - x.mean(self.axis, keepdims=True) if self.centred else x
        self.deviation = np.sqrt((self.centre**2).mean(self.axis, keepdims=True) + self.epsilon)
        self.unit = self.centre / self.deviation
        return self.unit * self.gain + self.shift

    def backward(self, dy):
        self.gradients = [(self.gain, (dy * self.unit).sum(0), False)]
        if self.centred:
            self.gradients.append((self.shift, dy.sum(0), False))
        d = dy * self.gain
        d = d - self.unit * (d * self.unit).mean(self.axis, keepdims=True)
        if self.centred:
            d = d - d.mean(self.axis, keepdims=True)
        return d / self.deviation


class Network:
    """(dropout,) linear, norm, ReLU, dropout, ..., linear. A network with paths[k] drops behind hidden layer k; one with
    input_path drops of its input."""

    def __init__(self, sizes, seed, deviation=None, norm=None, epsilon=1e-5, dropout=0.0, dropout_paths=(), input_path=None,
                 bias=True):
        self.seed, self.dropout, self.paths, self.input_path, self.call = seed, dropout, dropout_paths, input_path, 0
        self.linear, self.norms = [], []
        for k, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            scale = np.sqrt(2 / inputs) if deviation is None else deviation
            weight = RandomStream(seed, f"linear.{k}.weight").normals(outputs, inputs) * scale
            self.linear.append([weight, np.zeros(outputs) if bias or k + 2 == len(sizes) else None])
            if k + 2 < len(sizes):
                self.norms.append(Norm(norm, outputs, epsilon) if norm else None)

    def forward(self, x, masks=False):
        self.caches = []
        if masks and self.input_path:
            x = x * mask(x.shape, self.dropout, self.seed, self.call, self.input_path)
        for k, (weight, bias) in enumerate(self.linear):
            z = x @ weight.T + (0 if bias is None else bias)
            if k + 1 == len(self.linear):
                self.caches.append((x, None, None))
                break
            n = self.norms[k].forward(z) if self.norms[k] else z
            keep = mask(n.shape, self.dropout, self.seed, self.call, self.paths[k]) if masks and self.dropout else 1.0
            self.caches.append((x, n, keep))
            x = np.maximum(n, 0) * keep
        if masks and self.dropout:
            self.call += 1
        return z

    def backward(self, dz):
        """(parameter, gradient, whether it decays), in any order."""
        gradients = []
        for k in reversed(range(len(self.linear))):
            x, n, keep = self.caches[k]
            weight, bias = self.linear[k]
            if n is not None:
                dz = dz * keep * (n > 0)
                if self.norms[k]:
                    dz = self.norms[k].backward(dz)
                    gradients += self.norms[k].gradients
            gradients.append((weight, dz.T @ x, True))
            if bias is not None:
                gradients.append((bias, dz.sum(0), False))
            dz = dz @ weight
        return gradients


class SGD:
    def __init__(self, rate, decay=0.0):
        self.rate, self.decay = rate, decay

    def step(self, gradients):
        for value, gradient, decays in gradients:
            value -= self.rate * (gradient + (self.decay * value if decays else 0))


class AdamW:
    """Kingma & Ba 2015, with Loshchilov & Hutter's decoupled decay."""

    def __init__(self, rate, decay=0.0):
        self.rate, self.decay, self.moments, self.t = rate, decay, {}, 0

    def step(self, gradients):
        self.t += 1
        for value, gradient, decays in gradients:
            m, v = self.moments.setdefault(id(value), [np.zeros_like(value), np.zeros_like(value)])
            if decays:
                value *= 1 - self.rate * self.decay
            m += 0.1 * (gradient - m)
            v += 0.001 * (gradient**2 - v)
            value -= self.rate * (m / (1 - 0.9**self.t)) / (np.sqrt(v / (1 - 0.999**self.t)) + 1e-8)


def fit(network, optimizer, problem, steps, seed, masks=False, drop_last=False):
    """The loss of each batch before its step."""
    x, y = problem.train
    losses = []
    for batch in itertools.islice(batches(len(y), 16, seed, drop_last), steps):
        loss, dz = cross_entropy(network.forward(x[batch], masks), y[batch])
        losses.append(loss)
        optimizer.step(network.backward(dz))
    return losses


def grid_network(problem, dropout, seed):
    return Network([problem.words, 64, 64, problem.routes], seed, dropout=dropout, dropout_paths=("2", "5"))


def metrics(z, y):
    p = softmax(z)
    answer, top = z.argmax(1), p.max(1)
    ordered = np.sort(z, 1)
    wrong = top[answer != y]
    row = [cross_entropy(z, y)[0], (answer == y).mean(), top.mean(), (ordered[:, -1] - ordered[:, -2]).mean(),
           wrong.mean() if len(wrong) else float("nan")]
    bins = np.minimum((top * 10).astype(int), 9)
    for b in range(10):
        row += [int((bins == b).sum()), float(top[bins == b].sum()), int((answer == y)[bins == b].sum())]
    return row


def dropout_grid():
    """dropout_grid --precision double --steps 30 --seeds 2, and the losses of 200 steps at dropout 0.5, decay 3."""
    rows = []
    for seed in range(2):
        problem = Problem(seed)
        for decay in (0.0, 0.3, 1.0, 3.0, 10.0):
            for dropout in (0.0, 0.1, 0.3, 0.5, 0.7):
                network = grid_network(problem, dropout, seed)
                fit(network, AdamW(1e-3, decay), problem, 30, seed, masks=True)
                rows.append([decay, dropout, seed])
                for x, y in (problem.validation, problem.test):
                    rows[-1] += metrics(network.forward(x), y)
    columns = ["decay", "dropout", "split"]
    for part in ("validation", "test"):
        names = ["cross_entropy", "accuracy", "top_probability", "logit_gap", "top_probability_wrong"]
        names += [f"bin{b}_{name}" for b in range(10) for name in ("count", "confidence", "right")]
        columns += [f"{part}_{name}" for name in names]
    write("dropout_grid", columns, rows)

    problem = Problem(0)
    losses = fit(grid_network(problem, 0.5, 0), AdamW(1e-3, 3.0), problem, 200, 0, masks=True)
    write("loss_path", ["step", "loss"], enumerate(losses))


def norm_lr_grid():
    """norm_lr_grid --precision double --steps 20 --seeds 1 --layers 3"""
    rows = []
    problem = Problem(0)
    x, y = problem.train
    for start in ("0.01", "He"):
        for norm in ("none", "layer", "rms", "batch"):
            for optimizer, powers in (("SGD", range(-4, 1)), ("Adam", range(-5, -1))):
                for power in powers:
                    rate = 10.0**power
                    network = Network([problem.words, 64, 64, 64, problem.routes], 0, 0.01 if start == "0.01" else None,
                                      None if norm == "none" else norm)
                    fit(network, SGD(rate) if optimizer == "SGD" else AdamW(rate), problem, 20, 0, drop_last=norm == "batch")
                    rows.append([start, norm, optimizer, rate, 0, cross_entropy(network.forward(x), y)[0]])
    write("norm_lr_grid", ["start", "norm", "optimizer", "learning_rate", "split", "training_loss"], rows)


def size(values):
    return np.sqrt((values**2).mean())


def deep_signal():
    """deep_signal --depth 4 --width 16 --examples 32 --seeds 2"""
    depth, width, count = 4, 16, 32
    he = np.sqrt(2 / width)
    cases = [("plain", norm, scale) for norm in ("none", "layer", "rms", "batch") for scale in (0.01, he, 1.0)]
    cases += [("pre-norm", "none", he)]
    cases += [(stack, norm, he) for stack in ("pre-norm", "post-norm") for norm in ("layer", "rms", "batch")]
    rows = []
    for stack, kind, scale in cases:
        for seed in range(2):
            weights = [RandomStream(seed, f"linear.{l}.weight").normals(width, width) * scale for l in range(depth)]
            norms = [Norm(kind, width) if kind != "none" else None for _ in range(depth + 1)]
            through = lambda norm, x: norm.forward(x) if norm else x
            back = lambda norm, d: norm.backward(d) if norm else d
            h = [RandomStream(seed, "input").normals(count, width)]
            kept = []
            for weight, norm in zip(weights, norms):
                if stack == "plain":
                    inner = through(norm, h[-1] @ weight.T)
                    h.append(np.maximum(inner, 0))
                elif stack == "pre-norm":
                    normalized = through(norm, h[-1])
                    inner = normalized @ weight.T
                    h.append(h[-1] + np.maximum(inner, 0))
                else:
                    inner = h[-1] @ weight.T
                    h.append(through(norm, h[-1] + np.maximum(inner, 0)))
                kept.append((normalized if stack == "pre-norm" else h[-2], inner))
            d = RandomStream(seed, "output gradient").normals(count, width)
            if stack == "pre-norm":
                through(norms[depth], h[-1])
                d = back(norms[depth], d)
            figures = [None] * depth
            for l in reversed(range(depth)):
                x, inner = kept[l]
                if stack == "plain":
                    dz = back(norms[l], d * (inner > 0))
                    d_next = dz @ weights[l]
                elif stack == "pre-norm":
                    dz = d * (inner > 0)
                    d_next = d + back(norms[l], dz @ weights[l])
                else:
                    d = back(norms[l], d)
                    dz = d * (inner > 0)
                    d_next = d + dz @ weights[l]
                d = d_next
                figures[l] = (size(h[l + 1]), size(d), size(dz.T @ x))
            rows += [[stack, kind, scale, seed, l + 1, *figures[l]] for l in range(depth)]
    write("deep_signal",
          ["stack", "norm", "scale", "seed", "layer", "activation", "input_gradient", "weight_gradient"], rows)


def scale_invariance():
    """scale_invariance --steps 30 --seeds 1"""
    problem = Problem(0)
    x, y = problem.train
    rows = []

    def point(part, layer, start, decay, at, loss, weight, gradient):
        norm, steep = np.sqrt((weight**2).sum()), np.sqrt((gradient**2).sum())
        rows.append([part, layer, start, decay, 0, at, loss, norm, steep, (weight * gradient).sum() / (norm * steep)])

    cases = [("exact", start, decay) for decay in (0.0, 0.01) for start in (0.25, 1.0, 4.0)]
    for layer, start, decay in cases + [("usual", 1.0, 0.0), ("usual", 1.0, 0.01)]:
        network = Network([problem.words, 64, problem.routes], 0, norm="layer", epsilon=1e-12 if layer == "exact" else 1e-5,
                          dropout=0.5, dropout_paths=("3",), bias=layer == "usual")
        weight = network.linear[0][0]
        weight *= start
        optimizer = SGD(0.1, decay)
        first, falls, cosines, squared, squares, fourth_powers = len(rows), 0, [], 0.0, [], []
        for step, batch in enumerate(itertools.islice(batches(len(y), 16, 0, True), 30)):
            loss, dz = cross_entropy(network.forward(x[batch], masks=True), y[batch], 0.1)
            gradients = network.backward(dz)
            point("training", layer, start, decay, step, loss, weight, next(g for v, g, _ in gradients if v is weight))
            norm, steep, cosine = rows[-1][7:]
            cosines.append(abs(cosine))
            squared += (0.1 * steep) ** 2
            if 4 * (step + 1) > 3 * 30:
                squares.append((norm * steep) ** 2)
                fourth_powers.append(norm**4)
            optimizer.step(gradients)
            falls += np.sqrt((weight**2).sum()) < norm * (1 - 1e-13)
        trained = weight.copy()
        for factor in (0.01, 0.1, 1.0, 10.0, 100.0):
            weight[:] = trained * factor
            loss, dz = cross_entropy(network.forward(x), y, 0.1)
            gradients = network.backward(dz)
            point("scaled", layer, start, decay, factor, loss, weight, next(g for v, g, _ in gradients if v is weight))
        expected = (0.1 * np.mean(squares) / (2 * decay)) ** 0.25 if decay else float("inf")
        for row in rows[first:]:
            row += [int(falls), max(cosines), squared, expected, np.mean(fourth_powers) ** 0.25]
    write("scale_invariance", ["part", "layer", "start", "decay", "split", "step_or_factor", "loss", "weight_norm",
                               "gradient_norm", "cosine", "run_steps_it_fell", "run_largest_cosine",
                               "run_squared_steps", "run_expected_norm", "run_last_quarter_norm"], rows)


def nearest_rank(values, share):
    return sorted(values)[int(np.floor(share * (len(values) - 1) + 0.5))]


class RunningBatchNorm:
    """BatchNorm's running statistics, and the output in eval."""

    def __init__(self, features):
        self.mean, self.variance = np.zeros(features), np.ones(features)

    def see(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.variance = 0.9 * self.variance + 0.1 * x.var(0, ddof=1)

    def __call__(self, x):
        return (x - self.mean) / np.sqrt(self.variance + 1e-5)


def batchnorm_flaws():
    """batchnorm_flaws --draws 50"""
    draws, warm_up = range(200, 250), range(200)
    texts, _ = read_questions()
    x = features(texts, vocabulary(texts))
    z = x @ (RandomStream(0, "weight").normals(64, x.shape[1]) * np.sqrt(2 / x.shape[1])).T
    count = len(z)
    keys = ["batch_norm", "batch_norm_running", "layer_norm", "rms_norm"]
    rows = []

    def order(stream, draw):
        places = list(range(count))
        RandomStream(0, stream, draw).shuffle(places)
        return places

    def outputs(running, x):
        batch, layer, rms = (Norm(kind, 64).forward(x) for kind in ("batch", "layer", "rms"))
        return [batch, running(x), layer, rms]

    def warmed(size):
        running = RunningBatchNorm(64)
        for draw in warm_up:
            running.see(z[order("order", draw)[:size]])
        return running

    running = warmed(16)
    apart, sizes = [[] for _ in keys], [[] for _ in keys]
    for draw in draws:
        places = order("pair", draw)
        one, other = (outputs(running, z[chosen]) for chosen in (places[:16], places[:1] + places[16:31]))
        for k in range(4):
            apart[k].append(np.abs(one[k][0] - other[k][0]).mean())
            sizes[k].append(np.abs(one[k][0]).mean())
    for k, key in enumerate(keys):
        rows.append(["two_batches", key, 16, "difference", np.mean(apart[k])])
        rows.append(["two_batches", key, 16, "difference_low", nearest_rank(apart[k], 0.05)])
        rows.append(["two_batches", key, 16, "difference_high", nearest_rank(apart[k], 0.95)])
        rows.append(["two_batches", key, 16, "size", np.mean(sizes[k])])

    mismatches = []
    for size in (2, 8, 32, 128):
        running = warmed(size)
        errors, running_errors, distances = [], [], []
        for draw in draws:
            batch = z[order("order", draw)[:size]]
            error = lambda mean: (np.abs(mean - z.mean(0)) / z.std(0)).mean()
            errors.append(error(batch.mean(0)))
            running_errors.append(error(running.mean))
            distances.append(np.abs(Norm("batch", 64).forward(batch) - running(batch)).mean())
            running.see(batch)
        expected = np.sqrt(2 / np.pi * (1 / size - 1 / count))
        for key, measured, factor in ((keys[0], errors, 1.0), (keys[1], running_errors, np.sqrt(0.1 / 1.9))):
            rows.append(["batch_mean", key, size, "error", np.mean(measured)])
            rows.append(["batch_mean", key, size, "expected", factor * expected])
        for key in (keys[0], keys[2], keys[3]):
            mismatches.append(["train_to_eval", key, size, "difference", np.mean(distances) if key == keys[0] else 0.0])

    running = warmed(16)
    alone = np.array([[np.abs(y) for y in outputs(running, z[i : i + 1])] for i in range(count)])[:, :, 0]
    for k, key in enumerate(keys):
        rows.append(["batch_of_one", key, 1, "largest", alone[:, k].max()])
        rows.append(["batch_of_one", key, 1, "size", alone[:, k].mean()])

    sequence = lambda draw: RandomStream(0, "tokens", draw).normals(8, 64)
    running = RunningBatchNorm(64)
    for draw in warm_up:
        running.see(sequence(draw))
    moves = [[] for _ in keys]
    for draw in draws:
        before = sequence(draw)
        after = before.copy()
        after[-1] += 3
        for move, a, b in zip(moves, outputs(running, before), outputs(running, after)):
            move.append(np.abs(a[0] - b[0]).max())
    for move, key in zip(moves, keys):
        rows.append(["last_token", key, 8, "move", np.mean(move)])
        rows.append(["last_token", key, 8, "move_least", min(move)])
        rows.append(["last_token", key, 8, "move_most", max(move)])
        rows.append(["last_token", key, 8, "move_low", nearest_rank(move, 0.05)])
        rows.append(["last_token", key, 8, "move_high", nearest_rank(move, 0.95)])
    write("batchnorm_flaws", ["test", "norm", "batch_size", "figure", "value"], rows + mismatches)


def masks():
    """masks --steps 50 --seeds 2 --masks 100; of the single answers to test questions only the first five of a split."""
    rows = []
    for split in range(2):
        problem = Problem(split)
        x, y = problem.validation
        linear = Network([problem.words, problem.routes], split, dropout=0.5, input_path="0")
        deep = grid_network(problem, 0.5, split)
        for network in (linear, deep):
            fit(network, AdamW(1e-3, 3.0), problem, 50, split, masks=True)
        (weight, bias), = linear.linear
        apart = lambda logits, log_p, p, eval_z: (logits - eval_z, softmax(log_p) - softmax(eval_z), p - softmax(eval_z))
        names = ("logits", "geometric", "arithmetic")

        for row, question in enumerate(x):
            words = np.flatnonzero(question)
            rows.append(["all_masks", split, row, problem.places["validation"][row], "", "words", len(words)])
            bits = (np.arange(2 ** len(words))[:, None] >> np.arange(len(words))) & 1
            z = 2.0 * bits @ weight[:, words].T + bias  # every mask is as probable at 0.5
            p = softmax(z)
            for name, d in zip(names, apart(z.mean(0)[None], np.log(p).mean(0)[None], p.mean(0)[None],
                                            (question @ weight.T + bias)[None])):
                rows.append(["all_masks", split, row, problem.places["validation"][row], "", f"largest_difference_{name}",
                             np.abs(d).max() if len(words) <= 16 else float("nan")])

        def samples(network, x):
            network.seed, network.call = 2**32 + split, 0
            return np.array([network.forward(x, masks=True) for _ in range(100)])

        for part, network in (("linear", linear), ("deep", deep)):
            eval_z, z = network.forward(x), samples(network, x)
            p = np.array([softmax(each) for each in z])
            squares = {}
            for count in (1, 10, 100):
                of = lambda values: values.reshape(100 // count, count, *values.shape[1:]).mean(1)
                groups = [apart(*each, eval_z) for each in zip(of(z), of(np.log(p)), of(p))]
                squares[count] = [np.mean([(group[a] ** 2).mean() for group in groups]) for a in range(3)]
            for a, name in enumerate(names):
                rows += [[part, split, "", "", count, f"rms_difference_{name}", np.sqrt(squares[count][a])] for count in squares]
                chance = (squares[10][a] - squares[100][a]) / 9
                rows.append([part, split, "", "", 100, f"own_error_square_{name}", squares[100][a] - chance])
                rows.append([part, split, "", "", 100, f"spread_square_{name}", 100 * chance])

        x, y = problem.test
        eval_p = softmax(deep.forward(x))
        p = np.array([softmax(each) for each in samples(deep, x)])
        mean, own = p.mean(0), np.arange(len(y))
        entropy = lambda p: -(p * np.log(p)).sum(-1)
        right = eval_p.argmax(1) == y
        figures = {"same_answer": mean.argmax(1) == eval_p.argmax(1),
                   "cross_entropy_one_mask": -np.log(p[:, own, y]).mean(0), "cross_entropy_mean": -np.log(mean[own, y]),
                   "cross_entropy_eval": -np.log(eval_p[own, y]), "right_one_mask": (p.argmax(2) == y).mean(0),
                   "right_mean": mean.argmax(1) == y, "right_eval": right, "eval_doubt": 1 - eval_p.max(1),
                   "eval_entropy": entropy(eval_p), "predictive_entropy": entropy(mean), "expected_entropy": entropy(p).mean(0),
                   "mutual_information": entropy(mean) - entropy(p).mean(0)}
        rows += [["test", split, "", "", 100, name, np.mean(values)] for name, values in figures.items()]
        for name in list(figures)[7:]:
            values = figures[name]
            more = values[~right][:, None] - values[right][None]
            rows.append(["test", split, "", "", 100, f"{name}_where_right", values[right].mean()])
            rows.append(["test", split, "", "", 100, f"{name}_where_wrong", values[~right].mean()])
            rows.append(["test", split, "", "", 100, f"{name}_roc_area", ((more > 0) + 0.5 * (more == 0)).mean()])
        for i in range(5):
            place = problem.places["test"][i]
            rows += [["test", split, i, place, 100, name, float(values[i])] for name, values in figures.items()]
            for r, route in enumerate(("account", "billing", "shipping", "technical")):
                rows.append(["test", split, i, place, 100, f"probability_eval_{route}", eval_p[i, r]])
                rows.append(["test", split, i, place, 100, f"probability_mean_{route}", mean[i, r]])
                rows.append(["test", split, i, place, 100, f"probability_deviation_{route}", p[:, i, r].std(ddof=1)])
    write("masks", ["part", "split", "row", "question", "masks", "figure", "value"], rows)


if __name__ == "__main__":
    batchnorm_flaws()
    masks()
    dropout_grid()
    norm_lr_grid()
    deep_signal()
    scale_invariance()
