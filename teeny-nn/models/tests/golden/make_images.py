"""Writes `vision/` and `clip/`: tiny models with random weights and processors of images, as
transformers saves them, each with `expected.json`, inputs and what transformers computes for them;
and `images.json`, checksums of images that Pillow resizes.

    pip install torch==2.15.0 transformers==5.24.0 pillow==12.3.0
    python make_images.py
"""

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import (
    CLIPConfig,
    CLIPModel,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

FOLDER = Path(__file__).parent
SIZES = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
TEXTS = ["a photo of a cat", "", "The dog sat on the mat, and then it sat on the cat", "  DOG!"]
TOKENS = 12


def image(height, width, channels, seed):
    """Bytes of a linear congruential generator, which the tests have too."""
    values = np.empty(height * width * channels, dtype=np.uint8)
    for i in range(len(values)):
        seed = (seed * 1664525 + 1013904223) % 2**32
        values[i] = seed >> 24
    return values.reshape(height, width, channels)


def vision_models():
    """Name, model, processor."""
    base = ViTConfig(**SIZES, image_size=12, patch_size=4, pooler_act="gelu", pooler_output_size=7)
    size = {"height": 12, "width": 12}
    yield "vit", ViTModel(base), ViTImageProcessorPil(size=size)
    sizes = dict(image_size=[8, 13], patch_size=[3, 4], layer_norm_eps=1e-3)
    sides = ViTConfig(**SIZES, **sizes, hidden_act="gelu_new")
    processor = ViTImageProcessorPil(size={"height": 8, "width": 13}, resample=0, do_rescale=False)
    yield "vit-sides", ViTModel(sides, add_pooling_layer=False), processor
    labels = {"id2label": {0: "cat", 1: "dog", 2: "neither"}}
    classes = ViTConfig(**SIZES, image_size=8, patch_size=2, qkv_bias=False, **labels)
    mean, std = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    processor = ViTImageProcessorPil(size=8, resample=1, image_mean=mean, image_std=std)
    yield "vit-classes", ViTForImageClassification(classes), processor


def clip_models():
    """Name, model, processor; with the old rule for the end of a text, and with the new one."""
    text = {**SIZES, "max_position_embeddings": 10, "vocab_size": 30, "eos_token_id": 2}
    config = CLIPConfig(
        text_config=text,
        vision_config={**SIZES, "image_size": 12, "patch_size": 4},
        projection_dim=8,
    )
    size, crop = {"shortest_edge": 14}, {"height": 12, "width": 12}
    yield "clip-old", CLIPModel(config), CLIPImageProcessorPil(size=size, crop_size=crop)
    text = {**SIZES, "num_attention_heads": 2, "num_hidden_layers": 3, "hidden_act": "gelu"}
    vision = {**SIZES, "hidden_size": 16, "num_attention_heads": 4, "image_size": 9}
    tokens = {"max_position_embeddings": TOKENS, "vocab_size": 343, "eos_token_id": 341}
    config = CLIPConfig(
        text_config={**text, **tokens},
        vision_config={**vision, "patch_size": 3},
        projection_dim=5,
        logit_scale_init_value=1.5,
    )
    # wider than some of the images
    size, crop = {"shortest_edge": 7}, {"height": 9, "width": 9}
    yield "clip", CLIPModel(config), CLIPImageProcessorPil(size=size, crop_size=crop, resample=2)


def prepare(model):
    model.eval()
    for name, parameter in model.named_parameters():  # larger than initial ones, norms too
        if name != "logit_scale":
            parameter.data = parameter.data * 3 + torch.randn_like(parameter) * 0.2


def plain(tensor):
    """The values with the digits that f32 needs."""
    digits = [float(str(value)) for value in tensor.flatten().numpy()]
    return np.array(digits).reshape(tensor.shape).tolist()


def images_of(processor):
    """Three images of other sizes by the processor: sizes, seeds, pixels."""
    sizes = [(9, 14, 3), (31, 17, 3), (6, 5, 3)]
    if processor.do_convert_rgb:
        sizes[2] = (6, 5, 4)
    images = [image(*size, seed) for seed, size in enumerate(sizes)]
    pixels = processor(images, return_tensors="pt", input_data_format="channels_last").pixel_values
    return {"sizes": sizes, "pixel_values": plain(pixels)}, pixels


def vision(folder):
    for name, model, processor in vision_models():
        prepare(model)
        model.save_pretrained(folder / name)
        processor.save_pretrained(folder / name)
        result, pixels = images_of(processor)
        with torch.no_grad():
            output = model.base_model(pixels)
            result["states"] = plain(output.last_hidden_state)
            pooled = getattr(output, "pooler_output", None)
            result["pooled"] = None if pooled is None else plain(pooled)
            logits = getattr(model(pixels), "logits", None)
            result["logits"] = None if logits is None else plain(logits)
        (folder / name / "expected.json").write_text(json.dumps(result) + "\n")


def clip(folder):
    file = FOLDER.parents[2] / "text/tests/golden/tokenizers/clip.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), pad_token="<|endoftext|>")
    for name, model, processor in clip_models():
        prepare(model)
        model.save_pretrained(folder / name)
        processor.save_pretrained(folder / name)
        result, pixels = images_of(processor)
        if name == "clip":
            options = dict(padding="max_length", truncation=True, max_length=TOKENS)
            result["texts"] = TEXTS
            tokens = tokenizer(TEXTS, return_tensors="pt", **options).input_ids
        else:
            tokens = torch.randint(3, 20, (4, 10))
            for row, end in enumerate([4, 9, 0, 6]):
                tokens[row, end] = 25 + row
        with torch.no_grad():
            output = model(input_ids=tokens, pixel_values=pixels)
            states = output.vision_model_output.last_hidden_state
            states = model.vision_model.post_layernorm(states)
        result["input_ids"] = tokens.tolist()
        result["text_states"] = plain(output.text_model_output.last_hidden_state)
        result["image_states"] = plain(states)
        for key in ["text_embeds", "image_embeds", "logits_per_image"]:
            result[key] = plain(output[key])
        (folder / name / "expected.json").write_text(json.dumps(result) + "\n")


def resized():
    """Checksums: filter, sizes before, sizes after, CRC-32 of the bytes."""
    random = np.random.default_rng(5)
    cases = []
    for i in range(240):
        limit = [8, 40, 300][i % 3]
        sizes = [int(size) for size in random.integers(1, limit, 4)]
        if i % 8 == 0:
            sizes[2:] = sizes[:2]
        height, width, new_height, new_width = sizes
        if new_height * new_width > 20000:
            sizes[2] = new_height = 20
        source = Image.fromarray(image(height, width, 3, i))
        result = source.resize((new_width, new_height), i % 4)
        cases.append([i % 4, *sizes, zlib.crc32(np.array(result).tobytes())])
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FOLDER / "images.json").write_text(f"[\n{lines}\n]\n")


def main():
    torch.manual_seed(5)
    for name, make in [("vision", vision), ("clip", clip)]:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        make(FOLDER / name)
    resized()


main()
