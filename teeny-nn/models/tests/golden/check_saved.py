"""Compares models that the test `saved_models_are_read_back` has saved with those that they were
opened from: keys and logits must be equal.

    pip install torch==2.15.0 transformers==5.24.0 pillow==12.3.0
    TEENY_SAVED=/tmp/saved cargo test --release -p teeny-models --test all saved_
    python check_saved.py /tmp/saved
"""

import json
import sys
from pathlib import Path

import torch
import transformers

GOLDEN = Path(__file__).parent


def main():
    count = 0
    for folder in sorted(Path(sys.argv[1]).glob("*/*")):
        kind, (name, dtype) = folder.parent.name, folder.name.rsplit("-", 1)
        source = GOLDEN / kind / name
        config = transformers.AutoConfig.from_pretrained(folder)
        model_class = getattr(transformers, config.architectures[0])
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        options = dict(dtype=dtype, output_loading_info=True)
        saved, info = model_class.from_pretrained(folder, **options)
        first, first_info = model_class.from_pretrained(source, **options)
        # a pooler may be missing in both
        for key in ("missing_keys", "unexpected_keys"):
            assert info[key] == first_info[key], (name, info)
        golden = json.loads((source / "expected.json").read_text())
        if "tokens" in golden:
            inputs = {"input_ids": torch.tensor([golden["tokens"]])}
        else:
            keys = ("input_ids", "attention_mask", "token_type_ids", "pixel_values")
            inputs = {key: torch.tensor(golden[key]) for key in keys if key in golden}
        with torch.no_grad():
            results = [model.eval()(**inputs)[0] for model in (saved, first)]
        assert torch.equal(*results), name
        if "pixel_values" in inputs:
            processor = transformers.AutoImageProcessor.from_pretrained(folder).to_dict()
            assert processor == transformers.AutoImageProcessor.from_pretrained(source).to_dict()
        count += 1
    print(count, "models are equal")


main()
