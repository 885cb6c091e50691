"""Writes quant.bin: for each type, numbers (64 blocks of 32, f32) and the blocks that gguf makes.

Versions: gguf 0.19.0, numpy 2.4.6.    python make_quant.py
"""

import numpy as np
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import quantize

rng = np.random.default_rng(37)
x = rng.standard_normal((64, 32)).astype(np.float32)
x[1] *= 1e-3
x[2] *= 1e4
x[3] = 0.0  # all zeros
x[4] = 0.375  # all equal
x[5] = -x[4]
x[6] = 0.0
x[6, 17] = 100.0  # one outlier
x[7] = x[6]
x[7, 3] = -100.0  # two extremes of opposite signs
x[8] *= 1e-7  # subnormal scales
x[9] *= 1e-12  # scales that are 0 in 16 bits
x[10] = np.arange(32) - 16
x[11] = np.abs(x[11])
x[12] = -np.abs(x[12])
x[13] = np.where(np.arange(32) % 2 == 0, 1, -1) * np.float32(0.5)
x[14, 5:] = 0.0
x[15] *= 65504 / np.abs(x[15]).max()
x[16:32] *= np.exp(rng.uniform(-5, 5, (16, 1))).astype(np.float32)

with open("quant.bin", "wb") as file:
    for name in "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1".split():
        file.write(x.tobytes())
        file.write(quantize(x, Type[name]).tobytes())
