"""Times GGUF files in llama.cpp, and computes perplexities, as `teeny-nn/models/examples/time_pretrained`.

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary :all: llama-cpp-python==0.3.36
    python gguf.py quantize FILE.gguf OUT.gguf Q4_0
    python gguf.py decoder FILE.gguf [THREADS]
    python gguf.py perplexity FILE.gguf TEXT [THREADS]
    python gguf.py greedy FILE.gguf TEXT
"""

import math
import sys
import time

import llama_cpp
import numpy

TYPES = {"F32": 0, "Q8_0": 7, "Q6_K": 18, "Q4_K": 14, "Q4_0": 2, "Q4_1": 3}
WINDOW = 512


def open_model(path, threads, **options):
    return llama_cpp.Llama(
        path,
        n_ctx=1024,
        n_batch=512,
        n_ubatch=512,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
        **options,
    )


def least(n, f):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def quantize(source, target, name):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure = TYPES[name], True, True
    assert llama_cpp.llama_model_quantize(source.encode(), target.encode(), params) == 0


def decoder(path, threads=2):
    model = open_model(path, int(threads))

    def generate(prompt, count):
        model.reset()
        model.eval(prompt)
        for token in range(1000, 1000 + count):
            model.eval([token])

    for length in (128, 512):
        prompt = [100 + i * 7 % 3000 for i in range(length)]
        print(f"prompt of {length} tokens: {least(4, lambda: generate(prompt, 0)) * 1e3:.1f} ms")
    prompt = list(range(500, 505))
    seconds = least(4, lambda: generate(prompt, 64)) - least(4, lambda: generate(prompt, 0))
    print(f"decoding: {64 / seconds:.1f} tokens per second")


def greedy(path, file):
    """The 64 most likely tokens after each of 16 pieces of 32 tokens of a text."""
    model = open_model(path, 2, logits_all=True)
    tokens = model.tokenize(open(file, "rb").read(), add_bos=False, special=False)
    for start in range(0, min(16_000, len(tokens) - 31), 1000):
        model.reset()
        model.eval(tokens[start : start + 32])
        found = []
        for _ in range(64):
            found.append(int(model.scores[model.n_tokens - 1].argmax()))
            model.eval(found[-1:])
        print(found)


def perplexity(path, file, threads=2):
    model = open_model(path, int(threads), logits_all=True)
    tokens = model.tokenize(open(file, "rb").read(), add_bos=False, special=False)
    total, count, half = 0.0, 0, WINDOW // 2
    for start in range(0, len(tokens) - WINDOW + 1, WINDOW):
        window = tokens[start : start + WINDOW]
        model.reset()
        model.eval(window)
        logits = numpy.array(model.scores[half - 1 : WINDOW - 1], dtype=numpy.float64)
        highest = logits.max(axis=1, keepdims=True)
        sums = numpy.log(numpy.exp(logits - highest).sum(axis=1)) + highest[:, 0]
        total += (sums - logits[numpy.arange(half), window[half:]]).sum()
        count += half
    print(f"perplexity of {count} tokens: {math.exp(total / count):.4f}")


{"quantize": quantize, "decoder": decoder, "greedy": greedy, "perplexity": perplexity}[sys.argv[1]](*sys.argv[2:])
