"""Writes state_dict.pt, arrays.npz and others: small files as PyTorch and NumPy write them, and their
content in files.json: python3 make_files.py (needs torch, CPU only, numpy and safetensors).
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "teeny-core/tests/golden"))

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from encode import tensor, write

folder = pathlib.Path(__file__).parent
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.randn(5, 4)).square().sum().backward()
optimizer.step()
torch.save(model.state_dict(), folder / "state_dict.pt")
x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "loss": 0.25, "name": "tiny", "best": True, "nothing": None,
            "transposed": x.t(), "row": x[1, 1:], "shared": [x, x], "parameter": nn.Parameter(x[:, ::2]), "scalar": torch.tensor(2.5, dtype=torch.float64),
            "empty": torch.zeros(0, 3), "big": 2**40, "negative": -5,
            "types": {str(t).split(".")[1]: torch.tensor([0, 1, 2, 3]).to(t) for t in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16)}},
           folder / "nested.pt")
torch.save(model, folder / "whole_model.pt")
torch.save(x.expand(3, 3, 4), folder / "expanded.pt")
torch.save(x, folder / "legacy.pt", _use_new_zipfile_serialization=False)
arrays = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([1, -2, 3], dtype=np.int64), "scalar": np.float64(2.5),
          "fortran": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)), "big_endian": np.arange(3, dtype=">f4"), "mask": np.array([True, False])}
np.savez(folder / "arrays.npz", **arrays)
np.savez_compressed(folder / "arrays_compressed.npz", **arrays)
save_file(model.state_dict(), folder / "state_dict.safetensors", metadata={"format": "pt"})
write(__file__, "files", {"state_dict": {name: tensor(t) for name, t in model.state_dict().items()},
                          "exp_avg": tensor(optimizer.state_dict()["state"][0]["exp_avg"])})
