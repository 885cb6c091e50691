"""Makes tokenizers/NAME.json and tokenizers/cases.json: tiny tokenizers of every kind that
published models use, and what Hugging Face's `tokenizers` makes of random texts.

Versions: Python 3.11, tokenizers 0.23.3, sentencepiece 0.2.3.

    python make_tokenizers.py
    python make_tokenizers.py --folder DIR --seed 7 --cases 5000   # TEENY_TOKENIZERS=DIR in the test

Tokenizers whose file exists are read, not trained: training breaks ties at random. The table of
characters of those of this folder has some rules of `nmt_nfkc`, that of other folders all. Texts are drawn
from characters that Unicode had in 2015, as the tables of `tokenizers` are of that time. The
expected tokens, types, byte offsets, mask and decoded text of a case are kept as a checksum (FNV-1a
of 32 bits), for the first cases in full.
"""

import argparse
import base64
import io
import json
import random
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "tokenizers")
parser.add_argument("--seed", type=int, default=20)
parser.add_argument("--cases", type=int, default=320)
ARGUMENTS = parser.parse_args()
HERE = ARGUMENTS.folder
FULL = 5

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
CLIP = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)

TEXT = (
    """The quick brown fox jumps over the lazy dog. It's a dog's life, isn't it? We've 1234 numbers,
3.14 and 2024-11-26; they'll say: "hello world" (and more)!  Two  spaces, tabs\tand lines.
low lower lowest new newer newest wide wider widest. Élan naïve café über Straße señor.
Привет мир, как дела? 日本語のテキスト 中文字符 한국어 텍스트 नमस्ते दुनिया שלום עולם مرحبا بالعالم
int main(void) { return x[i] + y * 2; } // <b>html</b> &amp; https://example.org/a_b?c=d#e
""" * 4
)

RANGES = [
    (0x20, 0x7E, 30),
    (0x61, 0x7A, 40),
    (0x00, 0x1F, 2),
    (0x7F, 0xFF, 8),
    (0x100, 0x24F, 4),
    (0x300, 0x36F, 6),
    (0x391, 0x3C9, 4),
    (0x410, 0x44F, 6),
    (0x5D0, 0x5EA, 2),
    (0x621, 0x64A, 3),
    (0x64B, 0x652, 2),
    (0x904, 0x939, 3),
    (0x93E, 0x94D, 2),
    (0xE01, 0xE3A, 2),
    (0x1100, 0x1112, 2),
    (0x1161, 0x1175, 2),
    (0x11A8, 0x11C2, 2),
    (0x1E00, 0x1EFF, 4),
    (0x2000, 0x206F, 4),
    (0x2070, 0x2071, 1),
    (0x2100, 0x2138, 2),
    (0x2150, 0x2188, 2),
    (0x2460, 0x24FF, 2),
    (0x2581, 0x2581, 2),
    (0x2600, 0x26FF, 2),
    (0x3000, 0x303F, 3),
    (0x3041, 0x3096, 4),
    (0x30A1, 0x30FA, 4),
    (0x4E00, 0x9FA5, 6),
    (0xAC00, 0xD7A3, 5),
    (0xE000, 0xE010, 1),
    (0xF900, 0xFA2D, 1),
    (0xFB00, 0xFB06, 2),
    (0xFDF0, 0xFDFC, 1),
    (0xFE00, 0xFE0F, 1),
    (0xFF01, 0xFF5E, 3),
    (0xFFFD, 0xFFFD, 1),
    (0x10400, 0x1044F, 1),
    (0x1D400, 0x1D454, 2),
    (0x1F300, 0x1F320, 2),
    (0x1F600, 0x1F64F, 4),
    (0x20000, 0x20010, 2),
    (0x2F800, 0x2F810, 1),
    (0xE0061, 0xE007A, 1),
    (0x10FFFD, 0x10FFFD, 1),
]
SPACES = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\t",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u2003",
    "    \n  ",
]
SPECIAL = [
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<mask>",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "<bos>",
    "<|im_start|>",
    "<|im_end|>",
    "<unk>",
    "[UNK]",
    "word",
    "<|0.00|>",
    "<0x41>",
    "<tool_call>",
    "Yesterday",
]


