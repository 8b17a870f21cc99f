"""Two independent faults are both accused, on parallel branches and one behind the other."""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from fixtures.effect import counts
from fixtures.faults import FAULTS, Planted
from tests.end_to_end.at_work import accused, ancestors, file_of, healthy, labels, locate, moved, told

pytestmark = pytest.mark.slow

# Kinds that leave the number of nodes as it is, so that the places of the first stay valid.
KINDS = ("weight_scaled", "weight_stale", "bias_shifted", "activation", "batch_statistics")
PAIRS = 2  # per net
NETS_WITH_BRANCHES = ("detector", "dict_outputs", "bert", "llama_block", "postnorm", "wavenet")
SERIES = ("activation_chain", "deep_stack", "residual", "resize", "llama_block", "gpt2")


def pairs_of_faults(net: str, model: onnx.ModelProto, *, parallel: bool) -> Iterator[tuple[Planted, Planted]]:
    """Two faults of different nodes; each alone moves an output."""
    for seed, (one, other) in itertools.product(range(6), itertools.permutations(KINDS, 2)):
        first = FAULTS[one].plant(model, seed)
        alone = FAULTS[other].plant(model, seed + 1)
        second = None if first is None else FAULTS[other].plant(first.model, seed + 1)
        if first is None or second is None or alone is None or first.nodes == second.nodes:
            continue
        (here,), (there,) = first.nodes, second.nodes
        above = set(ancestors(model, here)) | set(ancestors(model, there))
        if parallel == bool(above & {here, there}):
            continue
        if all(counts(moved(net, model, planted.model)) for planted in (first, alone)):
            yield first, second


@functools.cache
def first_pairs(net: str, exporter: str, folder: Path, *, parallel: bool) -> tuple[tuple[Planted, Planted], ...]:
    model = healthy(net, exporter, folder)
    return tuple(itertools.islice(pairs_of_faults(net, model, parallel=parallel), PAIRS))


@pytest.mark.parametrize("number", range(PAIRS))
@pytest.mark.parametrize("names", ["named", "stripped"])
@pytest.mark.parametrize(
    ("net", "parallel"),
    [*((net, True) for net in NETS_WITH_BRANCHES), *((net, False) for net in SERIES)],
    ids=lambda value: value if isinstance(value, str) else ("parallel" if value else "series"),
)
def test_both_faults_are_accused(
    net: str, *, parallel: bool, names: str, number: int, export_folder: Path, tmp_path: Path
):
    exporter = "dynamo" if names == "named" else "torchscript"
    first, second = first_pairs(net, exporter, export_folder, parallel=parallel)[number]

    report = locate(net, file_of(second.model, tmp_path / "m.onnx", names=names))

    guilty = [*labels(first, names=names), *labels(second, names=names)]
    said = f"planted: {first.description}; {second.description} ({', '.join(guilty)}); said: {told(report)}"
    assert sorted(accused(report)) == sorted(guilty), said
    assert all(culprit.certificate.complete for culprit in report.culprits), said
