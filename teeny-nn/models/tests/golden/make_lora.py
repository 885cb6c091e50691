"""Writes the folders in `lora/`: tiny models with random weights, each with adapters that peft has
saved and `expected.json`: for each adapter the logits, and the losses of 12 steps of AdamW.

    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    python make_lora.py
"""

import json
import shutil
from pathlib import Path

import peft
import torch
import torch.nn.functional as F
import transformers as t

FOLDER = Path(__file__).parent / "lora"
VOCAB = 24


def adapters():
    """Model, name, options of `LoraConfig`."""
    yield "llama", "all", dict(r=2, lora_alpha=3, target_modules="all-linear")
    yield "llama", "patterns", dict(
        r=2,
        lora_alpha=6,
        target_modules=["q_proj", "v_proj", "down_proj"],
        rank_pattern={
            r"layers\.1\.self_attn\.v_proj": 1,
            "v_proj": 4,
            "model.layers.0.mlp.down_proj": 3,
        },
        alpha_pattern={"q_proj": 1.5},
        use_rslora=True,
    )
    yield "llama", "numbers", dict(
        r=3, lora_alpha=3, target_modules=["k_proj", "up_proj", "o_proj"], layers_to_transform=[1]
    )
    yield "llama", "lora_only", dict(
        r=2,
        lora_alpha=2,
        target_modules=["q_proj", "k_proj", "v_proj", "down_proj"],
        bias="lora_only",
    )
    yield "llama", "bias", dict(r=1, lora_alpha=4, target_modules=["o_proj"], bias="all")
    yield "llama", "saved", dict(
        r=2,
        lora_alpha=2,
        target_modules=r".*layers\.0\.self_attn\.[qo]_proj",
        modules_to_save=["embed_tokens", "model.norm"],
    )
    yield "llama", "embedding", dict(
        r=2, lora_alpha=2, target_modules=["embed_tokens", "lm_head", "gate_proj"]
    )
    yield "gpt2", "conv", dict(
        r=2, lora_alpha=3, target_modules=["c_attn", "c_proj", "wte"], fan_in_fan_out=True
    )
    yield "gpt2", "head", dict(
        r=2,
        lora_alpha=2,
        target_modules=["c_fc"],
        exclude_modules=["h.0.mlp.c_fc"],
        modules_to_save=["lm_head", "h.0.attn.c_attn"],
        fan_in_fan_out=True,
    )
    yield "bert", "classes", dict(
        r=2,
        lora_alpha=3,
        target_modules=["query", "value", "word_embeddings", "output.dense"],
        task_type="SEQ_CLS",
    )
    yield "bert", "all", dict(r=2, lora_alpha=3, target_modules="all-linear", task_type="SEQ_CLS")


def model(name):
    dropouts = dict(attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    if name == "llama":
        config = t.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=16,
            intermediate_size=20,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            attention_bias=True,
            mlp_bias=True,
        )
        return t.LlamaForCausalLM(config)
    if name == "gpt2":
        none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        sizes = dict(vocab_size=VOCAB, n_embd=12, n_layer=2, n_head=2, n_positions=32)
        return t.GPT2LMHeadModel(t.GPT2Config(**sizes, **none))
    config = t.BertConfig(
        vocab_size=VOCAB,
        hidden_size=12,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        num_labels=3,
        **dropouts,
    )
    return t.BertForSequenceClassification(config)


def perturb(parameters, scale):
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(scale * torch.randn_like(parameter))


def main():
    torch.manual_seed(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    tokens = torch.randint(3, VOCAB, (2, 9))
    classes = torch.tensor([2, 0])
    names = list(dict.fromkeys(name for name, *_ in adapters()))
    for name in names:
        base = model(name).eval()
        perturb(base.parameters(), 0.2)
        base.save_pretrained(FOLDER / name)
        expected = {
            "versions": {module.__name__: module.__version__ for module in (torch, peft, t)},
            "tokens": tokens.tolist(),
            "classes": classes.tolist(),
            "adapters": {},
        }
        for own, adapter, options in adapters():
            if own != name:
                continue
            base = type(base).from_pretrained(FOLDER / name)
            task = options.pop("task_type", "CAUSAL_LM")
            tuned = peft.get_peft_model(base, peft.LoraConfig(task_type=task, **options)).eval()
            trained = [p for p in tuned.parameters() if p.requires_grad]
            perturb(trained, 0.3)
            folder = FOLDER / name / adapter
            tuned.save_pretrained(folder)
            (folder / "README.md").unlink()
            if adapter == "all" and name == "bert":
                # as peft wrote files until 2023
                state = peft.get_peft_model_state_dict(tuned)
                torch.save(state, FOLDER / name / "all.bin")
            config = folder / "adapter_config.json"
            values = json.loads(config.read_text()) | {"base_model_name_or_path": name}
            # a set, whose order differs from run to run
            if isinstance(values["target_modules"], list):
                values["target_modules"].sort()
            config.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
            logits = tuned(input_ids=tokens).logits.detach()
            optimizer, losses = torch.optim.AdamW(trained, lr=0.02), []
            for _ in range(12):
                y = tuned(input_ids=tokens).logits
                if name == "bert":
                    loss = F.cross_entropy(y, classes)
                else:
                    loss = F.cross_entropy(y[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            expected["adapters"][adapter] = {
                "trainable": sum(p.numel() for p in trained),
                "logits": [round(x, 6) for x in logits.flatten().tolist()],
                "losses": losses,
            }
            print(name, adapter, losses[0], losses[-1])
        (FOLDER / name / "expected.json").write_text(json.dumps(expected) + "\n")


main()
