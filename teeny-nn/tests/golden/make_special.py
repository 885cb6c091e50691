"""Writes special.json beside this script: python3 make_special.py (needs torch, CPU only, and numpy).

Losses and normalisations at kinks, ends of domains and beyond, infinities, NaN, rows of constants and empties: values, the gradient of
`sum(y w)`, w = 1, 2, .. (of losses w = 1), by every operand, and the gradient of the sum of all gradients, weighted alike. `refused` has operands that
torch refuses. `derivatives` and `encode`
live with the golden files of automatic differentiation and of the tensor core.
"""

import math
import pathlib
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "teeny-core/tests/golden"))

import torch
import torch.nn.functional as F
from encode import numbers, write

warnings.filterwarnings("ignore")
inf, nan = math.inf, math.nan


def derivatives(function, xs, by):
    """The value; the gradient of its sum; the gradient of that gradient's sum. The sums are weighted if `by`."""
    xs = [x.clone().requires_grad_() for x in xs]
    y = function(*xs)

    def weighted(t):
        return (t * (torch.arange(1, t.numel() + 1, dtype=t.dtype).reshape(t.shape) if by else 1)).sum()

    def back(total):
        if not total.requires_grad:
            return [torch.zeros_like(x) for x in xs]
        g = torch.autograd.grad(total, xs, create_graph=True, allow_unused=True)
        # a sum, because some of torch's zeros have no memory
        return [torch.zeros_like(x) if t is None else t + torch.zeros_like(x) for t, x in zip(g, xs)]

    first = back(weighted(y))
    row = {"y": numbers(y), "d": [numbers(t) for t in first]}
    try:
        live = [weighted(t) for t in first if t.requires_grad]
        row["dd"] = [numbers(t) for t in back(sum(live) if live else torch.zeros(()))]
    except (RuntimeError, NotImplementedError):
        row["dd"] = None
    return row


def none(function, **options):
    return lambda x, t: function(x, t, reduction="none", **options)


def product(first, second):
    return [(a, b) for a in first for b in second]


NUMBERS = [0.0, 1.0, -1.0, 0.5, -0.5, 3.0, 1e20, inf, nan]
LOSSES = {
    "mse": (none(F.mse_loss), product(NUMBERS, [0.0, 1.0, inf])),
    "l1": (none(F.l1_loss), product(NUMBERS, [0.0, 1.0, inf])),
    "huber_1": (none(F.huber_loss, delta=1.0), product(NUMBERS, [0.0, 1.0, inf])),
    "huber_half": (none(F.huber_loss, delta=0.5), product(NUMBERS, [0.0, 1.0])),
    "bce": (none(F.binary_cross_entropy), product([0.0, 1.0, 1e-40, 1e-20, 1e-10, 0.25, 1 - 2.0**-23], [0.0, 1.0, 0.5])),
    "bce_with_logits": (none(F.binary_cross_entropy_with_logits),
                        product([0.0, -0.0, 1.0, 20.0, -20.0, 100.0, -100.0, 1e3, -1e3, 1e20, -1e20, inf, -inf, nan], [0.0, 1.0, 0.5, -1.0, 3.0, nan])),
    "kl_div": (none(F.kl_div), product([0.0, -1.0, -100.0, -inf, nan], [0.0, 1.0, 0.5, -0.5, 3.0, nan])),
    "poisson_nll": (none(F.poisson_nll_loss), product([0.0, 88.0, -100.0, 1e3, -1e3, -inf, inf, nan], [0.0, 3.0, -1.0, nan])),
    "hinge": (lambda x, t: F.relu(1 - t * x), product([0.0, 1.0, -1.0, 2.0, 1e20, inf, nan], [1.0, -1.0])),
}



def focal(x, t):
    """torchvision.ops.sigmoid_focal_loss with its defaults."""
    p, ce = torch.sigmoid(x), F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (0.25 * t + 0.75 * (1 - t)) * ce * (1 - (p * t + (1 - p) * (1 - t))) ** 2


