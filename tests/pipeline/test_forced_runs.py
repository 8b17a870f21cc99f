"""What a round of a search runs again, and that it sees what a run of everything would."""

from collections.abc import Collection, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.tensor import Fingerprint, fingerprint
from bisect_onnx.pipeline.forced_runs import ForcedRuns
from tests.builders import FEW, Sources, dags


class Sums:
    """A region whose values are the sums of what they read, plus their own number; cut ones are read as -1."""

    def __init__(self, sources: Sources) -> None:
        nodes = tuple(
            Node(
                index=place,
                name=f"n{place}",
                op_type="Sum",
                inputs=tuple(f"v{s}" for s in above),
                outputs=(f"v{place}",),
            )
            for place, above in enumerate(sources)
        )
        self.graph = Graph(name="sums", inputs=(), outputs=(), nodes=nodes, values={})
        self.fetched: list[list[str]] = []

    def run(self, cuts: Collection[Pair], fetch: Sequence[str] | None = None) -> dict[str, Array]:
        cut = {pair.candidate for pair in cuts}
        values: dict[str, Array] = {}
        for node in self.graph.nodes:
            read = [np.array([-1.0]) if name in cut else values[name] for name in node.inputs]
            values[node.outputs[0]] = np.sum([*read, np.array([float(node.index)])], axis=0)
        wanted = list(values) if fetch is None else list(fetch)
        self.fetched.append(wanted)
        return {name: values[name] for name in wanted}

    def prints(self, values: dict[str, Array]) -> dict[str, Fingerprint]:
        self.fetched.append(list(values))
        return {name: fingerprint(array) for name, array in values.items()}


def pairs(*values: int) -> list[Pair]:
    return [Pair(candidate=f"v{value}", reference="r", basis=Basis.VALUE) for value in values]


CHAIN: Sources = ((), (0,), (1,), (2,), (3,))


@FEW
@given(dags(), st.lists(st.sets(st.integers(0, 40)), min_size=2, max_size=4))
def test_each_round_sees_what_a_run_of_everything_sees(sources: Sources, rounds: list[set[int]]):
    region = Sums(sources)
    runs = ForcedRuns(region)  # type: ignore[arg-type]  # the three members that are used

    for chosen in rounds:
        cuts = pairs(*(value for value in chosen if value < len(sources)))
        assert runs.run(cuts) == region.run(cuts)


def test_only_what_a_changed_cut_reaches_is_run_again():
    region = Sums(CHAIN)
    runs = ForcedRuns(region)  # type: ignore[arg-type]
    runs.run(pairs(1, 3))
    region.fetched.clear()

    runs.run(pairs(1, 2, 3))

    assert region.fetched == [["v3"]]


def test_the_same_cuts_are_not_run_again():
    region = Sums(CHAIN)
    runs = ForcedRuns(region)  # type: ignore[arg-type]
    runs.run(pairs(1))
    region.fetched.clear()

    runs.run(pairs(1))

    assert region.fetched == []


def test_an_array_is_read_once_and_another_one_in_its_place_is_read_too():
    region = Sums(CHAIN)
    runs = ForcedRuns(region)  # type: ignore[arg-type]
    first, second = np.ones(4), np.zeros(4)
    runs.prints({"v0": first, "v1": first})
    region.fetched.clear()

    found = runs.prints({"v0": first, "v1": second})

    assert region.fetched == [["v1"]]
    assert (found["v0"].mean, found["v1"].mean) == (1.0, 0.0)