def draw(rng):
    parts = []
    for _ in range(rng.randint(0, 9)):
        kind = rng.random()
        if kind < 0.35:
            words = TEXT.split(" ")
            at = rng.randrange(len(words) - 4)
            parts.append(" ".join(words[at : at + rng.randint(1, 4)]))
        elif kind < 0.5:
            parts.append(rng.choice(SPACES))
        elif kind < 0.62:
            parts.append(rng.choice(SPECIAL))
        else:
            ranges = rng.choices(RANGES, weights=[r[2] for r in RANGES], k=rng.randint(1, 7))
            parts.append("".join(chr(rng.randint(a, b)) for a, b, _ in ranges))
        if rng.random() < 0.4:
            parts.append(" ")
    return "".join(parts)


def cases():
    rng = random.Random(ARGUMENTS.seed)
    texts = ["", " ", "a", "  Hello  world  "] + [draw(rng) for _ in range(ARGUMENTS.cases)]
    made = []
    for i, text in enumerate(texts):
        case = {"text": text, "special": i % 3 != 1, "skip": i % 2 == 0}
        if i % 4 == 3:
            case["pair"] = draw(rng)
        if i % 5 == 2:
            case["max"] = rng.randint(4, 14)
            case["side"] = rng.choice(["left", "right"])
            pair = ["longest_first", "only_first", "only_second"]
            case["strategy"] = rng.choice(pair if "pair" in case else pair[:2])
        made.append(case)
    return made


def bytes_bpe(tokens=(), **options):
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=list(tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **{k: v for k, v in options.items() if k == "end_of_word_suffix"},
    )
    return models.BPE(**options), trainer


def chars_bpe(size=260, tokens=(), **options):
    trainer = trainers.BpeTrainer(
        vocab_size=size + len(tokens),
        limit_alphabet=130,
        special_tokens=list(tokens),
        show_progress=False,
        **{k: v for k, v in options.items() if k == "continuing_subword_prefix"},
    )
    return models.BPE(**options), trainer


def word_piece(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), size=260, **options):
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        limit_alphabet=110,
        special_tokens=list(tokens),
        show_progress=False,
        **{k: v for k, v in options.items() if k == "continuing_subword_prefix"},
    )
    return models.WordPiece(unk_token="[UNK]", **options), trainer


def make(name, model, *, normalizer=None, pre=None, decoder=None, special=(), added=(), post=None):
    path = HERE / f"{name}.json"
    if path.exists():
        return name, Tokenizer.from_file(str(path))
    model, trainer = model
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(TEXT.splitlines(), trainer)
    # the trainer adds the tokens of bytes to the special ones
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if t["content"] not in BYTES]
    if name == "unigram_bytes":
        file["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens(list(added))
    if decoder is not None:
        tokenizer.decoder = decoder
    if post is not None:
        tokenizer.post_processor = post(tokenizer.token_to_id)
    return name, tokenizer


def unigram(size=240, tokens=("<pad>", "</s>", "<unk>")):
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=list(tokens), unk_token="<unk>", show_progress=False
    )
    return models.Unigram(), trainer


def words(tokens=("<unk>", "<pad>", "|"), size=90):
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, special_tokens=list(tokens), show_progress=False
    )
    return models.WordLevel(unk_token="<unk>"), trainer


def charsmap():
    """The table of characters that SentencePiece makes of its rules."""
    options = {"normalization_rule_name": "nmt_nfkc"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        if HERE == Path(__file__).parent / "tokenizers":
            chars = [
                c
                for a, b in [(0xFF01, 0xFF9F), (0xFB00, 0xFB06), (0x2460, 0x24FF)]
                for c in range(a, b + 1)
            ]
            pairs = {
                chr(c): unicodedata.normalize("NFKC", chr(c))
                for c in chars + [0xBD, 0x2122, 0xFDFA]
            }
            pairs |= {
                a + b: unicodedata.normalize("NFKC", a + b)
                for a in "aeiouAE"
                for b in "\u0300\u0301\u0308"
            }
            pairs |= {c: " " for c in "\t\n\r\u00a0\u3000\u200b"} | {
                "\x07": "",
                "\u00ad": "",
                "\r\n": " ",
            }
            code = lambda text: " ".join(f"{ord(c):X}" for c in text)
            rules.write("".join(f"{code(a)}\t{code(b)}\n" for a, b in pairs.items() if a != b))
            rules.flush()
            options = {"normalization_rule_tsv": rules.name}
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT.splitlines()),
            model_writer=model,
            vocab_size=150,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
    made = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return made.normalizer_spec.precompiled_charsmap


