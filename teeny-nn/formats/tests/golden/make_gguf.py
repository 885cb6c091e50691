"""Writes types.gguf: random blocks of each element type that is read, and their values as f32.

Versions: gguf 0.19.0, numpy 2.4.6.    python make_gguf.py
"""

import warnings

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

rng = np.random.default_rng(36)
writer = GGUFWriter("types.gguf", "test")
writer.add_uint32("test.layers", 3)
writer.add_float32("test.epsilon", 1e-5)
writer.add_int32("test.negative", -7)
writer.add_bool("test.tied", True)
writer.add_array("tokenizer.ggml.tokens", ["<s>", "héllo", "\u2581a"])
writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0])

QUANTISED = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL MXFP4".split()
HALVES = {  # where the 16-bit floats of a block are
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "MXFP4": [],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
for name in QUANTISED:
    kind = Type[name]
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (6, size), dtype=np.uint8)  # three rows of two blocks
    for at in HALVES[name]:
        scale = rng.uniform(-2, 2, 6).astype("<f2")
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(6, 2)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 2, 120, 127, 200]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = dequantize(blocks, kind).astype(np.float32).reshape(3, 2 * elements)
    writer.add_tensor(name, blocks.reshape(3, 2 * size), raw_dtype=kind)
    writer.add_tensor(f"{name}.values", values)

plain = rng.standard_normal((2, 5)).astype(np.float32)
writer.add_tensor("F32", plain)
writer.add_tensor("F16", plain.astype(np.float16))
upper = (plain.view(np.uint32) >> 16).astype(np.uint16)
writer.add_tensor("BF16", upper.view(np.uint8).reshape(2, 10), raw_dtype=Type.BF16)
writer.add_tensor("I32", np.arange(6, dtype=np.int32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
