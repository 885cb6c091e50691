"""Writes special.json beside this script: python3 make_special.py (needs torch, CPU only, and numpy).

Values, first and second derivatives at kinks, zeros, ends of domains, infinities, NaN, huge and tiny magnitudes, ties and empties.

`elementwise`: for each function and type the values at all points, the derivative by each operand, and the derivative of
the sum of all of these by each operand. `reductions`: the value, the gradient of `sum(y w)`, w = 1, 2, ..; and the
gradient of `sum(gradient v)`, v = 1, 2, ... null stands for what torch does not differentiate.
`encode` lives with the tensor core's golden files.
"""

import math
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import torch
import torch.nn.functional as F
from encode import numbers, write

warnings.filterwarnings("ignore")
inf, nan = math.inf, math.nan
L = torch.linalg

POINTS = [0.0, -0.0, 1e-40, -1e-40, 1e-20, -1e-20, 1e-7, -1e-7, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, -20.0,
          88.0, -88.0, 89.0, -89.0, 89.4, -89.4, 90.0, 104.0, -104.0, 178.0, -178.0, 1e4, -1e4, 1e20, -1e20, 3e38,
          inf, -inf, nan, 1e-45, -1e-45, 1.1754943508222875e-38, -1.1754943508222875e-38, 3.4028234663852886e38, -3.4028234663852886e38]
# beyond f32
WIDE = [1e-300, 709.0, -709.0, 710.4, -710.4, 746.0, -746.0, 1421.0, 1e200, -1e200,
        5e-324, -5e-324, 1e-310, -1e-310, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308]

UNARY = {
    "abs": torch.abs, "sign": torch.sign, "recip": torch.reciprocal, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "square": torch.square, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "erf": torch.erf, "floor": torch.floor,
    "round": torch.round, "sigmoid": torch.sigmoid, "relu": F.relu, "relu6": F.relu6, "selu": F.selu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "softplus": F.softplus, "log_sigmoid": F.logsigmoid,
    "mish": F.mish, "softsign": F.softsign, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "hardtanh": F.hardtanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.5), "elu": lambda x: F.elu(x, 0.5), "clamp": lambda x: x.clamp(-1.0, 3.0),
    "pow_0": lambda x: x ** 0.0, "pow_1": lambda x: x ** 1.0, "pow_2": lambda x: x ** 2.0, "pow_3": lambda x: x ** 3.0,
    "pow_half": lambda x: x ** 0.5, "pow_less": lambda x: x ** -1.0, "max_1": lambda x: x.clamp(min=1.0),
    "where_0": lambda x: torch.where(x > 0, x, x * 0.5), "log10": torch.log10, "logit": torch.logit, "sinc": torch.sinc,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "erfc": torch.erfc, "erfinv": torch.erfinv,
    "lgamma": torch.lgamma, "digamma": torch.digamma, "frac": torch.frac, "tanhshrink": F.tanhshrink,
    "celu": lambda x: F.celu(x, 0.5), "hardshrink": F.hardshrink, "softshrink": F.softshrink,
}
PAIRS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e20, inf, -inf, nan, 1e-40, -1e-40, 3e38]
# beyond f32
WIDE_PAIRS = [1e-310, 1.7e308]
BINARY = {
    "add": torch.add, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "maximum": torch.maximum, "minimum": torch.minimum,
    "rem": torch.remainder, "hypot": lambda a, b: (a * a + b * b).sqrt(), "length": torch.hypot, "atan2": torch.atan2,
    "logaddexp": torch.logaddexp, "logaddexp2": torch.logaddexp2, "xlogy": torch.xlogy, "fmod": torch.fmod,
    "copysign": torch.copysign,
}

TERNARY = [(0.0, 1.0, 0.0), (1e8, 1.0, 1.0), (1e8, 1.0, 0.5), (1.0, 1e8, 1.0), (2.0, 2.0, 0.3), (2.0, 5.0, -1.0), (2.0, 5.0, 2.0),
           (1e20, -1e20, 0.75), (inf, 1.0, 1.0), (1.0, inf, 0.0), (1.0, nan, 0.0), (nan, 1.0, 1.0), (0.1, 0.3, 0.5)]


def derivatives(function, xs, by=True):
    """The value; the gradient of its sum; the gradient of that gradient's sum. The sums are weighted if `by`."""
    xs = [x.clone().requires_grad_() for x in xs]
    y = function(*xs)
    row = {"y": numbers(y)}

    def weighted(t, by):
        return (t * (torch.arange(1, t.numel() + 1, dtype=t.dtype).reshape(t.shape) if by else 1)).sum()

    def back(total, by):
        if not total.requires_grad:
            return [torch.zeros_like(x) for x in xs]
        g = torch.autograd.grad(total, xs, create_graph=True, allow_unused=True)
        # a sum, because some of torch's zeros have no memory
        return [torch.zeros_like(x) if t is None else t + torch.zeros_like(x) for t, x in zip(g, xs)]

    first = back(weighted(y, by), by)
    row["d"] = [numbers(t) for t in first]
    try:
        live = [weighted(t, by) for t in first if t.requires_grad]
        total = sum(live) if live else torch.zeros(())
        row["dd"] = [numbers(t) for t in back(total, by)]
    except (RuntimeError, NotImplementedError):
        row["dd"] = None
    return row


