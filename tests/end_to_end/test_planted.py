"""A fault planted at a drawn node: that node is accused, with proof, and nobody else.

Each net gets eight kinds of fault, each kind gets a net, in files of both exporters, with names and without. A
fault that moves no output by ten floors is drawn again. The full matrix is scripts/campaign.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fixtures.nets import NETS
from fixtures.sample import BLAMABLE, faults_of_net, net_for_kind
from fixtures.trial import Prepared
from tests.end_to_end.at_work import assert_proven, file_of, labels, locate

pytestmark = pytest.mark.slow

SEED = 2
KINDS_PER_NET = 8
# Of 346 such cases seven were missed on an earlier state of the code; some named a wrong node. The aim is all of
# them: raise this as they are mended.
NEEDED = 0.95


def misses(cases: Iterable[Prepared], path: Path) -> Iterator[str | None]:
    """What went wrong with each case; None for the planted node accused with proof."""
    for case in cases:
        assert case.planted is not None
        names = "stripped" if case.trial.stripped else "named"
        report = locate(case.trial.net, file_of(case.model, path))  # the case is stripped already
        try:
            assert_proven(report, labels(case.planted, names=names))
        except AssertionError as error:
            yield f"{case.trial.label} ({case.planted.description}): {str(error).splitlines()[0]}"
        else:
            yield None


def assert_nearly_all(found: list[str | None]) -> None:
    wrong = [miss for miss in found if miss is not None]
    assert len(wrong) <= (1 - NEEDED) * len(found), "\n" + "\n".join(wrong)


def test_planted_nodes_are_accused_in_every_net(export_folder: Path, tmp_path: Path):
    # Names and none by turns: the whole matrix takes longer than a test run should.
    found: list[str | None] = []
    for number, net in enumerate(NETS):
        cases = faults_of_net(net, folder=export_folder, seed=SEED, count=KINDS_PER_NET, stripped=number % 2 == 1)
        found += misses(cases, tmp_path / "m.onnx")

    assert len(found) == KINDS_PER_NET * len(NETS)
    assert_nearly_all(found)


def test_each_kind_of_fault_is_found(export_folder: Path, tmp_path: Path):
    cases = (
        net_for_kind(kind, folder=export_folder, seed=SEED, stripped=number % 2 == 1)
        for number, kind in enumerate(BLAMABLE)
    )

    assert_nearly_all(list(misses(cases, tmp_path / "m.onnx")))
