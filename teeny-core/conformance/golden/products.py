"""matmul.json, softmax.json, conv.json: products and the fused ops, with gradients. All in f64, so f32 rounds from the truth."""

import math

import torch
import torch.nn.functional as F

from encode import grads, numbers, ramp, tensor, write

F64 = torch.float64


def matmul():
    pairs = [([3], [3]), ([3], [3, 4]), ([2, 3], [3]), ([2, 3], [3, 4]), ([1, 3], [3, 1]), ([3], [2, 3, 4]), ([2, 2, 3], [3]),
             ([5, 2, 3], [3, 4]), ([2, 3], [5, 3, 4]), ([5, 2, 3], [5, 3, 4]), ([1, 2, 3], [5, 3, 4]), ([5, 2, 3], [1, 3, 4]),
             ([2, 1, 2, 3], [3, 3, 4]), ([2, 3, 2, 3], [3, 1]), ([2, 1, 2, 3], [1, 3, 3, 2]), ([7, 5], [5, 9]),
             ([0, 3], [3, 4]), ([2, 0], [0, 4]), ([2, 3], [3, 0]), ([0], [0]), ([2, 0, 3], [3, 4]),
             ([2, 3], [2, 3]), ([3], [4]), ([], [3]), ([2, 3], [4]), ([2, 2, 3], [3, 3, 4])]
    cases = []
    for s, t in pairs:
        a, b = ramp(*s, dtype=F64), ramp(*t, dtype=F64, step=0.53, modulus=3.3)
        row = {"lhs": tensor(a), "rhs": tensor(b)}
        try:
            y, (ga, gb) = grads(torch.matmul, a, b)
            row |= {"result": tensor(y), "grad_lhs": numbers(ga), "grad_rhs": numbers(gb)}
        except RuntimeError:
            row |= {"result": "error"}
        cases.append(row)
    a, b = torch.arange(12, dtype=F64).reshape(3, 4).requires_grad_(), torch.arange(20, dtype=F64).reshape(4, 5).requires_grad_()
    y = a @ b
    y.sum().backward()
    lesson = {"result": numbers(y), "grad_lhs": numbers(a.grad), "grad_rhs": numbers(b.grad)}
    write(__file__, "matmul", {"cases": cases, "arange_3x4_by_4x5": lesson})


def softmax():
    inf = math.inf
    tables = {
        "plain": ramp(3, 5, dtype=F64), "large": torch.tensor([[1e4, 0.0, -1e4], [1e4, 1e4, 1e4], [-1e4, -1e4, -1e4 + 1]], dtype=F64),
        "partly_masked": torch.tensor([[0.5, -inf, 1.0], [-inf, -inf, 2.0], [1e4, -inf, -1e4]], dtype=F64),
        "fully_masked": torch.tensor([[-inf, -inf, -inf], [1.0, 2.0, 3.0]], dtype=F64),
        "infinite": torch.tensor([[inf, 0.0, 1.0], [math.nan, 0.0, 1.0]], dtype=F64),
        "one_class": torch.tensor([[3.0], [-7.0]], dtype=F64), "columns": ramp(4, 3, dtype=F64),
    }
    cases = []
    for name, x in tables.items():
        axis = 0 if name == "columns" else -1
        for op, f in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax), ("logsumexp", torch.logsumexp)):
            y, (g,) = grads(lambda v: f(v, axis), x)
            cases.append({"name": name, "op": op, "axis": axis, "x": tensor(x), "data": numbers(y), "grad": numbers(g)})
    loss = []
    for name, x, target in (("fixture", torch.tensor([[-1.0, 2, -3], [1, -2, 3]], dtype=F64), [1, 2]), ("ten_equal", torch.zeros(1, 10, dtype=F64), [3]),
                            ("large", tables["large"], [0, 1, 2]), ("large_wrong", tables["large"], [2, 0, 0]),
                            ("partly_masked", tables["partly_masked"], [0, 2, 0]), ("target_masked", tables["partly_masked"], [1, 2, 0])):
        y, (g,) = grads(lambda v: F.cross_entropy(v, torch.tensor(target)), x)
        loss.append({"name": name, "x": tensor(x), "targets": target, "loss": numbers(y)[0], "grad": numbers(g)})
    write(__file__, "softmax", {"cases": cases, "cross_entropy": loss})