def elementwise():
    rows = []
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        points = torch.tensor(POINTS + (WIDE if dtype == torch.float64 else []), dtype=torch.float32 if dtype == torch.float32 else dtype)
        for op, function in UNARY.items():
            rows.append({"op": op, "dtype": name, "x": "points"} | derivatives(function, [points], False))
        pairs = torch.tensor(PAIRS + (WIDE_PAIRS if dtype == torch.float64 else []), dtype=dtype)
        a, b = torch.cartesian_prod(pairs, pairs).T.contiguous()
        for op, function in BINARY.items():
            rows.append({"op": op, "dtype": name, "x": "pairs"} | derivatives(function, [a, b], False))
        triple = torch.tensor(TERNARY, dtype=dtype).T.contiguous()
        rows.append({"op": "lerp", "dtype": name, "x": "triples"} | derivatives(torch.lerp, list(triple), False))
        for weight in (0.0, 0.25, 0.5, 1.0):
            rows.append({"op": f"lerp_{weight}", "dtype": name, "x": "triples"} | derivatives(lambda a, b, _: a.lerp(b, weight), list(triple), False))
    return rows


def windows(p):
    return lambda x: F.lp_pool1d(x.reshape(1, 1, -1), p, 2)


VECTORS = [[0.0, 0.0, 0.0], [0.0, 1.0, -2.0], [2.0, 2.0, 2.0], [-1.0, 3.0, 3.0], [1.0], [inf, 1.0], [-inf, -inf], [-inf, 1.0],
           [nan, 1.0], [2.0, 0.0, 3.0, 0.0], [0.0, 2.0, 3.0], [1e-30, 1e-30], []]
REDUCTIONS = {
    "sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "prod": lambda x: x.prod(0), "max": lambda x: x.amax(0),
    "min": lambda x: x.amin(0), "var": lambda x: x.var(0), "var_0": lambda x: x.var(0, correction=0), "std": lambda x: x.std(0),
    "std_0": lambda x: x.std(0, correction=0), "logsumexp": lambda x: x.logsumexp(0), "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0), "cummax": lambda x: x.cummax(0)[0], "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0), "sort": lambda x: x.sort(dim=0, stable=True)[0],
    "top_2": lambda x: x.sort(dim=0, descending=True, stable=True)[0][:2],
    **{f"norm_{p}": (lambda p: lambda x: L.vector_norm(x, p, dim=0))(p) for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, inf, -inf, -1.0)},
    **{f"cdist_{p}": (lambda p: lambda x: torch.cdist(x.reshape(-1, 1), torch.tensor([[0.0], [1.0]], dtype=x.dtype), p))(p)
       for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, inf)},
    "lp_pool_2": windows(2.0), "lp_pool_3": windows(3.0),
    "max_pool_2": lambda x: F.max_pool1d(x.reshape(1, 1, -1), 2, 1), "cummin": lambda x: x.cummin(0)[0],
}
# the vectors that a function is not asked about: torch refuses them, or says nothing of use
LEAST = {"lp_pool_2": 2, "lp_pool_3": 2, "max_pool_2": 2, "max": 1, "min": 1, "top_2": 2, "norm_inf": 1, "norm_-inf": 1, "norm_-1.0": 1}
# torch's second derivatives are computed by a formula for the first one that is not differentiated
FLAT = {f"cdist_{p}" for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, inf)}

MATRICES = [[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]],
            [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 2.0, 3.0]], [[0.0, 0.0], [0.0, 3.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0]], [[5.0]], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.5]], []]


def reductions():
    rows = []
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        for op, function in REDUCTIONS.items():
            for vector in VECTORS:
                if len(vector) < LEAST.get(op, 0):
                    continue
                row = derivatives(function, [torch.tensor(vector, dtype=dtype)])
                rows.append({"op": op, "dtype": name, "x": numbers(torch.tensor(vector, dtype=dtype))} | row | ({"dd": None} if op in FLAT else {}))
    for matrix in MATRICES:
        a = torch.tensor(matrix, dtype=torch.float64).reshape(len(matrix), len(matrix))
        rows.append({"op": "det", "dtype": "f64", "n": len(matrix), "x": numbers(a)} | derivatives(L.det, [a]))
        sign, log = L.slogdet(a)
        row = {"op": "slogdet", "dtype": "f64", "n": len(matrix), "x": numbers(a), "y": numbers(torch.stack([sign, log]))}
        try:
            row |= {k: v for k, v in derivatives(lambda a: L.slogdet(a)[1], [a]).items() if k != "y"}
        except RuntimeError:
            row |= {"d": None, "dd": None}
        rows.append(row)
        try:
            row = derivatives(L.inv, [a])
        except RuntimeError:
            row = {"y": None, "d": None, "dd": None}
        rows.append({"op": "inv", "dtype": "f64", "n": len(matrix), "x": numbers(a)} | row)
    return rows


def shared(values):
    return numbers(torch.tensor(values, dtype=torch.float64))


write(__file__, "special", {
    "at": {"points": shared(POINTS), "wide": shared(WIDE), "pairs": shared(PAIRS), "wide_pairs": shared(WIDE_PAIRS), "triples": [shared(t) for t in TERNARY]},
    "elementwise": elementwise(), "reductions": reductions(),
})
