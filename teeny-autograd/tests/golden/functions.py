"""functions.json: functions of PyTorch with first and second derivatives: python3 functions.py (torch, CPU only, and numpy).

A row is a name, which tests/torch_functions.rs knows with the same function in Rust, the function and its operands (positions in `inputs`). With `results` come the
gradients `grads` of `sum(y * w)`, w = 1, 2, 3, .. / numel, and `second`, those of the sum of `grads` times 1, 1/2, 1/3, ..; operands that
do not matter have none. Rows of VALUES have results alone: at special points, or of functions without derivatives.
"""

import math
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).parents[3] / "teeny-core/tests/golden"))
from encode import ramp, tensor, write  # noqa: E402

F64 = torch.float64


def f64(*values):
    return torch.tensor(values, dtype=F64)


# Exact in f32, so that one table serves f32 and f64; none at a kink.
REAL = f64(-3.625, -2.25, -1.375, -0.75, -0.03125, 2.0**-20, 0.1875, 0.625, 1.5, 2.375, 7.125, 11.5)
UNIT = f64(-0.96875, -0.75, -0.3125, -(2.0**-20), 2.0**-12, 0.25, 0.625, 0.9375, 1 - 2.0**-20)
PART = f64(2.0**-20, 0.0625, 0.3125, 0.5 + 2.0**-20, 0.5 - 2.0**-12, 0.6875, 0.9375, 1 - 2.0**-20)
ABOVE = f64(1 + 2.0**-20, 1.125, 1.5, 2 + 2.0**-20, 3.625, 9.5, 1000.0)
POSITIVE = f64(2.0**-20, 0.125, 0.4375, 1 - 2.0**-20, 1 + 2.0**-12, 1.40625, 2 - 2.0**-20, 2.625, 5.25, 7.4375, 7.625, 40.0, 1000.0)
GAMMA = f64(-3.75, -2.5, -0.5, -0.0625, *POSITIVE.tolist())
WIDE = f64(-math.inf, -(2.0**100), -(2.0**40), -1.0, -0.0, 0.0, 1.0, 2.0**40, 2.0**100, math.inf, math.nan)
A, B = REAL, REAL.flip(0).roll(3) * 1.5
SPECIAL = f64(-math.inf, -2.0, -0.0, 0.0, 0.5, 3.0, 2.0**100, math.inf, math.nan)
PAIR = (SPECIAL[:, None].expand(9, 9).contiguous(), SPECIAL[None, :].expand(9, 9).contiguous())
INTS = (torch.tensor([0, 12, -18, 7, 100, -1, 64])[:, None], torch.tensor([0, 8, -27, 6, -1])[None])
image, volume = ramp(2, 3, 4, 5, dtype=F64), ramp(1, 2, 3, 4, 3, dtype=F64)
grid, grid3 = ramp(2, 3, 2, 2, dtype=F64, step=0.071, modulus=3.1, offset=1.4), ramp(1, 2, 3, 2, 3, dtype=F64, step=0.071, modulus=3.1, offset=1.4)
theta, theta3 = ramp(2, 2, 3, dtype=F64), ramp(1, 3, 4, dtype=F64)
x, y, z = ramp(3, 4, dtype=F64), ramp(3, 4, dtype=F64, step=0.53), ramp(2, 3, 4, dtype=F64)
holes = torch.where(torch.arange(24).reshape(2, 3, 4) % 5 == 2, math.nan, z)
holes[0, 1] = math.nan
ties = (ramp(3, 8, dtype=F64) * 1.2).round()
ids = torch.tensor([[0, 2, 2, 1], [2, 2, 0, 0]])
mask = x > 0.2

