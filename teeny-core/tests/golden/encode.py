"""How a tensor becomes JSON, shared by every golden script.

A tensor is `{"dtype": "f32", "shape": [2, 3], "data": [..]}` with its elements in row-major order. Floats are written in the
shortest form that reads back to the same value of their dtype; what JSON cannot say is a string: "nan", "inf", "-inf".
"""

import json
import math
import pathlib
import platform

import numpy as np
import torch

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "u16": torch.uint16, "i16": torch.int16, "u32": torch.uint32,
    "i32": torch.int32, "u64": torch.uint64, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
    "f32": torch.float32, "f64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def number(value, dtype):
    """One element, as JSON."""
    if dtype == torch.bool:
        return bool(value)
    if not dtype.is_floating_point:
        return int(value)
    value = float(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if dtype == torch.float64:
        return value
    # every f16 and bf16 is an f32, so its shortest f32 text reads back to the same value
    return float(np.format_float_scientific(np.float32(value), unique=True, trim="0"))


def numbers(x):
    """The elements of a tensor in row-major order."""
    return [number(v, x.dtype) for v in x.detach().contiguous().reshape(-1).tolist()]


def tensor(x):
    """A whole tensor."""
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data": numbers(x)}


def write(script, name, cases):
    """Writes `name`.json beside `script`, one case a line so that a change can be read in a diff."""
    path = pathlib.Path(script).with_name(name + ".json")
    versions = {"torch": torch.__version__.split("+")[0], "numpy": np.__version__, "python": platform.python_version()}
    lines = [f'{{"versions":{json.dumps(versions)}']
    for key, value in cases.items():
        if isinstance(value, list):
            rows = ",\n".join(json.dumps(row, separators=(",", ":"), allow_nan=False) for row in value)
            lines.append(f'"{key}":[\n{rows}]')
        else:
            lines.append(f'"{key}":{json.dumps(value, separators=(",", ":"), allow_nan=False)}')
    path.write_text(",\n".join(lines) + "}\n")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def ramp(*shape, dtype=torch.float32, step=0.37, modulus=4.1, offset=2.0):
    """Values without a pattern that a wrong stride could hide behind, the same on every machine, short in JSON."""
    n = math.prod(shape)
    values = (np.arange(n) * step * 7 + 0.13) % modulus - offset
    return torch.tensor(np.round(values, 2), dtype=dtype).reshape(shape)


def grads(function, *inputs):
    """`function(*inputs)` and the gradient of `sum(y * w)` for every float input, where w = 1, 2, 3, .. / numel."""
    leaves = [x.clone().requires_grad_() if x.dtype.is_floating_point else x for x in inputs]
    y = function(*leaves)
    w = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape) / max(y.numel(), 1)
    (y * w).sum().backward()
    return y, [x.grad for x in leaves if x.dtype.is_floating_point]
