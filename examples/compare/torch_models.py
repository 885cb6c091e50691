"""The models of `examples/src/bench/sweep/models.rs` in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


def conv_norm(inputs, outputs, size, stride=1, groups=1, activation=None):
    layers = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation] if activation else []))


class Residual(nn.Module):
    def __init__(self, f, shortcut):
        super().__init__()
        self.f, self.shortcut = f, shortcut

    def forward(self, x):
        return F.relu(self.f(x) + (self.shortcut(x) if self.shortcut else x))


def stem():
    return [conv_norm(3, 64, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]


def classifier(layers, inputs):
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)
    )


def resnet18():
    layers, inputs = stem(), 64
    for stage, outputs in enumerate([64, 128, 256, 512]):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            f = nn.Sequential(
                conv_norm(inputs, outputs, 3, stride, activation=nn.ReLU()),
                conv_norm(outputs, outputs, 3),
            )
            shortcut = conv_norm(inputs, outputs, 1, stride) if inputs != outputs else None
            layers.append(Residual(f, shortcut))
            inputs = outputs
    return classifier(layers, inputs)


def resnet50():
    layers, inputs = stem(), 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            stride, outputs = 2 if stage > 0 and block == 0 else 1, 4 * width
            f = nn.Sequential(
                conv_norm(inputs, width, 1, activation=nn.ReLU()),
                conv_norm(width, width, 3, stride, activation=nn.ReLU()),
                conv_norm(width, outputs, 1),
            )
            shortcut = conv_norm(inputs, outputs, 1, stride) if inputs != outputs else None
            layers.append(Residual(f, shortcut))
            inputs = outputs
    return classifier(layers, inputs)


class Inverted(nn.Module):
    def __init__(self, f, add):
        super().__init__()
        self.f, self.add = f, add

    def forward(self, x):
        y = self.f(x)
        return y + x if self.add else y


def mobilenet_v2():
    layers, inputs = [conv_norm(3, 32, 3, 2, activation=nn.ReLU6())], 32
    stages = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for expansion, outputs, blocks, first in stages:
        for block in range(blocks):
            stride, wide = first if block == 0 else 1, expansion * inputs
            expand = [conv_norm(inputs, wide, 1, activation=nn.ReLU6())] if expansion > 1 else []
            f = nn.Sequential(
                *expand,
                conv_norm(wide, wide, 3, stride, wide, nn.ReLU6()),
                conv_norm(wide, outputs, 1),
            )
            layers.append(Inverted(f, stride == 1 and inputs == outputs))
            inputs = outputs
    return classifier([*layers, conv_norm(inputs, 1280, 1, activation=nn.ReLU6())], 1280)


class ConvNextBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(96, 96, 7, padding=3, groups=96)
        self.f = nn.Sequential(
            nn.LayerNorm(96), nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96)
        )

    def forward(self, x):
        return x + self.f(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class UNetBlock(nn.Module):
    def __init__(self):
        super().__init__()

        def double(inputs, outputs):
            return nn.Sequential(
                conv_norm(inputs, outputs, 3, activation=nn.ReLU()),
                conv_norm(outputs, outputs, 3, activation=nn.ReLU()),
            )

        self.first, self.down, self.up = double(32, 32), double(32, 64), double(64, 32)
        self.transposed = nn.ConvTranspose2d(64, 32, 2, 2)

    def forward(self, x):
        left = self.first(x)
        below = self.down(F.max_pool2d(left, 2))
        return self.up(torch.cat([left, self.transposed(below)], 1))


def transformer_layer(norm_first):
    return nn.TransformerEncoderLayer(
        768, 12, 3072, 0.0, F.gelu, batch_first=True, norm_first=norm_first
    )


class LlamaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(576, (9 + 2 * 3) * 64, bias=False)
        self.out = nn.Linear(576, 576, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(576), nn.RMSNorm(576)
        self.gate, self.up = nn.Linear(576, 1536, bias=False), nn.Linear(576, 1536, bias=False)
        self.down = nn.Linear(1536, 576, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, 64, 2) / 64)
        angles = torch.outer(torch.arange(2048).float(), frequencies)
        self.cos, self.sin = torch.cos(angles), torch.sin(angles)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([576, 192, 192], -1)
        q, k, v = (y.view(batch, length, -1, 64).transpose(1, 2) for y in (q, k, v))
        q, k = self.rotate(q), self.rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, 576))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 256, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(10_000, 32) for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32))
        self.top = nn.Sequential(
            nn.Linear(32 + 81, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        self.ids = torch.randint(0, 10_000, (8, 256))

    def forward(self, x):
        dense = self.bottom(x)
        features = [dense, *(table(ids) for table, ids in zip(self.tables, self.ids))]
        both = torch.stack(features, 1)
        return self.top(torch.cat([dense, (both @ both.mT).flatten(1)], 1))


MODELS = {
    "resnet18": resnet18,
    "resnet18_224": resnet18,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "convnext_block": ConvNextBlock,
    "unet_block": UNetBlock,
    "bert_layer": lambda: transformer_layer(False),
    "vit_layer": lambda: transformer_layer(True),
    "llama_layer": LlamaLayer,
    "lstm": Lstm,
    "dlrm": Dlrm,
}


def run(case):
    """The function that does the work of a line once."""
    net = MODELS[case["op"].removeprefix("model/")]()
    x = torch.randn(case["inputs"][0]["shape"])
    if not case["grad"]:
        net.eval()

        def inference():
            with torch.inference_mode():
                return net(x)

        return inference
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step
