"""unary.json, binary.json: elementwise ops with their derivatives.

Unary points are exact in f16, bf16, f32 and f64, so one table serves all float dtypes: compare the f64 answer, rounded.
"""

import math

import torch
import torch.nn.functional as F

from encode import NAMES, grads, number, numbers, ramp, tensor, write

POINTS = [0.0, -0.0, 0.125, -0.125, 0.25, -0.25, 0.5, -0.5, 0.75, -0.75, 1.0, -1.0, 1.25, -1.25, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0,
          3.5, -3.5, 4.0, -4.0, 5.5, -5.5, 6.0, -6.0, 8.0, -8.0, 10.5, -10.5, 20.0, -20.0, 88.0, -88.0, 100.0, -104.0, 1024.0, -1024.0,
          math.inf, -math.inf, math.nan]
# only f32 and f64 hold these
WIDE = [1e-40, -1e-40, 1e-30, 1e30, -1e30, 3e38, -3e38, 16777216.0, 1e-10, -1e-10, 31415.927, 709.0, -745.0]

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "recip": torch.reciprocal,
    "square": torch.square, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "sigmoid": torch.sigmoid, "erf": torch.erf, "erfc": torch.erfc, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round,
    "trunc": torch.trunc, "frac": torch.frac,
    "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu, "elu": F.elu, "selu": F.selu, "celu": F.celu,
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "softplus": F.softplus, "mish": F.mish,
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "hardtanh": F.hardtanh, "softsign": F.softsign, "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink, "softshrink": F.softshrink, "hardshrink": F.hardshrink,
}
TESTS = {"isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite, "logical_not": torch.logical_not}


def unary():
    rows = []
    for name, op in UNARY.items():
        row = {"op": name}
        for key, values in (("points", POINTS), ("wide", WIDE)):
            # rounded to f32 first, so that the table asks about the number an f32 tensor holds
            x = torch.tensor(values, dtype=torch.float32).double().requires_grad_()
            y = op(x)
            y.sum().backward()
            row |= {key: numbers(y), key + "_grad": numbers(x.grad)}
        rows.append(row)
    x = torch.tensor(POINTS, dtype=torch.float64)
    write(__file__, "unary", {
        "points": [number(v, torch.float64) for v in POINTS], "wide": [number(v, torch.float32) for v in torch.tensor(WIDE).tolist()],
        "cases": rows, "predicates": [{"op": name, "points": numbers(op(x))} for name, op in TESTS.items()],
    })


FLOAT_BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "maximum": torch.maximum,
    "minimum": torch.minimum, "remainder": torch.remainder, "fmod": torch.fmod, "floor_divide": torch.floor_divide, "atan2": torch.atan2,
    "hypot": torch.hypot, "copysign": torch.copysign, "logaddexp": torch.logaddexp,
}
COMPARE = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
           "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor}
INT_BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
              "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor}
INT_DIVISION = {"floor_divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod}
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -2.5, 7.0, math.inf, -math.inf, math.nan]

PAIRS = [
    ([], []), ([], [3]), ([3], []), ([1], [3]), ([3], [1]), ([3], [3]), ([3, 1], [3]), ([3], [3, 1]), ([2, 3], [3]), ([3], [2, 3]),
    ([2, 3], [2, 1]), ([2, 1], [2, 3]), ([2, 1], [1, 3]), ([1, 3], [2, 1]), ([2, 3], []), ([], [2, 3]), ([2, 3], [1]), ([1, 1], [2, 3]),
    ([2, 3], [2, 3]), ([2, 3, 4], [4]), ([4], [2, 3, 4]), ([2, 3, 4], [3, 4]), ([2, 3, 4], [3, 1]), ([2, 3, 4], [1, 4]),
    ([2, 3, 4], [2, 1, 1]), ([2, 3, 4], [2, 3, 1]), ([2, 1, 4], [1, 3, 1]), ([2, 1, 4], [3, 1]), ([1, 3, 1], [2, 1, 4]),
    ([2, 3, 4], [1, 1, 1]), ([2, 3, 4], []), ([2, 3, 4], [2, 3, 4]), ([2, 1, 3, 2], [2, 1, 2]), ([2, 1, 3, 2], [4, 1, 2]),
    ([2, 2, 3, 2], [2, 2, 1, 1]), ([2, 2, 3, 2], [3, 1]), ([1, 2, 1, 2], [2, 1, 3, 1]), ([5, 1], [1, 5]), ([1, 5], [5, 1]),
    ([1, 1, 1, 1], [2]), ([0], [1]), ([0], []), ([0, 3], [3]), ([0, 3], [1, 3]), ([2, 0], [2, 1]), ([2, 1, 0], [3, 1]),
    ([2, 3], [2]), ([2, 3], [3, 2]), ([4, 3], [2, 3]), ([0], [2]),
]