TARGETS = [1.0, -1.0, 0.0, 0.5, nan]
LOSSES |= {
    # torch's function has no gradient of the target
    "soft_margin": (lambda x, t: -F.logsigmoid(t * x), product([0.0, 1.0, -20.0, 80.0, -80.0, nan], TARGETS)),
    "hinge_embedding": (none(F.hinge_embedding_loss), product([0.0, 1.0, -1.0, 2.0, 1e20, nan], TARGETS)),
    "kl_div_log": (none(F.kl_div, log_target=True), product([0.0, -1.0, -100.0, nan], [0.0, -1.0, -800.0, 2.0, nan])),
    "smooth_l1_half": (none(F.smooth_l1_loss, beta=0.5), product(NUMBERS, [0.0, 1.0, nan])),
    "focal": (focal, product([0.0, 1.0, -1.0, 20.0, -20.0, nan], [0.0, 1.0, 0.3, 2.0, -1.0, nan])),
    "gaussian_nll": (lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction="none"),
                     [(x, 0.0, v) for x in (1.0, 0.0, nan) for v in (0.0, -0.0, 1e-30, 1e-8, 1e-6, 0.5, 1e30, inf, nan)]),
    "margin_ranking": (lambda x, y, t: F.margin_ranking_loss(x, y, t, margin=0.5, reduction="none"),
                       [(x, 1.0, t) for x in (0.0, 1.0, 3.0, -inf, nan) for t in TARGETS]),
    # of rows that are an operand each: all but the targets
    "cosine_embedding": (lambda a, b, c, d, t: F.cosine_embedding_loss(torch.stack([a, b], 1), torch.stack([c, d], 1), t, margin=0.25, reduction="none"),
                         [(*row, t) for row in [(1.0, 2.0, -2.0, 0.5), (3.0, 4.0, 3.0, 4.0), (1.0, 0.0, nan, 1.0)] for t in TARGETS]),
}
REFUSED = {
    "bce": (F.binary_cross_entropy, [(p, 1.0) for p in (-0.1, 1.5, inf, nan)] + [(0.5, t) for t in (-0.1, 3.0, nan)]),
    "gaussian_nll": (F.gaussian_nll_loss, [(1.0, 0.0, v) for v in (-1.0, -1e-30, -inf)]),
    "multi_margin": (lambda x, t: F.multi_margin_loss(x.expand(1, 3), t.long()), [(0.5, 3.0), (0.5, -1.0)]),
    "multilabel_margin": (lambda x, t: F.multilabel_margin_loss(x.expand(1, 1), t.long().expand(1, 1)), [(0.5, 1.0)]),
    "nll": (lambda x, t: F.nll_loss(x.expand(1, 3), t.long()), [(0.5, 3.0), (0.5, -1.0)]),
}

ROWS = [[0.0, 0.0, 0.0], [1e3, -1e3, 0.0], [-inf, 0.0, 1.0], [0.0, -inf, 1.0], [inf, 0.0, 1.0], [-inf, -inf, -inf], [0.0, nan, 1.0], [1e38, 1.0, -1e38]]
CROSS = {
    "cross_entropy": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "smoothed": lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=0.25),
    "nll": lambda x, t: F.nll_loss(x, t, reduction="none"),
    "ignored": lambda x, t: F.cross_entropy(x, t, ignore_index=0),
}

VECTORS = [[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 4.0, 7.0], [1e15, 1e15, 1e15, 1e15], [1e-20, -1e-20, 0.0, 0.0],
           [inf, 0.0, 1.0, 2.0], [nan, 0.0, 1.0, 2.0]]
NORMS = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
    "rms_norm": lambda x, w, b: F.rms_norm(x, x.shape[1:], w, 1e-5) + 0 * b,
    "group_norm": lambda x, w, b: F.group_norm(x, 2) + 0 * w + 0 * b if x.shape[1] % 2 == 0 else None,
    "batch_norm": lambda x, w, b: F.batch_norm(x.T, None, None, training=True).T + 0 * w + 0 * b,
    "instance_norm": lambda x, w, b: F.instance_norm(x.reshape(1, *x.shape)).reshape(x.shape) + 0 * w + 0 * b,
}


def losses():
    rows = []
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        for op, (function, pairs) in LOSSES.items():
            xs = list(torch.tensor(pairs, dtype=dtype).T.contiguous())
            rows.append({"op": op, "dtype": name, "x": [numbers(x) for x in xs]} | derivatives(function, xs, False))
    return rows


def refused():
    rows = []
    for op, (function, cases) in REFUSED.items():
        for case in cases:
            try:
                function(*(torch.tensor([x]) for x in case))
            except (RuntimeError, ValueError, IndexError):
                rows.append({"op": op, "x": numbers(torch.tensor(case))})
            else:
                raise AssertionError(f"torch takes {op} of {case}")
    return rows


def cross():
    rows = []
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        for op, function in CROSS.items():
            for row in ROWS:
                for target in (0, 1):
                    x, t = torch.tensor([row], dtype=dtype), torch.tensor([target])
                    rows.append({"op": op, "dtype": name, "target": target, "x": numbers(x)} | derivatives(lambda x: function(x, t), [x], True))
    return rows


def norms():
    rows = []
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        for op, function in NORMS.items():
            for vector in VECTORS:
                x, n = torch.tensor([vector], dtype=dtype), len(vector)
                w, b = torch.arange(1, n + 1, dtype=dtype) / 2, torch.zeros(n, dtype=dtype)
                row = derivatives(function, [x, w, b], True)
                rows.append({"op": op, "dtype": name, "x": numbers(x)} | row)
    return rows


write(__file__, "special", {"losses": losses(), "refused": refused(), "cross_entropy": cross(), "norms": norms()})
