"""Writes linalg.json beside this script: python3 make_linalg.py (needs torch, CPU only, and numpy).

Results are flattened into one vector, absolute values where a factorisation may choose signs. `encode` lives with the tensor core's golden files.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import torch
from encode import grads, numbers, ramp, tensor, write

L = torch.linalg


def flat(*parts):
    return torch.cat([p.reshape(-1) for p in parts])


def spd(x):
    return x @ x.mT + 2 * torch.eye(x.shape[-1], dtype=x.dtype)


def unsigned(parts):
    return flat(*(p.abs() for p in parts))


OPS = {
    "solve": lambda a, b: flat(L.solve(a, b)),
    "inv": lambda a: flat(L.inv(a)),
    "det": lambda a: flat(L.det(a)),
    "slogdet": lambda a: flat(L.slogdet(a)[1]),
    "cholesky": lambda a: flat(L.cholesky(spd(a))),
    "qr": lambda a: unsigned(L.qr(a)),
    "eigh": lambda a: unsigned(L.eigh(spd(a))),
    "svd": lambda a: unsigned(L.svd(a, full_matrices=False)),
    "pinv": lambda a: flat(L.pinv(a)),
    "lstsq": lambda a, b: flat(L.lstsq(a, b).solution),
    "lower": lambda a, b: flat(L.solve_triangular(a, b, upper=False)),
    "upper_unit": lambda a, b: flat(L.solve_triangular(a, b, upper=True, unitriangular=True)),
    "frobenius": lambda a: flat(L.matrix_norm(a, "fro")),
    "nuclear": lambda a: flat(L.matrix_norm(a, "nuc")),
    "spectral": lambda a: flat(L.matrix_norm(a, 2)),
    "columns": lambda a: flat(L.matrix_norm(a, 1)),
    "rows": lambda a: flat(L.matrix_norm(a, float("inf"))),
    "vector_norm": lambda a: flat(L.vector_norm(a, 2.5, dim=-1)),
}

square, tall, wide = ramp(2, 4, 4, dtype=torch.float64), ramp(2, 5, 3, dtype=torch.float64), ramp(2, 3, 5, dtype=torch.float64, step=0.53)
regular = square + 6 * torch.eye(4, dtype=torch.float64)
right = ramp(2, 4, 2, dtype=torch.float64, step=0.71)
INPUTS = {
    "solve": [(regular, right)], "inv": [(regular,)], "det": [(regular,)], "slogdet": [(regular,)], "cholesky": [(square,)],
    "qr": [(tall,), (wide,), (regular,)], "eigh": [(square,)], "svd": [(tall,), (wide,), (regular,)], "pinv": [(tall,), (wide,)],
    "lstsq": [(tall, ramp(2, 5, 2, dtype=torch.float64)), (wide, ramp(2, 3, 2, dtype=torch.float64))],
    "lower": [(regular, right)], "upper_unit": [(regular, right)],
}

cases = []
for name, function in OPS.items():
    for inputs in INPUTS.get(name, [(tall,)]):
        y, g = grads(function, *inputs)
        cases.append({"op": name, "inputs": [tensor(x) for x in inputs], "result": numbers(y), "grads": [numbers(x) for x in g]})
write(__file__, "linalg", {"cases": cases})
