"""Opens the GGUF files that the tests `pretrained_gguf` have written in llama.cpp: logits
and embeddings must be equal within its own error, and texts must have the same tokens.

    pip install --no-binary :all: llama-cpp-python==0.3.36 numpy
    TEENY_SAVED=/tmp/saved cargo test --release -p teeny-models --test all pretrained_gguf
    python check_gguf.py /tmp/saved
"""

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

# llama.cpp ignores windows of these: the tokens that a window holds are compared
WINDOWS = {"mistral": 5, "qwen2": 4, "phi3": 6}


def check_logits(name, path, expected):
    tokens = expected["tokens"][: WINDOWS.get(name)]
    model = llama_cpp.Llama(str(path), n_ctx=32, logits_all=True, type_k=0, type_v=0, verbose=False)
    model.eval(tokens)
    rows = len(tokens)
    got = np.array(model.scores[:rows])
    wanted = np.array(expected["logits"]).reshape(len(expected["tokens"]), -1)[:rows]
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    print(f"{name}: {rows} tokens, largest difference {error:.1e} of the largest logit")
    return error < 1e-3


def check_tokens(name, path, texts):
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    differing = []
    for case in texts:
        text = case["text"].encode()
        ids = model.tokenize(text, add_bos=case["special"], special=True)
        if ids != case["ids"]:
            differing.append((case["text"], ids, case["ids"]))
    print(f"{name}: {len(differing)} of {len(texts)} texts have other tokens")
    for text, ids, wanted in differing[:2]:
        print("   ", repr(text), ids, wanted)
    return not differing


def check_embeddings(name, path, expected):
    model = llama_cpp.Llama(str(path), embedding=True, verbose=False)
    got = np.array([model.embed(text, normalize=True) for text in expected["texts"]])
    wanted = np.array(expected["embeddings"]).reshape(got.shape)
    error = np.abs(got - wanted).max()
    print(f"{name}: {len(got)} embeddings, largest difference {error:.1e}")
    return error < 2e-3  # its GELU is an approximation in 16 bits


def main():
    good = []
    for path in sorted((Path(sys.argv[1]) / "gguf").glob("*.gguf")):
        expected = json.loads(path.with_suffix(".json").read_text())
        if "embeddings" in expected:
            good.append(check_embeddings(path.stem, path, expected))
        elif "logits" in expected:
            good.append(check_logits(path.stem, path, expected))
        else:
            good.append(check_tokens(path.stem, path, expected["texts"]))
    assert good and all(good)


main()
