"""Writes the golden files beside this script: python3 make_golden.py (needs torch, CPU only, numpy and safetensors).

`encode` says how a tensor becomes JSON; it lives with the tensor core's golden files.
"""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from encode import grads, numbers, ramp, tensor, write

F64 = torch.float64


def layers():
    """layers.json: forward and gradients of Linear and Conv2d with given weights; sum(y * w) with w = 1..n / n is what is derived."""
    cases = []
    for batch, bias in (([5], True), ([5], False), ([2, 3], True), ([], True), ([0], True)):
        x, w, b = ramp(*batch, 4, dtype=F64), ramp(3, 4, dtype=F64, step=0.53), ramp(3, dtype=F64, step=0.71)
        inputs = (x, w, b) if bias else (x, w)
        y, g = grads(F.linear, *inputs)
        cases.append({"layer": "linear", "x": tensor(x), "weight": tensor(w), "bias": numbers(b) if bias else None, "result": tensor(y),
                      "grad_x": numbers(g[0]), "grad_weight": numbers(g[1]), "grad_bias": numbers(g[2]) if bias else None})
    for s, t, stride, padding, groups, bias in (([2, 1, 6, 6], [3, 1, 3, 3], 1, 0, 1, True), ([1, 2, 5, 5], [4, 2, 3, 3], 2, 1, 1, False), ([1, 4, 4, 4], [4, 2, 2, 2], 1, 0, 2, True)):
        x, w, b = ramp(*s, dtype=F64), ramp(*t, dtype=F64, step=0.53), ramp(t[0], dtype=F64, step=0.71)
        inputs = (x, w, b) if bias else (x, w)
        y, g = grads(lambda *v: F.conv2d(*v, stride=stride, padding=padding, groups=groups), *inputs)
        cases.append({"layer": "conv2d", "x": tensor(x), "weight": tensor(w), "bias": numbers(b) if bias else None, "stride": stride, "padding": padding,
                      "groups": groups, "result": tensor(y), "grad_x": numbers(g[0]), "grad_weight": numbers(g[1]), "grad_bias": numbers(g[2]) if bias else None})
    bounds = []
    for shape in ([128, 784], [10, 128], [16, 8, 3, 3], [5, 1, 1, 1], [7, 3, 5]):
        w = torch.empty(shape, dtype=F64)
        fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(w)
        bounds.append({
            "shape": shape, "fan_in": fan_in, "fan_out": fan_out,
            "kaiming_uniform_relu": math.sqrt(2) * math.sqrt(3 / fan_in), "kaiming_normal_relu_std": math.sqrt(2) / math.sqrt(fan_in),
            "kaiming_uniform_sqrt5": nn.init.calculate_gain("leaky_relu", math.sqrt(5)) * math.sqrt(3 / fan_in),
            "xavier_uniform": math.sqrt(6 / (fan_in + fan_out)), "xavier_normal_std": math.sqrt(2 / (fan_in + fan_out)), "bias": 1 / math.sqrt(fan_in)})
    gains = {name: nn.init.calculate_gain(name) for name in ("linear", "sigmoid", "tanh", "relu", "selu")}
    write(__file__, "layers", {"cases": cases, "bounds": bounds, "gains": gains})