CHARSMAP = charsmap()
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def byte_fallback(**options):
    return chars_bpe(
        160, ["<unk>", "<s>", "</s>"] + BYTES, unk_token="<unk>", byte_fallback=True, **options
    )


def template(begin, end=""):
    def post(id_of):
        tokens = [token for token in (begin, end) if token]
        single = f"{begin} $A {end}".strip()
        pair = f"{begin} $A {end} {begin}:1 $B:1 " + (f"{end}:1" if end else "")
        return processors.TemplateProcessing(
            single=single,
            pair=" ".join(pair.split()),
            special_tokens=[(t, id_of(t)) for t in tokens],
        )

    return post


def roberta(**options):
    def post(id_of):
        return processors.RobertaProcessing(
            ("</s>", id_of("</s>")), ("<s>", id_of("<s>")), **options
        )

    return post


def bert(id_of):
    return processors.BertProcessing(("[SEP]", id_of("[SEP]")), ("[CLS]", id_of("[CLS]")))


def llama_decoder():
    return decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )


def tokenizers():
    n, p, d = normalizers, pre_tokenizers, decoders
    split = lambda pattern, behavior="isolated", invert=False: p.Split(
        Regex(pattern), behavior, invert
    )
    level = lambda prefix=False, regex=True: p.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    yield make(
        "gpt2",
        bytes_bpe(),
        pre=level(),
        decoder=d.ByteLevel(),
        special=["<|endoftext|>"],
        post=lambda _: processors.ByteLevel(trim_offsets=True),
    )
    yield make(
        "roberta",
        bytes_bpe(),
        pre=level(True),
        decoder=d.ByteLevel(),
        special=["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)],
        post=roberta(trim_offsets=True, add_prefix_space=True),
    )
    yield make(
        "llama3",
        bytes_bpe(ignore_merges=True),
        pre=p.Sequence([split(LLAMA3), level(regex=False)]),
        decoder=d.ByteLevel(),
        special=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        post=lambda id_of: processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), template("<s>")(id_of)]
        ),
    )
    yield make(
        "smollm",
        bytes_bpe(),
        pre=p.Sequence([p.Digits(individual_digits=True), level()]),
        decoder=d.ByteLevel(),
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    )
    yield make(
        "qwen2",
        bytes_bpe(),
        normalizer=n.NFC(),
        pre=p.Sequence([split(QWEN2), level(regex=False)]),
        decoder=d.ByteLevel(),
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        added=[AddedToken("<tool_call>", normalized=False)],
        post=lambda _: processors.ByteLevel(trim_offsets=False),
    )
    yield make(
        "whisper",
        bytes_bpe(),
        pre=level(),
        decoder=d.ByteLevel(),
        special=["<|endoftext|>", "<s>"],
        added=["<|0.00|>", "<|0.02|>"],
        post=template("<s>", "<|endoftext|>"),
    )
    yield make(
        "llama2",
        byte_fallback(fuse_unk=True),
        normalizer=n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]),
        decoder=llama_decoder(),
        special=["<unk>", "<s>", "</s>"],
        post=template("<s>"),
    )
    yield make(
        "mistral",
        byte_fallback(fuse_unk=True),
        pre=p.Metaspace(prepend_scheme="first", split=False),
        decoder=llama_decoder(),
        special=["<unk>", "<s>", "</s>"],
        post=template("<s>"),
    )
    yield make(
        "phi3",
        byte_fallback(fuse_unk=True),
        normalizer=n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]),
        decoder=llama_decoder(),
        special=[
            "<unk>",
            "<s>",
            AddedToken("</s>", rstrip=True),
            AddedToken("<|im_end|>", rstrip=True, normalized=False),
        ],
        added=[AddedToken("Yesterday", rstrip=True, lstrip=True)],
    )
    yield make(
        "gemma",
        byte_fallback(fuse_unk=True),
        normalizer=n.Replace(" ", "▁"),
        pre=p.Split(" ", "merged_with_previous"),
        decoder=d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse()]),
        special=["<bos>", "<unk>"],
        added=[AddedToken("  ", normalized=False), "<tool_call>"],
        post=template("<bos>"),
    )
    yield make(
        "metaspace",
        chars_bpe(300, ["<unk>"], unk_token="<unk>"),
        normalizer=n.NFKC(),
        pre=p.Metaspace(prepend_scheme="always", split=True),
        decoder=d.Metaspace(),
        special=["<unk>", "</s>"],
        post=lambda id_of: processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", id_of("</s>"))]
        ),
    )
    yield make(
        "bert",
        word_piece(),
        normalizer=n.BertNormalizer(),
        pre=p.BertPreTokenizer(),
        decoder=d.WordPiece(),
        post=bert,
    )
    yield make(
        "bert_cased",
        word_piece(),
        normalizer=n.BertNormalizer(lowercase=False),
        pre=p.BertPreTokenizer(),
        decoder=d.WordPiece(cleanup=False),
        added=[AddedToken("word", single_word=True), "Yesterday"],
        post=lambda id_of: processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", id_of("[CLS]")), ("[SEP]", id_of("[SEP]"))],
        ),
    )
    yield make(
        "clip",
        bytes_bpe(["<|endoftext|>"], end_of_word_suffix="</w>", unk_token="<|endoftext|>"),
        normalizer=n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()]),
        pre=p.Sequence([split(CLIP, "removed", True), level()]),
        decoder=d.ByteLevel(),
        special=["<|endoftext|>", "<s>", "</s>"],
        post=roberta(trim_offsets=False, add_prefix_space=False),
    )
    yield make(
        "subwords",
        chars_bpe(unk_token="[UNK]", tokens=["[UNK]"], continuing_subword_prefix="##"),
        normalizer=n.Sequence([n.Strip(), n.NFKD(), n.StripAccents(), n.Lowercase()]),
        pre=p.Whitespace(),
        decoder=d.WordPiece(prefix="##"),
        special=["[UNK]"],
        added=[AddedToken("word", single_word=True, lstrip=True), "Yesterday"],
    )
    yield make(
        "pieces",
        word_piece(continuing_subword_prefix="@@", max_input_chars_per_word=7),
        normalizer=n.Sequence([n.NFD(), n.Strip(left=True, right=False)]),
        pre=p.Sequence(
            [
                p.WhitespaceSplit(),
                p.Punctuation("contiguous"),
                p.Digits(),
                split("[aeiou]+", "merged_with_next"),
                split("[A-Z]", "contiguous"),
            ]
        ),
    )
    yield make(
        "suffix",
        chars_bpe(unk_token="[UNK]", fuse_unk=True, tokens=["[UNK]"], end_of_word_suffix="</w>"),
        normalizer=n.Lowercase(),
        decoder=d.BPEDecoder(suffix="</w>"),
        pre=p.Sequence(
            [
                split(r"\s+", "removed"),
                p.Punctuation("merged_with_previous"),
                p.Punctuation("removed"),
            ]
        ),
    )
    yield make(
        "byte_normalizer",
        bytes_bpe(),
        normalizer=n.Sequence([n.NFC(), n.ByteLevel()]),
        pre=p.Sequence([p.Split("Ġ", "merged_with_next"), p.Split("e", "isolated", True)]),
        decoder=d.ByteLevel(),
        special=["<s>"],
        added=["<tool_call>", "Yesterday"],
    )

    precompiled = n.Precompiled(CHARSMAP)
    metaspace = lambda scheme: p.Metaspace(prepend_scheme=scheme)
    yield make(
        "t5",
        unigram(),
        normalizer=precompiled,
        pre=p.Sequence([p.WhitespaceSplit(), metaspace("always")]),
        decoder=d.Metaspace(),
        special=["</s>"],
        post=lambda id_of: processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", id_of("</s>"))]
        ),
    )
    yield make(
        "xlm_roberta",
        unigram(200, ("<s>", "<pad>", "</s>", "<unk>", "<mask>")),
        normalizer=n.Sequence([n.Nmt(), n.NFKC(), n.Replace(Regex(" {2,}"), " "), precompiled]),
        pre=metaspace("first"),
        decoder=d.Metaspace(prepend_scheme="first"),
        special=["<s>", "</s>", AddedToken("<mask>", lstrip=True)],
        post=roberta(trim_offsets=True),
    )
    yield make(
        "albert",
        unigram(220, ("<unk>", "[CLS]", "[SEP]", "[MASK]")),
        normalizer=n.Sequence(
            [n.Replace("``", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), precompiled]
        ),
        pre=metaspace("always"),
        decoder=d.Metaspace(),
        post=bert,
    )
    yield make(
        "unigram_bytes",
        unigram(420, ["<unk>"] + BYTES),
        normalizer=n.Replace(" ", "▁"),
        pre=p.Sequence([p.UnicodeScripts(), p.CharDelimiterSplit("-")]),
        decoder=llama_decoder(),
    )
    yield make(
        "word_level",
        words(),
        pre=p.Sequence([p.Whitespace(), p.FixedLength(7)]),
        decoder=d.CTC(cleanup=True),
        added=["word"],
    )
    yield make(
        "letters",
        words(size=60),
        pre=p.FixedLength(1),
        decoder=d.CTC(cleanup=False, pad_token="e"),
    )
    yield make(
        "around",
        bytes_bpe(),
        pre=p.Sequence([split(CL100K), level(regex=False)]),
        decoder=d.ByteLevel(),
        special=["<|endoftext|>"],
    )
    yield make(
        "behind",
        chars_bpe(unk_token="[UNK]", tokens=["[UNK]"]),
        normalizer=n.Replace(Regex(r"(?<=[a-z])(?=[A-Z])|(\w)\1(?!\w)"), "_"),
        pre=p.Sequence(
            [split(r"(?<!\d)[.,]|\b(?=\w)"), split(r"[^\S\n]+(?=\S)", "merged_with_next")]
        ),
        decoder=d.Replace(Regex("(?<=a)b"), "B"),
    )


