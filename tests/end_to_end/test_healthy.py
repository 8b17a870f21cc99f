"""No fault, no accusation: every healthy export agrees, and when forced to search still names nobody."""

from pathlib import Path

import pytest

from bisect_onnx.core.report import Status
from tests.end_to_end.at_work import FILES, file_of, healthy, locate

pytestmark = pytest.mark.slow


@pytest.fixture(params=FILES, ids="-".join)
def file(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    found: tuple[str, str, str] = request.param
    return found


@pytest.mark.parametrize("level", [0, 99])
def test_a_healthy_export_is_parity(file: tuple[str, str, str], level: int, export_folder: Path, tmp_path: Path):
    net, exporter, names = file
    path = file_of(healthy(net, exporter, export_folder), tmp_path / "m.onnx", names=names)

    report = locate(net, path, level=level)

    assert (report.status, report.exit_code, report.culprits) == (Status.PARITY, 0, ()), report.summary
    assert report.missing_operation is None


def test_a_tolerance_below_rounding_makes_it_search_and_accuses_nobody(
    file: tuple[str, str, str], export_folder: Path, tmp_path: Path
):
    searched_in_vain(file, strategy="scan", export_folder=export_folder, tmp_path=tmp_path)


@pytest.mark.parametrize("file", [*FILES[1::8], *FILES[7::8]], ids="-".join)  # stripped, exporters by turns
def test_a_bisection_of_a_healthy_file_accuses_nobody(file: tuple[str, str, str], export_folder: Path, tmp_path: Path):
    searched_in_vain(file, strategy="bisect", export_folder=export_folder, tmp_path=tmp_path)


def searched_in_vain(file: tuple[str, str, str], *, strategy: str, export_folder: Path, tmp_path: Path) -> None:
    net, exporter, names = file
    path = file_of(healthy(net, exporter, export_folder), tmp_path / "m.onnx", names=names)

    report = locate(net, path, strategy=strategy, atol=1e-12)

    differs = any(row.error is not None and (row.error.max_abs or 0.0) > 1e-12 for row in report.outputs)
    assert report.status is (Status.ACCUMULATION if differs else Status.PARITY), report.summary
    assert (report.culprits, report.missing_operation) == ((), None)
    # Nobody was acquitted for want of a partner: values inside were held against the reference.
    assert not differs or report.alignment.pairs > 0
