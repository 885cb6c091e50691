"""Writes the folders in `pretrained/`: tiny models with random weights, as transformers saves them,
each with `expected.json`, inputs and what transformers computes for them.

    pip install torch==2.15.0 transformers==5.24.0
    python make_pretrained.py
"""

import json
import shutil
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaModel,
)

FOLDER = Path(__file__).parent / "pretrained"
BERT = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)


def models():
    """Name, model, padding token, further options of `save_pretrained`."""
    base = BertConfig(**BERT, vocab_size=30, max_position_embeddings=10)
    yield "bert", BertModel(base), 0, {}
    head = BertConfig(
        **BERT,
        vocab_size=30,
        max_position_embeddings=10,
        hidden_act="gelu_new",
        layer_norm_eps=1e-3,
        num_labels=3,
    )
    # in parts, with the prefix of a model with a head
    yield "bert-parts", BertForSequenceClassification(head), 0, {"max_shard_size": "6KB"}
    roberta = RobertaConfig(**BERT, vocab_size=25, max_position_embeddings=12, type_vocab_size=1)
    yield "roberta", RobertaForMaskedLM(roberta), 1, {}
    xlm = XLMRobertaConfig(
        **BERT, vocab_size=25, max_position_embeddings=14, pad_token_id=3, hidden_act="silu"
    )
    yield "xlm-roberta", XLMRobertaModel(xlm), 3, {}
    distil = DistilBertConfig(
        dim=12, n_layers=3, n_heads=2, hidden_dim=20, vocab_size=30, max_position_embeddings=9
    )
    yield "distilbert", DistilBertForMaskedLM(distil), 0, {}
    masked = BertConfig(**BERT, vocab_size=30, max_position_embeddings=10)
    yield "bert-masked", BertForMaskedLM(masked), 0, {}
    labels = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}}
    tokens = BertConfig(**BERT, vocab_size=30, max_position_embeddings=10, **labels)
    yield "bert-tokens", BertForTokenClassification(tokens), 0, {}
    texts = RobertaConfig(**BERT, vocab_size=25, max_position_embeddings=12, num_labels=1)
    yield "roberta-pairs", RobertaForSequenceClassification(texts), 1, {}
    texts = dict(dim=12, n_layers=2, n_heads=2, hidden_dim=20, vocab_size=30, num_labels=3)
    texts = DistilBertConfig(**texts, max_position_embeddings=9)
    yield "distilbert-texts", DistilBertForSequenceClassification(texts), 0, {}


def expected(model, padding):
    """Three texts of unequal length, the second one padded on the left, and their states."""
    tokens = torch.randint(5, 25, (3, 7))
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, :2] = False
    mask[2, 4:] = False
    tokens[~mask] = padding
    inputs = {"input_ids": tokens, "attention_mask": mask.long()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.randint(0, 2, (3, 7))
    with torch.no_grad():
        output = model.base_model(**inputs)
    result = {name: value.tolist() for name, value in inputs.items()}
    result["states"] = output.last_hidden_state.tolist()
    pooled = getattr(output, "pooler_output", None)
    result["pooled"] = None if pooled is None else pooled.tolist()
    with torch.no_grad():
        logits = getattr(model(**inputs), "logits", None)
    result["logits"] = None if logits is None else logits.tolist()
    return result


def main():
    torch.manual_seed(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, model, padding, options in models():
        model.eval()
        for parameter in model.parameters():  # larger than initial ones, norms too
            parameter.data = parameter.data * 3 + torch.randn_like(parameter) * 0.2
        model.save_pretrained(FOLDER / name, **options)
        text = json.dumps(expected(model, padding))
        (FOLDER / name / "expected.json").write_text(text + "\n")


main()
