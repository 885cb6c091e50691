"""Writes words.json (text cut into words by GPT-2's regular expression) and bpe.json (a BPE trained and applied by Hugging Face's tokenizers).

    pip install regex tokenizers && python make_words.py
"""
import json
import pathlib
import unicodedata

import regex
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
PATTERN = regex.compile(r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")
TEXTS = [
    "", " ", "  ", "\n", " \n ", "a", " a", "  a", "a ", "a  ", "a\n\nb", "a \n b", "\t a", "hello world", "Hello,  world!!  How's it?", "I'll we've they're he'd I'm don't 's",
    "'S 'LL 'sup ''s ' s", "it's'll", "x1y22 333 4.5", "foo_bar-baz", "fn main() {\n    let x = 1;\n}\n", "naïve café Zoë", "日本語 テキスト", "नमस्ते दुनिया", "Ⅷ ½ ² ①",
    "👩‍👩‍👧 👍🏽", "e\u0301 a\u0300b", "\u00a0x\u00a0 y", "\u2003\u2003z", "\u3000 q", "ⓐⓑ ʰʲ ǅ", "\u200b\u200bw", "\r\n\r\n", "a\u0085b", "مرحبا ١٢٣", "ไทย ๑๒", "\u1c80\u1c81 x", "\x00\x01 a\x1f b\x1cc",
]
cases = [{"text": t, "words": PATTERN.findall(t)} for t in TEXTS]
words = {"regex": regex.__version__, "unicode": unicodedata.unidata_version, "cases": cases}
(HERE / "words.json").write_text(json.dumps(words, ensure_ascii=False, indent=0) + "\n")

text = (HERE / "../../../data/data/shakespeare.txt").read_text()
bpe = tokenizers.Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.train_from_iterator(
    [text],
    trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]),
)
model = json.loads(bpe.to_str())["model"]
encoded = [{"text": t, "tokens": bpe.encode(t).ids} for t in TEXTS + [text[1000:1400]]]
out = {"tokenizers": tokenizers.__version__, "merges": model["merges"], "encoded": encoded}
(HERE / "bpe.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")
