"""Metrics: writes metrics.json beside this script: python3 make_metrics.py (needs scikit-learn and numpy).

Scores are rounded, so that many are equal. The calibration error is put together from the bins of calibration_curve.
"""

import json
import pathlib
import platform
import warnings

import numpy as np
import sklearn
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, average_precision_score, jaccard_score, precision_recall_fscore_support, r2_score, roc_auc_score

warnings.simplefilter("ignore")  # scores without a value are 0
rng = np.random.default_rng(5)


def binary(n, decimals, share):
    targets = (rng.random(n) < share).astype(int)
    targets[:2] = [0, 1]
    scores = np.round(rng.normal(size=n) + 0.8 * targets, decimals)
    flags = (scores > 0).astype(int)
    precision, recall, f1, _ = precision_recall_fscore_support(targets, flags, labels=[0, 1])
    return {"scores": scores.tolist(), "targets": targets.tolist(), "auc": roc_auc_score(targets, scores),
            "ap": average_precision_score(targets, scores),
            "precision": precision.tolist(), "recall": recall.tolist(), "f1": f1.tolist()}


def classes(n, c, used, scale):
    """Only the first `used` of `c` classes are targets, and fewer are predicted."""
    targets = rng.integers(0, used, n)
    logits = np.round(rng.normal(size=(n, c)) * scale, 2)
    logits[np.arange(n), targets] += scale
    logits[:, used - 1:] -= 30
    guesses = logits.argmax(1)
    p = np.exp(logits - logits.max(1, keepdims=True))
    sure = (p / p.sum(1, keepdims=True)).max(1)
    right = guesses == targets
    ece = {}
    for bins in [1, 5, 15]:
        true, predicted = calibration_curve(right, sure, n_bins=bins)
        counts = np.bincount(np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], sure), minlength=bins)
        ece[str(bins)] = float((np.abs(true - predicted) * counts[counts > 0]).sum() / n)
    averages = {a: precision_recall_fscore_support(targets, guesses, average=a)[:3] for a in ["macro", "micro"]}
    return {"classes": c, "logits": logits.tolist(), "targets": targets.tolist(), "ece": ece, **averages}


def pixels(shape, c, ignored, share):
    """Logits (N, C, d..) and targets (N, d..), of which a share is ignored; the last class never occurs."""
    targets = rng.integers(0, c - 1, shape)
    logits = np.round(rng.normal(size=(shape[0], c, *shape[1:])), 2)
    logits[:, c - 1] -= 30
    np.put_along_axis(logits, targets[:, None], np.take_along_axis(logits, targets[:, None], 1) + 0.7, 1)
    targets[rng.random(shape) < share] = ignored
    kept = targets != ignored
    y, guesses = targets[kept], logits.argmax(1)[kept]
    f1 = precision_recall_fscore_support(y, guesses, labels=range(c))[2]
    best = np.argsort(-logits, 1, kind="stable")[:, :2]
    return {"shape": shape, "classes": c, "ignored": ignored, "logits": logits.ravel().tolist(), "targets": targets.ravel().tolist(),
            "iou": jaccard_score(y, guesses, labels=range(c), average=None).tolist(), "mean_iou": jaccard_score(y, guesses, average="macro"),
            "f1": f1.tolist(), "accuracy": accuracy_score(y, guesses), "right": int((y == guesses).sum()),
            "right_of_2": int((best == targets[:, None]).any(1).sum())}


def numbers(n, noise):
    y = np.round(rng.normal(size=n) * 3, 3)
    p = np.round(y + rng.normal(size=n) * noise, 3)
    return {"targets": y.tolist(), "predictions": p.tolist(), "r2": r2_score(y, p)}


cases = {
    "versions": {"scikit-learn": sklearn.__version__, "numpy": np.__version__, "python": platform.python_version()},
    "binary": [binary(*case) for case in [(40, 1, 0.5), (25, 0, 0.3), (60, 3, 0.1), (2, 1, 0.5), (30, 0, 0.9)]],
    "classes": [classes(*case) for case in [(40, 3, 3, 1.0), (30, 6, 4, 2.0), (50, 2, 2, 0.5)]],
    "numbers": [numbers(20, 0.5), numbers(15, 8.0), {"targets": [2.0, 2.0], "predictions": [2.0, 2.0], "r2": r2_score([2, 2], [2, 2])},
                {"targets": [2.0, 2.0], "predictions": [2.0, 3.0], "r2": r2_score([2, 2], [2, 3])}],
    "pixels": [pixels(*case) for case in [([2, 4, 5], 4, 255, 0.2), ([3, 7], 3, -100, 0.3), ([2, 2, 3, 4], 5, -1, 0.0), ([30], 3, 9, 0.1)]],
}
lines = [f'"{key}":' + (json.dumps(value) if isinstance(value, dict) else "[\n" + ",\n".join(map(json.dumps, value)) + "]")
         for key, value in cases.items()]
path = pathlib.Path(__file__).with_name("metrics.json")
path.write_text("{" + ",\n".join(lines).replace(", ", ",").replace(": ", ":") + "}\n")
