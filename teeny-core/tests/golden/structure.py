"""structure.json: arranging, padding, counting and pairing, by the expression itself; the test knows the same expressions in Rust.

An expression of several results has several rows' worth of `results`. Integers and bools are written as numbers.
"""

import json
import math

import numpy as np
import torch
import torch.nn.functional as F

from encode import number, ramp, write

F64 = torch.float64
x, y, z = ramp(2, 3, 4, dtype=F64), ramp(3, 4, dtype=F64, step=0.53), ramp(5, 4, dtype=F64, step=0.29)
v, w = torch.tensor([3.0, -1, 2, 2, math.nan, 7, 2], dtype=F64), torch.tensor([2.0, 5, 5, 1, 9, 3, 3], dtype=F64)
k = torch.tensor([3, 1, 3, 0, 1, 3, 3, 1])
rows = torch.tensor([[1, 2, 2], [0, 5, 1], [1, 2, 2], [0, 4, 9], [1, 2, 0]])
edges = torch.tensor([[0.0, 1, 2, 4], [-3, -2, -2, 7]], dtype=F64)
points = torch.tensor([[-1.0, 1, 4, 9, math.nan], [-2, -3, 7, 0, 8]], dtype=F64)
names = {"torch": torch, "F": F, "np": np, "math": math, "x": x, "y": y, "z": z, "v": v, "w": w, "k": k, "rows": rows, "edges": edges, "points": points}

EXPRESSIONS = """
F.pad(x, (1, 2), mode="reflect"); F.pad(x, (3, 0), mode="reflect"); F.pad(x[None], (1, 2, 2, 1), mode="reflect"); F.pad(x, (2, 5), mode="replicate")
F.pad(x[None], (0, 2, 4, 1), mode="replicate"); F.pad(x, (4, 1), mode="circular"); F.pad(x[None], (1, 2, 3, 0), mode="circular")
F.pad(x, (-1, 2), mode="replicate")
torch.tile(y, (2,)); torch.tile(y, (2, 1, 3)); torch.repeat_interleave(y, torch.tensor([2, 0, 3]), 0); torch.repeat_interleave(y, torch.tensor([1, 0, 2, 1]), 1)
torch.movedim(x, 0, 2); torch.movedim(x, (0, 1), (-1, 0)); torch.movedim(x, 2, 0); torch.movedim(x, (2, 0), (0, 1))
torch.rot90(y, 1, (0, 1)); torch.rot90(y, 2, (0, 1)); torch.rot90(y, -1, (0, 1)); torch.rot90(x, 1, (2, 0)); torch.rot90(y, 4, (0, 1))
torch.diff(y, dim=0); torch.diff(y, n=2, dim=1); torch.diff(k > 1); torch.diff(y, n=5, dim=1)
torch.diag(v[:3]); torch.diag(v[:2], 1); torch.diag(v[:2], -2); torch.diag(y, 1); torch.diag_embed(y); torch.diag_embed(y, -1)
torch.trace(y); torch.trace(rows); torch.kron(y, z); torch.kron(v[:3], y); torch.kron(x, torch.tensor(2.0, dtype=F64)); torch.outer(v[:3], w[:2])
torch.cdist(y, z, 2.0); torch.cdist(y, z, 1.0); torch.cdist(y, z, math.inf); torch.cdist(y, z, 3.0); torch.cdist(y, z, 0.0); torch.cdist(x, y[None], 2.0); torch.cdist(y, y, 2.0)
torch.cummax(v, 0); torch.cummin(v, 0); torch.cummax(x, 1); torch.cummin(k, 0); torch.cummax(x, 0); torch.cummax(k > 1, 0)
torch.take_along_dim(x, torch.argsort(x, dim=1, stable=True), 1); torch.take_along_dim(x, torch.tensor([[[0], [2]]]), 1); torch.take(x, torch.tensor([[0, 23], [5, 5]]))
torch.from_numpy(np.take_along_axis(y.numpy(), np.array([[-1, 0, 0, -3]]), 0)); torch.index_add(y, 0, torch.tensor([2, 0, 2]), y * 10); torch.index_add(x, 1, torch.tensor([1, 1]), x[:, 1:])
torch.unique(rows, dim=0, return_inverse=True, return_counts=True); torch.unique(rows, dim=1, return_inverse=True, return_counts=True)
torch.unique_consecutive(w, return_inverse=True, return_counts=True); torch.unique_consecutive(k, return_inverse=True, return_counts=True)
torch.searchsorted(edges, points); torch.searchsorted(edges, points, right=True); torch.searchsorted(edges[0], points); torch.searchsorted(edges[0], points, right=True)
torch.bincount(k); torch.bincount(k, minlength=7); torch.bincount(k[:7], weights=w); torch.bincount(k[:0], minlength=2)
torch.histogram(w, 4); torch.histogram(x.reshape(-1), 5, range=(-1.5, 1.0)); torch.histogram(w[1:3], 2)
"""


def result(t):
    return {"shape": list(t.shape), "data": [number(e, t.dtype) for e in t.contiguous().reshape(-1).tolist()]}


def main():
    cases = []
    for text in EXPRESSIONS.replace("\n", ";").split(";"):
        if text.strip():
            got = eval(text.strip(), {**names, "F64": F64})
            cases.append({"expression": text.strip(), "results": [result(t) for t in (got if isinstance(got, tuple) else (got,))]})
    write(__file__, "structure", {"inputs": {n: result(t) for n, t in names.items() if isinstance(t, torch.Tensor)}, "cases": cases})


if __name__ == "__main__":
    main()