def fnv(parts):
    state = 0x811C9DC5
    for byte in "|".join(parts).encode():
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    return state


def run(tokenizer, case):
    tokenizer.no_truncation()
    if "max" in case:
        tokenizer.enable_truncation(case["max"], strategy=case["strategy"], direction=case["side"])
    try:
        encoded = tokenizer.encode(
            case["text"], case.get("pair"), add_special_tokens=case["special"]
        )
    except BaseException:  # the error or panic of an impossible truncation
        return None
    texts = [case["text"], case.get("pair", "")]
    offsets = []
    for (a, b), sequence in zip(encoded.offsets, encoded.sequence_ids):
        text = texts[sequence or 0]
        offsets.append([len(text[:a].encode()), len(text[:b].encode())])
    return {
        "ids": encoded.ids,
        "types": encoded.type_ids,
        "offsets": offsets,
        "mask": encoded.special_tokens_mask,
        "decoded": tokenizer.decode(encoded.ids, case["skip"]),
    }


def checksum(result):
    if result is None:
        return 0
    numbers = [result["ids"], result["types"], sum(result["offsets"], []), result["mask"]]
    return fnv([",".join(map(str, part)) for part in numbers] + [result["decoded"]])


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


HERE.mkdir(exist_ok=True)
made, expected = cases(), {}
for name, tokenizer in tokenizers():
    (HERE / f"{name}.json").write_text(compact(json.loads(tokenizer.to_str())))
    results = [run(tokenizer, case) for case in made]
    expected[name] = {"full": results[:FULL], "checksums": [checksum(r) for r in results]}
(HERE / "cases.json").write_text(compact({"cases": made, "expected": expected}))
