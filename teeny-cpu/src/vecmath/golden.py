"""Writes golden.txt: values of the functions of f64 in 200-bit arithmetic (mpmath 1.3), rounded.

    python golden.py > golden.txt
"""
import random
import struct

from mpmath import atan, cos, erf, exp, expm1, log, log1p, mp, mpf, sin, tan, tanh

mp.prec = 200


def bits(x):
    return struct.pack(">d", float(x)).hex()


def spread(low, high, n):
    """Half of the values evenly, half by their logarithms."""
    for i in range(n):
        sign = random.choice([-1, 1]) if low < 0 else 1
        if i % 2:
            yield sign * max(abs(low), abs(high)) * 2.0 ** random.uniform(-30, 0)
        else:
            yield random.uniform(low, high)


FUNCTIONS = [
    ("exp", exp, -700, 700),
    ("exp2", lambda x: mpf(2) ** x, -1000, 1000),
    ("expm1", expm1, -30, 30),
    ("log", log, 0, 8),
    ("log2", lambda x: log(x) / log(mpf(2)), 0, 8),
    ("log1p", log1p, -0.75, 0.75),
    ("sin", sin, -100000, 100000),
    ("cos", cos, -100000, 100000),
    ("tan", tan, -1000, 1000),
    ("atan", atan, -10, 10),
    ("tanh", tanh, -10, 10),
    ("erf", erf, -5, 5),
    ("log10", lambda x: log(x) / log(mpf(10)), 0, 8),
]

# Where an earlier formula was 3 ulp off.
HARD = {"tanh": [0.21270167263945017, 0.22275877001036348, 0.11257094507737915, 0.19382562633707]}

random.seed(1)
for name, f, low, high in FUNCTIONS:
    for x in [*spread(low, high, 100), *HARD.get(name, [])]:
        print(name, bits(x), bits(f(mpf(x))))
