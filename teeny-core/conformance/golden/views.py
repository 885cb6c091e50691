"""views.json: 200 questions "can this strided tensor be seen in that shape", with torch's answer."""

import math
import random

import torch

from encode import write


def targets(rng, numel):
    """A random factorisation of `numel`, some with ones, some with -1."""
    shape, rest = [], numel
    while rest > 1 and len(shape) < 4:
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        d = rng.choice(divisors)
        shape.append(d)
        rest //= d
    if rest > 1:
        shape.append(rest)
    rng.shuffle(shape)
    if shape and rng.random() < 0.25:
        shape[rng.randrange(len(shape))] = -1
    return shape


def case(storage, shape, strides, offset, target):
    x = torch.arange(storage).as_strided(shape, strides, offset)
    row = {"storage": storage, "shape": shape, "strides": strides, "offset": offset, "target": target}
    try:
        y = x.reshape(target)
    except RuntimeError:
        return row | {"reshape": "error"}
    row |= {"result_shape": list(y.shape), "data": y.reshape(-1).tolist()}
    try:
        return row | {"view_strides": list(x.view(target).stride())}
    except RuntimeError:
        return row | {"view_strides": None}


def sources(rng):
    """A random chain of transpositions, slices and expansions of a packed tensor."""
    shape = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randrange(1, 4))]
    x = torch.arange(math.prod(shape)).reshape(shape)
    for _ in range(rng.randrange(0, 4)):
        kind = rng.randrange(5)
        axis = rng.randrange(x.ndim) if x.ndim else 0
        if kind == 0 and x.ndim > 1:
            x = x.transpose(axis, rng.randrange(x.ndim))
        elif kind == 1 and x.ndim and x.shape[axis] > 1:
            start = rng.randrange(x.shape[axis])
            x = x.narrow(axis, start, rng.randrange(1, x.shape[axis] - start + 1))
        elif kind == 2 and x.ndim and x.shape[axis] > 2:
            x = x[(slice(None),) * axis + (slice(None, None, 2),)]
        elif kind == 3 and x.ndim < 4:
            x = x.unsqueeze(axis).expand(*[2 if i == axis else -1 for i in range(x.ndim + 1)])
        elif kind == 4 and x.ndim and x.shape[axis] > 1:
            x = x.select(axis, rng.randrange(x.shape[axis]))
    return math.prod(shape), list(x.shape), list(x.stride()), x.storage_offset()


def main():
    rng = random.Random(1)
    fixed = [
        (12, [3, 4], [4, 1], 0, [12]), (12, [4, 3], [1, 4], 0, [12]), (12, [4, 3], [1, 4], 0, [4, 3, 1]),
        (12, [3, 2], [4, 2], 0, [6]), (12, [2, 4], [4, 1], 4, [8]), (12, [2, 4], [4, 1], 4, [2, 2, 2]),
        (1, [], [], 0, [1, 1]), (1, [], [], 0, []), (1, [], [], 0, [-1]), (6, [1, 6], [6, 1], 0, []),
        (0, [0, 5], [5, 1], 0, [5, 0]), (0, [0, 5], [5, 1], 0, [0]), (0, [0, 5], [5, 1], 0, [-1]), (0, [0, 5], [5, 1], 0, [-1, 0]),
        (0, [0, 5], [5, 1], 0, [0, 7]), (0, [0, 5], [5, 1], 0, [-1, 3]),
        (3, [3, 4], [1, 0], 0, [12]), (4, [3, 4], [0, 1], 0, [12]), (1, [3, 4], [0, 0], 0, [12]), (1, [3, 4], [0, 0], 0, [2, 6]),
        (12, [3, 4], [4, 1], 0, [-1, -1]), (12, [3, 4], [4, 1], 0, [5, -1]), (12, [3, 4], [4, 1], 0, [7]), (12, [3, 4], [4, 1], 0, [-2, 6]),
        (24, [2, 3, 4], [12, 4, 1], 0, [6, 4]), (24, [2, 4, 3], [12, 1, 4], 0, [8, 3]), (24, [2, 4, 3], [12, 1, 4], 0, [2, 12]),
        (24, [3, 2, 4], [4, 12, 1], 0, [3, 2, 2, 2]), (24, [3, 2, 4], [4, 12, 1], 0, [3, 8]), (10, [8], [1], 2, [2, 2, 2]),
    ]
    cases = [case(*row) for row in fixed]
    while len(cases) < 200:
        storage, shape, strides, offset = sources(rng)
        if math.prod(shape) > 48:
            continue
        cases.append(case(storage, shape, strides, offset, targets(rng, math.prod(shape))))
    write(__file__, "views", {"cases": cases})