def conv():
    cases = []
    # input, weight, stride, padding, dilation, groups
    two = [([1, 1, 5, 5], [1, 1, 3, 3], 1, 0, 1, 1), ([2, 3, 5, 6], [4, 3, 3, 2], 1, 0, 1, 1), ([1, 2, 5, 5], [2, 2, 3, 3], 1, 1, 1, 1),
           ([1, 2, 6, 7], [3, 2, 3, 3], 2, 1, 1, 1), ([1, 2, 7, 7], [2, 2, 3, 3], 1, 2, 2, 1), ([1, 4, 4, 4], [4, 2, 3, 3], 1, 1, 1, 2),
           ([1, 3, 4, 4], [6, 1, 2, 2], 1, 0, 1, 3), ([1, 2, 6, 5], [2, 2, 3, 2], (2, 1), (1, 0), (1, 2), 1), ([1, 2, 3, 3], [4, 2, 1, 1], 1, 0, 1, 1),
           ([2, 1, 4, 4], [1, 1, 4, 4], 1, 0, 1, 1), ([1, 1, 6, 6], [1, 1, 2, 2], 3, 0, 1, 1)]
    one = [([1, 1, 6], [1, 1, 3], 1, 0, 1, 1), ([2, 3, 7], [4, 3, 3], 2, 1, 1, 1), ([1, 2, 8], [2, 2, 3], 1, 2, 2, 1), ([1, 4, 5], [4, 1, 2], 1, 0, 1, 4)]
    for op, f, rows in (("conv2d", F.conv2d, two), ("conv1d", F.conv1d, one)):
        for s, t, stride, padding, dilation, groups in rows:
            x, w, b = ramp(*s, dtype=F64), ramp(*t, dtype=F64, step=0.53, modulus=2.3, offset=1), ramp(t[0], dtype=F64)
            y, (gx, gw, gb) = grads(lambda *v: f(*v, stride=stride, padding=padding, dilation=dilation, groups=groups), x, w, b)
            cases.append({"op": op, "x": tensor(x), "weight": tensor(w), "bias": numbers(b), "stride": stride, "padding": padding,
                          "dilation": dilation, "groups": groups, "result": tensor(y), "grad_x": numbers(gx), "grad_weight": numbers(gw),
                          "grad_bias": numbers(gb)})
    transposed = []
    for s, t, stride, padding, output_padding, dilation, groups in (([1, 2, 3, 3], [2, 3, 3, 3], 1, 0, 0, 1, 1), ([1, 2, 3, 4], [2, 2, 3, 2], 2, 1, 1, 1, 1),
                                                                   ([1, 4, 3, 3], [4, 1, 2, 2], 2, 0, 0, 1, 2), ([1, 1, 4, 4], [1, 2, 3, 3], 1, 1, 0, 2, 1)):
        x, w = ramp(*s, dtype=F64), ramp(*t, dtype=F64, step=0.53, modulus=2.3, offset=1)
        y, (gx, gw) = grads(lambda *v: F.conv_transpose2d(*v, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups), x, w)
        transposed.append({"x": tensor(x), "weight": tensor(w), "stride": stride, "padding": padding, "output_padding": output_padding,
                           "dilation": dilation, "groups": groups, "result": tensor(y), "grad_x": numbers(gx), "grad_weight": numbers(gw)})
    pools = []
    for s, kernel, stride, padding in (([1, 1, 4, 4], 2, 2, 0), ([2, 2, 5, 5], 3, 2, 1), ([1, 1, 5, 6], (2, 3), 1, 0), ([1, 1, 6, 6], 3, 3, 1), ([1, 1, 5, 5], 2, 2, 0)):
        x = ramp(*s, dtype=F64)
        for op, f in (("max_pool2d", F.max_pool2d), ("avg_pool2d", F.avg_pool2d), ("avg_pool2d_uncounted", lambda *v: F.avg_pool2d(*v, count_include_pad=False))):
            y, (g,) = grads(lambda v: f(v, kernel, stride, padding), x)
            pools.append({"op": op, "x": tensor(x), "kernel": kernel, "stride": stride, "padding": padding, "result": tensor(y), "grad": numbers(g)})
    ties = torch.tensor([[[[1.0, 1, 0], [1, 1, 0], [math.nan, 0, -0.0]]]], dtype=F64)
    y, (g,) = grads(lambda v: F.max_pool2d(v, 2, 1), ties)
    pools.append({"op": "max_pool2d", "x": tensor(ties), "kernel": 2, "stride": 1, "padding": 0, "result": tensor(y), "grad": numbers(g)})
    for s, size in (([1, 2, 5, 7], (2, 3)), ([1, 1, 4, 4], (1, 1)), ([1, 1, 3, 3], (5, 4))):
        for op, f in (("adaptive_avg_pool2d", F.adaptive_avg_pool2d), ("adaptive_max_pool2d", F.adaptive_max_pool2d)):
            x = ramp(*s, dtype=F64)
            y, (g,) = grads(lambda v: f(v, size), x)
            pools.append({"op": op, "x": tensor(x), "size": size, "result": tensor(y), "grad": numbers(g)})
    unfold = []
    for s, kernel, stride, padding, dilation in (([1, 2, 4, 5], (2, 3), 1, 0, 1), ([1, 1, 4, 4], (3, 3), 2, 1, 1)):
        x = ramp(*s, dtype=F64)
        y, (g,) = grads(lambda v: F.unfold(v, kernel, dilation, padding, stride), x)
        unfold.append({"x": tensor(x), "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "result": tensor(y), "grad": numbers(g)})
    write(__file__, "conv", {"cases": cases, "transposed": transposed, "pool": pools, "unfold": unfold})


def main():
    matmul()
    softmax()
    conv()