def binary():
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    a, b = special.unsqueeze(1).expand(14, 14), special.unsqueeze(0).expand(14, 14)
    grid = []
    for name, op in FLOAT_BINARY.items():
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        z = op(x, y)
        row = {"op": name, "data": numbers(z)}
        if name not in ("floor_divide", "hypot", "copysign", "remainder", "fmod"):
            z.sum().backward()
            row |= {"grad_lhs": numbers(x.grad), "grad_rhs": numbers(y.grad)}
        grid.append(row)
    compare = [{"op": name, "data": [int(v) for v in numbers(op(a, b))]} for name, op in COMPARE.items()]

    integers = []
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        values = [0, 1, 2, 3, 5, 7, 100, 127] + ([-1, -2, -3, -7, -127, -128] if dtype.is_signed else [128, 200, 255])
        v = torch.tensor(values, dtype=dtype)
        n = len(values)
        x, y = v.unsqueeze(1).expand(n, n), v.unsqueeze(0).expand(n, n)
        ops = {name: numbers(op(x, y)) for name, op in INT_BINARY.items()}
        ops |= {name: [None if d == 0 else q for q, d in zip(numbers(op(x, torch.where(y == 0, torch.ones_like(y), y))), numbers(y))]
                for name, op in INT_DIVISION.items()}
        shift = torch.arange(0, 7, dtype=dtype)
        ops["shl_0_to_6"] = numbers(v.unsqueeze(1) << shift)
        ops["shr_0_to_6"] = numbers(v.unsqueeze(1) >> shift)
        ops["pow_0_to_3"] = numbers(v.unsqueeze(1) ** torch.arange(0, 4, dtype=dtype))
        integers.append({"dtype": NAMES[dtype], "values": values, "ops": ops})

    pairs, names = [], ["sub", "div", "maximum"]
    for i, (s, t) in enumerate(PAIRS):
        x, y = ramp(*s), ramp(*t, step=0.53, modulus=3.3) + 2.5
        row = {"op": names[i % 3], "lhs": tensor(x), "rhs": tensor(y)}
        try:
            z, (gx, gy) = grads(FLOAT_BINARY[row["op"]], x, y)
            row |= {"result": tensor(z), "grad_lhs": numbers(gx), "grad_rhs": numbers(gy)}
        except RuntimeError:
            row |= {"result": "error"}
        pairs.append(row)
    assert len(pairs) == 50

    x, y, c = ramp(2, 3), ramp(3, step=0.7), ramp(2, 1) > 0
    ternary = [
        {"op": "where", "condition": numbers(c), "lhs": numbers(x), "rhs": numbers(y), "data": numbers(torch.where(c, x, y))},
        {"op": "lerp", "lhs": numbers(x), "rhs": numbers(y.expand(2, 3)), "weight": 0.25, "data": numbers(torch.lerp(x, y.expand(2, 3), 0.25))},
        {"op": "clamp", "min": -0.5, "max": 1.0, "points": numbers(special.clamp(-0.5, 1.0))},
        {"op": "clamp", "min": 1.0, "max": -0.5, "points": numbers(special.clamp(1.0, -0.5))},
    ]
    write(__file__, "binary", {"special": [number(v, torch.float64) for v in SPECIAL], "grid": grid, "compare": compare,
                               "integers": integers, "broadcast": pairs, "ternary": ternary})


def main():
    unary()
    binary()
