"""PyTorch's times of the workloads chain10/1K, 16K and 1M of the program bench: ten operations in a
row, eagerly and by torch.compile, sampled in turn as bench samples eager, recorded and captured ones.

    python3 examples/compare/torch_chain.py --threads 2

One line of JSON for each. torch.compile needs a C++ compiler.
"""

import argparse
import json
import time

import torch


def chain(x, a, c):
    y = (x * a + c).abs() * 0.5 - a
    return torch.minimum(-(torch.maximum(y, c) * x + 1.0), a)


def sample(function, operands, runs):
    start = time.perf_counter()
    for _ in range(runs):
        function(*operands)
    return (time.perf_counter() - start) / runs


def median(samples):
    return sorted(samples)[len(samples) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    ways = {"torch": chain, "compiled": torch.compile(chain)}
    for name, n in [("1K", 1 << 10), ("16K", 1 << 14), ("1M", 1 << 20)]:
        operands = [torch.randn(n) for _ in range(3)]
        runs = {}
        for way, function in ways.items():
            sample(function, operands, 50)
            runs[way] = max(1, round(1e-4 / sample(function, operands, 10)))
        samples = {way: [] for way in ways}
        start = time.perf_counter()
        while time.perf_counter() - start < 2:
            for way, function in ways.items():
                samples[way].append(sample(function, operands, runs[way]))
        for way in ways:
            ms = round(median(samples[way]) * 1e3, 6)
            line = {"peer": way, "threads": threads, "name": f"chain10/{name}", "ms": ms}
            print(json.dumps(line), flush=True)


with torch.no_grad():
    main()
