"""Losses and functions of normalisation: writes margins.json beside this script: python3 make_losses.py (needs torch, CPU only, and numpy).

A row is a loss, its operands, and per reduction the result with the gradients of `sum(y * w)`, w = 1, 2, 3, .. / numel, for every float operand.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import torch
import torch.nn.functional as F
from encode import grads, numbers, ramp, tensor, write

F64 = torch.float64
x, y, z = ramp(3, 4, dtype=F64), ramp(3, 4, dtype=F64, step=0.53), ramp(3, 4, dtype=F64, step=0.71)
signs, flags = torch.where(y > 0, 1.0, -1.0).double(), (y > 0).double()
classes = torch.tensor([2, 0, 3])
labels = torch.tensor([[3, 0, -1, 2], [1, -1, -1, -1], [-1, 0, 1, 2]])
speech, words = ramp(6, 3, 5, dtype=F64), torch.tensor([[1, 2, 2], [3, 3, 0], [4, 0, 0]])
positive = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=F64)


def focal(x, t, reduction):
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    loss = ce * (1 - (p * t + (1 - p) * (1 - t))) ** 2.0 * (0.25 * t + 0.75 * (1 - t))
    return {"mean": loss.mean(), "sum": loss.sum(), "none": loss}[reduction]


def ranking(anchors, positives, *negatives, reduction):
    """MultipleNegativesRankingLoss of sentence-transformers, with its scale of 20."""
    candidates = torch.cat([positives, *negatives])
    scores = F.cosine_similarity(anchors[:, None], candidates[None], dim=2) * 20.0
    return F.cross_entropy(scores, torch.arange(len(anchors)), reduction=reduction)


ROWS = [
    ("soft_margin", F.soft_margin_loss, x, signs), ("hinge_embedding", F.hinge_embedding_loss, x, signs), ("focal", focal, x, flags),
    ("kl_div_log", lambda q, t, reduction: F.kl_div(q, t, reduction=reduction, log_target=True), x.log_softmax(1), y.log_softmax(1)),
    ("smooth_l1", lambda a, b, reduction: F.smooth_l1_loss(a, b, beta=0.7, reduction=reduction), x, y),
    ("smooth_l1 0", lambda a, b, reduction: F.smooth_l1_loss(a, b, beta=0.0, reduction=reduction), x, y),
    ("bce_with_logits_weighted", lambda a, b, reduction: F.binary_cross_entropy_with_logits(a, b, pos_weight=positive, reduction=reduction), x, flags),
    ("margin_ranking", lambda a, b, t, reduction: F.margin_ranking_loss(a, b, t, 0.3, reduction=reduction), x, z, signs),
    ("cosine_embedding", lambda a, b, t, reduction: F.cosine_embedding_loss(a, b, t, 0.1, reduction=reduction), x, z, signs[0, :3]),
    ("triplet_margin", lambda a, b, c, reduction: F.triplet_margin_loss(a, b, c, 0.8, reduction=reduction), x, y, z),
    ("multi_margin", lambda a, t, reduction: F.multi_margin_loss(a, t, reduction=reduction), x, classes),
    ("multi_margin 2", lambda a, t, reduction: F.multi_margin_loss(a, t, p=2, margin=0.6, reduction=reduction), x, classes),
    ("multilabel_margin", F.multilabel_margin_loss, x, labels), ("multilabel_soft_margin", F.multilabel_soft_margin_loss, x, flags),
    ("gaussian_nll", lambda a, t, v, reduction: F.gaussian_nll_loss(a, t, v, reduction=reduction), x, y, z.abs() + 0.1),
    ("multiple_negatives_ranking", ranking, x, y), ("multiple_negatives_ranking", ranking, x, y, ramp(5, 4, dtype=F64, step=0.29)),
    ("multiple_negatives_ranking", ranking, x[:1].clone(), y[:1].clone()), ("multiple_negatives_ranking", ranking, x[:1].clone(), y[:1].clone(), z),
    ("ctc", lambda a, t, reduction: F.ctc_loss(a.log_softmax(2), t, (6, 5, 4), (3, 2, 0), reduction=reduction), speech, words),
    ("ctc zero_infinity", lambda a, t, reduction: F.ctc_loss(a.log_softmax(2), t, (6, 2, 4), (3, 2, 1), zero_infinity=True, reduction=reduction), speech, words),
    ("ctc infinity", lambda a, t, reduction: F.ctc_loss(a.log_softmax(2), t, (6, 2, 4), (3, 2, 1), reduction=reduction), speech, words),
]

cases = []
for name, function, *operands in ROWS:
    for reduction in ("mean", "sum", "none"):
        constant = [t.dtype != F64 or any(t is c or t.data_ptr() == c.data_ptr() for c in (signs, flags)) for t in operands]

        def call(*leaves):
            leaves = iter(leaves)
            return function(*(t if c else next(leaves) for t, c in zip(operands, constant)), reduction=reduction)

        got, gradients = grads(call, *(t for t, c in zip(operands, constant) if not c))
        gradients = iter(gradients)
        gradients = [None if c else next(gradients) for c in constant]
        cases.append({"loss": name, "reduction": reduction, "inputs": [tensor(t) for t in operands], "result": tensor(got),
                      "grads": None if name == "ctc infinity" else [None if g is None else numbers(g) for g in gradients]})

# Normalisations as functions: x, then statistics, weight and bias of 4 channels.
picture = ramp(3, 4, 2, 2, dtype=F64)
per_channel = [ramp(4, dtype=F64, step=s, offset=1.0) for s in (0.53, 0.71, 0.29)] + [ramp(4, dtype=F64, step=0.61).abs() + 0.2]
weight, bias, mean, variance = per_channel
NORMS = [
    ("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)), ("batch_norm running", lambda x, w, b: F.batch_norm(x, mean, variance, w, b)),
    ("batch_norm plain", lambda x, w, b: F.batch_norm(x, None, None, training=True)), ("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
    ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b)),
]
norms = []
for name, function in NORMS:
    got, gradients = grads(function, picture, weight, bias)
    norms.append({"norm": name, "result": numbers(got), "grads": [None if g is None else numbers(g) for g in gradients]})
inputs = [tensor(t) for t in (picture, weight, bias, mean, variance)]
write(__file__, "margins", {"cases": cases, "norms": norms, "norm_inputs": inputs})
