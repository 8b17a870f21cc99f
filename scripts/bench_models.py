"""The models that the benchmark measures on: their exports, healthy and with one fault."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import onnx
import torch
from torch import nn

from bisect_onnx.core.compare import Array
from fixtures.export import export
from fixtures.faults import FAULTS
from fixtures.nets.net import DYNAMO, Built, randomised, seeded

__all__ = ["FAULT_KINDS", "MODELS", "Exported", "exported"]

SEED: Final = 0


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, beside a shortcut, as in ResNet-50 v1.5 (the stride is in the 3x3)."""

    def __init__(self, given: int, width: int, *, stride: int) -> None:
        super().__init__()
        made = 4 * width
        self.narrow = nn.Conv2d(given, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.across = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.widen = nn.Conv2d(width, made, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(made)
        self.relu = nn.ReLU()
        shortcut = (nn.Conv2d(given, made, 1, stride=stride, bias=False), nn.BatchNorm2d(made))
        self.shortcut = nn.Sequential(*(shortcut if stride > 1 or given != made else ()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.narrow(x)))
        y = self.relu(self.norm2(self.across(y)))
        result: torch.Tensor = self.relu(self.norm3(self.widen(y)) + self.shortcut(x))
        return result


class ResNet50(nn.Module):
    """The layers of He et al., "Deep Residual Learning for Image Recognition", 2015, table 1, 50 layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages, given = [], 64
        for number, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            blocks = []
            for place in range(depth):
                blocks.append(Bottleneck(given, width, stride=2 if number and not place else 1))
                given = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(given, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.flatten(self.pool(self.stages(self.stem(image))), 1))
        return result


class ViT(nn.Module):
    """The encoder of ViT-B/16."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTModel

        self.vit = ViTModel(ViTConfig(), add_pooling_layer=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.vit(pixel_values=image).last_hidden_state
        return result


class Bert(nn.Module):
    """The encoder of BERT-base."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig())

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.bert(input_ids=input_ids, attention_mask=attention_mask)
        return found.last_hidden_state, found.pooler_output


def _resnet50() -> Built:
    with seeded(SEED) as generator:
        return randomised(ResNet50()), {"image": torch.randn(1, 3, 224, 224, generator=generator)}


def _vit() -> Built:
    with seeded(SEED) as generator:
        return randomised(ViT()), {"image": torch.randn(1, 3, 224, 224, generator=generator)}


def _bert() -> Built:
    with seeded(SEED) as generator:
        mask = torch.ones(1, 128, dtype=torch.int64)
        mask[:, 100:] = 0
        words = torch.randint(0, 30522, (1, 128), generator=generator)
        return randomised(Bert()), {"input_ids": words, "attention_mask": mask}


MODELS: Final[Mapping[str, Callable[[], Built]]] = {"resnet50": _resnet50, "vit": _vit, "bert": _bert}

# One fault each, of a kind that exporters and converters have made.
FAULT_KINDS: Final[Mapping[str, str]] = {"resnet50": "activation", "vit": "rewired", "bert": "activation"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """A model and its files."""

    name: str
    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    healthy: Path
    faulty: Path
    guilty: tuple[int, ...]  # nodes of the faulty file
    fault: str  # what was done to them

    @property
    def feeds(self) -> dict[str, Array]:
        return {name: tensor.numpy() for name, tensor in self.inputs.items()}


def exported(name: str, *, folder: Path) -> Exported:
    """Build a model; its exports are written to ``folder`` unless they are there already."""
    module, inputs = MODELS[name]()
    folder.mkdir(parents=True, exist_ok=True)
    healthy = folder / f"{name}.onnx"
    if not healthy.exists():
        export(module, inputs, healthy, exporter=DYNAMO)
    faulty = folder / f"{name}-faulty.onnx"
    planted = FAULTS[FAULT_KINDS[name]].plant(onnx.load(healthy), SEED)
    assert planted is not None
    faulty.write_bytes(planted.model.SerializeToString())
    return Exported(
        name=name,
        module=module,
        inputs=inputs,
        healthy=healthy,
        faulty=faulty,
        guilty=planted.nodes,
        fault=planted.description,
    )
