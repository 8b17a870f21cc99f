"""Small modules that the tests of the PyTorch reference run."""

import dataclasses

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.runtimes.torch_capture import TorchCapture
from bisect_onnx.runtimes.torch_eager import EagerReference

PLENTY = 1 << 30


class Residual(nn.Module):
    """In-place activation, in-place addition, and one module called twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, image):
        skip = self.act(self.norm(self.first(image)))
        inner = self.act(self.second(skip))
        inner += skip
        return inner


class SliceWrite(nn.Module):
    """Writes through a view: the tensor changes without being an argument of the call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        y[:, 0] = 0.5
        y[:, 1:3].mul_(2)
        return y + 1


class Interleaved(nn.Module):
    """Two strided writes to one buffer, and a view of the buffer that one of them changes."""

    def forward(self, x):
        out = torch.zeros(x.shape[0], 2 * x.shape[1])
        odd = out[:, 1::2]
        out[:, 0::2] = torch.sin(x)
        untouched = odd + 1
        out[:, 1::2] = torch.cos(x)
        return out, odd * 2, untouched


class Thrice(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return self.block(self.block(self.block(x)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 4, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


class Attention(nn.Module):
    """A layer that has a fused kernel of its own in evaluation mode."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


@dataclasses.dataclass
class Heads:
    scores: torch.Tensor
    boxes: torch.Tensor
    extra: torch.Tensor | None = None


class Structured(nn.Module):
    """Outputs nested in a mapping, a tuple and a dataclass, with a gap."""

    def forward(self, x):
        return {"heads": Heads(scores=x + 1, boxes=x * 2), "pair": (x - 1, [x / 2]), "none": None, "count": 3}


class Mixture(nn.Module):
    """One of each operator that a float64 repetition has to treat with care."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.group = nn.GroupNorm(2, 4)
        self.instance = nn.InstanceNorm2d(4, affine=True)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.transposed = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.batch = nn.BatchNorm2d(4)
        self.scale = torch.linspace(0.5, 1.5, 8)  # a plain attribute, not in the state dict
        self.batch.load_state_dict({"running_mean": torch.rand(4), "running_var": torch.rand(4) + 0.5}, strict=False)

    def forward(self, ids, image):
        positions = torch.arange(ids.shape[1]) / ids.shape[1]
        y = functional.gelu(self.norm(self.table(ids)) * self.scale + positions[:, None])
        y = functional.gelu(functional.silu(y, inplace=True), approximate="tanh")
        mask = torch.full((ids.shape[1], ids.shape[1]), torch.finfo(torch.float32).min).triu(1)
        y = functional.softmax(y @ y.transpose(1, 2) + mask, -1).type_as(y) @ y
        y = (
            functional.mish(y)
            + functional.hardswish(y)
            + functional.softplus(y)
            + functional.log_softmax(y, -1)
            + functional.elu(y)
            + y.float().pow(2)
        )
        best = y.topk(3, dim=-1)
        y = y.masked_fill(y > best.values[..., -1:], 0.25)
        z = self.group(self.instance(self.batch(self.conv(image))))
        z = functional.interpolate(z, scale_factor=2, mode="bilinear")
        z = functional.interpolate(self.transposed(z), size=(5, 5), mode="bicubic")
        grid = functional.affine_grid(torch.eye(2, 3)[None] * 0.9, [1, 2, 5, 5], align_corners=False)
        z = functional.grid_sample(z, grid, align_corners=False)
        return (
            y,
            best.indices,
            z.var(dim=(2, 3)),
            functional.avg_pool2d(functional.pad(z, (1, 1, 1, 1), mode="reflect"), 2),
        )


def mixture_feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"ids": rng.integers(0, 11, (2, 6)), "image": rng.standard_normal((1, 1, 6, 6), dtype=np.float32)}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def captured(module: nn.Module, feeds: dict[str, np.ndarray]) -> TorchCapture:
    return EagerReference(module, description="module").capture(feeds, max_bytes=PLENTY)


def node_of(graph: Graph, op_type: str, *, number: int = 0) -> Node:
    return [node for node in graph.nodes if node.op_type == op_type][number]


def float_activations(graph: Graph, node: Node) -> list[str]:
    return [
        name
        for name in node.real_outputs()
        if graph.kind(name) is ValueKind.ACTIVATION and (graph.values[name].dtype or "").startswith(("float", "bfloat"))
    ]
