"""Times pretrained models in PyTorch as `teeny-nn/models/examples/time_pretrained` does in teeny.

    pip install torch==2.15.0 transformers==5.24.0 sentence-transformers==6.2.0 gguf accelerate
    python pretrained.py encoder minilm
    python pretrained.py decoder FOLDER FILE.gguf f32
"""

import sys
import time

import torch


def least(n, f):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def encoder(path):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path, device="cpu")
    for batch in (1, 32):
        for length in (8, 32, 128, 256):
            ids = [1000 + i * 7919 % 20_000 for i in range(batch * length)]
            ids = torch.tensor(ids).reshape(batch, length)
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            calls = 50 if batch * length < 300 else 8
            seconds = least(calls, lambda: model(dict(inputs))["sentence_embedding"])
            print(f"encoder, {batch} texts of {length} tokens: {seconds * 1e3:.2f} ms")


def decoder(folder, file, name):
    from transformers import AutoModelForCausalLM

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[name]
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=dtype).eval()

    def generate(prompt, count):
        options = dict(max_new_tokens=count, min_new_tokens=count, do_sample=False)
        ids = torch.tensor([prompt])
        call = lambda: model.generate(ids, eos_token_id=None, pad_token_id=0, **options)
        return least(4, call)

    for length in (128, 512):
        seconds = generate([100 + i * 7 % 3000 for i in range(length)], 1)
        print(f"{name}, prompt of {length} tokens: {seconds * 1e3:.1f} ms")
    prompt = list(range(500, 505))
    seconds = generate(prompt, 65) - generate(prompt, 1)
    print(f"{name}, decoding: {64 / seconds:.1f} tokens per second")


torch.set_num_threads(2)
with torch.inference_mode():
    {"encoder": encoder, "decoder": decoder}[sys.argv[1]](*sys.argv[2:])
