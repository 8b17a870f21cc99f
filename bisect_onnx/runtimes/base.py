"""What the pipeline asks of the two sides; every adapter in this folder answers one of these."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import Graph, Node, PathStep
from bisect_onnx.core.tensor import Fingerprint

__all__ = ["Array", "Candidate", "Capture", "Choice", "FloorEstimate", "Origin", "Place", "Reference", "WrittenOut"]

Array = np.ndarray[Any, np.dtype[Any]]
FloorEstimate = Mapping[str, Array]
Place = tuple[tuple[PathStep, ...], int]  # the way to a node, and its position there


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The node of the user's file that a written-out node is a copy of.

    ``made``: no copy, it does something that the control flow node itself does (slices, stacks, passes on).
    """

    node: Node
    path: tuple[PathStep, ...] = ()
    made: bool = False

    @property
    def place(self) -> Place:
        return self.path, self.node.index

    @property
    def anywhere(self) -> Place:
        """`place` without regard to iterations."""
        return tuple(dataclasses.replace(step, iteration=None) for step in self.path), self.node.index


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """How a control flow node goes: the branch (0 for else), or the number of iterations."""

    node: Node
    taken: int


class Capture(Protocol):
    """One opened-up run of the reference.

    ``graph`` holds every call in order; its value names key everything else. Views of parameters are
    values of kind PARAMETER. ``fingerprints`` has an entry for each activation and input, and for
    parameters and buffers (named as in the state dict).
    """

    graph: Graph
    fingerprints: Mapping[str, Fingerprint]

    def fetch(self, names: Sequence[str]) -> dict[str, Array]:
        """Arrays of the named values (copies the caller may keep), from memory or from another pass."""
        ...

    def exact(self, fetch: Sequence[str], *, given: Sequence[str] | None, seed: int | None) -> dict[str, Array]:
        """Repeat the calls in float64 and return the named values as float64 arrays.

        Args:
            fetch: Values wanted.
            given: Values taken from the capture (upcast) instead of being computed; None computes
                everything from the graph inputs. A name that is also in ``fetch`` is returned as its own
                call computes it, so that one repetition can test every call on the inputs it had.
            seed: None for the plain float64 result; otherwise each call's result is multiplied, element
                by element, by 1 + u with u uniform within half a unit roundoff of the original dtype,
                as independent rounding would do (Monte Carlo arithmetic, Parker 1997).

        Returns:
            One array per name; a name whose calls cannot be repeated in float64 is absent.
        """
        ...

    def recompute(self, fetch: Sequence[str], *, given: Mapping[str, Array]) -> dict[str, Array]:
        """What the reference makes of other values: its calls on ``given``, in its own precision or a higher one.

        Args:
            fetch: Values wanted.
            given: Arrays in the place of captured values, of their shapes; everything else is as captured, or
                computed from these. A name that is also in ``fetch`` is returned as its own call computes it.

        Returns:
            One array per name; a name whose calls cannot be repeated is absent.
        """
        ...

    def open_up(self, fetch: Sequence[str], *, given: Sequence[str]) -> "Capture":
        """Repeat the calls between ``given`` and ``fetch`` with each ATen op decomposed further.

        The returned capture names the values in ``given`` and ``fetch`` as this one does; the values in
        between are what the ops imply inside (the erf of a GELU, the product under a linear layer).
        """
        ...


class Reference(Protocol):
    """The side that is right."""

    description: str
    input_names: tuple[str, ...]  # in call order
    output_names: tuple[str, ...]  # flattened; known after the first run
    changed_inputs: frozenset[str]  # inputs that the last run wrote to; it was given copies

    @property
    def parameters(self) -> Mapping[str, Array]:
        """State dict entries; empty when the reference has none."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs of the untouched model: what counts as truth. Keys are ``output_names``.

        Every run begins at the caller's random state, so that a model that draws random numbers draws the same.
        """
        ...

    def rerun(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but a model that draws random numbers draws others; the caller's random state stays."""
        ...

    def capture(self, feeds: Mapping[str, Array], *, max_bytes: int) -> Capture:
        """Run once, opened up. Keeps arrays while they fit in ``max_bytes``, otherwise fingerprints."""
        ...


class Candidate(Protocol):
    """The ONNX model under test."""

    graph: Graph
    parameters: Mapping[str, Array]  # initializers and constant nodes' values, memory-mapped where possible

    @property
    def runs(self) -> int:
        """How often the model, or a part of it, was run."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The untouched model in the requested configuration."""
        ...

    def run_afresh(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """`run` in a session made for it."""
        ...

    def probe(
        self,
        feeds: Mapping[str, Array],
        *,
        fetch: Sequence[str],
        cuts: Mapping[str, Array],
        edits: Sequence[NodeEdit] = (),
    ) -> dict[str, Array]:
        """Run at level 0 on CPU with values replaced and exposed.

        Args:
            feeds: Graph inputs.
            fetch: Values to return. A value that is also in ``cuts`` is returned as its producer computed
                it, not as replaced.
            cuts: Values whose consumers read this array instead of the computed one. Shape and dtype
                are the value's own.
            edits: Other forms of some nodes, for this run only.

        Returns:
            One array per name in ``fetch``; a value the runtime cannot expose (a sequence, an optional)
            is absent.
        """
        ...

    def evaluated(
        self,
        nodes: Sequence[Node],
        *,
        inputs: Mapping[str, Array],
        output: str,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Array:
        """What another implementation makes of some nodes; see `runtimes.onnx_evaluator.evaluate`."""
        ...

    def written_out(
        self, feeds: Mapping[str, Array], *, output: str, choices: Mapping[Place, int]
    ) -> "WrittenOut | None":
        """What computes ``output`` from ``feeds``, with bodies and functions written out as plain nodes.

        Args:
            feeds: Values of the main graph where the piece begins.
            output: Value of the main graph where it ends.
            choices: `Choice.taken` where it is not to be as the model decides.

        Returns:
            None when nothing ran in a body there, or when it cannot be written out.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenOut:
    """A piece of a candidate without control flow; its inputs are called as in the main graph, its output too."""

    candidate: Candidate
    origins: Sequence[Origin]  # by index of the node in the candidate
    original: Mapping[str, str]  # name in the user's file of each value that was given a new name
    choices: Mapping[Place, Choice]
    states: Mapping[str, Place]  # what iterations of a Loop hand on, the last ones too, and which Loop it is