def losses():
    """losses.json: every variant of cross-entropy, and the simple losses."""
    x, targets = ramp(4, 5, dtype=F64), torch.tensor([1, 0, 4, 1])
    weight = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0], dtype=F64)
    probabilities = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [1.0, 0, 0, 0, 0], [0.2] * 5, [0.0, 0, 0.5, 0.5, 0]], dtype=F64)
    cross = []

    def case(logits, target, **options):
        shown = {k: numbers(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        target_shown = {"targets": target.reshape(-1).tolist()} if target.dtype == torch.int64 else {"probabilities": numbers(target)}
        y, (g,) = grads(lambda v: F.cross_entropy(v, target, **options), logits)
        cross.append({"x": tensor(logits), **target_shown, **shown, "result": tensor(y), "grad": numbers(g)})

    ignored = torch.tensor([1, -100, 4, -100])
    for reduction in ("mean", "sum", "none"):
        case(x, targets, reduction=reduction)
        case(x, targets, reduction=reduction, weight=weight)
        case(x, targets, reduction=reduction, label_smoothing=0.1)
        case(x, targets, reduction=reduction, weight=weight, label_smoothing=0.2)
        case(x, ignored, reduction=reduction)
        case(x, ignored, reduction=reduction, weight=weight, label_smoothing=0.1)
        case(x, torch.tensor([1, 2, 4, 2]), reduction=reduction, ignore_index=2)
        case(x, probabilities, reduction=reduction)
        case(x, probabilities, reduction=reduction, weight=weight)
        case(x, probabilities, reduction=reduction, label_smoothing=0.1)
    case(x, torch.tensor([-100] * 4), reduction="mean")
    case(x, torch.tensor([-100] * 4), reduction="sum")
    image = ramp(2, 3, 2, dtype=F64)  # (N, C, d): classes on axis 1
    case(image, torch.tensor([[0, 2], [1, 1]]), reduction="mean")
    case(image, torch.tensor([[0, 2], [1, -100]]), reduction="none")
    case(ramp(1, 5, dtype=F64)[0], torch.tensor(3), reduction="mean")  # no batch

    p, q = ramp(3, 4, dtype=F64), ramp(3, 4, dtype=F64, step=0.71)
    p[0, 0], q[0, 0] = 1.0, 1.0
    zero_one, classes = (q > 0).double(), torch.tensor([0, 3, 1])
    simple = []
    for reduction in ("mean", "sum", "none"):
        for name, f, a, b in (("mse", F.mse_loss, p, q), ("l1", F.l1_loss, p, q), ("huber", F.huber_loss, p, q), ("smooth_l1", F.smooth_l1_loss, p, q),
                              ("bce_with_logits", F.binary_cross_entropy_with_logits, p, zero_one), ("bce", F.binary_cross_entropy, torch.sigmoid(p), zero_one),
                              ("nll", F.nll_loss, torch.log_softmax(p, 1), classes), ("kl_div", F.kl_div, torch.log_softmax(p, 1), torch.softmax(q, 1))):
            y, g = grads(lambda v, t=b: f(v, t, reduction=reduction), a)
            simple.append({"loss": name, "reduction": reduction, "x": tensor(a), "target": tensor(b), "result": tensor(y), "grad": numbers(g[0])})
    write(__file__, "losses", {"cross_entropy": cross, "simple": simple})


OPTIMIZERS = [
    ("sgd", {"lr": 0.1}), ("sgd", {"lr": 0.05, "momentum": 0.9}), ("sgd", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("sgd", {"lr": 0.1, "weight_decay": 0.05}), ("sgd", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    ("sgd", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
    ("adam", {"lr": 0.05}), ("adam", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}),
    ("adamw", {"lr": 0.05}), ("adamw", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.3}),
    ("adam", {"lr": 0.05, "amsgrad": True}), ("adamw", {"lr": 0.02, "amsgrad": True, "weight_decay": 0.1}),
    ("sgd", {"lr": 0.01, "momentum": 0.9, "maximize": True, "weight_decay": 0.5}),
    ("rmsprop", {"lr": 0.01}), ("rmsprop", {"lr": 0.01, "alpha": 0.9, "eps": 0.1, "weight_decay": 0.1}), ("rmsprop", {"lr": 0.002, "momentum": 0.9}),
    ("rmsprop", {"lr": 0.003, "centered": True, "eps": 1e-3}), ("rmsprop", {"lr": 0.002, "centered": True, "momentum": 0.5, "eps": 1e-3}),
    ("adagrad", {"lr": 0.1}), ("adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.1, "eps": 1e-6}),
    ("lamb", {"lr": 0.005}), ("lamb", {"lr": 0.004, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    ("lars", {"lr": 1.0}), ("lars", {"lr": 0.5, "momentum": 0.5, "coefficient": 0.01, "weight_decay": 0.1}),
    ("muon", {"lr": 0.005}), ("muon", {"lr": 0.01, "momentum": 0.8, "nesterov": False, "weight_decay": 0.3, "ns_steps": 3}),
]


def lamb(parameters, gradients, state, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
    """Algorithm 2 of You et al. 2019 in NumPy, with the identity for φ."""
    t = state["t"] = state.get("t", 0) + 1
    for i, (w, g) in enumerate(zip(parameters, gradients)):
        m, v = state.get(i, (np.zeros_like(w), np.zeros_like(w)))
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        state[i] = (m, v)
        u = (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps) + weight_decay * w
        own, step = np.sqrt((w * w).sum()), np.sqrt((u * u).sum())
        w -= lr * (own / step if own > 0 and step > 0 else 1.0) * u


def lars(parameters, gradients, state, lr, momentum=0.9, coefficient=0.001, eps=1e-8, weight_decay=0.0):
    """Algorithm 1 of You, Gitman & Ginsburg 2017 in NumPy; eps and the case of norm 0 as in common implementations."""
    for i, (w, g) in enumerate(zip(parameters, gradients)):
        own, slope = np.sqrt((w * w).sum()), np.sqrt((g * g).sum())
        trust = coefficient * own / (slope + weight_decay * own + eps) if own > 0 and slope > 0 else 1.0
        state[i] = momentum * state.get(i, np.zeros_like(w)) + lr * trust * (g + weight_decay * w)
        w -= state[i]


class ByFormula(torch.optim.Optimizer):
    """An optimizer that PyTorch does not have: `rule` changes NumPy views of the parameters."""

    def __init__(self, params, rule, **options):
        super().__init__(params, options)
        self.rule, self.options, self.memory = rule, options, {}

    @torch.no_grad()
    def step(self):
        params = self.param_groups[0]["params"]
        self.rule([p.detach().numpy() for p in params], [p.grad.numpy() for p in params], self.memory, **self.options)


def newton_schulz(gradient, coefficients, steps, eps):
    """PyTorch's own function without its rounding to bf16, whose digits would be all that a comparison sees."""
    a, b, c = coefficients
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


class MuonAndAdamW:
    """Muon for matrices, AdamW at a fifth of the rate for the rest, as Muon is meant to be used."""

    def __init__(self, params, **options):
        matrices, rest = [p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2]
        self.parts = ([torch.optim.Muon(matrices, **options)] if matrices else []) + ([torch.optim.AdamW(rest, lr=options["lr"] / 5)] if rest else [])

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()


torch.optim._muon._zeropower_via_newtonschulz = newton_schulz
CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad,
           "lamb": lambda p, **o: ByFormula(p, lamb, **o), "lars": lambda p, **o: ByFormula(p, lars, **o), "muon": MuonAndAdamW}


def trajectories():
    """optim.json: 100 steps of each optimizer, in f64, on 0.5 Σ c (x - t)² and on a small tanh network with cross-entropy."""
    # no element starts at its goal: Adam makes steps of size lr out of the rounding noise of a gradient of 0, other ones in f32 than in f64
    start, curvature, goal = ramp(6, dtype=F64), torch.tensor([0.1, 0.5, 1.0, 2.0, 4.0, 0.0], dtype=F64), ramp(6, dtype=F64, step=0.9, offset=1.3)
    x, targets = ramp(8, 3, dtype=F64), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    w1, b1, w2, b2 = ramp(5, 3, dtype=F64, step=0.53) / 4, torch.zeros(5, dtype=F64), ramp(4, 5, dtype=F64, step=0.71) / 4, torch.zeros(4, dtype=F64)
    shown = (1, 2, 3, 10, 30, 100)
    runs = []
    for name, options in OPTIMIZERS:
        def run(parameters, loss):
            leaves = [p.clone().requires_grad_() for p in parameters]
            optimizer = CLASSES[name](leaves, **options)
            losses, seen = [], {}
            for step in range(1, 101):
                optimizer.zero_grad()
                value = loss(*leaves)
                value.backward()
                losses.append(value.item())
                optimizer.step()
                if step in shown:
                    seen[step] = [numbers(p) for p in leaves]
            return {"losses": losses, "parameters_after": seen}

        as_shape = (2, 3) if name == "muon" else (6,)
        runs.append({"optimizer": name, "options": options, "shape": as_shape,
                     "quadratic": run([start.reshape(as_shape)], lambda p: 0.5 * (curvature.reshape(as_shape) * (p - goal.reshape(as_shape)) ** 2).sum()),
                     "mlp": run([w1, b1, w2, b2], lambda a, b, c, d: F.cross_entropy(F.linear(torch.tanh(F.linear(x, a, b)), c, d), targets))})
    matrices = []
    for m, n in ((3, 3), (2, 5), (6, 2)):
        x0 = ramp(m, n, dtype=F64, step=0.53)
        matrices.append({"x": tensor(x0), "steps": 5, "y": tensor(newton_schulz(x0, (3.4445, -4.7750, 2.0315), 5, 1e-7))})
    write(__file__, "optim", {"newton_schulz": matrices, "start": numbers(start), "curvature": numbers(curvature), "goal": numbers(goal), "x": tensor(x), "targets": targets.tolist(),
                              "w1": tensor(w1), "b1": tensor(b1), "w2": tensor(w2), "b2": tensor(b2), "runs": runs})


def schedules():
    """schedules.json: the rates of 100 steps."""
    from torch.optim import lr_scheduler as S

    def rates(make, lr=0.5, steps=100, metric=None):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
        scheduler = make(optimizer)
        seen = []
        for step in range(steps):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step(metric(step)) if metric else scheduler.step()
        return seen

    def nano(it, warmup=10, decay=80, lr=0.5, low=0.05):
        """get_lr of nanoGPT's train.py."""
        if it < warmup:
            return lr * (it + 1) / (warmup + 1)
        if it > decay:
            return low
        return low + 0.5 * (1.0 + math.cos(math.pi * (it - warmup) / (decay - warmup))) * (lr - low)

    losses = [round(2 / (1 + step // 7 * (step < 40)) + 0.01 * (step % 3), 6) for step in range(100)]
    write(__file__, "schedules", {
        "step": rates(lambda o: S.StepLR(o, 15, 0.3)), "multi_step": rates(lambda o: S.MultiStepLR(o, [5, 40, 41], 0.2)),
        "exponential": rates(lambda o: S.ExponentialLR(o, 0.97)), "cosine": rates(lambda o: S.CosineAnnealingLR(o, 100, 0.01)),
        "cosine_restarts": rates(lambda o: S.CosineAnnealingWarmRestarts(o, 9, 2, 0.01)), "cosine_restarts_even": rates(lambda o: S.CosineAnnealingWarmRestarts(o, 9)),
        "linear": rates(lambda o: S.LinearLR(o, 0.1, 0.6, 40)), "polynomial": rates(lambda o: S.PolynomialLR(o, 70, 2.0)),
        "one_cycle": rates(lambda o: S.OneCycleLR(o, 0.5, total_steps=100), steps=100 - 1) + [0.5 / 25 / 1e4],
        "one_cycle_with": rates(lambda o: S.OneCycleLR(o, 0.5, total_steps=60, pct_start=0.5, div_factor=10, final_div_factor=100), steps=60 - 1),
        "lambda": rates(lambda o: S.LambdaLR(o, lambda step: 1 / math.sqrt(1 + step))),
        "chained": rates(lambda o: S.ChainedScheduler([S.LinearLR(o, 0.1, 1.0, 20), S.ExponentialLR(o, 0.95)])),
        "sequential": rates(lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.2, 1.0, 10), S.ExponentialLR(o, 0.9)], [10])),
        "plateau": rates(lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=4), metric=lambda step: losses[step]), "plateau_losses": losses,
        "nano_gpt": [nano(step) for step in range(100)]})


layers()
losses()
trajectories()
schedules()
