"""Writes a `model.gguf` of some folders of `decoders/`: the same weights under the names and in the
layout of llama.cpp, into `decoders_gguf/`.

    pip install gguf==0.19.0 safetensors numpy
    python make_decoders_gguf.py
"""

import json
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from safetensors.numpy import load_file

FOLDER = Path(__file__).parent
NAMES = {
    "embed_tokens": "token_embd",
    "wte": "token_embd",
    "wpe": "position_embd",
    "norm": "output_norm",
    "ln_f": "output_norm",
    "lm_head": "output",
}
LAYER = {
    "input_layernorm": "attn_norm",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.c_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name, gemma):
    parts = name.removeprefix("model.").removeprefix("transformer.").split(".")
    end = parts.pop()
    if parts[0] in ("layers", "h"):
        kind = ".".join(parts[2:])
        if kind == "post_attention_layernorm":
            kind = "post_attention_norm" if gemma else "ffn_norm"
        return f"blk.{parts[1]}.{LAYER.get(kind, kind)}.{end}"
    return f"{NAMES[parts[0]]}.{end}"


def main():
    for name in ["llama", "llama3", "qwen3", "gemma2", "gemma3", "phi3-long", "gpt2"]:
        source = FOLDER / "decoders" / name
        config = json.loads((source / "config.json").read_text())
        arch = {"gemma3_text": "gemma3"}.get(config["model_type"], config["model_type"])
        target = FOLDER / "decoders_gguf" / f"{name}.gguf"
        target.parent.mkdir(exist_ok=True)
        writer = GGUFWriter(str(target), arch)
        gemma, gpt = arch.startswith("gemma"), arch == "gpt2"
        get = lambda *keys: next(config[key] for key in keys if config.get(key) is not None)
        heads = get("num_attention_heads", "n_head")
        kv = config.get("num_key_value_heads", heads)
        width = get("hidden_size", "n_embd")
        size = config.get("head_dim") or width // heads
        writer.add_context_length(get("max_position_embeddings", "n_positions"))
        writer.add_embedding_length(width)
        writer.add_block_count(get("num_hidden_layers", "n_layer"))
        writer.add_feed_forward_length(4 * width if gpt else config["intermediate_size"])
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv)
        writer.add_eos_token_id(config["eos_token_id"])
        if gpt:
            writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        else:
            writer.add_key_length(size)
            writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
            rope = config["rope_parameters"]
            rope = rope.get("full_attention", rope)
            writer.add_rope_freq_base(rope["rope_theta"])
            dims = int(size * rope.get("partial_rotary_factor", 1.0))
            writer.add_rope_dimension_count(dims)
            if rope["rope_type"] == "llama3":
                f = rope["rope_theta"] ** (-np.arange(0, dims, 2) / dims)
                length = 2 * np.pi / f
                low, high = rope["low_freq_factor"], rope["high_freq_factor"]
                old, factor = rope["original_max_position_embeddings"], rope["factor"]
                s = (old / length - low) / (high - low)
                divisors = np.where(length > old / low, factor, 1 / ((1 - s) / factor + s))
                divisors = np.where(length < old / high, 1, divisors)
                writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
            if rope["rope_type"] == "longrope":
                old = rope["original_max_position_embeddings"]
                ratio = config["max_position_embeddings"] / old
                writer.add_rope_scaling_orig_ctx_len(old)
                attention = np.sqrt(1 + np.log(ratio) / np.log(old))
                writer.add_rope_scaling_attn_factors(float(attention))
                for kind in ("short", "long"):
                    factors = np.array(rope[f"{kind}_factor"], dtype=np.float32)
                    writer.add_tensor(f"rope_factors_{kind}.weight", factors)
            if gemma:
                writer.add_sliding_window(config["sliding_window"])
            for key in ("attn_logit_softcapping", "final_logit_softcapping"):
                if config.get(key) is not None:
                    getattr(writer, f"add_{key}")(config[key])
        tensors = {}
        for file in sorted(source.glob("*.safetensors")):
            tensors |= load_file(file)
        for key, value in tensors.items():
            own = gguf_name(key, gemma)
            if gpt and value.ndim == 2 and ".c_" in key:
                value = value.T
            if gemma and "norm" in key:
                value = value + 1
            if arch == "llama" and ".attn_q." in own or arch == "llama" and ".attn_k." in own:
                # the halves of a head take turns
                n = value.shape[0] // size
                value = value.reshape(n, 2, size // 2, -1).swapaxes(1, 2).reshape(value.shape)
            writer.add_tensor(own, np.ascontiguousarray(value))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    main()
