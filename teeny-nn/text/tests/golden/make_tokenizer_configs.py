"""Small tokenizers with files beside tokenizer.json, and the tokens of AutoTokenizer.

    pip install transformers==5.24.0 tokenizers==0.23.3
    python make_tokenizer_configs.py [seed] > tokenizer_configs.json

Each case has the files of a folder, texts, and their tokens with special tokens. Files are drawn:
the model (BPE of bytes, of characters or with tokens of bytes, WordPiece, unigrams), the class, added tokens under each of the keys
that tokenizer_config.json may have, added_tokens.json, and options of the class.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer

rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 5)


def flip():
    return rng.random() < 0.5


def added(content):
    token = {"content": content, "lstrip": flip(), "rstrip": flip(), "single_word": flip()}
    return token | {"normalized": False, "special": flip()}


def vocabulary(kind):
    letters = list("abcdefgxyzABC<>/[] .,")
    if kind == "bytes":
        letters += ["Ġ"]
    rng.shuffle(letters)
    if kind == "word":
        letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters
        letters += ["##" + letter for letter in "abcxyz"]
    elif flip():
        letters = ["<unk>", "<s>", "</s>"] + letters
    return {letter: i for i, letter in enumerate(letters)}


def spaced():
    return [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]


def files():
    kind = rng.choice(["bytes", "plain", "word", "pieces", "unigram"])
    vocab = vocabulary(kind)
    if kind in ["pieces", "unigram"]:
        vocab = {text: i for i, text in enumerate(["<s>", "<pad>", "</s>", "<unk>"])}
        if kind == "pieces":
            vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
        for text in rng.sample(list("abcdxyzABC<>/▁"), 14) + ["▁a", "ab", "bc"]:
            vocab[text] = len(vocab)
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    file |= {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    if kind == "word":
        file["model"] = {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        }
        file["normalizer"] = {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": flip(),
        }
        file["pre_tokenizer"] = {"type": "BertPreTokenizer"}
        ends = [{"SpecialToken": {"id": name, "type_id": 0}} for name in ["[CLS]", "[SEP]"]]
        text = {"Sequence": {"id": "A", "type_id": 0}}
        file["post_processor"] = {
            "type": "TemplateProcessing", "single": [ends[0], text, ends[1]],
            "pair": [ends[0], text, ends[1], {"Sequence": {"id": "B", "type_id": 1}}, ends[1]],
            "special_tokens": {
                name: {"id": name, "ids": [vocab[name]], "tokens": [name]}
                for name in ["[CLS]", "[SEP]"]
            },
        }
    elif kind == "unigram":
        scores = [[text, 0.0 if i < 4 else -rng.random() * 9] for text, i in vocab.items()]
        file["model"] = {"type": "Unigram", "unk_id": 3, "vocab": scores, "byte_fallback": False}
        if flip():
            file["normalizer"] = {"type": "Lowercase"}
        file["pre_tokenizer"] = {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": flip()
        }
        file["post_processor"] = {
            "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
            "trim_offsets": True, "add_prefix_space": True,
        }
    else:
        file["model"] = {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": vocab, "merges": [],
        }
        if kind == "pieces":
            file["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": flip()}
            merges = [f"{text[0]} {text[1:]}" for text in ["▁a", "ab", "bc"]]
            file["model"]["merges"] = merges
            file["normalizer"] = {"type": "Sequence", "normalizers": spaced()[flip():]}
        if kind == "bytes":
            file["pre_tokenizer"] = {
                "type": "ByteLevel", "add_prefix_space": flip(), "trim_offsets": True,
                "use_regex": True,
            }
    held = rng.sample(["<q>", "<x>", "[CLS]", "abc"], rng.randrange(3))
    for i, content in enumerate(held):
        token = added(content)
        token["id"] = vocab.get(content, len(vocab) + i)
        file["added_tokens"].append(token)
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if kind == "word" and flip():
        config["tokenizer_class"] = rng.choice(["BertTokenizer", "BertTokenizerFast"])
        for key in ["do_lower_case", "tokenize_chinese_chars", "strip_accents"]:
            if flip():
                config[key] = flip()
    if kind == "bytes" and flip():
        config["tokenizer_class"] = rng.choice(["GPT2Tokenizer", "GPT2TokenizerFast"])
        if flip():
            config["add_prefix_space"] = flip()
    if kind == "pieces" and rng.random() < 0.8:
        config["tokenizer_class"] = rng.choice(["LlamaTokenizer", "LlamaTokenizerFast"])
        for key in ["add_prefix_space", "legacy"]:
            if flip():
                config[key] = flip()
    if kind == "bytes" and rng.random() < 0.2:
        config["tokenizer_class"] = "LlamaTokenizer"
    if kind == "unigram" and flip():
        config["tokenizer_class"] = rng.choice(["XLMRobertaTokenizer", "XLMRobertaTokenizerFast"])
        if flip():
            config["add_prefix_space"] = flip()
    named = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<x>", "<y>"]
    roles = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"]
    if config["tokenizer_class"].startswith("Bert"):
        roles = ["bos", "eos", "pad", "mask"]  # the template has the others
    if config["tokenizer_class"].startswith("XLM"):
        roles = ["pad", "mask"]
    for role in roles:
        if rng.random() < 0.3:
            content = rng.choice(named)
            token = added(content) | {"__type": "AddedToken"}
            config[f"{role}_token"] = token if flip() else content
    if rng.random() < 0.2:
        key = rng.choice(["additional_special_tokens", "extra_special_tokens"])
        config[key] = rng.sample(["<e>", "<f>", "<x>"], 2)
    if rng.random() < 0.3:
        config["added_tokens_decoder"] = {
            str(len(vocab) + 2 * i): added(content)
            for i, content in enumerate(rng.sample(["<d>", "<z>", "bc", "<x>"], 2))
        }
    if rng.random() < 0.3:
        config["add_bos_token"] = flip()
        if flip():
            config["add_eos_token"] = flip()
    all_files = {"tokenizer.json": file, "tokenizer_config.json": config}
    if kind in ["pieces", "unigram"] and flip():
        models = ["llama", "mistral", "phi3"] if kind == "pieces" else ["xlm-roberta"]
        all_files["config.json"] = {"model_type": rng.choice(models)}
    if rng.random() < 0.2:
        all_files["added_tokens.json"] = {"<o>": len(vocab), "<p>": len(vocab) + 1}
    return all_files


texts = ["a<x>b", "abc <y> bc", "AB c <q>a <d>", "<s>x</s> <pad>", "a bc<e> <o>,<z> [CLS]", "x", " ab  c<s> bc ", "<q> a<x> a"]
cases = []
while len(cases) < 60:
    case = files()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in case.items():
            Path(folder, name).write_text(json.dumps(content))
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            tokens = [tokenizer(text)["input_ids"] for text in texts]
        except Exception as error:  # a file that transformers does not open
            print(error, file=sys.stderr)
            continue
    cases.append({"files": case, "tokens": tokens})
json.dump({"texts": texts, "cases": cases}, sys.stdout, ensure_ascii=False, separators=(",", ":"))
