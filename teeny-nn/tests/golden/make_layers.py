"""Writes the golden files of the layers: python3 make_layers.py (needs torch, CPU only, and numpy).

Every case is a torch module in f64 with parameters of known values: its result, the gradients of sum(y * w) with w = 1, 2, 3, .. / n, its buffers
after the step, and its result in eval mode.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from encode import numbers, ramp, tensor, write

F64 = torch.float64


def fill(module):
    """Parameters without a pattern, each other than the last; weights of norms stay away from 0."""
    for i, (name, p) in enumerate(module.named_parameters()):
        with torch.no_grad():
            p.copy_(ramp(*p.shape, dtype=F64, step=0.41 + 0.13 * i) / 4 + (1 if "norm" in type(module).__name__.lower() and name == "weight" else 0))
    return module


def state(module):
    return {name: tensor(v) for name, v in module.state_dict().items()}


def weighted(y):
    return (y * (torch.arange(1, y.numel() + 1, dtype=F64).reshape(y.shape) / y.numel())).sum()


def case(kind, module, *inputs, **shown):
    """A module of one result."""
    module = fill(module.double().train())
    before = state(module)
    leaves = [x.clone().requires_grad_() if x.dtype.is_floating_point else x for x in inputs]
    y = module(*leaves)
    weighted(y).backward()
    after = {name: v for name, v in state(module).items() if name not in dict(module.named_parameters())}
    with torch.no_grad():
        used = module.eval()(*inputs)
    return {"layer": kind, **shown, "x": tensor(inputs[0]), "state": before, "result": tensor(y), "after": after,
            "grad_x": numbers(leaves[0].grad) if inputs[0].dtype.is_floating_point else None,
            "grads": {name: numbers(p.grad) for name, p in module.named_parameters()}, "use": numbers(used)}


def norms():
    cases = []
    batch = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    for shape in ([4, 3], [2, 3, 4], [2, 3, 2, 3], [2, 2, 2, 1, 3]):
        cases.append(case("batch", batch[len(shape)](shape[1]), ramp(*shape, dtype=F64), channels=shape[1]))
    for options in ({"momentum": None}, {"momentum": 0.3, "eps": 0.1}, {"affine": False}, {"track_running_stats": False}, {"affine": False, "track_running_stats": False}):
        cases.append(case("batch", nn.BatchNorm1d(3, **options), ramp(2, 3, 4, dtype=F64), channels=3, **options))

    class OnLast(nn.BatchNorm1d):
        """(B, T, C), as the lecture on makemore means it: the statistics of a channel are over B and T."""

        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    cases.append(case("batch", OnLast(3), ramp(4, 2, 3, dtype=F64), channels=3, channels_last=True))
    for options in ({}, {"affine": True}, {"affine": True, "track_running_stats": True}, {"track_running_stats": True, "momentum": 0.4}):
        cases.append(case("instance", nn.InstanceNorm1d(3, **options), ramp(2, 3, 4, dtype=F64), channels=3, **options))
        if options.get("track_running_stats"):
            cases[-1]["after"]["num_batches_tracked"]["data"] = [1]  # PyTorch forgets to count, and so knows no plain average here
    cases.append(case("instance", nn.InstanceNorm2d(2, affine=True), ramp(2, 2, 3, 2, dtype=F64), channels=2, affine=True))
    for groups, shape, affine in ((2, [2, 4, 3], True), (1, [2, 4], True), (4, [2, 4, 2, 2], True), (2, [3, 6, 2], False)):
        cases.append(case("group", nn.GroupNorm(groups, shape[1], affine=affine), ramp(*shape, dtype=F64), channels=shape[1], groups=groups, affine=affine))
    for sizes, form in (([4], "full"), ([3, 4], "full"), ([4], "weight"), ([4], "none")):
        module = nn.LayerNorm(sizes, elementwise_affine=form != "none", bias=form == "full")
        cases.append(case("layer", module, ramp(2, 3, 4, dtype=F64), sizes=sizes, form=form))
    for sizes, form, eps in (([4], "weight", None), ([3, 4], "weight", 1e-2), ([4], "none", 1e-5)):
        cases.append(case("rms", nn.RMSNorm(sizes, eps=eps, elementwise_affine=form != "none"), ramp(2, 3, 4, dtype=F64), sizes=sizes, form=form, eps=eps))
    ids = torch.tensor([[0, 4, 1], [1, 1, 3]])
    for padding in (None, 1):
        cases.append(case("embedding", nn.Embedding(5, 3, padding_idx=padding), ids, padding=padding))
    write(__file__, "norms", {"cases": cases})


def recurrent():
    """recurrent.json: the loss is weighted(y) + weighted(h) + weighted(c)."""
    cases = []

    def stack(kind, module, start, lengths=None, **shown):
        module = fill(module.double())
        options = {"layers": module.num_layers, "bias": module.bias, "batch_first": module.batch_first, "bidirectional": module.bidirectional}
        sizes = (2, 3) if lengths is None else (3, 4) if module.batch_first else (4, 3)
        x = ramp(*sizes, module.input_size, dtype=F64)  # (B, T, C) or (T, B, C)
        batch = x.shape[0 if module.batch_first else 1]
        count = 2 if kind == "lstm" else 1
        states = [ramp(module.num_layers * (1 + module.bidirectional), batch, module.hidden_size, dtype=F64, step=0.59 + 0.2 * i) / 3 for i in range(count)]
        leaves = [v.clone().requires_grad_() for v in [x] + (states if start else [])]
        given = (tuple(leaves[1:]) if count == 2 else leaves[1]) if start else None
        if lengths:
            packed = pack_padded_sequence(leaves[0], torch.tensor(lengths), batch_first=module.batch_first, enforce_sorted=False)
            y, last = module(packed, given)
            y, _ = pad_packed_sequence(y, batch_first=module.batch_first, total_length=4)
        else:
            y, last = module(leaves[0], given)
        last = last if count == 2 else (last,)
        sum(weighted(v) for v in (y, *last)).backward()
        cases.append({"kind": kind, **options, **shown, "inputs": module.input_size, "hidden": module.hidden_size, "lengths": lengths, "x": tensor(x),
                      "start": [tensor(v) for v in states] if start else None, "state": state(module), "y": tensor(y), "last": [tensor(v) for v in last],
                      "grad_x": numbers(leaves[0].grad), "grad_start": [numbers(v.grad) for v in leaves[1:]],
                      "grads": {name: numbers(p.grad) for name, p in module.named_parameters()}})

    for kind, make in (("rnn", nn.RNN), ("gru", nn.GRU), ("lstm", nn.LSTM)):
        stack(kind, make(2, 3, batch_first=True), False)
        stack(kind, make(2, 2, batch_first=False, bias=False), True)
        stack(kind, make(2, 2, num_layers=2, bidirectional=True, batch_first=True), True)
    stack("rnn", nn.RNN(2, 3, nonlinearity="relu", batch_first=True, bidirectional=True), True, relu=True)
    for kind, make in (("rnn", nn.RNN), ("gru", nn.GRU), ("lstm", nn.LSTM)):
        stack(kind, make(2, 3, batch_first=True), False, lengths=[2, 4, 1])
        stack(kind, make(2, 2, num_layers=2, bidirectional=True, batch_first=True), True, lengths=[3, 1, 2])
        stack(kind, make(2, 2, num_layers=2, bidirectional=True, bias=False), True, lengths=[1, 2, 4])
    stack("rnn", nn.RNN(2, 3, nonlinearity="relu", batch_first=True, bidirectional=True), True, lengths=[2, 4, 3], relu=True)
    cells = []
    for kind, module in (("rnn", nn.RNNCell(2, 3)), ("relu", nn.RNNCell(2, 3, nonlinearity="relu")), ("gru", nn.GRUCell(2, 3)), ("lstm", nn.LSTMCell(2, 3))):
        module = fill(module.double())
        x, h, c = ramp(2, 2, dtype=F64), ramp(2, 3, dtype=F64, step=0.59), ramp(2, 3, dtype=F64, step=0.79)
        result = module(x, (h, c)) if kind == "lstm" else (module(x, h),)
        sum(weighted(v) for v in result).backward()
        cells.append({"kind": kind, "x": tensor(x), "h": tensor(h), "c": tensor(c), "state": state(module), "result": [tensor(v) for v in result],
                      "grads": {name: numbers(p.grad) for name, p in module.named_parameters()}})
    write(__file__, "recurrent", {"cases": cases, "cells": cells})


def windows():
    """windows.json: convolutions and pooling over one to three axes."""
    cases = []
    convs = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}
    for x, inputs, outputs, kernel, options in (
            ([2, 2, 6], 2, 3, [3], {}), ([1, 4, 7], 4, 2, [2], {"stride": 2, "padding": 1, "groups": 2, "bias": False}),
            ([1, 2, 4, 5], 2, 2, [2, 3], {"stride": 2, "dilation": 1}), ([1, 1, 3, 3, 4], 1, 2, [2, 2, 2], {}), ([1, 1, 3, 3, 3], 1, 1, [3, 2, 1], {"padding": 1, "stride": 2})):
        module = convs[len(kernel)][0](inputs, outputs, kernel, **options)
        cases.append(case("conv", module, ramp(*x, dtype=F64), inputs=inputs, outputs=outputs, kernel=kernel, **options))
    for x, inputs, outputs, kernel, options in (
            ([2, 2, 4], 2, 3, [3], {}), ([1, 4, 3], 4, 2, [3], {"stride": 2, "padding": 1, "groups": 2, "output_padding": 1}),
            ([1, 2, 2, 3], 2, 2, [3, 2], {"stride": 2, "bias": False}), ([1, 1, 3, 2], 1, 2, [2, 2], {"stride": 3, "dilation": 2, "output_padding": 2}),
            ([1, 1, 2, 2, 2], 1, 2, [2, 2, 2], {"stride": 2}), ([1, 2, 2, 2, 2], 2, 1, [2, 1, 2], {"padding": 1, "stride": 2, "output_padding": 1})):
        module = convs[len(kernel)][1](inputs, outputs, kernel, **options)
        cases.append(case("transpose", module, ramp(*x, dtype=F64), inputs=inputs, outputs=outputs, kernel=kernel, **options))
    pools = {1: (nn.MaxPool1d, nn.AvgPool1d), 2: (nn.MaxPool2d, nn.AvgPool2d), 3: (nn.MaxPool3d, nn.AvgPool3d)}
    for x, size, options in (([2, 2, 6], 2, {}), ([1, 2, 7], 3, {"stride": 2, "padding": 1}), ([1, 2, 4, 4], 2, {}), ([1, 1, 4, 4, 2], 2, {}), ([1, 1, 3, 3, 3], 3, {"stride": 2, "padding": 1})):
        for i, kind in enumerate(("max", "avg")):
            cases.append(case(kind, pools[len(x) - 2][i](size, **options), ramp(*x, dtype=F64), size=[size] * (len(x) - 2), **options))
    for x, size, options in (([1, 2, 7], 3, {"stride": 2, "ceil_mode": True}), ([1, 1, 4, 5], 2, {"stride": 3, "padding": 1, "ceil_mode": True})):
        cases.append(case("max", pools[len(x) - 2][0](size, **options), ramp(*x, dtype=F64), size=[size] * (len(x) - 2), **options))
        for count in (True, False):
            options = {**options, "count_include_pad": count}
            cases.append(case("avg", pools[len(x) - 2][1](size, **options), ramp(*x, dtype=F64), size=[size] * (len(x) - 2), **options))
    adaptive = {1: (nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool1d), 2: (nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d), 3: (nn.AdaptiveMaxPool3d, nn.AdaptiveAvgPool3d)}
    for x, size in (([2, 2, 7], [3]), ([1, 2, 5, 4], [2, 3]), ([1, 2, 5, 4], [1, 1]), ([1, 1, 3, 4, 2], [2, 2, 1])):
        for i, kind in enumerate(("adaptive_max", "adaptive_avg")):
            cases.append(case(kind, adaptive[len(size)][i](size), ramp(*x, dtype=F64), size=size))
    write(__file__, "windows", {"cases": cases})


def activations():
    """activations.json: the last case has the ends of the domain and the kink."""
    cases = []
    for slopes, shape in ((1, [4]), (1, [2, 3]), (3, [4, 3]), (3, [2, 3, 4]), (2, [2, 2, 2, 3])):
        cases.append(case("prelu", nn.PReLU(slopes), ramp(*shape, dtype=F64), slopes=slopes))
    cases.append(case("prelu", nn.PReLU(), torch.tensor([float("inf"), 0.0, -0.0, -2.0], dtype=F64), slopes=1))
    write(__file__, "activations", {"cases": cases})


if __name__ == "__main__":
    activations()
    windows()
    norms()
    recurrent()
