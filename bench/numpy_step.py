#!/usr/bin/env python3
"""The time of the router's training step in NumPy, in double: 391-64-64-4, batch 16, ReLU, dropout 0.5, AdamW.

    python3 bench/numpy_step.py
    MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=1000000000 python3 bench/numpy_step.py

The second keeps the memory of NumPy's temporaries, of which the first asks the system anew at every step.
"""

import time

import numpy as np

SIZES, BATCH, DROPOUT = (391, 64, 64, 4), 16, 0.5
RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 3.0, 0.9, 0.999, 1e-8

random = np.random.default_rng(0)
weights = [random.standard_normal((a, b)) * np.sqrt(2 / a) for a, b in zip(SIZES, SIZES[1:])]
biases = [np.zeros(size) for size in SIZES[1:]]
parameters = weights + biases
first_moments = [np.zeros_like(p) for p in parameters]
second_moments = [np.zeros_like(p) for p in parameters]
questions = (random.random((160, SIZES[0])) < 0.026).astype(float)  # some ten words each
routes = random.integers(0, SIZES[-1], len(questions))


def gradients(x, labels):
    hidden, masks = [x], []
    for weight, bias in zip(weights, biases):
        z = hidden[-1] @ weight + bias
        if weight is not weights[-1]:
            mask = (random.random(z.shape) >= DROPOUT) / (1 - DROPOUT) * (z > 0)
            masks.append(mask)
            hidden.append(z * mask)
    exponentials = np.exp(z - z.max(1, keepdims=True))
    delta = exponentials / exponentials.sum(1, keepdims=True)
    delta[np.arange(len(x)), labels] -= 1
    delta /= len(x)
    of_weights, of_biases = [None] * len(weights), [None] * len(weights)
    for layer in reversed(range(len(weights))):
        of_weights[layer], of_biases[layer] = hidden[layer].T @ delta, delta.sum(0)
        if layer > 0:
            delta = (delta @ weights[layer].T) * masks[layer - 1]
    return of_weights + of_biases


def step(x, labels, count):
    for i, gradient in enumerate(gradients(x, labels)):
        p, m, v = parameters[i], first_moments[i], second_moments[i]
        m *= BETA1
        m += (1 - BETA1) * gradient
        v *= BETA2
        v += (1 - BETA2) * gradient * gradient
        if i < len(weights):
            p *= 1 - RATE * DECAY
        p -= RATE / (1 - BETA1**count) * m / (np.sqrt(v / (1 - BETA2**count)) + EPSILON)


best, count = float("inf"), 0
for _ in range(10):
    start = time.perf_counter()
    for _ in range(200):
        count += 1
        batch = random.integers(0, len(questions), BATCH)
        step(questions[batch], routes[batch], count)
    best = min(best, (time.perf_counter() - start) / 200)
print(f"NumPy {np.__version__}: {best * 1e6:.0f} us a step, the best of 10 x 200")
