"""Prints the tables of BENCHMARKS.md from lines of JSON by `bench` and by other libraries.

    python3 table.py results.jsonl > table.md
    python3 table.py --sweep cases.jsonl
    python3 table.py --roofline roofline.jsonl

The third form is for the lines of `bench --roofline`. The second form is for the lines of `torch_sweep.py`: how many random cases are ahead, the median,
the slowest twenty, and the same by operation.

A line is {"peer": .., "device": "cpu", "threads": .., "name": .., "ms": .., "unit": ..,
"rate": ..}. Lines of peer "teeny" are ours, those of "limit" are the machine's. Of several lines for
one workload or limit the median counts. `peak_rss/..` lines have MiB as their rate.
"""

import json
import statistics
import sys
from collections import defaultdict

# The columns, and the peers whose best time each of them shows.
FAMILIES = {
    "PyTorch": ["torch", "torch-foreach"],
    "tuned": ["torch-tuned"],
    "compiled": ["torch-compile", "torch-compile-tuned", "torch-max-autotune-tuned"],
    "tinygrad": ["tinygrad", "tinygrad-jit", "tinygrad-llvm-jit"],
    "NumPy": ["numpy", "numpy-avx512"],
    "candle": ["candle", "candle-avx512"],
    "burn": ["burn", "burn-flex", "burn-avx512"],
}

# The goal for the ratio to PyTorch.
GOALS = {
    "matmul/64": 4,
    "matmul/mlp": 2.7,
    "matmul/batched": 2.7,
    "matmul": 2.2,
    "matvec": 2.2,
    "add/16M": 5,
    "add/bcast": 10,
    "add/1K": 10,
    "add/transposed": 15,
    "copy/transposed": 10,
    "copy/permute": 4,
    "exp": 7,
    "tanh": 11,
    "gelu/16M": 15,
    "chain/16M": 15,
    "chain_bcast": 20,
    "sum/all": 1,
    "sum/axis1": 1.1,
    "max/axis1": 1.1,
    "sum/axis0": 3.5,
    "argmax": 6,
    "softmax": 2.2,
    "layernorm": 1.9,
    "gather": 1.05,
    "maxpool": 40,
    "conv/first": 1.5,
    "conv/mid_fwdbwd": 2.7,
    "conv/mid": 3.5,
    "attention": 4.5,
    "mnist_mlp/step512": 2.5,
    "mnist_mlp/step": 4,
    "mnist_cnn": 2.5,
    "makemore": 8,
    "gpt_char": 2.5,
    "lstm": 3,
    "gpt2/prefill": 2.3,
    "gpt2/decode": 2,
    "dispatch": 25,
}

# The limit that the rate of a workload is divided by.
READ, COPY, ADD, FMA = "bw/read/16M", "bw/copy_nt/16M", "bw/add_nt/16M", "fma/avx512"
LIMITS = [
    ("matmul/64", (FMA, 1)),
    ("matmul", (FMA, 2)),
    ("conv", (FMA, 2)),
    ("attention", (FMA, 2)),
    ("matvec", (READ, 2)),
    ("sum", (READ, 2)),
    ("max/", (READ, 2)),
    ("argmax", (READ, 2)),
    ("add/1K", None),
    ("add/16M", (ADD, 2)),
    ("add/transposed", (ADD, 2)),
    ("chain/", (ADD, 2)),
    ("add/bcast", (COPY, 2)),
    ("copy", (COPY, 2)),
    ("exp", (COPY, 2)),
    ("tanh", (COPY, 2)),
    ("gelu", (COPY, 2)),
    ("chain_bcast", (COPY, 2)),
]


def first(table, name):
    """The entry of the longest beginning of `name`."""
    found = [key for key in table if name.startswith(key)]
    return table[max(found, key=len)] if found else None


def digits(x):
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def describe(case):
    """A case in a few words."""
    operands = " ".join(
        "x".join(map(str, x["shape"])) + ("" if x["layout"] == "packed" else f" {x['layout']}")
        for x in case["inputs"]
    )
    args = ", ".join(map(str, case["args"]))
    grad = " with gradients" if case["grad"] else ""
    return f"{case['op']}({operands}{'; ' if args else ''}{args}) {case['dtype']}{grad}"


