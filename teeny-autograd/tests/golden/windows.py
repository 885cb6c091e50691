"""windows.json: convolution, pooling and interpolation with their gradients, by the expression itself: python3 windows.py (needs torch, numpy).

Each row names its inputs (ramps of the shapes below, f64), an expression, its result and the gradients of `sum(y * w)`, w = 1, 2, .. / n. The test
knows the same expressions in Rust. `encode` says how a tensor becomes JSON; it lives with the tensor core's golden files.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import torch
import torch.nn.functional as F

from encode import grads, numbers, ramp, tensor, write

SHAPES = {
    "x1": (2, 4, 9), "x2": (1, 4, 5, 6), "x3": (1, 2, 3, 4, 4), "w1": (6, 2, 3), "w2": (4, 2, 3, 2), "w3": (2, 2, 2, 3, 2), "v1": (4, 3, 3), "v2": (4, 2, 2, 3),
    "v3": (2, 1, 2, 2, 3), "d1": (4, 1, 2), "s1": (3, 4, 4), "s2": (2, 4, 3, 2), "i1": (2, 2, 5), "i2": (1, 2, 4, 5), "i3": (1, 1, 2, 3, 3), "p": (1, 8, 2, 3),
    "c": (1, 12, 12), "m": (1, 4, 7, 7),
}
STEPS = {"w": 0.53, "v": 0.29, "d": 0.41, "s": 0.31}

ROWS = """
x1 w1: F.conv1d(x1, w1, stride=2, padding=1, groups=2)
x1 w1: F.conv1d(x1, w1, dilation=3, padding=2, groups=2)
x1 d1: F.conv1d(x1, d1, groups=4)
x1 s1: F.conv1d(x1, s1, padding="same")
x2 w2: F.conv2d(x2, w2, stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2)
x2 w2: F.conv2d(x2, w2, padding=1, groups=2)
x2 s2: F.conv2d(x2, s2, padding="same", dilation=(1, 3))
x3 w3: F.conv3d(x3, w3, padding=1, stride=2)
x3 w3: F.conv3d(x3, w3)
x1 v1: F.conv_transpose1d(x1, v1)
x1 v1: F.conv_transpose1d(x1, v1, stride=3, padding=1, output_padding=2)
x1 v1: F.conv_transpose1d(x1, v1, stride=2, dilation=2, groups=2)
x1 v1: F.conv_transpose1d(x1, v1, dilation=3, padding=2, output_padding=2)
x2 v2: F.conv_transpose2d(x2, v2, stride=2, padding=1, output_padding=(1, 0), groups=2)
x2 v2: F.conv_transpose2d(x2, v2, stride=(1, 3), dilation=(2, 1), padding=(0, 1))
x3 v3: F.conv_transpose3d(x3, v3, stride=2, padding=1, output_padding=1)
x3 v3: F.conv_transpose3d(x3, v3, groups=2)
x1: F.max_pool1d(x1, 3, 2, 1, dilation=2)
x2: F.max_pool2d(x2, (2, 3), 2, 1)
x2: F.max_pool2d(x2, 2, 3, ceil_mode=True)
m: F.max_pool2d(m, 3, 2, 1, dilation=2, ceil_mode=True)
m: F.max_pool2d(m, 2, 2, ceil_mode=True)
x3: F.max_pool3d(x3, 2, (1, 2, 2))
x3: F.max_pool3d(x3, 2, 2, ceil_mode=True)
x1: F.avg_pool1d(x1, 4, 3, 2)
x1: F.avg_pool1d(x1, 2, 3, 1, ceil_mode=True)
x2: F.avg_pool2d(x2, (2, 3), 2, 1, count_include_pad=False)
x2: F.avg_pool2d(x2, 3, 2, 1, ceil_mode=True)
x2: F.avg_pool2d(x2, 3, 2, 1, ceil_mode=True, count_include_pad=False)
m: F.avg_pool2d(m, 2, 2, ceil_mode=True)
x2: F.avg_pool2d(x2, 2, 1, divisor_override=3)
x3: F.avg_pool3d(x3, 2, 1, 1)
x3: F.avg_pool3d(x3, 3, 2, 1, ceil_mode=True, count_include_pad=False)
x1: F.adaptive_avg_pool1d(x1, 4)
x2: F.adaptive_avg_pool2d(x2, (3, 4))
x2: F.adaptive_avg_pool2d(x2, (5, 2))
x2: F.adaptive_avg_pool2d(x2, 1)
x3: F.adaptive_avg_pool3d(x3, (2, 3, 5))
x1: F.adaptive_max_pool1d(x1, 4)
x2: F.adaptive_max_pool2d(x2, (3, 4))
x2: F.adaptive_max_pool2d(x2, (1, 3))
x3: F.adaptive_max_pool3d(x3, (2, 3, 3))
x1: F.lp_pool1d(x1.abs() + 0.1, 2, 3, 2)
x2: F.lp_pool2d(x2.abs() + 0.1, 3.0, (2, 3), 2)
x2: F.max_unpool2d(*F.max_pool2d(x2, 2, 2, return_indices=True), 2, 2, output_size=(5, 6))
x1: F.max_unpool1d(*F.max_pool1d(x1, 3, 3, return_indices=True), 3, 3)
x2: F.unfold(x2, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1))
x2: F.unfold(x2, 2)
c: F.fold(c, (4, 4), (2, 3), padding=(0, 1), stride=(1, 1))
c: F.fold(c, (9, 4), (2, 2), stride=(2, 1))
i1: F.interpolate(i1, 8, mode="nearest")
i2: F.interpolate(i2, (7, 3), mode="nearest")
i2: F.interpolate(i2, (7, 3), mode="nearest-exact")
i3: F.interpolate(i3, (3, 7, 2), mode="nearest")
i1: F.interpolate(i1, 8, mode="linear")
i1: F.interpolate(i1, 3, mode="linear", align_corners=True)
i2: F.interpolate(i2, (6, 9), mode="bilinear")
i2: F.interpolate(i2, (6, 2), mode="bilinear", align_corners=True)
i2: F.interpolate(i2, (1, 9), mode="bilinear", align_corners=True)
i2: F.interpolate(i2, scale_factor=(1.6, 0.7), mode="bilinear")
i2: F.interpolate(i2, scale_factor=2.0, mode="nearest")
i3: F.interpolate(i3, (3, 5, 4), mode="trilinear")
i3: F.interpolate(i3, (3, 5, 4), mode="trilinear", align_corners=True)
i2: F.interpolate(i2, (6, 9), mode="bicubic")
i2: F.interpolate(i2, (3, 3), mode="bicubic", align_corners=True)
i2: F.interpolate(i2, scale_factor=(1.6, 0.7), mode="bicubic")
i2: F.interpolate(i2, (3, 7), mode="area")
p: F.pixel_shuffle(p, 2)
i2: F.pixel_unshuffle(i2[:, :, :, 1:], 2)
p: F.channel_shuffle(p, 4)
"""


def short(x):
    """Nine decimals: the file would be twice as long otherwise."""
    return [round(v, 9) for v in numbers(x)]


def main():
    inputs = {name: ramp(*shape, dtype=torch.float64, step=STEPS.get(name[0], 0.37)) for name, shape in SHAPES.items()}
    cases = []
    for line in ROWS.strip().splitlines():
        names, text = line.split(": ", 1)
        names = names.split()
        y, g = grads(lambda *v: eval(text, {"F": F, **dict(zip(names, v))}), *(inputs[n] for n in names))
        cases.append({"expression": text, "of": names, "shape": list(y.shape), "data": short(y), "grads": [short(v) for v in g]})
    write(__file__, "windows", {"inputs": {name: tensor(x) for name, x in inputs.items()}, "cases": cases})


if __name__ == "__main__":
    main()
