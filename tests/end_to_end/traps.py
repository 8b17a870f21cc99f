"""Modules with values that are easily taken for one another, and modules that one operation was taken out of."""

from collections.abc import Callable

import torch
from torch import nn

__all__ = ["LOSABLE", "LOST_LINES", "Losing", "Repeating", "seeded_module"]

LOSABLE = ("input_tanh", "slot_write", "slice_scaling", "relu", "residual", "output_sigmoid")


class Losing(nn.Module):
    """All of `LOSABLE`; the one named ``lost`` is left out, as by an exporter that forgets it."""

    def __init__(self, lost: str | None = None):
        super().__init__()
        self.lost = lost
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)

    def forward(self, features):
        x = features
        if self.lost != "input_tanh":
            x = torch.tanh(x)
        x = self.first(x)
        if self.lost != "slot_write":
            x[:, 1] = 0.5
        if self.lost != "slice_scaling":
            x[:, :2] *= 2.0
        x = self.second(torch.tanh(x))
        if self.lost != "relu":
            x = torch.relu(x)
        skip = x
        x = self.third(x)
        if self.lost != "residual":
            x = x + skip
        if self.lost != "output_sigmoid":
            x = torch.sigmoid(x)
        return x


# What stands in `Losing.forward` where each is left out.
LOST_LINES = {
    "input_tanh": "x = torch.tanh(x)",
    "slot_write": "x[:, 1] = 0.5",
    "slice_scaling": "x[:, :2] *= 2.0",
    "relu": "x = torch.relu(x)",
    "residual": "x = x + skip",
    "output_sigmoid": "x = torch.sigmoid(x)",
}


class Attention(nn.Module):
    """Masked with finfo.min; the bias of each layer is the same zero tensor, the mask is made anew in each."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.register_buffer("nothing", torch.zeros(width))
        self.nothing: torch.Tensor

    def forward(self, x, mask):
        hidden = (1.0 - mask[:, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        scores = self.query(x) @ self.key(x).transpose(1, 2) * 0.25 + hidden
        return scores.softmax(dim=-1) @ x + self.nothing


class Repeating(nn.Module):
    """Four layers; two share their weights, masks repeat in each, and whole tensors are zero."""

    def __init__(self):
        super().__init__()
        width = 8
        self.embed = nn.Embedding(20, width)
        first, second, last = (Attention(width) for _ in range(3))
        last.query.weight = first.query.weight
        self.layers = nn.ModuleList([first, second, second, last])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 20, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens, mask):
        x = self.embed(tokens)
        idle = torch.relu(-x.abs())  # zero everywhere
        for layer in self.layers:
            x = self.norm(x + layer(x, mask)) + idle
            idle = idle * 2.0
        return self.out(x), idle


def seeded_module(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return build().eval()
