"""index.json: moving elements by position: sort, gather, scatter, rolls, triangles and joins."""

import math

import torch
import torch.nn.functional as F

from encode import grads, numbers, ramp, tensor, write


def row(op, x, y, **arguments):
    return {"op": op, "x": tensor(x), **arguments, "result": tensor(y)}


def main():
    F64, cases = torch.float64, []
    x = torch.tensor([[3.0, 1, 2, 1], [0, -0.0, 5, -1], [2, 2, 2, 2]], dtype=F64)
    nan = torch.tensor([1.0, math.nan, -math.inf, 3, math.inf, 3, -0.0, 0.0], dtype=F64)
    for v, axes in ((x, (0, 1)), (nan, (0,)), (torch.tensor([3, -1, 2, -1]), (0,)), (torch.tensor([True, False, True]), (0,))):
        for axis in axes:
            for descending in (False, True):
                values, indices = torch.sort(v, dim=axis, descending=descending, stable=True)
                cases.append(row("sort", v, values, axis=axis, descending=descending, indices=numbers(indices)))
    distinct = torch.tensor([[3.0, 1, 2, 7], [0, -4, 5, -1]], dtype=F64)
    for axis, k, largest in ((1, 2, True), (1, 3, False), (0, 1, True), (1, 4, True), (1, 0, True)):
        values, indices = torch.topk(distinct, k, axis, largest=largest)
        cases.append(row("topk", distinct, values, axis=axis, k=k, largest=largest, indices=numbers(indices)))

    i = torch.tensor([[0, 2, 0, 0], [1, 1, 2, 0]])
    src = ramp(2, 4, dtype=F64)
    for axis, index in ((0, i), (1, torch.tensor([[3, 3], [0, 1], [2, 0]]))):
        y, (g,) = grads(lambda v: torch.gather(v, axis, index), x)
        cases.append(row("gather", x, y, axis=axis, index=tensor(index), grad=numbers(g)))
    y, (gx, gs) = grads(lambda v, s: torch.scatter_add(v, 0, i, s), x, src)
    cases.append(row("scatter_add", x, y, axis=0, index=tensor(i), src=tensor(src), grad=numbers(gx), grad_src=numbers(gs)))
    unique = torch.tensor([[0, 2, 1, 0], [1, 0, 2, 1]])
    y, (gx, gs) = grads(lambda v, s: torch.scatter(v, 0, unique, s), x, src)
    cases.append(row("scatter", x, y, axis=0, index=tensor(unique), src=tensor(src), grad=numbers(gx), grad_src=numbers(gs)))
    for reduce in ("amax", "amin"):
        cases.append(row("scatter_" + reduce, x, torch.scatter_reduce(x, 0, i, src, reduce), axis=0, index=tensor(i), src=tensor(src)))
    for axis, index in ((0, [2, 0, 0]), (1, [3, 1])):
        index = torch.tensor(index)
        y, (g,) = grads(lambda v: torch.index_select(v, axis, index), x)
        cases.append(row("index_select", x, y, axis=axis, index=tensor(index), grad=numbers(g)))
    labels = torch.tensor([[1, 0], [4, 2]])
    cases.append(row("one_hot", labels, F.one_hot(labels, 5), classes=5))

    r = ramp(3, 4, dtype=F64)
    for k in (-2, -1, 0, 1, 2, 5):
        cases += [row("tril", r, torch.tril(r, k), k=k), row("triu", r, torch.triu(r, k), k=k)]
    for k in (-1, 0, 2):
        cases.append(row("diagonal", r, torch.diagonal(r, k), k=k))
    for shifts, axes in (([1], [0]), ([-1], [1]), ([5], [1]), ([1, -2], [0, 1]), ([3], None)):
        cases.append(row("roll", r, torch.roll(r, shifts, axes), shifts=shifts, axes=axes))
    for axes in ([0], [1], [0, 1], [-1]):
        cases.append(row("flip", r, torch.flip(r, axes), axes=axes))
    for repeats in ([2, 1], [1, 3], [2, 1, 2]):
        y, (g,) = grads(lambda v: v.repeat(repeats), r)
        cases.append(row("repeat", r, y, repeats=repeats, grad=numbers(g)))
    for repeats, axis in ((2, 0), (3, 1)):
        cases.append(row("repeat_interleave", r, torch.repeat_interleave(r, repeats, axis), repeats=repeats, axis=axis))
    for pads, value in (([1, 2], 0.0), ([1, 0, 0, 2], 7.0), ([-1, 1], 0.0)):
        cases.append(row("pad", r, F.pad(r, pads, value=value), pads=pads, value=value))  # torch's order: last axis first
    for axis in (0, 1, -1):
        cases += [row("cat", r, torch.cat([r, r + 10], axis), axis=axis), row("stack", r, torch.stack([r, r + 10], axis), axis=axis)]
    for axis, chunks in ((0, 2), (1, 3), (1, 2)):
        cases.append({"op": "chunk", "x": tensor(r), "axis": axis, "chunks": chunks, "result": [tensor(p) for p in torch.chunk(r, chunks, axis)]})
    for axis, size in ((1, 3), (0, 2)):
        cases.append({"op": "split", "x": tensor(r), "axis": axis, "size": size, "result": [tensor(p) for p in torch.split(r, size, axis)]})
    for axis, size, step in ((1, 2, 1), (1, 3, 1), (0, 2, 1), (1, 2, 2)):
        y, (g,) = grads(lambda v: v.unfold(axis, size, step), r)
        cases.append(row("unfold", r, y, axis=axis, size=size, step=step, grad=numbers(g)))

    u = torch.tensor([3, 1, 3, 0, 1, 3])
    values, inverse, counts = torch.unique(u, return_inverse=True, return_counts=True)
    cases.append(row("unique", u, values, inverse=numbers(inverse), counts=numbers(counts)))
    cases.append(row("nonzero", x, torch.nonzero(x)))
    mask = r > 0
    y, (g,) = grads(lambda v: v.masked_fill(mask, -9.0), r)
    cases.append(row("masked_fill", r, y, mask=numbers(mask), value=-9.0, grad=numbers(g)))
    cases.append(row("masked_select", r, torch.masked_select(r, mask), mask=numbers(mask)))
    a, b = torch.arange(3.0), torch.arange(2.0) + 5
    for indexing in ("ij", "xy"):
        cases.append({"op": "meshgrid", "indexing": indexing, "x": tensor(a), "y": tensor(b), "result": [tensor(t) for t in torch.meshgrid(a, b, indexing=indexing)]})
    edges = torch.tensor([0.0, 1, 2, 4], dtype=F64)
    points = torch.tensor([-1.0, 0, 0.5, 1, 3, 4, 9], dtype=F64)
    for right in (False, True):
        cases.append(row("searchsorted", points, torch.searchsorted(edges, points, right=right), sorted=numbers(edges), right=right))
    for equation, s, t in (("ij,jk->ik", [2, 3], [3, 4]), ("bij,bjk->bik", [2, 2, 3], [2, 3, 2]), ("i,j->ij", [3], [2]), ("ij,ij->", [2, 3], [2, 3]),
                           ("ij,j->i", [2, 3], [3]), ("bhqd,bhkd->bhqk", [1, 2, 2, 3], [1, 2, 4, 3]), ("ij,kj->ki", [2, 3], [4, 3])):
        lhs, rhs = ramp(*s, dtype=F64), ramp(*t, dtype=F64, step=0.53)
        y, (ga, gb) = grads(lambda p, q: torch.einsum(equation, p, q), lhs, rhs)
        cases.append(row("einsum", lhs, y, equation=equation, rhs=tensor(rhs), grad=numbers(ga), grad_rhs=numbers(gb)))
    write(__file__, "index", {"cases": cases})