ROWS = [
    ("log10", torch.log10, POSITIVE), ("logit", torch.logit, PART), ("sinc", torch.sinc, REAL[REAL.abs() > 0.01]), ("asinh", torch.asinh, REAL),
    ("acosh", torch.acosh, ABOVE), ("atanh", torch.atanh, UNIT), ("erfc", torch.erfc, REAL), ("erfinv", torch.erfinv, UNIT),
    ("lgamma", torch.lgamma, GAMMA), ("digamma", torch.digamma, GAMMA), ("frac", torch.frac, REAL), ("tanhshrink", F.tanhshrink, REAL),
    ("logaddexp", torch.logaddexp, A, B), ("logaddexp2", torch.logaddexp2, A, B), ("xlogy", torch.xlogy, A, B.abs()),
    ("atan2", torch.atan2, A, B), ("hypot", torch.hypot, A, B), ("fmod", torch.fmod, A, B), ("div_trunc", lambda a, b: a + torch.div(a, b, rounding_mode="trunc"), A, B),
    ("copysign", torch.copysign, A, B), ("celu", lambda x: F.celu(x, 0.7), REAL), ("hardshrink", F.hardshrink, REAL), ("softshrink", F.softshrink, REAL),
    ("nan_to_num", lambda x: torch.nan_to_num(x) * x, REAL), ("threshold", lambda x: F.threshold(x, 0.5, 20.0) * x, REAL), ("glu", lambda x: F.glu(x, 1), x),
]
for mode in ("nearest", "bilinear", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (False, True):
            def sample(x, g, mode=mode, padding=padding, corners=corners):
                return F.grid_sample(x, g, mode, padding, corners)
            ROWS.append((f"grid_sample {mode} {padding} {corners}", sample, image, grid))
            if mode != "bicubic":
                ROWS.append((f"grid_sample3 {mode} {padding} {corners}", sample, volume, grid3))
for corners in (False, True):
    ROWS.append((f"affine_grid {corners}", lambda t, c=corners: F.affine_grid(t, (2, 1, 3, 4), c), theta))
    ROWS.append((f"affine_grid3 {corners}", lambda t, c=corners: F.affine_grid(t, (1, 1, 2, 3, 1), c), theta3))
ROWS += [
    ("median", lambda x: x.median(1)[0], z), ("nanmedian", lambda x: x.nanmedian(2)[0], z), ("kthvalue 2", lambda x: x.kthvalue(2, -1)[0], z),
    ("mode", lambda x: x.mode(0)[0], z), ("nansum", lambda x: x.nansum((0, 2)), z), ("nanmean", lambda x: x.nanmean(1), z),
    ("aminmax", lambda x: torch.cat(torch.aminmax(x, dim=1)), z), ("masked_scatter", lambda x, y: x.masked_scatter(x > 0.2, y), x, y),
    ("unbind", lambda x: torch.cat(torch.unbind(x, 1)) ** 2, z), ("tensor_split", lambda x: torch.tensor_split(x, 3, 2)[1] ** 2, z),
    ("hstack", lambda x, y: torch.hstack((x, y)) ** 2, x, y), ("vstack", lambda x, y: torch.vstack((x, y[0])) ** 2, x, y), ("dstack", lambda x, y: torch.dstack((x, y)) ** 2, x, y),
    ("normalize", lambda x: F.normalize(x), x), ("normalize 3", lambda x: F.normalize(x, 3.0, 0), x), ("cosine_similarity", F.cosine_similarity, x, y),
    ("cross", lambda x, y: torch.linalg.cross(x, y, dim=0), x, y), ("tensordot", lambda x, y: torch.tensordot(x, y, ([2, 1], [1, 0])), z, x),
    ("cov", torch.cov, x), ("cov weighted", lambda x: torch.cov(x, correction=2, fweights=torch.tensor([1, 3, 2, 1]), aweights=f64(0.5, 1, 2, 0.25)), x),
    ("corrcoef", torch.corrcoef, x), ("var_keepdim", lambda x: x.var((0, 2), keepdim=True), z), ("prod_keepdim", lambda x: x.prod(1, keepdim=True), z),
    ("logsumexp_keepdim", lambda x: x.logsumexp((0, 1), keepdim=True), z), ("vector_norm_keepdim", lambda x: torch.linalg.vector_norm(x, 3.0, 1, keepdim=True), z),
    ("logcumsumexp", lambda x: x.logcumsumexp(1), z), ("assign_add", lambda x, y: x.index_put((torch.tensor([2, 0, 2]), torch.tensor([1, 1, 1])), y[:, 0], accumulate=True) ** 2, x, y),
    ("embedding_bag mean", lambda w: F.embedding_bag(ids, w) ** 2, x), ("embedding_bag sum", lambda w: F.embedding_bag(ids.reshape(-1), w, torch.tensor([0, 3, 3, 6]), mode="sum") ** 2, x),
    ("embedding_bag max", lambda w: F.embedding_bag(ids.reshape(-1), w, torch.tensor([0, 3, 3, 6]), mode="max"), x),
]
for mode in ("bilinear", "bicubic"):
    for size in ((3, 2), (7, 3), (2, 9)):
        ROWS.append((f"antialias {mode} {size[0]} {size[1]}", lambda x, m=mode, s=size: F.interpolate(x, s, mode=m, antialias=True), image))
square, chain = ramp(2, 3, 3, dtype=F64) * 0.7, (ramp(2, 5, dtype=F64), ramp(5, 3, dtype=F64, step=0.53), ramp(3, 4, dtype=F64, step=0.29))
regular = square + 4 * torch.eye(3, dtype=F64)
ROWS += [
    ("matrix_power 3", lambda a: torch.linalg.matrix_power(a, 3), square), ("matrix_power -2", lambda a: torch.linalg.matrix_power(a, -2), regular),
    ("matrix_exp", torch.matrix_exp, square * 3), ("multi_dot", lambda *m: torch.linalg.multi_dot(m), *chain), ("vander", lambda v: torch.linalg.vander(v, N=4), x),
    ("cholesky_solve", lambda b, a: torch.cholesky_solve(b, torch.linalg.cholesky(a @ a.mT + torch.eye(3, dtype=F64))), square[..., :2].contiguous(), square),
]
for method in ("linear", "lower", "higher", "midpoint", "nearest"):
    ROWS.append((f"quantile {method}", lambda x, m=method: torch.quantile(x, f64(0.1, 0.5, 1.0), 1, interpolation=m) ** (1 if m == "linear" else 2), z))
for reduce in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        ROWS.append((f"scatter_reduce {reduce} {own}", lambda x, y, r=reduce, o=own: x.scatter_reduce(0, ids[:, :3], y[:2, :3], r, include_self=o) ** 2, x, y + 0.01))

VALUES = [
    ("median", lambda x: x.median(1)[0], holes), ("nanmedian", lambda x: x.nanmedian(2)[0], holes), ("mode", lambda x: x.mode(1)[0], ties), ("mode position", lambda x: x.mode(1)[1], ties),
    ("median position", lambda x: x.median(1)[1], ties[:, :1]), ("nansum", lambda x: x.nansum((0, 2)), holes), ("nanmean", lambda x: x.nanmean(1), holes),
    ("quantile linear", lambda x: torch.quantile(x, f64(0.1, 0.5, 1.0), 1), holes), ("nanquantile", lambda x: torch.nanquantile(x, f64(0.0, 0.3, 0.5), 2), holes),
    ("bucketize False", lambda x: torch.bucketize(x, f64(-1, 0, 1)), ties), ("bucketize True", lambda x: torch.bucketize(x, f64(-1, 0, 1), right=True), ties),
    ("isin", lambda x: torch.isin(x, f64(2, -1, math.nan, 1)), ties), ("argmax_keepdim", lambda x: x.argmax(1, keepdim=True), z), ("any_keepdim", lambda x: (x > 1.5).any(2, keepdim=True), z),
    ("logcumsumexp", lambda x: x.logcumsumexp(0), SPECIAL), ("logcumsumexp", lambda x: x.logcumsumexp(0), f64(-math.inf, -math.inf, 700.0, 1000.0, -1000.0)),
    ("asinh", torch.asinh, WIDE), ("acosh", torch.acosh, WIDE), ("atanh", torch.atanh, WIDE), ("erfc", torch.erfc, WIDE), ("erfc", torch.erfc, f64(4.5, 8.75, 0.5, -9.0)),
    ("erfinv", torch.erfinv, WIDE), ("lgamma", torch.lgamma, WIDE[[0, 4, 5, 6, 7, 9, 10]]), ("lgamma", torch.lgamma, f64(-1.0, -7.0, 2.0**-100, 2.0)), ("digamma", torch.digamma, f64(0.0, -3.0, 2.0**40, math.inf, math.nan)),
    ("sinc", torch.sinc, WIDE[[3, 4, 5, 6, 10]]), ("logit", torch.logit, f64(0.0, 1.0, 0.5, -1.0, 2.0, math.nan)), ("log10", torch.log10, WIDE),
    ("signbit", torch.signbit, WIDE[:-1]), ("tanhshrink", F.tanhshrink, WIDE), ("hardshrink", F.hardshrink, f64(0.5, -0.5, math.nan)), ("softshrink", F.softshrink, f64(0.5, -0.5, math.nan, math.inf)),
    ("nan_to_num 1 2 3", lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0), WIDE),
    ("logaddexp", torch.logaddexp, *PAIR), ("logaddexp2", torch.logaddexp2, *PAIR), ("xlogy", torch.xlogy, *PAIR), ("atan2", torch.atan2, *PAIR), ("hypot", torch.hypot, *PAIR),
    ("copysign", torch.copysign, PAIR[0][:, :8].contiguous(), PAIR[1][:, :8].contiguous()),
    ("heaviside", torch.heaviside, PAIR[0][:8], PAIR[1][:8]), ("gcd", torch.gcd, *INTS), ("lcm", torch.lcm, *INTS), ("fmod", torch.fmod, INTS[0], INTS[1][:, 1:]),
    ("div_trunc int", lambda a, b: torch.div(a, b, rounding_mode="trunc"), INTS[0], INTS[1][:, 1:]),
]


