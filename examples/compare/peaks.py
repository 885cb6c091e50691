"""Prints the peak memory of each model of `bench --sweep --models`, ours and PyTorch's, in MiB.

    python3 peaks.py --bench target/release/bench [--threads 2]

Each runs in a process of its own. `imported` is what PyTorch takes before it does anything.
"""

import argparse
import json
import os
import subprocess
import sys

SWEEP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_sweep.py")


def peak(command):
    """The peak memory of a process, in MiB. The largest of its parent counts too: keep it small."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} ended with {status}")
    return round(usage.ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bench", default="target/release/bench")
    parser.add_argument("--threads", default="2")
    arguments = parser.parse_args()
    ours = [arguments.bench, "--device", "cpu", "--threads", arguments.threads, "--sweep"]
    ours.append("--models")
    imported = peak([sys.executable, "-c", "import torch"])
    for grad in [[], ["--grad"]]:
        lines = subprocess.run([*ours, *grad], stdout=subprocess.PIPE, check=True, text=True).stdout
        for line in lines.splitlines():
            case = json.loads(line)
            name = case["op"].removeprefix("model/")
            theirs = [sys.executable, SWEEP, "--threads", arguments.threads, "--once", line]
            result = {"model": name, "grad": bool(grad), "ours": peak([*ours, *grad, "--only", name])}
            result["torch"], result["imported"] = peak(theirs), imported
            print(json.dumps(result), flush=True)


main()
