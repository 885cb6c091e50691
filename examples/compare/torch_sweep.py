"""Times the random workloads of `bench --sweep` in PyTorch, each in turn with ours.

    python3 torch_sweep.py --bench target/release/bench --seed 1 --cases 500 > sweep.jsonl
    python3 table.py --sweep sweep.jsonl

A case is timed three times: ours, PyTorch, ours. Each line of output is the case with `ours` and
`torch`, milliseconds as [least, median]; ours are the smaller of the two turns. `--threads`,
`--grad`, `--dtype`, `--only` and `--models` are passed on.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
import torch_models

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


def conv(f):
    return lambda x, w, stride, padding, dilation, groups: f(
        x, w, None, stride, padding, dilation, groups
    )


def scatter_reduce(reduce):
    return lambda x, i, s, axis: x.scatter_reduce(axis, i, s, reduce)


def normal(name):
    """A tensor filled with random numbers."""

    def fill(shape, dtype):
        x = torch.empty(shape, dtype=dtype)
        return getattr(x, name)() if name != "bernoulli_" else x.bernoulli_(0.5)

    return fill


OPS = {
    "recip": torch.reciprocal,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu6": F.relu6,
    "selu": F.selu,
    "softplus": F.softplus,
    "log_sigmoid": F.logsigmoid,
    "mish": F.mish,
    "softsign": F.softsign,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "is_nan": torch.isnan,
    "is_inf": torch.isinf,
    "is_finite": torch.isfinite,
    "maximum": lambda x, y: torch.maximum(x, y) if torch.is_tensor(y) else x.clamp(min=y),
    "minimum": lambda x, y: torch.minimum(x, y) if torch.is_tensor(y) else x.clamp(max=y),
    "rem": torch.remainder,
    "floor_div": torch.floor_divide,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "where_cond": torch.where,
    "masked_fill": lambda x, mask: x.masked_fill(mask, -math.inf),
    "cast": lambda x, to: x.to(DTYPES[to]),
    "chain": lambda x, scale, shift: F.relu(x * scale + shift),
    "copy": lambda x, order: x.permute(order).clone(memory_format=torch.contiguous_format),
    "cat": lambda *x: torch.cat(x[:-1], x[-1]),
    "stack": lambda *x: torch.stack(x[:-1], x[-1]),
    "pad": lambda x, width: F.pad(x, (width,) * 4),
    "flip": lambda x, axis: torch.flip(x, (axis,)),
    "repeat": lambda x, counts: x.repeat(counts),
    "slice_assign": lambda x, part, axis, end: torch.slice_scatter(x, part, axis, 0, end),
    "index": lambda x, i, j: x[i, j],
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "index_add": lambda x, i, src: torch.index_add(x, 0, i, src),
    "gather": lambda x, i, axis: torch.gather(x, axis, i),
    "scatter": lambda x, i, s, axis: torch.scatter(x, axis, i, s),
    "scatter_add": lambda x, i, s, axis: torch.scatter_add(x, axis, i, s),
    "scatter_max": scatter_reduce("amax"),
    "scatter_min": scatter_reduce("amin"),
    "linear": F.linear,
    "bmm": torch.bmm,
    "attention": lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "cholesky": torch.linalg.cholesky,
    "solve": torch.linalg.solve,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "pinv": torch.linalg.pinv,
    "solve_triangular": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    "qr": lambda x: torch.linalg.qr(x)[0],
    "svd": lambda x: torch.linalg.svd(x)[1],
    "eigh": lambda x: torch.linalg.eigh(x)[0],
    "sum": lambda x, axis: torch.sum(x, axis, dtype=x.dtype),
    "sum_all": lambda x: torch.sum(x, dtype=x.dtype),
    "max_all": torch.max,
    "max": torch.amax,
    "min": torch.amin,
    "argmax": torch.argmax,
    "sum_channels": torch.sum,
    "var_channels": lambda x, axes: torch.var(x, axes, correction=0),
    "cummax": lambda x, axis: torch.cummax(x, axis)[0],
    "sort": lambda x, axis, descending: torch.sort(
        x, stable=True, dim=axis, descending=descending
    )[0],
    "argsort": lambda x, axis, descending: torch.argsort(
        x, stable=True, dim=axis, descending=descending
    ),
    "topk": lambda x, k, axis, largest: torch.topk(x, k, axis, largest)[0],
    "cross_entropy": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
    "norm": lambda x, axis: torch.linalg.vector_norm(x, 2, axis),
    "one_hot": lambda i, classes: F.one_hot(i, classes).float(),
    "logical_sum": lambda x, y: (x == y).float().mean(),
    "conv1d": conv(F.conv1d),
    "conv2d": conv(F.conv2d),
    "conv3d": conv(F.conv3d),
    "conv_transpose2d": lambda x, w, stride, padding: F.conv_transpose2d(
        x, w, None, stride, padding
    ),
    "max_pool2d": F.max_pool2d,
    "avg_pool2d": F.avg_pool2d,
    "global_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "interpolate": lambda x, side, mode: F.interpolate(x, (side, side), mode=mode),
    "randint": lambda shape, dtype: torch.randint(0, 100, shape, dtype=dtype),
    "full": lambda shape, dtype: torch.full(shape, 1, dtype=dtype),
    "uniform": normal("uniform_"),
    "normal": normal("normal_"),
    "bernoulli": normal("bernoulli_"),
}


def operand(entry):
    """The tensor of an operand: same shape, layout, type, and values of the same kind."""
    shape, layout, fill = list(entry["shape"]), entry["layout"], entry["fill"]
    dtype = DTYPES[entry["dtype"]]
    if layout == "transposed":
        shape[-1], shape[-2] = shape[-2], shape[-1]
    elif layout == "sliced":
        shape[-1] *= 2
    elif layout == "expanded":
        shape[0] = 1
    if fill.startswith("index:"):
        x = torch.randint(0, int(fill[6:]), shape)
    elif fill == "mask" or dtype == torch.bool:
        x = torch.randint(0, 2, shape).bool()
    elif fill == "definite":
        a = torch.randn(shape, dtype=dtype)
        x = a @ a.mT + shape[-1] * torch.eye(shape[-1], dtype=dtype)
    elif dtype.is_floating_point:
        x = {
            "normal": torch.randn,
            "positive": lambda s: torch.rand(s) * 1.9 + 0.1,
            "unit": lambda s: torch.rand(s) * 1.8 - 0.9,
        }[fill](shape).to(dtype)
    else:
        x = torch.randint(*((1, 9) if fill == "positive" else (0, 100)), shape).to(dtype)
    if layout == "transposed":
        x = x.mT
    elif layout == "sliced":
        n = entry["shape"][-1]
        x = x.narrow(-1, n // 2, n)
    elif layout == "expanded":
        x = x.expand(entry["shape"])
    return x


def runs(case):
    """The function that does the work of a case once."""
    f = OPS.get(case["op"]) or getattr(torch, case["op"])
    xs = [operand(entry) for entry in case["inputs"]]
    args = list(case["args"])
    if not xs:
        # Our bernoulli draws bools.
        args.append(torch.bool if case["op"] == "bernoulli" else DTYPES[case["dtype"]])
    if not case["grad"]:
        return lambda: f(*xs, *args)
    leaves = [x.requires_grad_() for x in xs if x.is_floating_point()]
    y = f(*xs, *args)
    g = torch.randn_like(y)
    return lambda: torch.autograd.grad(f(*xs, *args), leaves, g, allow_unused=True)


def clock(f):
    """(least, median) milliseconds of a run, by the rules of the other side."""

    def group(n):
        start = time.perf_counter()
        for _ in range(n):
            f()
        return (time.perf_counter() - start) / n

    warm, start = [], time.perf_counter()
    while len(warm) < 3 or time.perf_counter() - start < 0.02:
        warm.append(group(1))
    n = min(max(math.ceil(5e-5 / statistics.median(warm[1:])), 1), 1000)
    samples, start = [], time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - start < 0.06:
        samples.append(group(n))
    return min(samples) * 1e3, statistics.median(samples) * 1e3


def once(case):
    """Runs a model some times, for `peaks.py`."""
    run = torch_models.run(case)
    for _ in range(8):
        run()


def processor():
    """The processor as the system names it: virtual machines hide all but family and model."""
    try:
        with open("/proc/cpuinfo") as lines:
            pairs = (line.split(":", 1) for line in lines if ":" in line)
            of = {key.strip(): value.strip() for key, value in pairs}
        return f"{of['model name']}, family {of['cpu family']}, model {of['model']}"
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bench", default="target/release/bench")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--once", help=argparse.SUPPRESS)
    arguments, others = parser.parse_known_args()
    torch.set_num_threads(arguments.threads)
    if arguments.once:
        return once(json.loads(arguments.once))
    command = [arguments.bench, "--device", "cpu", "--threads", str(arguments.threads)]
    ours = subprocess.Popen(
        [*command, "--sweep", "--turns", *others],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def answer(text):
        print(text, file=ours.stdin, flush=True)

    for line in ours.stdout:
        case = json.loads(line)
        # Each side's workers are asleep when the other's turn begins.
        time.sleep(0.01)
        try:
            model = case["op"].startswith("model/")
            torch_time = clock(torch_models.run(case) if model else runs(case))
        except (RuntimeError, NotImplementedError, TypeError) as error:
            print(f"# {case['op']} {case['dtype']}: {str(error).splitlines()[0]}", file=sys.stderr)
            answer("next")
            continue
        time.sleep(0.01)
        answer("again")
        again = json.loads(ours.stdout.readline())
        answer("next")
        least = min(case.pop("least_ms"), again["least_ms"])
        middle = min(case.pop("ms"), again["ms"])
        case["ours"], case["torch"] = [least, middle], [round(t, 6) for t in torch_time]
        case["threads"] = arguments.threads
        case["processor"], case["peer"] = processor(), f"PyTorch {torch.__version__}"
        print(json.dumps(case), flush=True)
    sys.exit(ours.wait())


main()
