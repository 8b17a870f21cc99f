"""One fault, held against each form that the right side may have."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import bisect_onnx
from bisect_onnx.core.report import Status
from fixtures.effect import outputs
from fixtures.export import quiet
from fixtures.nets import NETS
from fixtures.strip import strip
from fixtures.trial import Prepared, Trial, Variant, prepared
from tests.end_to_end.at_work import assert_proven, assert_valid, feeds_of, file_of, healthy, labels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # torch's own word on the archives it still reads
]

Form = Callable[[str, Path, Path], object]


def exported_program(net: str, folder: Path, _exports: Path) -> object:
    module, inputs = NETS[net].build(0)
    path = folder / "net.pt2"
    with quiet():
        torch.export.save(torch.export.export(module, tuple(inputs.values())), path)
    return path


def program_in_memory(net: str, _folder: Path, _exports: Path) -> object:
    module, inputs = NETS[net].build(0)
    with quiet():
        return torch.export.export(module, tuple(inputs.values()))


def torchscript_archive(net: str, folder: Path, _exports: Path) -> object:
    module, inputs = NETS[net].build(0)
    path = folder / "net.pt"
    with quiet():
        torch.jit.save(torch.jit.trace(module, tuple(inputs.values())), path)
    return path


def file_of_the_same_exporter(net: str, folder: Path, exports: Path) -> object:
    return file_of(healthy(net, "dynamo", exports), folder / "healthy.onnx")


def file_of_the_other_exporter(net: str, folder: Path, exports: Path) -> object:
    return file_of(healthy(net, "torchscript", exports), folder / "other.onnx")


def file_without_names(net: str, folder: Path, exports: Path) -> object:
    onnx.save(strip(healthy(net, "torchscript", exports)), folder / "bare.onnx")
    return folder / "bare.onnx"


def recording(net: str, folder: Path, exports: Path) -> object:
    """Every value of the healthy file of the same exporter, by name."""
    opened = healthy(net, "dynamo", exports)
    known = {value.name for value in opened.graph.output}
    names = [name for node in opened.graph.node for name in node.output if name and name not in known]
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = outputs(opened, feeds_of(net))
    arrays = dict(zip([value.name for value in opened.graph.output], found, strict=True))
    np.savez(folder / "values.npz", **feeds_of(net), **arrays)
    return folder / "values.npz"


FORMS: list[Form] = [
    exported_program,
    program_in_memory,
    torchscript_archive,
    file_of_the_same_exporter,
    file_of_the_other_exporter,
    file_without_names,
]
CASES = [
    ("resize", "resize_mode", "stripped"),
    ("mobile", "weight_stale", "named"),
    ("prenorm", "activation", "stripped"),
    ("deep_stack", "rewired", "named"),
]


def case_of(net: str, kind: str, exports: Path, *, names: str) -> Prepared:
    trial = Trial(net=net, exporter="dynamo", variant=Variant(names), kind=kind, seed=3)
    case = prepared(trial, folder=exports)
    assert case is not None
    return case


@pytest.mark.parametrize(("net", "kind", "names"), CASES)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_fault_is_found_against_every_form(
    form: Form, net: str, kind: str, names: str, export_folder: Path, tmp_path: Path
):
    case = case_of(net, kind, export_folder, names=names)
    assert case.planted is not None
    path = file_of(case.model, tmp_path / "m.onnx")

    report = bisect_onnx.locate(form(net, tmp_path, export_folder), path, feeds_of(net), level=0)

    assert_valid(report)
    assert_proven(report, labels(case.planted, names=names))


@pytest.mark.parametrize(("net", "kind"), [case[:2] for case in CASES])
def test_the_fault_is_found_against_a_recording(net: str, kind: str, export_folder: Path, tmp_path: Path):
    case = case_of(net, kind, export_folder, names="named")
    assert case.planted is not None
    path = file_of(case.model, tmp_path / "m.onnx")

    report = bisect_onnx.locate(recording(net, tmp_path, export_folder), path, feeds_of(net), level=0)

    assert_valid(report)
    assert_proven(report, labels(case.planted, names="named"))


@pytest.mark.parametrize("net", ["resize", "prenorm"])
@pytest.mark.parametrize("form", [*FORMS, recording], ids=lambda form: form.__name__)
def test_a_healthy_file_is_parity_against_every_form(form: Form, net: str, export_folder: Path, tmp_path: Path):
    path = file_of(healthy(net, "dynamo", export_folder), tmp_path / "m.onnx")

    report = bisect_onnx.locate(form(net, tmp_path, export_folder), path, feeds_of(net))

    assert_valid(report)
    assert (report.status, report.culprits) == (Status.PARITY, ())