inputs = []


def place(operand):
    """The position of an operand in `inputs`, where it is written once."""
    encoded = tensor(operand)
    if encoded not in inputs:
        inputs.append(encoded)
    return inputs.index(encoded)


def weights(t, first):
    n = torch.arange(1, t.numel() + 1, dtype=F64).reshape(t.shape)
    return n / max(t.numel(), 1) if first else 1 / n


def row(name, function, *operands):
    leaves = [t.clone().requires_grad_() if t.is_floating_point() else t for t in operands]
    floats = [t for t in leaves if t.is_floating_point()]
    got = function(*leaves)
    grads = torch.autograd.grad((got * weights(got, True)).sum(), floats, create_graph=True, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for t, g in zip(floats, grads)]
    loss = sum((g * weights(g, False)).sum() for g in grads)
    second = [None] * len(floats)
    done = {"name": name, "inputs": [place(t) for t in operands], "result": tensor(got.detach()), "grads": [tensor(g.detach())["data"] for g in grads]}
    if loss.requires_grad:
        try:
            second = torch.autograd.grad(loss, floats, allow_unused=True)
        except NotImplementedError:  # of embedding_bag
            return done
    second = [torch.zeros_like(t) if g is None else g for t, g in zip(floats, second)]
    return done | {"second": [tensor(g.detach())["data"] for g in second]}


def main():
    values = [{"name": name, "inputs": [place(t) for t in operands], "result": tensor(function(*operands))} for name, function, *operands in VALUES]
    write(__file__, "functions", {"cases": [row(*r) for r in ROWS] + values, "inputs": inputs})


if __name__ == "__main__":
    main()
