"""promotion.json and cast.json: what torch makes of two dtypes, and of a value brought to another dtype."""

import math

import torch

from encode import DTYPES, NAMES, number, write


def result(*operands):
    """The promoted dtype's name, or "error" where torch refuses the pair."""
    try:
        return NAMES[torch.result_type(*operands)]
    except RuntimeError:
        return "error"


def promotion():
    full = {name: torch.ones(2).to(dtype) for name, dtype in DTYPES.items()}
    zero_dim = {name: torch.ones(()).to(dtype) for name, dtype in DTYPES.items()}
    scalars = {"bool": True, "int": 2, "float": 2.5}

    def table(columns):
        return {a: {b: result(full[a], y) for b, y in columns.items()} for a in full}

    def divided(a):
        try:
            return NAMES[(full[a] / full[a]).dtype]
        except RuntimeError:
            return "error"

    write(__file__, "promotion", {
        "tensor_tensor": table(full),           # both have axes
        "tensor_zero_dim": table(zero_dim),     # row: with axes, column: 0-d
        "tensor_python_scalar": table(scalars),
        "true_division": {a: divided(a) for a in full},
    })


INTERESTING = {
    "bool": [False, True],
    "float": [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, -1.5, 2.5, 3.99, -3.99, 127.0, 128.0, -129.0, 255.0, 256.0, 2049.0, 65504.0, 65520.0,
              -65536.0, 70000.0, 16777217.0, 2147483647.0, 2147483648.0, 4294967296.0, 1e10, 1e19, -1e19, 1e38, 1e39, -1e300,
              1e-7, 6e-8, 2e-8, 1e-40, 1e-46, 1.00390625, 1.01171875, math.inf, -math.inf, math.nan],
}


def interesting(dtype):
    if dtype == torch.bool:
        return torch.tensor(INTERESTING["bool"])
    if dtype.is_floating_point:
        return torch.tensor(INTERESTING["float"], dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    wanted = [0, 1, 2, 3, -1, -2, 100, 127, 128, 129, -128, -129, 255, 256, 257, 2049, 32767, 32768, 65535, 65536, 65537, 16777217,
              2**31 - 1, 2**31, 2**32 - 1, 2**32 + 5, 2**53 + 1, info.min, info.max]
    values = sorted({v for v in wanted if info.min <= v <= info.max})
    return torch.tensor(values, dtype=dtype)


def defined(value, source, target):
    """C leaves a float without a counterpart in the target integer undefined; there we record null."""
    if not source.is_floating_point or target.is_floating_point or target == torch.bool:
        return True
    info = torch.iinfo(target)
    return math.isfinite(value) and info.min <= math.trunc(value) <= info.max


def cast():
    cases = []
    for a, source in DTYPES.items():
        x = interesting(source)
        values = x.tolist()
        row = {"from": a, "values": [number(v, source) for v in values], "to": {}}
        for b, target in DTYPES.items():
            y = x.to(target).tolist()
            row["to"][b] = [number(v, target) if defined(u, source, target) else None for u, v in zip(values, y)]
        cases.append(row)
    write(__file__, "cast", {"cases": cases})


def main():
    promotion()
    cast()
