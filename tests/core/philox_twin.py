#!/usr/bin/env python3
"""The random numbers of evenkeel in NumPy, written from their description in core/random.hpp and layers/dropout.hpp.

Prints the figures that tests/core/random_test.cpp and tests/layers/dropout_test.cpp hold:

    /usr/bin/python3 tests/core/philox_twin.py
"""

import numpy as np

LOW = np.uint64(0xFFFFFFFF)


def philox(c0, c1, c2, c3, seed):
    """Four arrays of 32-bit words, as uint64, for counters given by their four words."""
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in np.broadcast_arrays(c0, c1, c2, c3))
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), p1 & LOW, (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1), p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def stream_of(path):
    """32-bit FNV-1a; 0 for the empty path."""
    if not path:
        return 0
    value = 2166136261
    for byte in path.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


def kept(rows, columns, p, seed, call, stream):
    """The mask: True where an element is kept."""
    row, column = np.indices((rows, columns))
    words = np.stack(philox(column // 8, row, call, stream, seed))
    place = column % 8
    word = np.take_along_axis(words, (place // 2)[None], axis=0)[0]
    half = np.where(place % 2 == 0, word & np.uint64(0xFFFF), word >> np.uint64(16))
    return half >= int(np.floor(65536 * p + 0.5))


class RandomStream:
    def __init__(self, seed, stream, episode=0):
        blocks = np.arange(1000)
        self.words = list(np.stack(philox(blocks, episode, 0xFFFFFFFF, stream, seed), axis=1).ravel())

    def word(self):
        return int(self.words.pop(0))

    def uniform(self):
        low, high = self.word(), self.word()
        return ((high << 32 | low) >> 11) * 2.0**-53

    def normals(self, count):
        result = []
        while len(result) < count:
            radius = np.sqrt(-2 * np.log1p(-self.uniform()))
            angle = 2 * np.pi * self.uniform()
            result += [radius * np.cos(angle), radius * np.sin(angle)]
        return result[:count]

    def shuffled(self, count):
        items = list(range(count))
        for place in range(count, 1, -1):
            other = self.word() * place >> 32
            items[place - 1], items[other] = items[other], items[place - 1]
        return items


def show(title, items):
    print(f"{title}:\n    " + ", ".join(items))


if __name__ == "__main__":
    for call in (0, 5):
        rows = kept(3, 20, 0.3, 42, call, stream_of("3"))
        show(f'mask of seed 42, p 0.3, 3 x 20, call {call}, path "3"',
             ['"' + "".join("01"[int(k)] for k in row) + '"' for row in rows])
    show('streams of "3", "2.0", "weight", "linear.0.weight"',
         [f"{stream_of(path)}u" for path in ("3", "2.0", "weight", "linear.0.weight")])
    seed, stream = 0x123456789ABCDEF0, stream_of("weight")
    numbers = RandomStream(seed, stream)
    show("words of seed 0x123456789ABCDEF0, stream of weight", [f"0x{numbers.word():08X}" for _ in range(9)])
    numbers = RandomStream(seed, stream, 7)
    show("words of episode 7", [f"0x{numbers.word():08X}" for _ in range(5)])
    numbers = RandomStream(seed, stream)
    show("uniforms", [float(numbers.uniform()).hex() for _ in range(3)])
    show("normals", [f"{n:.17g}" for n in RandomStream(seed, stream).normals(6)])
    show("shuffle of 0 ... 9", [str(n) for n in RandomStream(seed, stream).shuffled(10)])
    # 10000 words of std::philox4x32 as the standard seeds it: key = seed, the counter counts up from 0.
    words = np.stack(philox(np.arange(2500), 0, 0, 0, 20111115), axis=1).ravel()
    show("10000th word of std::philox4x32", [str(words[9999])])
