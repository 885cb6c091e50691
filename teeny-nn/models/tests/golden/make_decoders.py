"""Writes the folders in `decoders/`: tiny decoders with random weights, as transformers saves them,
each with `expected.json`: logits, and the tokens that greedy generation appends.

    pip install torch==2.15.0 transformers==5.24.0
    python make_decoders.py
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers as t

FOLDER = Path(__file__).parent / "decoders"
VOCAB = 40
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=24,
    intermediate_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def rope(kind, **more):
    return {"rope_theta": 1000.0, "rope_type": kind, **more}


def models():
    """Name, model, further options of `save_pretrained`."""
    llama = lambda **more: t.LlamaForCausalLM(t.LlamaConfig(**{**SIZES, **more}))
    yield "llama", llama(), {"max_shard_size": "12KB"}
    yield "llama-tied", llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True), {}
    llama3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    llama3["original_max_position_embeddings"] = 32
    yield "llama3", llama(rope_parameters=rope("llama3", **llama3), head_dim=8), {}
    yield "llama-linear", llama(rope_parameters=rope("linear", factor=4.0)), {}
    yield "llama-dynamic", llama(rope_parameters=rope("dynamic", factor=4.0)), {}
    yarn = dict(factor=4.0, original_max_position_embeddings=16)
    yield "llama-yarn", llama(rope_parameters=rope("yarn", **yarn), head_dim=10), {}
    mistral = t.MistralConfig(**SIZES, sliding_window=5)
    yield "mistral", t.MistralForCausalLM(mistral), {}
    qwen2 = dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)
    qwen2 = t.Qwen2Config(**SIZES, **qwen2, tie_word_embeddings=True)
    yield "qwen2", t.Qwen2ForCausalLM(qwen2), {}
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**SIZES, head_dim=10)), {}
    gemma2 = dict(head_dim=8, query_pre_attn_scalar=10, sliding_window=4)
    gemma2 |= dict(attn_logit_softcapping=2.0, final_logit_softcapping=4.0)
    yield "gemma2", t.Gemma2ForCausalLM(t.Gemma2Config(**SIZES, **gemma2)), {}
    gemma3 = {**SIZES, "num_hidden_layers": 7}
    gemma3 |= dict(head_dim=8, query_pre_attn_scalar=10, sliding_window=4)
    yield "gemma3", t.Gemma3ForCausalLM(t.Gemma3TextConfig(**gemma3)), {}
    yield "phi3", t.Phi3ForCausalLM(t.Phi3Config(**SIZES, sliding_window=6)), {}
    long = {
        "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 5.0],
        "original_max_position_embeddings": 16,
    }
    long = dict(rope_parameters=rope("longrope", partial_rotary_factor=0.75, **long))
    long |= dict(original_max_position_embeddings=16)
    yield "phi3-long", t.Phi3ForCausalLM(t.Phi3Config(**SIZES, **long)), {}
    gemma = t.GemmaConfig(**SIZES, head_dim=8)
    yield "gemma", t.GemmaForCausalLM(gemma), {}
    granite = dict(attention_multiplier=0.3, embedding_multiplier=3.0, attention_bias=True)
    granite |= dict(residual_multiplier=0.6, logits_scaling=1.7)
    yield "granite", t.GraniteForCausalLM(t.GraniteConfig(**SIZES, **granite)), {}
    starcoder2 = t.Starcoder2Config(**SIZES, sliding_window=6)
    yield "starcoder2", t.Starcoder2ForCausalLM(starcoder2), {}
    gpt2 = dict(vocab_size=VOCAB, n_embd=24, n_layer=3, n_head=4, n_positions=64)
    gpt2 |= dict(bos_token_id=1, eos_token_id=2, scale_attn_by_inverse_layer_idx=True)
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(**gpt2)), {}


def expected(model):
    """Logits of a text of 12 tokens; 32 tokens after it, and after 4 and 9 of its last in a batch
    that is padded on the left."""
    tokens = torch.randint(3, VOCAB, (1, 12))
    options = dict(do_sample=False, max_new_tokens=32, eos_token_id=None, pad_token_id=0)
    with torch.no_grad():
        logits = model(tokens).logits
        greedy = model.generate(tokens, **options)[:, 12:]
        batch = torch.zeros(2, 9, dtype=torch.long)
        batch[0, 5:] = tokens[0, -4:]
        batch[1] = tokens[0, -9:]
        mask = (torch.arange(9) >= torch.tensor([[5], [0]])).long()
        padded = model.generate(batch, attention_mask=mask, **options)[:, 9:]
    return {
        "tokens": tokens[0].tolist(),
        "logits": rounded(logits[0]),
        "greedy": greedy[0].tolist(),
        "greedy_padded": padded.tolist(),
    }


VARIANTS = [
    {"repetition_penalty": 1.4},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 1, "max_new_tokens": 20},
    {"suppress_tokens": [19, 20, 21, 22, 23, 24, 25]},
    {"eos_token_id": [5, 29, 31], "min_new_tokens": 6},
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "eos_token_id": 17},
]


def variants(model, tokens):
    """Greedy tokens under options, of a text and of a batch that is padded on the left."""
    tokens = torch.tensor([tokens])
    batch = torch.cat([tokens, torch.zeros_like(tokens)])
    batch[1, 7:] = tokens[0, :5]
    mask = torch.ones_like(batch)
    mask[1, :7] = 0
    result = []
    for options in VARIANTS:
        all = dict(do_sample=False, max_new_tokens=32, eos_token_id=None, pad_token_id=0)
        with torch.no_grad():
            rows = model.generate(batch, attention_mask=mask, **{**all, **options})[:, 12:]
        result.append({"options": options, "tokens": rows.tolist()})
    return result


def rounded(x):
    return [[round(value, 6) for value in row] for row in x.tolist()]


def margin(model, tokens):
    """The least distance of the largest logit of a step to the second one."""
    with torch.no_grad():
        best = model(torch.tensor([tokens])).logits[0, 11:-1].topk(2).values
    return (best[:, 0] - best[:, 1]).min().item()


def main():
    only = sys.argv[1:]  # the names of folders, or nothing for all
    for name, model, options in models():
        if only and name not in only:
            continue
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        model.eval()
        for seed in range(200):  # until no step is close to a tie
            torch.manual_seed(seed)
            for key, value in model.state_dict().items():
                scale = 0.5 if value.dim() == 1 else 0.4
                small = "embed" in key or "lm_head" in key or "wte" in key
                if small and ("gemma" in name or name == "starcoder2"):
                    # else a token follows itself
                    scale = 0.15
                if name == "gpt2":
                    scale = 0.3 if small or "bias" in key else 2.0 if "wpe" in key else scale
                center = float("norm" in key or "ln_" in key) * ("gemma" not in name)
                value.copy_(torch.randn_like(value) * scale * (0.3 if center else 1) + center)
            model = model.float()
            result = expected(model)
            distinct = len(set(result["greedy"]))
            if margin(model, result["tokens"] + result["greedy"]) > 0.01 and distinct > 6:
                break
        else:
            raise SystemExit(f"{name}: every text has a tie")
        folder = FOLDER / name
        model.save_pretrained(folder, **options)
        if name == "llama":
            result["variants"] = variants(model, result["tokens"])
        half = model.to(torch.bfloat16)
        with torch.no_grad():
            tokens = torch.tensor([result["tokens"]])
            result["logits_bf16"] = rounded(half(tokens).logits[0].float())
        text = json.dumps(result, separators=(",", ":"))
        (folder / "expected.json").write_text(text + "\n")
        print(name, seed, distinct)


if __name__ == "__main__":
    main()
