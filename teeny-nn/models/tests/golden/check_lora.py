"""Opens in peft the adapters that the test `written_adapters_are_those_that_were_read` has written:
logits must be those of `lora/*/expected.json`.

    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    TEENY_SAVED=/tmp/saved cargo test --release -p teeny-models --test all lora_peft
    python check_lora.py /tmp/saved
"""

import json
import sys
import warnings
from pathlib import Path

import peft
import torch
import transformers

GOLDEN = Path(__file__).parent / "lora"


def main():
    # peft warns of tensors that are missing or not expected
    warnings.filterwarnings("error", ".*(missing|unexpected) .*keys")
    count = 0
    for folder in sorted(path.parent for path in Path(sys.argv[1]).glob("*/*/adapter_config.json")):
        name, adapter = folder.parent.name, folder.name
        golden = json.loads((GOLDEN / name / "expected.json").read_text())
        config = transformers.AutoConfig.from_pretrained(GOLDEN / name)
        model_class = getattr(transformers, config.architectures[0])
        base = model_class.from_pretrained(GOLDEN / name)
        model = peft.PeftModel.from_pretrained(base, folder).eval()
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(golden["tokens"])).logits.flatten()
        wanted = torch.tensor(golden["adapters"][adapter]["logits"])
        difference = (logits - wanted).abs().max().item()
        print(f"{name:6} {adapter:10} {type(model).__name__:38} {difference:.1e}")
        assert difference < 2e-6 * wanted.abs().max().clamp(min=1), (name, adapter)
        count += 1
    print(count, "adapters are equal")


main()
