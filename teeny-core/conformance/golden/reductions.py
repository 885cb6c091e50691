"""reduce.json: reductions over every set of axes, and the running sums."""

import itertools
import warnings

import torch

from encode import grads, numbers, ramp, tensor, write

OPS = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "logsumexp": torch.logsumexp,
       "var": lambda x, dim, keepdim: torch.var(x, dim, correction=1, keepdim=keepdim),
       "var_biased": lambda x, dim, keepdim: torch.var(x, dim, correction=0, keepdim=keepdim),
       "std": lambda x, dim, keepdim: torch.std(x, dim, correction=1, keepdim=keepdim),
       "std_biased": lambda x, dim, keepdim: torch.std(x, dim, correction=0, keepdim=keepdim)}
ONE_AXIS = {"prod": torch.prod, "argmax": torch.argmax, "argmin": torch.argmin, "any": lambda x, dim, keepdim: torch.any(x > 1, dim, keepdim),
            "all": lambda x, dim, keepdim: torch.all(x > -1.5, dim, keepdim)}


def main():
    warnings.filterwarnings("ignore", message=".*degrees of freedom")  # the variance of nothing is asked for on purpose
    x = ramp(2, 3, 4, dtype=torch.float64)
    axis_lists = [list(a) for n in (1, 2, 3) for a in itertools.combinations(range(3), n)] + [[-1], [-3], [-1, 0], [1, -1]]
    many, single = [], []
    for name, op in OPS.items():
        for i, axes in enumerate(axis_lists):
            keepdim = i % 2 == 1
            y, (g,) = grads(lambda v: op(v, axes, keepdim=keepdim), x)
            many.append({"op": name, "axes": axes, "keepdim": keepdim, "shape": list(y.shape), "data": numbers(y), "grad": numbers(g)})
    for name, op in ONE_AXIS.items():
        for i, axis in enumerate([0, 1, 2, -1, -2]):
            keepdim = i % 2 == 0
            y = op(x, axis, keepdim)
            single.append({"op": name, "axis": axis, "keepdim": keepdim, "shape": list(y.shape), "data": numbers(y)})

    scans = [{"op": name, "axis": axis, "data": numbers(y), "grad": numbers(g)}
             for name, op in {"cumsum": torch.cumsum, "cumprod": torch.cumprod}.items()
             for axis in (0, 1, 2, -1) for y, (g,) in [grads(lambda v: op(v, axis), x)]]

    # ties and zeros: which element gets the gradient
    tie = torch.tensor([[1.0, 3.0, 3.0], [0.0, 2.0, 5.0], [0.0, 0.0, 4.0]], dtype=torch.float64)
    ties = [{"op": name, "axis": 1, "data": numbers(y), "grad": numbers(g)}
            for name, op in {"amax": torch.amax, "amin": torch.amin, "prod": torch.prod, "cumprod": torch.cumprod}.items()
            for y, (g,) in [grads(lambda v: op(v, 1), tie)]]

    def attempt(op, *shape):
        try:
            y = op(torch.zeros(*shape))
            return {"shape": list(y.shape), "data": numbers(y)}
        except (RuntimeError, IndexError):
            return "error"

    empty = [{"op": name, "shape": [0, 3], "axis": axis, "result": attempt(lambda v: op(v, axis, keepdim=False), 0, 3)}
             for name, op in {**OPS, **ONE_AXIS}.items() for axis in (0, 1)]

    nan = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), 1.0, float("-inf")], [-0.0, 0.0, -0.0]], dtype=torch.float64)
    special = [{"op": name, "data": numbers(op(nan, 1, keepdim=False))}
               for name, op in {"sum": torch.sum, "amax": torch.amax, "amin": torch.amin, "argmax": torch.argmax, "argmin": torch.argmin,
                                "logsumexp": torch.logsumexp, "prod": torch.prod}.items()]

    # the dtype a reduction answers in
    dtypes = []
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        v = torch.ones(300).to(dtype)
        row = {"ones": 300, "of": tensor(v[:1])["dtype"]}
        for name, op in {"sum": torch.sum, "prod": torch.prod, "cumsum": lambda t: torch.cumsum(t, 0)[-1]}.items():
            y = op(v)
            row[name] = {"dtype": tensor(y)["dtype"], "value": numbers(y)[0]}
        dtypes.append(row)

    write(__file__, "reduce", {"x": tensor(x), "many": many, "single": single, "scan": scans, "tie_x": tensor(tie), "tie": ties,
                               "empty": empty, "special_x": tensor(nan), "special": special, "dtypes": dtypes})
