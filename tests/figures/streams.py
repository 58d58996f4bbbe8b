"""The library's random numbers and the questions in NumPy, written from their documentation: include/evenkeel/core/random.hpp,
include/evenkeel/layers/dropout.hpp, include/evenkeel/training/batches.hpp and examples/support/questions.hpp."""

import pathlib

import numpy as np

DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data" / "router.tsv"
LOW = np.uint64(0xFFFFFFFF)


def philox(counters, key):
    """Philox4x32-10 of (n, 4) counters: (n, 4) words. Salmon et al. 2011."""
    c = [np.asarray(counters, dtype=np.uint64)[:, i] for i in range(4)]
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k0, p1 & LOW, (p0 >> np.uint64(32)) ^ c[3] ^ k1, p0 & LOW]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return np.stack(c, axis=1)


def stream_of(path):
    """FNV-1a."""
    if not path:
        return 0
    value = 2166136261
    for byte in path.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


class RandomStream:
    def __init__(self, seed, path, episode=0):
        self.seed, self.stream, self.episode = seed, stream_of(path), episode
        self.words, self.block, self.spare = [], 0, None

    def word(self):
        if not self.words:
            numbers = np.arange(self.block, self.block + 256)
            fixed = [np.full(256, value) for value in (self.episode, 0xFFFFFFFF, self.stream)]
            self.words = philox(np.stack([numbers, *fixed], axis=1), self.seed).ravel().tolist()[::-1]
            self.block += 256
        return self.words.pop()

    def uniform(self):
        low, high = self.word(), self.word()
        return (((high << 32) | low) >> 11) * 2.0**-53

    def normal(self):
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform()))
        angle = 2 * np.pi * self.uniform()
        self.spare = radius * np.sin(angle)
        return radius * np.cos(angle)

    def normals(self, *shape):
        return np.array([self.normal() for _ in range(int(np.prod(shape)))]).reshape(shape)

    def below(self, count):
        return (self.word() * count) >> 32

    def shuffle(self, values):
        """In place, from the last place to the second."""
        for place in range(len(values), 1, -1):
            other = self.below(place)
            values[place - 1], values[other] = values[other], values[place - 1]


def mask(shape, p, seed, call, path):
    """Dropout's mask, scale included: 65536 / (65536 - T) where kept, else 0."""
    rows, columns = shape
    threshold = round(65536 * p)
    blocks = (columns + 7) // 8
    row, block = np.meshgrid(np.arange(rows), np.arange(blocks), indexing="ij")
    fixed = [np.full(row.size, value) for value in (call, stream_of(path))]
    words = philox(np.stack([block.ravel(), row.ravel(), *fixed], axis=1), seed)
    halves = np.stack([words & np.uint64(0xFFFF), words >> np.uint64(16)], axis=2).reshape(rows, blocks * 8)[:, :columns]
    return (halves >= threshold) * (65536 / (65536 - threshold))


def batches(count, size, seed, drop_last=False):
    """The mini-batches of epoch after epoch."""
    epoch = 0
    while True:
        order = list(range(count))
        RandomStream(seed, "shuffle", epoch).shuffle(order)
        for first in range(0, count, size):
            batch = order[first : first + size]
            if len(batch) == size or not drop_last:
                yield batch
        epoch += 1


def words_of(text):
    letters = "".join(c if c.isascii() and c.isalnum() or c == "'" or ord(c) > 127 else " " for c in text)
    words = (word.strip("'") for word in letters.split())
    return ["".join(c.lower() if c.isascii() else c for c in word) for word in words if word]


def read_questions():
    lines = [line.split("\t") for line in DATA.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    routes = sorted({route for route, _ in lines})
    return [text for _, text in lines], np.array([routes.index(route) for route, _ in lines])


def vocabulary(texts):
    columns = {}
    for text in texts:
        for word in words_of(text):
            columns.setdefault(word, len(columns))
    return columns


def features(texts, columns):
    x = np.zeros((len(texts), len(columns)))
    for i, text in enumerate(texts):
        for word in words_of(text):
            if word in columns:
                x[i, columns[word]] = 1
    return x


class Problem:
    """One split: train, validation and test as (features, labels)."""

    def __init__(self, seed):
        texts, routes = read_questions()
        parts = {"train": [], "validation": [], "test": []}
        for route in range(routes.max() + 1):
            places = [int(i) for i in np.flatnonzero(routes == route)]
            RandomStream(seed, "split", route).shuffle(places)
            fifth = (len(places) + 2) // 5
            parts["validation"] += places[:fifth]
            parts["test"] += places[fifth : 2 * fifth]
            parts["train"] += places[2 * fifth :]
        self.places = parts
        self.columns = vocabulary([texts[i] for i in parts["train"]])
        for name, places in parts.items():
            setattr(self, name, (features([texts[i] for i in places], self.columns), routes[places]))
        self.words, self.routes = len(self.columns), int(routes.max()) + 1
