"""`locate` on files of the fixture nets: what the end-to-end tests ask, and what each answer must hold."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import onnx

import bisect_onnx
from bisect_onnx.core.graph import node_label
from bisect_onnx.core.report import Report, Status
from fixtures.effect import outputs, scaled
from fixtures.export import exported
from fixtures.faults import Planted
from fixtures.nets import NETS
from fixtures.strip import strip

__all__ = [
    "EXPORTERS",
    "FILES",
    "NAMES",
    "SCHEMA",
    "accused",
    "ancestors",
    "assert_proven",
    "assert_valid",
    "feeds_of",
    "file_of",
    "healthy",
    "labels",
    "locate",
    "moved",
    "told",
]

Array = Any  # of numpy; the tests only hand it on

EXPORTERS = ["dynamo", "torchscript"]
NAMES = ["named", "stripped"]

# Every net with each of its exporters, with its names and without.
FILES = [(net, exporter, names) for net in NETS for exporter in NETS[net].exporters for names in NAMES]

SCHEMA = json.loads((Path(bisect_onnx.__file__).parent / "schema" / "report-1.json").read_text(encoding="utf-8"))


def file_of(model: onnx.ModelProto, path: Path, *, names: str = "named") -> Path:
    """Write ``model`` to ``path``, as it is or ``stripped``."""
    onnx.save(strip(model) if names == "stripped" else model, path)
    return path


def feeds_of(net: str) -> Mapping[str, Array]:
    _, inputs = NETS[net].build(0)
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def locate(net: str, path: Path, **options: Any) -> Report:
    """Hold the file against its net; level 0 unless the caller asks for another."""
    module, inputs = NETS[net].build(0)
    report = bisect_onnx.locate(module, path, inputs, **{"level": 0} | options)
    assert_valid(report)
    return report


def labels(planted: Planted, *, names: str) -> list[str]:
    """How a report calls the guilty nodes."""
    nodes = planted.model.graph.node
    return [
        node_label(index, nodes[index].op_type, name=nodes[index].name if names == "named" else "")
        for index in planted.nodes
    ]


def accused(report: Report) -> list[str]:
    return [culprit.node for culprit in report.culprits]


def assert_valid(report: Report) -> None:
    """What every report holds: the schema, an exit status that fits, no located without a culprit or an optimiser."""
    jsonschema.Draft202012Validator(SCHEMA).validate(report.to_dict())
    assert report.exit_code == {"parity": 0, "inconclusive": 3}.get(report.status.value, 1)
    assert (report.status is Status.LOCATED) <= bool(report.culprits or report.optimizers)


def assert_proven(report: Report, guilty: list[str], *, planted: str = "a fault") -> None:
    """The first culprit is one of the ``guilty`` and certified, and nobody else is accused.

    ``planted`` says what was done to the file, for the reader of a failure.
    """
    said = f"planted: {planted} ({', '.join(guilty)}); said: {report.status.value}, {told(report)}"
    assert report.culprit is not None, said
    assert accused(report)[0] in guilty, said
    assert set(accused(report)) <= set(guilty), said
    assert report.status is Status.LOCATED, said
    assert report.culprit.confidence == "certified", said
    assert report.culprit.certificate.complete, said


def told(report: Report) -> str:
    """The accusations of a report on one line: nodes with their groups, or the summary."""
    if not report.culprits:
        return report.summary
    return "; ".join(
        f"{culprit.node} ({culprit.confidence}, group {list(culprit.group)})" for culprit in report.culprits
    )


def healthy(net: str, exporter: str, folder: Path) -> onnx.ModelProto:
    return onnx.load(exported(net, exporter, 0, folder))


def moved(net: str, before: onnx.ModelProto, after: onnx.ModelProto) -> float:
    """How far the outputs of one file are from those of another."""
    feeds = feeds_of(net)
    return max(scaled(*pair) for pair in zip(outputs(before, feeds), outputs(after, feeds), strict=True))


def ancestors(model: onnx.ModelProto, index: int) -> Iterator[int]:
    """Positions of the nodes that the node at ``index`` computes from."""
    producers = {name: place for place, node in enumerate(model.graph.node) for name in node.output if name}
    stack, seen = list(model.graph.node[index].input), set()
    while stack:
        place = producers.get(stack.pop())
        if place is not None and place not in seen:
            seen.add(place)
            yield place
            stack.extend(model.graph.node[place].input)