def sweep(paths):
    """Prints the distribution of PyTorch's time divided by ours over random cases."""
    cases = [json.loads(line) for path in paths for line in open(path) if line.startswith("{")]
    for case in cases:
        case["ratio"], case["least"] = (
            case["torch"][i] / max(case["ours"][i], 1e-9) for i in (1, 0)
        )

    def summary(name, cases):
        ratios = sorted(case["ratio"] for case in cases)
        share = lambda limit: f"{100 * sum(r >= limit for r in ratios) / len(ratios):.1f}"
        print(
            f"| {name} | {len(ratios)} | {share(1)} | {share(0.95)} | {share(0.8)} "
            f"| {statistics.median(ratios):.2f} | {ratios[0]:.2f} |"
        )

    def table(key):
        groups = defaultdict(list)
        for case in cases:
            groups[case[key]].append(case)
        print(f"\n| {key} | cases | % >= 1 | % >= 0.95 | % >= 0.8 | median | least |")
        print("|---|---|---|---|---|---|---|")
        if key == "dtype":
            summary("all", cases)
        for name in sorted(groups, key=lambda name: min(c["ratio"] for c in groups[name])):
            summary(name, groups[name])

    peers = {(case.get("processor", "?"), case.get("peer", "?"), case["threads"]) for case in cases}
    for processor, peer, threads in sorted(peers):
        print(f"{processor}; {threads} threads; {peer}")
    table("dtype")
    table("op")
    print("\n| slowest | ours, ms | PyTorch, ms | ratio | of the least times |")
    print("|---|---|---|---|---|")
    for case in sorted(cases, key=lambda case: case["ratio"])[:20]:
        ours, torch = case["ours"][1], case["torch"][1]
        ratio, least = case["ratio"], case["least"]
        print(
            f"| {describe(case)} | {digits(ours)} | {digits(torch)} | {ratio:.2f} | {least:.2f} |"
        )


def roofline(paths):
    """Prints what a device reaches in each operation beside what its peaks allow."""
    print("| operation | ms | GFLOP/s | GB/s | FLOP/byte | possible GFLOP/s | bound | share, % |")
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        for row in (json.loads(line) for line in open(path) if line.startswith("{")):
            cells = [digits(row[key]) for key in ("ms", "gflops", "gbs")]
            cells += [digits(row[k]) if k in row else "" for k in ("intensity", "possible_gflops")]
            cells += [row.get("bound", ""), f"{100 * row['share']:.0f}" if "share" in row else ""]
            print("|", row["name"].removeprefix("roofline/"), "|", " | ".join(cells), "|")


def main():
    if sys.argv[1:2] == ["--sweep"]:
        return sweep(sys.argv[2:])
    if sys.argv[1:2] == ["--roofline"]:
        return roofline(sys.argv[2:])
    lines = defaultdict(list)
    order = []
    for path in sys.argv[1:]:
        for line in open(path):
            if not line.startswith("{"):
                continue
            line = json.loads(line)
            if line.get("device", "cpu").startswith("cpu") and "rate" in line:
                lines[line["peer"], line["name"], line["threads"]].append(
                    (line["ms"], line["rate"])
                )
                if line["peer"] == "teeny" and line["name"] not in order:
                    order.append(line["name"])

    families = {
        family: peers
        for family, peers in FAMILIES.items()
        if any(peer in peers for peer, _, _ in lines)
    }

    def middle(peer, name, threads=2):
        found = lines.get((peer, name, threads))
        return tuple(map(statistics.median, zip(*found))) if found else None

    keys = [(FMA, 1), (FMA, 2), (READ, 2), (COPY, 2), (ADD, 2)]
    limits = {key: found[1] for key in keys if (found := middle("limit", *key))}
    print(
        "Limits:",
        "; ".join(f"{name} on {threads}: {rate:.0f}" for (name, threads), rate in limits.items()),
        "\n",
    )
    print(
        "| workload | teeny, ms | of the limit |",
        " | ".join(families),
        "| PyTorch / teeny | goal | best peer / teeny |",
    )
    print("|---|" + "---|" * (len(families) + 5))
    for name in order:
        if name.startswith("peak_rss"):
            continue
        ms, rate = middle("teeny", name)
        times = {}
        for family, peers in families.items():
            found = [middle(peer, name)[0] for peer in peers if middle(peer, name)]
            if found:
                times[family] = min(found)
        limit = first(dict(LIMITS), name)
        share = f"{rate / limits[limit]:.2f}" if limit and limits.get(limit) else ""
        columns = " | ".join(
            digits(times[family]) if family in times else "" for family in families
        )
        torch = f"{times['PyTorch'] / ms:.2f}" if "PyTorch" in times else ""
        best = min(times, key=times.get) if times else None
        ratio = f"{times[best] / ms:.2f} ({best})" if best else ""
        print(
            f"| {name} | {digits(ms)} | {share} | {columns} | {torch} "
            f"| {first(GOALS, name) or ''} | {ratio} |"
        )
    print()
    print("| peak memory, MiB | teeny |", " | ".join(families), "|")
    print("|---|" + "---|" * (len(families) + 1))
    for name in ["peak_rss/gpt_char/step", "peak_rss/mnist_cnn/step"]:
        cells = [
            [middle(peer, name)[1] for peer in peers if middle(peer, name)]
            for peers in [["teeny"], *families.values()]
        ]
        print(
            f"| {name.removeprefix('peak_rss/')} | "
            + " | ".join(f"{min(cell):.0f}" if cell else "" for cell in cells)
            + " |"
        )


main()
