"""Writes attention.json beside this script: python3 make_attention.py (needs torch, CPU only, and numpy)."""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "teeny-core/tests/golden"))

import torch
import torch.nn.functional as F
from torch import nn

from encode import numbers, ramp, tensor, write

F64 = torch.float64


def fill(module):
    """The module in f64 with small weights, different for each parameter; those of norms lie around 1."""
    module = module.to(F64)
    with torch.no_grad():
        for i, (name, p) in enumerate(module.named_parameters()):
            p.copy_(0.2 * ramp(*p.shape, dtype=F64, step=0.37 + 0.04 * i) + (1.0 if "norm" in name and "weight" in name else 0.0))
    return module


def case(kind, module, run, *inputs, **facts):
    """Output and gradients of sum(y w), w = 1..n / n, for the inputs and every parameter."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = run(*leaves)
    w = torch.arange(1, y.numel() + 1, dtype=F64).reshape(y.shape) / y.numel()
    (y * w).sum().backward()
    params = {n: {"value": tensor(p), "grad": numbers(p.grad)} for n, p in module.named_parameters()} if module is not None else {}
    return {"kind": kind, **facts, "inputs": [tensor(x) for x in inputs], "grads": [numbers(x.grad) for x in leaves], "params": params, "result": tensor(y)}


def attention():
    cases = []
    x, context = ramp(2, 3, 4, dtype=F64), ramp(2, 5, 4, dtype=F64, step=0.53)
    causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    real = torch.tensor([[True, True, True], [True, True, False]])
    added = ramp(3, 3, dtype=F64, step=0.71)
    for bias in (True, False):
        mha = fill(nn.MultiheadAttention(4, 2, bias=bias, batch_first=True))
        cases.append(case("self", mha, lambda x: mha(x, x, x, need_weights=False)[0], x, bias=bias))
    for name, options in (("causal", {"attn_mask": causal}), ("padding", {"key_padding_mask": ~real}), ("added", {"attn_mask": added}),
                          ("causal padding", {"attn_mask": causal, "key_padding_mask": ~real})):
        mha = fill(nn.MultiheadAttention(4, 2, batch_first=True))
        cases.append(case(name, mha, lambda x: mha(x, x, x, need_weights=False, **options)[0], x, bias=True))
    mha = fill(nn.MultiheadAttention(4, 2, batch_first=True))
    cases.append(case("cross", mha, lambda x, c: mha(x, c, c, need_weights=False)[0], x, context, bias=True))

    # grouped queries: torch has them in the function only
    w, out = 0.2 * ramp(4 + 2 * 2, 4, dtype=F64), 0.2 * ramp(4, 4, dtype=F64, step=0.53)

    def grouped(x, w, out):
        q, k, v = F.linear(x, w).split([4, 2, 2], -1)
        q, k, v = q.unflatten(-1, (4, 1)).transpose(1, 2), k.unflatten(-1, (2, 1)).transpose(1, 2), v.unflatten(-1, (2, 1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return F.linear(y.transpose(1, 2).flatten(2), out)

    cases.append(case("grouped", None, grouped, x, w, out))
    layers = []
    for first in (False, True):
        layer = fill(nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu", batch_first=True, norm_first=first))
        layers.append(case("encoder", layer, lambda x: layer(x, src_key_padding_mask=~real), x, norm_first=first))
        layer = fill(nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, batch_first=True, norm_first=first))
        layers.append(case("decoder", layer, lambda x, c: layer(x, c, tgt_mask=causal), x, context, norm_first=first))
    ropes = []
    for pairs in ("neighbours", "halves"):

        def rope(x, start):
            t, hs = x.shape[-2:]
            angle = torch.arange(start, start + t, dtype=F64)[:, None] * 10000.0 ** (-torch.arange(0, hs, 2, dtype=F64) / hs)
            turn = torch.polar(torch.ones_like(angle), angle)
            if pairs == "neighbours":
                return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
            a, b = x.chunk(2, -1)
            y = torch.complex(a, b) * turn
            return torch.cat([y.real, y.imag], -1)

        for start in (0, 7):
            ropes.append(case(pairs, None, lambda x: rope(x, start), ramp(2, 3, 6, dtype=F64), start=start))
    write(__file__, "attention", {"attention": cases, "layers": layers, "ropes": ropes})


class Gpt(nn.Module):
    """GPT-2's architecture with Hugging Face's names, and linear layers as (out, in)."""

    def __init__(self, vocab, context, n_layer, n_head, n_embd):
        super().__init__()
        self.n_head = n_head
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(context, n_embd)
        self.h = nn.ModuleList(nn.ModuleDict({
            "ln_1": nn.LayerNorm(n_embd), "attn": nn.ModuleDict({"c_attn": nn.Linear(n_embd, 3 * n_embd), "c_proj": nn.Linear(n_embd, n_embd)}),
            "ln_2": nn.LayerNorm(n_embd), "mlp": nn.ModuleDict({"c_fc": nn.Linear(n_embd, 4 * n_embd), "c_proj": nn.Linear(4 * n_embd, n_embd)}),
        }) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for h in self.h:
            q, k, v = (p.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for p in h.attn.c_attn(h.ln_1(x)).chunk(3, -1))
            x = x + h.attn.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            x = x + h.mlp.c_proj(F.gelu(h.mlp.c_fc(h.ln_2(x)), approximate="tanh"))
        return F.linear(self.ln_f(x), self.wte.weight)


def gpt():
    model = Gpt(7, 5, 2, 2, 4).to(F64)
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            p.copy_(0.2 * ramp(*p.shape, dtype=F64, step=0.37 + 0.04 * i) + (1.0 if "ln_" in name and "weight" in name else 0.0))
    tokens, targets = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 3, 0]]), torch.tensor([[1, 4, 1, 5, 2], [6, 5, 3, 0, 1]])
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    params = [{"name": n, "value": tensor(p), "grad": numbers(p.grad)} for n, p in model.named_parameters()]
    write(__file__, "gpt", {"tokens": tokens.tolist(), "targets": targets.tolist(), "logits": tensor(logits), "loss": loss.item(), "params": params})


attention()
gpt()
